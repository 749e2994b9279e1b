"""Which numbers some values are: all one, or of the narrowest kind that holds each of them exactly."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.tasks.row_blocks import ValueKind

#: Largest whole number such that it and all smaller ones are exact in float64.
MOST_WHOLE = 2**53
#: Values that are looked at first: most that are of no narrow kind show it there.
_SAMPLE = 64
#: From narrow to wide.
_ORDER = (ValueKind.PATTERN, ValueKind.INT8, ValueKind.FP32, ValueKind.FP64)


class Values(NamedTuple):
    """Facts of some values."""

    kind: ValueKind  #: That holds them; PATTERN where there are none
    only: float | None  #: What all of them are; None where they differ, or there are none

    @property
    def stored(self) -> ValueKind:
        """The kind in which a block stores them."""
        return ValueKind.PATTERN if self.only is not None else self.kind

    @property
    def number(self) -> float:
        """The number of a pattern; 1 for other kinds."""
        return 1.0 if self.only is None else self.only

    def joined(self, other: Values) -> Values:
        """Facts of both together."""
        if other.kind is ValueKind.PATTERN:
            return self
        if self.kind is ValueKind.PATTERN:
            return other
        kind = max(self.kind, other.kind, key=_ORDER.index)
        is_one = self.only is not None and other.only is not None and _is_same(self.only, other.only)
        return Values(kind, self.only if is_one else None)


#: Of no entries at all.
NO_VALUES = Values(ValueKind.PATTERN, None)


class BadValueError(Exception):
    """A value that cannot be stored, for whoever knows its row."""

    def __init__(self, at: int, value: object) -> None:
        self.at = at  #: Its place among those that were looked at
        self.value = value
        super().__init__(at, value)


def look_at(values: NDArray[Any] | None, count: int) -> Values:
    """Look at ``count`` values, None being ones.

    Shapes: ``values`` (count,). Raises ``BadValueError``: a value is NaN or infinite, or a whole number beyond 2^53.
    """
    if not count:
        return NO_VALUES
    if values is None:
        return Values(ValueKind.INT8, 1.0)
    if values.dtype.kind == "f":
        return _of_floats(values)
    return _of_whole(values.view(np.int8) if values.dtype.kind == "b" else values)


def _of_floats(values: NDArray[Any]) -> Values:
    first = values[0]
    bits = values.view(f"u{values.itemsize}")
    if math.isfinite(first) and (bits[:_SAMPLE] == bits[0]).all() and (bits == bits[0]).all():
        return Values(_kind_of(float(first)), float(first))
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum(dtype=values.dtype)
    if not math.isfinite(total) and not (finite := np.isfinite(values)).all():  # a sum of finite ones may be infinite, too
        at = int(np.argmin(finite))
        raise BadValueError(at, values[at])
    if _are_int8(values[:_SAMPLE]) and _are_int8(values):
        return Values(ValueKind.INT8, None)
    if values.dtype == np.float32 or (_are_fp32(values[:_SAMPLE]) and _are_fp32(values)):
        return Values(ValueKind.FP32, None)
    return Values(ValueKind.FP64, None)


def _of_whole(values: NDArray[Any]) -> Values:
    least, most = int(values.min()), int(values.max())
    if least < -MOST_WHOLE or most > MOST_WHOLE:
        at = int(np.argmax(values) if most > MOST_WHOLE else np.argmin(values))
        raise BadValueError(at, values[at])
    if least == most:
        return Values(_kind_of(float(least)), float(least))
    if least >= -128 and most <= 127:
        return Values(ValueKind.INT8, None)
    return Values(ValueKind.FP32 if _are_fp32(values) else ValueKind.FP64, None)


def _kind_of(number: float) -> ValueKind:
    """The narrowest kind, beside pattern, that holds one number."""
    alone = np.array([number])
    return ValueKind.INT8 if _are_int8(alone) else ValueKind.FP32 if _are_fp32(alone) else ValueKind.FP64


def _are_int8(values: NDArray[Any]) -> bool:
    """Tell whether finite values are all whole numbers from -128 to 127, and no zero is below zero."""
    if values.min() < -128 or values.max() > 127:
        return False
    whole = values.astype(np.int8)
    if not (whole == values).all():
        return False
    zeros = values[whole == 0]
    return not np.signbit(zeros).any()


def _are_fp32(values: NDArray[Any]) -> bool:
    """Tell whether finite values are all numbers of float32."""
    with np.errstate(over="ignore", under="ignore"):
        return bool((values.astype(np.float32) == values.astype(np.float64, copy=False)).all())


def _is_same(one: float, other: float) -> bool:
    """Tell whether two numbers are the same to the bit."""
    return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
