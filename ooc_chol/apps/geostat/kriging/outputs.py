"""Predictions on the way out: CSV and NetCDF files, xarray datasets and GeoPandas frames."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.data.crs import LATITUDE_LONGITUDE
from ooc_chol.apps.geostat.data.dataset import DataSpec
from ooc_chol.apps.geostat.data.endings import PREDICTIONS, check_output_path
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.geopackage import layer_of
from ooc_chol.apps.geostat.data.io import write_table
from ooc_chol.apps.geostat.data.netcdf import NetcdfVariable, write_netcdf
from ooc_chol.apps.geostat.data.tables import file_kind
from ooc_chol.apps.geostat.kriging.prediction import Prediction
from ooc_chol.apps.geostat.kriging.transformed import BackTransformed

#: Name of the variable that carries the reference system, and of the dimension of sites that are no grid.
_CRS_VARIABLE = "crs"
_SITE_DIMENSION = "site"


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
    grid : (int, int) or None
        Columns and rows when ``positions`` are all points of a grid, row by row, as :func:`regular_grid` gives them.
    more : mapping of str to (m,) array
        Further columns, such as quantiles and probabilities of exceedance.
    """

    spec: DataSpec
    positions: NDArray[np.float64]
    prediction: Prediction | BackTransformed
    grid: tuple[int, int] | None = None
    more: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    __repr__ = oc.brief_repr

    @property
    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Coordinates (and time or variable), ``prediction``, ``standard_error`` and ``more``, each of shape ``(m,)``.

        Values without a variance have no ``standard_error``: those of a transformation with a negative power.
        """
        places = dict(zip(self.spec.axes, self.positions.T, strict=True))
        return {**places, **self.prediction.columns, **self.more}


def write_predictions(path: str | os.PathLike[str], predicted: Predicted, *, replace: bool = False) -> None:
    """Write predictions to a file of the kind that its name ends in; it appears complete or not at all.

    Parameters
    ----------
    path : path
        ``.nc``, ``.nc3`` or ``.cdf`` for NetCDF of version 3, by the CF conventions: a grid has two dimensions, other sites one.
        ``.csv``, ``.txt``, ``.dat`` or no ending for CSV.
    predicted : Predicted
        Predictions with their positions and the names of the columns.
    replace : bool
        Replace the file if it exists.

    Raises
    ------
    ValueError
        Predictions are not written with this ending.
    OSError
        The file cannot be written; as ``OutputError``, it exists, or is that of the observations, whatever was asked.
    """
    check_output(path)
    _refuse_the_data(path, predicted.spec)
    if file_kind(path) == "csv":
        write_table(path, predicted.columns, replace=replace)
    else:
        title = f"kriging of {predicted.spec.value_name}: {predicted.prediction.target}"
        attributes = {"Conventions": "CF-1.8", "title": title}
        write_netcdf(path, netcdf_variables(predicted), attributes=attributes, replace=replace)


def _refuse_the_data(path: str | os.PathLike[str], spec: DataSpec) -> None:
    """Raise ``OutputError`` where predictions would take the place of the file that the observations came from."""
    data = [] if spec.kind == "example" else [("the observations", layer_of(spec.source)[0])]
    oc.check_outputs([oc.Output("", path)], data, replace=True)


def check_output(path: str | os.PathLike[str]) -> None:
    """Find out early whether predictions can be written to such a file."""
    check_output_path(path, PREDICTIONS, "predictions")


def netcdf_variables(predicted: Predicted) -> dict[str, NetcdfVariable]:
    """Predictions by the CF conventions: coordinates, ``prediction`` and ``standard_error``, and a reference system if known."""
    spec = predicted.spec
    axes = _axes(predicted)
    dimensions = tuple(reversed(spec.coordinates)) if predicted.grid else (_SITE_DIMENSION,)
    shape = tuple(reversed(predicted.grid)) if predicted.grid else (len(predicted.positions),)
    mapping = {"grid_mapping": _CRS_VARIABLE} if spec.crs or spec.lonlat else {}
    if not predicted.grid:
        mapping["coordinates"] = " ".join(reversed(spec.axes))
    elif len(spec.axes) > 2:
        mapping["coordinates"] = spec.axes[2]
    units = {"units": spec.value_unit} if spec.value_unit else {}
    columns = predicted.columns
    names = {"prediction": f"kriging mean of {spec.value_name}", "standard_error": f"kriging standard error of {spec.value_name}"}
    names = {name: text for name, text in names.items() if name in columns}
    names |= {name: f"{name.replace('_', ' ')} of {spec.value_name}" for name in predicted.more}
    variables = {
        name: NetcdfVariable(_axis_dimensions(predicted, name), values, _axis_attributes(spec, k))
        for k, (name, values) in enumerate(axes.items())
    }
    for name, text in names.items():
        unit = {"units": "1"} if name.startswith("exceed_") else units
        variables[name] = NetcdfVariable(
            dimensions,
            columns[name].reshape(shape),
            {"long_name": text, **unit, **mapping},
        )
    if "grid_mapping" in mapping:
        variables[_CRS_VARIABLE] = NetcdfVariable((), np.array(0.0), _crs_attributes(spec))
    return variables


def to_xarray(predicted: Predicted) -> Any:
    """Predictions on a grid as an xarray dataset.

    Parameters
    ----------
    predicted : Predicted
        Predictions whose ``grid`` is given.

    Returns
    -------
    xarray.Dataset
        With the coordinates as axes, ``prediction`` and ``standard_error`` as variables, and the attributes of the conventions.

    Raises
    ------
    ValueError
        The predictions are not on a grid.
    MissingExtraError
        xarray is not installed.
    """
    if predicted.grid is None:
        raise ValueError("these predictions are not on a grid; to_geodataframe takes any sites")
    xarray = imported("xarray", "datasets are made")
    variables = netcdf_variables(predicted)
    parts = {name: (v.dimensions, v.values, dict(v.attributes)) for name, v in variables.items()}
    axes = {name: parts.pop(name) for name in predicted.spec.axes}
    return xarray.Dataset(parts, coords=axes, attrs={"Conventions": "CF-1.8"})


def to_geodataframe(predicted: Predicted) -> Any:
    """Predictions as a GeoPandas frame of points.

    Parameters
    ----------
    predicted : Predicted
        Predictions at sites with two or three coordinates.

    Returns
    -------
    geopandas.GeoDataFrame
        With columns ``prediction`` and ``standard_error``, and time or variable where there is one, and the reference system
        where it is known; degrees without a name are EPSG:4326.

    Raises
    ------
    ValueError
        The sites have one coordinate.
    MissingExtraError
        GeoPandas is not installed.
    """
    spec, d = predicted.spec, len(predicted.spec.coordinates)
    if d < 2:
        raise ValueError("points need two coordinates or three")
    geopandas = imported("geopandas", "frames are made")
    values = {name: column for name, column in predicted.columns.items() if name not in spec.axes[:d]}
    points = geopandas.points_from_xy(*predicted.positions[:, :d].T)
    return geopandas.GeoDataFrame(values, geometry=points, crs=_crs_name(spec))


def _axes(predicted: Predicted) -> dict[str, NDArray[np.float64]]:
    """Coordinates: the two axes of a grid and the one time or variable that it is for, else one value per site."""
    axes, positions = predicted.spec.axes, predicted.positions
    if predicted.grid is None:
        return dict(zip(axes, positions.T, strict=True))
    columns, _ = predicted.grid
    return dict(zip(axes, (positions[:columns, 0], positions[::columns, 1], *map(np.array, positions[0, 2:])), strict=True))


def _axis_dimensions(predicted: Predicted, name: str) -> tuple[str, ...]:
    """Dimensions of the variable of a coordinate."""
    if predicted.grid is None:
        return (_SITE_DIMENSION,)
    return (name,) if name in predicted.spec.coordinates else ()


def _axis_attributes(spec: DataSpec, k: int) -> Mapping[str, str]:
    """What the conventions want to know of coordinate ``k``."""
    if k >= len(spec.coordinates):
        name = spec.axes[k]
        return {"long_name": name} | ({"units": spec.units[name]} if spec.units.get(name) else {})
    if spec.lonlat:
        return ({"units": "degrees_east", "standard_name": "longitude"}, {"units": "degrees_north", "standard_name": "latitude"})[
            k
        ]
    unit = spec.units.get(spec.coordinates[k], "") or spec.unit
    units = {"units": unit} if unit else {}
    if spec.crs is not None and k < 2:
        return {**units, "standard_name": f"projection_{'xy'[k]}_coordinate"}
    return units


def _crs_name(spec: DataSpec) -> str | None:
    """The reference system as GeoPandas takes it."""
    # a number of an authority, or well-known text; GeoPandas does not know other names
    named = spec.crs if spec.crs and (":" in spec.crs or "[" in spec.crs) else None
    return named or ("EPSG:4326" if spec.lonlat else None)


def _crs_attributes(spec: DataSpec) -> Mapping[str, str]:
    """Attributes of the variable that carries the reference system."""
    name = {"spatial_ref": spec.crs} if spec.crs and spec.crs != LATITUDE_LONGITUDE else {}
    return {"grid_mapping_name": LATITUDE_LONGITUDE, **name} if spec.lonlat else name
