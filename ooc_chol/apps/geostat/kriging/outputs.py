"""Predictions on the way out: files of every kind, xarray datasets and GeoPandas frames."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.dataset import DataSpec
from ooc_chol.apps.geostat.data.grids import Grid
from ooc_chol.apps.geostat.data.layer import Column, Layer, check_names
from ooc_chol.apps.geostat.data.layer_netcdf import layer_dataset
from ooc_chol.apps.geostat.data.layer_points import layer_frame
from ooc_chol.apps.geostat.data.layers import write_layer
from ooc_chol.apps.geostat.kriging.prediction import Prediction
from ooc_chol.apps.geostat.kriging.transformed import BackTransformed


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predictions with their places, ready to be written.

    Parameters
    ----------
    spec : DataSpec
        Names of the columns, their units, and the reference system.
    positions : (m, d) array
        Coordinates as in the file; after them time or number of the variable, where there is one.
    prediction : Prediction
        Mean and variance at ``positions``, in their order.
    grid : (int, int), Grid or None
        Columns and rows when ``positions`` are all points of a grid, row by row, as :func:`regular_grid` gives them; or the grid.
    cells : (m,) array of int or None
        Which points of the grid ``positions`` are; None for all.
    level : float or None
        Columns ``lower`` and ``upper`` are the ends of the interval of this level; None for no such columns.
    more : mapping of str to Column
        Further columns, which follow.
    """

    spec: DataSpec
    positions: NDArray[np.float64]
    prediction: Prediction | BackTransformed
    grid: tuple[int, int] | Grid | None = None
    cells: NDArray[np.intp] | None = None
    level: float | None = None
    more: Mapping[str, Column] = field(default_factory=dict)

    __repr__ = tb.brief_repr

    @property
    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Coordinates (and time or variable) and all columns, each of shape ``(m,)``."""
        return self.layer.table

    @property
    def layer(self) -> Layer:
        """The predictions as columns: ``prediction``, ``standard_error``, the ends of the interval, and what is added."""
        spec, found = self.spec, self.prediction
        unit = spec.value_unit
        words = {"prediction": "mean", "standard_error": "standard error"}
        words |= {f"{name}_half_width": f"{word} at most off in exact arithmetic" for name, word in words.items()}
        columns = {
            name: Column(values, f"kriging {words[name]} of {spec.value_name}", unit) for name, values in found.columns.items()
        }
        if self.level is not None:
            lower, upper = found.interval(self.level)
            which = f"end of the interval of {100 * self.level:g} % of {spec.value_name}"
            columns |= {"lower": Column(lower, f"lower {which}", unit), "upper": Column(upper, f"upper {which}", unit)}
        check_names((*columns, *self.more))
        title = f"kriging of {spec.value_name}: {found.target}"
        return Layer(spec, self.positions, {**columns, **self.more}, title, self._grid, self.cells)

    @property
    def _grid(self) -> Grid | None:
        """The grid, from its columns and rows where these are given."""
        if not isinstance(self.grid, tuple):
            return self.grid
        columns, rows = self.grid
        points = self.positions[: columns * rows]
        return Grid((points[:columns, 0].copy(), points[::columns, 1].copy()))


@tb.documented(like=write_layer)
def write_predictions(path: str | os.PathLike[str], predicted: Predicted, *, replace: bool = False) -> None:
    """Write predictions to a file of the kind that its name ends in; it appears complete or not at all.

    Parameters
    ----------
    predicted : Predicted
        Predictions with their positions and the names of the columns.
    replace : bool
        Replace the file if it exists.

    Raises
    ------
    ValueError
        Predictions are not written with this ending, or not at such places.
    MissingExtraError
        The package that writes this format is not installed.
    OSError
        The file cannot be written; as ``OutputError``, it exists, or is that of the observations, whatever was asked.
    """
    write_layer(path, predicted.layer, replace=replace)


def to_xarray(predicted: Predicted) -> Any:
    """Predictions on a grid as an xarray dataset.

    Parameters
    ----------
    predicted : Predicted
        Predictions whose ``grid`` is given.

    Returns
    -------
    xarray.Dataset
        With the coordinates as axes, the columns as variables, and the attributes of the conventions.

    Raises
    ------
    ValueError
        The predictions are not on a grid.
    MissingExtraError
        xarray is not installed.
    """
    if predicted.grid is None:
        raise ValueError("these predictions are not on a grid; to_geodataframe takes any sites")
    return layer_dataset(predicted.layer)


def to_geodataframe(predicted: Predicted) -> Any:
    """Predictions as a GeoPandas frame of points.

    Parameters
    ----------
    predicted : Predicted
        Predictions at sites with two or three coordinates.

    Returns
    -------
    geopandas.GeoDataFrame
        With all columns but the coordinates, and the reference system where it is known; degrees without a name are EPSG:4326.

    Raises
    ------
    ValueError
        The sites have one coordinate, or a column is named ``geometry``.
    MissingExtraError
        GeoPandas is not installed.
    """
    if len(predicted.spec.coordinates) < 2:
        raise ValueError("points need two coordinates or three")
    return layer_frame(predicted.layer).drop(columns=list(predicted.spec.coordinates))
