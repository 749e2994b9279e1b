"""Primitives of JAX that are closed under differentiation: products, sampled products, bilinear sums and placing of values.

Each comes in two forms: of single arrays, and of batches of them along the first axis, which is what ``vmap`` makes. Where the
values of a matrix are shared by a batch, its right-hand sides become columns instead. Derivatives are calls of the same
primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from numpy.typing import NDArray

from ooc_chol.diff.functions import product_of, union_of
from ooc_chol.diff.jax_sums import SegmentSums, taken, widened
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.triples import Triples


class Static:
    """Static data of a primitive, told apart by identity: made once for each pattern and kept with it."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[Hashable, ...], Callable[..., Any]] = {}

    def run(self, function: Callable[..., Any], operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """A primitive by itself, outside of jit: compiled once, for as long as these data are there."""
        key = (function, *(item for item in params.items() if item[1] is not self))
        if key not in self._compiled:
            self._compiled[key] = jax.jit(partial(function, **params))
        return self._compiled[key](*operands)


class Places(Static):
    """Where each result comes from, -1 for nowhere; no value is taken twice, so that the transpose is of the same kind."""

    def __init__(self, places: NDArray[Any], n: int) -> None:
        super().__init__()
        self.places, self.n = np.asarray(places, np.int32), n

    @cached_property
    def back(self) -> Places:
        """The transpose."""
        inverse = np.full(self.n, -1, np.int32)
        there = np.flatnonzero(self.places >= 0)
        inverse[self.places[there]] = there
        back = Places(inverse, self.places.size)
        back.__dict__["back"] = self
        return back


class Structure(Static):
    """A pattern as the primitives take it, and what they need of it and of pairs with it, made when first asked for."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__()
        self.pattern = pattern
        self._parts: dict[tuple[str, int], tuple[Pattern, Places]] = {}
        self._kept: dict[Hashable, Any] = {}

    @classmethod
    def of(cls, pattern: Pattern) -> Structure:
        """That of a pattern, which keeps it for as long as it lives itself."""
        found = vars(pattern).get("_jax") or vars(pattern).setdefault("_jax", cls(pattern))
        return cast(Structure, found)

    def kept(self, what: Hashable, make: Callable[[Structure], Any]) -> Any:
        """Return what ``make`` gives for the pattern, such as a solver: once, since static data are told apart by identity."""
        if what not in self._kept:
            self._kept.setdefault(what, make(self))
        return self._kept[what]

    @cached_property
    def by_row(self) -> SegmentSums:
        """Sums over the rows, of products of values and of rows of x."""
        return SegmentSums(self.pattern.indptr, np.arange(self.pattern.nnz), self.pattern.indices)

    @cached_property
    def by_column(self) -> SegmentSums:
        """Sums over the columns: the product with the transpose, of values in the order of this pattern."""
        transposed = self.pattern.transposed
        return SegmentSums(transposed.indptr, self.pattern.transposing, transposed.indices)

    @cached_property
    def transposing(self) -> Places:
        """The order that makes values of the transpose."""
        return Places(self.pattern.transposing, self.pattern.nnz)

    @cached_property
    def dense(self) -> Places:
        """Where the entries go in the dense matrix, row by row."""
        n_rows, n_columns = self.pattern.shape
        return Places(self.pattern.rows.astype(np.int64) * n_columns + self.pattern.indices, n_rows * n_columns).back

    @cached_property
    def diagonal(self) -> Places:
        """The entries of the diagonal."""
        return Places(self.pattern.diagonal_places, self.pattern.nnz)

    def part(self, kind: str, k: int) -> tuple[Pattern, Places]:
        """A triangle, ``"tril"`` or ``"triu"``."""
        if (kind, k) not in self._parts:
            part = getattr(self.pattern, kind)(k)
            self._parts[kind, k] = part.pattern, Places(part.places.host, self.pattern.nnz)
        return self._parts[kind, k]

    def plus(self, other: Pattern) -> tuple[Pattern, Places, Places]:
        """The pattern of a sum, and where the entries of both go in it."""
        both = union_of(self.pattern, other)  # before the pattern's lock is taken

        def places(p: Pattern, q: Pattern) -> tuple[Places, Places]:
            n = both.pattern.nnz
            return Places(both.from_p.host, n).back, Places(both.from_q.host, n).back

        return both.pattern, *self.pattern.with_other(other, "jax_union", places)

    def times(self, other: Pattern) -> tuple[Pattern, Products]:
        """The pattern of a product, and its structure."""
        pattern, triples = product_of(self.pattern, other)  # before the pattern's lock is taken
        return pattern, self.pattern.with_other(other, "jax_product", lambda p, q: Products(triples, p, q))


class Products(Static):
    """Triples of a bilinear sum, by result (face "c", of a and b), by entries of a ("a", of c and b) or b ("b", of c and a)."""

    def __init__(self, triples: Triples, p: Pattern, q: Pattern) -> None:
        super().__init__()
        self.triples = triples
        self.sizes = {"c": triples.pattern.nnz, "a": p.nnz, "b": q.nnz}

    @cached_property
    def _sums(self) -> dict[str, SegmentSums]:
        return {}

    def sums(self, face: str) -> SegmentSums:
        """The sums of one face, made when first asked for."""
        if face not in self._sums:
            triples = self.triples
            found = triples.product if face == "c" else triples.by_a if face == "a" else triples.by_b
            self._sums[face] = SegmentSums(found.ends.host, found.first.host, found.second.host)
        return self._sums[face]


def bound(primitive: Primitive, *operands: Any, **params: Any) -> Array:
    """Bind a primitive to arrays, whether numbers or what JAX traces."""
    return cast(Array, primitive.bind(*operands, **params))


# --------------------------------------------------------------------------------------------- A @ x, and sampled products


def _product(v: Array, x: Array, *, structure: Structure, transposed: bool, wide: bool) -> Array:
    return (structure.by_column if transposed else structure.by_row)(v, x, wide=wide)


def _sampled(g: Array, x: Array, *, structure: Structure, wide: bool) -> Array:
    pattern = structure.pattern
    total = jnp.zeros(pattern.nnz, jnp.float64 if wide else g.dtype)
    if g.shape[1] == 1:
        total = widened(taken(g[:, 0], pattern.rows), wide) * widened(taken(x[:, 0], pattern.indices), wide)
    elif pattern.nnz and g.shape[1]:
        total = jnp.sum(widened(taken(g, pattern.rows), wide) * widened(taken(x, pattern.indices), wide), axis=1)
    return total.astype(g.dtype)


def matmul(v: Array, x: Array, structure: Structure, *, transposed: bool = False, wide: bool = False) -> Array:
    """``A @ x``, or ``A.T @ x``, for v (nnz,) and x (n, k)."""
    return bound(matmul_p, v, x, structure=structure, transposed=transposed, wide=wide)


def sampled(g: Array, x: Array, structure: Structure, *, wide: bool = False) -> Array:
    """``sum_k g[row, k] x[column, k]`` at each entry, for g (n_rows, k) and x (n_columns, k)."""
    return bound(sampled_p, g, x, structure=structure, wide=wide)


# ------------------------------------------------------------------------------------------------------------ bilinear sums


def _bilinear(first: Array, second: Array, *, products: Products, face: str, wide: bool) -> Array:
    return products.sums(face)(first, second[:, None], wide=wide)[:, 0]


def bilinear(first: Array, second: Array, products: Products, *, face: str = "c", wide: bool = False) -> Array:
    """Sums of products of the two over the triples of one face."""
    return bound(bilinear_p, first, second, products=products, face=face, wide=wide)


def _bilinear_of_first(ct: Array, first: Any, second: Array, *, products: Products, face: str, wide: bool) -> Array:
    if face == "c":  # of a and b
        return bilinear(ct, second, products, face="a", wide=wide)
    pair = (ct, second) if face == "a" else (second, ct)
    return bilinear(*pair, products, face="c", wide=wide)


def _bilinear_of_second(ct: Array, first: Array, second: Any, *, products: Products, face: str, wide: bool) -> Array:
    if face == "c":
        return bilinear(ct, first, products, face="b", wide=wide)
    return bilinear(first, ct, products, face="b" if face == "a" else "a", wide=wide)


# ------------------------------------------------------------------------------------------------------------------ placing


def _place(v: Array, *, places: Places) -> Array:
    if not places.n:
        return jnp.zeros((*v.shape[:-1], places.places.size), v.dtype)
    found = jnp.take(v, np.maximum(places.places, 0), axis=-1, mode="clip")
    return found if (places.places >= 0).all() else jnp.where(places.places >= 0, found, 0)


def place(v: Array, places: Places) -> Array:
    """``v[places]`` along the last axis, with 0 where a place is -1."""
    return bound(place_p, v, places=places)


# ------------------------------------------------------------------------------------------------ batches, and registration


def in_batches(single: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a function of single arrays to batches, which are told by whether the first array has one axis more."""

    def either(first: Array, second: Array, *, single_ndim: int, **params: Any) -> Any:
        one = partial(single, **params)
        return one(first, second) if first.ndim == single_ndim else jax.vmap(one)(first, second)

    return either


def flattened(array: Array, ndim: int) -> Array:
    """An array whose first axis is the batch's, with the axis of an earlier batch joined to it."""
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]) if array.ndim > ndim + 1 else array


