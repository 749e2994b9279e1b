"""A mean written as a formula of named columns, such as ``"zinc ~ 1 + x + sqrt(dist)"``, read without running any of it."""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc

Array = NDArray[np.float64]
Columns = Mapping[str, Array]

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

_BINARY: Mapping[type[ast.operator], Callable[[Array, Array], Array]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}

#: Deepest nesting of an expression: a sum is as deep as it has terms.
_DEEPEST = 200

_LARGEST = sys.float_info.max

#: Most characters of a formula that a message repeats.
_SHOWN = 300


@dataclass(frozen=True)
class Formula:
    """A value and the terms of its mean; made by :func:`parse_formula`.

    Parameters
    ----------
    value : str
        The expression left of the tilde.
    intercept : bool
        Whether the mean has one.
    terms : tuple of str
        The other terms, as written, without blanks doubled.
    columns : tuple of str
        Names of all columns that are used, in the order of the formula.
    """

    value: str
    intercept: bool
    terms: tuple[str, ...]
    columns: tuple[str, ...]

    __repr__ = oc.brief_repr

    @property
    def term_columns(self) -> tuple[str, ...]:
        """Columns that the terms use, which every place of a prediction must have."""
        return _unique(name for term in self.terms for name in _names(_expression(term)))

    @property
    def value_column(self) -> str:
        """The one column of the left side.

        Raises
        ------
        ValueError
            It has several.
        """
        names = _unique(_names(_expression(self.value)))
        if len(names) > 1:
            raise ValueError(
                f"the left side {self.value!r:.{_SHOWN}} of the formula has {len(names)} columns, but one is observed"
            )
        return names[0]

    def values(self, columns: Columns) -> Array:
        """The observed values, shape ``(n,)``.

        Parameters
        ----------
        columns : mapping of str to (n,) array
            At least those that the left side uses.

        Returns
        -------
        (n,) array
            The left side, a new array.

        Raises
        ------
        ValueError
            A column is missing, or the result is not finite: the text names expression and row.
        """
        return _evaluated(self.value, columns)

    def covariates(self, columns: Columns) -> Array:
        """The terms without the intercept, shape ``(n, q)``.

        Parameters
        ----------
        columns : mapping of str to (n,) array
            At least :attr:`term_columns`, and one column.

        Returns
        -------
        (n, q) array
            One column for each of ``terms``.

        Raises
        ------
        ValueError
            A column is missing, or a term is not finite: the text names term and row.
        """
        if not columns:
            raise ValueError("there are no columns, so that the number of rows is not known")
        n = len(next(iter(columns.values())))
        return np.column_stack([np.empty((n, 0)), *(_evaluated(term, columns) for term in self.terms)])


def parse_formula(text: str) -> Formula:
    """Read ``value ~ term + term``; ``1`` is the intercept, which is there unless ``0`` or ``- 1`` takes it away.

    Parameters
    ----------
    text : str
        Column names that are Python names, numbers, ``+ - * / **``, parentheses, and the functions abs, cos, exp, log, log10,
        log1p, sin and sqrt. A ``+`` separates terms unless it is inside a function or product: there it adds. ``*`` and ``**``
        are arithmetic, not interactions.

    Returns
    -------
    Formula
        Value, intercept and terms of the formula, checked.

    Raises
    ------
    ValueError
        It is no such formula; the text says which part is not understood.

    Examples
    --------
    >>> parse_formula("log(zinc) ~ 1 + x + sqrt(dist)").terms
    ('x', 'sqrt(dist)')
    """
    left, tilde, right = text.partition("~")
    if not tilde or "~" in right:
        raise ValueError(f"the formula {text!r:.{_SHOWN}} needs one tilde, as in 'zinc ~ 1 + sqrt(dist)'")
    value = _expression(left)
    intercept, terms = True, []
    for sign, node in _summands(_expression(right)):
        if isinstance(node, ast.Constant) and node.value in (0, 1):
            intercept = (node.value == 1) == (sign > 0)
        elif sign < 0:
            raise ValueError(f"the term {ast.unparse(node)!r:.{_SHOWN}} of the formula is subtracted; leave it out")
        elif not _names(node):
            raise ValueError(f"the term {ast.unparse(node)!r:.{_SHOWN}} of the formula has no column; 1 is the intercept")
        else:
            terms.append(ast.unparse(node))
    doubled = [term for k, term in enumerate(terms) if term in terms[:k]]
    if doubled:
        raise ValueError(f"the term {doubled[0]!r:.{_SHOWN}} is in the formula twice")
    if not _names(value):
        raise ValueError(f"the left side {left.strip()!r:.{_SHOWN}} of the formula has no column")
    columns = _unique([*_names(value), *(name for term in terms for name in _names(_expression(term)))])
    return Formula(ast.unparse(value), intercept, tuple(terms), columns)


