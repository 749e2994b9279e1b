"""Sites as whole numbers, so that equal distances are equal whatever unit, order of rows or file the coordinates came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.data.extents import closed_up

#: Bits of a whole coordinate: squares of differences then add up without rounding.
_BITS = 25

#: Levels of an axis are one where they differ by less than this share of its extent: what reading or rounding did to them.
_SAME_LEVEL = 1e-6

#: Gaps between levels are multiples of a step, and levels multiples of its mean, to these shares of a step.
_SAME_GAP, _ON_GRID = 0.1, 0.05

#: Most steps along an axis, whole numbers to a step of the longest, and least to one of another, which keeps its length to 1 %.
#: The ratio of the steps is no finer, so that it is the same from coordinates in single precision.
_MOST_STEPS = 1 << 14
_STEP = 1 << 10
_FINEST = 64

_Array = NDArray[np.float64]


def whole_places(sites: _Array) -> _Array:
    """Sites in whole multiples of a length, as float64.

    On a raster (with gaps, or not) they are multiples of its steps, whose ratio alone is rounded, so that neighbours on both
    sides are equally far. Elsewhere the length is ``2**-25`` of the widest extent, of which empty gaps of sites of several scales
    are left out. Shapes: ``sites`` (n, d). Returns (n, d): whole numbers from 0 to about ``2**25``.
    """
    sites = closed_up(sites)
    lowest = sites.min(axis=0)
    extents = np.ptp(sites, axis=0)
    widest = float(extents.max())
    if widest == 0.0:
        return np.zeros_like(sites)
    on_raster = _on_raster(sites, extents)
    return np.rint((sites - lowest) / widest * 2.0**_BITS) if on_raster is None else on_raster


def canonical_order(places: _Array, marks: _Array | None) -> NDArray[np.intp]:
    """Order sites by their first coordinate, then by the others; sites at one place by their ``marks``.

    Shapes: ``places`` (n, d), ``marks`` (n, q). Returns (n,): indices; rows that are equal in everything keep their order.
    """
    keys = places if marks is None else np.column_stack([places, marks])
    return np.lexsort(keys.T[::-1])


@dataclass(frozen=True)
class _Axis:
    """The levels of a raster along one axis."""

    step: float
    levels: _Array  #: ascending, the first of each that are one
    numbers: _Array  #: of steps from the first level

    def numbers_of(self, values: _Array) -> _Array:
        """The number of steps of each value."""
        return np.asarray(self.numbers[np.searchsorted(self.levels, values, side="right") - 1])


def _on_raster(sites: _Array, extents: _Array) -> _Array | None:
    """Whole places where all axes have levels in equal steps; else None."""
    axes = [_axis(values) if extent > 0.0 else None for values, extent in zip(sites.T, extents, strict=True)]
    if any(axis is None for axis, extent in zip(axes, extents, strict=True) if extent > 0.0):
        return None
    known = {place: axis for place, axis in enumerate(axes) if axis is not None}
    widest = known[int(np.argmax(extents))]
    lengths = {place: float(np.rint(_STEP * axis.step / widest.step)) for place, axis in known.items()}
    if min(lengths.values()) < _FINEST:
        return None
    found = np.zeros_like(sites)
    for place, axis in known.items():
        found[:, place] = lengths[place] * axis.numbers_of(sites[:, place])
    return found


def _axis(values: _Array) -> _Axis | None:
    """The levels of an axis of some extent, where they are in equal steps."""
    distinct = np.unique(values)
    extent = distinct[-1] - distinct[0]
    levels = distinct[np.append(True, np.diff(distinct) > _SAME_LEVEL * extent)]
    if len(levels) > _MOST_STEPS:
        return None
    gaps = np.diff(levels)
    steps = gaps / gaps.min()
    whole = np.rint(steps)
    numbers = np.append(0.0, np.cumsum(whole))
    if np.abs(steps - whole).max() > _SAME_GAP or numbers[-1] >= _MOST_STEPS:
        return None
    step = float(levels[-1] - levels[0]) / float(numbers[-1])
    is_regular = np.abs(levels - levels[0] - step * numbers).max() <= _ON_GRID * step
    return _Axis(step, levels, numbers) if is_regular else None
