"""Objects on one line, for ``repr``: what each is, with numbers to six digits, and never what is long to make or to read."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from numbers import Integral, Real
from os import PathLike, fspath

import numpy as np

#: Most characters of an object on one line, and of one of its values.
MOST_CHARACTERS, _MOST_OF_A_VALUE = 199, 80
#: Most items of a sequence that are written out, and most characters of a text.
_MOST_ITEMS, _MOST_OF_A_TEXT = 4, 48


def one_line(owner: object, facts: Mapping[str, object]) -> str:
    """``Name(fact=value, ...)`` on one line of less than 200 characters, for the ``__repr__`` of ``owner``.

    Parameters
    ----------
    owner : object
        Object whose class gives the name.
    facts : mapping of str to object
        Facts to print, the most important first: numbers are rounded, arrays are named by their shape, long sequences by
        their length, and what does not fit is left out.

    Returns
    -------
    str
        The line.

    Notes
    -----
    No value is computed: of a sequence that is no list, tuple, set or dict not even the length is asked.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> oc.toolbox.one_line(
    ...     range(3),
    ...     {
    ...         "seconds": 0.12345678,
    ...         "values": np.zeros((120, 2)),
    ...         "columns": ("x", "y"),
    ...     },
    ... )
    "range(seconds=0.123457, values=<120 x 2 float64>, columns=('x', 'y'))"
    """
    line, left_out = f"{type(owner).__name__}(", ", ...)"
    for number, (name, value) in enumerate(facts.items()):
        part = f"{', ' if number else ''}{name}={brief(value)}"
        if len(line) + len(part) + len(left_out) > MOST_CHARACTERS:
            return line.removesuffix(", ") + (left_out if number else "...)")
        line += part
    return f"{line})"


def brief_repr(self: object) -> str:
    """Every field of a dataclass or named tuple by :func:`~ooc_chol.toolbox.one_line`: a class takes it as its ``__repr__``.

    Returns
    -------
    str
        The line.
    """
    names = [row.name for row in fields(self) if row.repr] if is_dataclass(self) else self._fields  # type: ignore[attr-defined]
    return one_line(self, {name: getattr(self, name) for name in names})


def brief(value: object) -> str:
    """One value in at most 80 characters, without computing anything."""
    if isinstance(value, np.ndarray):
        text = _brief_array(value)
    elif isinstance(value, Enum):
        text = value.value if isinstance(value.value, str) else value.name.lower()
    elif isinstance(value, str | bytes):
        text = shortened(repr(value), _MOST_OF_A_TEXT)
    elif value is None or isinstance(value, bool | np.bool_):
        text = str(value)
    elif isinstance(value, Integral):
        text = str(int(value))
    elif isinstance(value, Real):
        text = f"{float(value):.6g}"
        if text == "1" and value < 1:  # such as a probability, of which the rest counts
            text = f"1 - {1 - float(value):.1g}"
    elif isinstance(value, PathLike):
        text = shortened(repr(fspath(value)), _MOST_OF_A_TEXT)
    elif type(value) in (list, tuple, set, frozenset, dict):
        text = _brief_items(value)
    elif type(value).__module__.startswith("ooc_chol"):
        text = " ".join(repr(value).split())
    else:  # a stranger's repr may be long, or long to make
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _MOST_OF_A_VALUE else f"<{type(value).__name__}>"


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text with its end left as it is, and dots for what is too much before that."""
    return text if len(text) <= most else f"{text[: most - 6]}...{text[-3:]}"


def frames_of_the_package() -> int:
    """How many frames up from who asks the caller of this package is: for warnings, whose ``stacklevel`` is one more."""
    count, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("ooc_chol.", "contextlib")):
        count, frame = count + 1, frame.f_back
    return count - 1


def _brief_array(array: np.ndarray) -> str:
    """A few numbers as they are, more by shape and type."""
    if array.ndim == 1 and array.size <= _MOST_ITEMS and array.dtype.kind in "biuf":
        return f"[{', '.join(map(brief, array))}]"
    return f"<{' x '.join(map(str, array.shape)) or 'scalar'} {array.dtype.name}>"


def _brief_items(value: object) -> str:
    """A few items as they are, more by their number."""
    assert isinstance(value, dict | list | tuple | set | frozenset)
    if len(value) <= _MOST_ITEMS:
        pairs = value.items() if isinstance(value, dict) else ()
        parts = [f"{brief(key)}: {brief(item)}" for key, item in pairs] or [*map(brief, value)]
        begins, ends = {list: ("[", "]"), tuple: ("(", ")")}.get(type(value), ("{", "}"))
        text = f"{begins}{', '.join(parts)}{',' if type(value) is tuple and len(parts) == 1 else ''}{ends}"
        if len(text) <= _MOST_OF_A_VALUE:
            return text
    return f"<{len(value)} item{'s' * (len(value) != 1)}>"
