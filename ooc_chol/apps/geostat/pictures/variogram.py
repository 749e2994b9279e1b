"""Semivariograms of a model, and the envelope that simulations of it give."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.nested import covariance_by_distance
from ooc_chol.apps.geostat.covariances.planar import directional_covariance, is_directional
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations, least_squares_residuals
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of
from ooc_chol.apps.geostat.factorization import FactorSettings, chosen_settings, factored
from ooc_chol.apps.geostat.variography.empirical import Variogram, semivariances, sum_bins


@dataclass(frozen=True, eq=False)
class Envelope:
    """Pointwise quantiles of the empirical semivariograms of simulated data.

    Parameters
    ----------
    distance, lower, median, upper : (k,) arrays
        At the distances of the :class:`Variogram` it was made for.
    level : float
        Probability between ``lower`` and ``upper`` at each distance by itself; a whole curve leaves them more often.
    simulations : int
        Number of simulated fields.
    """

    distance: NDArray[np.float64]
    lower: NDArray[np.float64]
    median: NDArray[np.float64]
    upper: NDArray[np.float64]
    level: float
    simulations: int

    __repr__ = tb.brief_repr


def model_variogram(model: AbstractCovariance, distance: ArrayLike, *, azimuth: float | None = None) -> NDArray[np.float64]:
    """Semivariogram of a model, ``nugget + variance - C(h)`` for ``h > 0`` and 0 at ``h = 0``.

    Parameters
    ----------
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    distance : array
        Distances of any shape, in the unit of the model's range.
    azimuth : float, optional
        Direction in degrees clockwise from the second axis (from north), which a covariance function of the plane that depends on
        it needs.

    Returns
    -------
    array
        The semivariances, in the shape of ``distance``.

    Raises
    ------
    ValueError
        The covariance function is none of Euclidean distance alone: it has no semivariogram without a direction, or without a
        time lag or a pair of variables, which this function does not take.
    """
    if azimuth is not None or is_directional(model):
        return _directional(model, distance, azimuth)
    covariance = covariance_by_distance(model)
    if covariance is None:
        raise ValueError(
            f"a {type(model).__name__} is no function of distance alone, so it has no one semivariogram; Matern, "
            "PowerExponential and sums of these have one"
        )
    h = tb.plain_array("distance", distance, np.float64)
    return np.where(h > 0, model.sill - covariance(h), 0.0)


def _directional(model: AbstractCovariance, distance: ArrayLike, azimuth: float | None) -> NDArray[np.float64]:
    """Semivariogram along a direction."""
    if azimuth is None:
        raise ValueError(f"a {type(model).__name__} has a semivariogram for each direction: give azimuth, in degrees from north")
    h = tb.plain_array("distance", distance, np.float64)
    return np.where(h > 0, model.sill - directional_covariance(model, h, azimuth), 0.0)


def variogram_envelope(
    observations: Observations,
    model: AbstractCovariance,
    variogram: Variogram,
    *,
    simulations: int = 99,
    level: float = 0.95,
    seed: int = 0,
    settings: FactorSettings | None = None,
) -> Envelope:
    """Simulate the model at the sites and estimate the same semivariogram from each simulation.

    Parameters
    ----------
    observations : Observations
        The data that ``variogram`` was estimated from.
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    variogram : Variogram
        Its sites, bins, estimator and direction are used.
    simulations : int
        Number of simulated fields, at least 19.
    level : float
        Probability at each distance.
    seed : int
        Seed of the simulations.
    settings : FactorSettings, optional
        Tile size, devices, memory budgets and store of the factorization; chosen by the library when not given.

    Returns
    -------
    Envelope
        Quantiles at every distance.

    Raises
    ------
    ValueError
        There are too few simulations, or ``level`` is not between 0 and 1.
    NotPositiveDefiniteError
        The covariance matrix is not positive definite in floating point.

    Notes
    -----
    Cost one factorization of the order of the sites used, and as many passes over their pairs as there are simulations. From each
    simulation the same mean is estimated and taken away as from the data, which bends long distances down in both.
    """
    check_is_observations(observations)
    if simulations < 19:
        raise ValueError(f"{simulations} simulations say nothing about quantiles; ask for 19 or more")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, but a probability between 0 and 1 is needed")
    used = observations.take(variogram.sites)
    normal = np.random.default_rng(seed).normal(size=(used.n, simulations))
    correlation = correlation_of(model)
    how, noise = chosen_settings(settings), used.scaled_errors(model.variance)
    with factored(correlation, used.coordinates, how, noise=noise, rows=used.named_rows, is_solved_with=False) as factor:
        simulated = math.sqrt(model.variance) * np.asarray(factor.matmul(normal))
    sums = sum_bins(
        used.places,
        least_squares_residuals(used.design, simulated),
        variogram.edges,
        estimator=variogram.estimator,
        direction=variogram.direction,
        origins=variogram.origins,
    )
    some = sums.pairs > 0
    values = semivariances(sums.moment[some], sums.pairs[some], variogram.estimator)
    lower, median, upper = np.quantile(values, [0.5 - level / 2, 0.5, 0.5 + level / 2], axis=1)
    return Envelope(variogram.distance, lower, median, upper, level, simulations)
