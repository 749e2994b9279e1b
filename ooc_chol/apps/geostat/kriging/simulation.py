"""Draws of a Gaussian field: unconditional by one product with the factor, conditional on data by kriging what they leave."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.coincidence import check_observations
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.model import check_model
from ooc_chol.apps.geostat.data.observations import Observations, as_sites, check_is_observations
from ooc_chol.apps.geostat.data.ordering import inverse_permutation, morton_order
from ooc_chol.apps.geostat.data.rows import Rows, counted_rows
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of, log_likelihood
from ooc_chol.apps.geostat.factorization import FactorProgress, FactorSettings, chosen_settings, factored
from ooc_chol.apps.geostat.kriging.kriged import BATCH_BYTES, Kriging, match_sites
from ooc_chol.apps.geostat.kriging.predicted import Target, check_target, new_errors
from ooc_chol.apps.geostat.kriging.prediction import kriging

#: Least variance of the error of each simulated value, as a share of the model's variance: 1e-4 standard deviations.
JITTER = 1e-8

#: Gives the next ``(draws, n)`` standard normals, those of a draw in one row.
Normals = Callable[[int, int], NDArray[np.float64]]


@tb.documented(like=log_likelihood)
def simulate(
    model: AbstractCovariance,
    sites: ArrayLike,
    *,
    draws: int = 1,
    seed: int = 0,
    target: Target = "field",
    mean: ArrayLike = 0.0,
    error_variances: ArrayLike | None = None,
    jitter: float = JITTER,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
) -> NDArray[np.float64]:
    """Draw from the field of a model: ``mean + L e`` with independent standard normals ``e``.

    Parameters
    ----------
    sites : (m, d) array
        Coordinates of the sites, in the unit of the ranges of ``model``.
    draws : int
        Number of draws; one factorization serves all.
    seed : int
        Seed of NumPy's default generator. A draw does not depend on how many follow it.
    target : {"field", "observation"}
        The smooth field, or observations of it, each with an error whose variance is the nugget.
    mean : float or (m,) array
        Mean at each site, or one for all.
    error_variances : (m,) array, optional
        Known variances of the observations' errors, on top of the nugget.
    jitter : float
        Least variance, as a share of the model's, of an independent error of each value. Without any, the matrix of a smooth
        field at many sites, or at one site twice, is not positive definite in floating point.

    Returns
    -------
    (draws, m) array
        One draw a row, sites in the order given.

    Raises
    ------
    ValueError
        A number is out of range, or the mean has another shape.
    NotPositiveDefiniteError
        The covariance matrix is not positive definite in floating point: ask for more ``jitter``.

    Notes
    -----
    One factorization, ``m**2`` flops a draw, and one reading of the factor for as many draws as 96 MiB hold.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import Matern
    >>> simulate(
    ...     Matern(1.0, 0.2, 1.5), [[0.0, 0.0], [0.1, 0.0]], draws=3
    ... ).shape
    (3, 2)
    """
    check_target(target)
    check_numbers(draws, jitter)
    places = as_sites(sites)
    level = checked_mean(mean, len(places), "sites")
    errors = new_errors(error_variances, len(places), target)
    field = level + _draw(
        _with_error(model, target, jitter), places, draws, normals(seed, 0), settings=settings, progress=progress
    )
    return _add_errors(field, errors, seed)


@tb.documented(like=simulate)
def simulate_conditional(
    observations: Observations,
    model: AbstractCovariance,
    sites: ArrayLike,
    *,
    covariates: ArrayLike | None = None,
    draws: int = 1,
    seed: int = 0,
    target: Target = "field",
    error_variances: ArrayLike | None = None,
    coefficients: ArrayLike | None = None,
    jitter: float = JITTER,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
) -> NDArray[np.float64]:
    """Draw from the field of a model given observations: mean and covariance over all draws are those of kriging.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    covariates : (m, q) array, optional
        Covariates of the mean at the sites, in the order of those of the observations; needed where these have some.
    draws : int
        How many, all of the same two factorizations.
    target : {"field", "observation"}
        The smooth field, or new observations of it.
    error_variances : (m,) array, optional
        Known variances of their errors, on top of the nugget. Those of ``observations`` count anyhow.
    coefficients : (p,) array, optional
        Known coefficients of the mean; when they are estimated, draws vary with their uncertainty, too.
    jitter : float
        Least variance, as a share of the model's, of an independent error of each value; see :func:`simulate`.
    progress : callable, optional
        Called with flops done, flops in all and seconds, for each of the two factorizations.

    Returns
    -------
    (draws, m) array
        One draw a row, sites in the order given.

    Raises
    ------
    ValueError
        A number is out of range, or dimension or covariates do not match the observations.
    NotPositiveDefiniteError
        A covariance matrix is not positive definite in floating point.

    Notes
    -----
    Conditioning by kriging (Journel and Huijbregts 1978): a draw without data at observations and sites together has kriging
    errors of the right covariance, which are added to the kriging mean of the data. ``t + K z - K z*``, where ``t`` and ``z*``
    are that draw at sites and observations and ``K`` the kriging weights. One factorization of order ``n + m``, one of order
    ``n``, and ``8 (n + m)`` bytes a draw.
    """
    check_is_observations(observations)
    check_target(target)
    check_numbers(draws, jitter)
    places, design = match_sites(observations, sites, covariates)
    errors = new_errors(error_variances, len(places), target)
    check_observations(observations, model)
    together = np.vstack([observations.coordinates, places])
    rows = Rows(np.arange(len(together)), "row", "(counted from zero, the observations first, then the sites)")
    simulated = _draw(
        _with_error(model, target, jitter), together, draws, normals(seed, 0), settings=settings, progress=progress, rows=rows
    )
    data, field = simulated[:, : observations.n], simulated[:, observations.n :]
    if target == "field" and model.nugget > 0:
        data += math.sqrt(model.nugget) * normals(seed, 1)(draws, observations.n)
    if observations.error_variances is not None:
        data += np.sqrt(observations.error_variances) * normals(seed, 2)(draws, observations.n)
    with kriging(observations, model, coefficients=coefficients, settings=settings, progress=progress) as kriged:
        field += kriged.predict_mean(places, covariates=covariates)
        # in blocks of draws: the draws at the observations, what is solved for them, and two copies on the way
        step = max(1, BATCH_BYTES // (4 * 8 * observations.n))
        for start in range(0, draws, step):
            field[start : start + step] -= _krige(kriged, places, design, data[start : start + step])
    return _add_errors(field, errors, seed)


def _draw(
    model: AbstractCovariance,
    sites: NDArray[np.float64],
    draws: int,
    normals: Normals,
    *,
    settings: FactorSettings | None,
    progress: FactorProgress | None,
    rows: Rows | None = None,
) -> NDArray[np.float64]:
    """``(draws, m)`` products ``L e`` for the covariance matrix of ``model``, nugget included, sites in the order given."""
    order = morton_order(sites)
    back = inverse_permutation(order)
    correlation = correlation_of(model)
    field = np.empty((draws, len(sites)))
    # normals, their row-major copy and the product
    step = max(1, BATCH_BYTES // (3 * 8 * len(sites)))
    rows = (counted_rows(len(sites), "site") if rows is None else rows).take(order)
    how = chosen_settings(settings)
    with factored(correlation, sites[order], how, rows=rows, is_solved_with=False, progress=progress) as factor:
        for start in range(0, draws, step):
            block = field[start : start + step]
            block[...] = factor.matmul(normals(len(block), len(sites)).T)[back].T
    field *= math.sqrt(model.variance)
    return field


def _krige(
    kriged: Kriging, sites: NDArray[np.float64], design: NDArray[np.float64], data: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``(draws, m)`` kriging means of other data, ``(draws, n)`` in the caller's order; a known mean counts as zero."""
    coefficients, dual = dual_of(kriged, data)
    mean = design[:, : len(coefficients)] @ coefficients
    for batch in kriged.batches(len(sites)):
        mean[batch] += kriged.correlations(sites[batch]).T @ dual
    return np.asarray(mean.T)


