"""Layers on a grid as rasters: GeoTIFF by GDAL, through rasterio, and ASCII grids. Grid points are the centres of cells."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.endings import ASCII_GRID
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.grids import Grid
from ooc_chol.apps.geostat.data.io import text_file
from ooc_chol.apps.geostat.data.layer import Layer

#: Largest difference of the sides of a square cell, as a share of them.
_SQUARE = 1e-6
#: What stands for no value in an ASCII grid, unless a value comes near it.
_NO_VALUE = -9999.0


def check_raster(path: str | os.PathLike[str], grid: Grid) -> None:
    """Raise ``ValueError`` unless a grid is one of cells that a raster has: regular, and square for an ASCII grid."""
    if len(grid.axes) != 2 or min(map(len, grid.axes)) < 2:
        raise ValueError(f"{path}: a raster needs two columns and two rows or more; write .csv or .nc")
    if not grid.is_regular:
        raise ValueError(f"{path}: a raster needs steps of one length along each axis, ascending; write .csv or .nc")
    dx, dy = _cell(grid)
    if Path(path).suffix.lower() in ASCII_GRID and abs(dx - dy) > _SQUARE * dx:
        raise ValueError(
            f"{path}: an ASCII grid has square cells, but these are {dx:g} by {dy:g}; take a grid of one cell size (--cell), "
            "or write .tif"
        )


def write_geotiff(path: str | os.PathLike[str], layer: Layer, replace: bool) -> None:
    """Write a band of FP64 for each column, named and with its unit; NaN where there is no value."""
    rasterio = imported("rasterio", "GeoTIFFs are written", "raster")
    memory_file = imported("rasterio.io", "GeoTIFFs are written", "raster").MemoryFile
    assert layer.grid is not None, "write_layer lets nothing else pass"
    (x, y), (dx, dy) = layer.grid.axes, _cell(layer.grid)
    profile = {"driver": "GTiff", "dtype": "float64", "nodata": np.nan, "compress": "deflate", "predictor": 3}
    profile |= {"width": len(x), "height": len(y), "count": len(layer.columns), "crs": layer.crs_name}
    profile["transform"] = rasterio.Affine(dx, 0.0, x[0] - dx / 2, 0.0, -dy, y[-1] + dy / 2)
    with tb.output_file(path, replace=replace) as part, memory_file() as written:
        with written.open(**profile) as raster:
            for band, (name, column) in enumerate(layer.columns.items(), 1):
                raster.write(layer.spread(column.values)[::-1], band)
                raster.set_band_description(band, name)
                raster.set_band_unit(band, column.unit)
            raster.update_tags(TIFFTAG_IMAGEDESCRIPTION=layer.title)
        part.write_bytes(written.getbuffer())  # GDAL only prints that a disk is full


def ascii_files(path: str | os.PathLike[str], names: tuple[str, ...]) -> tuple[Path, ...]:
    """Files of ASCII grids, of which each has one column: the first as it is named, the others with their column's name."""
    first = Path(path)
    return (first, *(first.with_name(f"{first.stem}-{name}{first.suffix}") for name in names[1:]))


def write_ascii_grids(path: str | os.PathLike[str], layer: Layer, replace: bool) -> None:
    """Write an ASCII grid of Esri's for each column, numbers in the shortest form that reads back exactly."""
    assert layer.grid is not None, "write_layer lets nothing else pass"
    (x, y), (cell, _) = layer.grid.axes, _cell(layer.grid)
    corner = {"xllcorner": float(x[0] - cell / 2), "yllcorner": float(y[0] - cell / 2)}
    for file, column in zip(ascii_files(path, tuple(layer.columns)), layer.columns.values(), strict=True):
        values = layer.spread(column.values)[::-1]
        nothing = _no_value(values)
        header = {"ncols": len(x), "nrows": len(y), **corner, "cellsize": cell, "NODATA_value": nothing}
        with text_file(file, replace=replace) as stream:
            stream.writelines(f"{name} {value!r}\n" for name, value in header.items())
            filled = np.where(np.isnan(values), nothing, values)
            stream.writelines(" ".join(map(repr, row)) + "\n" for row in filled.tolist())


def _cell(grid: Grid) -> tuple[float, float]:
    """Width and height of a cell."""
    width, height = (float((axis[-1] - axis[0]) / (len(axis) - 1)) for axis in grid.axes)
    return width, height


def _no_value(values: NDArray[np.float64]) -> float:
    """A number below all values."""
    least = float(np.nanmin(values, initial=0.0))
    return _NO_VALUE if least > _NO_VALUE else float(np.floor(10.0 * least))
