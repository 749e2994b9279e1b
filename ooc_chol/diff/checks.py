"""Checks of the arrays of a pattern and its values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.diff.memory import Array, is_cupy
from ooc_chol.errors import SparseInputError
from ooc_chol.files.inputs import plain_array

_MOST_COLUMNS = np.iinfo(np.int32).max


def check_floats(values: Array, what: str) -> None:
    """Refuse what is no array of float32 or float64."""
    if not (isinstance(values, np.ndarray) or is_cupy(values)):
        raise TypeError(f"{what} is a {type(values).__name__}: give an array of NumPy or CuPy")
    if isinstance(values, np.ma.MaskedArray):
        plain_array(what, values)
    if values.dtype not in (np.float32, np.float64):
        raise TypeError(f"{what} is of {values.dtype}: only real floating-point numbers are differentiated, float32 or float64")


def check_places(places: NDArray[Any], n: int, what: str, *, least: int = 0) -> None:
    """Refuse what are no places among n values: compiled loops look at none of them."""
    if isinstance(places, np.ma.MaskedArray):
        plain_array(what, places)
    if places.dtype not in (np.int32, np.int64) or places.ndim != 1:
        raise TypeError(f"{what} is {places.ndim}-dimensional, of {places.dtype}: give a vector of int32 or int64")
    if places.size and (places.min() < least or places.max() >= n):
        at = int(np.argmax((places < least) | (places >= n)))
        raise ValueError(f"{what}[{at}] is {places[at]}, but there are {n} values: places are {least} to {n - 1}")


def check_segments(ends: NDArray[Any], count: int) -> None:
    """Refuse what does not divide so many entries into segments."""
    check_places(ends, count + 1, "ends")
    if not ends.size or ends[0] != 0 or ends[-1] != count:
        raise ValueError(
            f"ends are {ends.size} numbers that do not begin with 0 and end with {count}, the number of what is summed"
        )
    if (ends[1:] < ends[:-1]).any():
        at = int(np.argmax(ends[1:] < ends[:-1]))
        raise ValueError(f"ends fall from {ends[at]} to {ends[at + 1]} in segment {at}: a segment ends where the next begins")


def counted(count: int, one: str, several: str) -> str:
    """A number and its noun."""
    return f"{count} {one if count == 1 else several}"


def whole(given: ArrayLike, what: str, name: str) -> NDArray[Any]:
    """An array of whole numbers in one dimension, on the host."""
    array = given.get() if is_cupy(given) else plain_array(what, given)  # type: ignore[union-attr]
    if array.size == 0 and array.dtype == np.float64 and not hasattr(given, "dtype"):  # NumPy's type of an empty list
        array = array.astype(np.int32)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TypeError(f"{what} of {name} is {array.ndim}-dimensional, of {array.dtype}: give a vector of whole numbers")
    return array


def checked_shape(shape: tuple[int, int], name: str) -> tuple[int, int]:
    """Rows and columns, two numbers that int32 holds."""
    try:
        rows, columns = shape[:]  # of what has an order
        size = int(rows), int(columns)
        is_shape = size == (rows, columns) and min(size) >= 0
    except (TypeError, ValueError, LookupError, OverflowError):
        is_shape = False
    if not is_shape:
        raise ValueError(f"the shape of {name} is {shape!r:.80}: give rows and columns, two whole numbers that are not negative")
    if max(size) > _MOST_COLUMNS:
        raise ValueError(f"{name} is {rows} x {columns}: rows and columns are counted in int32, up to {_MOST_COLUMNS}")
    return size


def check_starts(starts: NDArray[Any], nnz: int, n_rows: int, name: str) -> None:
    """Refuse an ``indptr`` that is none."""
    if starts.size != n_rows + 1:
        problem = f"indptr has {starts.size} numbers for {n_rows} rows"
        raise SparseInputError(name, "", problem, f"give {n_rows + 1}, one more than rows")
    if starts[0] != 0:
        raise SparseInputError(name, _row(0, n_rows), f"indptr begins with {starts[0]}", "let it begin with 0")
    falls = np.flatnonzero(starts[1:] < starts[:-1])
    if falls.size:
        row = int(falls[0])
        problem = f"indptr falls from {starts[row]} to {starts[row + 1]}"
        raise SparseInputError(name, f"row {row}", problem, "a row ends where the next one begins: mend indptr")
    if starts[-1] != nnz:
        problem = f"indptr ends with {starts[-1]}, but there are {nnz} indices"
        raise SparseInputError(name, _row(n_rows - 1, n_rows), problem, "the last number of indptr is the number of entries")


def check_range(starts: NDArray[Any], columns: NDArray[Any], n_columns: int, name: str) -> None:
    """Refuse columns that are outside of the matrix."""
    if columns.size and (columns.min() < 0 or columns.max() >= n_columns):
        at = int(np.argmax((columns < 0) | (columns >= n_columns)))
        there = f"whose columns are 0 to {n_columns - 1}" if n_columns else "which has no columns"
        problem = f"column {columns[at]} (indices[{at}]) is outside of the matrix, {there}"
        raise SparseInputError(name, _row_of(starts, at), problem, "mend the entry, or give the matrix a wider shape")


def check_ascending(starts: NDArray[Any], columns: NDArray[Any], name: str) -> None:
    """Refuse columns that do not ascend in their row."""
    rising = rises(starts, columns, strictly=True)
    if not rising.all():
        at = int(np.argmin(rising))
        how = "comes twice" if columns[at] == columns[at - 1] else f"comes after column {columns[at - 1]}"
        problem = f"column {columns[at]} (indices[{at}]) {how}"
        raise SparseInputError(
            name, _row_of(starts, at), problem, "take Pattern.canonical(...), which sorts rows and merges duplicates"
        )


def _row(row: int, n_rows: int) -> str:
    """A row in words, of a matrix that has rows."""
    return f"row {row}" if n_rows else ""


def _row_of(starts: NDArray[Any], at: int) -> str:
    return f"row {int(np.searchsorted(starts, at, side='right')) - 1}"


def rises(starts: NDArray[Any], columns: NDArray[Any], *, strictly: bool) -> NDArray[np.bool_]:
    """For each entry, whether it is the first of its row or its column is above (or not below) the one before."""
    rises = np.ones(columns.size, bool)
    compare = np.greater if strictly else np.greater_equal
    compare(columns[1:], columns[:-1], out=rises[1:])
    rises[starts[:-1][starts[1:] > starts[:-1]]] = True
    return rises
