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
from ooc_chol.diff.memory import Array, IndexArray

if TYPE_CHECKING:
    from ooc_chol.diff.pattern import Pattern
    from ooc_chol.diff.triples import Face, Triples

#: Computes an operation: :func:`run`, or what an adapter puts around it.
Apply: TypeAlias = Callable[..., Any]


class AbstractOp(ABC):
    """An operation: arrays in, one array out, and how cotangents come back."""

    @abstractmethod
    def forward(self, *given: Array) -> Array:
        """Result of the operation."""

    @abstractmethod
    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """Cotangents of what was given, for the cotangent ``g`` of the result; None where none is wanted."""


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
        What it is computed of.
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
    >>> [found.tolist() for found in vjp(MatMul(pattern), (v, x), np.array([1.0, 2.0]))]
    [[1.0, 100.0, 20.0], [1.0, 6.0, 2.0]]
    """
    return op.pull(run, given, g, [True] * len(given) if wanted is None else wanted)


def _check_count(values: Array, count: int) -> None:
    """Refuse values that are not as many as the entries they belong to: compiled loops would take what they find."""
    if values.shape != (count,):
        raise ValueError(f"values has shape {tuple(values.shape)}, but the matrix has {count} entries: give one for each")


@final
@dataclass(frozen=True)
class MatMul(AbstractOp):
    """``A @ x`` of values v and x; its derivatives are :class:`Sampled` and the product with the transpose."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, *given: Array) -> Array:
        """``A @ x``."""
        v, x = given
        return primitives.matmul(self.pattern, v, x, precision=self.precision)

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """``sampled(g, x)`` and ``A.T @ g``."""
        v, x = given
        dv = apply(Sampled(self.pattern, self.precision), g, x) if wanted[0] else None
        return dv, _back(apply, self, v, g) if wanted[1] else None


@final
@dataclass(frozen=True)
class Sampled(AbstractOp):
    """``g @ x.T`` on the pattern; its derivatives are products with the cotangent as a matrix, and with its transpose."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, *given: Array) -> Array:
        """``g @ x.T`` on the pattern."""
        g, x = given
        return primitives.sampled(self.pattern, g, x, precision=self.precision)

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """``C @ x`` and ``C.T @ g``, C being the cotangent on the pattern."""
        left, right = given
        dg = apply(MatMul(self.pattern, self.precision), g, right) if wanted[0] else None
        return dg, _back(apply, self, g, left) if wanted[1] else None


def _back(apply: Apply, op: MatMul | Sampled, v: Any, y: Any) -> Any:
    """``A.T @ y`` for values v on the pattern."""
    return apply(TransposedMatMul(op.pattern, op.precision), v, y)


@final
@dataclass(frozen=True)
class TransposedMatMul(AbstractOp):
    """``A.T @ y`` of A's own values, without a copy of them; its derivatives are :class:`Sampled` and :class:`MatMul`."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, *given: Array) -> Array:
        """``A.T @ y``."""
        v, y = given
        return primitives.matmul_transposed(self.pattern, v, y, precision=self.precision)

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """``sampled(y, g)`` and ``A @ g``."""
        v, y = given
        dv = apply(Sampled(self.pattern, self.precision), y, g) if wanted[0] else None
        return dv, apply(MatMul(self.pattern, self.precision), v, g) if wanted[1] else None


@final
@dataclass(frozen=True)
class Transpose(AbstractOp):
    """Values of the transpose: a permutation, whose derivative is that back."""

    pattern: Pattern

    def forward(self, *given: Array) -> Array:
        """``v[transposing]``."""
        (v,) = given
        self.pattern.check_values(v)
        return primitives.permute(v, self.pattern.place("transposing", v))

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """The permutation back."""
        return (apply(Transpose(self.pattern.transposed), g),) if wanted[0] else (None,)


