"""Matrices in compressed form: starts of rows (or columns), the columns (or rows) of entries, and values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import SparseInputError
from ooc_chol.sparse.canonical import Rules, Zeros, canonical, check_index_type, check_value_type
from ooc_chol.sparse.rows import AbstractRows, RowCounts, Rows
from ooc_chol.sparse.sources.vectors import AbstractVector, ArrayVector, Take

#: Rows and entries of a run; one row may have more entries.
RUN_ROWS, RUN_ENTRIES = 1 << 20, 1 << 23


class Run(NamedTuple):
    """Consecutive rows (or columns) as they are stored."""

    first: int
    starts: NDArray[np.int64]  #: Entries of the run before each
    indices: NDArray[Any]
    values: NDArray[Any] | None


class HostCSR(NamedTuple):
    """The arrays of a matrix in CSR form in host memory."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any] | None


@dataclass(frozen=True)
class Compressed:
    """The vectors of a matrix in compressed form, each a row (or column) after the other."""

    name: str  #: Name of the source, for messages
    count: int  #: Rows of CSR, columns of CSC
    indptr: AbstractVector  #: Starts, ``count + 1`` of them, and what they are starts in
    indices: AbstractVector
    data: AbstractVector | None  #: Values; None where all are 1

    def __post_init__(self) -> None:
        check_index_type(self.indptr.dtype, self.name, self.indptr.name)
        check_index_type(self.indices.dtype, self.name, self.indices.name)
        if self.data is not None:
            check_value_type(self.data.dtype, self.name)
        if self.indptr.size != self.count + 1:
            problem = f"it has {self.indptr.size} numbers, but {self.count + 1} are needed, one more than rows or columns"
            raise SparseInputError(self.name, self.indptr.name, problem, "mend it, or give the matrix its shape")
        if self.data is not None and self.data.size != self.indices.size:
            problem = f"{self.data.size} values, but {self.indices.size} indices"
            raise SparseInputError(self.name, self.data.name, problem, "both are of one length: make the matrix anew")

    def runs(self) -> Iterator[Run]:
        """All of it, run by run."""
        with ExitStack() as stack:
            starts, indices = (stack.enter_context(vector.opened()) for vector in (self.indptr, self.indices))
            data = None if self.data is None else stack.enter_context(self.data.opened())
            last = starts(1).astype(np.int64)
            if last[0] != 0:
                problem = f"it begins with {last[0]}, not with 0"
                raise SparseInputError(self.name, f"{self.indptr.name}[0]", problem, "the first row begins at entry 0")
            for first in range(0, self.count, RUN_ROWS):
                ends = np.concatenate([last, starts(min(RUN_ROWS, self.count - first)).astype(np.int64)])
                self._check_ends(first, ends)
                yield from _cut(first, ends, indices, data)
                last = ends[-1:]

    def _check_ends(self, first: int, ends: NDArray[np.int64]) -> None:
        """Refuse starts that decrease, or lie beyond the entries."""
        bad = (ends[1:] < ends[:-1]) | (ends[1:] > self.indices.size)
        if bad.any():
            at = int(np.argmax(bad)) + 1
            fell = ends[at] < ends[at - 1]
            problem = f"it decreases from {ends[at - 1]}" if fell else f"only {self.indices.size} entries are there"
            place = f"{self.indptr.name}[{first + at}] = {ends[at]}"
            raise SparseInputError(
                self.name, place, problem, "starts ascend from 0 to the number of entries: make the matrix anew"
            )


def cuts(starts: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that have at most so many entries together, or are one row."""
    first, last = 0, starts.size - 1
    while first < last:
        stop = max(first + 1, int(np.searchsorted(starts, starts[first] + most, side="right")) - 1)
        yield first, min(stop, last)
        first = stop


def _cut(first: int, ends: NDArray[np.int64], indices: Take, data: Take | None) -> Iterator[Run]:
    """The entries of these rows, by runs."""
    for start, stop in cuts(ends, RUN_ENTRIES):
        count = int(ends[stop] - ends[start])
        values = None if data is None else data(count)
        yield Run(first + start, ends[start : stop + 1] - ends[start], indices(count), values)


@final
class CompressedRows(AbstractRows):
    """Rows of a matrix in CSR form."""

    def __init__(self, compressed: Compressed, shape: tuple[int, int], *, zeros: Zeros = "keep") -> None:
        self.name, self.shape = compressed.name, shape
        self.expected_entries = compressed.indices.size
        self.counts = RowCounts()
        #: Weights of vertices, where the source is a graph whose file has some
        self.vertex_weights: NDArray[np.int64] | None = None
        self._compressed, self.rules = compressed, Rules(compressed.name, shape[1], zeros)

    def runs(self) -> Iterator[Rows]:
        """Its rows; what is canonical is handed over where it lies."""
        self.counts = RowCounts()
        for run in self._compressed.runs():
            yield canonical(*run, self.rules, self.counts)

    def in_memory(self) -> HostCSR | None:
        """Its arrays, where all of them lie in host memory; they may hold what no matrix does until all runs were made once."""
        vectors = self._compressed.indptr, self._compressed.indices, self._compressed.data
        arrays = [each.in_memory if isinstance(each, ArrayVector) else None for each in vectors]
        if arrays[0] is None or arrays[1] is None or (vectors[2] is not None and arrays[2] is None):
            return None
        return HostCSR(arrays[0], arrays[1], arrays[2])
