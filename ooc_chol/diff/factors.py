"""Solves with sparse matrices, differentiable as often as one likes: derivatives are solves and sampled products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

from ooc_chol.diff.factor_cache import CACHE, Assume, Factor, Method
from ooc_chol.diff.memory import Array, device_of
from ooc_chol.diff.ops import AbstractOp, Apply, Gather, Sampled, Scatter, run
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.solve_checks import check_right_hand_sides
from ooc_chol.process.fork_safety import new_lock


@final
class Memo:
    """The last solution of an operation, and the factor that gave it: what a backward pass asks for again.

    Arrays are compared by value, and are copies: changes behind the back of a framework are seen.
    """

    def __init__(self, factor: Factor | None = None) -> None:
        self.factor = factor
        self._last: tuple[Array, Array, Array] | None = None
        self._lock = new_lock()

    def recall(self, values: Array, b: Array) -> Array | None:
        """The solution, if it was of these values and right-hand sides."""
        with self._lock:
            last = self._last
        if last is None or not (_same(last[0], values) and _same(last[1], b)):
            return None
        return last[2].copy()

    def keep(self, values: Array, b: Array, x: Array) -> None:
        """Remember a solution; ``values`` are not copied."""
        kept = values, b.copy(), x.copy()
        with self._lock:
            self._last = kept


def _same(one: Array, other: Array) -> bool:
    """Tell whether two arrays are equal, and of one type and memory."""
    if one.shape != other.shape or one.dtype != other.dtype or device_of(one) != device_of(other):
        return False
    return bool((one == other).all())


@final
@dataclass(frozen=True)
class Solve(AbstractOp):
    """``x = A^-1 b``, or with the transpose, of values v and right-hand sides b.

    Its derivatives are a solve with the transpose, ``w = A^-T g``, and minus the product of w and x sampled on the pattern. All
    use one factor.
    """

    pattern: Pattern
    trans: bool = False
    assume: Assume = None
    method: Method = "auto"
    precision: str | None = None
    given_factor: Factor | None = field(default=None, compare=False, repr=False)
    memo: Memo = field(default_factory=Memo, compare=False, repr=False)

    def forward(self, values: Array, b: Array) -> Array:
        self.pattern.check_values(values)
        check_right_hand_sides(self.pattern, values, b)
        factor = self.factor_of(values)
        known = self.memo.recall(factor.values, b)
        if known is not None:
            return known
        x = factor.solve(b, trans=self.trans)
        self.memo.keep(factor.values, b, x)
        return x

    def factor_of(self, values: Array) -> Factor:
        """The factor: that which was given or used last, where it is of these values; else the one of the cache."""
        if self.given_factor is not None:
            if not isinstance(self.given_factor, Factor):
                raise TypeError(f"factor is a {type(self.given_factor).__name__}: give what factorize has made")
            if not self.given_factor.matches(self.pattern, values):
                raise ValueError("the factor is of other values or another pattern, or closed: factorize these, or leave it out")
            return self.given_factor
        factor = self.memo.factor
        if factor is None or not factor.matches(self.pattern, values):
            factor = CACHE.factor(self.pattern, values, assume=self.assume, method=self.method)
            self.memo.factor = factor
        return factor

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        values, b = given
        back = Solve(
            self.pattern, not self.trans, self.assume, self.method, self.precision, self.given_factor, Memo(self.memo.factor)
        )
        w = apply(back, values, g)
        dv = _of_values(apply, self, apply(self, values, b), w) if wanted[0] else None
        return dv, w if wanted[1] else None


@final
@dataclass(frozen=True)
class TriangularSolve(AbstractOp):
    """The same with a triangle; where its diagonal counts as ones, the stored one has derivatives of 0."""

    pattern: Pattern
    lower: bool = True
    trans: bool = False
    unit_diagonal: bool = False
    precision: str | None = None
    memo: Memo = field(default_factory=Memo, compare=False, repr=False)

    def forward(self, values: Array, b: Array) -> Array:
        from ooc_chol.diff.triangular import solved

        self.pattern.check_values(values)
        check_right_hand_sides(self.pattern, values, b)
        known = self.memo.recall(values, b)
        if known is not None:
            return known
        x = solved(self.pattern, values, b, lower=self.lower, trans=self.trans, unit_diagonal=self.unit_diagonal)
        self.memo.keep(values.copy(), b, x)
        return x

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        values, b = given
        w = apply(TriangularSolve(self.pattern, self.lower, not self.trans, self.unit_diagonal, self.precision), values, g)
        if not wanted[0]:
            return None, w if wanted[1] else None
        dv = _of_values(apply, self, apply(self, values, b), w)
        if self.unit_diagonal:
            places = (self.pattern.tril(-1) if self.lower else self.pattern.triu(1)).places
            n = self.pattern.nnz
            dv = apply(Scatter(places, n), apply(Gather(places, n), dv))
        return dv, w if wanted[1] else None


def _of_values(apply: Apply, op: Solve | TriangularSolve, x: Any, w: Any) -> Any:
    """``-w x.T`` on the pattern: for the transposed solve, that of its transpose."""
    return apply(Sampled(op.pattern, op.precision), *((x, -w) if op.trans else (-w, x)))


def solve(
    pattern: Pattern,
    values: Any,
    b: Any,
    *,
    trans: bool = False,
    assume: Assume = None,
    method: Method = "auto",
    factor: Factor | None = None,
    precision: str | None = None,
    apply: Apply = run,
) -> Any:
    """Solve ``A x = b`` with a sparse matrix, which is factored once for the solve, its derivatives and theirs.

    Parameters
    ----------
    pattern : Pattern
        Pattern of A, (n, n).
    values : (nnz,) array
        Values of A, float32 or float64.
    b : (n,) or (n, k) array
        Right-hand sides, of the type and in the memory of ``values``.
    trans : bool
        Solve with the transpose of A.
    assume, method
        As for :func:`factorize`.
    factor : Factor, optional
        Factor of these values, by :func:`factorize`. Without it, the factor of the last values of the pattern is taken where they
        are equal, one by one, and made otherwise.
    precision : {"FDF"}, optional
        Multiply and add float32 numbers in float64, in gradients of the values.
    apply : callable
        Computing part: an adapter's own, for arrays of its framework.

    Returns
    -------
    (n,) or (n, k) array
        The solutions.

    Raises
    ------
    SingularMatrixError
        A is singular, exactly or to working precision; the error's ``column`` has no pivot.
    ValueError
        A is not square; b has another height; the factor is of other values.
    NonFiniteError, TypeError, ImportError
        As for :func:`factorize`.

    Notes
    -----
    For a cotangent g, that of b is ``w = A^-T g`` and that of the values ``-sampled(w, x)``: one number for each entry.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 1, 3], [1, 0, 1], (2, 2))
    >>> oc.diff.solve(
    ...     pattern, np.array([2.0, 4.0, 1.0]), np.array([2.0, 5.0])
    ... ).tolist()
    [1.0, 1.0]
    """
    return apply(Solve(pattern, trans, assume, method, precision, factor), values, b)


def triangular_solve(
    pattern: Pattern,
    values: Any,
    b: Any,
    *,
    lower: bool = True,
    trans: bool = False,
    unit_diagonal: bool = False,
    precision: str | None = None,
    apply: Apply = run,
) -> Any:
    """Solve ``T x = b`` with a sparse triangle, by substitution.

    Parameters
    ----------
    pattern : Pattern
        Pattern of T, (n, n), without entries in the other triangle.
    values : (nnz,) array
        Values of T, float32 or float64.
    b : (n,) or (n, k) array
        Right-hand sides, of the type and in the memory of ``values``.
    lower : bool
        True if T is a lower triangle.
    trans : bool
        Solve with the transpose of T.
    unit_diagonal : bool
        True if the diagonal counts as ones; what is stored there is not read, and has a gradient of 0.
    precision, apply
        As for :func:`solve`.

    Returns
    -------
    (n,) or (n, k) array
        The solutions. Those of float32 are computed in float64 on the host, and rounded.

    Raises
    ------
    ValueError
        T has an entry in the other triangle, or lacks one on the diagonal, whose row is named; b has another height.
    SingularMatrixError
        There is a 0 on the diagonal; the error's ``column`` says where.
    NonFiniteError
        A value is NaN or infinite.
    TypeError
        The types differ, or are neither float32 nor float64.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 1, 3], [0, 0, 1], (2, 2))
    >>> oc.diff.triangular_solve(
    ...     pattern, np.array([2.0, 1.0, 4.0]), np.array([2.0, 5.0])
    ... ).tolist()
    [1.0, 1.0]
    """
    return apply(TriangularSolve(pattern, lower, trans, unit_diagonal, precision), values, b)
