"""A field between the nodes of a grid, drawn given the draw at the nodes about each site and at the sites before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.grids import Grid
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import coarse_to_fine_order, nearest_earlier
from ooc_chol.apps.geostat.kriging.circulant import lattice_steps

#: Nodes along each axis that a site is drawn given, by the number of axes, and earlier sites.
_WIDTHS = {1: 12, 2: 8, 3: 4}
_EARLIER = 16

#: Matrices that are solved at once, in entries.
_STACK_ENTRIES = 2**21

_Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OffLattice:
    """Sites off a grid, with the weights by which a draw at nodes and earlier sites says the mean there."""

    order: NDArray[np.intp]  #: (q,) the sites in the order in which they are drawn
    nodes: NDArray[np.intp]  #: (q, w) points of the grid about each of them
    earlier: NDArray[np.intp]  #: (q, m) places in ``order`` of earlier ones; 0 with weight zero where there are fewer
    weights: _Array  #: (q, w + m) of nodes and earlier sites
    deviation: _Array  #: (q,) standard deviation about that mean

    @property
    def count(self) -> int:
        """Number of sites."""
        return len(self.order)

    def drawn(self, draw: _Array, normals: _Array) -> _Array:
        """The field at the sites, given a draw at the nodes, shape ``(q,)``."""
        width = self.nodes.shape[1]
        values = np.einsum("qw,qw->q", self.weights[:, :width], draw[self.nodes]) + self.deviation * normals
        for k in range(1, len(values)):
            values[k] += self.weights[k, width:] @ values[self.earlier[k]]
        field = np.empty_like(values)
        field[self.order] = values
        return np.asarray(field)


def off_lattice(model: AbstractCovariance, grid: Grid, sites: _Array, least: float) -> OffLattice:
    """Find for sites off a grid which nodes and earlier sites each is drawn given, and with which weights."""
    comparable = model.comparable_sites(sites)
    order = coarse_to_fine_order(comparable)
    earlier = nearest_earlier(comparable[order], min(_EARLIER, max(len(sites) - 1, 1)))
    nodes = _about(grid, sites[order])
    places = sites[order]
    count = nodes.shape[1] + earlier.shape[1]
    weights, variance = np.empty((len(sites), count)), np.empty(len(sites))
    step = max(1, _STACK_ENTRIES // count**2)
    points = grid.points(0, grid.size)
    for start in range(0, len(sites), step):
        part = slice(start, start + step)
        given = np.concatenate([points[nodes[part]], places[earlier[part]]], axis=1)
        missing = np.concatenate([np.zeros(nodes[part].shape, dtype=np.bool_), earlier[part] < 0], axis=1)
        weights[part], variance[part] = _conditional(model, given, places[part], missing, least)
    return OffLattice(order, nodes, np.maximum(earlier, 0), weights, np.sqrt(variance))


def _conditional(
    model: AbstractCovariance, given: _Array, places: _Array, missing: NDArray[np.bool_], least: float
) -> tuple[_Array, _Array]:
    """Weights of what is given, and the variance that is left, of a stack of sites."""
    a, b = np.ascontiguousarray(np.moveaxis(given, -1, 0)), np.ascontiguousarray(places.T[:, :, np.newaxis])
    count = given.shape[1]
    matrices, right = np.empty((len(places), count, count)), np.empty((len(places), count, 1))
    model.fill(a, a, matrices)
    model.fill(a, b, right)
    own = np.arange(count)
    matrices[:, own, own] += least
    # what is missing is independent of everything
    matrices[missing[:, :, np.newaxis] | missing[:, np.newaxis, :]] = 0.0
    matrices[:, own, own] += np.where(missing, 1.0, 0.0)
    right[missing] = 0.0
    weights = np.linalg.solve(matrices, right)[..., 0]
    left = model.site_variances(places) + least - np.einsum("qk,qk->q", weights, right[..., 0])
    return np.asarray(weights, dtype=np.float64), np.asarray(np.maximum(left, 0.0))


def _about(grid: Grid, sites: _Array) -> NDArray[np.intp]:
    """Points of a grid about each site, those of the border where it is outside, shape ``(q, w)``."""
    chosen = []
    for axis, step, column in zip(grid.axes, lattice_steps(grid), sites.T, strict=True):
        width = min(_WIDTHS.get(len(grid.axes), 4), len(axis))
        first = np.floor((column - axis[0]) / step).astype(np.intp) - (width // 2 - 1)
        chosen.append(np.clip(first, 0, len(axis) - width)[:, np.newaxis] + np.arange(width))
    found: NDArray[np.intp] = chosen[-1]
    for indices, axis in zip(reversed(chosen[:-1]), reversed(grid.axes[:-1]), strict=True):
        found = (found[:, :, np.newaxis] * len(axis) + indices[:, np.newaxis, :]).reshape(len(sites), -1)
    return found
