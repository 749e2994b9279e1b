"""Entries of any type as those that are computed with: in float64 exact but for long doubles and integers beyond 2**53."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What Python or NumPy would turn into a number, or into the real part of one, without a word.
_NO_REAL_NUMBERS = (str, bytes, complex, np.complexfloating)


def widened(entries: NDArray[Any]) -> NDArray[Any]:
    """Entries as float64, or as complex128 where they are complex."""
    wide = np.empty(entries.shape, np.complex128 if entries.dtype.kind == "c" else np.float64)
    put_numbers(entries, wide)
    return wide


def put_numbers(block: NDArray[Any], out: NDArray[Any]) -> None:
    """``out[...] = block``; what is no real number in an array of objects becomes NaN, so that it is met where it counts."""
    if block.dtype == object:
        _put_objects(block, out)
    elif block.dtype.itemsize > out.itemsize:
        with np.errstate(over="ignore"):  # a long double beyond float64 is an infinity, which is found and named later
            out[...] = block
    else:
        out[...] = block


def _put_objects(block: NDArray[Any], out: NDArray[Any]) -> None:
    """Ask each object for its value: all at once where they are numbers, as far as can be told from their types."""
    if not any(issubclass(kind, _NO_REAL_NUMBERS) for kind in set(map(type, block.flat))):
        try:
            out[...] = block
            return
        except (TypeError, ValueError, OverflowError):
            pass
    for place, entry in np.ndenumerate(block):
        out[place] = np.nan if (value := real_number(entry)) is None else value


def real_number(entry: object) -> float | None:
    """The value of an object; None where it is no real number, or too large for one."""
    if isinstance(entry, _NO_REAL_NUMBERS):
        return None
    try:
        return float(entry)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
