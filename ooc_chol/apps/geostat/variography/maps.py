"""Variogram maps: semivariances by the vector between two sites, which show directions of longest and shortest correlation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.extents import search_extent
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations, least_squares_residuals
from ooc_chol.apps.geostat.variography.empirical import LONGEST_SHARE, MAX_PAIRS
from ooc_chol.apps.geostat.variography.pairs import drawn_origins, near_pairs

#: Cells to either side of the middle one, when no width is given.
_CELLS = 10


@dataclass(frozen=True, eq=False)
class VariogramMap:
    """Semivariances by lag vector, point-symmetric about the middle.

    Parameters
    ----------
    lags : (k,) array
        Middles of the cells along both axes, in the unit of the coordinates: multiples of the width, ascending.
    semivariance : (k, k) array
        Half the mean square difference of the pairs of each cell, the second coordinate of the lag by row; NaN without a pair.
    pairs : (k, k) array of int
        Pairs of each cell. A pair is in two cells, its lag and the opposite one, and in the middle once.
    notes : tuple of str
        Notes for the user: that pairs were drawn.
    """

    lags: NDArray[np.float64]
    semivariance: NDArray[np.float64]
    pairs: NDArray[np.int64]
    notes: tuple[str, ...]

    __repr__ = tb.brief_repr


def variogram_map(
    observations: Observations,
    *,
    longest: float | None = None,
    width: float | None = None,
    max_pairs: int = MAX_PAIRS,
    seed: int = 0,
) -> VariogramMap:
    """Estimate semivariances on a square of lag vectors.

    Parameters
    ----------
    observations : Observations
        The data, at sites with two coordinates; residuals are those of ordinary least squares on the columns of their mean.
    longest : float, optional
        Longest lag along either axis; a third of the diameter of the sites when not given.
    width : float, optional
        Side of a cell; a tenth of ``longest`` when not given.
    max_pairs : int
        Above this number of pairs, about so many are drawn, and said in ``notes``: all pairs of sites chosen at random.
    seed : int
        Seed of the draw.

    Returns
    -------
    VariogramMap
        Lags, semivariances and pairs.

    Raises
    ------
    ValueError
        The sites have not two coordinates, a number is out of bounds, or no two sites are near enough.

    Notes
    -----
    A covariance that is geometrically anisotropic has ellipses for contours, whose long axis points along the direction of the
    longest range. Cells of few pairs say little: look at ``pairs``.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import make_observations
    >>> square = make_observations(
    ...     [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
    ...     [0.0, 0.0, 2.0, 2.0],
    ...     mean="zero",
    ... )
    >>> variogram_map(square, longest=1.0, width=1.0).semivariance
    array([[ 2.,  2.,  2.],
           [ 0., nan,  0.],
           [ 2.,  2.,  2.]])
    """
    check_is_observations(observations)
    if observations.places.shape[1] != 2:
        raise ValueError(f"a variogram map needs two coordinates, but the sites have {observations.places.shape[1]}")
    reach = LONGEST_SHARE * search_extent(observations.places) if longest is None else float(longest)
    step = reach / _CELLS if width is None else float(width)
    if not (math.isfinite(reach) and 0 < step <= reach):
        raise ValueError(f"lags up to {reach:g} in cells of {step:g} are asked for, but 0 < width <= longest is needed")
    half = math.floor(reach / step + 1e-9)
    edge, side = (half + 0.5) * step, 2 * half + 1
    coordinates = observations.places
    residuals = least_squares_residuals(observations.design, observations.values)
    origins = drawn_origins(coordinates, edge, max_pairs, seed, is_box=True)
    counts, sums = np.zeros(side * side, dtype=np.int64), np.zeros(side * side)
    for i, j, _ in near_pairs(coordinates, edge, origins=origins, is_box=True):
        cell = np.clip(np.rint((coordinates[i] - coordinates[j]) / step).astype(np.intp), -half, half) + half
        place = cell[:, 1] * side + cell[:, 0]
        counts += np.bincount(place, minlength=side * side)
        sums += np.bincount(place, weights=np.square(residuals[i] - residuals[j]), minlength=side * side)
    if not counts.any():
        raise ValueError(f"no two of {observations.n} sites are within {edge:g} along both axes; give a larger distance")
    # the opposite of cell k is cell side**2 - 1 - k; the middle is its own
    both, total = counts + counts[::-1], sums + sums[::-1]
    both[side * side // 2] //= 2
    total[side * side // 2] /= 2
    with np.errstate(invalid="ignore", divide="ignore"):
        semivariance = 0.5 * total / both
    notes = () if origins is None else (f"the map is of all pairs of {len(origins)} random sites (seed {seed})",)
    lags = np.asarray(step * np.arange(-half, half + 1), dtype=np.float64)
    return VariogramMap(lags, semivariance.reshape(side, side), both.reshape(side, side), notes)
