"""Masks of observed entries, the error of an estimate, and the plainest estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import ooc_chol.toolbox as tb

#: The rule by which NaN stands for what is missing.
observed_mask = tb.observed_mask

#: Tensors whose largest entry is within so many powers of two from 1 are compared as they are.
_POWERS = 200


def relative_error(estimate: Any, true: Any, where: NDArray[np.bool_] | None = None) -> float:
    """``||estimate - true|| / ||true||`` in the norm of Frobenius, of the whole or of a part.

    Parameters
    ----------
    estimate, true : (N, m, n) array_like
        Two tensors.
    where : (N,) or (N, m, n) bool array, optional
        Slices, or entries, that count; by default all.

    Returns
    -------
    float
        0 where both are the same; infinite where only the truth is zero.

    Raises
    ------
    ValueError
        The shapes differ.

    Examples
    --------
    >>> relative_error([[[3.0, 5.0]]], [[[3.0, 4.0]]])
    0.2
    """
    found, wanted = _real("estimate", estimate), _real("true", true)
    if found.shape != wanted.shape or found.ndim != 3:
        raise ValueError(f"the estimate has shape {found.shape}, but the truth {wanted.shape}; give two tensors (N, m, n)")
    where = None if where is None else _booleans("where", where)
    if where is not None and where.shape not in (wanted.shape, wanted.shape[:1]):
        raise ValueError(f"where has shape {where.shape}; give ({len(wanted)},) or {wanted.shape}")
    power = power_of([found, wanted], where)
    away, size = (float(part.sum()) for part in slice_squares(found, wanted, where, power))
    return float(np.sqrt(away / size)) if size else (float("inf") if away else 0.0)


def _real(name: str, given: Any) -> NDArray[Any]:
    """An array of real numbers."""
    found = tb.plain_array(name, given)
    if found.dtype.kind == "c":
        raise TypeError(f"{name} holds {found.dtype}; compare real and imaginary parts apart")
    return found


def _booleans(name: str, given: Any) -> NDArray[np.bool_]:
    """An array of what is given, if that is of booleans."""
    found: NDArray[np.bool_] = tb.plain_array(name, given)
    if found.dtype != np.bool_:
        raise TypeError(f"{name}: give an array of bool, not {found.dtype}")
    return found


def power_of(tensors: Sequence[NDArray[Any]], where: NDArray[np.bool_] | None) -> int:
    """By which power of two to divide, so that squares of what counts are numbers of float64: 0 where they are."""
    largest = 0.0
    for tensor in tensors:
        for at, part in enumerate(tensor):
            counts = np.isfinite(part) if where is None else np.isfinite(part) & where[at]
            largest = max(largest, float(np.abs(part).max(initial=0.0, where=counts)))
    power = math.frexp(largest)[1]
    return power if abs(power) > _POWERS else 0


def slice_squares(
    estimate: NDArray[Any], true: NDArray[Any], where: NDArray[np.bool_] | None, power: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of squares of errors and of the truth over ``2**power`` in each slice, ``where`` that counts; two of (N,)."""
    away, size = np.zeros(len(true)), np.zeros(len(true))
    for at in range(len(true)):
        counts: Any = True if where is None else where[at]
        if not np.any(counts):
            continue
        wanted, found = (np.where(counts, each[at], 0).astype(np.float64) for each in (true, estimate))
        if power:
            wanted, found = np.ldexp(wanted, -power), np.ldexp(found, -power)
        difference = found - wanted
        away[at], size[at] = np.vdot(difference, difference), np.vdot(wanted, wanted)
    return away, size


def neighbour_means(X: Any, mask: NDArray[np.bool_], adjacency: csr_array) -> NDArray[Any]:
    """The plainest estimate: where nothing is observed, the weighted mean of neighbours at which something is.

    Parameters
    ----------
    X : (N, m, n) array
        The tensor, with anything where it is missing.
    mask : (N,) or (N, m, n) bool array
        True where observed.
    adjacency : (N, N) sparse matrix
        Weights of edges.

    Returns
    -------
    (N, m, n) array
        Array of the type of X, float64 for whole numbers; zero where no neighbour is observed.

    Raises
    ------
    ValueError
        The shapes do not fit each other.
    TypeError
        The mask is not bool.

    Notes
    -----
    An imputation that has no smaller held-out error than this has found no structure that its model knows.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> path = csr_array(np.diag([1.0, 1.0], 1) + np.diag([1.0, 1.0], -1))
    >>> x = np.array([[[1.0]], [[np.nan]], [[3.0]]])
    >>> neighbour_means(x, np.array([True, False, True]), path)[1].item()
    2.0
    """
    tensor, weights = tb.plain_array("X", X, gaps_as_nan=True), csr_array(adjacency)
    mask, shape = _booleans("mask", mask), tensor.shape
    if tensor.ndim != 3 or mask.shape not in (shape, shape[:1]) or weights.shape != (shape[0], shape[0]):
        told = f"X has shape {shape}, mask {mask.shape}, and the graph {weights.shape}"
        raise ValueError(f"{told}: give (N, m, n), a mask of the same or of (N,), and (N, N)")
    weights = weights.astype(np.float64)
    if weights.nnz:  # over a power of two, which changes no mean, so that no sum leaves float64
        power = math.frexp(np.abs(weights.data).max())[1] + int(np.diff(weights.indptr).max()).bit_length()
        weights.data = np.ldexp(weights.data, -power)
    by_slice = mask.reshape(len(mask), -1)
    seen = mask.reshape(len(mask), *((1, 1) if mask.ndim == 1 else shape[1:]))
    sums = weights @ np.where(seen, tensor, 0).reshape(len(tensor), -1).astype(np.float64)
    counts = weights @ by_slice.astype(np.float64)
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=np.broadcast_to(counts > 0, sums.shape)).reshape(shape)
    return np.where(seen, tensor, means).astype(tensor.dtype if tensor.dtype.kind == "f" else np.float64)
