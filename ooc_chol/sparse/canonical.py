"""Runs of rows made canonical: columns ascending in each row, none twice, inside the matrix, and all values finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.errors import NonFiniteError, SparseInputError, UnsupportedTypeError
from ooc_chol.sparse.rows import RowCounts, Rows
from ooc_chol.sparse.values import MOST_WHOLE

Zeros: TypeAlias = Literal["keep", "drop"]

#: Most columns of a matrix: their numbers are int32.
MOST_COLUMNS = 2**31 - 1
#: Entries that are looked at in one go, so that they stay in a core's cache.
_PIECE = 1 << 16
#: Where a sum of int64 might have wrapped around, which a sum in float64 of at most 2^31 numbers below 2^53 shows.
_NEAR_WRAPPING = 2.0**62


@dataclass(frozen=True)
class Rules:
    """Requirements on the rows of a source."""

    name: str  #: Name of the source, for messages
    n_columns: int  #: Columns of the matrix
    zeros: Zeros = "keep"  #: What becomes of entries that are zero
    #: Whether entries of the same row and column are added, or are one entry of value 1, as edges of a graph are
    repeated: Literal["sum", "once"] = "sum"

    def __post_init__(self) -> None:
        if self.zeros not in ("keep", "drop"):
            raise ValueError(f"zeros is {self.zeros!r:.80}; give 'keep' or 'drop'")
        if not 0 <= self.n_columns <= MOST_COLUMNS:
            problem = f"it has {self.n_columns} columns, but at most {MOST_COLUMNS} are stored"
            raise SparseInputError(self.name, "", problem, "multiply with parts of its columns, each a matrix of its own")


def check_value_type(dtype: np.dtype[Any], name: str) -> None:
    """Refuse types of values that are no real numbers, or more than float64 holds."""
    if dtype.kind == "c":
        advice = "multiply with its real and imaginary parts (A.real, A.imag), each a matrix of its own"
        raise UnsupportedTypeError(f"a sparse matrix ({name})", dtype.name, advice)
    if dtype.kind not in "fiub":
        raise UnsupportedTypeError(f"a sparse matrix ({name})", dtype.name, "convert its values first, as by A.astype(float)")


def check_index_type(dtype: np.dtype[Any], name: str, what: str) -> None:
    """Refuse numbers of rows or columns that are not whole."""
    if dtype.kind not in "iu":
        raise SparseInputError(name, what, f"it is of type {dtype.name}", "numbers of rows and columns are int32 or int64")


def canonical(
    first_row: int, starts: NDArray[np.int64], columns: NDArray[Any], values: Any, rules: Rules, counts: RowCounts
) -> Rows:
    """A run of rows that keeps all rules; what is canonical already is handed on without a copy.

    Shapes: ``columns`` (n_entries,), ``values`` (n_entries,). Canonical rows cost one reading of their bytes. Others are sorted
    row by row, and values of the same place added in float64, and rounded once where they were float32; whole numbers are added
    exactly. Raises ``SparseInputError`` and ``NonFiniteError``.
    """
    known = None if values is None else _known(np.ascontiguousarray(values), rules)
    run = Rows(first_row, starts, _native(np.ascontiguousarray(columns)), known)
    _check_whole(run, rules)
    if not _is_ascending(run, rules):
        run = _merged(_with_int32(run), rules, counts)
        _check_whole(run, rules)
    return _without_zeros(_with_int32(run), rules, counts)


def _with_int32(run: Rows) -> Rows:
    """The run with columns of int32, once they are known to be inside the matrix."""
    return run._replace(columns=run.columns.astype(np.int32, copy=False))


def place_of(run: Rows, entry: int) -> tuple[int, int]:
    """Row and column of an entry of a run."""
    return run.first_row + int(np.searchsorted(run.starts, entry, side="right")) - 1, int(run.columns[entry])


def _native(numbers: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in the machine's byte order."""
    return numbers if numbers.dtype.isnative else numbers.astype(numbers.dtype.newbyteorder("="))


def _known(values: NDArray[Any], rules: Rules) -> NDArray[Any]:
    """Values as float64, float32 or whole numbers, of the machine's byte order."""
    values = _native(values)
    if values.dtype.kind == "b":
        whole: NDArray[np.int8] = np.not_equal(values.view(np.uint8), 0).view(np.int8)
        return whole
    if values.dtype.kind != "f" or values.itemsize in (4, 8):
        return values
    if values.itemsize < 4:
        return values.astype(np.float32)
    narrow: NDArray[np.float64] = values.astype(np.float64)
    if not np.array_equal(narrow.astype(values.dtype), values, equal_nan=True):
        raise UnsupportedTypeError(
            f"a sparse matrix ({rules.name})", values.dtype.name, "round it first, by A.astype(np.float64)"
        )
    return narrow


