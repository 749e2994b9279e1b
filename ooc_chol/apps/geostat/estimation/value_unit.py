"""Values far from zero, or with squares near the ends of float64: taken about their middle, in a unit of a power of two."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.model import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations

_Covariance = TypeVar("_Covariance", bound=AbstractCovariance)

#: Values are taken as they are up to so many times their spread from zero, and with spreads of up to so many powers of two.
_FAR, _POWERS = 2.0**10, 100

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class ValueUnit:
    """Values ``(z - shift) * 2**-exponent`` in place of ``z``: of both nothing is rounded, and all results go back exactly."""

    shift: float
    exponent: int

    @property
    def is_plain(self) -> bool:
        """True if values are taken as they are."""
        return self.shift == 0.0 and self.exponent == 0

    def observations(self, observations: Observations) -> Observations:
        """The values in this unit."""
        errors = observations.error_variances
        return replace(
            observations,
            values=np.ldexp(observations.values - self.shift, -self.exponent),
            error_variances=None if errors is None else np.ldexp(errors, -2 * self.exponent),
        )

    def model(self, model: _Covariance) -> _Covariance:
        """A covariance function in this unit."""
        return model.with_values(variance=self.variance(model.variance), nugget=self.variance(model.nugget))

    def variance(self, variance: float) -> float:
        """A variance in this unit."""
        return _scaled(variance, -2 * self.exponent)

    def model_back(self, model: _Covariance) -> _Covariance:
        """A covariance function in squared units of the values."""
        return model.with_values(variance=self.variance_back(model.variance), nugget=self.variance_back(model.nugget))

    def variance_back(self, variance: float) -> float:
        """A variance in squared units of the values."""
        return _scaled(variance, 2 * self.exponent)

    def loglik_back(self, loglik: float, freedom: int) -> float:
        """A log-likelihood of the values: their density is one over the unit for each degree of freedom."""
        return loglik - freedom * self.exponent * math.log(2.0)

    def coefficients_back(self, coefficients: _Array, mean_columns: tuple[str, ...]) -> _Array:
        """Coefficients of the mean; the intercept, where there is one, is the first."""
        found = np.ldexp(coefficients, self.exponent)
        if self.shift and mean_columns:
            found[0] += self.shift
        return found

    def covariance_back(self, covariance: _Array) -> _Array:
        """Covariances of coefficients of the mean, where float64 holds their variances."""
        with np.errstate(over="ignore", under="ignore"):
            found = np.ldexp(covariance, 2 * self.exponent)
        if not (np.isfinite(found).all() and np.diag(found).all()):
            raise ValueError(
                "variances of the coefficients of the mean are no numbers of float64 in the unit of these values: give values "
                "divided by their standard deviation, and covariates too"
            )
        return found


def value_unit(observations: Observations) -> ValueUnit:
    """The unit in which values are computed; the plain one of all values but extreme ones."""
    values = observations.values
    middle = float(np.partition(values, len(values) // 2)[len(values) // 2]) if observations.mean == "constant" else 0.0
    spread = float(np.abs(values - middle).max())
    if spread == 0.0:
        return ValueUnit(0.0, 0)
    exponent = math.frexp(spread)[1]
    return ValueUnit(middle if abs(middle) > _FAR * spread else 0.0, exponent if abs(exponent) > _POWERS else 0)


def _scaled(variance: float, power: int) -> float:
    """``variance * 2**power``, where float64 holds it."""
    try:
        found = math.ldexp(variance, power)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or (variance > 0.0 and found == 0.0):
        raise ValueError(
            f"a variance of {variance:g} times 2**{power} is no number of float64: give values in a unit in which their squares "
            "are, such as divided by their standard deviation"
        )
    return found
