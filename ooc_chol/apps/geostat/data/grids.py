"""Regular grids of any size, of which only the axes are stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb

#: Largest difference of steps of a regular axis, as a share of them.
_REGULAR = 1e-6
#: Points of a block: a few hundred kilobytes of coordinates.
BLOCK_POINTS = 16384


@dataclass(frozen=True, eq=False)
class Grid:
    """A regular grid, of which only the axes are stored; made by :func:`grid_over`.

    Parameters
    ----------
    axes : tuple of (k,) arrays
        Coordinates along each axis. The first axis runs fastest, as pixels of a picture do.
    """

    axes: tuple[NDArray[np.float64], ...]

    __repr__ = tb.brief_repr

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(map(len, self.axes))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an array of values at all points, the last axis first: ``(ny, nx)`` in two dimensions."""
        return tuple(len(axis) for axis in reversed(self.axes))

    @property
    def is_regular(self) -> bool:
        """True if the steps along each axis are of one positive length, to a millionth of it."""
        steps = [np.diff(axis) for axis in self.axes]
        return all(len(step) > 0 and step.min() > 0 and np.ptp(step) <= _REGULAR * step.max() for step in steps)

    def points(self, start: int, stop: int) -> NDArray[np.float64]:
        """The points ``start`` to ``stop - 1``.

        Parameters
        ----------
        start, stop : int
            Range of points.

        Returns
        -------
        (stop - start, d) array
            Coordinates of these points.
        """
        indices = np.unravel_index(np.arange(start, stop), self.shape)
        return np.column_stack([axis[index] for axis, index in zip(self.axes, reversed(indices), strict=True)])

    def blocks(self, points: int = BLOCK_POINTS) -> Iterator[NDArray[np.float64]]:
        """All points in order, some at a time.

        Parameters
        ----------
        points : int
            Points per block.

        Yields
        ------
        (m, d) array
            Coordinates; the last block may be short.

        Raises
        ------
        ValueError
            ``points`` is not positive.
        """
        if points < 1:
            raise ValueError(f"blocks of {points} points are asked for, but a block has at least one")
        for start in range(0, self.size, points):
            yield self.points(start, min(start + points, self.size))


def grid_over(lowest: ArrayLike, highest: ArrayLike, counts: Sequence[int]) -> Grid:
    """A grid over a box, its corners included.

    Parameters
    ----------
    lowest, highest : (d,) array
        Corners of the box, such as ``positions.min(axis=0)`` and ``positions.max(axis=0)``.
    counts : sequence of int
        Points along each of the ``d`` axes.

    Returns
    -------
    Grid
        With ``prod(counts)`` points.

    Raises
    ------
    ValueError
        There is not one count per axis, an axis has no point, or a corner is not finite.

    Examples
    --------
    >>> grid_over([0.0, 0.0], [1.0, 2.0], (2, 2)).points(0, 4).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 2.0]]
    """
    low, high = tb.plain_array("lowest", lowest, np.float64), tb.plain_array("highest", highest, np.float64)
    if low.shape != (len(counts),) or high.shape != low.shape:
        raise ValueError(f"a box with corners of shape {low.shape} and {high.shape} needs as many counts, not {len(counts)}")
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError(f"the corners {low.tolist()} and {high.tolist()} must be finite")
    if min(counts) < 1:
        raise ValueError(f"a grid of {' x '.join(map(str, counts))} points has none")
    return Grid(tuple(np.linspace(a, b, count) for a, b, count in zip(low, high, counts, strict=True)))


def ascending(x: NDArray[np.float64], y: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[Grid, NDArray[np.float64]]:
    """A grid of two axes and its values, with descending axes turned round."""
    flips = [slice(None, None, -1 if len(axis) > 1 and axis[-1] < axis[0] else 1) for axis in (x, y)]
    return Grid((x[flips[0]].copy(), y[flips[1]].copy())), np.ascontiguousarray(values[flips[1], flips[0]])


def spread(grid: Grid, cells: NDArray[np.intp] | None, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values at some points of a grid, or at all, as an array of its shape; NaN at the others."""
    whole = values
    if cells is not None:
        whole = np.full(grid.size, np.nan)
        whole[cells] = values
    return whole.reshape(grid.shape)
