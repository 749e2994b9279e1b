"""Jacobi's method for small symmetric matrices, in the precision of the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Sweeps after which something is wrong: convergence is quadratic, and matrices of order 1,000 take about 10.
_MOST_SWEEPS = 60


def jacobi(t: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Eigenpairs of a symmetric matrix by cyclic Jacobi rotations, ``T = V diag(w) V.T``, in T's own arithmetic.

    Returns ``w`` (n,), ascending, and the orthonormal ``v`` (n, n), vectors as columns; ``t`` is not changed. A sweep is a
    round-robin tournament: n - 1 rounds of n / 2 rotations of disjoint rows, which are done at once. An entry off the diagonal
    counts as zero at the unit roundoff of T's largest entry. Rutishauser, Numerische Mathematik 9 (1966), has the method; Brent
    and Luk, SIAM Journal on Scientific and Statistical Computing 6 (1985), the order. Raises ``LinAlgError`` if T is not finite,
    or the sweeps do not converge.
    """
    a, n = np.array(t), len(t)
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError("the small matrix of the Lanczos steps holds a NaN or an infinity: A or v0 does")
    v = np.eye(n, dtype=a.dtype)
    zero = np.finfo(a.dtype).eps / 2 * np.abs(a).max(initial=0.0)
    rounds = _tournament(n)
    for _ in range(_MOST_SWEEPS):
        if sum(_rotate(a, v, p, q, zero) for p, q in rounds) == 0:
            order = np.argsort(np.diagonal(a), kind="stable")
            return np.diagonal(a)[order].copy(), v[:, order]
    raise np.linalg.LinAlgError(f"Jacobi's method has not converged in {_MOST_SWEEPS} sweeps: T is not symmetric")


def _tournament(n: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rounds in which each of n meets each other once: pairs of disjoint numbers, by the circle method."""
    players = list(range(n)) + [-1] * (n % 2)  # who meets -1 pauses
    found = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        met = [sorted(pair) for pair in zip(players[:half], reversed(players[half:]), strict=True) if -1 not in pair]
        found.append((np.array([p for p, _ in met], np.intp), np.array([q for _, q in met], np.intp)))
        players = [players[0], players[-1], *players[1:-1]]
    return found


def _rotate(a: NDArray[Any], v: NDArray[Any], p: NDArray[np.intp], q: NDArray[np.intp], zero: Any) -> int:
    """Annihilate ``a[p, q]`` of disjoint pairs where it counts; say how many did."""
    counts = np.abs(a[p, q]) > zero
    p, q = p[counts], q[counts]
    if not len(p):
        return 0
    one = a.dtype.type(1)
    theta = (a[q, q] - a[p, p]) / (2 * a[p, q])
    t = np.where(theta < 0, -one, one) / (np.abs(theta) + np.hypot(theta, one))
    c = one / np.hypot(t, one)
    s = t * c
    for matrix in (a.T, v):  # rows of A, columns of V, then columns of A
        _turn(matrix, p, q, c, s)
    _turn(a, p, q, c, s)
    a[p, q] = a[q, p] = 0
    return len(p)


def _turn(matrix: NDArray[Any], p: NDArray[np.intp], q: NDArray[np.intp], c: NDArray[Any], s: NDArray[Any]) -> None:
    """``[x_p, x_q] = [c x_p - s x_q, s x_p + c x_q]`` of columns."""
    x, y = matrix[:, p], matrix[:, q]
    matrix[:, p], matrix[:, q] = c * x - s * y, s * x + c * y
