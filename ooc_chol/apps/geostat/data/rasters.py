"""Rasters on the way in: GeoTIFF by GDAL through rasterio, ASCII grids, and grids of NetCDF files; their values at points."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.ascii_grid import read_ascii_grid
from ooc_chol.apps.geostat.data.crs import Crs, described
from ooc_chol.apps.geostat.data.endings import ASCII_GRID, GEOTIFF
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.grids import Grid, ascending
from ooc_chol.apps.geostat.data.io import check_table_room
from ooc_chol.apps.geostat.data.netcdf_grid import read_netcdf_grid

#: How a raster is read between the centres of its cells.
Sampling = Literal["bilinear", "nearest"]

#: Endings of NetCDF files that are read.
_NETCDF = (".nc", ".nc3", ".nc4", ".cdf")


@dataclass(frozen=True, eq=False)
class Raster:
    """Values in the cells of a grid; made by :func:`read_raster`.

    Parameters
    ----------
    source : str
        File name, for messages.
    grid : Grid
        Centres of the cells, both axes ascending.
    values : (ny, nx) array
        Row by row as the points of the grid; NaN where there is none.
    crs : Crs or None
        Coordinate reference system, where the file tells it.
    """

    source: str
    grid: Grid
    values: NDArray[np.float64]
    crs: Crs | None = None

    __repr__ = tb.brief_repr

    @property
    def _step(self) -> float:
        """Size of a cell along an axis of one cell: that along the other."""
        return next((float(axis[1] - axis[0]) for axis in self.grid.axes if len(axis) > 1), 0.0)

    def at(self, points: NDArray[np.float64], how: Sampling = "bilinear") -> NDArray[np.float64]:
        """Values at points; NaN where the cell of a point has none, and beyond the raster.

        Parameters
        ----------
        points : (m, 2) array
            Positions in the raster's coordinates.
        how : {"bilinear", "nearest"}
            Between the four nearest centres, those without a value left out, as far as half a cell beyond the outermost ones; or
            the value of the cell that holds the point, as codes need it.

        Returns
        -------
        (m,) array
            In the unit of the raster.

        Raises
        ------
        ValueError
            There is no such way.
        """
        if how not in ("bilinear", "nearest"):
            raise ValueError(f"a raster is sampled bilinear or nearest, not {how!r}")
        places = [_place(axis, points[:, k], self._step) for k, axis in enumerate(self.grid.axes)]
        inside = np.logical_and.reduce([(t >= -0.5) & (t <= len(a) - 0.5) for t, a in zip(places, self.grid.axes, strict=True)])
        # a point on the edge between two cells is in the second, but for the last edge
        cells = [
            np.clip(np.nan_to_num(np.floor(t + 0.5)), 0, len(a) - 1).astype(int)
            for t, a in zip(places, self.grid.axes, strict=True)
        ]
        nearest = self.values[cells[1], cells[0]]
        found = nearest if how == "nearest" else _bilinear(self.values, *places)
        return np.where(inside & np.isfinite(nearest), found, np.nan)


def read_raster(path: str | os.PathLike[str]) -> Raster:
    """Read one band or variable of a raster.

    Parameters
    ----------
    path : path
        ``.tif`` or ``.tiff`` (GeoTIFF, with ``:BAND`` behind it for another than the first), ``.asc`` (Esri's ASCII grid), or
        ``.nc``, ``.nc3``, ``.nc4`` or ``.cdf`` (a grid of a NetCDF file, with ``:VARIABLE`` behind it where there are several).

    Returns
    -------
    Raster
        Values with scale and offset applied, NaN where there is none; its axes ascend.

    Raises
    ------
    ValueError
        The file is no such raster, is damaged, or is turned against its axes.
    OSError
        The file cannot be read.
    BudgetError
        There is not enough memory for it.
    MissingExtraError
        The package that reads this kind of file is not installed.
    """
    file, part = raster_part(path)
    suffix = Path(file).suffix.lower()
    if suffix in GEOTIFF:
        return _read_geotiff(Path(file), part)
    if suffix in ASCII_GRID and part is None:
        return Raster(Path(file).name, *read_ascii_grid(file))
    if suffix in _NETCDF:
        return Raster(Path(file).name, *read_netcdf_grid(file, part))
    raise ValueError(f"{os.fspath(path)}: rasters are read from .tif, .tiff, .asc, .nc, .nc3, .nc4 or .cdf")


def raster_part(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """Split ``FILE.tif:BAND`` or ``FILE.nc:VARIABLE``."""
    text = os.fspath(path)
    match = re.fullmatch(r"(.*\.(?:tiff?|asc|nc[34]?|cdf)):([^/\\]+)", text, flags=re.IGNORECASE | re.DOTALL)
    return (match[1], match[2]) if match else (text, None)


def is_raster(path: str | os.PathLike[str]) -> bool:
    """Tell whether the ending of a name is that of a raster; a NetCDF file may be one."""
    return Path(raster_part(path)[0]).suffix.lower() in (*GEOTIFF, *ASCII_GRID, *_NETCDF)


def _read_geotiff(file: Path, part: str | None) -> Raster:
    """One band of a GeoTIFF: of no other driver of GDAL, some of which open further files and addresses."""
    tb.input_file(file).close()  # a file that is not there is an OSError with its name
    rasterio, errors = (imported(module, "GeoTIFFs are read", "raster") for module in ("rasterio", "rasterio.errors"))
    try:
        with rasterio.open(file.absolute(), driver="GTiff") as raster:
            band = _band(raster.count, part, file.name)
            check_table_room(file.name, raster.height * raster.width, 1)
            values = raster.read(band, masked=True).astype(np.float64).filled(np.nan)
            values = values * raster.scales[band - 1] + raster.offsets[band - 1]
            transform, system = raster.transform, raster.crs
            wkt = system.to_wkt() if system else None
    except errors.RasterioError as error:
        raise ValueError(f"{file.name} is not a GeoTIFF, or is damaged: {error!s:.300}") from error
    if transform.b or transform.d or not transform.a or not transform.e:
        raise ValueError(f"{file.name} is turned against its axes, or has no place; warp it first, as gdalwarp does")
    x = transform.c + transform.a * (np.arange(values.shape[1]) + 0.5)
    y = transform.f + transform.e * (np.arange(values.shape[0]) + 0.5)
    crs = described(wkt, file.name) if wkt else None
    return Raster(file.name, *ascending(x, y, values), crs)


def _band(count: int, part: str | None, source: str) -> int:
    """The number of a band, counted from one."""
    if part is None:
        return 1
    if not part.isdecimal() or not 1 <= int(part) <= count:
        raise ValueError(f"{source} has no band {part!r}; write {source}:BAND with a number from 1 to {count}")
    return int(part)


def _place(axis: NDArray[np.float64], coordinate: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Positions along an axis, counted in cells from the centre of the first; linear between centres and beyond the last ones."""
    if len(axis) == 1:
        return (coordinate - axis[0]) / step if step else np.where(coordinate == axis[0], 0.0, np.inf)
    left = np.clip(np.searchsorted(axis, coordinate, side="right") - 1, 0, len(axis) - 2)
    return np.asarray(left + (coordinate - axis[left]) / (axis[left + 1] - axis[left]))


def _bilinear(values: NDArray[np.float64], u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Between four centres, those without a value left out."""
    with tb.guarded_imports():
        from scipy.ndimage import map_coordinates

    known, places = np.isfinite(values), np.nan_to_num([v, u])
    total, weights = (
        map_coordinates(one, places, order=1, mode="nearest") for one in (np.where(known, values, 0.0), known.astype(np.float64))
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total / weights)
