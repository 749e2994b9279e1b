"""Block kriging: means of the field over rectangles and polygons, by points in each with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.observations import as_sites
from ooc_chol.apps.geostat.kriging.kriged import Kriging
from ooc_chol.apps.geostat.kriging.predicted import Prediction

#: Bytes of covariances that one batch of blocks may take.
_BATCH_BYTES = 96 * 2**20

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks as points with weights; made by :func:`rectangular_blocks` and :func:`polygon_blocks`.

    Parameters
    ----------
    points : (m, q, d) array
        Points in each of m blocks, as many in each; those of weight zero do not count.
    weights : (m, q) array
        Their weights in the mean over the block, of sum one.
    """

    points: Array
    weights: Array

    __repr__ = tb.brief_repr

    @property
    def size(self) -> int:
        """Number of blocks."""
        return len(self.points)


def rectangular_blocks(centres: ArrayLike, sides: Sequence[float], *, points: int = 4) -> Blocks:
    """Rectangles, or boxes, of one size about their centres, by Gauss-Legendre points as in gstat.

    Parameters
    ----------
    centres : (m, d) array
        Middles of the blocks, in the unit of the observations.
    sides : sequence of float
        Length along each of the d axes, positive.
    points : int
        Points along each axis: 4 by 4 in the plane.

    Returns
    -------
    Blocks
        With ``points**d`` points each.

    Raises
    ------
    ValueError
        There is not one positive length for each axis, or no point.

    Examples
    --------
    >>> rectangular_blocks([[0.0, 0.0]], (2.0, 1.0), points=1).points.tolist()
    [[[0.0, 0.0]]]
    """
    middles = as_sites(centres)
    lengths = tb.plain_array("sides", sides, np.float64)
    if lengths.shape != (middles.shape[1],) or not np.all(np.isfinite(lengths) & (lengths > 0)):
        raise ValueError(f"sides {lengths.tolist()} of blocks: one positive length for each of {middles.shape[1]} axes is needed")
    if points < 1:
        raise ValueError(f"blocks of {points} points along each axis are asked for, but at least one is needed")
    nodes, weights = np.polynomial.legendre.leggauss(points)
    offsets = np.stack(np.meshgrid(*(0.5 * length * nodes for length in lengths), indexing="ij"), axis=-1)
    shares = np.ones(1)
    for _ in lengths:
        shares = np.outer(shares, 0.5 * weights).ravel()
    return Blocks(middles[:, np.newaxis, :] + offsets.reshape(-1, len(lengths)), np.tile(shares, (len(middles), 1)))


def polygon_blocks(polygons: Sequence[Any], *, points: int = 64) -> Blocks:
    """Polygons of any shape, by a regular lattice in each.

    Parameters
    ----------
    polygons : sequence of polygon or (k, 2) array
        Polygons and multipolygons of Shapely, such as ``frame.geometry`` of GeoPandas, or corners in their order; in the
        coordinates of the observations.
    points : int
        Points in each polygon, about: its area over them is the square of the lattice's step.

    Returns
    -------
    Blocks
        With equal weights within each polygon; a polygon between all nodes of its lattice is one point within it.

    Raises
    ------
    ValueError
        A polygon is empty, or there is none, or no point.
    MissingExtraError
        Shapely is not installed.
    """
    if points < 1 or not len(polygons):
        raise ValueError(f"{len(polygons)} polygons with {points} points each are given, but at least one of each is needed")
    shapely = imported("shapely", "polygons are read")
    inside = [_lattice_in(shapely, k, polygon, points) for k, polygon in enumerate(polygons)]
    most = max(map(len, inside))
    places, weights = np.empty((len(inside), most, 2)), np.zeros((len(inside), most))
    for place, weight, found in zip(places, weights, inside, strict=True):
        place[: len(found)], place[len(found) :] = found, found[0]
        weight[: len(found)] = 1.0 / len(found)
    return Blocks(places, weights)


