"""A whole tile rounded to a format, by what kernels use for pieces of it."""

from __future__ import annotations

from tests.inside.precision import Floats, PrecisionFormat, Rounding, largest_magnitude


def round_to(tile: Floats, fmt: PrecisionFormat) -> float:
    """Replace the entries of ``tile`` by what ``fmt`` stores of them; returns the Frobenius norm of what that takes away."""
    if fmt.itemsize >= tile.itemsize:
        return 0.0
    rounding = Rounding(fmt, largest_magnitude(tile))
    lost, _ = rounding.apply(tile)
    return rounding.norm(lost)


def exponent_of(tile: Floats, fmt: PrecisionFormat) -> int:
    """``e`` of a tile: 0 where the format has no scale."""
    return fmt.exponent(largest_magnitude(tile)) if fmt.top is not None else 0
