"""Arguments that several calls have: numbers, and how eigenvectors are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypedDict

import ooc_chol as oc
import ooc_chol.toolbox as tb


class SolverWords(TypedDict, total=False):
    """Options of the eigenvectors, which calls pass on to ``oc.eigsh``: fields of ``SolverOptions`` that users give."""

    tol: float
    preconditioner: str
    precision: str | None
    devices: str | Sequence[str] | None
    memory_budget: int | str | None
    max_passes: int | None
    trace: bool
    progress: bool | Callable[[int, int, float], None] | None


def check_words(solver: SolverWords) -> None:
    """``TypeError`` or ``ValueError`` for options that make no sense, also where LAPACK or nobody is to need them."""
    if unknown := set(solver) - set(SolverWords.__annotations__):
        names = ", ".join(sorted(SolverWords.__annotations__))
        raise TypeError(f"there is no option {sorted(unknown)[0]!r}; those of the eigenvectors are {names}")
    if "tol" in solver and not 0 < real_number(solver["tol"], "tol") < 1:
        raise ValueError(f"tol is {solver['tol']:g}; give a number between 0 and 1, such as 1e-7")
    if (most := solver.get("max_passes")) is not None:
        whole_number(most, "max_passes", 1)
    if (given := solver.get("precision")) is not None and given not in (known := [each.value for each in oc.Precision]):
        raise ValueError(f"precision is {given!r:.40}; give one of {', '.join(map(repr, known))}")
    if solver.get("devices") is not None:
        tb.resolve_devices(solver["devices"], must_exist=solver.get("memory_budget") is None)
    if (size := solver.get("memory_budget")) is not None:
        tb.parse_bytes(size, "memory_budget")


def whole_number(value: object, what: str, least: int) -> int:
    """A whole number from ``least`` on as ``int``; ``TypeError`` or ``ValueError`` for anything else."""
    try:
        number = tb.whole_number(value, what)
    except TypeError:
        raise TypeError(f"{what} is {value!r:.40}; give a whole number") from None
    if number < least:
        raise ValueError(f"{what} is {number}; give {least} or more")
    return number


def real_number(value: object, what: str) -> float:
    """A real number as ``float``, which may be NaN or infinite; ``TypeError`` for anything else."""
    if isinstance(value, str | bytes | bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {value!r:.40}; give a number")
    return float(value.__float__())


def positive_number(value: object, what: str) -> float:
    """A positive number that is finite; ``TypeError`` or ``ValueError`` for anything else."""
    number = real_number(value, what)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{what} is {number:g}: it must be a positive number")
    return number
