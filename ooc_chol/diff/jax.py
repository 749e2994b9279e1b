"""Sparse operations for JAX: jit, grad of any order, forward mode and vmap, with gradients that have the pattern of the matrix.

Values of a matrix are an array of JAX; where its entries are is static, as shapes are. Products and sums are gathers and dense
sums in a fixed order, compiled by XLA, without scatters. Solves of arrays on a GPU are done there; others, and eigenvalues, are
called back on the host.
"""

from __future__ import annotations

import operator
from typing import Any, Literal

from ooc_chol.extras import install_hint

try:
    import jax.numpy as jnp
    from jax import Array
except ImportError as failure:
    raise ImportError(f"ooc_chol.diff.jax needs JAX, which is not installed: {install_hint('jax')}") from failure

from ooc_chol.calls.options import documented
from ooc_chol.diff import eigenvalues, factors
from ooc_chol.diff import jax_eigenvalues as spectra
from ooc_chol.diff import jax_primitives as primitives
from ooc_chol.diff import jax_solves as solves
from ooc_chol.diff.eigenvalues import GAP, Spectrum
from ooc_chol.diff.factor_cache import Method
from ooc_chol.diff.jax_checks import check_one_type, check_square, is_wide, panel_of, vector_of
from ooc_chol.diff.jax_csr import CSR, add, check_matrix, diagonal, matmul, row_sums, spgemm, transpose, tril, triu
from ooc_chol.diff.jax_definite import cholesky, logdet, sample, selected_inverse
from ooc_chol.diff.jax_primitives import Structure
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.triangular import check_triangle
from ooc_chol.eigen.wanted import Which
from ooc_chol.sparse.planning import Devices

__all__ = [
    "CSR",
    "add",
    "cholesky",
    "diagonal",
    "eigsh",
    "logdet",
    "matmul",
    "row_sums",
    "sample",
    "sampled",
    "scale",
    "selected_inverse",
    "solve",
    "spgemm",
    "transpose",
    "triangular_solve",
    "tril",
    "triu",
]


def sampled(pattern: Pattern, g: Any, x: Any, *, precision: str | None = None) -> CSR:
    """The entries of ``g @ x.T`` that stand on a pattern.

    Parameters
    ----------
    pattern : Pattern
        (m, n).
    g : (m,) or (m, k) array
    x : (n,) or (n, k) array
        Numbers of one type.
    precision : {"FDF"}, optional
        As for :func:`matmul`.

    Returns
    -------
    CSR
        ``sum_k g[row, k] x[column, k]`` for each entry; the dense product is never made.

    Raises
    ------
    ValueError, TypeError
        Shapes or types do not fit.

    Notes
    -----
    Derivatives: with C the cotangent as a matrix on the pattern, ``C @ x`` and ``C.T @ g``.
    """
    left, _ = panel_of(g, "g", pattern.shape[0], None)
    right, _ = panel_of(x, "x", pattern.shape[1], None)
    check_one_type(left, "g", right, "x")
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"g has {left.shape[1]} columns, but x {right.shape[1]}: give as many of both")
    return CSR.of_any(primitives.sampled(left, right, Structure.of(pattern), wide=is_wide(precision, left.dtype)), pattern)


def scale(A: CSR, *, rows: Any = None, columns: Any = None, precision: str | None = None) -> CSR:
    """``diag(rows) A diag(columns)``, on the pattern of A.

    Parameters
    ----------
    A : CSR
        (m, n).
    rows : (m,) array, optional
        Multiplier of each row, of A's type.
    columns : (n,) array, optional
        Multiplier of each column.
    precision : {"FDF"}, optional
        Add float32 numbers in float64, in the derivatives by the two vectors.

    Returns
    -------
    CSR
        The scaled matrix.

    Raises
    ------
    ValueError, TypeError
        Shapes or types do not fit.
    """
    check_matrix(A)
    structure, wide, values = Structure.of(A.pattern), is_wide(precision, A.dtype), A.values
    ones = [jnp.ones((n, 1), A.dtype) for n in A.shape]
    if rows is not None:
        values = values * primitives.sampled(vector_of(rows, "rows", A.shape[0], A)[:, None], ones[1], structure, wide=wide)
    if columns is not None:
        values = values * primitives.sampled(ones[0], vector_of(columns, "columns", A.shape[1], A)[:, None], structure, wide=wide)
    return CSR.of_any(values, A.pattern)