@final
@dataclass(frozen=True)
class Gather(AbstractOp):
    """``v[places]`` of n values, 0 where a place is -1; its derivative is :class:`Scatter`."""

    places: IndexArray
    n: int

    def forward(self, *given: Array) -> Array:
        """``v[places]``."""
        (v,) = given
        _check_count(v, self.n)
        return primitives.gather(v, self.places.on(v))

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """Zeros with the cotangent at the places."""
        return (apply(Scatter(self.places, self.n), g),) if wanted[0] else (None,)


@final
@dataclass(frozen=True)
class Scatter(AbstractOp):
    """Zeros of length n with values at places, none twice; its derivative is :class:`Gather`."""

    places: IndexArray
    n: int

    def forward(self, *given: Array) -> Array:
        """Zeros with v at the places."""
        (v,) = given
        return primitives.scatter(v, self.places.on(v), self.n)

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """The cotangent at the places."""
        return (apply(Gather(self.places, self.n), g),) if wanted[0] else (None,)


@final
@dataclass(frozen=True)
class Contract(AbstractOp):
    """The sum of ``c[..] a[..] b[..]`` over triples, differentiated by one of the three: the two others are given.

    For ``result="product"`` that is ``A @ B`` of a and b; for ``"a"`` the cotangent of a, of c and b; for ``"b"`` that of b, of c
    and a. So the three are each other's derivatives.
    """

    triples: Triples
    result: Literal["product", "a", "b"] = "product"
    precision: str | None = None

    def forward(self, *given: Array) -> Array:
        """Sums over the triples of each entry of the result."""
        for name, values in zip(_OTHERS[self.result], given, strict=True):
            _check_count(values, self.triples.sizes[name])
        first, second = given
        face = self._face
        places = face.ends.on(first), face.first.on(first), face.second.on(first)
        return primitives.bilinear(*places, first, second, precision=self.precision)

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """The same sum differentiated by the others."""
        names = _OTHERS[self.result]
        held = {self.result: g, names[0]: given[0], names[1]: given[1]}

        def by(name: Literal["product", "a", "b"]) -> Any:
            first, second = _OTHERS[name]
            return apply(Contract(self.triples, name, self.precision), held[first], held[second])

        return tuple(by(name) if want else None for name, want in zip(names, wanted, strict=True))

    @property
    def _face(self) -> Face:
        if self.result == "product":
            return self.triples.product
        return self.triples.by_a if self.result == "a" else self.triples.by_b


_OTHERS: dict[str, tuple[Literal["product", "a", "b"], Literal["product", "a", "b"]]] = {
    "product": ("a", "b"),
    "a": ("product", "b"),
    "b": ("product", "a"),
}


@final
@dataclass(frozen=True)
class RowSums(AbstractOp):
    """The sum of each row; its derivative is :class:`Spread`."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, *given: Array) -> Array:
        """Sums of rows."""
        (v,) = given
        return primitives.row_sums(self.pattern, v, precision=self.precision)

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """To each entry the cotangent of its row."""
        return (apply(Spread(self.pattern, self.precision), g),) if wanted[0] else (None,)


@final
@dataclass(frozen=True)
class Spread(AbstractOp):
    """To each entry the number of its row; its derivative is :class:`RowSums`."""

    pattern: Pattern
    precision: str | None = None

    def forward(self, *given: Array) -> Array:
        """``d[row]`` for each entry."""
        (d,) = given
        return primitives.spread(self.pattern, d)

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """Sums of rows of the cotangent."""
        return (apply(RowSums(self.pattern, self.precision), g),) if wanted[0] else (None,)


@final
@dataclass(frozen=True)
class Times(AbstractOp):
    """Values times values, entry by entry."""

    def forward(self, *given: Array) -> Array:
        """``a * b``."""
        a, b = given
        _check_count(a, len(b))
        if a.dtype != b.dtype:
            raise TypeError(f"values of {a.dtype} are multiplied with numbers of {b.dtype}: give both in one type")
        return a * b

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        """``g * b`` and ``g * a``."""
        a, b = given
        return apply(self, g, b) if wanted[0] else None, apply(self, g, a) if wanted[1] else None
