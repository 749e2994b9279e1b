"""Layers as xarray datasets, and as NetCDF, by the CF conventions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.layer import Layer
from ooc_chol.apps.geostat.data.spec import DataSpec

#: Name of the variable that carries the reference system, and of the dimension of sites that are no grid.
_CRS_VARIABLE = "crs"
_SITE_DIMENSION = "site"


def write_layer_netcdf(path: str | os.PathLike[str], layer: Layer, replace: bool) -> None:
    """Write a NetCDF file of version 3 (64-bit offset): a grid has two dimensions, other places one."""
    dataset = layer_dataset(layer)
    for name, variable in dataset.variables.items():
        if "/" in str(name):
            raise ValueError(f"a name in a NetCDF file cannot hold a slash, as {name!r} does; rename the column or write CSV")
        variable.encoding["_FillValue"] = None  # gaps are NaN, which needs no number of its own
    with tb.output_file(path, replace=replace) as part:
        dataset.to_netcdf(part, format="NETCDF3_64BIT", engine="scipy")


def layer_dataset(layer: Layer) -> Any:
    """An xarray dataset of coordinates, columns, and the reference system if known."""
    xarray = imported("xarray", "datasets are made")
    spec, grid = layer.spec, layer.grid
    dimensions = tuple(reversed(spec.coordinates)) if grid else (_SITE_DIMENSION,)
    axes = dict(zip(spec.axes, (*grid.axes, *layer.positions[0, 2:]) if grid else layer.positions.T, strict=True))
    mapping = {"grid_mapping": _CRS_VARIABLE} if layer.crs_attributes else {}
    if grid is None:
        mapping["coordinates"] = " ".join(reversed(spec.axes))
    elif len(spec.axes) > 2:
        mapping["coordinates"] = spec.axes[2]
    variables: dict[str, Any] = {}
    for name, column in layer.columns.items():
        words = {key: text for key, text in (("long_name", column.meaning), ("units", column.unit)) if text}
        variables[name] = (dimensions, layer.spread(column.values) if grid else column.values, {**words, **mapping})
    if layer.crs_attributes:
        if _CRS_VARIABLE in layer.table:
            raise ValueError(f"a column is named {_CRS_VARIABLE!r}, as that of the reference system is; rename it or write CSV")
        variables[_CRS_VARIABLE] = ((), 0.0, layer.crs_attributes)
    places = {
        name: (_axis_dimensions(layer, name), values, _axis_attributes(spec, k)) for k, (name, values) in enumerate(axes.items())
    }
    return xarray.Dataset(variables, coords=places, attrs={"Conventions": "CF-1.8", "title": layer.title})


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
