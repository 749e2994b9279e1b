"""Preconditioners of LOBPCG: a diagonal, or whatever multiplies a panel of residuals on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from ooc_chol.errors import PreconditionerError
from ooc_chol.files.inputs import check_entries, plain_array

ADVICE = (
    "give an (n,) array for a diagonal, a LinearOperator((n, n), matvec=...), an n x n matrix, or a function of an (n, b) array"
)
#: Between which magnitudes the largest number of a preconditioner is left as it is: it counts up to a factor.
_ORDINARY = 1e-15, 1e15


@final
class Preconditioner:
    """A symmetric positive definite matrix, an approximation of the inverse of A.

    Shapes: ``given`` (n,) array_like, LinearOperator, (n, n). Raises ``PreconditionerError`` and ``TypeError``.
    """

    def __init__(self, given: Any, n: int) -> None:
        self.n = n
        self.diagonal: NDArray[np.float64] | None = None  #: Where it is one
        self._product = self._product_of(given)

    def __call__(self, residuals: NDArray[np.float64]) -> NDArray[np.float64]:
        """The preconditioner times an (n, b) array.

        Shapes: ``residuals`` (n, b). Returns (n, b): the product. Raises ``PreconditionerError``: what it returns has another
        shape or holds NaN, or ``r.T @ P @ r`` is negative for a column.
        """
        found = plain_array("preconditioner @ x", self._product(residuals.copy()))
        if found.shape != residuals.shape:
            raise PreconditionerError(f"returned shape {found.shape} for an array of shape {residuals.shape}", ADVICE)
        if found.dtype.kind not in "fiub":
            raise PreconditionerError(f"returned {found.dtype} for real numbers", "only real preconditioners of real A are taken")
        if not np.isfinite(found).all():
            raise PreconditionerError("returned NaN or infinite numbers for finite residuals", "look at how it was made")
        found = _ordinary(found.astype(np.float64, copy=False))
        forms = np.einsum("ij,ij->j", residuals, found)
        sizes = np.linalg.norm(residuals, axis=0) * np.linalg.norm(found, axis=0)
        worst = int(np.argmin(forms))
        if forms[worst] < -1e-10 * sizes[worst]:
            raise PreconditionerError(
                f"makes of a residual r a vector P r with r.T P r = {forms[worst]:.3g}",
                "LOBPCG needs a positive definite one: take that of A shifted until it is positive definite, or method='lanczos'",
            )
        return np.ascontiguousarray(found)

    def _product_of(self, m: Any) -> Callable[[NDArray[np.float64]], Any]:
        """Function that multiplies an (n, b) array."""
        if isinstance(m, LinearOperator) or issparse(m):
            self._check(m.shape, m.dtype)
            check_entries("preconditioner", m)
            return m.matmat if isinstance(m, LinearOperator) else lambda x: m @ x
        if callable(m):
            return m  # type: ignore[no-any-return]
        if not isinstance(m, np.ndarray | list | tuple):
            raise TypeError(f"preconditioner is a {type(m).__name__}: {ADVICE}")
        given = plain_array("preconditioner", m)
        if given.dtype.kind not in "fiubc":
            raise TypeError(f"preconditioner is an array of {given.dtype}: {ADVICE}")
        self._check(given.shape, given.dtype)
        if given.ndim == 2:
            return lambda x: given @ x
        return self._diagonal_of(given)

    def _check(self, shape: tuple[int, ...], dtype: Any) -> None:
        if shape not in ((self.n,), (self.n, self.n)):
            text = " x ".join(map(str, shape))
            raise PreconditionerError(f"has shape {text}, but A is {self.n} x {self.n}", ADVICE)
        if dtype is not None and np.dtype(dtype).kind == "c":
            raise PreconditionerError("is complex", "only real preconditioners of real A are taken")

    def _diagonal_of(self, given: NDArray[Any]) -> Callable[[NDArray[np.float64]], Any]:
        diagonal = given.astype(np.float64)
        bad = np.flatnonzero(~(np.isfinite(diagonal) & (diagonal > 0)))
        if bad.size:
            first = f"[{bad[0]}] = {diagonal[bad[0]]:g}"
            raise PreconditionerError(
                f"is a diagonal that is not positive and finite in {bad.size} places, the first {first}",
                "LOBPCG needs a positive definite one: for Jacobi's, 1 / abs(A.diagonal()) with 1 where that is 0",
            )
        self.diagonal = diagonal = _ordinary(diagonal)
        return lambda x: diagonal[:, None] * x


def _ordinary(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The numbers times a power of two, where their squares might underflow or overflow."""
    largest = float(np.abs(numbers).max(initial=0.0))
    if not largest or _ORDINARY[0] < largest < _ORDINARY[1]:
        return numbers
    return np.asarray(np.ldexp(numbers, -int(np.frexp(largest)[1])))
