"""Semivariograms: of data (Matheron, Cressie and Hawkins), of a model, and the envelope that simulations of a model give."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.nested import covariance_by_distance
from ooc_chol.apps.geostat.data.observations import Observations, least_squares_residuals
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of
from ooc_chol.apps.geostat.factorization import FactorSettings, factored

#: ``"matheron"``: half the mean square difference; ``"cressie"``: by the mean root of absolute differences, which few wild values
#: hardly move.
Estimator = Literal["matheron", "cressie"]

#: Sites above which a random subsample is taken: the cost grows with their square.
MAX_SITES = 4000

#: Share of the diameter of the sites up to which pairs count: beyond, few places far out speak for all.
LONGEST_SHARE = 1 / 3

#: Bins at most, and pairs that a bin should have on average (Journel and Huijbregts).
_BINS = 15
_PAIRS_PER_BIN = 30

#: Pairs held at once.
_CHUNK_PAIRS = 2**20


@dataclass(frozen=True)
class Direction:
    """Pairs that count by where they point.

    Parameters
    ----------
    azimuth : float
        Degrees clockwise from the second axis (from north), opposite directions being one.
    tolerance : float
        Degrees to either side, at most 90: then every pair counts.
    """

    azimuth: float
    tolerance: float = 22.5

    __repr__ = oc.brief_repr

    def __post_init__(self) -> None:
        if not math.isfinite(self.azimuth) or not 0 < self.tolerance <= 90:
            raise ValueError(f"azimuth {self.azimuth} and tolerance {self.tolerance}: a finite angle and one in (0, 90] needed")

    def selects(self, steps: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which ``(m, 2)`` steps from site to site point this way; those of length zero point every way."""
        angle = np.radians(self.azimuth)
        along = np.abs(steps @ np.array([math.sin(angle), math.cos(angle)]))
        bound = math.cos(math.radians(self.tolerance)) * np.hypot(steps[:, 0], steps[:, 1])
        # a pair on the bound counts, whatever its rounding
        return np.asarray(along >= bound * (1 - 1e-12))


@dataclass(frozen=True, eq=False)
class Variogram:
    """An empirical semivariogram; bins without a pair are left out.

    Parameters
    ----------
    distance : (k,) array
        Mean distance of the pairs in each bin, in the unit of the coordinates.
    semivariance : (k,) array
        Semivariance of each bin, in squared units of the values.
    pairs : (k,) array of int
        Number of pairs, each counted once.
    edges : (b + 1,) array
        Edges of all bins, empty ones too; a bin holds its upper edge, the first its lower one too.
    estimator : {"matheron", "cressie"}
        Half the mean square of differences, or the robust one of their roots.
    direction : Direction or None
        Direction of the pairs that were counted; None for all pairs.
    sites : (m,) array of int
        Indices of the observations that were used.
    notes : tuple of str
        What a user should hear: that a subsample was taken.
    """

    distance: NDArray[np.float64]
    semivariance: NDArray[np.float64]
    pairs: NDArray[np.int64]
    edges: NDArray[np.float64]
    estimator: Estimator
    direction: Direction | None
    sites: NDArray[np.intp]
    notes: tuple[str, ...]

    __repr__ = oc.brief_repr


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

    __repr__ = oc.brief_repr


