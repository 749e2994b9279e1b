"""Cost of a wrong covariance function in prediction: mean loss of efficiency and misspecified mean square error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, cross_covariance
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.predicted import Target
from ooc_chol.apps.geostat.kriging.prediction import kriging, predict

#: Bytes of covariances among the observations that are made at once.
_CHUNK_BYTES = 32 * 2**20

#: Share of the sill below which a mean square error is zero but for rounding.
_KNOWN = 1e-12


@dataclass(frozen=True, eq=False)
class Efficiency:
    """Mean square errors of kriging with a true and with another covariance function at ``m`` sites.

    Parameters
    ----------
    true_error : (m,) array
        ``E_t``: of the best predictor, under the truth.
    actual_error : (m,) array
        ``E_ta``: of the predictor that the other covariance function makes, under the truth. Never below ``E_t``.
    claimed_error : (m,) array
        ``E_a``: of that predictor, as the other covariance function has it.
    """

    true_error: NDArray[np.float64]
    actual_error: NDArray[np.float64]
    claimed_error: NDArray[np.float64]

    __repr__ = tb.brief_repr

    @property
    def loss(self) -> NDArray[np.float64]:
        """Loss of efficiency ``E_ta / E_t - 1`` at each site, zero or positive."""
        return self.actual_error / self.true_error - 1.0

    @property
    def misspecification(self) -> NDArray[np.float64]:
        """Misspecification of the mean square error ``E_a / E_ta - 1`` at each site: negative where too much is claimed."""
        return self.claimed_error / self.actual_error - 1.0

    @property
    def mloe(self) -> float:
        """Mean loss of efficiency over the sites."""
        return float(np.mean(self.loss))

    @property
    def mmom(self) -> float:
        """Mean misspecification of the mean square error over the sites."""
        return float(np.mean(self.misspecification))

    @property
    def rmom(self) -> float:
        """Root mean square misspecification, in which too much and too little do not cancel."""
        return float(np.sqrt(np.mean(self.misspecification**2)))


@tb.documented(like=predict)
def prediction_efficiency(
    observations: Observations,
    sites: ArrayLike,
    *,
    truth: AbstractCovariance,
    other: AbstractCovariance,
    covariates: ArrayLike | None = None,
    target: Target = "observation",
    settings: FactorSettings | None = None,
) -> Efficiency:
    """Compare kriging under another covariance function with kriging under the true one.

    Parameters
    ----------
    observations : Observations
        Sites and columns of the mean; the values play no part.
    sites : (m, d) array
        Coordinates of the sites at which predictions are compared.
    truth : AbstractCovariance
        The covariance function that the field has.
    other : AbstractCovariance
        The one that kriging takes for it: estimated, approximated, or fixed.

    Returns
    -------
    Efficiency
        Errors at the sites in their order, with the criteria MLOE, MMOM and RMOM.

    Raises
    ------
    ValueError
        Dimension or covariates do not match the observations, there is no such target, or a value is known without error.
    NotPositiveDefiniteError
        A covariance matrix is not positive definite in floating point.

    Notes
    -----
    The criteria are those of Hong, Abdulah, Genton and Sun (2021), "Efficiency assessment of approximated spatial predictions
    for large datasets", Spatial Statistics 43, after Stein (1999): ``MLOE = mean(E_ta / E_t - 1)`` and
    ``MMOM = mean(E_a / E_ta - 1)``; ExaGeoStat's ``--mloe-mmom`` computes these two with a mean of zero.

    ``E_ta`` is ``E_t`` plus the squared length of ``inv(L_t) S_t (w_t - w_a)``, where ``w`` are the kriging weights: nothing
    cancels, so that the loss is never negative, and zero to rounding when the two agree. With an estimated mean both predictors
    are unbiased, and the same holds. Two factorizations one after the other, ``8 n m`` bytes for the weights, and ``2 n**2 m``
    flops with the covariance matrix, which is made again in chunks.
    """
    check_is_observations(observations)
    with kriging(observations, other, settings=settings) as kriged:
        claimed = kriged.predict(sites, covariates=covariates, target=target).variance
        weights = kriged.weights(sites, covariates=covariates)
    with kriging(observations, truth, settings=settings) as kriged:
        best = kriged.predict(sites, covariates=covariates, target=target).variance
        _check_uncertain(best, truth)
        places, design = kriged.check(sites, covariates)
        lost = np.empty(len(places))
        for batch in kriged.batches(len(places)):
            mine = weights[kriged.order, batch]
            # R_t (w_t - w_a), to be measured in the metric of inv(R_t)
            gap = kriged.with_multipliers(places[batch], design[batch]) - _multiply(truth, kriged.observations, mine)
            lost[batch] = np.sum(kriged.factor.half_solve(gap) ** 2, axis=0)
    return Efficiency(best, best + truth.variance * lost, claimed)


def _multiply(model: AbstractCovariance, observations: Observations, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """``R @ weights`` for the correlation matrix with its nugget ratio and known errors, a chunk of rows at a time."""
    correlation, sites = model.with_values(variance=1.0, nugget=0.0), observations.coordinates
    product = (model.nugget / model.variance) * weights
    noise = observations.scaled_errors(model.variance)
    if noise is not None:
        product += noise[:, np.newaxis] * weights
    step = max(1, _CHUNK_BYTES // (8 * len(sites)))
    for start in range(0, len(sites), step):
        product[start : start + step] += cross_covariance(correlation, sites[start : start + step], sites) @ weights
    return product


def _check_uncertain(errors: NDArray[np.float64], model: AbstractCovariance) -> None:
    """Raise ``ValueError`` naming the first site whose value is known: no share of its error can be lost."""
    known = errors <= _KNOWN * model.sill
    if known.any():
        raise ValueError(
            f"the value at site {int(np.argmax(known))} (counted from zero) is known without error, as an observation is there "
            "and nothing has a nugget: its errors have no ratio; leave that site out"
        )
