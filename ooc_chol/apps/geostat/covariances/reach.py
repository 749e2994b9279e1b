"""How far a covariance function reaches: the distance at which the correlation has fallen to 0.05."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.geometry import AxisRanges
from ooc_chol.apps.geostat.covariances.matern import EFFECTIVE_CORRELATION, Matern
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance
from ooc_chol.apps.geostat.covariances.radial import AbstractRadialCovariance
from ooc_chol.apps.geostat.covariances.radial_table import SCRATCH
from ooc_chol.apps.geostat.covariances.spacetime import GneitingMatern, SeparableSpaceTime

#: Relative accuracy of a distance that is searched for.
_ACCURACY = 1e-13

_Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def reach(model: AbstractCovariance) -> float:
    """Effective range of one structure, in the unit of the coordinates: along the main axis, or in space at one time.

    Parameters
    ----------
    model : AbstractCovariance
        No sum; of ranges by axis the geometric mean is taken.

    Returns
    -------
    float
        Distance at which the correlation is 0.05.

    Raises
    ------
    ValueError
        The function has no such distance.
    """
    if isinstance(model, SeparableSpaceTime):
        return reach(model.space)
    if isinstance(model, GneitingMatern):
        return Matern(1.0, model.range, model.smoothness).effective_range
    if not isinstance(model, AbstractRadialCovariance):
        raise ValueError(f"a {type(model).__name__} has no effective range")
    length = math.prod(model.ranges) ** (1 / len(model.ranges)) if isinstance(model, AxisRanges) else model.values["range"]
    return length * distance_of_fall(lambda z: _correlated(model, z), start=1.0)


def distance_of_fall(correlation: _Function, *, start: float) -> float:
    """Where a correlation that falls with distance is 0.05, by bisection.

    Parameters
    ----------
    correlation : callable
        From distances to correlations, 1 at distance zero.
    start : float
        A positive distance, from which one below and one above are looked for.

    Returns
    -------
    float
        The distance, relative error 1e-13.
    """
    from scipy.optimize import brentq  # 0.1 s, which the other commands need not pay

    def excess(log_distance: float) -> float:
        return float(correlation(np.array([math.exp(log_distance)]))[0]) - EFFECTIVE_CORRELATION

    low = high = math.log(start)
    while excess(low) < 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    return start if low == high else math.exp(brentq(excess, low, high, xtol=_ACCURACY))


def _correlated(model: AbstractRadialCovariance, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """The correlation at scaled distances."""
    found = z.copy()
    model.profile.correlate(found, np.empty((SCRATCH, *found.shape)))
    return found
