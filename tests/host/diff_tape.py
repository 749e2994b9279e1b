"""A tape of a hundred lines that records operations, so that derivatives of any order can be taken without a framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.inside.diff import AbstractOp, run


class Var:
    """An array, and what it was computed of, each with what brings a cotangent back to it."""

    def __init__(self, value: Any, parents: Sequence[tuple[Var, Callable[[Var], Var]]] = ()) -> None:
        self.value = np.asarray(value)
        self.parents = tuple(parents)

    def __add__(self, other: Any) -> Var:
        other = _var(other)
        parents = [(each, lambda g, each=each: _reduced(g, each.value.shape)) for each in (self, other)]
        return Var(self.value + other.value, parents)

    def __mul__(self, other: Any) -> Var:
        other = _var(other)
        pairs = ((self, other), (other, self))
        parents = [(a, lambda g, a=a, b=b: _reduced(g * b, a.value.shape)) for a, b in pairs]
        return Var(self.value * other.value, parents)

    def __neg__(self) -> Var:
        return self * -1.0

    def __sub__(self, other: Any) -> Var:
        return self + -_var(other)

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, key: Any) -> Var:
        return Var(self.value[key], [(self, lambda g: _put(g, key, self.value.shape))])

    def sum(self) -> Var:
        return _reduced(self, ())


def apply(op: AbstractOp, *given: Var) -> Var:
    """Compute an operation, and record it."""

    def pull(g: Var, at: int) -> Var:
        return op.pull(apply, given, g, [place == at for place in range(len(given))])[at]

    value = run(op, *(each.value for each in given))
    return Var(value, [(each, lambda g, at=at: pull(g, at)) for at, each in enumerate(given)])


def gradients(result: Var, of: Sequence[Var]) -> list[Var]:
    """Derivatives of a number, which are recorded themselves."""
    cotangents: dict[int, Var] = {id(result): Var(np.ones_like(result.value))}
    for node in reversed(_sorted(result)):
        g = cotangents.get(id(node))
        for parent, pull in node.parents:
            if g is not None:
                part = pull(g)
                cotangents[id(parent)] = cotangents[id(parent)] + part if id(parent) in cotangents else part
    return [cotangents.get(id(each), Var(np.zeros_like(each.value))) for each in of]


def check_derivatives(function: Callable[..., Var], *given: Any, rtol: float = 1e-6, moves: Any = None) -> None:
    """Compare first and second derivatives of the sum of a function, weighted, with central differences in random directions."""
    rng = np.random.default_rng(17)
    weights = rng.standard_normal(function(*map(Var, given)).value.shape)
    directions = moves or [rng.standard_normal(each.shape) for each in given]
    second = [rng.standard_normal(each.shape) for each in given]

    def first_order(*arrays: Any) -> tuple[float, list[Var], list[Var]]:
        found = [Var(each) for each in arrays]
        total = (function(*found) * weights).sum()
        return float(total.value), found, gradients(total, found)

    def along(*arrays: Any) -> tuple[float, list[Var], Var]:
        _, found, slopes = first_order(*arrays)
        total: Any = sum(((slope * other).sum() for slope, other in zip(slopes, second, strict=True)), start=Var(0.0))
        return float(total.value), found, total

    _, _, slopes = first_order(*given)
    _check(lambda *a: first_order(*a)[0], given, directions, [slope.value for slope in slopes], rtol)
    _, found, total = along(*given)
    _check(lambda *a: along(*a)[0], given, directions, [each.value for each in gradients(total, found)], rtol)


def _check(function: Callable[..., float], given: Any, directions: Any, slopes: Any, rtol: float) -> None:
    step = 1e-5
    ahead = function(*(a + step * d for a, d in zip(given, directions, strict=True)))
    behind = function(*(a - step * d for a, d in zip(given, directions, strict=True)))
    expected = (ahead - behind) / (2 * step)
    terms = [s * d for s, d in zip(slopes, directions, strict=True)]
    scale = max(sum(float(np.abs(term).sum()) for term in terms), 1e-3)
    assert abs(sum(float(term.sum()) for term in terms) - expected) <= rtol * scale


def _var(value: Any) -> Var:
    return value if isinstance(value, Var) else Var(value)


def _reduced(g: Var, shape: tuple[int, ...]) -> Var:
    """Summed over what was broadcast."""
    if g.value.shape == shape:
        return g
    axes = tuple(range(g.value.ndim - len(shape)))
    return Var(g.value.sum(axis=axes), [(g, lambda h: _spread(h, g.value.shape))])


def _spread(g: Var, shape: tuple[int, ...]) -> Var:
    return Var(np.broadcast_to(g.value, shape).copy(), [(g, lambda h: _reduced(h, g.value.shape))])


def _put(g: Var, key: Any, shape: tuple[int, ...]) -> Var:
    whole = np.zeros(shape)
    whole[key] = g.value
    return Var(whole, [(g, lambda h: h[key])])


def _sorted(result: Var) -> list[Var]:
    """All that a result was computed of, each after its parents."""
    order: list[Var] = []
    seen: set[int] = set()
    stack: list[tuple[Var, bool]] = [(result, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((parent, False) for parent, _ in node.parents)
    return order
