"""Arguments that several calls have: numbers, and how eigenvectors are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypedDict

from scipy.sparse import csr_array

import ooc_chol as oc


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
    if "tol" in solver and not 0 < real_number("tol", solver["tol"]) < 1:
        raise ValueError(f"tol is {solver['tol']:g}; give a number between 0 and 1, such as 1e-7")
    if (most := solver.get("max_passes")) is not None:
        whole_number("max_passes", most, 1)
    if (given := solver.get("precision")) is not None and given not in (known := [each.value for each in oc.Precision]):
        raise ValueError(f"precision is {given!r:.40}; give one of {', '.join(map(repr, known))}")
    devices, memory_budget = solver.get("devices"), solver.get("memory_budget")
    if devices is not None or memory_budget is not None:
        named_devices(devices, memory_budget)


def named_devices(devices: str | Sequence[str] | None, memory_budget: int | str | None) -> tuple[str, ...]:
    """Names of the devices that are asked for, as a plan for one edge has them; it refuses words that make no sense."""
    with oc.block_csr(csr_array(([1.0, 1.0], ([0, 1], [1, 0])))) as edge:
        return tuple(oc.plan_multiply(edge, 1, devices=devices, memory_budget=memory_budget).devices)


def whole_number(name: str, value: object, least: int) -> int:
    """A whole number from ``least`` on as ``int``; ``TypeError`` or ``ValueError`` for anything else."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r:.40}; give a whole number")
    number = int(value.__index__())
    if number < least:
        raise ValueError(f"{name} is {number}; give {least} or more")
    return number


def real_number(name: str, value: object) -> float:
    """A real number as ``float``, which may be NaN or infinite; ``TypeError`` for anything else."""
    if isinstance(value, str | bytes | bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is {value!r:.40}; give a number")
    return float(value.__float__())


def positive_number(name: str, value: object) -> float:
    """A positive number that is finite; ``TypeError`` or ``ValueError`` for anything else."""
    number = real_number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} is {number:g}: it must be a positive number")
    return number
