"""Numbers taken from their places, and entries sorted by column or by row, in linear time: compiled loops of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.diff.memory import index_type
from ooc_chol.process.scipy_modules import sparse_tools

#: Most places of one compiled call, which counts them in their own type.
_LONGEST = 1 << 30


def frozen(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """A copy that nobody writes to."""
    copy = np.array(array, dtype=dtype)
    copy.setflags(write=False)
    return copy


def by_columns(starts: NDArray[Any], columns: NDArray[Any], n_columns: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Entries sorted by column, those of one column in their own order: starts, rows and places of them, in linear time."""
    n_rows, kind = starts.size - 1, index_type(max(columns.size, n_columns))
    order = np.arange(columns.size, dtype=kind)
    found = np.empty(n_columns + 1, kind), np.empty(columns.size, kind), np.empty(columns.size, kind)
    arrays = starts.astype(kind, copy=False), columns.astype(kind, copy=False), order
    sparse_tools().csr_tocsc(n_rows, n_columns, *arrays, *found)
    return found


def sorting(starts: NDArray[Any], columns: NDArray[Any], n_columns: int) -> NDArray[Any]:
    """The order that sorts entries by row and then by column; those of one place stay in theirs."""
    of_column, rows, first = by_columns(starts, columns, n_columns)
    *_, second = by_columns(of_column, rows, starts.size - 1)
    return taken(first, second)


def taken(v: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """``v[places]``, all of them places in v: ones, scaled by SciPy's compiled loop, in half the time of NumPy's."""
    out = np.ones(places.shape, v.dtype)
    v = np.ascontiguousarray(v)
    for at in range(0, places.size, _LONGEST):
        here = slice(at, at + _LONGEST)
        part = np.ascontiguousarray(places[here])
        sparse_tools().csr_scale_columns(1, v.size, np.array([0, part.size], part.dtype), part, out[here], v)
    return out