def predict_block_means(kriged: Kriging, blocks: Blocks, *, covariates: ArrayLike | None = None) -> Prediction:
    """Predict the mean of the field over each block: block kriging.

    Parameters
    ----------
    kriged : Kriging
        A factored data set, see :func:`~ooc_chol.apps.geostat.kriging`.
    blocks : Blocks
        Rectangles or polygons.
    covariates : (m, q, c) array, optional
        Covariates of the mean at ``blocks.points``; needed where the observations have some.

    Returns
    -------
    Prediction
        Means of the field: over a block errors of single observations, the nugget, average out.

    Raises
    ------
    ValueError
        Dimension or covariates do not match the observations.

    Notes
    -----
    Covariances with a block are means over its points, its own variance the mean over all pairs of them. ``n**2`` flops a block
    besides ``q`` covariances with each observation. Journel and Huijbregts (1978), V.A.2. Means of transformed values are no
    transforms of means: for logarithms average draws that are taken back.

    Examples
    --------
    >>> from ooc_chol.apps import geostat
    >>> sites = np.random.default_rng(0).uniform(size=(60, 2))
    >>> observations = geostat.make_observations(sites, sites.sum(axis=1))
    >>> with geostat.kriging(
    ...     observations, geostat.Matern(1.0, 0.5, 1.5)
    ... ) as kriged:
    ...     block = predict_block_means(
    ...         kriged, rectangular_blocks([[0.5, 0.5]], (0.4, 0.4))
    ...     )
    >>> bool(abs(block.mean[0] - 1.0) < 0.01)
    True
    """
    count, q, _ = blocks.points.shape
    given = None if covariates is None else _by_point(tb.plain_array("covariates", covariates, np.float64), count, q)
    places, design = kriged.check(blocks.points.reshape(count * q, -1), given)
    # the mean over a block of each column of the mean
    columns = np.einsum("mqp,mq->mp", design.reshape(count, q, -1), blocks.weights)
    mean, variance, lagrange = columns @ kriged.coefficients, np.empty(count), np.empty(count)
    own = _own_variances(kriged.model, blocks)
    step = max(1, _BATCH_BYTES // (8 * kriged.observations.n * q))
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        joint = kriged.correlations(places[start * q : part.stop * q]).reshape(kriged.observations.n, -1, q)
        white = kriged.factor.half_solve(np.einsum("nmq,mq->nm", joint, blocks.weights[part]))
        mean[part] += white.T @ kriged.whitened.residual
        unknown = columns[part, : kriged.whitened.design.shape[1]]
        root = kriged.whitened.root
        trend = solve_triangular(root, (unknown - white.T @ kriged.whitened.design).T, trans="T")
        variance[part] = np.maximum(own[part] - np.sum(white**2, axis=0), 0.0) + np.sum(trend**2, axis=0)
        lagrange[part] = np.sum(solve_triangular(root, unknown.T, trans="T") * trend, axis=0)
    return Prediction(mean, kriged.model.variance * variance, "field", kriged.model.variance * lagrange)


def _by_point(covariates: Array, count: int, q: int) -> Array:
    """Covariates at the points of all blocks, one block after the other."""
    if covariates.ndim != 3 or covariates.shape[:2] != (count, q):
        raise ValueError(
            f"covariates have shape {covariates.shape}, but ({count}, {q}, c) is needed: c at each of {q} points of each block"
        )
    return covariates.reshape(count * q, -1)


def _own_variances(model: AbstractCovariance, blocks: Blocks) -> Array:
    """Variance of the mean over each block, over that of the model, shape ``(m,)``."""
    count, q, _ = blocks.points.shape
    found = np.empty(count)
    step = max(1, _BATCH_BYTES // (8 * q * q))
    for start in range(0, count, step):
        part = slice(start, start + step)
        axes = np.ascontiguousarray(np.moveaxis(blocks.points[part], -1, 0))
        matrices = np.empty((axes.shape[1], q, q))
        model.fill(axes, axes, matrices)
        found[part] = np.einsum("mi,mij,mj->m", blocks.weights[part], matrices, blocks.weights[part])
    return found / model.variance


def _lattice_in(shapely: Any, k: int, polygon: Any, points: int) -> Array:
    """Nodes of a lattice that lie in a polygon, or one point that does."""
    shape = polygon if hasattr(polygon, "geom_type") else shapely.Polygon(tb.plain_array("polygon", polygon, np.float64))
    if shape.is_empty or not shape.area > 0:
        raise ValueError(f"polygon {k} (counted from zero) is empty or has no area")
    x0, y0, x1, y1 = shape.bounds
    step = float(np.sqrt(shape.area / points))
    axes = [low + 0.5 * (length - step * (n - 1)) + step * np.arange(n) for low, length, n in _counts(x0, y0, x1, y1, step)]
    x, y = (axis.ravel() for axis in np.meshgrid(*axes))
    inside = shapely.contains_xy(shape, x, y)
    if inside.any():
        return np.column_stack([x[inside], y[inside]])
    middle = shape.representative_point()
    return np.array([[middle.x, middle.y]])


def _counts(x0: float, y0: float, x1: float, y1: float, step: float) -> list[tuple[float, float, int]]:
    """Least coordinate, length and number of lattice nodes along both axes of a box."""
    return [(low, high - low, max(1, round((high - low) / step))) for low, high in ((x0, x1), (y0, y1))]
