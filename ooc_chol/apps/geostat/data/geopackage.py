"""Reading points and attributes of GeoPackages, which are SQLite files, with the standard library alone."""

from __future__ import annotations

import math
import os
import re
import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ooc_chol.apps.geostat.data.crs import Crs, authority_code, is_geographic, length_unit
from ooc_chol.apps.geostat.data.io import Table, check_columns, complete_rows, parse_number

#: The coordinates of a point, as columns.
AXES = ("x", "y", "z")

#: Bytes of the envelope in a geometry's header, by its indicator in the flags (GeoPackage 1.3, table 6).
_ENVELOPE_BYTES = {0: 0, 1: 32, 2: 48, 3: 48, 4: 64}
_HEADER_BYTES = 8

#: Types of well-known binary points by their coordinates after x and y.
_POINT_TYPES = {1: "", 1001: "z", 2001: "m", 3001: "zm"}

#: The identifier that the standard keeps for geographic coordinates of an unknown system.
_UNDEFINED_GEOGRAPHIC = 0


def layer_of(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """Split ``FILE.gpkg:LAYER``.

    Examples
    --------
    >>> layer_of("soil.gpkg:zinc")
    ('soil.gpkg', 'zinc')
    """
    text = os.fspath(path)
    match = re.fullmatch(r"(.*\.gpkg):([^/\\]+)", text, flags=re.IGNORECASE | re.DOTALL)
    return (match[1], match[2]) if match else (text, None)


def read_geopackage(path: str | os.PathLike[str], names: Sequence[str], *, optional: Sequence[str] = ()) -> Table:
    """Read points and attributes of one layer.

    OGC 12-128r17, clauses 1.1.3 and 2.1. Longitude is always first in a GeoPackage, whatever its reference system says.
    """
    text, name = layer_of(path)
    file = Path(text)
    file.open("rb").close()  # a file that is not there is an OSError with its name
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            layer = _layer(database, file.name, name)
            there = [*layer.axes, *layer.attributes]
            check_columns(file.name, names, there)
            wanted = [*names, *(name for name in optional if name in there and name not in names)]
            rows = _rows(database, layer, wanted)
            crs = _crs(database, layer.srs_id) if set(wanted) & set(layer.axes) else None
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{file.name} is not a GeoPackage with points: {error}") from error
    numbers = [_numbers(row, wanted, f"{file.name}:{layer.name} row {k + 1}") for k, row in enumerate(rows)]
    values = np.array(numbers, dtype=np.float64).reshape(-1, len(wanted))
    units = dict.fromkeys(AXES[:2], crs.unit) if crs is not None else {}
    hidden = [axis for axis in layer.axes if axis in layer.hidden and axis in wanted]
    notes = (
        (f"column {', '.join(hidden)} of {file.name} is that of its points, not the attribute of this name",) if hidden else ()
    )
    columns = {name: values[:, k] for k, name in enumerate(wanted)}
    return complete_rows(file.name, columns, names, units=units, crs=crs, notes=notes)


@dataclass(frozen=True)
class _Layer:
    """A table of points; attributes with the name of an axis are hidden by it."""

    name: str
    geometry: str
    srs_id: int
    axes: tuple[str, ...]
    attributes: tuple[str, ...]
    hidden: tuple[str, ...]


def _layer(database: sqlite3.Connection, source: str, name: str | None) -> _Layer:
    """The layer that is asked for, or the only one."""
    found = database.execute(
        "SELECT c.table_name, g.column_name, g.srs_id, g.z FROM gpkg_contents c JOIN gpkg_geometry_columns g USING (table_name) "
        "WHERE c.data_type = 'features' ORDER BY c.table_name"
    ).fetchall()
    layers = [row[0] for row in found]
    chosen = [row for row in found if name in (None, row[0])]
    if len(chosen) != 1:
        problem = "has no layer of points" if not layers else f"has no layer {name!r}" if name else "has several layers"
        raise ValueError(f"{source} {problem}; write {source}:LAYER with one of its layers: {', '.join(layers) or 'none'}")
    table, geometry, srs_id, z = chosen[0]
    axes = AXES if z else AXES[:2]
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({_quoted(table)})") if row[1] != geometry]
    attributes, hidden = ([name for name in columns if (name in axes) == is_axis] for is_axis in (False, True))
    return _Layer(table, geometry, srs_id, axes, tuple(attributes), tuple(hidden))


def _rows(database: sqlite3.Connection, layer: _Layer, wanted: Sequence[str]) -> list[list[Any]]:
    """Raw values of the columns; coordinates taken out of the points."""
    attributes = [name for name in wanted if name not in layer.axes]
    chosen = ", ".join(map(_quoted, [layer.geometry, *attributes]))
    rows = []
    for k, (geometry, *values) in enumerate(database.execute(f"SELECT {chosen} FROM {_quoted(layer.name)}")):
        known = dict(zip(attributes, values, strict=True))
        if len(attributes) < len(wanted):
            point = _point(geometry, f"{layer.name} row {k + 1}")
            known |= zip(layer.axes, point[: len(layer.axes)], strict=True)
        rows.append([known[name] for name in wanted])
    return rows


def _point(blob: bytes | None, where: str) -> tuple[float, float, float]:
    """Coordinates in a geometry; NaN where it is null or empty, or has no ``z``."""
    if blob is None:
        return math.nan, math.nan, math.nan
    try:
        if blob[:2] != b"GP":
            raise ValueError(f"{where}: its geometry does not begin as one of a GeoPackage")
        start = _HEADER_BYTES + _ENVELOPE_BYTES[(blob[3] >> 1) & 7]
        order = "<" if blob[start] == 1 else ">"
        (kind,) = struct.unpack_from(f"{order}I", blob, start + 1)
        if kind not in _POINT_TYPES:
            raise ValueError(f"{where}: its geometry is no point (type {kind}); take centroids first")
        names = "xy" + _POINT_TYPES[kind]
        numbers = dict(zip(names, struct.unpack_from(f"{order}{len(names)}d", blob, start + 5), strict=True))
    except (struct.error, IndexError, KeyError) as error:
        raise ValueError(f"{where}: its geometry is damaged: {error}") from error
    return numbers["x"], numbers["y"], numbers.get("z", math.nan)


def _crs(database: sqlite3.Connection, srs_id: int) -> Crs | None:
    """The reference system of a layer; None for an undefined Cartesian one."""
    found = database.execute("SELECT * FROM gpkg_spatial_ref_sys WHERE srs_id = ?", (srs_id,))
    row = found.fetchone()
    if row is None or srs_id < 0:
        return None
    system = dict(zip((column[0] for column in found.description), row, strict=True))
    # what version 1 of well-known text cannot say, such as geographic coordinates with a height, is in a column of its own
    definition = system["definition"] if system["definition"] != "undefined" else system.get("definition_12_063") or "undefined"
    geographic = srs_id == _UNDEFINED_GEOGRAPHIC or is_geographic(definition)
    name, organization = system["srs_name"], system["organization"]
    if name.lower().startswith("undefined") and not geographic:
        return None
    known = organization and organization.upper() != "NONE"
    code = f"{organization.upper()}:{system['organization_coordsys_id']}" if known else authority_code(definition)
    return Crs(code or name, geographic, "degrees" if geographic else length_unit(definition))


def _numbers(row: list[Any], names: Sequence[str], where: str) -> list[float]:
    """Numbers of a row, NaN where one is missing."""
    numbers = []
    for value, name in zip(row, names, strict=True):
        if isinstance(value, str):
            numbers.append(parse_number(value.strip(), f"{where}, column {name!r}"))
        elif value is None or isinstance(value, (int, float)):
            numbers.append(math.nan if value is None else float(value))
        else:
            raise ValueError(f"{where}, column {name!r}: a {type(value).__name__} is not a number")
    return numbers


def _quoted(name: str) -> str:
    """An identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
