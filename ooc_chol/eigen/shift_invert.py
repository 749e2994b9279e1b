"""Eigenvalues nearest a number sigma: Lanczos on the inverse of A - sigma I, certificates in A itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import LinearOperator, SuperLU, splu

from ooc_chol.config import format_bytes
from ooc_chol.eigen.factor_size import ORDERING, factor_size
from ooc_chol.eigen.krylov import KrylovBasis
from ooc_chol.eigen.lanczos import MOST_ASYMMETRY, START_SEED, AtRestart, Found, Lanczos
from ooc_chol.eigen.operator_space import OperatorSpace, Product
from ooc_chol.eigen.wanted import Wanted
from ooc_chol.errors import BudgetError, SingularMatrixError
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.inputs import plain_array
from ooc_chol.precision.triples import Precision

#: Residuals of Lanczos on the inverse, relative to its largest Ritz value, one after the other until those in A are small enough:
#: eigenvalues that are much farther from sigma than the nearest want less.
_INNER_TOLS = (1e-10, 1e-12, 1e-14)
#: How small pivots may be beside others of their column, one after the other until solutions are good: 0 stays on the diagonal.
_PIVOTING = (0.0, 0.1, 1.0)
#: Largest backward error of a solution; and of what the caller's OPinv returns, relative to the right-hand side.
_MOST_BACKWARD, _MOST_GIVEN = 1e-12, 1e-3
#: Largest eigenvalue of the inverse beside one over that of A: what is beyond it is an eigenvalue of A at sigma.
_MOST_CONDITION = 1e13
#: Products that tell how large the largest eigenvalue of A is, and columns of a product.
_SCALE_PASSES, _WIDTH = 8, 8

#: Takes right-hand sides, as columns, and returns solutions.
Solve = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Inverse(NamedTuple):
    """What solves with A - sigma I."""

    solve: Solve
    words: str  #: Whose it is: ``"SuperLU"`` or ``"OPinv"``
    scale: float  #: Largest magnitude of an eigenvalue of A, from below


def inverse_of(
    product: Product, n: int, sigma: float, *, matrix: csc_array | None, OPinv: Any = None, memory_budget: int | None = None
) -> Inverse:
    """What solves with ``A - sigma I``, tried out.

    Parameters
    ----------
    product : callable
        Takes an (n, b) float64 array, b up to 8, and returns A times it.
    n : int
        Rows of A.
    sigma : float
        The shift.
    matrix : (n, n) csc_array or None
        A, where it is at hand, to be factored.
    OPinv : LinearOperator or callable, optional
        Solves with ``A - sigma I`` in place of a factor.
    memory_budget : int, optional
        Most bytes of the factor; by default what the host has free.

    Returns
    -------
    Inverse
        What solves.

    Raises
    ------
    BudgetError
        The factor takes more than the budget; told before it is made.
    SingularMatrixError
        sigma is an eigenvalue of A, to working precision.
    ValueError
        OPinv does not solve with ``A - sigma I``, or there is neither a matrix nor OPinv.
    """
    scale = _largest(product, n)
    scale_shifted = max(scale + abs(sigma), np.finfo(np.float64).tiny)
    if OPinv is not None:
        inverse = Inverse(_given(OPinv, n), "OPinv", scale)
        _try_given(inverse, product, n, sigma, scale_shifted)
    elif matrix is None:
        raise ValueError(
            "sigma needs the inverse of A - sigma I, but A is a LinearOperator, which cannot be factored: give OPinv, a "
            "LinearOperator that solves with it"
        )
    else:
        inverse = Inverse(_factored(matrix, sigma, scale_shifted, memory_budget), "SuperLU", scale)
    _refuse_singular(inverse, n, sigma, scale_shifted)
    return inverse


# factors


def _factored(matrix: csc_array, sigma: float, scale: float, memory_budget: int | None) -> Solve:
    """SuperLU's factor, pivots on the diagonal where solutions are good with them."""
    n = matrix.shape[0]
    shifted = csc_array(matrix - sigma * eye_array(n, format="csc"), dtype=np.float64)
    _check_budget(shifted, memory_budget)
    b = np.random.default_rng(START_SEED).uniform(-1.0, 1.0, n)
    error = np.inf
    for threshold in _PIVOTING:
        factor = _superlu(shifted, threshold, sigma)
        x = factor.solve(b)
        size = float(np.linalg.norm(x))
        error = float(np.linalg.norm(shifted @ x - b)) / (scale * size) if np.isfinite(size) and size else np.inf
        if error <= _MOST_BACKWARD:
            return lambda rhs, factor=factor: factor.solve(np.asfortranarray(rhs))  # type: ignore[misc]
    raise SingularMatrixError(
        f"A - {sigma:g} I", f"SuperLU's solutions have backward errors of {error:.2g}", _elsewhere(sigma, scale)
    )


