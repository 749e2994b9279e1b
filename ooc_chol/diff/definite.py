"""Log-determinants, selected inverses, Cholesky factors and samples of sparse positive definite matrices, differentiable.

A matrix A counts as ``(A + A.T) / 2``, so that derivatives are symmetric and each entry counts by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.options import documented
from ooc_chol.diff.factor_cache import CACHE
from ooc_chol.diff.factors import triangular_solve
from ooc_chol.diff.memory import Array, current, is_cupy, module_of
from ooc_chol.diff.multifrontal import factored, jets, log_determinant, pulled_factor, selected_inverse_of
from ooc_chol.diff.ops import AbstractOp, Apply, run
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.solve_checks import check_definite_pattern, symmetric


class AbstractDefiniteOp(AbstractOp):
    """An operation of a positive definite matrix, and perhaps of directions in which it is linear."""

    pattern: Pattern

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""

    @abstractmethod
    def pulled(self, apply: Apply, given: Sequence[Any], at: int, g: Any) -> Any:
        """The cotangent of one argument."""

    @abstractmethod
    def pushed(self, apply: Apply, given: Sequence[Any], at: int, tangent: Any) -> Any:
        """The tangent of the result for that of one argument."""

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        return tuple(self.pulled(apply, given, at, g) if want else None for at, want in enumerate(wanted))


@final
@dataclass(frozen=True)
class LogDet(AbstractDefiniteOp):
    """``log det A``; its derivative is the selected inverse."""

    pattern: Pattern

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def forward(self, values: Array) -> Array:
        return log_determinant(CACHE.eliminated(self.pattern, values), values).astype(values.dtype)

    def pulled(self, apply: Apply, given: Sequence[Any], at: int, g: Any) -> Any:
        return g * apply(SelectedInverse(self.pattern), *given)

    def pushed(self, apply: Apply, given: Sequence[Any], at: int, tangent: Any) -> Any:
        return (apply(SelectedInverse(self.pattern), *given) * tangent).sum(-1)


@final
@dataclass(frozen=True)
class SelectedInverse(AbstractDefiniteOp):
    """Entries of ``A^-1`` on the pattern of A, of A's values, or their derivative in directions that are given as well.

    It is a derivative of log det A, symmetric in all directions: so that of one more is the same operation.
    """

    pattern: Pattern

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.pattern.nnz,)

    def forward(self, values: Array, *directions: Array) -> Array:
        eliminated = _eliminated(self.pattern, values, directions)
        return _like(selected_inverse_of(CACHE.fronts(self.pattern), eliminated), values)

    def pulled(self, apply: Apply, given: Sequence[Any], at: int, g: Any) -> Any:
        return apply(self, *given, g) if at == 0 else apply(self, *given[:at], g, *given[at + 1 :])

    def pushed(self, apply: Apply, given: Sequence[Any], at: int, tangent: Any) -> Any:
        return self.pulled(apply, given, at, tangent)


@final
@dataclass(frozen=True)
class CholeskyFactor(AbstractDefiniteOp):
    """Values of L, or their derivative in directions that are given as well."""

    pattern: Pattern

    @property
    def shape(self) -> tuple[int, ...]:
        return (CACHE.fronts(self.pattern).factor_pattern()[0].nnz,)

    def forward(self, values: Array, *directions: Array) -> Array:
        eliminated = _eliminated(self.pattern, values, directions)
        _, places = CACHE.fronts(self.pattern).factor_pattern()
        if not eliminated:
            return values.copy()
        with current(values):
            return _like(np.concatenate([each.lower[-1].ravel() for each in eliminated])[places.on(values)], values)

    def pulled(self, apply: Apply, given: Sequence[Any], at: int, g: Any) -> Any:
        others = given if at == 0 else (*given[:at], *given[at + 1 :])
        return apply(PulledFactor(self.pattern), *others, g)

    def pushed(self, apply: Apply, given: Sequence[Any], at: int, tangent: Any) -> Any:
        return apply(self, *given, tangent) if at == 0 else apply(self, *given[:at], tangent, *given[at + 1 :])


@final
@dataclass(frozen=True)
class PulledFactor(AbstractDefiniteOp):
    """The cotangent of A's values for one of L, which is given last, or its derivative in directions."""

    pattern: Pattern

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.pattern.nnz,)

    def forward(self, values: Array, *given: Array) -> Array:
        *directions, cotangent = given
        fronts = CACHE.fronts(self.pattern)
        eliminated = _eliminated(self.pattern, values, directions)
        with current(values):
            of_fronts = module_of(values).zeros(fronts.factor_size)
            of_fronts[fronts.factor_pattern()[1].on(values)] = cotangent
        return _like(pulled_factor(fronts, eliminated, of_fronts), values)

    def pulled(self, apply: Apply, given: Sequence[Any], at: int, g: Any) -> Any:
        *before, _ = given
        if at == len(before):
            return apply(CholeskyFactor(self.pattern), *before, g)
        return self.pushed(apply, given, at, g)

    def pushed(self, apply: Apply, given: Sequence[Any], at: int, tangent: Any) -> Any:
        *before, last = given
        return apply(self, *before, tangent, last) if at == 0 else apply(self, *given[:at], tangent, *given[at + 1 :])


