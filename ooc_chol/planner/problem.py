"""What a plan is made for: the matrix, and the bytes that each device may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ooc_chol.config import FactorOptions, parse_bytes
from ooc_chol.machine import default_budget
from ooc_chol.memory.sources_base import AbstractSource
from ooc_chol.planning.cost import Rates
from ooc_chol.planning.plan import Plan
from ooc_chol.tiling import TileGrid

#: Measured rates for a grid of tiles, or None where there are none.
RatesAt: TypeAlias = Callable[[TileGrid], Rates | None]
#: Candidates whose plans are simulated when seconds are to be least.
FINALISTS = 3


@dataclass(frozen=True)
class Problem:
    """What the planner must know of A.

    Parameters
    ----------
    n : int
        Order of the matrix.
    bytes_per_entry : int
        Bytes that reading one entry moves; 0 when a tile function makes A on the device.
    source : str
        Kind of source, for the plan's page.
    """

    n: int
    bytes_per_entry: int
    source: str

    @classmethod
    def of(cls, source: AbstractSource) -> Problem:
        """The problem that ``source`` poses."""
        return cls(source.n, source.bytes_per_entry, source.name)


def budget_of(options: FactorOptions, names: tuple[str, ...]) -> int:
    """Bytes of each device's budget: what ``options`` say, or what is free on all of ``names``."""
    return default_budget(names) if options.memory_budget is None else parse_bytes(options.memory_budget, "memory_budget")


def seconds_of(plan: Plan) -> float:
    """Predicted seconds, 0 without rates."""
    return plan.timeline.seconds
