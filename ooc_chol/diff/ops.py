"""Operations on values of sparse matrices with their derivatives, which are the same operations: so they differentiate again.

An operation takes arrays and gives one. Its ``pull`` turns a cotangent of what it gave into cotangents of what it took, by calls
of ``apply(operation, *arrays)``: where that is :func:`run`, NumPy or CuPy computes at once; an adapter hands in a function that
records the call with its framework, and has second derivatives for nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

from ooc_chol.diff import primitives
from ooc_chol.diff.checks import check_floats
from ooc_chol.diff.memory import Array, IndexArray

if TYPE_CHECKING:
    from ooc_chol.diff.pattern import Pattern
    from ooc_chol.diff.triples import Triples

#: Computes an operation: :func:`run`, or what an adapter puts around it.
Apply: TypeAlias = Callable[..., Any]
#: An operation and what it takes.
Call: TypeAlias = tuple[Any, ...]
#: What a contraction is over: entries of A, of B, or of their product.
Role: TypeAlias = Literal["product", "a", "b"]


class AbstractOp(ABC):
    """An operation: arrays in, one array out, and how cotangents come back."""

    @abstractmethod
    def forward(self, *given: Any, **options: Any) -> Array:
        """Result of the operation."""

    @abstractmethod
    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """Cotangents of what was given, for the cotangent ``g`` of the result; None where none is wanted."""


class AbstractLinearOp(AbstractOp):
    """An operation that is linear in its one argument: nothing is kept for its derivative, which is its transpose."""

    @abstractmethod
    def transposed(self) -> AbstractOp:
        """The operation of a cotangent."""

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        return (apply(self.transposed(), g) if wanted[0] else None,)


class AbstractBilinearOp(AbstractOp):
    """An operation that is linear in each of two arguments: each cotangent is an operation of two of these and ``g``."""

    @abstractmethod
    def pulls(self, first: Any, second: Any, g: Any) -> tuple[Call, Call]:
        """Operations that give both cotangents, and what they take."""

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        first, second = given
        calls = self.pulls(first, second, g)
        return tuple(apply(*call) if want else None for call, want in zip(calls, wanted, strict=True))


def run(op: AbstractOp, *given: Array) -> Array:
    """Compute an operation."""
    return op.forward(*given)


def vjp(op: AbstractOp, given: Sequence[Array], g: Array, *, wanted: Sequence[bool] | None = None) -> tuple[Any, ...]:
    """The product of a cotangent with the Jacobian of an operation.

    Parameters
    ----------
    op : AbstractOp
        Such as ``MatMul(pattern)``.
    given : sequence of array
        Arrays that it is computed of.
    g : array
        A cotangent: an array of the shape of the result.
    wanted : sequence of bool, optional
        Which cotangents to compute; all of them without it.

    Returns
    -------
    tuple of array or None
        Cotangents of what was given. That of the values of a matrix has one number for each of its entries.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> from ooc_chol.diff.ops import MatMul, vjp
    >>> pattern = oc.diff.Pattern([0, 2, 3], [0, 2, 1], (2, 3))
    >>> v, x = np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0, 100.0])
    >>> [
    ...     found.tolist()
    ...     for found in vjp(MatMul(pattern), (v, x), np.array([1.0, 2.0]))
    ... ]
    [[1.0, 100.0, 20.0], [1.0, 6.0, 2.0]]
    """
    return op.pull(run, given, g, [True] * len(given) if wanted is None else wanted)


def _check_count(values: Array, count: int) -> None:
    """Refuse values that are not as many as the entries they belong to: compiled loops would take what they find."""
    check_floats(values, "values")
    if values.shape != (count,):
        raise ValueError(f"values has shape {tuple(values.shape)}, but the matrix has {count} entries: give one for each")


@final
@dataclass(frozen=True)
class MatMul(AbstractBilinearOp):
    """``A @ x`` of values v and x; its derivatives are :class:`Sampled` and the product with the transpose."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, v: Array, x: Array) -> Array:
        return primitives.matmul(self.pattern, v, x, precision=self.precision)

    def pulls(self, v: Any, x: Any, g: Any) -> tuple[Call, Call]:
        on_pattern = self.pattern, self.precision
        return (Sampled(*on_pattern), g, x), (TransposedMatMul(*on_pattern), v, g)