def batching_rule(
    bind: Callable[..., Array], ndims: tuple[int, int], shared_first: Callable[..., Array] | None
) -> Callable[..., Any]:
    """The rule of ``vmap`` for a primitive of two arrays of these numbers of axes."""

    def rule(operands: Any, axes: Any, **params: Any) -> tuple[Array, int]:
        size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
        is_single = all(x.ndim - (axis is not None) == ndim for x, axis, ndim in zip(operands, axes, ndims, strict=True))
        if shared_first is not None and axes[0] is None and is_single:
            return shared_first(operands[0], jnp.moveaxis(operands[1], axes[1], 0), **params), 0
        full = [
            jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
            for x, axis in zip(operands, axes, strict=True)
        ]
        if is_single:
            return bind(*full, **params), 0
        inner = full[0].shape[1]
        found = bind(*(flattened(x, ndim) for x, ndim in zip(full, ndims, strict=True)), **params)
        return found.reshape(size, inner, *found.shape[1:]), 0

    return rule


def as_columns(bind: Callable[..., Array]) -> Callable[..., Array]:
    """A batch of right-hand sides (batch, n, k) of one matrix, as ``batch k`` columns of one right-hand side."""

    def shared(v: Array, x: Array, **params: Any) -> Array:
        batch, n, k = x.shape
        found = bind(v, jnp.moveaxis(x, 0, 1).reshape(n, batch * k), **params)
        return jnp.moveaxis(found.reshape(found.shape[0], batch, k), 1, 0)

    return shared


