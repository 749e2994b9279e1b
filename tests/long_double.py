"""Truths in long double of a symmetric positive definite matrix: its factor, determinant, forms and solutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def lower_of(a: NDArray[np.floating]) -> NDArray[np.longdouble]:
    """The factor of a matrix whose diagonal is of order one."""
    scaled = a.astype(np.longdouble)
    lower = np.zeros_like(scaled)
    for j in range(len(a)):
        lower[j, j] = np.sqrt(scaled[j, j] - lower[j, :j] @ lower[j, :j])
        lower[j + 1 :, j] = (scaled[j + 1 :, j] - lower[j + 1 :, :j] @ lower[j, :j]) / lower[j, j]
    return lower


def half_solved(lower: NDArray[np.longdouble], b: NDArray[np.floating]) -> NDArray[np.longdouble]:
    """``inv(L) b``."""
    y = np.zeros(b.shape, np.longdouble)
    for j in range(len(lower)):
        y[j] = (b[j] - lower[j, :j] @ y[:j]) / lower[j, j]
    return y


@dataclass
class Truth:
    """Truths of a matrix and a right-hand side."""

    logdet: np.longdouble
    quadratic: np.longdouble
    x: NDArray[np.longdouble]
    error: float  #: What long double itself may be off, as a share


def truth_of(a: Matrix, b: Matrix) -> Truth:
    """By a factor in long double, of rows that are scaled to a diagonal of ones: nothing overflows."""
    powers = np.frexp(np.sqrt(np.diag(a)))[1]
    scaled = np.ldexp(np.ldexp(a.astype(np.longdouble), -powers[:, None]), -powers)
    n, lower = len(a), lower_of(scaled)
    y, x = half_solved(lower, np.ldexp(b.astype(np.longdouble), -powers)), np.zeros(n, np.longdouble)
    for i in range(n - 1, -1, -1):
        x[i] = (y[i] - lower[i + 1 :, i] @ x[i + 1 :]) / lower[i, i]
    pivots = np.diag(lower)
    logdet = 2 * (np.log(pivots).sum() + np.log(np.longdouble(2)) * powers.sum())
    error = 4.0 * n * np.finfo(np.longdouble).eps * float((1 / pivots**2).max())
    return Truth(logdet, y @ y, np.ldexp(x, -powers), error)
