"""Checks of operations for JAX: arrays of float32 or float64, of one type, in shapes that fit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.primitives import compute_type
from ooc_chol.files.inputs import plain_array

_SWITCH = "jax.config.update('jax_enable_x64', True)"


def array_of(given: Any, what: str) -> Array:
    """An array of JAX: what is one already, or a copy of NumPy's, in its own type."""
    if not hasattr(given, "dtype") or not hasattr(given, "shape"):
        raise TypeError(f"{what} is a {type(given).__name__}: give an array of JAX or NumPy")
    if np.dtype(given.dtype) not in (np.float32, np.float64):
        raise TypeError(f"{what} is of {given.dtype}: only real floating-point numbers are differentiated, float32 or float64")
    if not isinstance(given, Array) and given.dtype == np.float64 and not _has_64_bits():
        raise TypeError(f"{what} is of float64, but JAX's 64-bit types are off: give float32, or turn them on by {_SWITCH}")
    return given if isinstance(given, Array) else jnp.asarray(plain_array(what, given))


def panel_of(given: Any, what: str, height: int, matrix: Any) -> tuple[Array, bool]:
    """Columns (height, k), and whether they were given as a vector."""
    found = array_of(given, what)
    if found.ndim not in (1, 2) or found.shape[0] != height:
        raise ValueError(f"{what} has shape {found.shape}: give ({height},) or ({height}, k)")
    if matrix is not None:
        check_one_type(matrix.values, "A", found, what)
    return (found[:, None], True) if found.ndim == 1 else (found, False)


def vector_of(given: Any, what: str, length: int, matrix: Any) -> Array:
    """A vector of a length."""
    found = array_of(given, what)
    if found.shape != (length,):
        raise ValueError(f"{what} has shape {found.shape}: give ({length},)")
    check_one_type(matrix.values, "A", found, what)
    return found


def check_one_type(first: Any, name: str, second: Any, other: str) -> None:
    """Refuse two types."""
    if first.dtype != second.dtype:
        raise TypeError(f"{name} is of {first.dtype}, but {other} of {second.dtype}: give both in one type")


def check_square(pattern: Pattern, operation: str) -> None:
    """Refuse what is not square."""
    if pattern.shape[0] != pattern.shape[1]:
        raise ValueError(f"{operation}: A is {pattern.shape[0]} x {pattern.shape[1]}: give a square matrix")


def is_wide(precision: str | None, dtype: Any) -> bool:
    """Tell whether float32 numbers are multiplied and added in float64."""
    wide = bool(compute_type(np.dtype(dtype), precision) != np.dtype(dtype))
    if wide and not _has_64_bits():
        raise TypeError(f"precision='FDF' adds in float64, but JAX's 64-bit types are off: turn them on by {_SWITCH}")
    return wide


def _has_64_bits() -> bool:
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
