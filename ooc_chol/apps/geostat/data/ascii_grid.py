"""Esri's ASCII grids: a header of a few names and numbers, then rows of numbers from north to south.

GDAL reads a word among the numbers as 0, and ignores what stands behind the last row; both are errors here.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.grids import Grid, ascending

_SIZES = ("ncols", "nrows")
_NAMES = (*_SIZES, "xllcorner", "yllcorner", "xllcenter", "yllcenter", "cellsize", "dx", "dy", "nodata_value")
#: Lines of a header, at most.
_MOST_LINES = 8
#: Bytes of memory for each byte of a file: a number of one digit, with its blank, takes some 50.
_GROWTH = 25


def read_ascii_grid(path: str | os.PathLike[str]) -> tuple[Grid, NDArray[np.float64]]:
    """Centres of the cells, both axes ascending, and values, NaN where there is none.

    ``ValueError`` where the file is no such grid, ``BudgetError`` where there is too little memory for it.
    """
    file = Path(path)
    with tb.input_file(file) as stream:
        tb.check_room(_GROWTH * file.stat().st_size, f"memory for {file.name}", "write it as GeoTIFF")
        words = stream.read().split()
    header: dict[str, float] = {}
    at = 0
    try:
        while at < min(2 * _MOST_LINES, len(words) - 1) and (name := words[at].decode("latin-1").lower()) in _NAMES:
            header[name], at = float(words[at + 1]), at + 2
        values = np.array(words[at:], dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{file.name} is no ASCII grid: {error!s:.200}") from error
    columns, rows = (_count(header, name, file.name) for name in _SIZES)
    if len(values) != columns * rows:
        raise ValueError(f"{file.name} has {len(values)} values, but {columns} by {rows} are promised; copy it again")
    values[values == header.get("nodata_value", -9999.0)] = np.nan
    if np.isinf(values).any():
        raise ValueError(f"{file.name} holds an infinity; mend it")
    x, y = (_axis(header, name, count, file.name) for name, count in (("x", columns), ("y", rows)))
    return ascending(x, y[::-1], values.reshape(rows, columns))


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
