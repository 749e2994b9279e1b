"""Standardised residuals of a model: independent standard normals if the model is true."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.data.ordering import inverse_permutation
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.prediction import kriging


@tb.documented(like=kriging)
def standardised_residuals(
    observations: Observations, model: AbstractCovariance, *, settings: FactorSettings | None = None
) -> NDArray[np.float64]:
    """Errors of predicting each observation from those before it, over their standard errors: ``inv(L) (z - X b)``.

    Returns
    -------
    (n,) array
        Without unit, in the order of the observations.

    Raises
    ------
    NotPositiveDefiniteError
        The covariance matrix is not positive definite in floating point.

    Notes
    -----
    ``L`` is the Cholesky factor of the covariance matrix in Morton order, so "before" means in that order. Where model and mean
    are true these are independent with mean 0 and variance 1, which leave-one-out errors are not; the ``p`` estimated
    coefficients of the mean take ``p`` of the ``n`` degrees of freedom. Their squares sum to the quadratic form of the
    likelihood, so after a fit that profiles the variance their mean square is 1. Cost one factorization.
    """
    check_is_observations(observations)
    with kriging(observations, model, settings=settings) as kriged:
        residual = kriged.whitened.residual / math.sqrt(model.variance)
        return np.asarray(residual[inverse_permutation(kriged.order)])
