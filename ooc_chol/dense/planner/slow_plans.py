"""Plans whose tiles are so small that most of a run is spent on steps: told beforehand, with what would be faster."""

from __future__ import annotations

import logging
from functools import cache

from ooc_chol.config import format_bytes
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.native_tiles import default_tile_size, tiles_in_budget
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.layouts import slot_bytes_of
from ooc_chol.formats import FP64
from ooc_chol.hardware.registry import device_kind
from ooc_chol.tasks.tiling import TileGrid

#: Seconds of a step, bytes per second between memory and a host device, and flops per second of a core or two, in round numbers.
STEP_SECONDS, LINK_RATE, FLOP_RATE = 4e-5, 4e9, 4e10
#: How many times as long as its arithmetic a run may take in silence, how many times at least it is then worth giving more
#: memory, and seconds that nobody minds.
MOST_TIMES, WORTH_TIMES, SHORT_SECONDS = 5.0, 2.0, 0.5


def say_slow(plan: Plan, options: FactorOptions) -> None:
    """Say in one line that a run on the host takes many times as long as with more memory or larger tiles."""
    if not device_kind(plan.devices[0]).is_in_host_memory or plan.moduli is not None:
        return
    steps = sum(len(program.steps) for program in plan.programs)
    seconds = _seconds(plan.grid.n, steps, plan.loaded_bytes)
    if seconds < SHORT_SECONDS or seconds < MOST_TIMES * _seconds(plan.grid.n, 0, 0):
        return
    if (better := _better_budget(plan, options, seconds)) is not None:
        budget, tile, least = better
        here = f"tiles of {plan.grid.nb} in a memory_budget of {format_bytes(plan.budgets[0].budget_bytes)}"
        there = f"tiles of {tile} in {format_bytes(budget)}"
        _say(f"{here} make {steps} steps, about {seconds:.2g} s; {there} would take about {least:.2g} s")


def _better_budget(plan: Plan, options: FactorOptions, seconds: float) -> tuple[int, int, float] | None:
    """The least budget, in doubles, that leaves little but arithmetic, with its tiles and seconds; else the fastest."""
    n, names = plan.grid.n, plan.devices
    budget, found = plan.budgets[0].budget_bytes, None
    while True:
        grid = TileGrid(n, default_tile_size(n, options, names, budget))
        tiles = tiles_in_budget(options, names, budget)(grid)
        fetched = max(0, tiles.steps - grid.n_tiles) * slot_bytes_of(grid)  # of each task an operand at most
        if tiles.needed_bytes is None and (each := _seconds(n, tiles.steps, fetched)) * WORTH_TIMES <= seconds:
            found = budget, grid.nb, each
            if each <= WORTH_TIMES * _seconds(n, 0, 0):
                return found
        if budget >= FP64.itemsize * n * n:
            return found
        budget *= 2


def _seconds(n: int, steps: int, loaded_bytes: int) -> float:
    """About how long a run takes on the host."""
    return steps * STEP_SECONDS + loaded_bytes / LINK_RATE + n**3 / 3 / FLOP_RATE


@cache
def _say(text: str) -> None:
    """Say it once in a process: a message of the logger ``"ooc_chol"``, as nothing is wrong."""
    logging.getLogger("ooc_chol").warning("ooc_chol: %s", text)
