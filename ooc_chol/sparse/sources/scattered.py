"""Matrices whose entries come in any order: rows are gathered from them group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from ooc_chol.errors import SparseInputError
from ooc_chol.sparse.canonical import MOST_COLUMNS, Rules, Zeros, canonical
from ooc_chol.sparse.rows import AbstractRows, RowCounts, Rows
from ooc_chol.sparse.sources.compressed import RUN_ENTRIES, RUN_ROWS, cuts

#: Entries of a piece that a source hands over at a time.
PIECE_ENTRIES = 1 << 21
#: A matrix is gathered in at most about so many readings of all of its entries, ...
_READINGS = 8
#: ... but entries up to this number, and rows up to this number, in one.
_LEAST_ENTRIES, _LEAST_ROWS = 1 << 24, 1 << 22
#: Parts of equal rows whose entries are counted.
_BUCKETS = 1 << 16
#: Rows of a file up to this number are taken as they are; of more, one in so many must have an entry.
_FREE_ROWS, _MOST_UNUSED = 1 << 24, 256


def most_rows(n_entries: int) -> int:
    """Rows for which a file with so many entries gives reason."""
    return max(_FREE_ROWS, _MOST_UNUSED * n_entries)


def check_declared(source: str, n_rows: int, n_entries: int, nbytes: int = 0) -> None:
    """Refuse rows that a file of ``nbytes`` declares and hardly has entries for: each takes memory."""
    if n_rows > max(most_rows(n_entries), nbytes):
        problem = f"it declares {n_rows} rows, but there are only {n_entries} entries"
        raise SparseInputError(source, "", problem, "number its rows anew, or give a matrix of scipy.sparse of that shape")


class Entries(NamedTuple):
    """Entries in any order."""

    rows: NDArray[Any]
    columns: NDArray[Any]
    values: NDArray[Any] | None  #: None: all are 1


@final
class ScatteredRows(AbstractRows):
    """Rows of a matrix whose entries can be read again and again, piece by piece, in any order.

    One reading counts entries by row; then as many rows are gathered at a time as hold an eighth of the entries (or sixteen
    million), and sorted by counting. So a copy of an eighth of the entries is held, twice while it is sorted, not one of all.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, int],
        pieces: Callable[[], Iterator[Entries]],
        n_entries: int,
        *,
        zeros: Zeros = "keep",
        repeated: Literal["sum", "once"] = "sum",
    ) -> None:
        self.name, self.shape, self.expected_entries = name, shape, n_entries
        self.counts = RowCounts()
        self._rules, self._pieces = Rules(name, shape[1], zeros, repeated), pieces
        if not 0 <= shape[0] <= max(MOST_COLUMNS, 64 * n_entries):
            problem = f"it has {shape[0]} rows for {n_entries} entries"
            raise SparseInputError(
                name, "", problem, f"number its rows anew: beyond {MOST_COLUMNS}, one in 64 must have an entry"
            )

    def mapped(self, change: Callable[[Entries], Entries]) -> ScatteredRows:
        """Rows of the same entries, each piece changed: a matrix of the same shape and as many entries."""
        pieces, rules = self._pieces, self._rules
        return ScatteredRows(
            self.name,
            self.shape,
            lambda: map(change, pieces()),
            self.expected_entries,
            zeros=rules.zeros,
            repeated=rules.repeated,
        )

    def runs(self) -> Iterator[Rows]:
        """Its rows, gathered group by group."""
        self.counts = RowCounts()
        zeros = np.zeros(min(RUN_ROWS, self.shape[0]) + 1, np.int64)  # shared by all runs without entries
        zeros.flags.writeable = False
        for rows, count in self._groups():
            if count:
                yield from self._gathered(rows, count)
            else:
                yield from _empty(rows, zeros)

    def _groups(self) -> Iterator[tuple[range, int]]:
        """Ranges of rows that are gathered at a time, and how many entries each has."""
        n, n_entries = self.shape[0], self.expected_entries
        width = -(-n // _BUCKETS) or 1
        counts = self._counted(width)
        most_entries = max(_LEAST_ENTRIES, -(-n_entries // _READINGS))
        most_rows = max(_LEAST_ROWS, min(n // _READINGS, n_entries)) // width
        starts = np.concatenate([[0], np.cumsum(counts)])
        for first, end in cuts(starts, most_entries):
            for start in range(first, end, most_rows):
                stop = min(start + most_rows, end)
                yield range(start * width, min(stop * width, n)), int(starts[stop] - starts[start])

    def _counted(self, width: int) -> NDArray[np.int64]:
        """Entries of each part of ``width`` rows; an entry outside of the matrix is refused."""
        counts = np.zeros(-(-self.shape[0] // width), np.int64)
        before = 0
        for piece in self._pieces():
            for what, numbers, size in zip(("row", "column"), piece[:2], self.shape, strict=True):
                if numbers.size and (numbers.min() < 0 or numbers.max() >= size):
                    at = int(np.argmax((numbers < 0) | (numbers >= size)))
                    problem = (
                        f"A[{piece.rows[at]}, {piece.columns[at]}] is outside of the matrix, whose {what}s are 0 to {size - 1}"
                    )
                    advice = "mend the entry, or give the matrix a larger shape"
                    raise SparseInputError(self.name, f"entry {before + at}", problem, advice)
            counts += np.bincount(piece.rows // width, minlength=counts.size)
            before += piece.rows.size
        return counts

    def _gathered(self, rows: range, count: int) -> Iterator[Rows]:
        """The entries of these rows, sorted by row."""
        inside = self._inside(rows, count)
        values = np.ones(count, np.int8) if inside.values is None else inside.values
        matrix = coo_array((values, (inside.rows, inside.columns)), shape=(len(rows), self.shape[1]))
        matrix.has_canonical_format = True  # repeated entries are added afterwards, and counted
        sorted_ = matrix.tocsr()
        starts, pattern = sorted_.indptr.astype(np.int64), inside.values is None
        del inside, values, matrix
        for first, stop in cuts(starts, RUN_ENTRIES):
            part = slice(starts[first], starts[stop])
            run = (rows.start + first, starts[first : stop + 1] - starts[first], sorted_.indices[part])
            yield canonical(*run, None if pattern else sorted_.data[part], self._rules, self.counts)

    def _inside(self, rows: range, count: int) -> Entries:
        """A copy of the entries of these rows, the first of which becomes 0."""
        numbers = np.empty(count, np.int32 if len(rows) <= MOST_COLUMNS else np.int64)
        columns = np.empty(count, np.int32)
        values: NDArray[Any] | None = None
        at = 0
        for piece in self._pieces():
            # Places once, then a gather from each vector: a mask in each would be three times as slow where rows are mixed.
            inside = np.flatnonzero((piece.rows >= rows.start) & (piece.rows < rows.stop))
            stop = at + inside.size
            numbers[at:stop] = piece.rows[inside] - rows.start
            columns[at:stop] = piece.columns[inside]
            if piece.values is not None:
                if values is None:
                    values = np.empty(count, _sortable(piece.values.dtype))
                values[at:stop] = piece.values[inside]
            at = stop
        return Entries(numbers, columns, values)


def _sortable(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which SciPy sorts values: the same, but for the byte order and float16."""
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize < 4 else dtype.newbyteorder("=")


def _empty(rows: range, zeros: NDArray[np.int64]) -> Iterator[Rows]:
    """Runs of rows without entries."""
    for first in range(rows.start, rows.stop, RUN_ROWS):
        count = min(RUN_ROWS, rows.stop - first)
        yield Rows(first, zeros[: count + 1], np.empty(0, np.int32), None)
