"""Areas that are predicted or drawn from: grids, whole or masked, and the columns of the mean on them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.crs import Crs
from ooc_chol.apps.geostat.data.dataset import grid_table
from ooc_chol.apps.geostat.data.grids import Grid, grid_over, spread
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.polygons import inside_polygons
from ooc_chol.apps.geostat.data.rasters import Raster, is_raster, read_raster
from ooc_chol.apps.geostat.data.spec import DataSpec

#: Steps of a cell size that a box may be short of a whole number.
_ROUNDED = 1e-6


@dataclass(frozen=True, eq=False)
class Area:
    """Points of a grid of two axes.

    Parameters
    ----------
    grid : Grid
        The whole grid.
    cells : (m,) array of int or None
        Which of its points belong to the area; None for all.
    """

    grid: Grid
    cells: NDArray[np.intp] | None = None

    __repr__ = tb.brief_repr

    @property
    def points(self) -> NDArray[np.float64]:
        """Coordinates of all points of the area, shape ``(m, 2)``, row by row."""
        points = self.grid.points(0, self.grid.size)
        return points if self.cells is None else points[self.cells]

    def spread(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values at the points of the area on the whole grid.

        Parameters
        ----------
        values : (m,) array
            One for each of :attr:`points`.

        Returns
        -------
        (ny, nx) array
            Row by row, NaN outside the area.
        """
        return spread(self.grid, self.cells, values)

    def only(self, chosen: NDArray[np.bool_]) -> Area:
        """The area without some of its points.

        Parameters
        ----------
        chosen : (m,) array of bool
            False for points that are left out.

        Returns
        -------
        Area
            This one itself where none is.
        """
        if chosen.all():
            return self
        cells = np.arange(self.grid.size) if self.cells is None else self.cells
        return Area(self.grid, cells[chosen])


def grid_of_cells(lowest: NDArray[np.float64], highest: NDArray[np.float64], size: tuple[float, float]) -> Grid:
    """A grid of a cell size that starts in a corner of a box, with the last point within it.

    Parameters
    ----------
    lowest, highest : (2,) array
        Corners of the box.
    size : (float, float)
        Distance of points along either axis, in the unit of the coordinates.

    Returns
    -------
    Grid
        With a point at ``lowest``.

    Raises
    ------
    ValueError
        A size is not positive, or a corner is not finite.
    """
    if not all(0 < one < np.inf for one in size):
        raise ValueError(f"cells of {size[0]:g} by {size[1]:g} are asked for, but both must be positive")
    steps = np.floor((np.asarray(highest) - lowest) / size + _ROUNDED)
    if not np.isfinite(steps).all() or (steps < 0).any():
        raise ValueError(f"the corners {list(lowest)} and {list(highest)} must be finite, the first one to the south-west")
    tb.check_room(8 * int(np.prod(steps + 1)) * 4, "memory for a grid of this cell size", "take larger cells or a smaller box")
    return grid_over(lowest, lowest + steps * size, tuple(int(count) + 1 for count in steps))


def area_of_raster(raster: Raster) -> Area:
    """The centres of the cells of a raster that have a value.

    Parameters
    ----------
    raster : Raster
        Whose grid is taken.

    Returns
    -------
    Area
        Its cells without those that have no value.
    """
    return Area(raster.grid).only(np.isfinite(raster.values).ravel())


def masked(area: Area, path: str | os.PathLike[str], spec: DataSpec) -> Area:
    """The part of an area within polygons of a file, or where a raster has a value.

    Parameters
    ----------
    area : Area
        The whole.
    path : path
        ``.gpkg`` (with ``:LAYER`` where there are several), ``.geojson`` or ``.json`` with polygons; or a raster, whose cells
        without a value are outside, and those of 0 where it has nothing but 0 and 1.
    spec : DataSpec
        Reference system of the area, which the file's must not contradict.

    Returns
    -------
    Area
        At least one point.

    Raises
    ------
    ValueError
        Nothing of the area is left, the file is of another kind, or in another reference system.
    """
    points = area.points
    if is_raster(path):
        raster = read_raster(path)
        check_same_system(raster.crs, spec, raster.source)
        found = raster.at(points, "nearest")
        values = raster.values[np.isfinite(raster.values)]
        is_flag = bool(np.isin(values, (0.0, 1.0)).all()) and bool((values == 1).any())
        inside = np.isfinite(found) & ~(is_flag & (found == 0))
    else:
        inside, crs = inside_polygons(path, points)
        check_same_system(crs, spec, Path(path).name)
    if not inside.any():
        raise ValueError(f"no point of the grid is inside {os.fspath(path)}: are its coordinates those of the data?")
    return area.only(inside)


def check_same_system(crs: Crs | None, spec: DataSpec, source: str) -> None:
    """Raise ``ValueError`` where a file's reference system is not that of the data, or degrees meet lengths."""
    if crs is None:
        return
    ours = None if spec.crs is None else Crs(spec.crs, spec.lonlat)
    if crs.is_geographic != spec.lonlat or (ours is not None and crs.contradicts(ours)):
        there = ours.label if ours is not None else "degrees" if spec.lonlat else "lengths"
        raise ValueError(f"{source} has coordinates in {crs.label}, but the fit has them in {there}; transform them first")


def area_sites(spec: DataSpec, area: Area, at: float | None = None) -> tuple[Table, Area, tuple[str, ...]]:
    """Sites of an area with the columns of the mean; points where a raster has no value are left out, with a note.

    Parameters
    ----------
    spec : DataSpec
        Columns, rasters, and what is time or variable.
    area : Area
        Where.
    at : float or None
        Time, or number of the variable, where there is one.

    Returns
    -------
    table : Table
        One row for each point.
    area : Area
        The area that is left.
    notes : tuple of str
        How many points were left out.

    Raises
    ------
    ValueError
        The mean needs a column that is not known on a grid, or no point has a value of all rasters.
    """
    table = grid_table(spec, area.points, at)
    is_known = np.logical_and.reduce([np.isfinite(column) for column in table.columns.values()])
    if is_known.all():
        return table, area, ()
    names = ", ".join(spec.rasters)
    if not is_known.any():
        raise ValueError(f"no point of the grid has a value of {names}: are their coordinates those of the data?")
    note = f"{int(np.sum(~is_known))} of {table.n} points of the grid have no value of {names} and are left out"
    kept = {name: column[is_known] for name, column in table.columns.items()}
    return replace(table, columns=kept), area.only(is_known), (note,)
