"""Rows of a square matrix numbered anew by degree, whatever source they come from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.sparse.canonical import canonical
from ooc_chol.sparse.generators import RandomGraph
from ooc_chol.sparse.order import Vertices, by_degree, count_into, inverse
from ooc_chol.sparse.packing import check_columns, refusal, run_problem
from ooc_chol.sparse.rows import AbstractRows, RowCounts, Rows
from ooc_chol.sparse.sources.compressed import CompressedRows, HostCSR, cuts
from ooc_chol.sparse.sources.scattered import Entries, ScatteredRows
from ooc_chol.sparse.values import BadValueError, look_at

#: Entries that one thread gathers and sorts at a time, and rows.
_PART_ENTRIES, _PART_ROWS = 1 << 20, 1 << 20


@final
class OrderedRows(AbstractRows):
    """The rows of another source, ``P A P^T``: numbered by descending entries of their columns, and dealt to stripes.

    All entries are read once when this is made, which finds what is wrong with them, in the numbers that the source has, and then
    again. Shapes: ``order`` (n,).
    """

    def __init__(self, rows: AbstractRows) -> None:
        if isinstance(rows, RandomGraph):
            rows.check_unnumbered()
        degrees = _entries_of_columns(rows)
        self.name, self.shape, self.expected_entries = rows.name, rows.shape, int(degrees.sum())
        self.counts = replace(rows.counts)
        self.order = by_degree(degrees)
        self.order.flags.writeable = False
        self._rows = _renumbered(rows, self)

    def runs(self) -> Iterator[Rows]:
        """Runs in the order of the new numbers."""
        return self._rows.runs()


def _entries_of_columns(rows: AbstractRows) -> NDArray[np.int64]:
    """Entries of each column: so often products read each row of X."""
    counts, row = np.zeros(rows.shape[1], np.int64), 0
    for run in rows.runs():
        if problem := run_problem(run, row, rows):
            raise problem
        check_columns(run, rows.shape[1], rows.name)
        try:
            look_at(run.values, run.columns.size)
        except BadValueError as error:
            raise refusal(run, error, rows.name) from None
        count_into(counts, run.columns)
        row += run.starts.size - 1
    return counts


def _renumbered(rows: AbstractRows, ordered: OrderedRows) -> AbstractRows:
    """The same entries, row i being row ``ordered.order[i]`` and so for columns."""
    numbers = inverse(ordered.order)
    if isinstance(rows, RandomGraph):
        return rows.numbered(numbers)
    if isinstance(rows, ScatteredRows):
        return rows.mapped(partial(_mapped, numbers))
    if isinstance(rows, CompressedRows) and (arrays := rows.in_memory()) is not None:
        return _GatheredRows(rows, arrays, ordered.order, numbers)
    return ScatteredRows(rows.name, rows.shape, partial(_entries, rows, numbers), ordered.expected_entries)


def _mapped(numbers: Vertices, entries: Entries) -> Entries:
    return Entries(numbers[entries.rows], numbers[entries.columns], entries.values)


def _entries(rows: AbstractRows, numbers: Vertices) -> Iterator[Entries]:
    """Entries of runs, each with its new numbers."""
    for run in rows.runs():
        own = numbers[run.first_row : run.first_row + run.starts.size - 1]
        yield Entries(np.repeat(own, np.diff(run.starts)), numbers[run.columns], run.values)


def _are_one_number(values: NDArray[Any]) -> bool:
    """Tell whether values are all the same number, and not zero, which has two signs."""
    parts = range(0, values.size, _PART_ENTRIES)
    return all((values[at : at + _PART_ENTRIES] == values[0]).all() for at in parts) and bool((values[:1] != 0).all())


@final
class _GatheredRows(AbstractRows):
    """Rows of a matrix in CSR form in host memory, in another order: gathered, their columns renumbered, and sorted."""

    def __init__(self, rows: CompressedRows, arrays: HostCSR, order: Vertices, numbers: Vertices) -> None:
        self.name, self.shape, self.expected_entries, self.counts = rows.name, rows.shape, rows.expected_entries, RowCounts()
        self._arrays, self._rules, self._order, self._numbers = arrays, rows.rules, order, numbers
        #: Values that are need not be sorted with the columns.
        self._are_one_number = arrays.data is not None and _are_one_number(arrays.data)

    def runs(self) -> Iterator[Rows]:
        """Runs of a million entries: several are made at once."""
        self.counts = RowCounts()
        with closing(ThreadTeam(cores())) as team:
            for first in range(0, self.shape[0], _PART_ROWS):
                rows = self._order[first : first + _PART_ROWS]
                begins = self._arrays.indptr[rows].astype(np.int64)
                ends = np.zeros(rows.size + 1, np.int64)
                np.cumsum(self._arrays.indptr[rows + np.int64(1)] - begins, out=ends[1:])
                parts = list(cuts(ends, _PART_ENTRIES))
                for at in range(0, len(parts), team.size):
                    yield from team.map(partial(self._gathered, first, begins, ends), parts[at : at + team.size])

    def _gathered(self, first: int, begins: NDArray[np.int64], ends: NDArray[np.int64], part: tuple[int, int]) -> Rows:
        """Some of these rows."""
        start, stop = part
        starts = ends[start : stop + 1] - ends[start]
        places = np.repeat(begins[start:stop] - starts[:-1], np.diff(starts))
        places += np.arange(places.size)
        # Sorted by row and column in one go: several times as fast as row by row.
        keys = np.repeat(np.arange(stop - start, dtype=np.uint64) << np.uint64(32), np.diff(starts))
        columns = np.take(self._arrays.indices, places, mode="clip")
        keys |= np.take(self._numbers, columns, mode="clip").view(np.uint32)
        values = self._arrays.data
        if values is None or self._are_one_number:
            keys.sort()
            values = None if values is None else values[: keys.size]
        else:
            in_order = keys.argsort()
            keys, values = keys[in_order], np.take(values, places[in_order], mode="clip")
        return canonical(first + start, starts, keys.astype(np.uint32).view(np.int32), values, self._rules, RowCounts())
