"""Esri's ASCII grids: a header of a few names and numbers, then rows of numbers from north to south."""

from __future__ import annotations

import os
from io import TextIOWrapper
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.grids import Grid, ascending
from ooc_chol.apps.geostat.data.io import check_table_room

_SIZES = ("ncols", "nrows")
_NAMES = (*_SIZES, "xllcorner", "yllcorner", "xllcenter", "yllcenter", "cellsize", "dx", "dy", "nodata_value")
#: Lines of a header, and characters of one, at most.
_MOST_LINES, _MOST_CHARACTERS = 8, 200
#: Characters of a value with what separates it from the next, at most.
_VALUE_CHARACTERS = 40


def read_ascii_grid(path: str | os.PathLike[str]) -> tuple[Grid, NDArray[np.float64]]:
    """Centres of the cells, both axes ascending, and values, NaN where there is none.

    ``ValueError`` where the file is no such grid, ``BudgetError`` where there is too little memory for it.
    """
    file = Path(path)
    with tb.input_file(file) as binary, TextIOWrapper(binary, encoding="ascii", errors="strict") as stream:
        try:
            header, first = _header(stream, file.name)
            columns, rows = (_count(header, name, file.name) for name in _SIZES)
            if columns * rows > file.stat().st_size:
                raise ValueError(f"{file.name} is too short for {columns} by {rows} values; copy it again")
            check_table_room(file.name, columns * rows, 2)
            most = _MOST_CHARACTERS + _VALUE_CHARACTERS * columns * rows
            text = first + stream.read(most)  # a long line goes on there
            if len(text) > most:
                raise ValueError(f"{file.name} goes on behind {columns} by {rows} values; copy it again")
            values = np.array(text.split(), dtype=np.float64)
        except UnicodeDecodeError as error:
            raise ValueError(f"{file.name} is no ASCII grid: {error.reason} at byte {error.start}") from error
        except ValueError as error:
            if str(error).startswith(file.name):
                raise
            raise ValueError(f"{file.name} is no ASCII grid: {error!s:.200}") from error
    if len(values) != columns * rows:
        raise ValueError(f"{file.name} has {len(values)} values, but {columns} by {rows} are promised; copy it again")
    values[values == header.get("nodata_value", -9999.0)] = np.nan
    if np.isinf(values).any():
        raise ValueError(f"{file.name} holds an infinity; mend it")
    x, y = (_axis(header, name, count, file.name) for name, count in (("x", columns), ("y", rows)))
    return ascending(x, y[::-1], values.reshape(rows, columns))


def _header(stream: TextIOWrapper, source: str) -> tuple[dict[str, float], str]:
    """Names and numbers of the header, and the line behind it."""
    header: dict[str, float] = {}
    for _ in range(_MOST_LINES):
        line = stream.readline(_MOST_CHARACTERS)
        words = line.split()
        if len(words) != 2 or words[0].lower() not in _NAMES:
            return header, line
        header[words[0].lower()] = float(words[1])
    return header, ""


def _count(header: dict[str, float], name: str, source: str) -> int:
    """A number of columns or rows."""
    found = header.get(name, 0.0)
    if not 1 <= found <= 2**31 or found != int(found):
        raise ValueError(f"{source} is no ASCII grid: its header has no {name}, or one that is no count")
    return int(found)


def _axis(header: dict[str, float], name: str, count: int, source: str) -> NDArray[np.float64]:
    """Centres of the cells along one axis, ascending."""
    step = header.get("cellsize", header.get(f"d{name}", 0.0))
    start = header.get(f"{name}llcenter", header.get(f"{name}llcorner", np.nan) + step / 2)
    if not (0 < step < np.inf and np.isfinite(start)):
        raise ValueError(f"{source} is no ASCII grid: its header lacks cellsize, {name}llcorner or {name}llcenter")
    return np.asarray(start + step * np.arange(count))
