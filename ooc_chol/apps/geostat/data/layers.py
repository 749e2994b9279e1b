"""Columns at places on the way out: one rule for all commands of which ending is which format, and what each needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data import endings
from ooc_chol.apps.geostat.data.extras import require
from ooc_chol.apps.geostat.data.geopackage import layer_of
from ooc_chol.apps.geostat.data.grids import Grid
from ooc_chol.apps.geostat.data.io import write_table
from ooc_chol.apps.geostat.data.layer import Column as Column
from ooc_chol.apps.geostat.data.layer import Layer as Layer
from ooc_chol.apps.geostat.data.layer import check_names
from ooc_chol.apps.geostat.data.layer_netcdf import write_layer_netcdf
from ooc_chol.apps.geostat.data.layer_points import write_geopackage, write_geoparquet
from ooc_chol.apps.geostat.data.raster_files import ascii_files, check_raster, write_ascii_grids, write_geotiff
from ooc_chol.apps.geostat.data.spec import DataSpec

_Writer = Callable[[str | os.PathLike[str], Layer, bool], None]


@dataclass(frozen=True)
class _Format:
    """How files of some endings are written, and the packages that this takes."""

    write: _Writer
    packages: tuple[str, ...] = ()
    what: str = ""
    extra: str = "io"
    points: bool = False  #: Whether places are points, of two or three coordinates


def write_layer(path: str | os.PathLike[str], layer: Layer, *, replace: bool = False) -> None:
    """Write columns at places to a file of the kind that its name ends in; it appears complete or not at all.

    Parameters
    ----------
    path : path
        ``.csv``, ``.txt``, ``.dat`` or no ending for text; ``.nc``, ``.nc3`` or ``.cdf`` for NetCDF of version 3;
        ``.gpkg`` for points of a GeoPackage, ``.parquet`` or ``.pq`` for GeoParquet. Of a grid also ``.tif`` or ``.tiff`` for a
        GeoTIFF with a band for each column, and ``.asc`` for ASCII grids, one file for each column.
    layer : Layer
        Columns with their places.
    replace : bool
        Replace files that exist.

    Raises
    ------
    ValueError
        Nothing is written with this ending, or not at such places.
    MissingExtraError
        The package that writes this format is not installed.
    OSError
        The file cannot be written; as ``OutputError``, it exists, or is that of the observations, whatever was asked.
    """
    check_layer(path, "columns at places", layer.spec, is_grid=layer.grid is not None)
    if layer.grid is not None and _ending(path) in (*endings.GEOTIFF, *endings.ASCII_GRID):
        check_raster(path, layer.grid)
    source = "" if layer.spec.kind == "example" else layer_of(layer.spec.source)[0]  # of computed values there is none
    data = [("the observations", source)] if source else []
    tb.check_outputs([tb.Output("", file) for file in layer_files(path, tuple(layer.columns))], data, replace=True)
    _format(path).write(path, layer, replace)


def check_layer(
    path: str | os.PathLike[str],
    what: str,
    spec: DataSpec | None = None,
    *,
    names: Iterable[str] = (),
    is_grid: bool = False,
    grid: Grid | None = None,
) -> None:
    """Find out before the work whether ``what`` can be written to such a file, at the places of ``spec`` where it is given."""
    if spec is not None:
        check_names((*spec.axes, *names))
    endings.check_output_path(path, endings.GRIDS if is_grid else endings.LAYERS, what)
    form = _format(path)
    require(form.packages, f"{form.what} are written", "raster" if form.extra == "raster" else "io")
    if spec is not None and form.points and len(spec.coordinates) < 2:
        raise ValueError(f"{path}: points of {form.what} need two coordinates or three, but the data have one; write .csv or .nc")
    if grid is not None and _ending(path) in (*endings.GEOTIFF, *endings.ASCII_GRID):
        check_raster(path, grid)


def layer_files(path: str | os.PathLike[str], names: tuple[str, ...]) -> tuple[Path, ...]:
    """All files that are written for columns of these names: one, but an ASCII grid for each column."""
    return ascii_files(path, names) if _ending(path) in endings.ASCII_GRID else (Path(path),)


def _ending(path: str | os.PathLike[str]) -> str:
    return Path(path).suffix.lower()


def _format(path: str | os.PathLike[str]) -> _Format:
    """The format that an ending promises."""
    return next(form for suffixes, form in _FORMATS.items() if _ending(path) in suffixes)


def _write_text(path: str | os.PathLike[str], layer: Layer, replace: bool) -> None:
    write_table(path, layer.table, replace=replace)


_FORMATS: Mapping[tuple[str, ...], _Format] = {
    endings.TABLE: _Format(_write_text),
    endings.NETCDF: _Format(write_layer_netcdf, ("xarray",), "NetCDF files"),
    endings.GEOPACKAGE: _Format(write_geopackage, ("geopandas", "pyogrio"), "GeoPackages", points=True),
    endings.PARQUET: _Format(write_geoparquet, ("geopandas", "pyarrow"), "Parquet files"),
    endings.GEOTIFF: _Format(write_geotiff, ("rasterio",), "GeoTIFFs", "raster"),
    endings.ASCII_GRID: _Format(write_ascii_grids),
}
