"""From a file or the built-in example to observations, and what a result file must remember to do it again for prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.data.conventions import is_east, is_north
from ooc_chol.apps.geostat.data.crs import Crs
from ooc_chol.apps.geostat.data.grids import grid_over
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.observations import Mean, Observations, chordal_coordinates, make_observations
from ooc_chol.apps.geostat.data.tables import FileKind, file_kind, load_table
from ooc_chol.apps.geostat.data.terrain import jacksboro
from ooc_chol.apps.geostat.estimation.formula import parse_formula

_DEFAULT_EXAMPLE_SIZE = 2000


@dataclass(frozen=True)
class DataSpec:
    """Which columns of which data play which part.

    Parameters
    ----------
    kind : {"csv", "parquet", "netcdf", "geopackage", "example"}
        Where the data come from; the ending of a file's name decides when it is read.
    source : str
        Path of the file (``FILE.gpkg:LAYER`` where there are several layers), or the example as ``jacksboro:N`` or
        ``jacksboro:N:regular``.
    coordinates : tuple of str
        One to three column names; with ``lonlat`` longitude, then latitude.
    value : str
        Column of the values.
    covariates : tuple of str
        Columns of the mean besides the intercept.
    lonlat : bool
        Whether the coordinates are degrees; distances are then chords in kilometres.
    mean : {"constant", "zero"}
        Whether the mean has an intercept.
    units : mapping of str to str
        Units of columns, where the file tells them.
    crs : str or None
        Name of the coordinate reference system, such as ``"EPSG:28992"``, where the file tells it.
    formula : str or None
        How values and mean are computed from the columns ``value`` and ``covariates``, which may be coordinates then.
    """

    kind: FileKind | Literal["example"]
    source: str
    coordinates: tuple[str, ...]
    value: str
    covariates: tuple[str, ...] = ()
    lonlat: bool = False
    mean: Mean = "constant"
    units: Mapping[str, str] = field(default_factory=dict)
    crs: str | None = None
    formula: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.coordinates) <= 3:
            raise ValueError(f"{len(self.coordinates)} coordinate columns are given, but 1 to 3 are possible")
        if self.lonlat and len(self.coordinates) != 2:
            raise ValueError("longitude and latitude are two coordinate columns (x and y)")
        if len(set(self._parts)) < len(self._parts):
            raise ValueError(f"a column plays two parts: {', '.join(self._parts)}")

    @property
    def _parts(self) -> tuple[str, ...]:
        """Columns that must be different ones: a formula may use coordinates."""
        return (*self.coordinates, self.value, *(self.covariates if self.formula is None else ()))

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are used."""
        return tuple(dict.fromkeys((*self.coordinates, self.value, *self.covariates)))

    @property
    def columns_off_grid(self) -> tuple[str, ...]:
        """Columns of the mean that are no coordinates, and so are not known between the observations."""
        return tuple(name for name in self.covariates if name not in self.coordinates)

    @property
    def unit(self) -> str:
        """Unit of distances; empty when only the user knows."""
        if self.lonlat or self.kind == "example":
            return "km"
        units = {self.units.get(name, "") for name in self.coordinates}
        return units.pop() if len(units) == 1 else ""

    @property
    def value_unit(self) -> str:
        """Unit of the values; empty when only the user knows, and of what a formula makes of a column."""
        if self.value_name != self.value:
            return ""
        return "m" if self.kind == "example" else self.units.get(self.value, "")

    @property
    def value_label(self) -> str:
        """Name of the values, with the unit where it is known."""
        return f"{self.value_name} ({self.value_unit})" if self.value_unit else self.value_name

    @property
    def value_name(self) -> str:
        """Name of the values: the column, or the left side of the formula."""
        return self.value if self.formula is None else parse_formula(self.formula).value

    @property
    def axis_labels(self) -> tuple[str, ...]:
        """Names of the coordinates, with the unit where it is known."""
        unit = "degrees" if self.lonlat else self.unit
        return tuple(f"{name} ({unit})" if unit else name for name in self.coordinates)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the columns of the mean besides the intercept."""
        return self.covariates if self.formula is None else parse_formula(self.formula).terms

    def design(self, table: Table) -> NDArray[np.float64]:
        """Columns of the mean besides the intercept.

        Parameters
        ----------
        table : Table
            With the columns :attr:`covariates`.

        Returns
        -------
        (n, q) array
            One column for each of :attr:`terms`.

        Raises
        ------
        ValueError
            A term of the formula is not finite in some row.
        """
        return table.stack(self.covariates) if self.formula is None else parse_formula(self.formula).covariates(table.columns)

    def observed(self, columns: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """The observed values, or what the formula makes of them.

        Parameters
        ----------
        columns : mapping of str to (n,) array
            With the column :attr:`value`.

        Returns
        -------
        (n,) array
            The values.

        Raises
        ------
        ValueError
            The left side of the formula is not finite in some row.
        """
        return columns[self.value] if self.formula is None else parse_formula(self.formula).values(columns)

    def cartesian(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coordinates whose Euclidean distance is used.

        Parameters
        ----------
        positions : (n, d) array
            Coordinates as in the file.

        Returns
        -------
        (n, d) or (n, 3) array
            Unchanged, or points of the sphere in kilometres.
        """
        return chordal_coordinates(positions[:, 0], positions[:, 1]) if self.lonlat else positions

    def to_dict(self) -> dict[str, Any]:
        """The specification as plain data for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DataSpec:
        """The specification in a result file.

        Parameters
        ----------
        data : mapping
            What :meth:`to_dict` returned.

        Returns
        -------
        DataSpec
            The specification.

        Raises
        ------
        ValueError
            A key is missing or unknown, or holds something else.
        """
        try:
            values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"the data section of the result file is not understood: {error}") from error


@dataclass(frozen=True, eq=False)
class Dataset:
    """Observations with where they were on the map, and what a user should hear about them.

    Parameters
    ----------
    spec : DataSpec
        Where they come from.
    observations : Observations
        The data; coordinates Cartesian.
    positions : (n, d) array
        Coordinates as in the file.
    notes : tuple of str
        Rows dropped, duplicates.
    """

    spec: DataSpec
    observations: Observations
    positions: NDArray[np.float64]
    notes: tuple[str, ...]

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
        The file or a value in it is wrong, and the text says where; or its reference system contradicts ``spec``.
    OSError
        The file cannot be read.
    MissingExtraError
        The example needs Matplotlib, or the file a package that reads it, which is not installed.
    """
    if spec.kind == "example":
        positions, values = _example(spec.source)
        return _dataset(spec, positions, values, np.empty((len(values), 0)), ())
    table = load_table(spec.source, spec.names)
    told, notes = _told_by_file(replace(spec, kind=file_kind(spec.source)), table)
    positions, covariates = table.stack(spec.coordinates), spec.design(table)
    return _dataset(told, positions, spec.observed(table.columns), covariates, (*table.notes, *notes, *dropped_note(table)))


