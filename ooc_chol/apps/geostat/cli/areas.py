"""Options that say on which grid predictions and draws are wanted, and of which rasters the mean is made."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.cli.options import numbers
from ooc_chol.apps.geostat.data.areas import Area, area_of_raster, area_sites, check_same_system, grid_of_cells, masked
from ooc_chol.apps.geostat.data.grids import Grid, grid_over
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.rasters import is_raster, raster_part, read_raster
from ooc_chol.apps.geostat.data.spec import DataSpec
from ooc_chol.apps.geostat.results import SavedFit


def add_grid(places: argparse._ActionsContainer) -> None:
    """Add ``--grid`` and ``--cell``, either of which asks for a grid."""
    places.add_argument(
        "--grid",
        metavar="NX,NY|RASTER",
        type=_grid,
        help="on a grid over the observations, or over --box; or on the cells of this .tif, .asc or .nc that have a value",
    )
    places.add_argument(
        "--cell",
        metavar="SIZE",
        type=numbers,
        help="on a grid of this cell size (or SIZE_X,SIZE_Y), in the unit of the coordinates",
    )


def add_grid_parts(parser: argparse._ActionsContainer) -> None:
    """Add ``--box`` and ``--mask``."""
    parser.add_argument("--box", type=numbers, metavar="X0,Y0,X1,Y1", help="two corners of the grid")
    parser.add_argument(
        "--mask",
        metavar="FILE",
        help="leave out what is outside these polygons (.gpkg, .geojson), or has no value in this raster",
    )


def add_raster(
    parser: argparse._ActionsContainer, *, text: str = "read these covariates from other rasters than fit did"
) -> None:
    """Add ``--raster NAME=FILE``, which may be given several times."""
    parser.add_argument("--raster", metavar="NAME=FILE.tif", type=_raster, action="append", default=[], help=text)


def wants_grid(options: argparse.Namespace) -> bool:
    """Tell whether a grid is asked for; ``ValueError`` where parts of one are, or two of them."""
    if options.grid is not None and options.cell is not None:
        raise ValueError("--grid and --cell are two grids: leave one out")
    is_wanted = options.grid is not None or options.cell is not None
    for name in ("box", "mask"):
        if not is_wanted and getattr(options, name) is not None:
            raise ValueError(f"--{name} is of a grid: give --grid or --cell, or leave it out")
    if isinstance(options.grid, str) and options.box is not None:
        raise ValueError("--grid RASTER is a whole grid: leave out --box")
    return is_wanted


def area_files(options: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Files that say where the grid is, and rasters, for :func:`check_files`."""
    grid = getattr(options, "grid", None)  # plot map has none
    files = [("--mask", options.mask), ("--grid", grid if isinstance(grid, str) else None)]
    return [*((name, None if path is None else raster_part(path)[0]) for name, path in files), *raster_files(options)]


def raster_files(options: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Rasters, for :func:`check_files`."""
    return [("--raster", raster_part(path)[0]) for _, path in options.raster]


def with_other_rasters(saved: SavedFit, options: argparse.Namespace) -> SavedFit:
    """A saved fit whose rasters are those of the options, where these name any."""
    if not options.raster:
        return saved
    unknown = [name for name, _ in options.raster if name not in saved.spec.rasters]
    if unknown:
        there = ", ".join(saved.spec.rasters) or "none"
        raise ValueError(f"--raster {unknown[0]}: the model was fitted without such a raster; its rasters are: {there}")
    return replace(saved, spec=replace(saved.spec, rasters={**saved.spec.rasters, **dict(options.raster)}))


def grid_sites(spec: DataSpec, options: argparse.Namespace, places: Callable[[], NDArray[np.float64]]) -> tuple[Table, Area]:
    """Sites of the grid that the options ask for, with notes; ``places`` are those of observations, for want of a box."""
    if len(spec.coordinates) != 2:
        raise ValueError(f"a grid has two axes, but the model has {len(spec.coordinates)} coordinates: give a file of sites")
    if isinstance(options.grid, str):
        raster = read_raster(options.grid)
        check_same_system(raster.crs, spec, raster.source)
        area = area_of_raster(raster)
    else:
        area = Area(_asked_grid(options, _corners(options, places)))
    if options.mask is not None:
        area = masked(area, options.mask, spec)
    sites, area, notes = area_sites(spec, area, options.at)
    for text in notes:
        note(text)
    return sites, area


def _corners(
    options: argparse.Namespace, places: Callable[[], NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of the box: those that are given, or those of the observations."""
    if options.box is None:
        there = places()
        return there.min(axis=0), there.max(axis=0)
    return box_corners(options.box)


def box_corners(box: tuple[float, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """South-west and north-east corner of ``--box``."""
    if len(box) != 4:
        raise ValueError(f"--box has {len(box)} numbers, but X0,Y0,X1,Y1 are four")
    corners = np.array(box).reshape(2, 2)
    return corners.min(axis=0), corners.max(axis=0)


def _asked_grid(options: argparse.Namespace, corners: tuple[NDArray[np.float64], NDArray[np.float64]]) -> Grid:
    """The grid of so many points or of that cell size."""
    if options.cell is None:
        return grid_over(*corners, options.grid)
    if len(options.cell) not in (1, 2):
        raise ValueError(f"--cell has {len(options.cell)} numbers, but SIZE or SIZE_X,SIZE_Y are one or two")
    return grid_of_cells(*corners, (options.cell[0], options.cell[-1]))


def _grid(text: str) -> tuple[int, int] | str:
    """Points along two axes, or the path of a raster."""
    if is_raster(text):
        return text
    match = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither of the form NX,NY nor a raster (.tif, .asc, .nc)")
    return int(match[1]), int(match[2])


def _raster(text: str) -> tuple[str, str]:
    """``NAME=FILE``."""
    name, equals, path = text.partition("=")
    if not (name.strip() and equals and is_raster(path.strip())):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=FILE with a .tif, .asc or .nc file")
    return name.strip(), path.strip()


def chosen_rasters(options: argparse.Namespace) -> dict[str, str]:
    """Rasters by name; ``ValueError`` where one is named twice."""
    found: dict[str, str] = {}
    for name, path in options.raster:
        if name in found:
            raise ValueError(f"--raster {name} is given twice")
        found[name] = path
    return found
