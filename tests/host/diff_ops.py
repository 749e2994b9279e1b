"""Every operation of diff on every kind of matrix, with numbers to try it on, and its dense counterpart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.diff import Pattern
from tests.host.diff_matrices import MATRICES, dense, entries, random_matrix
from tests.inside.diff import IndexArray, ops, product_structure, union


class Case(NamedTuple):
    """An operation, what it is given, and what it should give."""

    name: str
    op: ops.AbstractOp
    given: tuple[NDArray[Any], ...]
    expected: Callable[..., NDArray[Any]]  #: of what is given, by dense matrices


def cases(seed: int = 0) -> Iterator[Case]:
    """Every operation on every matrix."""
    for name in MATRICES:
        yield from _of_one(name, np.random.default_rng(seed))
    yield from _of_two(np.random.default_rng(seed))


def _of_one(name: str, rng: np.random.Generator) -> Iterator[Case]:
    pattern, v = entries(name)
    at = pattern.rows, pattern.indices
    m, n = pattern.shape
    for columns in ((), (1,), (3,)):
        x, g = rng.standard_normal((n, *columns)), rng.standard_normal((m, *columns))
        text = f"{name}, {columns or 'vector'}"
        yield Case(f"MatMul {text}", ops.MatMul(pattern), (v, x), lambda v, x: dense(pattern, v) @ x)
        yield Case(f"TransposedMatMul {text}", ops.TransposedMatMul(pattern), (v, g), lambda v, y: dense(pattern, v).T @ y)
        yield Case(f"Sampled {text}", ops.Sampled(pattern), (g, x), lambda g, x: _columns(g) @ _columns(x).T)
    yield Case(f"Transpose {name}", ops.Transpose(pattern), (v,), lambda v: _values(pattern.transposed, dense(pattern, v).T))
    yield Case(f"RowSums {name}", ops.RowSums(pattern), (v,), lambda v: dense(pattern, v).sum(axis=1))
    d = rng.standard_normal(m)
    yield Case(f"Spread {name}", ops.Spread(pattern), (d,), lambda d: (d[:, None] * np.ones(n))[at])
    yield Case(f"Times {name}", ops.Times(), (v, rng.standard_normal(pattern.nnz)), lambda a, b: a * b)
    part = pattern.tril(0)
    tril = ops.Gather(part.places, pattern.nnz)
    yield Case(f"Gather {name}", tril, (v,), lambda v: _values(part.pattern, np.tril(dense(pattern, v))))
    diagonal = ops.Gather(pattern.diagonal, pattern.nnz)
    yield Case(f"Gather diagonal {name}", diagonal, (v,), lambda v: dense(pattern, v).diagonal())
    few = rng.standard_normal(part.pattern.nnz)
    spread = ops.Scatter(part.places, pattern.nnz)
    yield Case(f"Scatter {name}", spread, (few,), lambda v: _values(pattern, dense(part.pattern, v)))


def _of_two(rng: np.random.Generator) -> Iterator[Case]:
    for one, two in (("square", "square"), ("wide", "tall"), ("empty rows", "dense"), ("1 x 1", "1 x 1"), ("no entries", "wide")):
        (p, a), q = entries(one), entries(two)[0]
        if p.n_columns != q.n_rows:  # the rows of the second that fit
            q = Pattern.of(random_matrix((p.n_columns, 4), 0.5, 6))[0]
        b, triples = rng.standard_normal(q.nnz), product_structure(p, q)
        c = rng.standard_normal(triples.pattern.nnz)

        def product(a: Any, b: Any, p: Pattern = p, q: Pattern = q, r: Pattern = triples.pattern) -> Any:
            return _values(r, dense(p, a) @ dense(q, b))

        def of_a(c: Any, b: Any, p: Pattern = p, q: Pattern = q, r: Pattern = triples.pattern) -> Any:
            return _values(p, dense(r, c) @ dense(q, b).T)

        def of_b(c: Any, a: Any, p: Pattern = p, q: Pattern = q, r: Pattern = triples.pattern) -> Any:
            return _values(q, dense(p, a).T @ dense(r, c))

        yield Case(f"Contract {one} @ {two}", ops.Contract(triples), (a, b), product)
        yield Case(f"Contract a {one} @ {two}", ops.Contract(triples, "a"), (c, b), of_a)
        yield Case(f"Contract b {one} @ {two}", ops.Contract(triples, "b"), (c, a), of_b)
    p, a = entries("square")
    q = Pattern.of(random_matrix((7, 7), 0.4, 8))[0]
    both = union(p, q)
    into = ops.Scatter(both.from_p, both.pattern.nnz)
    yield Case("Scatter union", into, (a,), lambda a: _values(both.pattern, dense(p, a)))
    places = IndexArray(np.array([3, -1, 0, -1]))
    yield Case("Gather with gaps", ops.Gather(places, 4), (rng.standard_normal(4),), lambda v: np.array([v[3], 0, v[0], 0]))
    yield Case("Scatter with gaps", ops.Scatter(places, 5), (rng.standard_normal(4),), lambda v: np.array([v[2], 0, 0, v[0], 0]))


def values_at(case: Case) -> NDArray[Any]:
    """What the operation should give; of a sampled product the entries on its pattern."""
    found = case.expected(*case.given)
    return _values(case.op.pattern, found) if isinstance(case.op, ops.Sampled) else found


def _columns(x: NDArray[Any]) -> NDArray[Any]:
    return x[:, None] if x.ndim == 1 else x


def _values(pattern: Pattern, a: NDArray[Any]) -> NDArray[Any]:
    """Entries of a dense matrix that stand on a pattern."""
    found: NDArray[Any] = a[pattern.rows, pattern.indices]
    return found
