"""Which columns of which data play which part: what a result file must remember to read them again for prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.formula import Basis, parse_formula
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.observations import Mean
from ooc_chol.apps.geostat.data.rows import Rows, counted_rows
from ooc_chol.apps.geostat.data.sphere import chordal_coordinates
from ooc_chol.apps.geostat.data.tables import FileKind
from ooc_chol.apps.geostat.data.transforms import Transform, transform_named, transform_of, transformed

_DEFAULT_EXAMPLE_SIZE = 2000

#: ``"euclidean"``: in the coordinates, or of longitude and latitude the chord; ``"great-circle"``: the arc.
Distance = Literal["euclidean", "great-circle"]


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
        True if the coordinates are degrees; distances are then chords in kilometres.
    mean : {"constant", "zero"}
        True if the mean has an intercept.
    units : mapping of str to str
        Units of columns, where the file tells them.
    crs : str or None
        Name of the coordinate reference system, such as ``"EPSG:28992"``, where the file tells it.
    formula : str or None
        How values and mean are computed from the columns ``value`` and ``covariates``, which may be coordinates then.
    time : str or None
        Column of the time, the last coordinate of space-time covariance functions.
    variable : str or None
        Column of the number of the variable, 0 or 1, the last coordinate of bivariate covariance functions. Each variable has a
        mean of its own then, unless there is a formula.
    distance : {"euclidean", "great-circle"}
        For longitude and latitude: the chord, or the arc, for which degrees are handed on.
    error_variance, error_sd : str or None
        Column of the known error of each observation: its variance, in squared units of the values, or its standard deviation.
    local_covariates : tuple of str
        Columns of the covariates of a covariance function that changes from place to place, in its order; they may be
        coordinates, or columns of the mean.
    transform : str or None
        Transform of the values before they are fitted: ``"log"`` or ``"boxcox=LAMBDA"``. A formula may transform them itself.
    rasters : mapping of str to str
        Covariates that are read from rasters at every place, in place of columns: their paths by name.
    levels, polynomials : mapping
        Facts that the columns of the formula take from the observations, as :class:`Basis` has it.
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
    time: str | None = None
    variable: str | None = None
    distance: Distance = "euclidean"
    error_variance: str | None = None
    error_sd: str | None = None
    local_covariates: tuple[str, ...] = ()
    transform: str | None = None
    rasters: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    polynomials: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    __repr__ = tb.brief_repr

    def __post_init__(self) -> None:
        if not 1 <= len(self.coordinates) <= 3:
            raise ValueError(f"{len(self.coordinates)} coordinate columns are given, but 1 to 3 are possible")
        if self.lonlat and len(self.coordinates) != 2:
            raise ValueError("longitude and latitude are two coordinate columns (x and y)")
        if self.distance not in ("euclidean", "great-circle"):
            raise ValueError(f"distance is {self.distance!r}, but there are 'euclidean' and 'great-circle'")
        if self.distance == "great-circle" and not self.lonlat:
            raise ValueError(
                "the great-circle distance is one of longitude and latitude: say that the coordinates are (--lonlat)"
            )
        if self.time is not None and self.variable is not None:
            raise ValueError("there is no covariance function of both time and two variables here: leave one out")
        if self.error_variance is not None and self.error_sd is not None:
            raise ValueError("known errors are given by their variances or by their standard deviations, not by both")
        if self.local_covariates and (self.time is not None or self.variable is not None or self.distance == "great-circle"):
            raise ValueError("covariates of the covariance function are for space alone, by chords or Euclidean distances")
        if set(self.local_covariates) & {self.value, *self._errors}:
            raise ValueError(
                f"values and their errors are no covariates of a covariance function: {', '.join(self.local_covariates)}"
            )
        if self.transform is not None:
            transform_named(self.transform)
            if self.formula is not None and parse_formula(self.formula).value != self.value:
                raise ValueError("the left side of the formula transforms values already: leave it a column, or --transform out")
        if unused := [name for name in self.rasters if name not in self.covariates]:
            raise ValueError(f"the raster {unused[0]!r} is no covariate: name it in --covariates or in the --formula")
        if self.rasters and len(self.coordinates) != 2:
            raise ValueError(f"rasters have two coordinates, but the data have {len(self.coordinates)}")
        if taken := [name for name in self.rasters if name in (*self.axes, *self.optional)]:
            raise ValueError(f"the raster {taken[0]!r} has the name of a column that plays another part: give it another one")
        if len(set(self._parts)) < len(self._parts):
            raise ValueError(f"a column plays two parts: {', '.join(self._parts)}")

    @property
    def _parts(self) -> tuple[str, ...]:
        """Columns that must be different ones: a formula may use coordinates."""
        return (*self._own_axes, self.value, *self._errors, *(self.covariates if self.formula is None else ()))

    @property
    def _own_axes(self) -> tuple[str, ...]:
        """The coordinates, and after them the time or the number of the variable where there is one."""
        return (*self.coordinates, *(name for name in (self.time, self.variable) if name is not None))

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns of a site, each once: coordinates, time or number of the variable, covariates of the covariance."""
        return tuple(dict.fromkeys((*self._own_axes, *self.local_covariates)))

    @property
    def _errors(self) -> tuple[str, ...]:
        """The column of known errors, if any."""
        return tuple(name for name in (self.error_variance, self.error_sd) if name is not None)

    @property
    def optional(self) -> tuple[str, ...]:
        """Columns that new sites may have: values, with which predictions are scored, and the errors of these."""
        return (self.value, *self._errors)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of the file that are used."""
        return tuple(dict.fromkeys((*self.axes, *self.optional, *self.file_covariates)))

    @property
    def file_covariates(self) -> tuple[str, ...]:
        """Columns of the mean that come from the file, and not from rasters."""
        return tuple(name for name in self.covariates if name not in self.rasters)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns of the file that may hold words or codes."""
        named = self.covariates if self.formula is None else parse_formula(self.formula).text_columns
        return tuple(name for name in named if name in self.file_covariates and name not in (*self.axes, *self.optional))

    @property
    def columns_off_grid(self) -> tuple[str, ...]:
        """Columns of mean or covariance that are neither coordinates nor rasters, so that they are not known everywhere."""
        both = dict.fromkeys((*self.file_covariates, *self.local_covariates))
        return tuple(name for name in both if name not in self._own_axes)

    @property
    def basis(self) -> Basis:
        """Levels and polynomials of the formula."""
        return Basis(self.levels, self.polynomials)

    def learned(self, table: Table) -> DataSpec:
        """The specification with the levels and polynomials of the formula, which the first observations tell.

        Parameters
        ----------
        table : Table
            The observations, with the columns ``covariates`` and ``axes``.

        Returns
        -------
        DataSpec
            This one itself where there is no formula, or one that was fitted.

        Raises
        ------
        ValueError
            A column of text is no part of a formula, or a factor or polynomial cannot be made.
        """
        if self.formula is None:
            if table.texts:
                name = next(iter(table.texts))
                raise ValueError(
                    f"column {name!r} of {table.source} is text, as codes in quotation marks are: name it in a --formula, where "
                    "it is a factor, or write it without quotation marks"
                )
            return self
        if self.levels or self.polynomials:
            return self
        found = parse_formula(self.formula).basis(table.all_columns, rows=table.rows)
        return replace(self, levels=found.levels, polynomials=found.polynomials)

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
        name = self.value if self.formula is None else parse_formula(self.formula).value
        return name if self.transform is None else f"{transform_named(self.transform)} of {name}"

    @property
    def way_back(self) -> Transform | None:
        """Transformation of the fitted values back to the scale of their column, if any."""
        if self.transform is not None:
            return transform_named(self.transform)
        found = None if self.formula is None else transform_of(parse_formula(self.formula).value)
        return None if found is None else found[1]

    @property
    def as_observed(self) -> DataSpec:
        """For names and units of what is given on the scale of the column of the values: without formula and transformation."""
        return replace(self, formula=None, transform=None, covariates=(), rasters={}, levels={}, polynomials={})

    @property
    def axis_labels(self) -> tuple[str, ...]:
        """Names of the coordinates, with the unit where it is known."""
        unit = "degrees" if self.lonlat else self.unit
        return tuple(f"{name} ({unit})" if unit else name for name in self.coordinates)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the columns of the mean besides the intercept."""
        return self._columns if self.formula is None else parse_formula(self.formula).names(self.basis)

    @property
    def _columns(self) -> tuple[str, ...]:
        """Columns of a mean without formula: where each variable has its own, that of the second less that of the first too."""
        own = () if self.variable is None or self.mean == "zero" else (self.variable,)
        return (*own, *self.covariates)

    def design(self, table: Table) -> NDArray[np.float64]:
        """Columns of the mean besides the intercept.

        Parameters
        ----------
        table : Table
            With the columns ``covariates`` and ``axes``.

        Returns
        -------
        (n, q) array
            One column for each of ``terms``.

        Raises
        ------
        ValueError
            A term of the formula is not finite in some row. As ``UnknownLevelError``, a factor has a level that the fit had not.
        """
        if self.formula is None:
            return table.stack(self._columns)
        return parse_formula(self.formula).covariates(table.all_columns, self.basis, rows=table.rows)

    def observed(self, columns: Mapping[str, NDArray[np.float64]], rows: Rows | None = None) -> NDArray[np.float64]:
        """The observed values, or what the formula makes of them.

        Parameters
        ----------
        columns : mapping of str to (n,) array
            With the column ``value``.
        rows : Rows, optional
            Names of the rows in messages; numbers counted from zero when not given.

        Returns
        -------
        (n,) array
            Values of the column, or of the left side of the formula.

        Raises
        ------
        ValueError
            The left side of the formula is not finite in some row, or a value cannot be transformed.
        """
        values = columns[self.value] if self.formula is None else parse_formula(self.formula).values(columns, rows=rows)
        return values if self.transform is None else transformed(transform_named(self.transform), values, rows)

    def errors(self, columns: Mapping[str, NDArray[np.float64]], rows: Rows | None = None) -> NDArray[np.float64] | None:
        """Known error variances of observations.

        Parameters
        ----------
        columns : mapping of str to (n,) array
            With the column of known errors, where there is one.
        rows : Rows, optional
            Names of the rows in messages; numbers counted from zero when not given.

        Returns
        -------
        (n,) array or None
            In squared units of the values; None where the columns have none.

        Raises
        ------
        ValueError
            One is negative, or missing.
        """
        found = [columns[name] for name in self._errors if name in columns]
        if not found:
            return None
        wrong = ~(found[0] >= 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            where = (rows or counted_rows(row + 1, "row")).named(row)
            raise ValueError(
                f"the known error {self._errors[0]!r} of {where} is {found[0][row]}, but it must be zero or positive"
            )
        return found[0] if self.error_variance is not None else found[0] ** 2

    def cartesian(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coordinates as covariance functions want them.

        Parameters
        ----------
        positions : (n, d) array
            Columns :attr:`axes` as in the file.

        Returns
        -------
        (n, q) array
            With points of the sphere in kilometres in the place of longitude and latitude, and covariates of the covariance
            function at the end; else unchanged.
        """
        own = positions[:, : len(self._own_axes)]
        if self.lonlat and self.distance != "great-circle":
            own = np.column_stack([chordal_coordinates(own[:, 0], own[:, 1]), own[:, 2:]])
        local = [positions[:, self.axes.index(name)] for name in self.local_covariates]
        return np.column_stack([own, *local]) if local else own

    @property
    def space(self) -> int | None:
        """How many of the coordinates of :meth:`cartesian` are space, where others are covariates; None where none are."""
        return (3 if self.lonlat else len(self.coordinates)) if self.local_covariates else None

    def to_dict(self) -> dict[str, Any]:
        """The specification as plain data for JSON."""
        return {name: _plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DataSpec:
        """The specification in a result file.

        Parameters
        ----------
        data : mapping
            Plain data, as :meth:`to_dict` returns them.

        Returns
        -------
        DataSpec
            The specification that made ``data``.

        Raises
        ------
        ValueError
            A key is missing or unknown, or holds something else.
        """
        try:
            values: dict[str, Any] = {name: _frozen(value) for name, value in data.items()}
            kinds = {one.name: str(one.type) for one in fields(cls)}
            wrong = [name for name, value in values.items() if name in kinds and not _fits(value, kinds[name])]
            if wrong:
                raise TypeError(f"{wrong[0]} is {values[wrong[0]]!r:.80}")
            return cls(**values)
        except (AttributeError, TypeError) as error:
            raise ValueError(f"the data section of the result file is not understood: {error!s:.200}") from error


def _plain(value: Any) -> Any:
    """Tuples as lists, those within mappings too."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    """Lists as tuples, those within mappings too."""
    if isinstance(value, Mapping):
        return {name: _frozen(one) for name, one in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _are(value: object, kind: type) -> bool:
    """Tell whether this is a tuple of such values, of which it has at least one."""
    return isinstance(value, tuple) and bool(value) and all(isinstance(one, kind) and one == one for one in value)


def _is_polynomial(value: object) -> bool:
    """Tell whether these are centres and one more norms, which are positive."""
    if not _are(value, float) or not isinstance(value, tuple) or len(value) < 3 or len(value) % 2 == 0:
        return False
    return all(abs(one) < float("inf") for one in value) and all(norm > 0 for norm in value[len(value) // 2 :])


#: What the values of a mapping of a specification are, by its type.
_FITTING: Mapping[str, Callable[[object], bool]] = {
    "Mapping[str, str]": lambda value: isinstance(value, str),
    "Mapping[str, tuple[str, ...]]": lambda value: _are(value, str),
    "Mapping[str, tuple[float, ...]]": _is_polynomial,
}


def _fits(value: object, kind: str) -> bool:
    """Tell whether plain data are what a field of :class:`DataSpec` holds."""
    if kind.startswith("tuple"):
        return isinstance(value, tuple) and all(isinstance(name, str) for name in value)
    if kind.startswith("Mapping"):
        return isinstance(value, Mapping) and all(_FITTING[kind](one) for one in value.values())
    if kind == "bool":
        return isinstance(value, bool)
    return isinstance(value, str) or (value is None and kind.endswith("None"))


def example_spec(text: str) -> DataSpec:
    """The specification of a built-in example."""
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
