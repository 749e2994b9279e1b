"""Front doors as data: what each is called with, for the tests that all of them have to pass.

A new system adds a file with its doors and writes none of these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Door:
    """A front door, and small problems for it on the host."""

    name: str  #: As ``plan.call`` and ``report.call`` have it
    call: Callable[..., Any]
    plan: Callable[..., Any]  #: The function that plans it, with its signature
    arguments: Callable[[], tuple[Any, ...]]  #: A small problem, the same each time
    numbers: Callable[[Any], list[np.ndarray]]  #: The numbers of a result, to be compared bit by bit
    others: Callable[[], tuple[Any, ...]]  #: A problem of another order
    options: Mapping[str, Any] = field(default_factory=dict)  #: Beside ``devices="host:0"``
    planned: Mapping[str, Any] = field(default_factory=dict)  #: For a run by tiles, panels or groups that takes several steps
    unit: str = "call"  #: Of the plan
    counts: str = "step"  #: Unit of progress
    first: str = "A"  #: Name of the first argument
    lacks: Mapping[str, str] = field(default_factory=dict)  #: Common options that it does not have, and why
    refuses: Mapping[str, str] = field(default_factory=dict)  #: Those that this way of the call has no use for, and why
    closes: Callable[[Any], None] = lambda result: None  #: Gives back what a result holds
    report: Callable[[Any], Any] = lambda result: result.report
    trace: Callable[[Any], Any] = lambda result: result.trace
    label: str = ""  #: Where one call has several doors: what this one is

    def __str__(self) -> str:
        return f"{self.name} {self.label}".rstrip()

    def run(self, *arguments: Any, **options: Any) -> Any:
        """The call, of its small problem unless another is given, on one device of the host unless options say otherwise."""
        return self.call(*(arguments or self.arguments()), **{"devices": "host:0", **self.options, **options})

    def planning(self, *arguments: Any, **options: Any) -> Any:
        """The plan of the same call."""
        return self.plan(*(arguments or self.arguments()), **{"devices": "host:0", **self.options, **options})

    def has(self, option: str) -> bool:
        """True where this way of the call takes one of the common options."""
        return option not in self.lacks and option not in self.refuses


def same_bits(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    """True where two lists of arrays have the same types, shapes and bits."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True)
    )
