"""Generalized problems ``A v = w M v``: the symmetric problem of ``L^-1 A L^-T``, where ``M = L L^T`` is the mass matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csc_array, issparse
from scipy.sparse.linalg import LinearOperator, splu

from ooc_chol.config import parse_bytes, whole_number
from ooc_chol.eigen.asked import BLOCKS, start_of, wanted_of
from ooc_chol.eigen.factor_size import ORDERING
from ooc_chol.eigen.lanczos import MOST_ASYMMETRY
from ooc_chol.eigen.methods import sigma_of
from ooc_chol.eigen.pairs import Eigenpairs
from ooc_chol.eigen.powers import scaled_product
from ooc_chol.eigen.problem import check_shape
from ooc_chol.eigen.shift_invert import Beside, check_budget, check_count, check_near, factored, inertia, largest_of, on_side
from ooc_chol.eigen.wanted import Wanted
from ooc_chol.errors import NonFiniteError, SingularMatrixError, UnsupportedTypeError
from ooc_chol.files.inputs import plain_array
from ooc_chol.precision.triples import Precision

_Function = Callable[[NDArray[Any]], NDArray[Any]]
#: By what a shift is moved while there is no factor, beside the largest eigenvalue, and the largest of that.
_STEP, _LEAST_SHIFT, _MOST_SHIFT = 64.0, 1e-14, 1e-4
_ADVICE = "give the LinearOperator of L^-1 A L^-T, M = L L^T, as A, and no M"


class Half(NamedTuple):
    """L of ``M = L L^T``, by what it makes of (n, b) arrays."""

    times: _Function  #: L x
    times_transposed: _Function  #: L^T x
    solve: _Function  #: L^-1 x
    solve_transposed: _Function  #: L^-T x


class Reduced(NamedTuple):
    """A generalized problem as one of a symmetric matrix."""

    call: Any  #: That of ``L^-1 A L^-T``
    half: Half


def reduced_call(call: Any, *, only_planned: bool = False) -> Reduced:
    """The call of ``L^-1 A L^-T``, with the inverse that ``sigma`` needs; plans need no factor.

    Raises ``TypeError``, ``ValueError``, ``BudgetError`` and ``SingularMatrixError``.
    """
    for name in ("preconditioner", "null"):
        if getattr(call, name) is not None:
            raise TypeError(f"{name} is of LOBPCG, which solves no generalized problems: leave it out, or M")
    a, m = _matrix(call.A, "A", operators=True), _matrix(call.M, "M")
    if a.shape != m.shape:
        raise ValueError(f"M is {m.shape[0]} x {m.shape[1]}, but A is {a.shape[0]} x {a.shape[1]}")
    n, budget = m.shape[0], None if call.memory_budget is None else parse_bytes(call.memory_budget, "memory_budget")
    wanted_of(call.k, call.which, None, Precision.DDD, n)
    if call.sigma is not None:
        sigma_of(call.sigma, Precision.DDD)
    start_of(call.v0, n, BLOCKS[0] if call.block is None else whole_number(call.block, "block"))
    half = _UNKNOWN if only_planned else _half(m, budget)

    def product(x: NDArray[Any]) -> NDArray[Any]:
        y = half.solve_transposed(x.reshape(n, -1).astype(np.float64))
        times = a.matmat(y) if isinstance(a, LinearOperator) else a @ y
        return half.solve(np.asarray(times)).reshape(x.shape)

    made = replace(call, A=LinearOperator((n, n), matvec=product, matmat=product, dtype=np.float64), M=None)
    if call.v0 is not None:
        v0 = plain_array("v0", call.v0, np.float64)
        made = replace(made, v0=half.times_transposed(v0.reshape(n, -1)))
    if call.sigma is None or only_planned:
        return Reduced(made, half)
    if call.OPinv is None and isinstance(a, LinearOperator):
        raise ValueError("sigma needs the inverse of A - sigma M, but A is a LinearOperator: give OPinv, which solves with it")
    if call.OPinv is not None:
        return Reduced(replace(made, OPinv=_inverse_of(half, _given(call.OPinv))), half)
    return Reduced(replace(made, OPinv=_factored(call, csc_array(a), csc_array(m), half, product, budget)), half)


def generalized_pairs(reduced: Reduced, pairs: Eigenpairs) -> Eigenpairs:
    """The pairs with vectors of A and M, orthonormal with M between."""
    vectors = reduced.half.solve_transposed(pairs.eigenvectors.astype(np.float64)).astype(pairs.eigenvectors.dtype)
    note = "A v = w M v by the factor of M: residuals are in the norm of its inverse, v.T M v is the identity"
    report = replace(pairs.report, notes=(*pairs.report.notes, note))
    return Eigenpairs(pairs.eigenvalues, vectors, pairs.residuals, report, pairs.trace)


# matrices


def _matrix(given: Any, name: str, *, operators: bool = False) -> Any:
    """A real symmetric matrix as an array of float64 or sparse by columns, or a LinearOperator where that will do."""
    if isinstance(given, LinearOperator) and operators:
        check_shape(given.shape)
        if given.dtype is not None and given.dtype.kind == "c":
            raise UnsupportedTypeError("eigsh with M", given.dtype.name, "give real numbers")
        return given
    if not (issparse(given) or isinstance(given, np.ndarray | list)):
        what = "an array, a SciPy matrix or a LinearOperator" if operators else "an array or a SciPy matrix"
        raise TypeError(f"{name} is a {type(given).__name__}; with a mass matrix M give {what}; or {_ADVICE}")
    a: Any = given if issparse(given) else plain_array(name, given)
    if len(a.shape) != 2 or a.shape[0] != a.shape[1] or not a.shape[0]:
        raise ValueError(f"{name} has shape {a.shape}; give a square matrix")
    if a.dtype.kind not in "biuf":
        raise UnsupportedTypeError("eigsh with M", a.dtype.name, "give real numbers")
    a = csc_array(a, dtype=np.float64) if issparse(a) else np.asarray(a, dtype=np.float64)
    entries = a.data if issparse(a) else a
    if not np.isfinite(entries).all():
        whole = a.tocoo() if issparse(a) else None
        bad = np.argwhere(~np.isfinite(entries))[0]
        row, column = (bad[0], bad[1]) if whole is None else (whole.row[bad[0]], whole.col[bad[0]])
        raise NonFiniteError(int(row), int(column), None, name=name)
    off = float(abs(a - a.T).max()) / (float(np.abs(entries).max(initial=0.0)) or 1.0)
    if off > MOST_ASYMMETRY[Precision.DDD]:
        raise ValueError(f"{name} is not symmetric: it differs from its transpose by {off:.2g} of its largest entry")
    return a


def _unknown(x: NDArray[Any]) -> NDArray[Any]:
    return x


_UNKNOWN = Half(_unknown, _unknown, _unknown, _unknown)


def _half(m: Any, budget: int | None) -> Half:
    """L by Cholesky's factorization, or by SuperLU's, which is that of a symmetric M whose pivots stay on the diagonal."""
    wrong = "M is not positive definite, and no mass matrix: "
    if not issparse(m):
        try:
            lower = cholesky(m, lower=True)
        except np.linalg.LinAlgError as error:
            raise ValueError(f"{wrong}{error}") from error
        return Half(
            lambda x: lower @ x,
            lambda x: lower.T @ x,
            lambda x: solve_triangular(lower, x, lower=True),
            lambda x: solve_triangular(lower, x, lower=True, trans="T"),
        )
    check_budget(m, budget, "M", _ADVICE)
    try:
        factor = splu(m, diag_pivot_thresh=0.0, **ORDERING)
    except RuntimeError as error:
        raise ValueError(f"{wrong}SuperLU says {error}") from error
    pivots = factor.U.diagonal()
    if not np.array_equal(factor.perm_r, factor.perm_c) or not (pivots > 0).all():
        raise ValueError(f"{wrong}its smallest pivot is {float(pivots.min()):.3g}")
    order, roots = np.argsort(factor.perm_r), np.sqrt(pivots)[:, None]
    lower = csc_array(factor.L)
    triangle = splu(lower, permc_spec="NATURAL", diag_pivot_thresh=0.0)  # which is L itself
    place = factor.perm_r

    return Half(
        lambda x: (lower @ (roots * x))[place],
        lambda x: roots * (lower.T @ x[order]),
        lambda x: triangle.solve(np.asfortranarray(x[order])) / roots,
        lambda x: triangle.solve(np.asfortranarray(x / roots), "T")[place],
    )


def _given(given: Any) -> _Function:
    """The function of a caller that solves with ``A - sigma M``."""
    solve = given.matmat if isinstance(given, LinearOperator) else given if callable(given) else getattr(given, "solve", None)
    if not callable(solve):
        raise TypeError(f"OPinv is a {type(given).__name__}; give a LinearOperator, a factor, or a function of an (n, b) array")
    return cast("_Function", solve)


def _inverse_of(half: Half, solve: _Function) -> _Function:
    """The inverse of ``L^-1 (A - sigma M) L^-T`` by what solves with ``A - sigma M``."""
    return lambda x: half.times_transposed(np.asarray(solve(np.asfortranarray(half.times(x)))))


def _factored(call: Any, a: csc_array, m: csc_array, half: Half, product: _Function, budget: int | None) -> Beside:
    """The inverse by SuperLU, of a shift beside sigma where A - sigma M has no factor, or too few eigenvalues are on its side."""
    n, given, powers = m.shape[0], float(call.sigma), (_power(a), _power(m))
    a, m = (
        csc_array((np.ldexp(each.data, by), each.indices, each.indptr), shape=each.shape)
        for each, by in zip((a, m), powers, strict=True)
    )
    power = powers[0] - powers[1]  # of eigenvalues of these two
    size, mass, scale = (*(float(abs(each).sum(axis=0).max()) for each in (a, m)), largest_of(scaled_product(product, power), n))
    with np.errstate(over="ignore"):
        sigma = float(np.ldexp(given, power))
    check_near(sigma, scale, power)
    unit = max(scale, abs(sigma)) or 1.0
    step, told, best, count = 0.0, "", None, 0
    while step <= (_MOST_SHIFT if best is None else _LEAST_SHIFT) and count < call.k:
        beside = sigma + (step if call.which == "SA" else -step) * unit
        shifted = csc_array(a - beside * m)
        check_budget(shifted, budget, "A - sigma M", _ADVICE)
        factor, why = factored(shifted, size + abs(beside) * mass)
        told = told or why
        if factor is not None:
            below = None if call.which == "LM" else inertia(factor)
            count = n if below is None else on_side(below, n, call.which)
            best = factor, beside, below
        step = step * _STEP or _LEAST_SHIFT
    if best is None:
        raise SingularMatrixError(f"A - {given!r} M", told, "take another sigma, or OPinv")
    check_count(count, n, given, Wanted(call.k, call.which, 0.0))
    factor, beside, below = best
    inverse = scaled_product(_inverse_of(half, factor.solve), powers[0])
    return Beside(inverse, given if beside == sigma else float(np.ldexp(beside, -power)), "M", below)


def _power(a: csc_array) -> int:
    """The p for which the largest entry of ``2^p A`` is about 1."""
    return -int(np.frexp(np.abs(a.data).max(initial=0.0))[1])
