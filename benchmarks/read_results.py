"""Result files, read again for the tables of documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ooc_chol.files.inputs import input_bytes, parse_json

#: Bytes of a result file: the largest has some thousand lines.
_MOST_BYTES = 64 << 20


def read_result(path: Path) -> dict[str, Any]:
    """The content of a result file; ``ValueError`` for a file that holds no object of JSON."""
    content = input_bytes(path, _MOST_BYTES)
    try:
        found = parse_json(content.decode())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error!s:.200}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, not a result")
    return found


@contextmanager
def result_named(path: Path) -> Iterator[None]:
    """Name the file in an error about what it lacks."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"has something else than a result: {error!s:.200}"
        raise ValueError(f"{path} {what}; measure it again") from error


def duration(seconds: float) -> str:
    """Three digits, in the unit that suits them."""
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms"
