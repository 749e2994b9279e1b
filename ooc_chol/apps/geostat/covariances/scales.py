"""How a fit moves each parameter of a covariance function: on which scale, between which bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.extents import diameter, near_distance

#: Bounds of a length as multiples of the diameter of the sites, and of the usual distance between neighbours.
LENGTH_FACTORS = (1e-4, 10.0)
_NEAR_FACTOR = 0.1

#: Bounds of a smoothness that is estimated: beyond them fields differ by less than data show.
SEARCHED_SMOOTHNESS = (0.05, 10.0)

#: Coordinates nearer to a bound than this count as being at it: far out, and where the bound is one of the parameter itself.
NEAR_BOUND = 0.25
NEAR_HARD_BOUND = 0.02

#: A value that other parameters bound, and the derivatives of its logarithm by them.
Bound = tuple[float, Mapping[str, float]]


@dataclass(frozen=True)
class Scale:
    """The coordinate of a parameter in a search: its logarithm, or the parameter itself, over ``step``.

    Parameters
    ----------
    lower, upper : float
        Bounds of the search, in the unit of the parameter or, with ``bound``, as shares of that.
    is_logarithmic : bool
        True if the coordinate is the logarithm; the parameter is positive then.
    step : float
        Unit of the coordinate: in one step a search moves by 1.5 of it at most.
    is_length : bool
        True if the matrix becomes better conditioned where the parameter is smaller.
    near : float
        Coordinates nearer to a bound than this count as being at it.
    bound : callable, optional
        For a parameter that others bound: that bound and its derivatives, given a model with those others. What is searched for
        is the share of it.
    """

    lower: float
    upper: float
    is_logarithmic: bool = True
    step: float = 1.0
    is_length: bool = False
    near: float = NEAR_BOUND
    bound: Callable[[Any], Bound] | None = None

    __repr__ = tb.brief_repr

    def coordinate(self, value: float) -> float:
        """The coordinate of a value (or share); minus infinity where a logarithm is that of zero."""
        with np.errstate(divide="ignore"):
            return float(np.log(value) if self.is_logarithmic else value) / self.step

    def value(self, coordinate: float) -> float:
        """The value (or share) at a coordinate, within the bounds."""
        moved = self.step * coordinate
        return min(max(float(np.exp(moved)) if self.is_logarithmic else float(moved), self.lower), self.upper)

    def slope(self, value: float) -> float:
        """Derivative of the value (or share) by its coordinate."""
        return self.step * value if self.is_logarithmic else self.step

    def shift(self, step: float) -> float:
        """Effect of a step of the coordinate: relative to the value for a logarithm, else in the unit of the parameter."""
        return float(np.expm1(self.step * step)) if self.is_logarithmic else self.step * step


def length_scale(sites: NDArray[np.float64]) -> Scale:
    """The scale of a length over which sites are correlated: from below the distances of neighbours to beyond all sites."""
    whole = diameter(sites)
    lower = min(LENGTH_FACTORS[0] * whole, _NEAR_FACTOR * near_distance(sites)[0])
    return Scale(lower, LENGTH_FACTORS[1] * whole, is_length=True)
