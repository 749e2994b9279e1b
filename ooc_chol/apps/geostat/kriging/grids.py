"""Regular grids of any size: their points block by block, and predictions on them streamed to a file."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.apps.geostat.data.io import atomic_text
from ooc_chol.apps.geostat.kriging.predicted import Target
from ooc_chol.apps.geostat.kriging.prediction import Kriging

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

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(map(len, self.axes))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an array of values at all points, the last axis first: ``(ny, nx)`` in two dimensions."""
        return tuple(len(axis) for axis in reversed(self.axes))

    def points(self, start: int, stop: int) -> NDArray[np.float64]:
        """The points ``start`` to ``stop - 1``.

        Parameters
        ----------
        start, stop : int
            Range of points.

        Returns
        -------
        (stop - start, d) array
            Their coordinates.
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
    low, high = np.array(lowest, dtype=np.float64), np.array(highest, dtype=np.float64)
    if low.shape != (len(counts),) or high.shape != low.shape:
        raise ValueError(f"a box with corners of shape {low.shape} and {high.shape} needs as many counts, not {len(counts)}")
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError(f"the corners {low.tolist()} and {high.tolist()} must be finite")
    if min(counts) < 1:
        raise ValueError(f"a grid of {' x '.join(map(str, counts))} points has none")
    return Grid(tuple(np.linspace(a, b, count) for a, b, count in zip(low, high, counts, strict=True)))


def write_grid_prediction(
    path: str | os.PathLike[str],
    kriged: Kriging,
    grid: Grid,
    *,
    names: Sequence[str],
    target: Target = "observation",
    standard_error: bool = True,
    cartesian: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    block_points: int = BLOCK_POINTS,
) -> int:
    """Predict on a grid and write a CSV file as it goes; the file appears complete or not at all.

    Parameters
    ----------
    path : path
        Replaced if it exists.
    kriged : Kriging
        A factored data set without covariates.
    grid : Grid
        Where to predict.
    names : sequence of str
        Names of the ``d`` coordinate columns; ``prediction`` and ``standard_error`` follow.
    target : {"observation", "field"}
        What to predict.
    standard_error : bool
        False leaves that column out, and with it nearly all of the cost: see :meth:`Kriging.predict_mean`.
    cartesian : callable, optional
        Turns grid points into the coordinates of the observations, such as ``DataSpec.cartesian`` for degrees.
    block_points : int
        Points held in memory at once.

    Returns
    -------
    int
        Number of points written.

    Raises
    ------
    ValueError
        Names, dimension or target do not match, or the mean has covariates.
    OSError
        The file cannot be written.
    """
    if len(names) != len(grid.axes):
        raise ValueError(f"a grid of {len(grid.axes)} axes has coordinate columns {', '.join(names) or 'without names'}")
    with atomic_text(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*names, "prediction", *["standard_error"] * standard_error])
        for points in grid.blocks(block_points):
            sites = points if cartesian is None else cartesian(points)
            columns: list[Any] = list(points.T)
            if standard_error:
                block = kriged.predict(sites, target=target)
                columns += [block.mean, block.standard_error]
            else:
                columns.append(kriged.predict_mean(sites))
            writer.writerows(zip(*(map(repr, column.tolist()) for column in columns), strict=True))
    return grid.size
