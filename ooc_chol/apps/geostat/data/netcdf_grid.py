"""One variable of a NetCDF file as a raster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.data.crs import Crs, is_east
from ooc_chol.apps.geostat.data.grids import Grid, ascending
from ooc_chol.apps.geostat.data.io import check_table_room
from ooc_chol.apps.geostat.data.netcdf import attribute, open_netcdf, system_of, unpacked


def read_netcdf_grid(path: str | os.PathLike[str], name: str | None) -> tuple[Grid, NDArray[np.float64], Crs | None]:
    """Axes, both ascending, values and reference system of a variable of two dimensions, by default of the only one."""
    file = Path(path)
    with open_netcdf(file) as content:
        variables = content.variables
        grids = [one for one in variables if len(variables[one].dimensions) == 2]
        if name is None and len(grids) == 1:
            name = grids[0]
        if name is None or name not in grids:
            problem = (
                "has several grids" if name is None and grids else "has no grid" if name is None else f"has no grid {name!r}"
            )
            raise ValueError(f"{file.name} {problem}; write {file.name}:VARIABLE with one of: {', '.join(grids) or 'none'}")
        chosen = variables[name]
        check_table_room(file.name, int(np.prod(chosen.shape)), 1)
        axes = [_axis(variables, dimension, file.name) for dimension in chosen.dimensions]
        values = unpacked(chosen, f"{file.name}, variable {name!r}")
        crs = system_of(file.name, variables, (name,))
        if _is_first(variables[chosen.dimensions[0]]):
            axes, values = axes[::-1], values.T
        if crs is None and any(is_east(attribute(variables[one], "units")) for one in chosen.dimensions):
            crs = Crs("degrees east and north", True)
    return *ascending(axes[1], axes[0], values), crs


def _axis(variables: Any, dimension: str, source: str) -> NDArray[np.float64]:
    """Coordinates along a dimension, one after the other."""
    if dimension not in variables or variables[dimension].dimensions != (dimension,):
        raise ValueError(f"{source} has no coordinates along {dimension!r}: a raster has a variable of that name")
    axis = unpacked(variables[dimension], f"{source}, variable {dimension!r}")
    steps = np.diff(axis)
    if not np.isfinite(axis).all() or not (np.all(steps > 0) or np.all(steps < 0)):
        raise ValueError(f"{source}: the coordinates {dimension!r} neither ascend nor descend")
    return axis


def _is_first(variable: Any) -> bool:
    """Tell whether the axis of a grid's rows is in truth the first coordinate: a longitude, or a projection's x."""
    told = attribute(variable, "standard_name"), attribute(variable, "axis")
    return told[0] in ("longitude", "projection_x_coordinate") or told[1] == "X" or is_east(attribute(variable, "units"))
