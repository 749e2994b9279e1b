"""Predictions on grids of any size, streamed to a file."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.data.endings import TABLE, check_ending
from ooc_chol.apps.geostat.data.grids import BLOCK_POINTS, Grid
from ooc_chol.apps.geostat.data.io import text_file
from ooc_chol.apps.geostat.kriging.local import LocalKriging
from ooc_chol.apps.geostat.kriging.predicted import Target
from ooc_chol.apps.geostat.kriging.prediction import Kriging


def write_grid_prediction(
    path: str | os.PathLike[str],
    kriged: Kriging | LocalKriging,
    grid: Grid,
    *,
    names: Sequence[str],
    target: Target = "observation",
    standard_error: bool = True,
    cartesian: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    block_points: int = BLOCK_POINTS,
    replace: bool = False,
) -> int:
    """Predict on a grid and write a CSV file as it goes; the file appears complete or not at all.

    Parameters
    ----------
    path : path
        A new file.
    kriged : Kriging or LocalKriging
        A factored data set without covariates, or one that predicts from neighbourhoods.
    grid : Grid
        Points to predict at, made as they are needed.
    names : sequence of str
        Names of the ``d`` coordinate columns; ``prediction`` and ``standard_error`` follow.
    target : {"observation", "field"}
        New observations, whose variance includes the nugget, or the smooth field underneath.
    standard_error : bool
        False leaves that column out, and with it nearly all of the cost: see :meth:`Kriging.predict_mean`.
    cartesian : callable, optional
        Turns grid points into the coordinates of the observations, such as ``DataSpec.cartesian`` for degrees.
    block_points : int
        Points held in memory at once.
    replace : bool
        Replace the file if it exists.

    Returns
    -------
    int
        Number of points written.

    Raises
    ------
    ValueError
        Names, dimension or target do not match, the mean has covariates, or the path's ending promises another format than CSV.
    OSError
        The file cannot be written; as ``OutputError``, it exists.
    """
    check_ending(path, TABLE, "predictions on grids")
    if len(names) != len(grid.axes):
        raise ValueError(f"a grid of {len(grid.axes)} axes has coordinate columns {', '.join(names) or 'without names'}")
    with text_file(path, replace=replace) as stream:
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