def _superlu(shifted: csc_array, threshold: float, sigma: float) -> SuperLU:
    try:
        return splu(shifted, diag_pivot_thresh=threshold, **ORDERING)
    except RuntimeError as error:
        raise SingularMatrixError(f"A - {sigma:g} I", f"SuperLU says {error}", _elsewhere(sigma, abs(shifted).max())) from error
    except MemoryError as error:
        raise BudgetError("memory of the factor of A - sigma I", *_sizes(factor_size(shifted).nbytes), _ADVICE) from error


#: What to do where the factor is too large.
_ADVICE = "give OPinv, a LinearOperator that solves with A - sigma I, or which='SA' with a preconditioner"


def _sizes(needed: int) -> tuple[int, int]:
    """Bytes that are needed, and those there are, the fewer."""
    return needed, min(needed - 1, free_host_bytes())


def _check_budget(shifted: csc_array, memory_budget: int | None) -> None:
    """Raise where the factor does not fit; what would fit as a whole square is not looked at more closely."""
    n = shifted.shape[0]
    budget = free_host_bytes() if memory_budget is None else memory_budget
    if 24 * n * n <= budget:
        return
    size = factor_size(shifted)
    if size.nbytes > budget:
        what = f"memory of the factor of A - sigma I, {size.entries:,} entries, {format_bytes(size.nbytes)}"
        raise BudgetError(what, size.nbytes, budget, _ADVICE)


def _elsewhere(sigma: float, scale: float) -> str:
    """Advice where sigma is an eigenvalue."""
    other = sigma - 1e-6 * scale
    return f"take a sigma beside it, such as {other:.6g}, or which='SA' with null= where A is a Laplacian and sigma 0"


# what callers give


def _given(op_inv: Any, n: int) -> Solve:
    """The caller's own, as a function."""
    if isinstance(op_inv, LinearOperator):
        if op_inv.shape != (n, n):
            raise ValueError(f"OPinv has shape {op_inv.shape}, but A is {n} x {n}")
        return lambda rhs: plain_array("OPinv @ x", op_inv.matmat(rhs), np.float64)
    if not callable(op_inv):
        raise TypeError(f"OPinv is a {type(op_inv).__name__}; give a LinearOperator, or a function of an (n, b) array")
    return lambda rhs: plain_array("OPinv @ x", op_inv(rhs.copy()), np.float64)


def _try_given(inverse: Inverse, product: Product, n: int, sigma: float, scale: float) -> None:
    """Raise unless OPinv solves with A - sigma I, roughly."""
    b = np.random.default_rng(START_SEED).uniform(-1.0, 1.0, (n, 1))
    x = inverse.solve(b)
    if x.shape != b.shape:
        raise ValueError(f"OPinv returned shape {x.shape} for an array of shape {b.shape}")
    error = float(np.linalg.norm(product(x) - sigma * x - b))
    if not error <= _MOST_GIVEN * np.linalg.norm(b) + _MOST_BACKWARD * scale * np.linalg.norm(x):
        raise ValueError(
            f"OPinv does not solve with A - sigma I, sigma = {sigma:g}: of a random b, ||(A - sigma I) OPinv(b) - b|| is "
            f"{error / np.linalg.norm(b):.2g} ||b||; mind the sign, or solve more accurately"
        )


# what is looked at


def _largest(product: Product, n: int) -> float:
    """Largest magnitude of an eigenvalue of A, from below: that of a short run of Lanczos."""
    panels = min(_SCALE_PASSES + 1, n)
    basis = KrylovBasis(OperatorSpace(product, n, block=1, capacity=panels))
    basis.join(START_SEED)
    while not basis.is_full:
        basis.multiply(basis.frontier[0])
    basis.read()
    return basis.ritz("LM").scale


def _refuse_singular(inverse: Inverse, n: int, sigma: float, scale: float) -> None:
    """Raise where the inverse is so large that it has one eigenvector and roundoff: two steps of inverse iteration tell."""
    x = np.random.default_rng(START_SEED).uniform(-1.0, 1.0, (n, 1))
    size = 1.0
    for _ in range(2):
        x = inverse.solve(x / np.linalg.norm(x))
        size = float(np.linalg.norm(x))
        if not np.isfinite(size):
            break
    if not size * scale <= _MOST_CONDITION:
        raise SingularMatrixError(
            f"A - {sigma:g} I", f"A has an eigenvalue within {1 / size:.2g} of sigma", _elsewhere(sigma, scale)
        )


# eigenpairs


