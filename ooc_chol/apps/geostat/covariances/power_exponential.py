"""The power exponential covariance function ``exp(-(h / range)**power)``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.model import check_nugget, check_positive, model_repr
from ooc_chol.apps.geostat.covariances.radial import AbstractIsotropicCovariance, AbstractProfile
from ooc_chol.apps.geostat.covariances.radial_table import RadialTable, tabulate
from ooc_chol.apps.geostat.covariances.scales import NEAR_HARD_BOUND, Scale

#: Bounds of the power: below, the field is nearly white; above 2 the function is not positive definite.
POWER_BOUNDS = (0.01, 2.0)

#: Least power of a search, and the largest for which the function of the great-circle distance is positive definite.
_LEAST_SEARCHED = 0.05
_LARGEST_ON_SPHERE = 1.0

#: The table reaches from where ``1 - rho = z**power`` is below 2**-60 to where rho underflows, or to the last binade there is.
_BEGIN_BITS = 60
_END_EXPONENT = 745.0
_LAST_BINADE = 1023

#: Stands for a distance of zero where its logarithm is multiplied by zero.
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class PowerExponential(AbstractIsotropicCovariance):
    """Power exponential covariance ``C(h) = variance * exp(-(h / range)**power)``, and a nugget.

    Parameters
    ----------
    variance : float
        Variance of the smooth field, in squared units of the values. Positive.
    range : float
        Distance at which the correlation is 1/e, in the unit of the coordinates. Positive.
    power : float
        From 0.01 to 2: 1 is the exponential covariance (Matérn with smoothness 1/2), 2 the Gaussian.
    nugget : float
        Variance of the independent error of each observation. Zero or positive.

    Raises
    ------
    ValueError
        A parameter is not finite or out of its bounds.

    Notes
    -----
    Fields are not differentiable but for power 2, where they are analytic, and matrices are singular to working accuracy without
    a nugget. About 6 ns an entry and core; from a table on CUDA devices.

    Examples
    --------
    >>> PowerExponential(variance=2.0, range=3.0, power=1.5).covariance(
    ...     3.0
    ... ).round(4)
    np.float64(0.7358)
    """

    variance: float
    range: float
    power: float
    nugget: float = 0.0

    __repr__ = model_repr

    def __post_init__(self) -> None:
        low, high = POWER_BOUNDS
        if not low <= self.power <= high:
            raise ValueError(f"power is {self.power}, but it must lie within {low:g} and {high:g}")
        check_positive(variance=self.variance, range=self.range)
        check_nugget(self.nugget)

    @property
    def profile(self) -> PowerExponentialProfile:
        return PowerExponentialProfile(self.power)


@dataclass(frozen=True)
class PowerExponentialProfile(AbstractProfile):
    """The correlation ``exp(-z**power)`` of the scaled distance."""

    power: float  #: Power of the scaled distance, above 0 and at most 2

    @property
    def parameters(self) -> tuple[str, ...]:
        """The power."""
        return ("power",)

    def correlate(self, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by ``exp(-z**power)``."""
        np.power(z, self.power, out=z)
        np.negative(z, out=z)
        np.exp(z, out=z)

    def slope(self, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by ``-power q exp(-q)``, where ``q = z**power``."""
        np.power(z, self.power, out=z)
        np.negative(z, out=z)
        np.exp(z, out=scratch[0])
        z *= scratch[0]
        z *= self.power

    def differentiate(self, name: str, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by ``-q exp(-q) log(z)``, where ``q = z**power``."""
        np.maximum(z, _TINY, out=scratch[1])
        np.log(scratch[1], out=scratch[1])
        np.power(z, self.power, out=z)
        np.negative(z, out=z)
        np.exp(z, out=scratch[0])
        z *= scratch[0]
        z *= scratch[1]

    @property
    def table(self) -> RadialTable:
        return _tables(self.power)[0]

    def derivative_table(self, name: str | None) -> RadialTable:
        return _tables(self.power)[1 if name is None else 2]

    @property
    def scales(self) -> dict[str, Scale]:
        """The logarithm of the power."""
        return {"power": Scale(_LEAST_SEARCHED, POWER_BOUNDS[1], near=NEAR_HARD_BOUND)}

    @property
    def sphere_scales(self) -> dict[str, Scale]:
        """The logarithm of the power, up to 1."""
        return {"power": Scale(_LEAST_SEARCHED, _LARGEST_ON_SPHERE, near=NEAR_HARD_BOUND)}

    @property
    def sphere_obstacle(self) -> str | None:
        """Why a power above 1 is none for the great circle."""
        if self.power <= _LARGEST_ON_SPHERE:
            return None
        return (
            "a power exponential covariance of the great-circle distance is positive definite on the sphere only for powers up "
            f"to 1 (Gneiting 2013), but it is {self.power}; use the chord (chordal_coordinates), with which every power is valid"
        )


@lru_cache(maxsize=16)
def _tables(power: float) -> tuple[RadialTable, RadialTable, RadialTable]:
    """Tables of ``rho = exp(-q)``, ``z drho/dz`` and ``drho/dpower`` with ``q = z**power``, kept for the last few powers."""
    begin = -math.ceil(_BEGIN_BITS / power)
    end = min(math.ceil(math.log2(_END_EXPONENT) / power), _LAST_BINADE)

    def values(z: NDArray[np.float64]) -> NDArray[np.float64]:
        q = z**power
        rho = np.exp(-q)
        return np.stack([rho, -power * q * rho, -q * rho * np.log(z)])

    rho, slope, by_power = tabulate(values, (begin, end), (np.array([1.0, 0.0, 0.0]), np.zeros(3)))
    return rho, slope, by_power
