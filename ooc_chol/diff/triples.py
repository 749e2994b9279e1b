"""The structure of a product of two sparse matrices: which products of entries are added up in each entry of it."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.diff.checks import rises
from ooc_chol.diff.host import segment_sums
from ooc_chol.diff.memory import IndexArray, index_type
from ooc_chol.diff.orders import by_columns, sorting, taken
from ooc_chol.diff.pattern import Pattern, trusted
from ooc_chol.process.fork_safety import new_lock

#: Bytes that a triple takes while its chunk is made: places, columns and orders, in both counting sorts.
_TRIPLE_BYTES = 56


class Face(NamedTuple):
    """Triples sorted by one of their three members: segments, and the other two members of each."""

    ends: IndexArray  #: (count + 1,) where the triples of each entry begin and end
    first: IndexArray  #: (triples,) places in the first of the other two arrays of values
    second: IndexArray  #: (triples,) places in the second


@final
class Triples:
    """Entry c of ``A @ B`` is the sum of ``a[of_a[t]] * b[of_b[t]]`` over t from ``ends[c]`` to ``ends[c + 1]``."""

    def __init__(
        self, pattern: Pattern, p: Pattern, q: Pattern, ends: NDArray[Any], of_a: NDArray[Any], of_b: NDArray[Any]
    ) -> None:
        self.pattern = pattern
        self._said = f"{p!r} @ {q!r}"
        #: Values of A, of B and of the product.
        self.sizes = {"a": p.nnz, "b": q.nnz, "product": pattern.nnz}
        self.product = Face(IndexArray(ends), IndexArray(of_a), IndexArray(of_b))
        self._faces: dict[str, Face] = {}
        self._lock = new_lock()

    @property
    def count(self) -> int:
        """Triples: multiplications of one product."""
        return len(self.product.first)

    @property
    def ends(self) -> NDArray[Any]:
        """Segments of the triples, one for each entry of the product."""
        return self.product.ends.host

    @property
    def of_a(self) -> NDArray[Any]:
        """Places in the values of A."""
        return self.product.first.host

    @property
    def of_b(self) -> NDArray[Any]:
        """Places in the values of B."""
        return self.product.second.host

    @property
    def by_a(self) -> Face:
        """The triples sorted by A's entries: first are places in the product's values, second in B's."""
        return self._face("a", self.product.first, self.product.second, self.sizes["a"])

    @property
    def by_b(self) -> Face:
        """The triples sorted by B's entries: first are places in the product's values, second in A's."""
        return self._face("b", self.product.second, self.product.first, self.sizes["b"])

    def __repr__(self) -> str:
        return f"Triples({self._said} -> {self.pattern!r}, {self.count} products)"

    def _face(self, name: str, key: IndexArray, other: IndexArray, count: int) -> Face:
        with self._lock:
            if name not in self._faces:
                ends, of_product, order = by_columns(self.ends, key.host, count)
                self._faces[name] = Face(IndexArray(ends), IndexArray(of_product), IndexArray(taken(other.host, order)))
            return self._faces[name]


def product_structure(p: Pattern, q: Pattern, *, chunk_bytes: int = 32 << 20) -> Triples:
    """The pattern of ``A @ B``, and the products that make each entry of it.

    Linear time: two counting sorts a chunk. The result holds two places a triple and one an entry. Raises ``ValueError``: the
    shapes do not fit, or ``chunk_bytes`` is not positive.
    """
    if p.n_columns != q.n_rows:
        raise ValueError(f"{p!r} @ {q!r}: the first has {p.n_columns} columns, the second {q.n_rows} rows; they must be as many")
    if chunk_bytes <= 0:
        raise ValueError(f"chunk_bytes is {chunk_bytes}: give a positive number of bytes")
    before = _triples_before(p, q)
    of_a = np.empty(int(before[-1]), index_type(p.nnz))
    of_b = np.empty(int(before[-1]), index_type(q.nnz))
    row, chunks = 0, []
    while row < p.n_rows:
        stop = int(np.searchsorted(before, before[row] + chunk_bytes // _TRIPLE_BYTES, side="right")) - 1
        stop = min(max(stop, row + 1), p.n_rows)
        here = slice(int(before[row]), int(before[stop]))
        chunks.append(_chunk(p, q, range(row, stop), of_a[here], of_b[here]))
        row = stop
    starts = np.zeros(p.n_rows + 1, np.int64)
    np.cumsum(_joined([chunk.row_counts for chunk in chunks]), out=starts[1:])
    pattern = trusted(starts, _joined([chunk.columns for chunk in chunks]), (p.n_rows, q.n_columns), f"{p.name} @ {q.name}")
    ends = np.zeros(pattern.nnz + 1, index_type(of_a.size))
    np.cumsum(_joined([chunk.lengths for chunk in chunks]), out=ends[1:])
    return Triples(pattern, p, q, ends, of_a, of_b)


def _triples_before(p: Pattern, q: Pattern) -> NDArray[np.int64]:
    """How many triples the rows before each row have."""
    lengths = taken(np.diff(q.indptr).astype(np.int64), p.indices)
    before = np.zeros(p.n_rows + 1, np.int64)
    np.cumsum(segment_sums(p.indptr, lengths, lengths.dtype), out=before[1:])
    return before


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


class _Chunk(NamedTuple):
    """Entries of some rows of the product."""

    row_counts: NDArray[Any]  #: Of each row
    columns: NDArray[Any]  #: Of those entries
    lengths: NDArray[Any]  #: Triples of each


def _chunk(p: Pattern, q: Pattern, rows: range, of_a: NDArray[Any], of_b: NDArray[Any]) -> _Chunk:
    """The entries of some rows; writes their triples, sorted by row, column and place in p."""
    kind = index_type(of_a.size)
    starts = p.indptr[rows.start : rows.stop + 1]
    here = slice(int(starts[0]), int(starts[-1]))
    heads = taken(q.indptr, p.indices[here])  # where the row of q begins that an entry of p meets
    lengths = taken(np.diff(q.indptr), p.indices[here]).astype(kind, copy=False)
    before = np.zeros(lengths.size + 1, kind)
    np.cumsum(lengths, out=before[1:])
    places_a = np.repeat(np.arange(here.start, here.stop, dtype=of_a.dtype), lengths)
    places_b = np.repeat((heads - before[:-1]).astype(of_b.dtype), lengths)
    places_b += np.arange(of_b.size, dtype=of_b.dtype)
    columns = taken(q.indices, places_b)
    first = int(columns.min(initial=0 if not columns.size else columns[0]))
    columns -= first  # sorting counts columns: the fewer the better
    of_row = before[starts - here.start]
    order = sorting(of_row, columns, int(columns.max(initial=0)) + 1)
    of_a[:], of_b[:], columns = taken(places_a, order), taken(places_b, order), taken(columns, order)
    fresh = np.flatnonzero(rises(of_row, columns, strictly=True))
    row_counts = np.diff(np.searchsorted(fresh, of_row)).astype(np.int32)
    columns = columns[fresh] + np.int32(first)
    return _Chunk(row_counts, columns, np.diff(fresh, append=of_a.size).astype(kind))
