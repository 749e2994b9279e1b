"""Output of a command for a program: ``--json`` puts one object on standard output, ``--quiet`` nothing but that."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np


def add_answer_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``--quiet`` to the parser of a command."""
    parser.add_argument("--json", action="store_true", help="print one JSON object; what is told a person goes to standard error")
    parser.add_argument("--quiet", action="store_true", help="print nothing but that, and warnings and errors; no progress")


@contextmanager
def answered(options: argparse.Namespace) -> Iterator[None]:
    """Run a command, which prints as ever and leaves its figures in ``options.answer``, as the two options ask for."""
    options.answer = {}
    if not (options.json or options.quiet):
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere if options.quiet else sys.stderr):
        yield
    if options.json:
        print(_as_json(options.answer))


def _as_json(figures: Mapping[str, Any]) -> str:
    """The figures as one JSON object, a line for each: a plan may have hundreds of panels."""
    lines = (f" {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in plain(figures).items())
    return "{\n" + ",\n".join(lines) + "\n}"


def plain(value: Any) -> Any:
    """The value as JSON has it: a number that is not finite is null, and what is no plain data is its text."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
