"""Reading points and attributes of GeoPackages with GDAL, through pyogrio and Shapely."""

from __future__ import annotations

import math
import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.crs import Crs, described
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.geometry_points import AXES, point_coordinates, text_column
from ooc_chol.apps.geostat.data.geopackage_views import check_views, quoted, read_only
from ooc_chol.apps.geostat.data.io import Table, check_columns, complete_rows, parse_number


def layer_of(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """Split ``FILE.gpkg:LAYER``.

    >>> layer_of("soil.gpkg:zinc")
    ('soil.gpkg', 'zinc')
    """
    text = os.fspath(path)
    match = re.fullmatch(r"(.*\.gpkg):([^/\\]+)", text, flags=re.IGNORECASE | re.DOTALL)
    return (match[1], match[2]) if match else (text, None)


def read_geopackage(
    path: str | os.PathLike[str], names: Sequence[str], *, optional: Sequence[str] = (), texts: Sequence[str] = ()
) -> Table:
    """Read points and attributes of one layer.

    Longitude is always first in a GeoPackage, whatever its reference system says.
    """
    text, name = layer_of(path)
    file = Path(text).absolute()  # pyogrio takes what begins with a word and a colon for an archive
    tb.input_file(file).close()  # a file that is not there is an OSError with its name
    pyogrio, raw = (imported(module, "GeoPackages are read") for module in ("pyogrio", "pyogrio.raw"))
    try:
        check_views(file)
        layer = _layer(pyogrio.list_layers(file), file.name, name)
        info = pyogrio.read_info(file, layer=layer)
        axes = AXES if "Z" in info["geometry_type"] else AXES[:2]
        attributes = [field for field in info["fields"] if field not in axes]
        check_columns(file.name, names, [*axes, *attributes])
        wanted = [*names, *(name for name in optional if name in (*axes, *attributes) and name not in names)]
        chosen, places = ([name for name in wanted if (name in axes) == is_axis] for is_axis in (False, True))
        _check_numbers(file, info, chosen)
        told, features, shapes, values = raw.read(file, layer=layer, columns=chosen, read_geometry=bool(places), return_fids=True)
        where = f"{file.name}:{layer} feature"
        found = dict(zip(told["fields"], values, strict=True))
        words = {name: text_column(column) for name, column in found.items() if name in texts and column.dtype.kind not in "biuf"}
        columns = {name: _numbers(column, where, features, name) for name, column in found.items() if name not in words}
        if places:
            _check_points(file, info, features[[shape is not None for shape in shapes]])
            columns |= zip(axes, point_coordinates(shapes, where, features), strict=False)
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, sqlite3.DatabaseError, UnicodeDecodeError) as error:
        # the last where names in a damaged file are no text
        raise ValueError(f"{file.name} is not a GeoPackage with points: {error!s:.300}") from error
    crs = _crs(info["crs"], file.name) if places else None
    hidden = [axis for axis in places if axis in info["fields"]]
    notes = (
        (f"column {', '.join(hidden)} of {file.name} is that of its points, not the attribute of this name",) if hidden else ()
    )
    units = dict.fromkeys(AXES[:2], crs.unit) if crs else {}
    kept = {name: columns[name] for name in wanted if name in columns}
    return complete_rows(file.name, kept, names, units=units, crs=crs, notes=notes, texts=words)


def _layer(found: Any, source: str, name: str | None) -> str:
    """The layer that is asked for, or the only one; tables without geometry are none."""
    layers = sorted(str(layer) for layer, kind in found if kind is not None)
    chosen = [layer for layer in layers if name in (None, layer)]
    if len(chosen) != 1:
        problem = "has no layer of points" if not layers else f"has no layer {name!r}" if name else "has several layers"
        raise ValueError(f"{source} {problem}; write {source}:LAYER with one of its layers: {', '.join(layers) or 'none'}")
    return chosen[0]


def _check_numbers(file: Path, info: Any, chosen: Sequence[str]) -> None:
    """Raise ``ValueError`` where a column of numbers holds text, as SQLite allows: GDAL reads 0 without a word."""
    kinds = dict(zip(info["fields"], info["dtypes"], strict=True))
    for name in (name for name in chosen if kinds[name] != "object"):
        column = quoted(name)
        for feature, value in _features(file, info, column, f"typeof({column}) IN ('text', 'blob')"):
            raise ValueError(f"{file.name}:{info['layer_name']} feature {feature}, column {name!r}: {value!r} is not a number")


def _check_points(file: Path, info: Any, there: NDArray[np.int64]) -> None:
    """Raise ``ValueError`` for a damaged geometry: GDAL takes it for none without a word."""
    column = quoted(info["geometry_name"])
    if _features(file, info, f"count({column})", "1")[0][1] == len(there):
        return
    stored = [feature for feature, _ in _features(file, info, "NULL", f"{column} IS NOT NULL")]
    damaged = sorted({*stored} - {*there.tolist()})
    raise ValueError(f"{file.name}:{info['layer_name']} feature {damaged[0]}: its geometry is damaged; mend or delete it")


def _features(file: Path, info: Any, column: str, condition: str) -> list[tuple[int, Any]]:
    """Features of a layer as SQLite has them, each with the value of a column."""
    with closing(read_only(file)) as database:
        chosen = f"{quoted(info['fid_column'] or 'rowid')}, {column} FROM {quoted(info['layer_name'])}"
        return database.execute(f"SELECT {chosen} WHERE {condition}").fetchall()


def _crs(definition: str | None, source: str) -> Crs | None:
    """The reference system of a layer; None for an undefined Cartesian one."""
    crs = described(definition, source) if definition else None
    is_undefined = crs is not None and not crs.is_geographic and crs.label.startswith("Undefined")
    return None if is_undefined else crs


def _numbers(column: NDArray[Any], where: str, features: NDArray[np.int64], name: str) -> NDArray[np.float64]:
    """Values of an attribute, NaN where one is missing; a number may be written as text."""
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    numbers = np.full(len(column), math.nan)
    for k, value in enumerate(column):
        if isinstance(value, str):
            numbers[k] = parse_number(value.strip(), f"{where} {features[k]}, column {name!r}")
        elif value is not None:
            raise ValueError(f"{where} {features[k]}, column {name!r}: a {type(value).__name__} is not a number")
    return numbers
