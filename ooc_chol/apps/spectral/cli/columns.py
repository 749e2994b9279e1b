"""Numbers of vertices in files: coordinates and weights, as text or ``.npy``."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb

#: Bytes of a line of text.
_MOST_LINE = 1 << 16


def read_coordinates(path: Path, n: int) -> NDArray[np.float64]:
    """Places of ``n`` vertices, in two or three columns."""
    found = _rows(path, n, "places of vertices")
    if found.ndim != 2 or found.shape[1] not in (2, 3):
        columns = 1 if found.ndim == 1 else found.shape[1]
        raise _wrong(path, f"places of vertices in {columns} columns", "give two columns, or three")
    return found


def read_column(path: Path, n: int, what: str) -> NDArray[np.float64]:
    """A number for each of ``n`` vertices."""
    found = _rows(path, n, what)
    if found.size != n:
        raise _wrong(path, f"{what} in {found.size // n} columns", "give one number a line")
    return found.reshape(n)


def _rows(path: Path, n: int, what: str) -> NDArray[np.float64]:
    """An array of ``n`` rows, of finite numbers."""
    found = tb.input_npy(path) if path.suffix == ".npy" else _text(path, what)
    if found.dtype.kind not in "biuf":
        raise _wrong(path, f"{what} are {found.dtype}", "give real numbers")
    found = np.asarray(found, np.float64)
    if found.ndim not in (1, 2) or len(found) != n:
        problem = f"the graph has {n} vertices, but {what} are given for {len(found) if found.ndim else 1}"
        raise _wrong(path, problem, "give a row for each vertex")
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found.reshape(n, -1)).all(axis=1))[0])
        raise _wrong(path, f"{what} have a number that is not finite", "give finite numbers", f"row {row + 1}")
    return found


def _text(path: Path, what: str) -> NDArray[np.float64]:
    """Numbers in columns; none of an empty file."""
    lines = tb.input_lines(path, _MOST_LINE, pipes=True)
    try:
        if (first := next(lines, None)) is None:
            return np.empty(0)
        return np.loadtxt(chain((first,), lines), ndmin=1)
    except ValueError as error:
        raise _wrong(path, f"these are no {what} ({error})", "give numbers in columns with blanks between, or .npy") from error


def _wrong(path: Path, problem: str, advice: str, place: str = "") -> oc.errors.SparseInputError:
    """The error for a file."""
    return oc.errors.SparseInputError(str(path), place, problem, advice)