@final
class ShiftInvert:
    """Eigenpairs of A from those of ``(A - sigma I)^-1``.

    Parameters
    ----------
    product : callable
        As :func:`inverse_of` takes it.
    n : int
        Rows of A.
    sigma : float
        The shift.
    inverse : Inverse
        What solves.
    wanted : Wanted
        Of the inverse, as SciPy has it: ``"LM"`` are eigenvalues of A nearest sigma, ``"LA"`` those nearest above it first and
        ``"SA"`` those nearest below it first; ``tol`` is that of residuals in A.

    Notes
    -----
    Vectors of the inverse are multiplied with it once more, which makes the residuals in A of those far from sigma smaller, and
    values are those of Rayleigh and Ritz in A, of the space that they span. Residuals follow from products with A of the vectors
    that are returned.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import diags_array
    >>> from ooc_chol.eigen.shift_invert import ShiftInvert, inverse_of
    >>> from ooc_chol.eigen.wanted import Wanted
    >>> a = diags_array(np.arange(1.0, 201.0)).tocsc()
    >>> inverse = inverse_of(a.__matmul__, 200, 50.2, matrix=a)
    >>> run = ShiftInvert(a.__matmul__, 200, 50.2, inverse, Wanted(3, "LM", 1e-10))
    >>> run.run(block=2, panels=12, max_passes=500)[0].values.round(8)
    array([50., 51., 49.])
    """

    def __init__(self, product: Product, n: int, sigma: float, inverse: Inverse, wanted: Wanted) -> None:
        self._product, self._n, self._sigma, self._inverse, self._wanted = product, n, sigma, inverse, wanted

    def run(
        self,
        *,
        block: int,
        panels: int,
        max_passes: int,
        check: bool = True,
        start: NDArray[np.float64] | None = None,
        at_restart: AtRestart | None = None,
    ) -> tuple[Found, NDArray[np.float64]]:
        """Run Lanczos on the inverse.

        Parameters
        ----------
        block, panels : int
            Columns of a panel, and panels of the basis.
        max_passes : int
            Most solutions with a panel.
        check : bool
            Whether a check sweep follows.
        start : (n, block) array, optional
            Starting panel.
        at_restart : callable, optional
            As :class:`~ooc_chol.eigen.lanczos.Lanczos` takes it.

        Returns
        -------
        Found
            Values and residuals in A, the most wanted first; its counts are of panels that were solved for.
        (n, k) array
            Vectors.

        Raises
        ------
        ValueError
            The inverse is not symmetric.
        """
        with ExitStack() as stack:
            space = OperatorSpace(self._inverse.solve, self._n, block=block, capacity=panels + 1)
            stack.callback(space.close)
            lanczos = Lanczos(space, self._wanted, max_passes=max_passes, check=check, at_restart=at_restart)
            for tol in _INNER_TOLS:
                lanczos.wanted = replace(self._wanted, tol=tol)
                inner = self._symmetric(lanczos, start)
                vectors = space.take(range(-(-self._wanted.k // block)), self._wanted.k)
                found, v = self._in_a(inner, vectors)
                if inner.why_not or not found.why_not:
                    break
        return found, v

    def _symmetric(self, lanczos: Lanczos, start: NDArray[np.float64] | None) -> Found:
        """Run, or run on, and blame what the caller gave where it is that."""
        try:
            return lanczos.run(start)
        except ValueError as error:
            asymmetry = lanczos.counts.asymmetry
            if self._inverse.words == "OPinv" and asymmetry > MOST_ASYMMETRY[Precision.DDD]:
                raise ValueError(
                    f"OPinv is not symmetric: projected, it differs from its transpose by {asymmetry:.2g} of its largest entry; "
                    "solve more accurately, and see that A is symmetric"
                ) from error
            raise

    def _in_a(self, inner: Found, vectors: NDArray[np.float64]) -> tuple[Found, NDArray[np.float64]]:
        """Pairs of A, with residuals in A."""
        q = np.linalg.qr(np.concatenate([self._inverse.solve(part) for part in _parts(vectors)], axis=1))[0]
        h = q.T @ self._times(q)
        values, turned = np.linalg.eigh((h + h.T) / 2)
        order = np.argsort(_nearness(values - self._sigma, self._wanted.which), kind="stable")
        values, v = values[order], q @ turned[:, order]
        residuals = np.linalg.norm(self._times(v) - v * values, axis=0) / np.linalg.norm(v, axis=0)
        scale = max(self._inverse.scale, float(np.abs(values).max()))
        counts = inner.counts
        counts.certificate_passes = -(-self._wanted.k // _WIDTH)
        why = ""
        if residuals.max() > self._wanted.tol * scale:
            why = inner.why_not or f"{self._inverse.words} solves with too large errors for these"
        return Found(values, residuals, scale, why, counts), v

    def _times(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """A times an array of any width."""
        return np.concatenate([np.asarray(self._product(part), dtype=np.float64) for part in _parts(x)], axis=1)


def nearest_order(values: NDArray[np.float64], sigma: float, which: str) -> NDArray[np.intp]:
    """The order in which eigenvalues of A are wanted that are looked for near sigma."""
    return np.argsort(_nearness(values - sigma, which), kind="stable")


def _nearness(off: NDArray[np.float64], which: str) -> NDArray[np.float64]:
    """The smaller the more wanted: minus the eigenvalue of the inverse, or its magnitude."""
    with np.errstate(divide="ignore"):
        inverse = 1.0 / off
    return -np.abs(inverse) if which == "LM" else -inverse if which == "LA" else inverse


def _parts(x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Panels of 8 columns."""
    return [np.ascontiguousarray(x[:, first : first + _WIDTH]) for first in range(0, x.shape[1], _WIDTH)]
