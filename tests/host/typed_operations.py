"""What users of NumPy and SciPy do with a factor, by name, and the same by a dense array, for every type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg

from tests.host.typed import Numbers, residual, with_phases
from tests.tolerances import factor_entry_bound

COMPLEX = ("complex64", "complex128")


def numbers(dtype: str, *shape: int, seed: int = 5) -> Numbers:
    """Standard normal numbers of a type."""
    rng = np.random.default_rng(seed)
    real = rng.standard_normal(shape)
    return np.asarray(real + 1j * rng.standard_normal(shape) if dtype in COMPLEX else real).astype(dtype)


#: Products: of a factor L with ``z``, and the matrix that ``z`` meets, from L as a dense array.
PRODUCTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Numbers], Numbers]]] = {
    "L @ z": (lambda factor, z: factor @ z, lambda dense: dense),
    "L.T @ z": (lambda factor, z: factor.T @ z, lambda dense: dense.T),
    "L.mT @ z": (lambda factor, z: factor.mT @ z, lambda dense: dense.T),
    "L.H @ z": (lambda factor, z: factor.H @ z, lambda dense: dense.conj().T),
    "L.conj() @ z": (lambda factor, z: factor.conj() @ z, lambda dense: dense.conj()),
    "L.conj().T @ z": (lambda factor, z: factor.conj().T @ z, lambda dense: dense.conj().T),
    "L.T.H @ z": (lambda factor, z: factor.T.H @ z, lambda dense: dense.conj()),
    "L.H.T.T @ z": (lambda factor, z: factor.H.T.T @ z, lambda dense: dense.conj().T),
    "z.T @ L": (lambda factor, z: (z.T @ factor).T, lambda dense: dense.T),
    "z.T @ L.T": (lambda factor, z: (z.T @ factor.T).T, lambda dense: dense),
    "z.T @ L.H": (lambda factor, z: (z.T @ factor.H).T, lambda dense: dense.conj()),
    "matmul": (lambda factor, z: factor.matmul(z), lambda dense: dense),
    "matmul, transposed": (lambda factor, z: factor.matmul(z, transposed=True), lambda dense: dense.conj().T),
    "matmat": (lambda factor, z: factor.matmat(z), lambda dense: dense),
    "rmatmat": (lambda factor, z: factor.rmatmat(z), lambda dense: dense.conj().T),
    "rmatmat of L.T": (lambda factor, z: factor.T.rmatmat(z), lambda dense: dense.conj()),
    "operator": (lambda factor, z: scipy.sparse.linalg.aslinearoperator(factor) @ z, lambda dense: dense),
    "operator.H": (lambda factor, z: scipy.sparse.linalg.aslinearoperator(factor).H @ z, lambda dense: dense.conj().T),
    "operator.T": (lambda factor, z: scipy.sparse.linalg.aslinearoperator(factor).T @ z, lambda dense: dense.T),
    "operator of L.H": (lambda factor, z: scipy.sparse.linalg.aslinearoperator(factor.H) @ z, lambda dense: dense.conj().T),
    "np.dot": (lambda factor, z: np.dot(factor, z), lambda dense: dense),
}


#: Solves with a triangle, and the triangle of L as a dense array.
SOLVES: dict[str, tuple[Callable[..., Any], Callable[[Numbers], Numbers]]] = {
    **{
        f"trans={trans!r}": (lambda factor, b, trans=trans, **how: factor.solve_triangular(b, trans, **how), of_dense)
        for trans, of_dense in (
            *((word, lambda dense: dense) for word in (0, "N")),
            *((word, lambda dense: dense.T) for word in (1, "T")),
            *((word, lambda dense: dense.conj().T) for word in (2, "C")),
        )
    },
    "half_solve": (lambda factor, b, **how: factor.half_solve(b, **how), lambda dense: dense),
    "half_solve, transposed": (
        lambda factor, b, **how: factor.half_solve(b, transposed=True, **how),
        lambda dense: dense.conj().T,
    ),
    "solve": (lambda factor, b, **how: factor.solve(b, **how), lambda dense: dense.astype(np.complex128) @ dense.conj().T),
}


def smooth(n: int, nugget: float, dtype: str) -> Numbers:
    """A Gaussian covariance with correlations over a third of the square, with phases where the type is complex."""
    places = np.random.default_rng(0).random((n, 2))
    a = np.exp(-((places[:, None] - places[None]) ** 2).sum(-1) / 0.09) + nugget * np.eye(n)
    return np.asarray(with_phases(a) if dtype in COMPLEX else a).astype(dtype)


def added(a: Numbers, v: Numbers, sign: int) -> Numbers:
    """``A + sign V V.H`` in long double."""
    wide = np.clongdouble if a.dtype.kind == "c" else np.longdouble
    return np.asarray(a.astype(wide) + sign * (v.astype(wide) @ v.astype(wide).conj().T))


def check_updated(factor: Any, expected: Numbers, scale: Numbers, dtype: str) -> None:
    """L is lower, real and positive on its diagonal, and as right as a factor of a matrix with this diagonal."""
    dense = np.asarray(factor)
    assert dense.dtype == factor.dtype == np.dtype(dtype) and not np.triu(dense, 1).any()
    assert (dense.diagonal().real > 0).all() and not dense.diagonal().imag.any()
    wrong = np.abs(np.tril(residual(expected, dense)))
    assert (wrong <= factor_entry_bound(len(dense), scale[:, None], scale[None, :], dtype)).all()
