"""Kriging in forms that outlive a factor: weights of the observations, and the covariance of errors at all sites together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, cross_covariance
from ooc_chol.apps.geostat.data.observations import Observations, design_matrix
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of, evaluated
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.prediction import Target, kriging


@dataclass(frozen=True, eq=False)
class KrigingWeights:
    """Parts of a factorization that the prediction of a mean needs, and its log-likelihood."""

    observations: Observations  #: The data in the order of the weights
    alpha: NDArray[np.float64]  #: (n,) ``inv(R) (z - X b)`` with ``R`` the correlation matrix
    coefficients: NDArray[np.float64]  #: (p,) generalised-least-squares coefficients ``b`` of the mean
    loglik: float  #: Log-likelihood, ``-n/2 log(2 pi)`` included


def kriging_weights(observations: Observations, model: AbstractCovariance, *, settings: FactorSettings) -> KrigingWeights:
    """Factor once for the weights ``inv(R) (z - X b)`` and the value of the likelihood."""
    with evaluated(observations, correlation_of(model), variance=model.variance, settings=settings) as found:
        alpha = found.factor.half_solve(found.whitened.residual, transposed=True)
        return KrigingWeights(found.observations, alpha, found.whitened.coefficients, found.likelihood.loglik)


def prediction_covariance(
    observations: Observations,
    model: AbstractCovariance,
    sites: NDArray[np.float64],
    covariates: NDArray[np.float64],
    *,
    target: Target,
    settings: FactorSettings,
) -> NDArray[np.float64]:
    """Covariance matrix of the errors of universal kriging at all sites together.

    Cost one factorization, ``n**2 m + n m**2`` flops, and memory for ``n m`` and ``m**2`` numbers.
    """
    with kriging(observations, model, settings=settings) as kriged:
        white = kriged.whitened
        # v = inv(L) r(sites)
        v = kriged.factor.half_solve(kriged.correlations(sites))
    # x0 - X' inv(R) r, and its products in the metric of inv(X' inv(R) X)
    gap = design_matrix(len(sites), covariates, observations.mean) - v.T @ white.design
    trend = solve_triangular(white.root, gap.T, trans="T")
    covariance = model.variance * (cross_covariance(correlation_of(model), sites, sites) - v.T @ v + trend.T @ trend)
    own = covariance.diagonal().clip(min=0.0) + (model.nugget if target == "observation" else 0.0)
    np.fill_diagonal(covariance, own)
    return np.asarray(covariance)