def register(primitive: Primitive, function: Callable[..., Any], shape: Callable[..., tuple[int, ...]], static: str) -> None:
    """Give a primitive its computation, by itself and within jit, and the shape of its result, of its first operand's type."""
    primitive.def_abstract_eval(lambda *avals, **params: avals[0].update(shape=shape(*(aval.shape for aval in avals), **params)))
    primitive.def_impl(lambda *operands, **params: params[static].run(function, operands, params))
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))


def _bilinear_primitive(
    name: str,
    single: Callable[..., Array],
    shape: Callable[..., tuple[int, ...]],
    transposes: tuple[Callable[..., Array], Callable[..., Array]],
    ndims: tuple[int, int],
) -> Primitive:
    """A primitive of two arrays, linear in each; where its second array is one of columns, a batch of them is more columns."""
    primitive = Primitive(f"ooc_chol_{name}")
    register(
        primitive, partial(in_batches(single), single_ndim=ndims[0]), shape, "products" if name == "bilinear" else "structure"
    )
    ad.defbilinear(primitive, *transposes)
    shared = as_columns(partial(bound, primitive)) if ndims == (1, 2) else None
    batching.primitive_batchers[primitive] = batching_rule(partial(bound, primitive), ndims, shared)
    return primitive


matmul_p = _bilinear_primitive(
    "matmul",
    _product,
    lambda v, x, *, structure, transposed, wide: (*x[:-2], structure.pattern.shape[1 if transposed else 0], x[-1]),
    (
        lambda ct, v, x, *, structure, transposed, wide: sampled(*((x, ct) if transposed else (ct, x)), structure, wide=wide),
        lambda ct, v, x, *, structure, transposed, wide: matmul(v, ct, structure, transposed=not transposed, wide=wide),
    ),
    (1, 2),
)
sampled_p = _bilinear_primitive(
    "sampled",
    _sampled,
    lambda g, x, *, structure, wide: (*g[:-2], structure.pattern.nnz),
    (
        lambda ct, g, x, *, structure, wide: matmul(ct, x, structure, wide=wide),
        lambda ct, g, x, *, structure, wide: matmul(ct, g, structure, transposed=True, wide=wide),
    ),
    (2, 2),
)
bilinear_p = _bilinear_primitive(
    "bilinear",
    _bilinear,
    lambda first, second, *, products, face, wide: (*first[:-1], products.sizes[face]),
    (_bilinear_of_first, _bilinear_of_second),
    (1, 1),
)

place_p = Primitive("ooc_chol_place")
register(place_p, _place, lambda v, *, places: (*v[:-1], places.places.size), "places")
ad.deflinear2(place_p, lambda ct, v, *, places: (ad.Zero(v.aval) if isinstance(ct, ad.Zero) else place(ct, places.back),))
batching.primitive_batchers[place_p] = lambda operands, axes, *, places: (
    place(jnp.moveaxis(operands[0], axes[0], 0), places),
    0,
)