def load_sites(spec: DataSpec, path: str | Path) -> Table:
    """Read places to predict at, with the coordinate and covariate columns of ``spec``.

    Parameters
    ----------
    spec : DataSpec
        Names of the columns.
    path : path
        The file.

    Returns
    -------
    Table
        Its rows with all coordinates and covariates; where the file has the column of the values, that too, NaN where it is
        missing.

    Raises
    ------
    ValueError
        The file or a value in it is wrong, and the text says where; or its reference system is not that of the observations.
    OSError
        The file cannot be read.
    MissingExtraError
        The package that reads this kind of file is not installed.
    """
    table = load_table(path, (*spec.coordinates, *spec.covariates), optional=(spec.value,))
    told, _ = _told_by_file(spec, table)
    if told.lonlat != spec.lonlat:
        raise ValueError(f"{table.source} has geographic coordinates, but the observations have not; transform them first")
    return table


def dropped_note(table: Table) -> tuple[str, ...]:
    """Say how many rows were left out, if any.

    Parameters
    ----------
    table : Table
        What was read.

    Returns
    -------
    tuple of str
        One note, or none.
    """
    return (
        (f"{table.dropped} rows of {table.source} lack a value in a column that is used and were left out",)
        if table.dropped
        else ()
    )


def example_spec(text: str) -> DataSpec:
    """The specification of a built-in example.

    Parameters
    ----------
    text : str
        ``jacksboro``, ``jacksboro:N`` or ``jacksboro:N:regular``.

    Returns
    -------
    DataSpec
        The terrain's columns are ``east``, ``north`` and ``height``.

    Raises
    ------
    ValueError
        There is no such example.
    """
    name, *options = text.split(":")
    if (
        name != "jacksboro"
        or len(options) > 2
        or options[1:] not in ([], ["regular"])
        or not all(o.isdecimal() for o in options[:1])
    ):
        raise ValueError(
            f"there is no example {text!r}; there is jacksboro, jacksboro:N (N heights at random) and jacksboro:N:regular"
        )
    size = options[0] if options else str(_DEFAULT_EXAMPLE_SIZE)
    return DataSpec("example", ":".join([name, size, *options[1:]]), ("east", "north"), "height")


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


