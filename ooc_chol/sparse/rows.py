"""Rows of a sparse matrix as whatever holds or makes them hands them over: run by run, in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.files.inputs import AnyPath


class Rows(NamedTuple):
    """A run of rows: columns ascending in each row, none twice, each inside the matrix, all values finite.

    Whoever takes a run may keep its arrays: whoever hands it over changes them no more.
    """

    first_row: int
    starts: NDArray[np.int64]  #: (n_rows + 1,) entries of the run before each row
    columns: NDArray[np.int32]  #: (n_entries,)
    values: NDArray[Any] | None  #: (n_entries,) of float64, float32, or any type of whole numbers; None: all are 1


@dataclass
class RowCounts:
    """Counts of rows read on the way, for the caller."""

    duplicates: int = 0  #: Entries that became one with another of the same row and column
    zeros: int = 0  #: Entries that were zero, kept or not
    loops: int = 0  #: Edges from a vertex to itself that a generator or a file of edges left out


class AbstractRows(ABC):
    """A sparse matrix whose rows can be had once more whenever :meth:`runs` is called, in order, every row once.

    Sources sum duplicates, and keep or drop explicit zeros as they were asked when made; what they count stands in ``counts``
    once all runs are through.
    """

    #: What it is, for messages and reports, such as ``"csr_array"`` or a file's name.
    name: str
    shape: tuple[int, int]
    #: Entries as far as known beforehand: an upper bound (duplicates not yet summed), to size blocks.
    expected_entries: int
    counts: RowCounts
    #: The file that they were read from, if any.
    path: AnyPath | None = None

    @abstractmethod
    def runs(self) -> Iterator[Rows]:
        """Runs of rows of about some ten million entries at most, longer only where one row is."""
