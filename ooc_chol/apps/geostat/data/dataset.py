"""From a file or the built-in example to observations."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.crs import Crs, is_east, is_north
from ooc_chol.apps.geostat.data.drift import drifted, with_rasters
from ooc_chol.apps.geostat.data.grids import grid_over
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.observations import Observations, check_coordinates, check_size, make_observations
from ooc_chol.apps.geostat.data.spec import DataSpec as DataSpec
from ooc_chol.apps.geostat.data.spec import example_spec as example_spec
from ooc_chol.apps.geostat.data.tables import file_kind, load_table
from ooc_chol.apps.geostat.data.terrain import jacksboro
from ooc_chol.apps.geostat.data.units import same_unit


@dataclass(frozen=True, eq=False)
class Dataset:
    """Observations with where they were on the map, and what a user should hear about them.

    Parameters
    ----------
    spec : DataSpec
        Source of the data, and which columns are what.
    observations : Observations
        Values, Cartesian coordinates and columns of the mean.
    positions : (n, d) array
        Coordinates as in the file; after them time, number of the variable, or covariates of the covariance function.
    notes : tuple of str
        Rows dropped, duplicates.
    """

    spec: DataSpec
    observations: Observations
    positions: NDArray[np.float64]
    notes: tuple[str, ...]

    __repr__ = tb.brief_repr

    @property
    def places(self) -> NDArray[np.float64]:
        """Coordinates of space as in the file, shape ``(n, d)``."""
        return self.positions[:, : len(self.spec.coordinates)]

    @property
    def aspect(self) -> float:
        """Length of a unit of the second coordinate over that of the first on a map: of degrees, ``1 / cos(latitude)``."""
        if not self.spec.lonlat:
            return 1.0
        middle = float(np.radians(0.5 * (self.positions[:, 1].min() + self.positions[:, 1].max())))
        # at the poles no such map is right; ten is wide enough
        return 1.0 / max(math.cos(middle), 0.1)


def load_dataset(spec: DataSpec) -> Dataset:
    """Read the data that ``spec`` names.

    Parameters
    ----------
    spec : DataSpec
        File or example, and columns.

    Returns
    -------
    Dataset
        Checked observations, in the order of the file. Its specification has the units and the reference system that the file
        tells; geographic coordinates set ``lonlat``, with a note.

    Raises
    ------
    ValueError
        The file or a value in it is wrong, and the text says where; or its reference system or a unit contradicts ``spec``.
    OSError
        The file cannot be read.
    MissingExtraError
        The example needs Matplotlib, or the file a package that reads it, which is not installed.
    """
    if spec.kind == "example":
        positions, values = _example(spec.source)
        return _dataset(spec, make_observations(positions, values, mean=spec.mean), positions, ())
    table = load_table(spec.source, spec.names, texts=spec.text_columns)
    told, notes = _told_by_file(replace(spec, kind=file_kind(spec.source)), table)
    told, table, more = drifted(told, table)
    notes += more
    told = told.learned(table)
    if not spec.levels:
        texts = {name: ", ".join(levels) for name, levels in told.levels.items() if name in table.texts}
        notes += tuple(f"{name} is text: a factor of the levels {levels:.200}" for name, levels in texts.items())
    positions = table.stack(spec.axes)
    values = spec.observed(table.columns, table.rows)
    if table.rows is not None:
        check_size(values, table.rows)
        check_coordinates(positions, table.rows)
    observations = make_observations(
        told.cartesian(positions),
        values,
        covariates=told.design(table),
        covariate_names=told.terms,
        mean=spec.mean,
        error_variances=spec.errors(table.columns, table.rows),
        space=told.space,
    )
    observations = replace(observations, rows=table.rows)
    return _dataset(told, observations, positions, (*table.notes, *notes, *dropped_note(table)))


def load_sites(spec: DataSpec, path: str | Path) -> Table:
    """Read places to predict at, with the columns of ``spec`` for coordinates, time or variable, and covariates."""
    names = (*spec.axes, *spec.file_covariates)
    table = load_table(path, names, optional=spec.optional, texts=spec.text_columns)
    told, _ = _told_by_file(spec, table)
    if told.lonlat != spec.lonlat:
        raise ValueError(f"{table.source} has geographic coordinates, but the observations have not; transform them first")
    if spec.formula is None:
        spec.learned(table)  # which refuses text
    _, table, notes = drifted(spec, table)
    if table.rows is not None:
        check_coordinates(table.stack(spec.axes), table.rows)
    return replace(table, notes=(*table.notes, *notes))


def dropped_note(table: Table) -> tuple[str, ...]:
    """Say how many rows were left out, if any."""
    return (
        (f"{table.dropped} rows of {table.source} lack a value in a column that is used and were left out",)
        if table.dropped
        else ()
    )


def regular_grid(
    positions: NDArray[np.float64], columns: int, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """A grid over the bounding box of two-dimensional positions.

    Parameters
    ----------
    positions : (n, 2) array
        Positions on the map.
    columns, rows : int
        Points along the first and the second axis.

    Returns
    -------
    x : (columns,) array
        Ascending.
    y : (rows,) array
        Ascending.
    points : (rows * columns, 2) array
        All points, row by row.

    Raises
    ------
    ValueError
        The positions are not two-dimensional, or an axis has no point.
    """
    if positions.shape[1] != 2:
        raise ValueError(f"a grid needs two coordinates, but there are {positions.shape[1]}")
    grid = grid_over(positions.min(axis=0), positions.max(axis=0), (columns, rows))
    x, y = grid.axes
    return x, y, grid.points(0, grid.size)


def grid_table(spec: DataSpec, points: NDArray[np.float64], at: float | None = None) -> Table:
    """Points of a grid as a table of sites, where the mean is known between the observations; NaN where a raster has no value."""
    last = tuple(name for name in (spec.time, spec.variable) if name is not None)
    if last and at is None:
        raise ValueError(f"a grid has no {last[0]!r}: say at which one it is meant (--at)")
    if not last and at is not None:
        raise ValueError("the model has neither time nor variables: leave out --at")

    if unknown := spec.columns_off_grid:
        what = "the mean" if set(unknown) <= set(spec.covariates) else "the covariance function"
        raise ValueError(
            f"{what} needs {', '.join(unknown)} at every site, which a grid does not have; give a file of sites with these "
            "columns, or fit with rasters of them (--raster NAME=FILE.tif)"
        )
    columns = dict(zip(spec.coordinates, points.T, strict=True))
    table = Table("grid", {**columns, **{name: np.full(len(points), at) for name in last}}, 0)
    return with_rasters(spec, table)


def _example(text: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and heights of an example in the form that :func:`example_spec` writes."""
    _, size, *how = example_spec(text).source.split(":")
    return jacksboro().sample(int(size), how=cast(Literal["random", "regular"], how[0] if how else "random"))


