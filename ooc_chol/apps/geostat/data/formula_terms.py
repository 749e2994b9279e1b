"""Which terms a formula has: products written out as R does, and everything else refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.data import formula_syntax as syntax
from ooc_chol.apps.geostat.data.formula_syntax import SHOWN, Binary, Call, Name, Node, Number, Unary

Array = NDArray[np.float64]

#: What a formula may call, each a function of one column.
FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "cos": np.cos,
    "exp": np.exp,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "sqrt": np.sqrt,
}

#: Names of what makes a factor of a column.
FACTORS = ("factor", "C")

#: Most terms, and the highest degree of a polynomial.
_MOST_TERMS, _HIGHEST = 200, 9

#: A term: variables by their text, which colons join.
_Term = tuple[str, ...]


@dataclass
class _Sum:
    """Terms of a sum, and whether one of its numbers speaks of the intercept."""

    terms: list[_Term] = field(default_factory=list)
    intercept: bool | None = None

    def add(self, term: _Term) -> None:
        """Add a term, unless it is there; the order of its variables makes no other term of it."""
        if frozenset(term) not in map(frozenset, self.terms):
            self.terms.append(term)
        if len(self.terms) > _MOST_TERMS:
            raise ValueError(f"the formula has more than {_MOST_TERMS} terms")


def expanded(value: Node, tree: Node) -> tuple[bool, tuple[str, ...]]:
    """Presence of an intercept, and the texts of all terms, main effects before interactions.

    ``ValueError`` where a part is no term, or the left side no arithmetic of a column.
    """
    _check_arithmetic(value)
    if not syntax.names(value):
        raise ValueError(f"the left side {syntax.written(value)!r:.{SHOWN}} of the formula has no column")
    found = _terms(tree)
    ordered = sorted(found.terms, key=len)
    return found.intercept is not False, tuple(":".join(term) for term in ordered)


def is_factor_call(node: Node) -> bool:
    """Tell whether a node makes a factor of a column."""
    return isinstance(node, Call) and node.function in FACTORS


def _terms(node: Node) -> _Sum:
    """The terms of a tree."""
    if isinstance(node, Number):
        if node.value not in (0, 1):
            raise ValueError(f"the term {syntax.written(node)!r:.{SHOWN}} of the formula has no column; 1 is the intercept")
        return _Sum(intercept=node.value == 1)
    if isinstance(node, Unary):
        return _terms(node.operand) if node.operator == "+" else _less(_Sum(), _terms(node.operand), node.operand)
    if isinstance(node, Binary):
        return _COMBINED[node.operator](node)
    _check_variable(node)
    return _Sum([(syntax.written(node),)])


def _added(node: Binary) -> _Sum:
    """``a + b``."""
    left, right = _terms(node.left), _terms(node.right)
    there = set(map(frozenset, left.terms))
    for term in right.terms:
        if frozenset(term) in there:
            raise ValueError(f"the term {':'.join(term)!r:.{SHOWN}} is in the formula twice")
        left.add(term)
    left.intercept = left.intercept if right.intercept is None else right.intercept
    return left


def _taken(node: Binary) -> _Sum:
    """``a - b``."""
    return _less(_terms(node.left), _terms(node.right), node.right)


def _less(whole: _Sum, less: _Sum, node: Node) -> _Sum:
    """Terms without others, which must be there; ``- 1`` takes the intercept away, ``- 0`` does not."""
    for term in map(frozenset, less.terms):
        if term not in map(frozenset, whole.terms):
            raise ValueError(f"the term {syntax.written(node)!r:.{SHOWN}} of the formula is subtracted, but is not there to be")
        whole.terms = [one for one in whole.terms if frozenset(one) != term]
    whole.intercept = whole.intercept if less.intercept is None else not less.intercept
    return whole


def _interaction(node: Binary) -> _Sum:
    """``a:b``."""
    return _joined(_factor(node.left), _factor(node.right))


def _crossed(node: Binary) -> _Sum:
    """``a * b``: ``a + b + a:b``."""
    left, right = _factor(node.left), _factor(node.right)
    crossed = _joined(left, right)
    whole = _Sum()
    for term in (*left.terms, *right.terms, *crossed.terms):
        whole.add(term)
    return whole


def _powered(node: Binary) -> _Sum:
    """``(a + b)^2``: ``a + b + a:b``."""
    base = _factor(node.left)
    exponent = node.right.value if isinstance(node.right, Number) else 0.0
    if len(base.terms) < 2 or exponent not in range(1, _HIGHEST + 1):
        text = syntax.written(node)
        raise ValueError(
            f"{text!r:.{SHOWN}} in the formula is not understood: a power of a column is I({text:.{SHOWN}}) or "
            "poly(COLUMN, DEGREE), and (a + b)^2 has all interactions of two"
        )
    whole = base
    for _ in range(int(exponent) - 1):
        crossed, added = _joined(whole, base), _Sum()
        for term in (*whole.terms, *crossed.terms):
            added.add(term)
        whole = added
    return whole


def _quotient(node: Binary) -> _Sum:
    raise ValueError(
        f"{syntax.written(node)!r:.{SHOWN}} in the formula is not understood: a quotient is I({syntax.written(node):.{SHOWN}}), "
        "and what R nests by a / b is a + a:b"
    )


_COMBINED: Mapping[str, Callable[[Binary], _Sum]] = {
    "+": _added,
    "-": _taken,
    "*": _crossed,
    ":": _interaction,
    "^": _powered,
    "/": _quotient,
}


def _factor(node: Node) -> _Sum:
    """Terms on one side of a product, where a number has no meaning."""
    found = _terms(node) if not isinstance(node, Number) else _Sum(intercept=True)
    if found.intercept is not None or not found.terms:
        raise ValueError(
            f"{syntax.written(node)!r:.{SHOWN}} in the formula is not understood in a product of terms: a product of numbers is "
            "arithmetic, as in I(2 * x)"
        )
    return found


def _joined(left: _Sum, right: _Sum) -> _Sum:
    """All interactions of two sums."""
    whole = _Sum()
    for one in left.terms:
        for other in right.terms:
            whole.add(tuple(dict.fromkeys((*one, *other))))
    return whole


def _check_variable(node: Node) -> None:
    """Raise ``ValueError`` unless a node is a column, a function of arithmetic, a factor, or a polynomial."""
    if isinstance(node, Name):
        return
    assert isinstance(node, Call), "_terms has looked at everything else"
    if is_factor_call(node):
        if len(node.arguments) != 1 or not isinstance(node.arguments[0], Name):
            raise ValueError(
                f"{syntax.written(node)!r:.{SHOWN}} in the formula is not understood: {node.function} takes one column"
            )
        return
    if node.function == "poly":
        _check_polynomial(node)
    else:
        _check_arithmetic(node)
    if not syntax.names(node):
        raise ValueError(f"the term {syntax.written(node)!r:.{SHOWN}} of the formula has no column; 1 is the intercept")


def _check_polynomial(node: Call) -> None:
    """Raise ``ValueError`` unless this is ``poly(column, degree)``."""
    degree = node.arguments[1] if len(node.arguments) == 2 else None
    if not isinstance(degree, Number) or degree.value not in range(1, _HIGHEST + 1):
        raise ValueError(
            f"{syntax.written(node)!r:.{SHOWN}} in the formula is not understood: poly takes a column and a degree "
            f"of 1 to {_HIGHEST}"
        )
    _check_arithmetic(node.arguments[0])


def _check_arithmetic(node: Node) -> None:
    """Refuse everything but columns, numbers, arithmetic and the functions of the list."""
    if isinstance(node, Call):
        if node.function not in FUNCTIONS and node.function != "I":
            raise ValueError(
                f"{syntax.written(node)!r:.{SHOWN}} in the formula is not understood: there are {', '.join(FUNCTIONS)} and I, "
                f"and as terms of their own {', '.join(FACTORS)} and poly"
            )
        if len(node.arguments) != 1:
            raise ValueError(f"{node.function} in the formula takes one argument")
    if isinstance(node, Binary) and node.operator == ":":
        raise ValueError(f"{syntax.written(node)!r:.{SHOWN}} in the formula is not understood: a colon is between terms")
    for part in syntax.parts(node):
        _check_arithmetic(part)