def empirical_variogram(
    observations: Observations,
    *,
    estimator: Estimator = "matheron",
    bins: int | None = None,
    longest: float | None = None,
    direction: Direction | None = None,
    max_sites: int = MAX_SITES,
    seed: int = 0,
) -> Variogram:
    """Estimate the semivariogram of the residuals of the mean, ``E (z(x) - z(x + h))**2 / 2``.

    Parameters
    ----------
    observations : Observations
        The data; residuals are those of ordinary least squares on the columns of their mean.
    estimator : {"matheron", "cressie"}
        Half the mean square of differences, or the robust one.
    bins : int, optional
        Number of bins of equal width; when not given, 15, or fewer where that leaves less than 30 pairs a bin on average.
    longest : float, optional
        Distance up to which pairs count; a third of the diameter of the sites when not given.
    direction : Direction, optional
        Count only pairs that point this way; needs two coordinates.
    max_sites : int
        Above this number of sites, a random subsample of so many is taken, and said in ``notes``.
    seed : int
        Seed of the subsample.

    Returns
    -------
    Variogram
        Distances, semivariances and pairs.

    Raises
    ------
    ValueError
        There is no such estimator, a number is out of bounds, ``direction`` is given for other than two coordinates, or no two
        sites are near enough.

    Notes
    -----
    Cost ``m**2`` distances for ``m`` sites. Cressie and Hawkins (1980) for the robust estimator,
    ``(mean |d|**(1/2))**4 / (0.457 + 0.494 / N + 0.045 / N**2) / 2``. With longitude and latitude the coordinates are those of
    :func:`chordal_coordinates`, so distances are chords.

    Examples
    --------
    >>> from ooc_chol.apps.geostat.data.observations import make_observations
    >>> line = make_observations([0.0, 1.0, 2.0, 3.0], [1.0, -1.0, 1.0, -1.0], mean="zero")
    >>> empirical_variogram(line, bins=3, longest=3.0).semivariance
    array([2., 0., 2.])
    """
    _check(observations, estimator, bins, direction)
    sites, notes = _subsample(observations.n, max_sites, seed)
    coordinates = observations.coordinates[sites]
    reach = LONGEST_SHARE * observations.diameter if longest is None else float(longest)
    if not (math.isfinite(reach) and reach > 0):
        raise ValueError(
            f"pairs up to a distance of {reach} are asked for, but it must be finite and positive (all at one place?)"
        )
    total = sum(len(distance) for _, _, distance in _near_pairs(coordinates, reach, direction))
    if total == 0:
        raise ValueError(f"no two of {len(sites)} sites are within {reach:g} of each other; give a larger distance")
    edges = np.linspace(0.0, reach, (bins or min(_BINS, max(1, total // _PAIRS_PER_BIN))) + 1)
    residuals = least_squares_residuals(observations.design, observations.values[:, np.newaxis])[sites]
    sums = _sum_bins(coordinates, residuals, edges, estimator=estimator, direction=direction)
    some = sums.pairs > 0
    return Variogram(
        distance=sums.distance[some] / sums.pairs[some],
        semivariance=_semivariance(sums.moment[some], sums.pairs[some], estimator)[:, 0],
        pairs=sums.pairs[some],
        edges=edges,
        estimator=estimator,
        direction=direction,
        sites=sites,
        notes=notes,
    )


def model_variogram(model: AbstractCovariance, distance: ArrayLike) -> NDArray[np.float64]:
    """Semivariogram of a model, ``nugget + variance - C(h)`` for ``h > 0`` and 0 at ``h = 0``.

    Parameters
    ----------
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    distance : array
        Distances of any shape, in the unit of the model's range.

    Returns
    -------
    array
        The semivariances, in the shape of ``distance``.

    Raises
    ------
    ValueError
        The covariance function is none of Euclidean distance alone: it has no semivariogram without a direction, a time lag or a
        pair of variables.
    """
    covariance = covariance_by_distance(model)
    if covariance is None:
        raise ValueError(
            f"a {type(model).__name__} is no function of distance alone, so it has no one semivariogram; Matern, "
            "PowerExponential and sums of these have one"
        )
    h = np.asarray(distance, dtype=np.float64)
    return np.where(h > 0, model.sill - covariance(h), 0.0)


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
    if simulations < 19:
        raise ValueError(f"{simulations} simulations say nothing about quantiles; ask for 19 or more")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, but a probability between 0 and 1 is needed")
    used = observations.take(variogram.sites)
    coordinates, design = used.coordinates, used.design
    normal = np.random.default_rng(seed).normal(size=(len(coordinates), simulations))
    correlation = correlation_of(model)
    with factored(correlation, coordinates, settings or FactorSettings(), noise=used.scaled_errors(model.variance)) as factor:
        simulated = math.sqrt(model.variance) * np.asarray(factor.matmul(normal))
    sums = _sum_bins(
        coordinates,
        least_squares_residuals(design, simulated),
        variogram.edges,
        estimator=variogram.estimator,
        direction=variogram.direction,
    )
    some = sums.pairs > 0
    values = _semivariance(sums.moment[some], sums.pairs[some], variogram.estimator)
    lower, median, upper = np.quantile(values, [0.5 - level / 2, 0.5, 0.5 + level / 2], axis=1)
    return Envelope(variogram.distance, lower, median, upper, level, simulations)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over the pairs of each bin: how many, their distances, and a function of their differences for every field."""

    pairs: NDArray[np.int64]
    distance: NDArray[np.float64]
    moment: NDArray[np.float64]


def _check(observations: Observations, estimator: str, bins: int | None, direction: Direction | None) -> None:
    if estimator not in ("matheron", "cressie"):
        raise ValueError(f"estimator is {estimator!r}, but there are 'matheron' and 'cressie'")
    if bins is not None and bins < 1:
        raise ValueError(f"{bins} bins are asked for, but at least one is needed")
    if direction is not None and observations.coordinates.shape[1] != 2:
        raise ValueError(f"a direction needs two coordinates, but the sites have {observations.coordinates.shape[1]}")


def _subsample(n: int, most: int, seed: int) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Indices of at most ``most`` sites, ascending, and a note when they are not all."""
    if most < 2:
        raise ValueError(f"max_sites is {most}, but at least two sites make a pair")
    if n <= most:
        return np.arange(n), ()
    chosen = np.sort(np.random.default_rng(seed).choice(n, size=most, replace=False))
    return chosen, (f"the variogram is of a random subsample of {most} of {n} sites (seed {seed})",)


def _near_pairs(
    coordinates: NDArray[np.float64], reach: float, direction: Direction | None
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]]:
    """Pairs ``i > j`` within ``reach``, each once, with their distances; a chunk of rows at a time."""
    n = len(coordinates)
    step = max(1, _CHUNK_PAIRS // n)
    for start in range(1, n, step):
        rows = np.arange(start, min(start + step, n))
        square = np.zeros((len(rows), rows[-1]))
        for axis in coordinates.T:
            square += np.square(np.subtract.outer(axis[rows], axis[: rows[-1]]))
        near = (square <= reach * reach) & (np.arange(rows[-1]) < rows[:, np.newaxis])
        k, j = np.nonzero(near)
        i, distance = rows[k], np.sqrt(square[near])
        if direction is not None:
            kept = direction.selects(coordinates[i] - coordinates[j])
            i, j, distance = i[kept], j[kept], distance[kept]
        yield i, j, distance


def _sum_bins(
    coordinates: NDArray[np.float64],
    fields: NDArray[np.float64],
    edges: NDArray[np.float64],
    *,
    estimator: Estimator,
    direction: Direction | None,
) -> _Sums:
    """Sums over the pairs of each bin for every column of ``fields``."""
    count = len(edges) - 1
    pairs, lengths, moment = np.zeros(count, dtype=np.int64), np.zeros(count), np.zeros((count, fields.shape[1]))
    columns = np.ascontiguousarray(fields.T)
    for i, j, distance in _near_pairs(coordinates, float(edges[-1]), direction):
        # edges[place] < distance <= edges[place + 1]; two sites at one place are in the first bin
        place = np.clip(np.searchsorted(edges, distance, side="left") - 1, 0, count - 1)
        pairs += np.bincount(place, minlength=count)
        lengths += np.bincount(place, weights=distance, minlength=count)
        for column, field in enumerate(columns):
            difference = field[i] - field[j]
            power = np.square(difference) if estimator == "matheron" else np.sqrt(np.abs(difference))
            moment[:, column] += np.bincount(place, weights=power, minlength=count)
    return _Sums(pairs, lengths, moment)


def _semivariance(moment: NDArray[np.float64], pairs: NDArray[np.int64], estimator: Estimator) -> NDArray[np.float64]:
    """Semivariances from sums of squares, or of roots."""
    n = pairs[:, np.newaxis].astype(np.float64)
    if estimator == "matheron":
        return np.asarray(0.5 * moment / n)
    return np.asarray(0.5 * (moment / n) ** 4 / (0.457 + 0.494 / n + 0.045 / n**2))
