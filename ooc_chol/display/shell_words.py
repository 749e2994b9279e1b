"""Names of Python's arguments in the words of a shell, for messages: one table for all commands."""

from __future__ import annotations

import re
from collections.abc import Collection

#: Arguments of a factorization whose names are no words of a language, so that they can be told from the rest of a message.
_NAMES = (
    "tile_size",
    "memory_budget",
    "host_budget",
    "precision_threshold",
    "half_products",
    "max_evaluations",
    "max_pairs",
    "max_sites",
)
#: Options that nearly every command has.
USUAL = (*_NAMES, "devices", "policy", "objective", "fp64", "moduli", "strict", "dtype", "store", "force")

#: What cannot be said in a shell: L over an array, or in memory that the caller owns, and attributes of an error.
_NOT_THERE = (
    (re.compile(r" or over A \(overwrite=True\)"), ""),
    (re.compile(r"; [^;]*\bthe error's [^;]*"), ""),
    (re.compile(r"give overwrite=True, or a file as store="), "give store="),
)
#: Advice that takes ``--store``, with the word that joins it to other advice.
_STORE_ADVICE = re.compile(r"keep L in a file \(store=\)(?:, or | or )?|,? or store=(?!\w)")
#: ``store=`` alone or with a word for a path, and the words by which callers ask for files to be replaced.
_STORE, _REPLACE = re.compile(r"\bstore=(?:path\b)?(?![\w'\"])"), re.compile(r"\breplace(?:_store|_log)?=True\b")
#: The triangle that is read.
_TRIANGLES = (("lower=True", "--triangle lower"), ("lower=False", "--triangle upper"))
_SETTING = re.compile(r"(?<![\w'\"./-])([a-z]\w*)=('[^']*'|\"[^\"]*\"|True\b|False\b|None\b|\d[\w.+-]*\b)")
_NAME = re.compile(rf"(?<![\w'\"./-])({'|'.join(_NAMES)})(?![\w'\"/=]|\.\w)")


def shell_words(text: str, options: Collection[str] = USUAL) -> str:
    """A message of this package with the options of a shell in place of Python's arguments.

    Parameters
    ----------
    text : str
        Text of an error or a warning.
    options : collection of str
        Names of the options that the command has, with underscores. Advice that takes ``store`` is left out where it has none.

    Returns
    -------
    str
        The same, with ``--store PATH``, ``--memory-budget``, ``--force`` and the like.

    Examples
    --------
    >>> ways = "in a file (store=) or over A (overwrite=True)"
    >>> shell_words(f"keep L {ways}, or lower memory_budget")
    'keep L in a file (--store PATH), or lower --memory-budget'
    >>> shell_words("take none (precision_threshold=None), or strict=False")
    'take none (no --precision-threshold), or --no-strict'
    """
    for pattern, other in _NOT_THERE:
        text = pattern.sub(other, text)
    text = _STORE.sub("--store PATH", text) if "store" in options else _STORE_ADVICE.sub("", text)
    if "force" in options:
        text = _REPLACE.sub("--force", text)
    if "triangle" in options:
        for ours, theirs in _TRIANGLES:
            text = text.replace(ours, theirs)
    text = _SETTING.sub(lambda found: _setting(found, options), text)
    return _NAME.sub(lambda found: _option(found[1]) if found[1] in options else found[0], text)


def _setting(found: re.Match[str], options: Collection[str]) -> str:
    """``name=value`` as an option, if the command has it."""
    name, value = found[1], found[2]
    if name not in options:
        return found[0]
    if value in ("True", "False", "None"):
        return {"True": _option(name), "False": f"--no-{_option(name)[2:]}", "None": f"no {_option(name)}"}[value]
    return f"{_option(name)} {value}"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
