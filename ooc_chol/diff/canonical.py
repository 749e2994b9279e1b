"""Entries in any order made canonical: rows sorted, entries of one place merged, and how values come to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.diff.checks import check_floats, counted, rises
from ooc_chol.diff.memory import IndexArray, index_type
from ooc_chol.diff.ops import Apply, Gather, RowSums, run
from ooc_chol.diff.orders import frozen, sorting

if TYPE_CHECKING:
    from ooc_chol.diff.pattern import Pattern


@final
class Canonical:
    """A pattern that was made of entries in any order, and how their values come to it."""

    def __init__(self, pattern: Pattern, order: IndexArray | None, merging: Pattern | None, sorted_rows: int) -> None:
        self.pattern = pattern
        self.order = order
        self.merging = merging
        self.sorted_rows = sorted_rows

    @property
    def starts(self) -> NDArray[Any] | None:
        """Where the entries of each place begin in that order, (nnz + 1,); None where no two share one."""
        return None if self.merging is None else self.merging.indptr

    @property
    def merged(self) -> int:
        """Entries given less entries of the pattern."""
        return 0 if self.merging is None else self.merging.nnz - self.pattern.nnz

    def values(self, given: Any, *, apply: Apply = run) -> Any:
        """The values of the pattern: those given, in its order; those of the same place are added in the order they came in."""
        count = self.pattern.nnz + self.merged
        if apply is run:  # arrays, which no operation looks at where nothing is sorted or merged
            check_floats(given, "values")
        if tuple(given.shape) != (count,):
            raise ValueError(
                f"values has shape {tuple(given.shape)}, but {counted(count, 'entry was', 'entries were')} given for "
                f"{self.pattern.name}: give one value for each"
            )
        if self.order is not None:
            given = apply(Gather(self.order, count), given)
        return given if self.merging is None else apply(RowSums(self.merging), given)

    def __repr__(self) -> str:
        said = []
        if self.sorted_rows:
            said.append(f"{counted(self.sorted_rows, 'row was', 'rows were')} sorted")
        if self.merged:
            said.append(f"{counted(self.merged, 'entry was merged into another', 'entries were merged into others')}")
        told = ", ".join(said) or "nothing was sorted or merged"
        return f"Canonical({self.pattern.size_text}; {told})"


def made_canonical(
    starts: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int], name: str, trusted: Callable[..., Pattern]
) -> Canonical:
    """Rows sorted and entries of one place merged, where any need it; arrays fit the shape, and ``trusted`` makes patterns."""
    if rises(starts, columns, strictly=True).all():
        return Canonical(trusted(frozen(starts, index_type(columns.size)), frozen(columns, np.int32), shape, name), None, None, 0)
    falls = np.flatnonzero(~rises(starts, columns, strictly=False))
    order = None
    if falls.size:
        order = sorting(starts, columns, shape[1])
        columns = columns[order]  # of any type of whole numbers
    heads = np.flatnonzero(rises(starts, columns, strictly=True))
    merging = None
    if heads.size < columns.size:
        given = np.arange(columns.size, dtype=index_type(columns.size))
        merging = trusted(np.append(heads, columns.size), given, (heads.size, columns.size), f"entries of {name}")
    pattern = trusted(np.searchsorted(heads, starts), frozen(columns[heads], np.int32), shape, name)
    sorted_rows = np.unique(np.searchsorted(starts, falls, side="right")).size
    return Canonical(pattern, None if order is None else IndexArray(order), merging, sorted_rows)
