"""NetCDF of every version, read by netCDF4, which knows packing and gaps."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import netcdf_file

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.crs import LATITUDE_LONGITUDE, Crs, described, mapped
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.io import Table, check_columns, check_table_room, complete_rows
from ooc_chol.apps.geostat.data.netcdf_shell import check_header, check_heaps

#: First bytes of a file: version 3 (classic, 64-bit offset), the same with 64-bit data, and version 4, which is HDF5.
_MAGIC_3 = (b"CDF\x01", b"CDF\x02")
_MAGIC_5 = b"CDF\x05"
_MAGIC_4 = b"\x89HDF"

#: What SciPy and netCDF4 raise where a file ends too early or holds nonsense.
_DAMAGED = (IndexError, KeyError, MemoryError, OverflowError, RuntimeError, TypeError, ValueError)


def read_netcdf(path: str | os.PathLike[str], names: Sequence[str], *, optional: Sequence[str] = ()) -> Table:
    """Read variables of a NetCDF file as columns: values along one dimension, or a grid with its axes."""
    file = Path(path)
    with open_netcdf(file) as content:
        variables = content.variables
        check_columns(file.name, names, list(variables))
        wanted = [*names, *(name for name in optional if name in variables and name not in names)]
        columns = _columns(file.name, {name: variables[name] for name in wanted})
        units = {name: attribute(variables[name], "units") for name in wanted}
        crs = system_of(file.name, variables, wanted)
    return complete_rows(file.name, columns, names, units=units, crs=crs)


def open_netcdf(file: Path) -> Any:
    """The file in netCDF4, whose variables give numbers as the conventions mean them."""
    with tb.input_file(file) as stream:
        magic = stream.read(4)
        memory = None
        if magic == _MAGIC_5:  # netCDF4 reads zeros where a file of version 3 or 5 was cut off, but raises where memory ends
            tb.check_room(2 * file.stat().st_size, f"memory for {file.name}", "write it as NetCDF 4, which need not be in memory")
            memory = magic + stream.read()
        try:
            if memory is not None:
                check_header(memory)
            elif magic == _MAGIC_4:
                check_heaps(stream)
        except ValueError as error:
            raise ValueError(f"{file.name} is a damaged NetCDF file: {error}; copy it again") from error
    if magic not in (*_MAGIC_3, _MAGIC_5, _MAGIC_4):
        raise ValueError(f"{file.name} is not a NetCDF file: it begins with {magic!r}")
    netcdf4 = imported("netCDF4", "NetCDF files are read")
    try:
        if magic in _MAGIC_3:
            # SciPy raises where a file ends
            netcdf_file(file, "r", mmap=True).close()
        return netcdf4.Dataset(file, memory=memory)
    except (*_DAMAGED, OSError) as error:
        # what the system refuses has a positive number, but the end of memory has one, too
        if memory is None and isinstance(error, OSError) and (error.errno or 0) > 0:
            raise
        raise ValueError(f"{file.name} is a damaged NetCDF file: {error}; copy it again") from error


def _columns(source: str, variables: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Values of all variables over all their dimensions, flattened."""
    widest = max(variables.values(), key=lambda variable: len(variable.dimensions))
    axes = tuple(widest.dimensions)
    for name, variable in variables.items():
        other = set(variable.dimensions) - set(axes)
        if other:
            raise ValueError(
                f"{source}: variable {name!r} is along {', '.join(sorted(other))}, another along "
                f"{', '.join(axes) or 'nothing'}; one variable must span all dimensions"
            )
    check_table_room(source, math.prod(int(size) for size in widest.shape), len(variables))
    arrays = {
        name: _spread(unpacked(variable, f"{source}, variable {name!r}"), variable.dimensions, axes)
        for name, variable in variables.items()
    }
    shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
    return {name: np.broadcast_to(array, shape).ravel() for name, array in arrays.items()}


def unpacked(variable: Any, where: str) -> NDArray[np.float64]:
    """Unpacked values, NaN where there is none."""
    try:
        values = np.ma.asarray(variable[...])
    except _DAMAGED as error:
        raise ValueError(f"{where} is damaged: {error}; copy the file again") from error
    if values.dtype.kind not in "iuf":
        raise ValueError(f"{where} holds {values.dtype}, not numbers")
    return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))


def _spread(array: NDArray[np.float64], dimensions: Sequence[str], axes: Sequence[str]) -> NDArray[np.float64]:
    """The array with all axes, those that it has not of length one."""
    ordered = np.transpose(array, [list(dimensions).index(axis) for axis in axes if axis in dimensions])
    return ordered[tuple(slice(None) if axis in dimensions else np.newaxis for axis in axes)]


def system_of(source: str, variables: Mapping[str, Any], wanted: Sequence[str]) -> Crs | None:
    """The reference system that a grid mapping names."""
    for name in wanted:
        # "crs" or, in the extended form, "crs: x y"
        mapping = attribute(variables[name], "grid_mapping").partition(":")[0].strip()
        if mapping in variables:
            text = attribute(variables[mapping], "crs_wkt") or attribute(variables[mapping], "spatial_ref")
            if not text:
                return mapped({name: variables[mapping].getncattr(name) for name in variables[mapping].ncattrs()})
            crs = described(text, source)
            is_geographic = crs.is_geographic or attribute(variables[mapping], "grid_mapping_name") == LATITUDE_LONGITUDE
            return Crs(crs.name, is_geographic, crs.unit)
    return None


def attribute(variable: Any, name: str) -> str:
    """An attribute in words; empty where it is not there."""
    return str(getattr(variable, name, ""))
