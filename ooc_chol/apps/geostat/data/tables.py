"""Tables from files of every kind, chosen by the ending of their names; columns and gaps mean the same in all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from ooc_chol.apps.geostat.data.geometry_points import AXES
from ooc_chol.apps.geostat.data.geopackage import layer_of, read_geopackage
from ooc_chol.apps.geostat.data.io import MissingColumnError, Table, read_table
from ooc_chol.apps.geostat.data.netcdf import read_netcdf
from ooc_chol.apps.geostat.data.parquet import parquet_axes, read_parquet

#: Kinds of files.
FileKind = Literal["csv", "parquet", "netcdf", "geopackage"]

_SUFFIXES: dict[str, FileKind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".nc": "netcdf",
    ".nc3": "netcdf",
    ".nc4": "netcdf",
    ".cdf": "netcdf",
    ".gpkg": "geopackage",
}


def file_kind(path: str | os.PathLike[str]) -> FileKind:
    """The kind of a file by the ending of its name."""
    file, _ = layer_of(path)
    return _SUFFIXES.get(Path(file).suffix.lower(), "csv")


def columns_of(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Names of the columns of a file of any kind; errors are those of :func:`load_table`."""
    try:
        load_table(path, ("\0",))  # a name that no column has, which every reader finds out before it reads rows
    except MissingColumnError as error:
        return error.there
    raise ValueError(f"{os.fspath(path)} has a column whose name is a null character; give it another")


def load_table(
    path: str | os.PathLike[str], names: Sequence[str], *, optional: Sequence[str] = (), texts: Sequence[str] = ()
) -> Table:
    """Read named columns of a file of any kind.

    Parameters
    ----------
    path : path
        ``.parquet`` and ``.pq``; ``.nc``, ``.nc3``, ``.nc4`` and ``.cdf``; ``.gpkg``, with ``:LAYER`` behind it where there are
        several; anything else is text.
    names : sequence of str
        Columns to read; a row in which one of them has no value is dropped and counted.
    optional : sequence of str
        Columns to read if they are there; a missing value in one of them is NaN and drops no row.

    texts : sequence of str
        Those of ``names`` that may hold words or codes, which are kept as text; numbers are numbers, but in text within quotation
        marks where other numbers are in none. A NetCDF file has numbers only.

    Returns
    -------
    Table
        The columns as float64, those of words as they are, with units and coordinate reference system where the file tells them.

    Raises
    ------
    ValueError
        A column is not there, a value is not a finite number, or no complete row is left.
    OSError
        The file cannot be read.
    MissingExtraError
        The package that reads this kind of file is not installed.
    """
    readers: dict[FileKind, Callable[..., Table]] = {
        "csv": read_table,
        "parquet": read_parquet,
        "netcdf": read_netcdf,
        "geopackage": read_geopackage,
    }
    kind = file_kind(path)
    more = {} if kind == "netcdf" else {"texts": texts}
    return readers[kind](path, tuple(dict.fromkeys(names)), optional=optional, **more)


def geometry_axes(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Names under which a file's points can be read as columns: ``x`` and ``y``, and ``z`` where they have it; else none."""
    if file_kind(path) == "geopackage":
        there = columns_of(path)
        return AXES if "z" in there[:3] else AXES[:2]
    return parquet_axes(path) if file_kind(path) == "parquet" else ()
