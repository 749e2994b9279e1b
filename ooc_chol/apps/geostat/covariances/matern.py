"""The Matérn covariance function of any smoothness: closed forms at 1/2, 3/2 and 5/2, tables elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.fall import distance_of_fall
from ooc_chol.apps.geostat.covariances.matern_exact import check_smoothness_bounds, matern_values
from ooc_chol.apps.geostat.covariances.model import check_nugget, check_positive, model_repr
from ooc_chol.apps.geostat.covariances.radial import AbstractIsotropicCovariance, AbstractProfile
from ooc_chol.apps.geostat.covariances.radial_table import RadialTable, tabulate
from ooc_chol.apps.geostat.covariances.scales import NEAR_HARD_BOUND, SEARCHED_SMOOTHNESS, Scale

#: The values of the smoothness nu that have a closed form here.
SMOOTHNESS = (0.5, 1.5, 2.5)

#: Largest smoothness for which the function of the great-circle distance is positive definite (Gneiting 2013).
_SMOOTHEST_ON_SPHERE = 0.5

#: Tables end at 512 ranges: there every correlation is below 1e-130, and taken for zero.
_END_BINADE = 9

#: Tables begin where ``1 - M(z)``, which falls as ``z**min(2 nu, 2)``, and the derivatives are below 2**-60, times a logarithm.
_BEGIN_BITS = 60
_BEGIN_MORE = 2


@dataclass(frozen=True)
class Matern(AbstractIsotropicCovariance):
    """Matérn covariance ``C(h) = variance * 2**(1 - nu) / gamma(nu) * (h/range)**nu * K_nu(h/range)``, and a nugget.

    Parameters
    ----------
    variance : float
        Variance ``sigma2`` of the smooth field (the partial sill), in squared units of the values. Positive.
    range : float
        Length ``a`` in ``K_nu(h/a)``, in the unit of the coordinates. Positive. ExaGeoStat, GpGp, geoR and fields use the same;
        scikit-learn's ``length_scale`` is ``a * sqrt(2 * nu)`` and GSTools' ``len_scale`` is ``a * sqrt(nu)``.
    smoothness : float
        ``nu``, from 0.01 to 30. At 0.5, 1.5 and 2.5 a closed form is used.
    nugget : float
        Variance ``tau2`` of the independent error of each *observation*. It is added by index, never by zero distance, so two
        observations at one place are two measurements, not one singular row. Zero or positive.

    Raises
    ------
    ValueError
        A parameter is not finite or out of its bounds.

    Notes
    -----
    Absolute errors are below 1e-13 of the variance: values and both derivatives come from tables
    of exact values, made once per smoothness in some milliseconds.

    Examples
    --------
    >>> round(
    ...     Matern(variance=2.0, range=1.0, smoothness=0.5).effective_range, 4
    ... )
    2.9957
    """

    variance: float
    range: float
    smoothness: float
    nugget: float = 0.0

    __repr__ = model_repr

    def __post_init__(self) -> None:
        check_smoothness_bounds(self.smoothness)
        check_positive(variance=self.variance, range=self.range)
        check_nugget(self.nugget)

    @property
    def profile(self) -> MaternProfile:
        return MaternProfile(self.smoothness)

    @property
    def effective_range(self) -> float:
        """Distance at which the correlation of the smooth field has fallen to 0.05, in the unit of the coordinates."""
        return self.range * scaled_effective_range(self.smoothness)


@dataclass(frozen=True)
class MaternProfile(AbstractProfile):
    """The Matérn correlation ``M(z)`` of the scaled distance."""

    smoothness: float

    @property
    def parameters(self) -> tuple[str, ...]:
        """The smoothness."""
        return ("smoothness",)

    def correlate(self, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by ``M(z)``."""
        if self.smoothness in SMOOTHNESS:
            _closed_form(z, scratch[0], self.smoothness)
        else:
            matern_tables(self.smoothness)[0].evaluate(z, scratch)

    def slope(self, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by ``z dM/dz``."""
        if self.smoothness in SMOOTHNESS:
            _closed_slope(z, scratch[0], scratch[1], self.smoothness)
        else:
            matern_tables(self.smoothness)[1].evaluate(z, scratch)

    def differentiate(self, name: str, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by ``dM/dnu``."""
        matern_tables(self.smoothness)[2].evaluate(z, scratch)

    @property
    def table(self) -> RadialTable:
        return matern_tables(self.smoothness)[0]

    def derivative_table(self, name: str | None) -> RadialTable:
        return matern_tables(self.smoothness)[1 if name is None else 2]

    @property
    def scales(self) -> dict[str, Scale]:
        """The logarithm of the smoothness."""
        return {"smoothness": Scale(*SEARCHED_SMOOTHNESS)}

    @property
    def sphere_scales(self) -> dict[str, Scale]:
        """The logarithm of the smoothness, up to 1/2."""
        return {"smoothness": Scale(SEARCHED_SMOOTHNESS[0], _SMOOTHEST_ON_SPHERE, near=NEAR_HARD_BOUND)}

    @property
    def sphere_obstacle(self) -> str | None:
        """Why a smoothness above 1/2 is none for the great circle."""
        if self.smoothness <= _SMOOTHEST_ON_SPHERE:
            return None
        return (
            "a Matérn covariance of the great-circle distance is positive definite on the sphere only for smoothness up to 1/2 "
            f"(Gneiting 2013), but it is {self.smoothness}; use the chord (chordal_coordinates), valid for every one"
        )


@lru_cache(maxsize=64)
def scaled_effective_range(smoothness: float) -> float:
    """The scaled distance at which ``M(z)`` is 0.05: some milliseconds of series where the smoothness has no closed form."""
    return distance_of_fall(lambda z: matern_values(z, smoothness).correlation, start=1.0)


@lru_cache(maxsize=16)
def matern_tables(smoothness: float) -> tuple[RadialTable, RadialTable, RadialTable]:
    """Tables of ``M(z)``, ``z dM/dz`` and ``dM/dnu``, as near to the exact values as rounding lets them be.

    Some milliseconds, and 40 to 320 kB each for a smoothness of 1/10 or more.
    """

    def values(z: NDArray[np.float64]) -> NDArray[np.float64]:
        found = matern_values(z, smoothness)
        return np.stack([found.correlation, found.slope, found.by_smoothness])

    begin = -math.ceil(_BEGIN_BITS / min(2.0 * smoothness, 2.0)) - _BEGIN_MORE
    correlation, slope, by_smoothness = tabulate(values, (begin, _END_BINADE), (np.array([1.0, 0.0, 0.0]), np.zeros(3)))
    return correlation, slope, by_smoothness


def _closed_form(r: NDArray[np.float64], spare: NDArray[np.float64], smoothness: float) -> None:
    """Replace ``r = h/a`` by the Matérn correlation; all terms are positive, so nothing cancels."""
    if smoothness == 0.5:
        # exp(-r)
        np.negative(r, out=r)
        np.exp(r, out=r)
        return
    np.negative(r, out=spare)
    np.exp(spare, out=spare)
    if smoothness == 1.5:
        # (1 + r) exp(-r)
        r += 1.0
    else:
        # (1 + r + r**2/3) exp(-r) with 3 + 3 r + r**2 = (r + 1.5)**2 + 0.75
        r += 1.5
        np.square(r, out=r)
        r += 0.75
        r *= 1.0 / 3.0
    r *= spare


def _closed_slope(r: NDArray[np.float64], spare: NDArray[np.float64], other: NDArray[np.float64], smoothness: float) -> None:
    """Replace ``r = h/a`` by the derivative of the correlation in ``log r``."""
    np.negative(r, out=spare)
    np.exp(spare, out=spare)
    if smoothness == 0.5:
        # -r exp(-r)
        np.negative(spare, out=spare)
    elif smoothness == 1.5:
        # -r**2 exp(-r)
        spare *= r
        np.negative(spare, out=spare)
    else:
        # -r**2 (1 + r) / 3 exp(-r)
        np.add(r, 1.0, out=other)
        other *= -1.0 / 3.0
        other *= r
        spare *= other
    r *= spare
