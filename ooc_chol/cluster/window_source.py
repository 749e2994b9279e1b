"""A as a task of a cluster is given it: the block of its window, and A's diagonal."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import ScheduleError
from ooc_chol.memory.sources.base import AbstractSource, check_dtype
from ooc_chol.memory.sources.numbers import put_numbers


@final
class WindowSource(AbstractSource):
    """A rectangle of A in memory; of diagonal squares outside of it the diagonal alone is known, and zeros are read beside.

    A run through residues looks at the diagonal of all rows that it meets, and at nothing else outside of its window. Shapes:
    ``a`` (len(rows), len(columns)), ``diagonal`` (n,). Raises ``ValueError``: an array is not of its shape.
    """

    name = "array"

    def __init__(self, a: NDArray[Any], rows: range, columns: range, *, diagonal: NDArray[Any] | None, n: int) -> None:
        if a.shape != (len(rows), len(columns)):
            raise ValueError(f"the block of A has shape {a.shape}, but its rows {rows} x columns {columns} are asked for")
        if diagonal is not None and diagonal.shape != (n,):
            raise ValueError(f"the diagonal of A has shape {diagonal.shape}, but A has order {n}")
        check_dtype(a.dtype, "the block of A")
        self.n, self.dtype, self.bytes_per_entry = n, a.dtype, a.dtype.itemsize
        self.shared_axis = 0 if abs(a.strides[0]) >= abs(a.strides[1]) else 1
        self._a, self._rows, self._columns, self._diagonal = a, rows, columns, diagonal

    def view(self, rows: range, cols: range) -> NDArray[Any] | None:
        """The rectangle in place; None outside of the block."""
        if not (_is_within(rows, self._rows) and _is_within(cols, self._columns)):
            return None
        (top, left), (height, width) = (rows.start - self._rows.start, cols.start - self._columns.start), (len(rows), len(cols))
        return self._a[top : top + height, left : left + width]

    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        """Copy the rectangle, or make a diagonal square of the diagonal."""
        if (block := self.view(rows, cols)) is not None:
            put_numbers(block, out)
            return
        if rows != cols or self._diagonal is None:
            kept = "no diagonal" if self._diagonal is None else "the diagonal"
            raise ScheduleError(f"A[{rows}, {cols}] is asked of a block {self._rows} x {self._columns} with {kept} beside")
        out[...] = 0.0
        entries = np.empty((1, len(rows)), out.dtype)
        put_numbers(self._diagonal[None, rows.start : rows.stop], entries)
        np.fill_diagonal(out, entries[0])


def _is_within(inner: range, outer: range) -> bool:
    """Tell whether all of a range lies in another one."""
    return outer.start <= inner.start and inner.stop <= outer.stop
