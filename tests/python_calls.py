"""Calls of functions that something takes: the same on a machine that is busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def calls_of(work: Callable[[], Result]) -> tuple[Result, int]:
    """Result of ``work``, and the calls of functions, of Python or C, that it takes on this thread."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        result = work()
    finally:
        sys.setprofile(None)
    return result, calls