def _told_by_file(spec: DataSpec, table: Table) -> tuple[DataSpec, tuple[str, ...]]:
    """The specification with what the file tells of units and reference system, and a note when that changes distances."""
    told = {k: unit for k, unit in table.units.items() if k in spec.names}
    found = _system_told(replace(spec, units={**spec.units, **told}), table)
    for name, unit in told.items():
        if unit and (known := spec.units.get(name, "")) and not same_unit(unit, known):
            raise ValueError(
                f"column {name!r} of {table.source} is in {unit!r}, but in {known!r} by the observations, the fit or --crs; "
                "convert it first"
            )
    return found


def _system_told(spec: DataSpec, table: Table) -> tuple[DataSpec, tuple[str, ...]]:
    """The specification with the reference system that the file tells, and a note when that changes distances."""
    if is_north(spec.units.get(spec.coordinates[0], "")):
        raise ValueError(f"column {spec.coordinates[0]!r} of {table.source} is the latitude: give the longitude first")
    crs = table.crs or _crs_by_units(spec)
    if crs is None:
        return spec, ()
    fitted = None if spec.crs is None else Crs(spec.crs, spec.lonlat)
    if table.crs is not None and fitted is not None and crs.contradicts(fitted):
        raise ValueError(
            f"{table.source} has coordinates in {crs.label}, but the fit has them in {fitted.label}; transform them first"
        )
    if spec.lonlat and not crs.is_geographic:
        raise ValueError(
            f"{table.source} has coordinates in {crs.label}, which are no longitude and latitude; leave out --lonlat"
        )
    named = spec if table.crs is None else replace(spec, crs=crs.name)
    if spec.lonlat or not crs.is_geographic:
        return named, ()
    note = f"{table.source} has geographic coordinates ({crs.label}): distances are chords in kilometres, as with --lonlat"
    return replace(named, lonlat=True), (note,)


def _crs_by_units(spec: DataSpec) -> Crs | None:
    """Longitude and latitude, where the units of two coordinates say so."""
    units = [spec.units.get(name, "") for name in spec.coordinates]
    return Crs("degrees east and north", True) if len(units) == 2 and is_east(units[0]) and is_north(units[1]) else None


def _dataset(spec: DataSpec, observations: Observations, positions: NDArray[np.float64], notes: tuple[str, ...]) -> Dataset:
    """The data with a note about duplicates."""
    if observations.duplicates:
        notes += (
            f"{observations.duplicates} observations are at a place where another one is; each counts, with a nugget of its own",
        )
    return Dataset(spec, observations, positions, notes)