def dual_of(kriged: Kriging, data: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients of the mean, ``(k, draws)``, and ``inv(R) (z - X b)``, ``(n, draws)`` in the order of the factor."""
    white = kriged.whitened
    whitened = kriged.factor.half_solve(data[:, kriged.order].T)
    # inv(X' inv(R) X) X' inv(R) z for each draw
    coefficients = solve_triangular(white.root, solve_triangular(white.root, white.design.T @ whitened, trans="T"))
    dual = kriged.factor.half_solve(whitened - white.design @ coefficients, transposed=True)
    return np.asarray(coefficients), dual


def _add_errors(field: NDArray[np.float64], errors: NDArray[np.float64] | float, seed: int) -> NDArray[np.float64]:
    """Draws with the known errors of new observations."""
    return field + np.sqrt(errors) * normals(seed, 3)(*field.shape) if np.any(errors) else field


def _with_error(model: AbstractCovariance, target: Target, jitter: float) -> AbstractCovariance:
    """The model whose nugget is the error of what is simulated."""
    check_model(model)
    least = jitter * model.variance
    return model.with_values(nugget=max(model.nugget, least) if target == "observation" else least)


def normals(seed: int, stream: int) -> Normals:
    """Standard normals, ``draws`` rows of ``n`` at a time; each stream of a seed has its own."""
    generator = np.random.default_rng([seed, stream])
    return lambda draws, n: generator.standard_normal((draws, n))


def checked_mean(mean: ArrayLike, count: int, places: str) -> NDArray[np.float64]:
    """One mean for all sites or nodes, as ``places`` says, or one for each, in a new array."""
    level = tb.plain_array("mean", mean, np.float64, copy=True)
    if level.shape not in ((), (count,)) or not np.isfinite(level).all():
        raise ValueError(f"mean has shape {level.shape}, but one finite number, or one for each of {count} {places}, is needed")
    return level


def check_numbers(draws: int, jitter: float) -> None:
    """Raise ``ValueError`` for numbers out of range."""
    if draws < 1:
        raise ValueError(f"{draws} draws are asked for, but at least one is needed")
    if not (math.isfinite(jitter) and jitter >= 0):
        raise ValueError(f"jitter is {jitter}, but it must be finite, and zero or positive")
