"""Fronts of a sparse Cholesky factorization: dense matrices of the rows that are eliminated together, in batches of one size.

Multifrontal method (Duff and Reid 1983). A front has the columns that it eliminates and the later rows that they reach; what is
left of those rows is added to the parent's front. Small subtrees are one front each. Fronts of nearly one size and of one height
in the tree are padded to one size, so that NumPy works on all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, triu

from ooc_chol.diff.memory import Array, IndexArray, cuda_values, device_of, index_type
from ooc_chol.diff.pattern import Pattern, trusted
from ooc_chol.eigen.factor_size import CountedTree, counted_tree, elimination_order

Places = NDArray[np.int64]

#: Columns of the largest subtree that is one front, zeros included.
_SUBTREE = 32
#: Entries of a column of L that may go with the one before in any case, and what share of entries may be zeros otherwise.
_SMALL_COUNT, _FILLED = 16, 1.2
_MOST_ENTRIES = np.iinfo(np.int32).max
#: Numbers of the fronts of a batch.
_BATCH = 1 << 20


class Link(NamedTuple):
    """Fronts of one batch that are children of fronts of another."""

    child: int  #: Number of the children's batch
    children: Places  #: (count,) which of that batch
    parents: Places  #: (count,) which of the parents' batch, one for each child
    places: Places  #: (count, child's rest) rows of the parent's front that the child's rest belongs to

    def turns(self) -> list[Link]:
        """The same in parts, in each of which no front has two children."""
        order = np.argsort(self.parents, kind="stable")
        ascending = self.parents[order]
        turn = np.empty(order.size, np.int64)
        turn[order] = np.arange(order.size) - np.searchsorted(ascending, ascending)
        return [
            Link(self.child, *(each[turn == number] for each in (self.children, self.parents, self.places)))
            for number in range(int(turn.max(initial=0)) + 1)
        ]


@final
@dataclass
class Batch:
    """Fronts of one size: ``width`` columns that are eliminated and ``rest`` more rows, padding and one more for it included."""

    count: int
    width: int
    rest: int
    columns: Places  #: (count, width) columns of A; -1 for padding
    rows: Places  #: (count, rest) rows of the rest, in the order of elimination; -1 for padding
    first: Places  #: (count,) first column of each, in the order of elimination
    entries: Places  #: Entries of A whose front is one of these, those of both triangles
    at: Places  #: Their places in fronts laid out one after the other
    links: list[Link] = field(default_factory=list)
    parent: int = -1  #: The last batch that has a parent of one of these
    child: int = -1  #: The first batch that has a child of one of these

    @property
    def edge(self) -> int:
        """Rows of a front as it is laid out: the last one takes what padding adds."""
        return self.width + self.rest + 1


@final
class Fronts:
    """Batches of fronts of a symmetric pattern with a whole diagonal, children before parents."""

    def __init__(self, pattern: Pattern) -> None:
        n = self.n = pattern.n_rows
        self.nnz = pattern.nnz
        ordered = _ordered(pattern)
        columns = self.order = ordered.order.astype(np.int64)
        self.position = np.empty(n, np.int64)
        self.position[columns] = np.arange(n)
        tree = _Tree(ordered)
        low, high = self.position[pattern.rows], self.position[pattern.indices]
        low, high = np.minimum(low, high), np.maximum(low, high)
        keys = _rows_of_fronts(tree, low, high)
        self.batches = _batches(tree, keys, columns, low, high)
        self._factor_pattern: tuple[Pattern, IndexArray] | None = None
        self._copies: dict[int, list[Batch]] = {}

    def on(self, like: Array) -> list[Batch]:
        """The batches with their places in the memory of an array, copied once to each device; links are in turns there."""
        device = device_of(like)
        if device is None:
            return self.batches
        if device not in self._copies:
            self._copies[device] = [_copied(batch, like) for batch in self.batches]
        return self._copies[device]

    @cached_property
    def places(self) -> IndexArray:
        """Place of each row in the order of elimination."""
        return IndexArray(self.position.copy())

    @property
    def factor_size(self) -> int:
        """Numbers of all eliminated columns, zeros and padding included."""
        return sum(batch.count * (batch.width + batch.rest) * batch.width for batch in self.batches)

    def factor_pattern(self) -> tuple[Pattern, IndexArray]:
        """Where L has entries, and their places among the eliminated columns of all fronts, batch after batch."""
        if self._factor_pattern is None:
            kind = index_type(self.factor_size)
            parts, before = [(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, kind))], 0
            for batch in self.batches:
                w = batch.width
                places = np.flatnonzero(_filled(batch))
                lines, columns = np.divmod(places, w)
                firsts = batch.first.astype(np.int32)
                rows = np.concatenate([firsts[:, None] + np.arange(w, dtype=np.int32), batch.rows.astype(np.int32)], axis=1)
                columns = columns.astype(np.int32) + firsts[lines // (batch.edge - 1)]
                parts.append((rows.reshape(-1)[lines], columns, (before + places).astype(kind)))
                before += batch.count * (batch.edge - 1) * w
            rows, columns, places = (np.concatenate(each) for each in zip(*parts, strict=True))
            matrix = csr_array((places, (rows, columns)), shape=(self.n, self.n))  # sorts rows; no place comes twice
            matrix.sort_indices()
            pattern = trusted(matrix.indptr, matrix.indices, (self.n, self.n), "the factor")
            self._factor_pattern = pattern, IndexArray(np.asarray(matrix.data))
        return self._factor_pattern


def _copied(batch: Batch, like: Array) -> Batch:
    """A batch in the memory of a device."""
    copied = cuda_values().copied
    turns = [turn for link in batch.links for turn in link.turns()]
    links = [Link(turn.child, *(copied(each, like) for each in turn[1:])) for turn in turns]
    arrays = {name: copied(getattr(batch, name), like) for name in ("columns", "entries", "at")}
    return replace(batch, **arrays, links=links)


def _filled(batch: Batch) -> NDArray[np.bool_]:
    """Where the eliminated columns of fronts are filled: what the children reach is, the rest by elimination."""
    edge = batch.edge
    filled = np.zeros((batch.count, edge, edge), bool)
    filled.reshape(-1)[batch.at] = True
    for link in batch.links:
        reached = link.places
        filled[link.parents[:, None, None], reached[:, :, None], reached[:, None, :]] = True
    filled = np.ascontiguousarray(filled[:, : edge - 1, : batch.width])
    for column in range(batch.width):
        below = filled[:, :, column].copy()
        below[:, : column + 1] = False
        filled |= below[:, :, None] & below[:, None, : batch.width]
    filled &= np.tril(np.ones(filled.shape[1:], bool)) & (batch.columns >= 0)[:, None, :]
    return filled


def _ordered(pattern: Pattern) -> CountedTree:
    """Columns in the order of elimination, subtrees in one piece, and the tree of L."""
    if not pattern.n_rows:
        return CountedTree(*[np.zeros(0, np.intp)] * 4)
    if pattern.nnz > _MOST_ENTRIES:
        raise ValueError(f"{pattern.name} has {pattern.nnz} entries, but SuperLU orders them in int32, up to {_MOST_ENTRIES}")
    shape, ones = pattern.shape, np.ones(pattern.nnz)
    a = csc_array((ones, pattern.indices, pattern.indptr.astype(np.int32)), shape=shape)
    order = elimination_order(a)
    upper = csc_array(triu(a[order][:, order], k=1))
    tree = counted_tree(upper)
    return tree._replace(order=order[tree.order])


@final
class _Tree:
    """Columns put together to fronts, and the tree of these."""

    def __init__(self, columns: CountedTree) -> None:
        _, parents, size, counts = columns
        n = parents.size
        small = size <= _SUBTREE
        follows = np.zeros(n, bool)  # a column after its child, both above the small subtrees
        follows[1:] = (parents[:-1] == np.arange(1, n)) & ~small[:-1]
        starts = ~small & ~_joined(follows, counts)
        tops = np.flatnonzero(small & ((parents < 0) | ~small[parents]))
        starts[tops - size[tops] + 1] = True
        self.n = n
        self.first = np.flatnonzero(starts).astype(np.int64)
        self.end = np.append(self.first[1:], n)[: self.first.size]
        self.of_column = np.repeat(np.arange(self.first.size), self.end - self.first)
        above = parents[self.end - 1]
        self.parent = np.where(above >= 0, self.of_column[above], -1)
        heights = [0] * self.first.size
        for front, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                heights[parent] = max(heights[parent], heights[front] + 1)
        self.height = np.asarray(heights, np.int64)


def _joined(follows: NDArray[np.bool_], counts: Places) -> NDArray[np.bool_]:
    """Columns that go with the one before: they have its rows, or zeros that are few or cost little."""
    joined = np.zeros(counts.size, bool)
    width = entries = 0
    at = np.flatnonzero(follows)
    last = -1
    for column, count, before in zip(at.tolist(), counts[at].tolist(), counts[at - 1].tolist(), strict=True):
        if column - 1 != last:  # the front of a column that follows none
            width, entries = 1, before
        last = column
        filled = (width + 1) * count + width * (width + 1) // 2
        is_small = width < _SUBTREE and count <= _SMALL_COUNT
        if before == count + 1 or is_small or filled <= _FILLED * (entries + count):
            joined[column] = True
            width, entries = width + 1, entries + count
        else:
            width, entries = 1, count
    return joined


def _rows_of_fronts(tree: _Tree, low: Places, high: Places) -> Places:
    """Rows below the eliminated columns of each front, as ``front * n + row``, ascending."""
    n = tree.n
    front = tree.of_column[low]
    outside = high >= tree.end[front]
    own = np.unique(front[outside] * n + high[outside])
    waiting: dict[int, list[Places]] = {}

    def wait(keys: Places) -> None:
        heights = tree.height[keys // n]
        by_height = np.argsort(heights, kind="stable")
        bounds = np.flatnonzero(np.diff(heights[by_height], prepend=-1))
        for part in np.split(keys[by_height], bounds[1:]):
            if part.size:
                waiting.setdefault(int(tree.height[part[0] // n]), []).append(part)

    wait(own)
    found = [np.zeros(0, np.int64)]
    for height in range(int(tree.height.max(initial=-1)) + 1):
        keys = np.unique(np.concatenate([np.zeros(0, np.int64), *waiting.pop(height, [])]))
        found.append(keys)
        parent, row = tree.parent[keys // n], keys % n
        beyond = row >= tree.end[parent]
        wait(parent[beyond] * n + row[beyond])
    return np.sort(np.concatenate(found))


def _batches(tree: _Tree, keys: Places, columns: Places, low: Places, high: Places) -> list[Batch]:
    """Fronts by height and size, with the entries of A and the children of each."""
    n, fronts = tree.n, tree.first.size
    starts = np.searchsorted(keys, np.arange(fronts + 1) * n)
    width, rest = tree.end - tree.first, np.diff(starts)
    owner = np.repeat(np.arange(fronts), rest)
    reached = keys - owner * n
    padded = _rounded(width), _rounded(rest)
    batch_of, groups = _grouped(tree.height, *padded)
    slot = np.empty(fronts, np.int64)
    made: list[Batch] = []
    none = np.zeros(0, np.int64)
    for members in groups:
        slot[members] = np.arange(members.size)
        w, r = int(padded[0][members[0]]), int(padded[1][members[0]])
        within = tree.first[members, None] + np.arange(w)
        of_a = np.where(within < tree.end[members, None], columns[np.minimum(within, n - 1)], -1)
        rows = _filled_up(reached, starts[members], rest[members], r)
        made.append(Batch(members.size, w, r, of_a, rows, tree.first[members], none, none))
    # entries of A
    front, widths = tree.of_column[low], padded[0]
    row = high - tree.first[front]
    outside = np.flatnonzero(high >= tree.end[front])
    of = front[outside]
    row[outside] = widths[of] + np.searchsorted(keys, of * n + high[outside]) - starts[of]
    edge = widths + padded[1] + 1
    at = (slot[front] * edge[front] + row) * edge[front] + low - tree.first[front]
    for batch, entries in zip(made, _split(batch_of[front], len(made)), strict=True):
        batch.entries, batch.at = entries, at[entries]
    # children
    child = np.flatnonzero(tree.parent >= 0)
    above = tree.parent[owner]
    local = np.where(
        reached < tree.end[above],
        reached - tree.first[above],
        widths[above] + np.searchsorted(keys, above * n + reached) - starts[above],
    )
    pair = batch_of[tree.parent[child]] * len(made) + batch_of[child]
    by_pair = np.argsort(pair, kind="stable")
    for part in np.split(child[by_pair], np.flatnonzero(np.diff(pair[by_pair])) + 1):
        if not part.size:
            continue
        below, over = int(batch_of[part[0]]), int(batch_of[tree.parent[part[0]]])
        places = _filled_up(local, starts[part], rest[part], made[below].rest)
        places[places < 0] = made[over].edge - 1
        made[over].links.append(Link(below, slot[part], slot[tree.parent[part]], places))
        made[below].parent = max(made[below].parent, over)
        made[over].child = below if made[over].child < 0 else min(made[over].child, below)
    return made


def _rounded(sizes: Places) -> Places:
    """Sizes rounded up to three leading bits, multiples of 4."""
    steps = 1 << np.maximum(np.floor(np.log2(np.maximum(sizes, 1))).astype(np.int64) - 2, 2)
    return np.asarray(-(-sizes // steps) * steps)


def _grouped(height: Places, width: Places, rest: Places) -> tuple[Places, list[Places]]:
    """Fronts of one height and size in batches of limited memory, lower ones first; the batch of each front."""
    order = np.lexsort((np.arange(height.size), rest, width, height))
    kinds = np.stack([height, width, rest], axis=1)[order]
    bounds = np.flatnonzero((kinds[1:] != kinds[:-1]).any(axis=1)) + 1
    groups = []
    for members in np.split(order, bounds):
        if members.size:
            most = max(_BATCH // int((width[members[0]] + rest[members[0]] + 1) ** 2), 1)
            groups += [members[at : at + most] for at in range(0, members.size, most)]
    batch_of = np.empty(height.size, np.int64)
    for number, members in enumerate(groups):
        batch_of[members] = number
    return batch_of, groups


def _filled_up(array: Places, starts: Places, lengths: Places, width: int) -> Places:
    """Segments of an array as rows of one width, -1 beyond their ends."""
    within = np.arange(width)
    if not array.size:
        return np.full((starts.size, width), -1, np.int64)
    found = array[np.minimum(starts[:, None] + within, array.size - 1)]
    return np.where(within < lengths[:, None], found, -1)


def _split(of: Places, count: int) -> list[Places]:
    """Places of each number from 0 to ``count``."""
    order = np.argsort(of, kind="stable")
    return np.split(order, np.searchsorted(of[order], np.arange(1, count))) if count else []


def fronts_of(pattern: Pattern) -> Fronts:
    """The fronts of a pattern, made once."""
    found: Any = pattern.with_other(pattern, "fronts", lambda pattern, _same: Fronts(pattern))
    return found  # type: ignore[no-any-return]
