"""Messages for arguments that other libraries' functions of the same name take, and for names that are spelt otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def answering(elsewhere: Mapping[str, str]) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Let a call answer names that it does not take with what to do without them, or with the name that is nearest.

    Parameters
    ----------
    elsewhere : mapping of str to str
        Advice in place of each argument that other libraries have.

    Returns
    -------
    callable
        A decorator; what it makes raises ``TypeError`` for such names.
    """

    def answered(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        taken = inspect.signature(function).parameters

        @wraps(function)
        def call(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
            if unknown := [name for name in options if name not in taken]:
                raise TypeError(answer(function, unknown[0], elsewhere, list(taken)))
            return function(*args, **options)

        return call

    return answered


def answer(function: Callable[..., Any], name: str, elsewhere: Mapping[str, str], taken: Sequence[str]) -> str:
    """Text on an argument that a call does not take: what to do without it, or the name that is nearest."""
    called = function.__name__ if function.__name__ != "__init__" else function.__qualname__.split(".")[-2]
    if name in elsewhere:
        return f"{called} has no argument {name}: {elsewhere[name]}"
    from difflib import get_close_matches  # nearly no process needs it

    near = get_close_matches(name, taken)
    path = function.__module__.split(".")
    owner = ".".join(path[:3] if path[1] == "apps" else path[:1])
    advice = f"did you mean {near[0]}?" if near else f"help({owner}.{called}) lists those there are"
    return f"{called} has no argument {name}; {advice}"
