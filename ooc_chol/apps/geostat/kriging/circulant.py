"""Circulant embedding: draws of stationary fields on regular grids by fast Fourier transforms, without their matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.geometry import AxisRanges, GeometricAnisotropy
from ooc_chol.apps.geostat.covariances.radial import AbstractIsotropicCovariance
from ooc_chol.apps.geostat.data.grids import Grid

#: Sides of the torus over the least that hold all lags, tried one after the other.
_GROWTH = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

#: Nodes of the largest torus that is tried: 3 GiB for one pair of draws.
MOST_NODES = 2**26

#: Share of negative eigenvalues that is rounding: no covariance is wrong by more than this share of the variance without them.
_NEGLIGIBLE = 1e-10

#: Lags whose covariances are computed at once.
_CHUNK = 2**20

#: Relative departure of a step of a grid from the others that is rounding.
_EVEN = 1e-9


class EmbeddingError(oc.OocCholError, ValueError):
    """A covariance function and grid whose circulant embedding has negative eigenvalues; the message has their share.

    Parameters
    ----------
    share : float
        Absolute sum of the negative eigenvalues over the sum of all positive ones: the relative error of the variance where
        they are set to zero.
    nodes : int
        Nodes of the largest torus that was tried.
    """

    def __init__(self, share: float, nodes: int) -> None:
        super().__init__(
            f"on this grid the covariance function has no circulant embedding up to {nodes} nodes: negative eigenvalues, "
            f"{share:.2g} of the sum of the others, are left. Its range is long for the grid, or the field very smooth: take a "
            "larger grid, a larger jitter (--jitter), or accept an error of that share of the variance (clip=True, --clip)"
        )
        self.share, self.nodes = share, nodes

    def __reduce__(self) -> tuple[type, tuple[float, int]]:
        return type(self), (self.share, self.nodes)


@dataclass(frozen=True, eq=False)
class Embedding:
    """A grid on a torus, on which the covariance matrix of the field is circulant; made by :func:`embed`."""

    grid: Grid  #: The grid, evenly spaced along each axis
    #: Those of the covariance matrix on the torus, its axes in the order of ``grid.shape``; negative ones are still there
    eigenvalues: NDArray[np.float64]
    least: float  #: Variance of the independent error of each value
    clipped: float  #: Share of negative eigenvalues that draws leave out; zero where the draws are exact

    __repr__ = tb.brief_repr

    def draws(self, count: int, seed: int) -> Iterator[NDArray[np.float64]]:
        """Fields of mean zero at the nodes of the grid, one after the other.

        Returns (size,): values in the order of the grid's points.
        """
        with tb.guarded_imports():
            from scipy.fft import fftn

        roots = np.sqrt(np.maximum(self.eigenvalues + self.least, 0.0) / self.eigenvalues.size)
        window = tuple(slice(0, n) for n in self.grid.shape)
        for pair in range((count + 1) // 2):
            generator = np.random.default_rng([seed, 17, pair])
            noise = np.empty(roots.shape, dtype=np.complex128)
            noise.real, noise.imag = generator.standard_normal(roots.shape), generator.standard_normal(roots.shape)
            noise *= roots
            field = fftn(noise, overwrite_x=True)[window]
            yield field.real.ravel()
            if 2 * pair + 1 < count:
                yield field.imag.ravel()

    def product(self, nodes: NDArray[np.intp], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Covariances between all nodes of the grid and some, times their weights, exact.

        Shapes: ``nodes`` (n,), ``weights`` (n,). Returns (size,): ``C @ weights`` by two transforms.
        """
        with tb.guarded_imports():
            from scipy.fft import irfftn, rfftn

        torus = np.zeros(self.eigenvalues.shape)
        np.add.at(torus, np.unravel_index(nodes, self.grid.shape), weights)
        half = self.eigenvalues[..., : self.eigenvalues.shape[-1] // 2 + 1]
        found = irfftn(rfftn(torus) * half, s=torus.shape, overwrite_x=True)
        return np.asarray(found[tuple(slice(0, n) for n in self.grid.shape)].ravel())


def is_stationary(model: AbstractCovariance) -> bool:
    """Tell whether a covariance function depends on the difference of Euclidean coordinates alone, as embeddings need."""
    kinds = (AbstractIsotropicCovariance, GeometricAnisotropy, AxisRanges)
    return all(isinstance(part, kinds) for part in getattr(model, "components", (model,)))


def embed(model: AbstractCovariance, grid: Grid, *, least: float, clip: bool = False) -> Embedding:
    """Embed the covariance matrix of a grid in a circulant one, on the smallest torus tried that has no negative eigenvalue.

    Dietrich and Newsam (1997), SIAM J. Sci. Comput. 18; Wood and Chan (1994), J. Comput. Graph. Stat. 3. For ``N`` nodes of the
    torus ``O(N log N)`` flops for it and for each pair of draws, and some 40 N bytes. Raises ``EmbeddingError``, ``ValueError``
    and ``BudgetError``.
    """
    if not is_stationary(model):
        raise ValueError(
            f"a {type(model).__name__} is no function of the difference of Euclidean coordinates alone, which grids by Fourier "
            "transforms need: draw at sites, by a factorization (--method dense)"
        )
    steps = lattice_steps(grid)
    share, tried = 0.0, 0
    for growth in _GROWTH:
        sides = _sides(grid.shape, growth)
        nodes = math.prod(sides)
        if nodes > MOST_NODES:
            if not tried:
                raise oc.BudgetError(
                    f"a torus of {' x '.join(map(str, sides))} nodes", 48 * nodes, 48 * MOST_NODES, "draw on a smaller grid"
                )
            break
        eigenvalues = _eigenvalues(model, sides, steps)
        tried = nodes
        lifted = eigenvalues + least
        negative = float(-np.sum(lifted[lifted < 0]))
        share = negative / float(np.sum(lifted[lifted > 0]))
        if share <= _NEGLIGIBLE:
            return Embedding(grid, eigenvalues, least, 0.0)
    if clip:
        return Embedding(grid, eigenvalues, least, share)
    raise EmbeddingError(share, tried)


def lattice_steps(grid: Grid) -> tuple[float, ...]:
    """Steps along the axes of an evenly spaced grid, by axis, negative where it descends; 1 along an axis of one point."""
    steps = []
    for axis in grid.axes:
        apart = np.diff(axis)
        step = float(axis[-1] - axis[0]) / len(apart) if len(apart) else 1.0
        if step == 0 or np.any(np.abs(apart - step) > _EVEN * abs(step) + 4.0 * np.spacing(np.abs(axis).max())):
            raise ValueError("the grid is not evenly spaced along its axes, as Fourier transforms need")
        steps.append(step)
    return tuple(steps)


def _sides(shape: tuple[int, ...], growth: float) -> tuple[int, ...]:
    """Sides of a torus on which no lag of the grid meets another, of lengths that transforms are fast at."""
    with tb.guarded_imports():
        from scipy.fft import next_fast_len

    return tuple(1 if n == 1 else next_fast_len(math.ceil(growth * (2 * n - 1)), real=True) for n in shape)


def _eigenvalues(model: AbstractCovariance, sides: tuple[int, ...], steps: tuple[float, ...]) -> NDArray[np.float64]:
    """Eigenvalues of the circulant matrix whose first row has the covariances of the shortest lags around the torus."""
    with tb.guarded_imports():
        from scipy.fft import fftn

    # the last axis of the array is the first of the grid
    lags = [step * ((np.arange(side) + side // 2) % side - side // 2) for side, step in zip(sides, reversed(steps), strict=True)]
    total = math.prod(sides)
    row, origin = np.empty((total, 1)), np.zeros((len(sides), 1))
    for start in range(0, total, _CHUNK):
        indices = np.unravel_index(np.arange(start, min(start + _CHUNK, total)), sides)
        places = np.stack([lag[index] for lag, index in zip(reversed(lags), reversed(indices), strict=True)])
        model.fill(places, origin, row[start : start + _CHUNK])
    # the real part is that of the even part of the row, which has the covariances of all lags of the grid
    return np.asarray(fftn(row.reshape(sides)).real)