def _eliminated(pattern: Pattern, values: Array, directions: Sequence[Array]) -> Any:
    """Eliminated columns of all fronts; those of a matrix by itself are kept."""
    if not directions:
        return CACHE.eliminated(pattern, values)
    check_definite_pattern(pattern)
    for direction in directions:
        pattern.check_values(direction, "a direction")
    CACHE.eliminated(pattern, values)  # refuses what is not positive definite
    parts = (symmetric(pattern, each.astype(np.float64)) for each in (values, *directions))
    return factored(CACHE.fronts(pattern), jets(*parts))


def _like(x: Array, values: Array) -> Array:
    """A result of the type of the values; of a matrix without entries in their memory, too."""
    return x.astype(values.dtype) if x.size else values.copy()


def logdet(pattern: Pattern, values: Any, *, apply: Apply = run) -> Any:
    """``log det A`` of a sparse symmetric positive definite matrix, whose gradient is its inverse on the pattern.

    Parameters
    ----------
    pattern : Pattern
        Pattern of A, (n, n), symmetric, such as that of a precision matrix.
    values : (nnz,) array
        Values of A, float32 or float64, those of both triangles.
    apply : callable
        Computing part: an adapter's own, for arrays of its framework.

    Returns
    -------
    () array
        The logarithm of the determinant, of the type of ``values``.

    Raises
    ------
    NotPositiveDefiniteError
        A is not positive definite, exactly or to working precision; the error's ``row`` has no positive ``pivot``.
    NonFiniteError
        A value is NaN or infinite.
    ValueError
        A is not square or not symmetric, or values are not as many as entries.
    TypeError
        The values are neither float32 nor float64.

    Notes
    -----
    The order of elimination is SuperLU's minimum degree, found once for a pattern. Factors are made where the values are, in
    float64; that of the last values is kept, as for :func:`solve`. Entries of the inverse come from the recurrence of Takahashi
    et al. (1973), in about the time of the factor. A counts as ``(A + A.T) / 2``: gradients are symmetric, and each entry counts
    by itself.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 2, 4], [0, 1, 0, 1], (2, 2))
    >>> float(
    ...     oc.diff.logdet(pattern, np.array([2.0, 1.0, 1.0, 2.0])).round(6)
    ... )
    1.098612
    """
    return apply(LogDet(pattern), values)


@documented(like=logdet)
def selected_inverse(pattern: Pattern, values: Any, *, apply: Apply = run) -> Any:
    """The entries of ``A^-1`` on the pattern of a sparse symmetric positive definite A, without the others.

    Returns
    -------
    (nnz,) array
        Those entries; on the diagonal they are the variances of the Gaussian with precision A.

    Raises
    ------
    NotPositiveDefiniteError, NonFiniteError, ValueError, TypeError
        As for :func:`logdet`.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 2, 4], [0, 1, 0, 1], (2, 2))
    >>> oc.diff.selected_inverse(
    ...     pattern, np.array([2.0, 1.0, 1.0, 2.0])
    ... ).round(4).tolist()
    [0.6667, -0.3333, -0.3333, 0.6667]
    """
    return apply(SelectedInverse(pattern), values)


@documented(like=logdet)
def cholesky(pattern: Pattern, values: Any, *, apply: Apply = run) -> tuple[Pattern, Any, NDArray[np.int64]]:
    """The sparse lower triangle L with ``L @ L.T = A[order][:, order]``.

    Returns
    -------
    pattern : Pattern
        Pattern of L, with every entry that the pattern of A makes possible.
    values : (nnz of L,) array
        Its values.
    order : (n,) array of int
        Rows of A in the order of elimination, which the pattern decides.

    Raises
    ------
    NotPositiveDefiniteError, NonFiniteError, ValueError, TypeError
        As for :func:`logdet`.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 2, 4], [0, 1, 0, 1], (2, 2))
    >>> of_l, values, order = oc.diff.cholesky(
    ...     pattern, np.array([4.0, 2.0, 2.0, 5.0])
    ... )
    >>> of_l, sorted(order.tolist())
    (Pattern(2 x 2, 3 entries), [0, 1])
    """
    check_definite_pattern(pattern)
    fronts = CACHE.fronts(pattern)
    return fronts.factor_pattern()[0], apply(CholeskyFactor(pattern), values), fronts.order.copy()


@documented(like=logdet)
def sample(pattern: Pattern, values: Any, z: Any, *, apply: Apply = run) -> Any:
    """Samples of the Gaussian with mean 0 and precision A, made of standard normal numbers: ``x[order] = L^-T z``.

    Parameters
    ----------
    z : (n,) or (n, k) array
        Standard normal numbers, of the type and in the memory of ``values``; each column makes one sample.

    Returns
    -------
    (n,) or (n, k) array
        The samples. They are differentiable in ``values``, z being kept.

    Raises
    ------
    NotPositiveDefiniteError, NonFiniteError, ValueError, TypeError
        As for :func:`logdet`; z has another height or type.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 1, 2], [0, 1], (2, 2))
    >>> x = oc.diff.sample(
    ...     pattern, np.array([4.0, 4.0]), np.array([1.0, 1.0])
    ... )
    >>> x.tolist()
    [0.5, 0.5]
    """
    of_l, lower, _ = cholesky(pattern, values, apply=apply)
    x = triangular_solve(of_l, lower, z, trans=True, apply=apply)
    fronts = CACHE.fronts(pattern)
    return x[fronts.places.on(x) if is_cupy(x) else fronts.position]
