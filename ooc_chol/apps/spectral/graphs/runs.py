"""Rows of a sparse matrix in runs, each of which one thread looks at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

import ooc_chol.toolbox as tb

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Entries that a thread looks at in one go, at least and at most: what that needs beside the matrix stays in its core's cache,
#: and NumPy's calls last long enough for threads not to wait for the interpreter. In so many runs smaller matrices are divided.
_LEAST_ENTRIES, _MOST_ENTRIES, _RUNS = 1 << 17, 1 << 19, 16
#: Threads that look at runs together: sixteen took 1.3 times as long as eight, since NumPy's calls on runs are so short.
_THREADS = 8


def map_runs(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``[function(item) for item in items]`` by several threads, of calls of NumPy on some hundred thousand numbers each."""
    return tb.map_in_threads(function, items, threads=_THREADS)


def runs_between(starts: NDArray[Any]) -> list[slice]:
    """Rows by runs of some hundred thousand entries, which depend on the matrix alone, and so do sums of sums of runs.

    Shapes: ``starts`` (n + 1,).
    """
    starts, found = starts.astype(np.int64, copy=False), []
    row, n = 0, len(starts) - 1
    most = min(max(_LEAST_ENTRIES, int(starts[-1] - starts[0]) // _RUNS), _MOST_ENTRIES)
    while row < n:
        end = max(row + 1, int(np.searchsorted(starts, starts[row] + most, side="right")) - 1)
        found.append(slice(row, end))
        row = end
    return found


@final
class RowRuns:
    """A CSR matrix by runs of its rows, which share its arrays: all cores look at them, and results depend on no number of cores.

    Shapes: ``matrix`` (n, m).
    """

    def __init__(self, matrix: csr_array) -> None:
        self.matrix = matrix
        self.rows = runs_between(matrix.indptr)
        self._parts = [matrix] if len(self.rows) == 1 else [_part(matrix, rows) for rows in self.rows]

    def map(self, function: Callable[[csr_array, slice], Result]) -> list[Result]:
        """``function(rows of the matrix, which they are)`` of every run, in their order."""
        return map_runs(lambda number: function(self._parts[number], self.rows[number]), range(len(self.rows)))

    def times(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """``matrix @ x`` of an (m, b) array."""
        out = np.empty((self.matrix.shape[0], x.shape[1]))

        def multiply(part: csr_array, rows: slice) -> None:
            out[rows] = part @ x

        self.map(multiply)
        return out

    def times_sparse(self, other: csr_array) -> csr_array:
        """``matrix @ other`` of a sparse matrix."""
        return csr_array(vstack(self.map(lambda part, _: part @ other), format="csr"))


def _part(matrix: csr_array, rows: slice) -> csr_array:
    """Some rows, which share the arrays of their matrix."""
    starts = matrix.indptr[rows.start : rows.stop + 1]
    inside = slice(starts[0], starts[-1])
    # Arrays that are passed to the constructor are read whole, to see which integers would do for them.
    part = csr_array((rows.stop - rows.start, matrix.shape[1]), dtype=matrix.dtype)
    part.data, part.indices, part.indptr = matrix.data[inside], matrix.indices[inside], starts - starts[0]
    part.has_sorted_indices = matrix.has_sorted_indices
    return part
