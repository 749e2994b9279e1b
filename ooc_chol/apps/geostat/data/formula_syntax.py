"""The syntax of formulas: text to a checked tree and back. Nothing of it is ever run by Python."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

#: Deepest nesting of an expression: a sum is as deep as it has terms.
DEEPEST = 200
#: The same of parentheses and exponents, for each of which the parser calls itself twice or more.
_DEEPEST_PARENTHESES = 100
#: Most characters of a formula, and those of it that a message repeats.
LONGEST, SHOWN = 20_000, 300

_LARGEST = sys.float_info.max
#: Words that are values elsewhere, and so are no columns unless in backticks.
_RESERVED = frozenset({"True", "False", "None", "TRUE", "FALSE", "NULL", "NA", "NaN", "Inf"})
_PLAIN_NAME = r"[^\W\d]\w*(?:\.[^\W_]\w*)*"
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>{_PLAIN_NAME})|`(?P<quoted>[^`]+)`|(?P<sign>\*\*|[-+*/^:(),]))"
)
#: Operators from the loosest to the tightest, as in R; ``**`` is ``^``.
_LOOSE = (("+", "-"), ("*", "/"), (":",))


@dataclass(frozen=True)
class Name:
    """A column."""

    text: str


@dataclass(frozen=True)
class Number:
    """A finite number."""

    value: float


@dataclass(frozen=True)
class Unary:
    """A sign before an operand."""

    operator: str
    operand: Node


@dataclass(frozen=True)
class Binary:
    """One of ``+ - * / : ^`` between two operands."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Call:
    """A function of arguments."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Name | Number | Unary | Binary | Call


def parse(text: str) -> Node:
    """The tree of an expression; ``ValueError`` says what is not understood."""
    if len(text) > LONGEST:
        raise ValueError(f"the formula has {len(text)} characters, but at most {LONGEST} are read")
    tokens = _Tokens(text)
    node = _expression(tokens)
    tokens.end()
    _check_depth(node)
    return node


def _check_depth(node: Node) -> None:
    """Refuse what is nested too deep for functions that call themselves."""
    level: tuple[Node, ...] = (node,)
    for _ in range(DEEPEST):
        level = tuple(part for one in level for part in parts(one))
    if level:
        raise ValueError(f"the formula is nested more than {DEEPEST} deep")


def parts(node: Node) -> tuple[Node, ...]:
    """Operands or arguments of a node."""
    if isinstance(node, Unary):
        return (node.operand,)
    if isinstance(node, Binary):
        return node.left, node.right
    return node.arguments if isinstance(node, Call) else ()


def names(node: Node) -> list[str]:
    """Columns in the order in which they are written."""
    return [node.text] if isinstance(node, Name) else [name for part in parts(node) for name in names(part)]


def written(node: Node) -> str:
    """The text of a tree, with as many blanks and parentheses as it needs."""
    if isinstance(node, Name):
        return node.text if re.fullmatch(_PLAIN_NAME, node.text) and node.text not in _RESERVED else f"`{node.text}`"
    if isinstance(node, Number):
        return repr(int(node.value)) if node.value.is_integer() and node.value < 2**53 else repr(node.value)
    if isinstance(node, Call):
        return f"{node.function}({', '.join(map(written, node.arguments))})"
    if isinstance(node, Unary):
        return f"{node.operator}{_enclosed(node.operand, _strength(node))}"
    blank, strength = " " if node.operator in "+-*/" else "", _strength(node)
    left, right = (strength + 1, strength) if node.operator == "^" else (strength, strength + 1)
    return f"{_enclosed(node.left, left)}{blank}{node.operator}{blank}{_enclosed(node.right, right)}"


def _strength(node: Node) -> int:
    """How tightly a node holds together."""
    if isinstance(node, Binary):
        return 4 if node.operator == "^" else next(k for k, signs in enumerate(_LOOSE) if node.operator in signs)
    return 3 if isinstance(node, Unary) else 5


def _enclosed(node: Node, least: int) -> str:
    return written(node) if _strength(node) >= least else f"({written(node)})"


class _Tokens:
    """Tokens of a text, the next of which can be looked at."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._found = _split(self._text)
        self._next = next(self._found, None)
        self._depth = 0

    def take(self, *signs: str) -> str | None:
        """The next token, if it is one of these signs."""
        if self._next is None or self._next[0] != "sign" or self._next[1] not in signs:
            return None
        return self.any()[1]

    def any(self) -> tuple[str, str]:
        """The next token with its kind, whatever it is."""
        if self._next is None:
            raise ValueError(f"{self._text!r:.{SHOWN}} in the formula is not an expression: {self.rest()}")
        found, self._next = self._next, next(self._found, None)
        return found

    def follows(self, sign: str) -> bool:
        """Tell whether the next token is this sign; it is not taken."""
        return self._next == ("sign", sign)

    def rest(self) -> str:
        """Text on the next token, which is not expected there, or on an end that comes too early."""
        return "it ends too early" if self._next is None else f"{self._next[1]!r:.60} is not expected there"

    def end(self) -> None:
        """Raise ``ValueError`` where tokens are left."""
        if self._next is not None:
            raise ValueError(f"{self._text!r:.{SHOWN}} in the formula is not an expression: {self.rest()}")

    def deeper(self, by: int) -> None:
        """Count nesting, and refuse too much of it."""
        self._depth += by
        if self._depth > _DEEPEST_PARENTHESES:
            raise ValueError(f"the formula is nested more than {_DEEPEST_PARENTHESES} deep")


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Kinds and texts of tokens."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(
                f"{text!r:.{SHOWN}} in the formula is not understood from {text[at:].strip()!r:.40} on: there are column names "
                "(`in backticks` where they are no words), numbers, + - * / : ^ and parentheses"
            )
        at = match.end()
        kind = str(match.lastgroup)
        if kind == "name" and match["name"] in _RESERVED:
            raise ValueError(f"{match['name']} in the formula is no column; a column of that name is written `{match['name']}`")
        yield ("name", match["quoted"]) if kind == "quoted" else (kind, match[kind])


