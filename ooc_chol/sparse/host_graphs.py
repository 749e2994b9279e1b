"""Rows of a random graph made on the host: edges are drawn by threads, dealt to buckets of rows, and sorted there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import BudgetError
from ooc_chol.kernels.host import graphs
from ooc_chol.process.fork_safety import new_lock
from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.sparse.order import Vertices, by_degree, inverse
from ooc_chol.sparse.rows import RowCounts, Rows
from ooc_chol.tasks.random_graphs import EdgeDraw

#: Drawn entries of a bucket, about, and most of a run that is handed over unless one bucket has more.
_BUCKET_ENTRIES, RUN_ENTRIES = 1 << 20, 1 << 25
#: Least and most edges that one thread draws at once, and bytes that each takes until its entries are sorted.
_LEAST_EDGES, _MOST_EDGES, _BYTES_AN_EDGE = 1 << 16, 1 << 20, 32
#: Bytes that a drawn entry of a group takes: its key, and as much again for what is being drawn, sorted and handed over.
BYTES_AN_ENTRY = 16

Keys = NDArray[np.uint64]
#: How vertices are numbered once they are drawn: by degree, by a number for each, or as they are.
Numbering: TypeAlias = Literal["degree"] | Vertices | None


class _Dealt(NamedTuple):
    """Sorted keys of some edges, and where each bucket of the group begins in them."""

    keys: Keys
    bounds: NDArray[np.intp]
    loops: int


def host_runs(
    draw: EdgeDraw, counts: RowCounts, memory_bytes: int, run_entries: int = RUN_ENTRIES, *, numbering: Numbering = None
) -> Iterator[Rows]:
    """Runs of about ``run_entries`` entries, in order; what was met on the way is added to ``counts``.

    Drawn entries are held for a group of buckets at a time, in at most ``memory_bytes``, and all edges are drawn once a group.
    """
    with closing(ThreadTeam(cores())) as team:
        most = memory_bytes // BYTES_AN_ENTRY
        pieces = _pieces(draw, team.size, memory_bytes)
        buckets = _Buckets(draw, most, numbers_by_degree(draw, team, pieces) if isinstance(numbering, str) else numbering)
        for group in _groups(buckets, team, memory_bytes, pieces):
            dealt = team.map(partial(_deal, buckets, group), pieces)
            counts.loops = sum(each.loops for each in dealt)  # every group meets them all
            sizes = np.sum([np.diff(each.bounds) for each in dealt], axis=0)
            counts.duplicates += int(sizes.sum())
            for run in ranges_within(sizes, min(run_entries, most // 4), first=group.start):
                rows = _run(buckets, group, dealt, run, team)
                counts.duplicates -= len(rows.columns)
                yield rows
                del rows
            del dealt


class _Buckets:
    """Equal ranges of rows, each a power of two: the smallest there are where more than ``most`` entries are drawn."""

    def __init__(self, draw: EdgeDraw, most: int, numbers: Vertices | None) -> None:
        self.draw, self.numbers = draw, numbers
        bits = (draw.n_drawn // _BUCKET_ENTRIES).bit_length() if draw.n_drawn <= most else draw.bucket_bits
        self.count = 1 << min(draw.bucket_bits, bits)
        self._rows = draw.n_vertices // self.count

    def rows(self, buckets: range) -> range:
        """Rows of buckets that follow each other."""
        return range(self._rows * buckets.start, self._rows * buckets.stop)

    def bounds(self, buckets: range) -> Keys:
        """The least key of each bucket, and of the one behind them."""
        return _row_keys(self.draw, self._rows * np.arange(buckets.start, buckets.stop + 1))


def _pieces(draw: EdgeDraw, threads: int, memory_bytes: int) -> list[range]:
    """Edges in pieces for threads: several for each, so that nobody waits long for the last, and within an eighth of memory."""
    room = memory_bytes // (8 * threads * _BYTES_AN_EDGE)
    size = max(min(draw.n_edges // (8 * threads), room, _MOST_EDGES), _LEAST_EDGES)
    edges = range(draw.n_edges)
    return [edges[start : start + size] for start in range(0, draw.n_edges, size)]


def numbers_by_degree(draw: EdgeDraw, team: ThreadTeam, pieces: Sequence[range]) -> Vertices:
    """The number of each vertex where they are numbered by degree: all edges are drawn once."""
    degrees, lock = np.zeros(draw.n_vertices, np.int64), new_lock()

    def count(numbers: range) -> None:
        ends = graphs.read_ends(draw, numbers)
        ends.sort()
        first = np.flatnonzero(np.concatenate([[True], ends[1:] != ends[:-1]])) if ends.size else np.empty(0, np.intp)
        times = np.diff(first, append=ends.size)
        with lock:
            degrees[ends[first]] += times

    team.run([partial(count, piece) for piece in pieces])
    return inverse(by_degree(degrees))


def _groups(buckets: _Buckets, team: ThreadTeam, memory_bytes: int, pieces: Sequence[range]) -> list[range]:
    """Buckets whose drawn entries are held at once: all where memory holds them, else as they are counted."""
    draw, most = buckets.draw, memory_bytes // BYTES_AN_ENTRY
    if draw.n_drawn <= most:
        return [range(buckets.count)]
    counted: NDArray[np.int64] = np.sum(team.map(partial(graphs.counts, draw, numbering=buckets.numbers), pieces), axis=0)
    sizes = counted.reshape(buckets.count, -1).sum(axis=1)
    if sizes.max() > most:
        advice = f"so many take the drawn entries of {len(buckets.rows(range(1)))} rows; give more, or fewer edges"
        raise BudgetError("memory_budget of a random graph", int(sizes.max()) * BYTES_AN_ENTRY, memory_bytes, advice)
    return ranges_within(sizes, most)


def ranges_within(sizes: Sequence[int] | NDArray[Any], most: int, first: int = 0) -> list[range]:
    """Ranges of the numbers from ``first`` on whose sizes are at most ``most`` together; a larger one is alone."""
    starts, total = [first], 0
    for number, size in enumerate(sizes, start=first):
        if total and total + size > most:
            starts.append(number)
            total = 0
        total += int(size)
    return [range(*pair) for pair in pairwise([*starts, first + len(sizes)])]


def _deal(buckets: _Buckets, group: range, numbers: range) -> _Dealt:
    """Draw some edges and sort their entries of the group."""
    keys, loops = graphs.entries(buckets.draw, numbers, buckets.rows(group), buckets.numbers)
    keys = np.sort(keys)  # a copy: there was room for the entries of other groups
    return _Dealt(keys, np.searchsorted(keys, buckets.bounds(group)), loops)


def _row_keys(draw: EdgeDraw, rows: NDArray[Any]) -> Keys:
    """The least key that an entry of each row may have."""
    return rows.astype(np.uint64) << np.uint64(draw.scale)


def _run(buckets: _Buckets, group: range, dealt: Sequence[_Dealt], run: range, team: ThreadTeam) -> Rows:
    """The rows of the buckets of a run, which ``dealt`` has with others of the group."""
    parts = team.map(partial(_bucket, buckets, group, dealt), run)
    ends = list(accumulate((len(columns) for _, columns in parts), initial=0))
    columns = np.empty(ends[-1], np.int32)
    starts = np.empty(len(buckets.rows(run)) + 1, np.int64)
    starts[-1] = ends[-1]

    def place(number: int) -> None:
        own_starts, own_columns = parts[number]
        columns[ends[number] : ends[number + 1]] = own_columns
        at = number * (len(own_starts) - 1)
        np.add(own_starts[:-1], ends[number], out=starts[at : at + len(own_starts) - 1])

    team.run([partial(place, number) for number in range(len(parts))])
    return Rows(buckets.rows(run).start, starts, columns, None)


def _bucket(buckets: _Buckets, group: range, dealt: Sequence[_Dealt], number: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Starts of the rows of one bucket, and the columns of its entries, each once."""
    draw, at = buckets.draw, number - group.start
    keys = np.concatenate([each.keys[each.bounds[at] : each.bounds[at + 1]] for each in dealt])
    keys.sort()
    is_new = np.empty(len(keys), np.bool_)
    is_new[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
    keys = keys[is_new]
    rows = buckets.rows(range(number, number + 1))
    starts = np.searchsorted(keys, _row_keys(draw, np.arange(rows.start, rows.stop + 1)))
    return starts, (keys & np.uint64(draw.n_vertices - 1)).astype(np.int32)
