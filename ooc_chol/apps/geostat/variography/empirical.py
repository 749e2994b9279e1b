"""Empirical semivariograms: Matheron's and the robust one of Cressie and Hawkins, of all pairs, of directions, of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.extents import search_extent
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations, least_squares_residuals
from ooc_chol.apps.geostat.variography.pairs import Direction as Direction
from ooc_chol.apps.geostat.variography.pairs import drawn_origins, near_pairs

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

#: Pairs above which some are drawn: they take about a second for each ten millions.
MAX_PAIRS = 20_000_000


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
        Notes for the user: that a subsample was taken.
    origins : (k,) array of int or None
        Places in ``sites`` one of which every pair has, where pairs were drawn; None for all pairs.
    """

    distance: NDArray[np.float64]
    semivariance: NDArray[np.float64]
    pairs: NDArray[np.int64]
    edges: NDArray[np.float64]
    estimator: Estimator
    direction: Direction | None
    sites: NDArray[np.intp]
    notes: tuple[str, ...]
    origins: NDArray[np.intp] | None = None

    __repr__ = tb.brief_repr


def empirical_variogram(
    observations: Observations,
    *,
    estimator: Estimator = "matheron",
    bins: int | None = None,
    longest: float | None = None,
    width: float | None = None,
    direction: Direction | None = None,
    max_sites: int | None = MAX_SITES,
    max_pairs: int = MAX_PAIRS,
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
    width : float, optional
        Width of the bins in place of their number; the last one may be narrower.
    direction : Direction, optional
        Count only pairs that point this way; needs two coordinates.
    max_sites : int or None
        Above this number of sites, a random subsample of so many is taken, and said in ``notes``; None takes all sites.
    max_pairs : int
        Above this number of pairs, about so many are drawn, and said in ``notes``: all pairs of sites chosen at random.
    seed : int
        Seed of the subsample and of the pairs.

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
    Pairs come from a tree, a million at a time: some 0.1 microseconds each,
    whatever the number of sites. Cressie and Hawkins (1980) for the robust estimator,
    ``(mean |d|**(1/2))**4 / (0.457 + 0.494 / N + 0.045 / N**2) / 2``. With longitude and latitude the coordinates are those of
    :func:`chordal_coordinates`, so distances are chords.

    Examples
    --------
    >>> from ooc_chol.apps.geostat.data.observations import make_observations
    >>> line = make_observations(
    ...     [0.0, 1.0, 2.0, 3.0], [1.0, -1.0, 1.0, -1.0], mean="zero"
    ... )
    >>> empirical_variogram(line, bins=3, longest=3.0).semivariance
    array([2., 0., 2.])
    """
    check_is_observations(observations)
    _check(observations, estimator, bins, direction)
    chosen = _chosen(observations, longest, max_sites=max_sites, max_pairs=max_pairs, seed=seed)
    edges = _edges(chosen, direction, bins=bins, width=width)
    residuals = least_squares_residuals(observations.design, observations.values[:, np.newaxis])[chosen.sites]
    sums = sum_bins(chosen.coordinates, residuals, edges, estimator=estimator, direction=direction, origins=chosen.origins)
    some = sums.pairs > 0
    if not some.any():
        raise ValueError(f"no two of {len(chosen.sites)} sites are within {chosen.reach:g} of each other; give a larger distance")
    return Variogram(
        distance=sums.distance[some] / sums.pairs[some],
        semivariance=semivariances(sums.moment[some], sums.pairs[some], estimator)[:, 0],
        pairs=sums.pairs[some],
        edges=edges,
        estimator=estimator,
        direction=direction,
        sites=chosen.sites,
        notes=chosen.notes,
        origins=chosen.origins,
    )


def directional_variograms(
    observations: Observations,
    azimuths: Sequence[float],
    *,
    tolerance: float = 22.5,
    estimator: Estimator = "matheron",
    bins: int | None = None,
    longest: float | None = None,
    width: float | None = None,
    max_sites: int | None = MAX_SITES,
    max_pairs: int = MAX_PAIRS,
    seed: int = 0,
) -> tuple[Variogram, ...]:
    """Estimate a semivariogram for each of several directions, with one set of bins.

    Parameters
    ----------
    observations : Observations
        The data, at sites with two coordinates.
    azimuths : sequence of float
        Degrees clockwise from the second axis (from north); opposite directions are one.
    tolerance : float
        Degrees to either side of each, at most 90.
    estimator : {"matheron", "cressie"}
        Half the mean square of differences, or the robust one.
    bins : int, optional
        Number of bins; when not given, that of the semivariogram of all pairs.
    longest, width : float, optional
        Longest distance and width of the bins, as for :func:`empirical_variogram`.
    max_sites, max_pairs : int
        Sizes above which sites and pairs are drawn, as for :func:`empirical_variogram`.
    seed : int
        Seed of what is drawn.

    Returns
    -------
    tuple of Variogram
        One for each azimuth, in their order.

    Raises
    ------
    ValueError
        There is no azimuth, or as for :func:`empirical_variogram`.
    """
    check_is_observations(observations)
    if not len(azimuths):
        raise ValueError("no azimuth is given, but at least one direction is needed")
    ways = [Direction(azimuth, tolerance) for azimuth in azimuths]
    if bins is None and width is None:
        chosen = _chosen(observations, longest, max_sites=max_sites, max_pairs=max_pairs, seed=seed)
        bins = len(_edges(chosen, None)) - 1
    return tuple(
        empirical_variogram(
            observations,
            estimator=estimator,
            bins=bins,
            longest=longest,
            width=width,
            direction=way,
            max_sites=max_sites,
            max_pairs=max_pairs,
            seed=seed,
        )
        for way in ways
    )


class _Chosen(NamedTuple):
    """Input of a semivariogram: sites, their coordinates, the longest distance, the origins of drawn pairs, and notes."""

    sites: NDArray[np.intp]
    coordinates: NDArray[np.float64]
    reach: float
    origins: NDArray[np.intp] | None
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class BinSums:
    """Sums over the pairs of each bin: how many, their distances, and a function of their differences for every field."""

    pairs: NDArray[np.int64]
    distance: NDArray[np.float64]
    moment: NDArray[np.float64]


def _check(observations: Observations, estimator: str, bins: int | None, direction: Direction | None) -> None:
    if estimator not in ("matheron", "cressie"):
        raise ValueError(f"estimator is {estimator!r}, but there are 'matheron' and 'cressie'")
    if bins is not None and bins < 1:
        raise ValueError(f"{bins} bins are asked for, but at least one is needed")
    if direction is not None and observations.places.shape[1] != 2:
        raise ValueError(f"a direction needs two coordinates, but the sites have {observations.places.shape[1]}")


def _subsample(n: int, most: int | None, seed: int) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Indices of at most ``most`` sites, ascending, and a note when they are not all."""
    if most is not None and most < 2:
        raise ValueError(f"max_sites is {most}, but at least two sites make a pair")
    if most is None or n <= most:
        return np.arange(n), ()
    chosen = np.sort(np.random.default_rng(seed).choice(n, size=most, replace=False))
    return chosen, (f"the variogram is of a random subsample of {most} of {n} sites (seed {seed})",)


def _chosen(observations: Observations, longest: float | None, *, max_sites: int | None, max_pairs: int, seed: int) -> _Chosen:
    """Sites and pairs that count, drawn where there are too many."""
    sites, notes = _subsample(observations.n, max_sites, seed)
    coordinates = observations.places[sites]
    reach = LONGEST_SHARE * search_extent(observations.places) if longest is None else float(longest)
    if not (math.isfinite(reach) and reach > 0):
        raise ValueError(
            f"pairs up to a distance of {reach} are asked for, but it must be finite and positive (all at one place?)"
        )
    origins = drawn_origins(coordinates, reach, max_pairs, seed)
    if origins is not None:
        share = 100 * (1 - (1 - len(origins) / len(sites)) ** 2)
        notes += (f"the variogram is of {share:.2g} % of the pairs: all those of {len(origins)} random sites (seed {seed})",)
    return _Chosen(sites, coordinates, reach, origins, notes)


def sum_bins(
    coordinates: NDArray[np.float64],
    fields: NDArray[np.float64],
    edges: NDArray[np.float64],
    *,
    estimator: Estimator,
    direction: Direction | None,
    origins: NDArray[np.intp] | None = None,
) -> BinSums:
    """Sums over the pairs of each bin for every column of ``fields``."""
    count = len(edges) - 1
    pairs, lengths, moment = np.zeros(count, dtype=np.int64), np.zeros(count), np.zeros((count, fields.shape[1]))
    columns = np.ascontiguousarray(fields.T)
    for i, j, distance in near_pairs(coordinates, float(edges[-1]), direction=direction, origins=origins):
        # edges[place] < distance <= edges[place + 1]; two sites at one place are in the first bin
        place = np.clip(np.searchsorted(edges, distance, side="left") - 1, 0, count - 1)
        pairs += np.bincount(place, minlength=count)
        lengths += np.bincount(place, weights=distance, minlength=count)
        for column, field in enumerate(columns):
            difference = field[i] - field[j]
            power = np.square(difference) if estimator == "matheron" else np.sqrt(np.abs(difference))
            moment[:, column] += np.bincount(place, weights=power, minlength=count)
    return BinSums(pairs, lengths, moment)


def semivariances(moment: NDArray[np.float64], pairs: NDArray[np.int64], estimator: Estimator) -> NDArray[np.float64]:
    """Semivariances from sums of squares, or of roots."""
    n = pairs[:, np.newaxis].astype(np.float64)
    if estimator == "matheron":
        return np.asarray(0.5 * moment / n)
    return np.asarray(0.5 * (moment / n) ** 4 / (0.457 + 0.494 / n + 0.045 / n**2))


def _edges(
    chosen: _Chosen, direction: Direction | None, *, bins: int | None = None, width: float | None = None
) -> NDArray[np.float64]:
    """Edges of the bins, by their width, or of equal width by their number."""
    reach = chosen.reach
    if width is not None:
        if bins is not None:
            raise ValueError("give the width of the bins or their number, not both")
        if not (math.isfinite(width) and 0 < width <= reach):
            raise ValueError(f"bins of width {width} are asked for, but a width above 0 and up to {reach:g} is needed")
        # a reach that is a multiple but for rounding has no narrow last bin
        return np.append(width * np.arange(math.ceil(reach / width - 1e-9)), reach)
    if bins is None:
        pairs = near_pairs(chosen.coordinates, reach, direction=direction, origins=chosen.origins)
        most = _BINS * _PAIRS_PER_BIN
        total = 0
        for _, _, distance in pairs:
            total += len(distance)
            if total >= most:
                break
        bins = min(_BINS, max(1, total // _PAIRS_PER_BIN))
    return np.linspace(0.0, reach, bins + 1)
