"""A mean as a formula of named columns, such as ``"zinc ~ sqrt(dist) + factor(soil)"``, read without running any of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data import formula_syntax as syntax
from ooc_chol.apps.geostat.data.formula_basis import Basis as Basis
from ooc_chol.apps.geostat.data.formula_basis import learned_levels, learned_polynomial, polynomial_columns, text_of_codes
from ooc_chol.apps.geostat.data.formula_syntax import SHOWN, Binary, Call, Name, Node, Number, Unary
from ooc_chol.apps.geostat.data.formula_terms import FUNCTIONS as FUNCTIONS
from ooc_chol.apps.geostat.data.formula_terms import expanded, is_factor_call
from ooc_chol.apps.geostat.data.rows import Rows, counted_rows
from ooc_chol.apps.geostat.errors import UnknownLevelError

Array = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "^": np.power,
}


@dataclass(frozen=True)
class Formula:
    """A value and the terms of its mean; made by :func:`parse_formula`.

    Parameters
    ----------
    value : str
        The expression left of the tilde.
    intercept : bool
        True if the mean has one.
    terms : tuple of str
        The other terms, main effects before interactions, as written but for blanks.
    columns : tuple of str
        Names of all columns that are used, in the order of the formula.
    """

    value: str
    intercept: bool
    terms: tuple[str, ...]
    columns: tuple[str, ...]

    __repr__ = tb.brief_repr

    @property
    def term_columns(self) -> tuple[str, ...]:
        """Columns that the terms use, which every place of a prediction must have."""
        used = {name for term in self.terms for name in syntax.names(syntax.parse(term))}
        return tuple(name for name in _unique((*self.columns, *sorted(used))) if name in used)

    @property
    def value_column(self) -> str:
        """The one column of the left side.

        Raises
        ------
        ValueError
            It has several.
        """
        names = _unique(syntax.names(syntax.parse(self.value)))
        if len(names) > 1:
            raise ValueError(
                f"the left side {self.value!r:.{SHOWN}} of the formula has {len(names)} columns, but one is observed"
            )
        return names[0]

    @property
    def factor_columns(self) -> tuple[str, ...]:
        """Columns that ``factor`` or ``C`` makes factors of, whatever they hold: codes, which nothing lies between."""
        return _unique(name for part in self._variables if is_factor_call(part) for name in syntax.names(part))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that may hold text: those of :attr:`factor_columns`, and those that stand for themselves."""
        return _unique((*self.factor_columns, *(part.text for part in self._variables if isinstance(part, Name))))

    @property
    def _variables(self) -> tuple[Node, ...]:
        """Variables of the terms: columns, functions of columns, factors and polynomials."""
        return tuple(dict.fromkeys(part for term in self.terms for part in _factors_of(syntax.parse(term))))

    def values(self, columns: Columns, *, rows: Rows | None = None) -> Array:
        """The observed values, shape ``(n,)``.

        Parameters
        ----------
        columns : mapping of str to (n,) array
            At least those that the left side uses.
        rows : Rows, optional
            Names of the rows in messages; numbers counted from zero when not given.

        Returns
        -------
        (n,) array
            The left side, a new array.

        Raises
        ------
        ValueError
            A column is missing, or the result is not finite: the text names expression and row.
        """
        return _evaluated(syntax.parse(self.value), columns, rows)

    def basis(self, columns: Columns, *, rows: Rows | None = None) -> Basis:
        """Levels of factors and orthogonal polynomials, as the observations have them.

        Parameters
        ----------
        columns : mapping of str to (n,) array
            At least :attr:`term_columns`; text where a column is a factor by itself.
        rows : Rows, optional
            Names of the rows in messages.

        Returns
        -------
        Basis
            Facts that predictions at other places need to have the same columns.

        Raises
        ------
        ValueError
            A column is missing, a factor has one level, or as many as there are rows, or a polynomial has too few values.
        """
        _check_there(self.term_columns, columns)
        levels, polynomials = {}, {}
        for part in self._variables:
            text = syntax.written(part)
            if is_factor_call(part) or (isinstance(part, Name) and _is_text(columns[part.text])):
                levels[text] = learned_levels(text, columns[syntax.names(part)[0]])
            elif isinstance(part, Call) and part.function == "poly":
                degree = int(_number(part.arguments[1]))
                polynomials[text] = learned_polynomial(text, _evaluated(part.arguments[0], columns, rows), degree)
        return Basis(levels, polynomials)

    def covariates(self, columns: Columns, basis: Basis | None = None, *, rows: Rows | None = None) -> Array:
        """The terms without the intercept, shape ``(n, q)``.

        Parameters
        ----------
        columns : mapping of str to (n,) array
            At least :attr:`term_columns`, and one column; text where a column is a factor by itself.
        basis : Basis, optional
            Levels and polynomials of the observations (:meth:`basis`); those of ``columns`` themselves when not given.
        rows : Rows, optional
            Names of the rows in messages.

        Returns
        -------
        (n, q) array
            One column for each of :meth:`names`.

        Raises
        ------
        ValueError
            A column is missing, or a term is not finite: the text names term and row. As ``UnknownLevelError``, a factor has a
            level that the observations have not.
        """
        if not columns:
            raise ValueError("there are no columns, so that the number of rows is not known")
        found = self.basis(columns, rows=rows) if basis is None else basis
        n = len(next(iter(columns.values())))
        blocks = [_product([self._coded(part, term, columns, found, rows) for part in _parts(term)]) for term in self.terms]
        return np.column_stack([np.empty((n, 0)), *blocks])

    def names(self, basis: Basis | None = None) -> tuple[str, ...]:
        """Names of the columns of the mean besides the intercept.

        Parameters
        ----------
        basis : Basis, optional
            Levels and polynomials of the observations; not needed where there is no factor.

        Returns
        -------
        tuple of str
            Names: of a factor ``factor(soil)[2]`` for level 2, of a polynomial ``poly(x, 2)[1]`` for degree 1, of interactions
            with a colon between.

        Raises
        ------
        ValueError
            There is a factor or polynomial, but no basis.
        """
        found = Basis() if basis is None else basis
        return tuple(name for term in self.terms for name in _joined([self._labels(part, term, found) for part in _parts(term)]))

    def _coded(self, part: Node, term: str, columns: Columns, basis: Basis, rows: Rows | None) -> Array:
        """Columns of one variable of a term."""
        text = syntax.written(part)
        if text in basis.levels:
            name = syntax.names(part)[0]
            _check_there((name,), columns)
            codes, chosen = text_of_codes(columns[name]), self._levels(text, term, basis)
            if unknown := sorted(set(codes.tolist()) - set(basis.levels[text])):
                raise UnknownLevelError(name, unknown, basis.levels[text])
            return np.asarray(codes[:, None] == np.array(chosen)[None, :], dtype=np.float64)
        if text in basis.polynomials and isinstance(part, Call):
            return polynomial_columns(_evaluated(part.arguments[0], columns, rows), basis.polynomials[text])
        return _evaluated(part, columns, rows)[:, None]

    def _labels(self, part: Node, term: str, basis: Basis) -> tuple[str, ...]:
        """Names of the columns of one variable of a term."""
        text = syntax.written(part)
        if text in basis.levels:
            return tuple(f"{text}[{level}]" for level in self._levels(text, term, basis))
        if text in basis.polynomials:
            return tuple(f"{text}[{k + 1}]" for k in range(len(basis.polynomials[text]) // 2))
        if is_factor_call(part) or (isinstance(part, Call) and part.function == "poly"):
            raise ValueError(f"the columns of {text} in the formula depend on the observations: give their basis")
        return (text,)

    def _levels(self, text: str, term: str, basis: Basis) -> tuple[str, ...]:
        """Levels of a factor that have a column in a term: all but the first where the model has the term without the factor.

        As in R, the first factor that is a term by itself takes the place of an intercept that is not there.
        """
        terms = [frozenset(map(syntax.written, _parts(other))) for other in self.terms]
        rest = frozenset(map(syntax.written, _parts(term))) - {text}
        first = next((one for one in terms if len(one) == 1 and one <= basis.levels.keys()), None)
        is_contrast = rest in terms if rest else self.intercept or first != frozenset({text})
        return basis.levels[text][1:] if is_contrast else basis.levels[text]


def parse_formula(text: str) -> Formula:
    """Read ``value ~ term + term``, as R does; the intercept is there unless ``0`` or ``- 1`` takes it away.

    Parameters
    ----------
    text : str
        Formula, with arithmetic of one column left of the tilde, and terms with ``+`` between right of it.

    Returns
    -------
    Formula
        Value, intercept and terms of the formula, checked.

    Raises
    ------
    ValueError
        It is no such formula; the text says which part is not understood.

    Notes
    -----
    Terms are columns (names of letters, digits, ``_`` and dots, any others in backticks), functions of arithmetic, or
    ``I(...)``, which is arithmetic itself. Functions are abs, cos, exp, log, log10, log1p, sin and sqrt. ``poly(x, 2)`` are
    orthogonal polynomials, ``factor(x)`` or ``C(x)`` levels of codes, which columns of text are by themselves. ``a:b`` is an
    interaction, ``a * b`` is ``a + b + a:b``, ``(a + b)^2`` all interactions of two, and ``- a`` takes a term away.

    Examples
    --------
    >>> parse_formula("log(zinc) ~ 1 + x + sqrt(dist)").terms
    ('x', 'sqrt(dist)')
    >>> parse_formula("zinc ~ x * factor(soil)").terms
    ('x', 'factor(soil)', 'x:factor(soil)')
    """
    left, tilde, right = text.partition("~")
    if not tilde or "~" in right:
        raise ValueError(f"the formula {text!r:.{SHOWN}} needs one tilde, as in 'zinc ~ 1 + sqrt(dist)'")
    value, tree = syntax.parse(left), syntax.parse(right)
    intercept, terms = expanded(value, tree)
    columns = _unique([*syntax.names(value), *(name for term in terms for name in syntax.names(syntax.parse(term)))])
    return Formula(syntax.written(value), intercept, terms, columns)


def _parts(term: str) -> tuple[Node, ...]:
    """The variables of a term."""
    return _factors_of(syntax.parse(term))


def _factors_of(node: Node) -> tuple[Node, ...]:
    """Factors of a term, which colons separate."""
    if isinstance(node, Binary) and node.operator == ":":
        return *_factors_of(node.left), *_factors_of(node.right)
    return (node,)


def _product(blocks: list[Array]) -> Array:
    """Products of columns, one of each block; the first block runs fastest, as in R."""
    whole = blocks[0]
    for block in blocks[1:]:
        whole = np.column_stack([whole * block[:, [k]] for k in range(block.shape[1])])
    return whole


def _joined(labels: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Names of products of columns, in the order of :func:`_product`."""
    whole = labels[0]
    for more in labels[1:]:
        whole = tuple(f"{name}:{one}" for one in more for name in whole)
    return whole


def _is_text(column: NDArray[Any]) -> bool:
    return column.dtype.kind in "US"


def _check_there(names: Iterable[str], columns: Columns) -> None:
    """Raise ``ValueError`` where a column is missing."""
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"the formula uses a column {missing[0]!r}, but there are {', '.join(columns)}")


def _evaluated(node: Node, columns: Columns, rows: Rows | None = None) -> Array:
    """Arithmetic as a column of finite numbers."""
    _check_there(syntax.names(node), columns)
    texts = [name for name in syntax.names(node) if _is_text(columns[name])]
    if texts:
        raise ValueError(f"{syntax.written(node)} in the formula computes with {texts[0]!r}, which is text: a factor")
    with np.errstate(all="ignore"):
        result = np.array(_value(node, columns), dtype=np.float64)
    if not np.isfinite(result).all():
        row = int(np.argmin(np.isfinite(result)))
        where = f"{syntax.written(node)} in the formula is {result[row]} in {(rows or counted_rows(row + 1, 'row')).named(row)}"
        raise ValueError(f"{where}; mend or drop that row")
    return result


def _value(node: Node, columns: Columns) -> Array:
    """Walk a checked tree."""
    if isinstance(node, Name):
        return tb.plain_array(node.text, columns[node.text], np.float64)
    if isinstance(node, Number):
        return np.asarray(node.value, dtype=np.float64)
    if isinstance(node, Unary):
        operand = _value(node.operand, columns)
        return -operand if node.operator == "-" else operand
    if isinstance(node, Binary):
        return _BINARY[node.operator](_value(node.left, columns), _value(node.right, columns))
    argument = _value(node.arguments[0], columns)
    return argument if node.function == "I" else FUNCTIONS[node.function](argument)


def _number(node: Node) -> float:
    assert isinstance(node, Number), "expanded lets nothing else pass"
    return node.value


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
