"""Matrices of float32 and complex numbers, and the checks that factors of them must pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike, NDArray

from tests.host.matrices import FAMILIES as REAL_FAMILIES
from tests.tolerances import FACTOR_NORM_LEAST_N, factor_entry_bound, factor_norm_bound, solve_bound, unit_roundoff

Numbers = NDArray[Any]

#: The types in which matrices are factored beside float64.
DTYPES = ("float32", "complex64", "complex128")


def with_phases(a: Numbers) -> Numbers:
    """``D A D.H`` with random phases D: Hermitian, of the same eigenvalues, its diagonal real but for rounding."""
    phases = np.exp(2j * np.pi * np.random.default_rng(4).uniform(size=len(a)))
    return np.asarray(phases[:, None] * a * phases.conj()[None, :])


def random_hermitian(n: int) -> Numbers:
    """``G G.H`` of a random matrix with twice as many columns, as a product computes it."""
    rng = np.random.default_rng(2)
    g = rng.standard_normal((n, 2 * n)) + 1j * rng.standard_normal((n, 2 * n))
    return np.asarray(g @ g.conj().T)


#: Families of well and ill conditioned matrices that float32 can factor, by name.
FAMILIES = ("exponential", "random", "scaled by powers of two", "nearly singular")


@cache
def matrix(family: str, n: int, dtype: str) -> Numbers:
    """A positive definite matrix of a family, a real one with phases where the type is complex; read-only."""
    is_complex = np.dtype(dtype).kind == "c"
    if family == "random" and is_complex:
        a = random_hermitian(n)
    elif family == "nearly singular":
        a = REAL_FAMILIES["matern25 nugget 1e-6"](n) + (100 * n * unit_roundoff(dtype)) * np.eye(n)
        a = with_phases(a) if is_complex else a
    else:
        a = REAL_FAMILIES["exponential" if family.startswith("scaled") else family](n)
        a = with_phases(a) if is_complex else a
    if family.startswith("scaled"):
        d = np.ldexp(1.0, np.random.default_rng(1).integers(-20, 21, n))
        a = d[:, None] * a * d[None, :]
    a = a.astype(dtype)
    a.flags.writeable = False
    return a


class Sliceable:
    """What h5py and Zarr data sets have in common: shape, dtype and slices, which are new arrays."""

    def __init__(self, a: Numbers) -> None:
        self._a, self.shape, self.dtype = a, a.shape, a.dtype

    def __getitem__(self, key: tuple[slice, slice]) -> Numbers:
        return self._a[key].copy()


def residual(a: Numbers, l_dense: Numbers) -> Numbers:
    """``A - L L.H`` in long double, of the Hermitian matrix that A's lower triangle and its real diagonal mean."""
    wide = np.clongdouble if l_dense.dtype.kind == "c" else np.longdouble
    lower = np.tril(a, -1).astype(wide)
    hermitian = lower + lower.conj().T + np.diag(a.diagonal().real.astype(wide))
    factor = l_dense.astype(wide)
    return np.asarray(hermitian - factor @ factor.conj().T)


def check_typed(l_dense: Numbers, a: Numbers, dtype: DTypeLike, *, beside_lapack: bool = True) -> None:
    """Check type, triangle, a real diagonal, every entry of the residual, and its scaled norm beside LAPACK's."""
    n, dtype = len(a), np.dtype(dtype)
    assert l_dense.dtype == dtype and not np.triu(l_dense, 1).any()
    assert not l_dense.diagonal().imag.any() and (l_dense.diagonal().real > 0).all()
    wrong, diagonal = residual(a.astype(dtype), l_dense), a.diagonal().real.astype(float)
    assert (np.abs(wrong) <= factor_entry_bound(n, diagonal[:, None], diagonal[None, :], dtype)).all()
    if beside_lapack and n >= FACTOR_NORM_LEAST_N:
        lapack = scipy.linalg.cholesky(a.astype(dtype), lower=True)
        assert lapack.dtype == dtype
        # Of rows scaled to a unit diagonal: else a few entries are all that a norm sees, in which LAPACK may be right by chance.
        scale = 1.0 / np.sqrt(diagonal)
        unit = scale[:, None] * a.astype(np.complex128) * scale[None, :]
        both = [scale[:, None] * each * scale[None, :] for each in (wrong, residual(a.astype(dtype), lapack))]
        assert norm_of(both[0]) <= factor_norm_bound(n, norm_of(both[1]), float(np.linalg.norm(unit)), dtype)


def norm_of(wide: Numbers) -> float:
    """The Frobenius norm of an array in long double."""
    return float(np.sqrt((np.abs(wide) ** 2).sum()))


def check_solutions(factor: Any, a: Numbers, columns: int = 3) -> None:
    """Check solves with A, with L and with its adjoint, products with L, and the log-determinant."""
    n, dtype, rng = len(a), factor.dtype, np.random.default_rng(9)
    is_complex = dtype.kind == "c"
    b = (rng.standard_normal((n, columns)) + (1j * rng.standard_normal((n, columns)) if is_complex else 0)).astype(dtype)
    l_dense, lower = np.asarray(factor), np.tril(a, -1)
    hermitian = lower + lower.conj().T + np.diag(a.diagonal().real.astype(dtype))
    systems: list[tuple[Numbers, Callable[[], Numbers]]] = [
        (hermitian, lambda: factor.solve(b)),
        (l_dense, lambda: factor.half_solve(b)),
        (l_dense.conj().T, lambda: factor.half_solve(b, transposed=True)),
    ]
    for system, solve in systems:
        x = solve()
        assert x.dtype == dtype and x.shape == b.shape
        wrong = np.linalg.norm(system.astype(np.complex128) @ x - b, axis=0)
        bounds = [solve_bound(n, float(np.linalg.norm(system)), float(size), dtype) for size in np.linalg.norm(x, axis=0)]
        assert (wrong <= bounds).all()
    product = factor.matmul(b)
    exact = l_dense.astype(np.complex128) @ b
    assert product.dtype == dtype
    assert (np.abs(product - exact) <= 2 * n * unit_roundoff(dtype) * (np.abs(l_dense) @ np.abs(b))).all()
    logdet = factor.logdet()
    assert isinstance(logdet, float)
    assert (
        logdet == 2 * float(np.log(l_dense.diagonal().real.astype(float)).sum())
        or abs(logdet - 2 * float(np.log(l_dense.diagonal().real.astype(float)).sum())) <= 1e-12 * n
    )