def _check_whole(run: Rows, rules: Rules) -> None:
    """Refuse whole numbers that float64 does not hold exactly."""
    values = run.values
    if values is None or values.dtype.kind not in "iu" or values.itemsize < 8 or not values.size:
        return
    if values.max() > MOST_WHOLE or values.min() < -MOST_WHOLE:
        entry = int(np.argmax((values > MOST_WHOLE) | (values < -MOST_WHOLE)))
        row, col = place_of(run, entry)
        problem = f"A[{row}, {col}] is {values[entry]}, a whole number beyond 2^53, which float64 does not hold exactly"
        raise SparseInputError(rules.name, f"row {row}", problem, "convert the values first, by A.astype(np.float64)")


def _is_ascending(run: Rows, rules: Rules) -> bool:
    """Tell whether columns ascend in each row; a column outside of the matrix is refused."""
    columns, starts = run.columns, run.starts
    unsigned = columns.view(np.dtype(f"u{columns.itemsize}"))  # of negative numbers, larger than any column
    rises = True
    for at in range(0, columns.size, _PIECE):
        if unsigned[at : at + _PIECE].max() >= rules.n_columns:
            _refuse_column(run, rules, at)
        if rises:
            piece = columns[at : at + _PIECE + 1]
            above = piece[1:] > piece[:-1]
            first, stop = np.searchsorted(starts, (at + 1, at + piece.size))
            above[starts[first:stop] - (at + 1)] = True  # a row may begin anywhere
            rises = bool(above.all())
    return rises


def _refuse_column(run: Rows, rules: Rules, at: int) -> None:
    piece = run.columns[at : at + _PIECE]
    row, col = place_of(run, at + int(np.argmax((piece < 0) | (piece >= rules.n_columns))))
    problem = f"column {col} is outside of the matrix, whose columns are 0 to {rules.n_columns - 1}"
    raise SparseInputError(rules.name, f"row {row}", problem, "mend the entry, or give the matrix a wider shape")


def _merged(run: Rows, rules: Rules, counts: RowCounts) -> Rows:
    """Columns sorted in each row, and entries of the same place made one."""
    values = np.ones(run.columns.size, np.int8) if run.values is None else run.values.copy()
    shape = (run.starts.size - 1, rules.n_columns)
    matrix = csr_array((values, run.columns.copy(), run.starts.copy()), shape=shape)
    matrix.sort_indices()
    columns, values = matrix.indices, matrix.data
    fresh = np.ones(columns.size, bool)
    np.not_equal(columns[1:], columns[:-1], out=fresh[1:])
    fresh[run.starts[:-1][run.starts[1:] > run.starts[:-1]]] = True
    heads = np.flatnonzero(fresh)
    if (repeated := columns.size - heads.size) == 0:
        return run._replace(columns=columns, values=None if run.values is None else values)
    counts.duplicates += repeated
    single = Rows(run.first_row, np.searchsorted(heads, run.starts).astype(np.int64), columns[heads], None)
    if rules.repeated == "once":
        return single
    return single._replace(values=_summed(values, fresh, single, rules))


def _summed(values: NDArray[Any], fresh: NDArray[np.bool_], run: Rows, rules: Rules) -> NDArray[Any]:
    """Sums of values from each that is fresh to the next, in their order."""
    heads, others = np.flatnonzero(fresh), np.flatnonzero(~fresh)
    into = np.searchsorted(heads, others) - 1

    def added(dtype: type) -> NDArray[Any]:
        sums: NDArray[Any] = values[heads].astype(dtype)
        np.add.at(sums, into, values[others].astype(dtype))
        return sums

    with np.errstate(all="ignore"):  # what is not finite is named later
        sums = added(np.float64)
        if values.dtype.kind == "f":
            return sums.astype(values.dtype, copy=False)
    if (largest := np.abs(sums)).max() >= _NEAR_WRAPPING:
        entry = int(np.argmax(largest))
        row, col = place_of(run, entry)
        problem = f"the sum of entries at A[{row}, {col}] is about {sums[entry]:.3g}, beyond 2^53"
        raise SparseInputError(rules.name, f"row {row}", problem, "convert the values first, by A.astype(np.float64)")
    return added(np.int64)


def _without_zeros(run: Rows, rules: Rules, counts: RowCounts) -> Rows:
    """The run, its values known to be finite, with or without the entries that are zero."""
    values = run.values
    if values is None:
        return run
    zeros = 0
    with np.errstate(all="ignore"):
        for at in range(0, values.size, _PIECE):
            piece = values[at : at + _PIECE]
            if piece.dtype.kind == "f" and not np.isfinite(piece.sum()) and not np.isfinite(piece).all():
                raise NonFiniteError(*place_of(run, at + int(np.argmin(np.isfinite(piece)))), None)
            zeros += piece.size - int(np.count_nonzero(piece != 0))
    counts.zeros += zeros
    if zeros == 0 or rules.zeros == "keep":
        return run
    kept = values != 0
    before = np.concatenate([[0], np.cumsum(kept)])
    return Rows(run.first_row, before[run.starts], run.columns[kept], values[kept])