def _expression(text: str) -> ast.expr:
    """The checked syntax tree of an expression."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text.strip()!r:.{_SHOWN}} in the formula is not an expression: {error!s:.{_SHOWN}}") from error
    _check_depth(node)
    _check(node, _DEEPEST)
    return node


def _check_depth(node: ast.AST) -> None:
    """Refuse what is nested too deep for functions that call themselves, those of Python's own messages among them."""
    level = [node]
    for _ in range(_DEEPEST + 1):
        level = [part for one in level for part in ast.iter_child_nodes(one)]
    if level:
        raise ValueError(f"the formula is nested more than {_DEEPEST} deep")


def _check(node: ast.expr, depth: int) -> None:
    """Refuse everything but columns, finite real numbers, arithmetic and the functions of the list."""
    if depth == 0:
        raise ValueError(f"the formula is nested more than {_DEEPEST} deep")
    if isinstance(node, ast.Name):
        return
    number = node.value if isinstance(node, ast.Constant) else None
    if isinstance(number, int | float) and not isinstance(number, bool) and abs(number) <= _LARGEST:
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return _check(node.operand, depth - 1)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        _check(node.left, depth - 1)
        return _check(node.right, depth - 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        if len(node.args) == 1 and not node.keywords:
            return _check(node.args[0], depth - 1)
        raise ValueError(f"{node.func.id} in the formula takes one argument")
    raise ValueError(
        f"{ast.unparse(node)!r:.{_SHOWN}} in the formula is not understood: there are column names, numbers, + - * / **, and "
        f"{', '.join(FUNCTIONS)}"
    )


def _summands(node: ast.expr, sign: int = 1) -> list[tuple[int, ast.expr]]:
    """Terms of a sum with their signs, from left to right."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = sign if isinstance(node.op, ast.Add) else -sign
        return [*_summands(node.left, sign), *_summands(node.right, right)]
    if isinstance(node, ast.UnaryOp):
        return _summands(node.operand, sign if isinstance(node.op, ast.UAdd) else -sign)
    return [(sign, node)]


def _names(node: ast.expr) -> list[str]:
    """Columns in the order in which they are written."""
    found = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    functions = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    found.sort(key=lambda part: (part.lineno, part.col_offset))
    return [part.id for part in found if id(part) not in functions]


def _evaluated(text: str, columns: Columns) -> Array:
    """An expression as a column of finite numbers."""
    node = _expression(text)
    missing = [name for name in _names(node) if name not in columns]
    if missing:
        raise ValueError(f"the formula uses a column {missing[0]!r}, but there are {', '.join(columns)}")
    with np.errstate(all="ignore"):
        result = np.array(_value(node, columns), dtype=np.float64)
    if not np.isfinite(result).all():
        row = int(np.argmin(np.isfinite(result)))
        raise ValueError(f"{text} in the formula is {result[row]} in row {row} (counted from zero); mend or drop that row")
    return result


def _value(node: ast.expr, columns: Columns) -> Array:
    """Walk a checked tree."""
    if isinstance(node, ast.Name):
        return np.asarray(columns[node.id], dtype=np.float64)
    if isinstance(node, ast.Constant):
        return np.asarray(node.value, dtype=np.float64)
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, columns)
        return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, columns), _value(node.right, columns))
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name), "_check lets nothing else pass"
    return FUNCTIONS[node.func.id](_value(node.args[0], columns))


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
