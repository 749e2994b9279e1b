"""Numbers of vertices in files: coordinates and weights, as text or ``.npy``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc


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
    try:
        found = np.load(path, allow_pickle=False) if path.suffix == ".npy" else np.loadtxt(path, ndmin=1, encoding="utf-8")
        found = np.asarray(found, np.float64)
    except ValueError as error:
        raise _wrong(path, f"these are no {what} ({error})", "give numbers in columns with blanks between, or .npy") from error
    if found.ndim not in (1, 2) or len(found) != n:
        problem = f"the graph has {n} vertices, but {what} are given for {len(found) if found.ndim else 1}"
        raise _wrong(path, problem, "give a row for each vertex")
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found.reshape(n, -1)).all(axis=1))[0])
        raise _wrong(path, f"{what} have a number that is not finite", "give finite numbers", f"row {row + 1}")
    return found


def _wrong(path: Path, problem: str, advice: str, place: str = "") -> oc.SparseInputError:
    """The error for a file."""
    return oc.SparseInputError(str(path), place, problem, advice)
