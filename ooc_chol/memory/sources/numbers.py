"""Entries of any type as those that are computed with: in float64 exact but for long doubles and integers beyond 2**53."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import shortened
from ooc_chol.formats import FP64

#: What Python or NumPy would turn into a number, or into the real part of one, without a word.
_NO_REAL_NUMBERS = (str, bytes, complex, np.complexfloating)


def widened(entries: NDArray[Any]) -> NDArray[Any]:
    """Entries as float64, or as complex128 where they are complex."""
    wide = np.empty(entries.shape, np.complex128 if entries.dtype.kind == "c" else np.float64)
    put_numbers(entries, wide)
    return wide


def put_numbers(block: NDArray[Any], out: NDArray[Any]) -> None:
    """``out[...] = block``; what is no real number in an array of objects becomes NaN, so that it is met where it counts."""
    if block.dtype == object or block.dtype.itemsize > out.itemsize:
        with np.errstate(over="ignore"):  # what is beyond the type is an infinity, which is found and named later
            if block.dtype == object:
                _put_objects(block, out)
            else:
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


def lost(entry: Any, dtype: np.dtype[Any]) -> str | None:
    """A finite number other than zero that is infinite or zero in a type, in words; None for all others."""
    kind = (np.result_type(dtype, np.complex64) if np.iscomplexobj(entry) else np.dtype(dtype)).type
    with np.errstate(over="ignore", under="ignore"):
        try:
            held = kind(entry)
        except OverflowError:  # of a whole number of Python
            held = kind(np.inf)
    if entry == 0 or entry != entry or abs(entry) == np.inf or (held != 0 and np.isfinite(held)):
        return None
    name = np.dtype(kind).name
    if kind in (np.float32, np.complex64) and lost(entry, FP64.dtype) is None:
        shown, advice = f"{complex(entry) if np.iscomplexobj(entry) else float(entry):.6g}", "leave dtype out, or scale A"
    else:
        shown, advice = f"about 2**{entry.bit_length() - 1}" if isinstance(entry, int) else shortened(str(entry), 40), "scale A"
    return f"{shown}, {'which is 0 in' if held == 0 else 'beyond'} {name} ({advice})"


def real_number(entry: object) -> float | None:
    """The value of an object, infinite where that is beyond float64; None where it is no real number."""
    if isinstance(entry, _NO_REAL_NUMBERS):
        return None
    try:
        return float(entry)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None
