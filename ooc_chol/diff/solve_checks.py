"""Checks of matrices and right-hand sides of solves."""

from __future__ import annotations

import numpy as np

from ooc_chol.diff.checks import check_floats
from ooc_chol.diff.memory import Array, device_of
from ooc_chol.diff.pattern import Pattern
from ooc_chol.errors import NonFiniteError

#: Largest difference of entries that a symmetric matrix has in one place, relative to its largest entry, by type.
_MOST_ASYMMETRY = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-10}


def check_right_hand_sides(pattern: Pattern, values: Array, b: Array) -> None:
    """Refuse right-hand sides that do not fit a matrix."""
    check_floats(b, "b")
    n = pattern.n_rows
    if b.ndim not in (1, 2) or b.shape[0] != n:
        raise ValueError(f"b has shape {tuple(b.shape)}, but {pattern.name} has {n} rows: give ({n},) or ({n}, k)")
    if b.dtype != values.dtype:
        raise TypeError(f"b is of {b.dtype}, but the values of the matrix of {values.dtype}: give both in one type")
    if device_of(b) != device_of(values):
        raise ValueError("b and the values of the matrix lie in different memories: copy one to the other first")


def check_matrix(pattern: Pattern, values: Array, assume: str | None) -> None:
    """Refuse what cannot be factored."""
    if pattern.n_rows != pattern.n_columns:
        raise ValueError(f"{pattern.name} is {pattern.n_rows} x {pattern.n_columns}: only a square matrix is solved with")
    pattern.check_values(values)
    check_finite(pattern, values)
    if assume not in (None, "symmetric", "spd"):
        raise ValueError(f"assume is {assume!r:.40}; give None, 'symmetric' or 'spd'")
    if assume is not None:
        check_symmetric(pattern, values, f"assume={assume!r}", "give both triangles, or leave assume out")
    if assume == "spd":
        _check_positive(pattern, values)


def check_symmetric(pattern: Pattern, values: Array, told: str, advice: str) -> None:
    """Refuse a matrix that is not symmetric though it should be."""
    if pattern != pattern.transposed:
        raise ValueError(f"{told}, but {pattern.name} is not symmetric: {_lonely(pattern)}; {advice}")
    with np.errstate(over="ignore"):
        off = abs(values - values[pattern.place("transposing", values)])
    if off.size and float(off.max()) > _MOST_ASYMMETRY[np.dtype(values.dtype)] * float(abs(values).max()):
        at = int(off.argmax())
        row, column = int(pattern.rows[at]), int(pattern.indices[at])
        differ = f"A[{row}, {column}] and A[{column}, {row}] differ by {float(off[at]):.2g}"
        raise ValueError(f"{told}, but {differ}; {advice}")


def check_definite_pattern(pattern: Pattern) -> None:
    """Refuse a pattern that no symmetric matrix has."""
    if pattern.n_rows != pattern.n_columns:
        raise ValueError(f"{pattern.name} is {pattern.n_rows} x {pattern.n_columns}: only a square matrix is positive definite")
    if pattern != pattern.transposed:
        raise ValueError(
            f"{pattern.name} is not symmetric: {_lonely(pattern)}; give both triangles of a positive definite matrix"
        )


def check_definite(pattern: Pattern, values: Array) -> None:
    """Refuse what is no symmetric matrix of numbers."""
    check_definite_pattern(pattern)
    pattern.check_values(values)
    check_finite(pattern, values)
    check_symmetric(pattern, values, "a positive definite matrix is symmetric", "give both triangles")


def symmetric(pattern: Pattern, values: Array) -> Array:
    """Values of ``(A + A.T) / 2``, for a symmetric pattern."""
    mirrored = values[pattern.place("transposing", values)]
    with np.errstate(over="ignore"):
        mean = (values + mirrored) / 2
    if np.isfinite(mean).all():
        return mean
    return np.where(np.isfinite(mean), mean, values / 2 + mirrored / 2)


def check_finite(pattern: Pattern, values: Array) -> None:
    """Refuse values that are no numbers."""
    if not bool(np.isfinite(values).all()):
        at = int((~np.isfinite(values)).argmax())
        raise NonFiniteError(int(pattern.rows[at]), int(pattern.indices[at]), None)


def _check_positive(pattern: Pattern, values: Array) -> None:
    """Refuse a diagonal that no positive definite matrix has."""
    places = pattern.diagonal_places
    missing = places < 0
    wrong = missing if missing.any() else values[pattern.diagonal.on(values)] <= 0
    if bool(wrong.any()):
        at = int(wrong.argmax())
        raise ValueError(f"assume='spd', but A[{at}, {at}] is not positive, so that A is not; give assume='symmetric'")


def _lonely(pattern: Pattern) -> str:
    """An entry whose mirror image is missing, in words."""
    n = max(pattern.shape)
    entries = pattern.rows.astype(np.int64) * n + pattern.indices
    mirrored = pattern.indices.astype(np.int64) * n + pattern.rows
    at = int(np.flatnonzero(~np.isin(mirrored, entries))[0])
    row, column = pattern.rows[at], pattern.indices[at]
    return f"it has an entry ({row}, {column}), but none ({column}, {row})"