def grid_table(spec: DataSpec, points: NDArray[np.float64]) -> Table:
    """Points of a grid as a table of sites, where the mean is known between the observations.

    Parameters
    ----------
    spec : DataSpec
        Names of the columns.
    points : (m, d) array
        Coordinates as in the file.

    Returns
    -------
    Table
        With the coordinate columns.

    Raises
    ------
    ValueError
        The mean has columns that are no coordinates, which a grid does not have.
    """
    if unknown := spec.columns_off_grid:
        raise ValueError(
            f"the mean needs {', '.join(unknown)} at every site, which a grid does not have; give a file of sites with these "
            "columns"
        )
    return Table("grid", dict(zip(spec.coordinates, points.T, strict=True)), 0)


def _example(text: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and heights of an example in the form that :func:`example_spec` writes."""
    _, size, *how = example_spec(text).source.split(":")
    return jacksboro().sample(int(size), how=cast(Literal["random", "regular"], how[0] if how else "random"))


def _told_by_file(spec: DataSpec, table: Table) -> tuple[DataSpec, tuple[str, ...]]:
    """The specification with what the file tells of units and reference system, and a note when that changes distances."""
    spec = replace(spec, units={**spec.units, **{k: unit for k, unit in table.units.items() if k in spec.names}})
    if is_north(spec.units.get(spec.coordinates[0], "")):
        raise ValueError(f"column {spec.coordinates[0]!r} of {table.source} is the latitude: give the longitude first")
    crs = table.crs or _crs_by_units(spec)
    if crs is None:
        return spec, ()
    if table.crs is not None and spec.crs is not None and crs.contradicts(Crs(spec.crs, spec.lonlat)):
        raise ValueError(
            f"{table.source} has coordinates in {crs.label}, but the fit has them in {spec.crs}; transform them first"
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


def _dataset(
    spec: DataSpec,
    positions: NDArray[np.float64],
    values: NDArray[np.float64],
    covariates: NDArray[np.float64],
    notes: tuple[str, ...],
) -> Dataset:
    """Observations with notes about duplicates."""
    observations = make_observations(
        spec.cartesian(positions), values, covariates=covariates, covariate_names=spec.terms, mean=spec.mean
    )
    if observations.duplicates:
        notes += (
            f"{observations.duplicates} observations are at a place where another one is; each counts, with a nugget of its own",
        )
    return Dataset(spec, observations, positions, notes)