def _expression(tokens: _Tokens, loosest: int = 0) -> Node:
    """Operands with operators between, the tightest first and those of one strength from left to right."""
    node = _operand(tokens)
    for level in reversed(range(loosest, len(_LOOSE))):
        while sign := tokens.take(*_LOOSE[level]):
            node = Binary(sign, node, _expression(tokens, level + 1))
    return node


def _operand(tokens: _Tokens) -> Node:
    """A name, number, call or parenthesis, with its exponent, and signs before it."""
    signs = []
    while sign := tokens.take("+", "-"):
        signs.append(sign)
    node = _atom(tokens)
    if tokens.take("^", "**"):
        tokens.deeper(1)
        node = Binary("^", node, _operand(tokens))
        tokens.deeper(-1)
    for sign in reversed(signs):
        node = Unary(sign, node)
    return node


def _atom(tokens: _Tokens) -> Node:
    """A name, number, call or parenthesis."""
    kind, text = tokens.any()
    if kind == "number":
        return Number(_number(text))
    if kind == "name" and not tokens.follows("("):
        return Name(text)
    if kind == "sign" and text != "(":
        raise ValueError(f"{text!r} in the formula is not expected there")
    if kind == "name":
        tokens.take("(")
    tokens.deeper(1)
    arguments = [_expression(tokens)]
    while kind == "name" and tokens.take(","):
        arguments.append(_expression(tokens))
    if tokens.take(")") is None:
        raise ValueError(f"a parenthesis in the formula is not closed: {tokens.rest()}")
    tokens.deeper(-1)
    return Call(text, tuple(arguments)) if kind == "name" else arguments[0]


def _number(text: str) -> float:
    value = float(text)
    if value > _LARGEST:
        raise ValueError(f"{text:.40} in the formula is not a finite number")
    return value