@final
@dataclass(frozen=True)
class Sampled(AbstractBilinearOp):
    """``g @ x.T`` on the pattern; its derivatives are products with the cotangent as a matrix, and with its transpose."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, g: Array, x: Array) -> Array:
        return primitives.sampled(self.pattern, g, x, precision=self.precision)

    def pulls(self, left: Any, right: Any, g: Any) -> tuple[Call, Call]:
        on_pattern = self.pattern, self.precision
        return (MatMul(*on_pattern), g, right), (TransposedMatMul(*on_pattern), g, left)


@final
@dataclass(frozen=True)
class TransposedMatMul(AbstractBilinearOp):
    """``A.T @ y`` of A's own values, without a copy of them; its derivatives are :class:`Sampled` and :class:`MatMul`."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, v: Array, y: Array) -> Array:
        return primitives.matmul_transposed(self.pattern, v, y, precision=self.precision)

    def pulls(self, v: Any, y: Any, g: Any) -> tuple[Call, Call]:
        on_pattern = self.pattern, self.precision
        return (Sampled(*on_pattern), y, g), (MatMul(*on_pattern), v, g)


@final
@dataclass(frozen=True)
class Transpose(AbstractLinearOp):
    """Values of the transpose: a permutation, whose derivative is that back."""

    pattern: Pattern

    def forward(self, v: Array) -> Array:
        self.pattern.check_values(v)
        return primitives.permute(v, self.pattern.place("transposing", v))

    def transposed(self) -> Transpose:
        return Transpose(self.pattern.transposed)


@final
@dataclass(frozen=True)
class Gather(AbstractLinearOp):
    """``v[places]`` of n values, 0 where a place is -1; its derivative is :class:`Scatter`."""

    places: IndexArray
    n: int

    def forward(self, v: Array) -> Array:
        _check_count(v, self.n)
        return primitives.gather(v, self.places.on(v))

    def transposed(self) -> Scatter:
        return Scatter(self.places, self.n)


@final
@dataclass(frozen=True)
class Scatter(AbstractLinearOp):
    """Zeros of length n with values at places, none twice; its derivative is :class:`Gather`."""

    places: IndexArray
    n: int

    def forward(self, v: Array) -> Array:
        check_floats(v, "values")
        return primitives.scatter(v, self.places.on(v), self.n)

    def transposed(self) -> Gather:
        return Gather(self.places, self.n)


@final
@dataclass(frozen=True)
class Contract(AbstractBilinearOp):
    """The sum of ``c[..] a[..] b[..]`` over triples, differentiated by one of the three: the two others are given.

    For ``result="product"`` that is ``A @ B`` of a and b; for ``"a"`` the cotangent of a, of c and b; for ``"b"`` that of b, of c
    and a. So the three are each other's derivatives.
    """

    triples: Triples
    result: Role = "product"
    precision: str | None = None

    def forward(self, first: Array, second: Array) -> Array:
        for name, values in zip(_OTHERS[self.result], (first, second), strict=True):
            _check_count(values, self.triples.sizes[name])
        face = {"product": self.triples.product, "a": self.triples.by_a, "b": self.triples.by_b}[self.result]
        places = face.ends.on(first), face.first.on(first), face.second.on(first)
        return primitives.bilinear(*places, first, second, precision=self.precision)

    def pulls(self, first: Any, second: Any, g: Any) -> tuple[Call, Call]:
        one, other = _OTHERS[self.result]
        held = {self.result: g, one: first, other: second}

        def by(name: Role) -> Call:
            return Contract(self.triples, name, self.precision), *(held[each] for each in _OTHERS[name])

        return by(one), by(other)


_OTHERS: dict[Role, tuple[Role, Role]] = {"product": ("a", "b"), "a": ("product", "b"), "b": ("product", "a")}


@final
@dataclass(frozen=True)
class RowSums(AbstractLinearOp):
    """The sum of each row; its derivative is :class:`Spread`."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, v: Array) -> Array:
        return primitives.row_sums(self.pattern, v, precision=self.precision)

    def transposed(self) -> Spread:
        return Spread(self.pattern, self.precision)


@final
@dataclass(frozen=True)
class Spread(AbstractLinearOp):
    """To each entry the number of its row; its derivative is :class:`RowSums`."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, d: Array) -> Array:
        return primitives.spread(self.pattern, d)

    def transposed(self) -> RowSums:
        return RowSums(self.pattern, self.precision)


@final
@dataclass(frozen=True)
class Times(AbstractBilinearOp):
    """Values times values, entry by entry."""

    def forward(self, a: Array, b: Array) -> Array:
        _check_count(a, len(b))
        if a.dtype != b.dtype:
            raise TypeError(f"values of {a.dtype} are multiplied with numbers of {b.dtype}: give both in one type")
        return a * b

    def pulls(self, a: Any, b: Any, g: Any) -> tuple[Call, Call]:
        return (self, g, b), (self, g, a)