def solve(
    A: CSR,
    b: Any,
    *,
    assume: Literal["symmetric", "spd"] | None = None,
    method: Method = "auto",
    trans: bool = False,
    precision: str | None = None,
) -> Array:
    """``A^-1 b``, by SuperLU on the host or by cuDSS on a GPU, with pivots.

    Parameters
    ----------
    A : CSR
        (n, n).
    b : (n,) or (n, k) array
        Numbers of A's type.
    assume : {"symmetric", "spd"}, optional
        Known property of A: that it is symmetric, or positive definite, too, which has less fill. Both triangles are compared.
    method : {"auto", "superlu", "cudss"}
        SuperLU on the host; or cuDSS for arrays on a CUDA device, which ``"auto"`` takes where it is installed.
    trans : bool
        Solve with ``A.T``.
    precision : {"FDF"}, optional
        Multiply and add float32 numbers in float64 in products of derivatives; the factor has A's type.

    Returns
    -------
    (n,) or (n, k) array
        The solutions.

    Raises
    ------
    SingularMatrixError
        A is singular; it names the pivot's column. Within ``jit``, JAX puts its text into an error of its own.
    ValueError, TypeError
        Shapes or types do not fit, A is not square, or not what was told of it.
    ImportError
        ``method="cudss"`` was asked for, but cuDSS is not installed.

    Notes
    -----
    Derivatives: ``w = A^-T g`` by b, ``-sampled(pattern, w, x)`` by A. The factor is kept where it was made, with a copy of the
    values: solves of derivatives, and later ones with equal values, use it. With ``vmap`` over right-hand sides all are solved at
    once; with ``vmap`` over values one matrix after the other is factored. SuperLU solves for arrays on a GPU, too: they are
    copied to the host and back.
    """
    check_matrix(A)
    check_square(A.pattern, "solve")
    if method not in ("auto", "superlu", "cudss"):
        raise ValueError(f"method is {method!r:.40}; give 'auto', 'superlu' or 'cudss'")
    if assume not in (None, "symmetric", "spd"):
        raise ValueError(f"assume is {assume!r:.40}; give None, 'symmetric' or 'spd'")
    solver = solves.solver_of(Structure.of(A.pattern), assume, method)
    return _solved(A, b, solver, trans, is_wide(precision, A.dtype))


@documented(like=factors.triangular_solve)
def triangular_solve(
    A: CSR, b: Any, *, lower: bool = True, trans: bool = False, unit_diagonal: bool = False, precision: str | None = None
) -> Array:
    """``T^-1 b`` with a sparse triangle, by substitution: on a CUDA device where CuPy is installed, else on the host.

    Parameters
    ----------
    A : CSR
        T, (n, n), without entries in the other triangle, such as ``A.tril()``.
    b : (n,) or (n, k) array
        Numbers of A's type.
    precision : {"FDF"}, optional
        As for :func:`solve`.

    Returns
    -------
    (n,) or (n, k) array
        The solutions.

    Raises
    ------
    ValueError, TypeError
        T has an entry in the other triangle, or lacks one on the diagonal, whose row is named; or shapes or types do not fit.
    SingularMatrixError
        There is a 0 on the diagonal. Within ``jit``, as for :func:`solve`.

    Notes
    -----
    Derivatives: as for :func:`solve`, on the pattern of T.
    """
    check_matrix(A)
    check_triangle(A.pattern, lower, unit_diagonal)
    part = A if not unit_diagonal else A.tril(-1) if lower else A.triu(1)
    solver = solves.triangular_solver_of(Structure.of(part.pattern), lower=lower, unit_diagonal=unit_diagonal)
    return _solved(part, b, solver, trans, is_wide(precision, A.dtype))


@documented(like=eigenvalues.eigsh)
def eigsh(
    A: CSR, k: int = 6, *, which: Which = "LM", tol: float | None = None, gap: float = GAP, devices: Devices = None
) -> Array:
    """Some eigenvalues of a symmetric matrix by :func:`ooc_chol.eigsh`, differentiable in its values where they are simple.

    Parameters
    ----------
    A : CSR
        (n, n), symmetric, with the entries of both triangles.

    Returns
    -------
    (k,) array
        Ascending.

    Raises
    ------
    ValueError
        A is not square or not symmetric, or k makes no sense; in a derivative, two eigenvalues, or one and the next that was not
        asked for, are closer than ``gap``. Within ``jit``, errors of the host as for :func:`solve`.

    Notes
    -----
    Derivatives: ``sampled(pattern, x g, x)`` with the eigenvectors x. A counts as ``(A + A.T) / 2``: derivatives are symmetric,
    and each entry counts by itself. Those of second order solve with A, shifted and bordered, which is factored once for each
    eigenvalue.
    """
    check_matrix(A)
    check_square(A.pattern, "eigsh")
    n, k = A.shape[0], operator.index(k)
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}, but A has {n} eigenvalues: give 1 to {n}")
    if which not in ("LM", "LA", "SA"):
        raise ValueError(f"which is {which!r:.40}: give 'LM', 'LA' or 'SA'")
    asked = ("spectrum", k, which, tol, gap, repr(devices))
    spectrum = Structure.of(A.pattern).kept(asked, lambda kept: Spectrum(kept.pattern, k, which, tol, gap, devices))
    return spectra.eigenvalues(A.values, spectrum)


def _solved(A: CSR, b: Any, solver: solves.Solver, trans: bool, wide: bool) -> Array:
    """Solve for right-hand sides with a solver."""
    columns, is_vector = panel_of(b, "b", A.shape[0], A)
    found = solves.solve(A.values, columns, solver, trans=trans, wide=wide)
    return found[:, 0] if is_vector else found
