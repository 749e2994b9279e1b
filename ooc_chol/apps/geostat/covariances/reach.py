"""How far a covariance function reaches: the distance at which the correlation has fallen to 0.05."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.fall import distance_of_fall
from ooc_chol.apps.geostat.covariances.geometry import AxisRanges
from ooc_chol.apps.geostat.covariances.matern import Matern, MaternProfile
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance
from ooc_chol.apps.geostat.covariances.radial import AbstractProfile, AbstractRadialCovariance
from ooc_chol.apps.geostat.covariances.radial_table import SCRATCH
from ooc_chol.apps.geostat.covariances.spacetime import GneitingMatern, SeparableSpaceTime


def reach(model: AbstractCovariance) -> float:
    """Effective range of one structure, in the unit of the coordinates: along the main axis, or in space at one time.

    Raises ``ValueError``: the function has no such distance.
    """
    if isinstance(model, SeparableSpaceTime):
        return reach(model.space)
    if isinstance(model, GneitingMatern):
        return Matern(1.0, model.range, model.smoothness).effective_range
    if not isinstance(model, AbstractRadialCovariance):
        raise ValueError(f"a {type(model).__name__} has no effective range")
    length = math.prod(model.ranges) ** (1 / len(model.ranges)) if isinstance(model, AxisRanges) else model.values["range"]
    return length * _scaled_reach(model.profile)


def _scaled_reach(profile: AbstractProfile) -> float:
    """The scaled distance at which a correlation is 0.05: of Matérn's from exact values, of others from those that are used."""
    if isinstance(profile, MaternProfile):
        return Matern(1.0, 1.0, profile.smoothness).effective_range

    def correlation(z: NDArray[np.float64]) -> NDArray[np.float64]:
        found = z.copy()
        profile.correlate(found, np.empty((SCRATCH, *found.shape)))
        return found

    return distance_of_fall(correlation, start=1.0)
