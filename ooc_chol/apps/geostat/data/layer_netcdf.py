"""Layers as NetCDF by the CF conventions."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.data.layer import Layer
from ooc_chol.apps.geostat.data.netcdf import NetcdfVariable, write_netcdf
from ooc_chol.apps.geostat.data.spec import DataSpec

#: Name of the variable that carries the reference system, and of the dimension of sites that are no grid.
_CRS_VARIABLE = "crs"
_SITE_DIMENSION = "site"


def write_layer_netcdf(path: str | os.PathLike[str], layer: Layer, replace: bool) -> None:
    """Write a NetCDF file of version 3: a grid has two dimensions, other places one."""
    attributes = {"Conventions": "CF-1.8", "title": layer.title}
    write_netcdf(path, layer_variables(layer), attributes=attributes, replace=replace)


def layer_variables(layer: Layer) -> dict[str, NetcdfVariable]:
    """Columns by the CF conventions: coordinates, columns, and a reference system if known."""
    spec, is_grid = layer.spec, layer.grid is not None
    dimensions = tuple(reversed(spec.coordinates)) if is_grid else (_SITE_DIMENSION,)
    mapping = {"grid_mapping": _CRS_VARIABLE} if layer.crs_attributes else {}
    if not is_grid:
        mapping["coordinates"] = " ".join(reversed(spec.axes))
    elif len(spec.axes) > 2:
        mapping["coordinates"] = spec.axes[2]
    variables = {
        name: NetcdfVariable(_axis_dimensions(layer, name), values, _axis_attributes(spec, k))
        for k, (name, values) in enumerate(_axes(layer).items())
    }
    for name, column in layer.columns.items():
        words = {"long_name": column.meaning, "units": column.unit}
        attributes = {**{key: text for key, text in words.items() if text}, **mapping}
        values = layer.spread(column.values) if is_grid else column.values
        variables[name] = NetcdfVariable(dimensions, values, attributes)
    if layer.crs_attributes:
        variables[_CRS_VARIABLE] = NetcdfVariable((), np.array(0.0), layer.crs_attributes)
    return variables


def _axes(layer: Layer) -> dict[str, NDArray[np.float64]]:
    """Coordinates: the two axes of a grid and the one time or variable that it is for, else one value per site."""
    axes, positions = layer.spec.axes, layer.positions
    if layer.grid is None:
        return dict(zip(axes, positions.T, strict=True))
    return dict(zip(axes, (*layer.grid.axes, *map(np.array, positions[0, 2:])), strict=True))


def _axis_dimensions(layer: Layer, name: str) -> tuple[str, ...]:
    """Dimensions of the variable of a coordinate."""
    if layer.grid is None:
        return (_SITE_DIMENSION,)
    return (name,) if name in layer.spec.coordinates else ()


def _axis_attributes(spec: DataSpec, k: int) -> Mapping[str, str]:
    """Attributes of coordinate ``k`` that the conventions require."""
    if k >= len(spec.coordinates):
        name = spec.axes[k]
        return {"long_name": name} | ({"units": spec.units[name]} if spec.units.get(name) else {})
    if spec.lonlat:
        words = ("east", "longitude") if k == 0 else ("north", "latitude")
        return {"units": f"degrees_{words[0]}", "standard_name": words[1]}
    unit = spec.units.get(spec.coordinates[k], "") or spec.unit
    units = {"units": unit} if unit else {}
    if spec.crs is not None and k < 2:
        return {**units, "standard_name": f"projection_{'xy'[k]}_coordinate"}
    return units
