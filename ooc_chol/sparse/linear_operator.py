"""A packed matrix as SciPy's iterative solvers take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from ooc_chol.errors import UnsupportedTypeError
from ooc_chol.process.closing import AbstractClosing

if TYPE_CHECKING:
    from ooc_chol.sparse.multiplier import Multiplier


@final
class PackedLinearOperator(LinearOperator, AbstractClosing):  # type: ignore[misc]
    """SciPy's ``LinearOperator`` over a multiplier, which it closes: ``A @ x`` on open devices."""

    def __init__(self, multiplier: Multiplier, *, symmetric: bool = False) -> None:
        self.multiplier = multiplier
        self._is_symmetric = symmetric
        super().__init__(multiplier.dtype, multiplier.shape)

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self.multiplier(np.asarray(x).reshape(-1))

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        """As many columns at a time as there is room for."""
        width = self.multiplier.plan.columns
        parts = [self.multiplier(X[:, first : first + width]) for first in range(0, X.shape[1], width)]
        return np.concatenate(parts, axis=1) if parts else np.zeros((self.shape[0], 0), self.dtype)

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        self._check_transposable()
        return self._matvec(x)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        self._check_transposable()
        return self._matmat(X)

    def _adjoint(self) -> PackedLinearOperator:
        self._check_transposable()
        return self

    _transpose = _adjoint

    def _check_transposable(self) -> None:
        """Refuse products with the transpose, of which no rows are packed."""
        if not self._is_symmetric:
            advice = "pack A.T too and take its operator, or say symmetric=True where A is its own transpose"
            raise UnsupportedTypeError("a product with the transpose", "packed rows", advice)

    def close(self) -> None:
        self.multiplier.close()
