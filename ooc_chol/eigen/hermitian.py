"""Complex Hermitian matrices by their real form, of twice the order, in which each eigenvalue is there twice as often."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, csr_array, issparse
from scipy.sparse.linalg import LinearOperator

from ooc_chol.config import whole_number
from ooc_chol.eigen.asked import BLOCKS, LEAST_PANELS
from ooc_chol.eigen.errors import NoConvergenceError
from ooc_chol.eigen.lanczos import MOST_ASYMMETRY
from ooc_chol.eigen.methods import null_of
from ooc_chol.eigen.pairs import Eigenpairs
from ooc_chol.eigen.powers import scaled_product
from ooc_chol.eigen.preconditioners import ADVICE
from ooc_chol.eigen.problem import check_shape
from ooc_chol.eigen.shift_invert import FewError, nearest_order
from ooc_chol.eigen.wanted import in_wanted_order
from ooc_chol.errors import PreconditionerError, UnsupportedTypeError
from ooc_chol.files.inputs import plain_array
from ooc_chol.precision.triples import Precision

#: Squared singular values of vectors that are read as complex ones are 1 + s and 1 - s, two by two, 0 <= s <= 1: 2 and 0 where
#: both of a pair are there. A vector counts from this on.
_COUNTS = 0.5
#: Columns of a product.
_WIDTH = 8


def is_complex(A: Any) -> bool:
    """Tell whether it is a matrix of complex numbers that has a real form here."""
    return (isinstance(A, np.ndarray | LinearOperator) or issparse(A)) and A.dtype is not None and A.dtype.kind == "c"


def real_form(A: Any) -> Any:
    """``[[B, -C], [C, B]]`` of ``A = B + i C``, in the form of A.

    Raises ``ValueError``: A is not Hermitian, or not square.
    """
    check_shape(A.shape)
    n = A.shape[0]
    if isinstance(A, LinearOperator):
        product = _stacked(A.matmat, "A @ x")
        return LinearOperator((2 * n, 2 * n), matvec=product, matmat=product, dtype=np.zeros(0, A.dtype).real.dtype)
    if A.dtype.itemsize > 16:
        raise UnsupportedTypeError("eigsh", A.dtype.name, "give complex numbers up to complex128")
    a: Any = csr_array(A) if issparse(A) else plain_array("A", A)
    entries = a.data if issparse(a) else a
    largest = float(np.abs(entries).max(initial=0.0))
    off = float(abs(a - a.conj().T).max()) / largest if largest and np.isfinite(largest) else 0.0
    if off > MOST_ASYMMETRY[Precision.DDD if a.dtype.itemsize > 8 else Precision.FDF]:
        raise ValueError(
            f"A is not Hermitian: it differs from its conjugate transpose by {off:.2g} of its largest entry; take "
            "(A + A.conj().T) / 2"
        )
    parts = [[a.real, -a.imag], [a.imag, a.real]]
    return block_array(parts, format="csr") if issparse(a) else np.block(parts)


def _stacked(function: Any, name: str) -> Any:
    """A function of complex columns as one of real ones, of real parts over imaginary ones; ``name`` is of what it returns."""

    def of_real(x: NDArray[Any]) -> NDArray[Any]:
        columns = x.reshape(len(x), -1)
        n = len(x) // 2
        given = columns[:n] + 1j * columns[n:]
        y = plain_array(name, function(given))
        if y.shape != given.shape:
            raise ValueError(
                f"{name} has shape {y.shape} for an x of shape {given.shape}; return as many columns, of as many rows"
            )
        return np.concatenate([y.real, y.imag]).reshape(x.shape)

    return of_real


def real_call(call: Any) -> Any:
    """The call of the real form, of twice as many pairs.

    Raises ``ValueError`` and ``TypeError``.
    """
    real, n, k = real_form(call.A), call.A.shape[0], whole_number(call.k, "k")
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}, but A is {n} x {n}: ask for 1 to {n} eigenpairs")
    most = BLOCKS[0] if call.block is None else whole_number(call.block, "block")
    return replace(
        call,
        A=real,
        k=2 * k,
        ncv=None if call.ncv is None else 2 * _columns_of(call, k, n),
        v0=None if call.v0 is None else _parts(_vectors("v0", call.v0, n, most)),
        null=None if call.null is None else _null(call.null, k, n),
        OPinv=None if call.OPinv is None else _inverse(call.OPinv),
        preconditioner=None if call.preconditioner is None else _preconditioner(call.preconditioner, n),
    )


def _columns_of(call: Any, k: int, n: int) -> int:
    """The columns of a basis that are asked for, checked."""
    ncv, width = whole_number(call.ncv, "ncv"), 1 if call.block is None else whole_number(call.block, "block")
    least = min((-(-2 * k // max(1, width)) + LEAST_PANELS) * width, 2 * n)
    if 2 * ncv < least:
        with_block = "" if call.block is None else f" with block={width}"
        raise ValueError(
            f"ncv is {ncv}, but {k} eigenpairs{with_block} need a basis of at least {-(-least // 2)} columns: leave ncv out, or "
            "give more"
        )
    return ncv


def _vectors(name: str, given: Any, n: int, most: int) -> NDArray[Any]:
    """Vectors of a caller, checked."""
    v = plain_array(name, given)
    if v.dtype.kind not in "biufc":
        raise TypeError(f"{name} holds {v.dtype}; give real or complex numbers")
    if v.ndim not in (1, 2) or len(v) != n or not 1 <= v[:1].size <= most:
        raise ValueError(f"{name} has shape {v.shape}; give a vector ({n},), or up to {most} of them as columns ({n}, m)")
    if not np.isfinite(v).all():
        row = np.argwhere(~np.isfinite(v))[0][0]
        raise ValueError(f"{name} holds NaN or infinite numbers in row {row}: all must be finite")
    return v


def _parts(v: Any) -> NDArray[Any]:
    """Real parts over imaginary ones."""
    return np.concatenate([v.real, v.imag])


def _null(given: Any, k: int, n: int) -> NDArray[Any]:
    """Null vectors of a caller, checked, and i times them."""
    v = _vectors("null", given, n, n).reshape(n, -1)
    both = np.concatenate([_parts(v), _parts(1j * v)], axis=1)
    independent = null_of(both, 2 * n)
    count = 0 if independent is None else independent.shape[1] // 2
    if k > n - count:
        raise ValueError(f"k is {k}, but beside {count} null vectors A has {n - count} eigenpairs")
    return both


def _inverse(given: Any) -> Any:
    solve = given.matmat if isinstance(given, LinearOperator) else given if callable(given) else getattr(given, "solve", None)
    return _stacked(solve, "OPinv @ x") if callable(solve) else given


def _preconditioner(given: Any, n: int) -> Any:
    name = "preconditioner @ x"
    if callable(given) and not isinstance(given, LinearOperator):
        return _stacked(given, name)
    if not (isinstance(given, LinearOperator | np.ndarray | list | tuple) or issparse(given)):
        return given
    if isinstance(given, np.ndarray | list | tuple):
        given = plain_array("preconditioner", given)
    if given.shape not in ((n,), (n, n)):
        raise PreconditionerError(f"has shape {' x '.join(map(str, given.shape))}, but A is {n} x {n}", ADVICE)
    if isinstance(given, LinearOperator):
        return _stacked(given.matmat, name)
    return _stacked(given.__matmul__, name) if len(given.shape) == 2 else np.tile(given, 2)


def complex_pairs(call: Any, pairs: Eigenpairs) -> Eigenpairs:
    """The wanted pairs of A, of those of its real form."""
    values, vectors = _orthonormal(pairs.eigenvalues, pairs.eigenvectors)
    # With sigma all are on the side that is wanted: those at sigma, to roundoff, too.
    near = call.sigma is not None
    order = nearest_order(values, float(call.sigma), "LM") if near else in_wanted_order(values, call.which)
    order = np.sort(order[: call.k])
    values, vectors = values[order], vectors[:, order].astype(_complex_of(pairs.eigenvectors))
    scale = pairs.report.scale
    power = -int(np.frexp(scale)[1])
    residuals = _residuals(call.A, values, vectors, power) / (float(np.ldexp(scale, power)) or 1.0)
    note = f"A is complex: {len(pairs.eigenvalues)} pairs of its real form, of order {2 * len(vectors)}, have each pair twice"
    report = replace(pairs.report, eigenvalues=values, residuals=residuals, notes=(*pairs.report.notes, note))
    return Eigenpairs(values, vectors, residuals, report, pairs.trace)


def few_error(told: FewError) -> FewError:
    """The error of A, of that of its real form."""
    return FewError(told.count // 2, told.n // 2, told.sigma, replace(told.wanted, k=told.wanted.k // 2))


def complex_error(call: Any, told: NoConvergenceError) -> NoConvergenceError:
    """The error of A, of that of its real form."""
    values, vectors = told.eigenvalues, told.eigenvectors[: call.A.shape[0]].astype(_complex_of(told.eigenvectors))
    residuals, facts = told.residuals, (told.worst, told.tol, told.reason, told.advice)
    if len(values):
        values, vectors = _orthonormal(values, told.eigenvectors)
        residuals = np.full(len(values), told.residuals.max())
    return NoConvergenceError(call.k, values[: call.k], vectors[:, : call.k], residuals[: call.k], *facts)


def _orthonormal(values: NDArray[np.float64], u: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """All pairs, ascending, in the span of vectors of the real form, read as complex ones: Rayleigh and Ritz."""
    n = len(u) // 2
    left, singular, right = np.linalg.svd(u[:n].astype(np.float64) + 1j * u[n:].astype(np.float64), full_matrices=False)
    kept = singular**2 >= _COUNTS
    left, singular, right = left[:, kept], singular[kept], right[kept]
    h = (singular[:, None] * right * values) @ (right.conj().T / singular)
    found, turned = np.linalg.eigh((h + h.conj().T) / 2)
    return found, left @ turned


def _residuals(A: Any, values: NDArray[np.float64], vectors: NDArray[Any], power: int) -> NDArray[np.float64]:
    """``||A v - value v|| / ||v||`` times ``2^power``, whose squares fit, some columns at a time."""
    a = plain_array("A", A) if isinstance(A, np.ndarray) else A
    product = scaled_product(_stacked(a.matmat if isinstance(a, LinearOperator) else a.__matmul__, "A @ x"), power)
    off, values, n = [], np.ldexp(values, power), len(vectors)
    for first in range(0, len(values), _WIDTH):
        v = np.ascontiguousarray(vectors[:, first : first + _WIDTH]).astype(np.complex128)
        y = product(_parts(v))
        off.append(np.linalg.norm(y[:n] + 1j * y[n:] - v * values[first : first + _WIDTH], axis=0) / np.linalg.norm(v, axis=0))
    return np.concatenate(off)


def _complex_of(vectors: NDArray[Any]) -> Any:
    return np.result_type(vectors.dtype, np.complex64)
