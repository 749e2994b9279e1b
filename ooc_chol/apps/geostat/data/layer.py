"""Columns at places, ready to be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.crs import LATITUDE_LONGITUDE
from ooc_chol.apps.geostat.data.grids import Grid, spread
from ooc_chol.apps.geostat.data.spec import DataSpec


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a :class:`Layer`.

    Parameters
    ----------
    values : (m,) array
        One for each place; NaN where there is none.
    meaning : str
        In words, such as ``"kriging mean of zinc"``; may be empty.
    unit : str
        Unit of the values; empty where nobody told.
    """

    values: NDArray[np.float64]
    meaning: str = ""
    unit: str = ""

    __repr__ = tb.brief_repr


@dataclass(frozen=True, eq=False)
class Layer:
    """Columns at places, ready to be written.

    Parameters
    ----------
    spec : DataSpec
        Names of the coordinates, their units, and the reference system.
    positions : (m, d) array
        Coordinates as in the file; after them time or number of the variable, where there is one.
    columns : mapping of str to Column
        Columns of ``m`` values each.
    title : str
        Title of the columns.
    grid : Grid or None
        The grid of two axes whose points ``positions`` are, row by row, or of which they are some.
    cells : (m,) array of int or None
        Which points of the grid; None for all.
    """

    spec: DataSpec
    positions: NDArray[np.float64]
    columns: Mapping[str, Column]
    title: str
    grid: Grid | None = None
    cells: NDArray[np.intp] | None = None

    __repr__ = tb.brief_repr

    def __post_init__(self) -> None:
        check_names((*self.spec.axes, *self.columns))

    @property
    def table(self) -> dict[str, NDArray[np.float64]]:
        """Coordinates (and time or variable) and all columns, each of shape ``(m,)``."""
        places = dict(zip(self.spec.axes, self.positions.T, strict=True))
        return {**places, **{name: column.values for name, column in self.columns.items()}}

    def spread(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of a column on the whole grid, NaN where it is left out.

        Parameters
        ----------
        values : (m,) array
            One for each place.

        Returns
        -------
        (ny, nx) array
            Row by row, the second axis ascending.
        """
        assert self.grid is not None, "columns at sites that are no grid are never spread"
        return spread(self.grid, self.cells, values)

    @property
    def crs_name(self) -> str | None:
        """The reference system as GDAL and PROJ take it: a number or well-known text; None where none is known."""
        crs = self.spec.crs
        named = crs if crs and (":" in crs or "[" in crs) else None
        return named or ("EPSG:4326" if self.spec.lonlat else None)

    @property
    def crs_attributes(self) -> dict[str, str]:
        """Attributes of the variable of the CF conventions that carries the reference system; empty where none is known."""
        spec = self.spec
        name = {"spatial_ref": spec.crs} if spec.crs and spec.crs != LATITUDE_LONGITUDE else {}
        return {"grid_mapping_name": LATITUDE_LONGITUDE, **name} if spec.lonlat else name


def check_names(names: Iterable[str]) -> None:
    """Raise ``ValueError`` where two columns of a file have one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"two columns would have the name {name!r}: rename that of the data, and fit again")
        seen.add(name)
