"""Cross-validation from neighbourhoods: for data whose covariance matrix has no factor that fits."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.kriging.folds import FoldKind, Folds, as_folds
from ooc_chol.apps.geostat.kriging.local import LocalMethod, local_kriging
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.kriging.validation import CrossValidation

#: Folds up to which neighbours are looked for anew without each: every one takes a search in all other data.
_MOST_FOLDS = 1_000


def cross_validate_locally(
    observations: Observations,
    model: AbstractCovariance,
    *,
    folds: int | ArrayLike | Folds = 10,
    how: FoldKind = "random",
    seed: int = 0,
    method: LocalMethod = "vecchia",
    neighbours: int | None = None,
    coefficients: ArrayLike | None = None,
    device: str | None = None,
) -> CrossValidation:
    """Predict every fold from neighbours among the observations that it does not leave out, by :func:`local_kriging`.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    model : AbstractCovariance
        The covariance function, kept as it is.
    folds, how, seed
        As :func:`cross_validate`; at most 1,000 folds.
    method, neighbours, device
        As :func:`local_kriging`.
    coefficients : (p,) array, optional
        Known coefficients of the mean; without them they are estimated without each fold, in Vecchia's approximation.

    Returns
    -------
    CrossValidation
        Prediction, variance and fold of each observation, in the order of ``observations``.

    Raises
    ------
    ValueError
        There are fewer than two folds or more than 1,000, a fold leaves out everything or more than the coefficients of the mean
        can spare, or an argument is no such choice.
    NotPositiveDefiniteError
        The covariance matrix of a neighbourhood is not positive definite in floating point.

    Notes
    -----
    For each fold neighbours among the other data and, unless they are known, coefficients: ``O(n)`` in all, and in memory.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import (
    ...     Matern,
    ...     cross_validate,
    ...     make_observations,
    ... )
    >>> sites = np.random.default_rng(0).uniform(size=(1500, 2))
    >>> observations = make_observations(
    ...     sites, np.sin(5 * sites[:, 0]) + sites[:, 1]
    ... )
    >>> model = Matern(1.0, 0.2, 1.5, 0.01)
    >>> near, exact = (
    ...     cross_validate_locally(observations, model, folds=3),
    ...     cross_validate(observations, model, folds=3),
    ... )
    >>> bool(
    ...     np.max(
    ...         np.abs(near.prediction.mean - exact.prediction.mean)
    ...         / exact.prediction.standard_error
    ...     )
    ...     < 0.05
    ... )
    True
    """
    check_is_observations(observations)
    chosen = as_folds(observations, folds, how, seed)
    if chosen.n_folds > _MOST_FOLDS:
        raise ValueError(
            f"{chosen.n_folds} folds are asked for, but neighbours are looked for anew without each, so at most {_MOST_FOLDS} "
            "are possible; give a number of folds"
        )
    mean, variance = np.empty(observations.n), np.empty(observations.n)
    first = int(observations.mean == "constant")
    for fold, out in enumerate(chosen.left_out()):
        own = np.flatnonzero(chosen.labels == fold)
        others = observations.take(np.setdiff1d(np.arange(observations.n), out, assume_unique=True))
        if others.n <= observations.design.shape[1]:
            raise ValueError(
                f"fold {fold} leaves {others.n} observations to predict it from: make folds smaller, or a buffer shorter"
            )
        near = local_kriging(others, model, method=method, neighbours=neighbours, coefficients=coefficients, device=device)
        errors = None if observations.error_variances is None else observations.error_variances[own]
        found = near.predict(observations.coordinates[own], covariates=observations.design[own, first:], error_variances=errors)
        mean[own], variance[own] = found.mean, found.variance
    return CrossValidation(observations.values, Prediction(mean, variance, "observation"), chosen.labels)
