"""Limits of plans: how large one may be, which tiles make one that is not larger, and what a window must have settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.problem import Problem
from ooc_chol.errors import BudgetError, PlanSizeError
from ooc_chol.hardware.registry import memory_info
from ooc_chol.precision.moduli import TENSOR_MULTIPLE
from ooc_chol.tasks.tiling import TileGrid

#: Most steps that are planned. A step takes 7 to 14 microseconds and 500 to 1,200 bytes: so many take ten seconds and up to 1 GB.
#: Larger tiles, not longer plans, are what larger matrices need: half as many tile rows are an eighth of the steps.
MOST_STEPS = 900_000
#: Bytes of memory that planning takes for a step at its peak, outside of every memory_budget: measured 500 to 1,100 without
#: rates, and 1,000 to 1,550 where plans are timed, of which two are held at once.
STEP_BYTES = 1600
#: Steps that are planned however little memory is free.
LEAST_MOST_STEPS = 1000


class Tiles(NamedTuple):
    """One choice of tiles: the steps of its plan in the budget, or if it does not hold them, in the least that does.

    ``needed_bytes`` is None where the budget holds the tiles.
    """

    steps: int
    needed_bytes: int | None


def most_steps() -> int:
    """The most steps that are planned now: fewer where the machine's free memory would not hold more."""
    return min(MOST_STEPS, max(LEAST_MOST_STEPS, memory_info("host:0")[0] // STEP_BYTES))


def check_steps(grid: TileGrid, steps: int, tiles_of: Callable[[TileGrid], Tiles]) -> None:
    """Refuse a plan of too many steps."""
    most = most_steps()
    if steps <= most:
        return
    matrix = f"a matrix of order {grid.n} in {grid.nt} x {grid.nt} tiles of {grid.nb}"
    raise PlanSizeError(matrix, steps, most, STEP_BYTES, *_proposed(grid, most, tiles_of))


def larger_tile(grid: TileGrid, usual: Sequence[int], tiles_of: Callable[[TileGrid], Tiles]) -> TileGrid | None:
    """The first of larger tiles that the budget holds and that can be planned, of ``usual`` orders before others; or None.

    It does not depend on the machine's free memory: the tile order decides on the bits of a factor.
    """
    for nb in [*_doubled(grid, usual), *_larger_orders(grid)]:
        larger = TileGrid(grid.n, nb)
        found = tiles_of(larger)
        if found.needed_bytes is None and found.steps <= MOST_STEPS:
            return larger
    return None


def has_smaller_tile(grid: TileGrid, tiles_of: Callable[[TileGrid], Tiles]) -> bool:
    """Tell whether the budget holds smaller tiles that can be planned."""
    found = (tiles_of(TileGrid(grid.n, nb)) for nb in _least_orders(grid.n) if nb < grid.nb)
    return any(tiles.needed_bytes is None and tiles.steps <= MOST_STEPS for tiles in found)


def _proposed(grid: TileGrid, most: int, tiles_of: Callable[[TileGrid], Tiles]) -> tuple[int, int | None]:
    """The least tile order that the budget holds and that can be planned; else one that can, and the budget that holds it."""
    in_more_memory: list[tuple[int, int | None]] = []
    for nb in _larger_orders(grid):
        found = tiles_of(TileGrid(grid.n, nb))
        if found.steps <= most and found.needed_bytes is None:
            return nb, None
        if found.steps <= most:
            in_more_memory.append((nb, found.needed_bytes))
    return in_more_memory[0]


def _doubled(grid: TileGrid, usual: Sequence[int]) -> Iterator[int]:
    """Orders above that of ``grid`` among the ``usual`` ones (largest first), ascending; then doubles, up to twice the matrix."""
    yield from (nb for nb in reversed(usual) if nb > grid.nb)
    nb = 2 * max(grid.nb, usual[0])
    while nb < 2 * grid.n:
        yield nb
        nb *= 2


def _larger_orders(grid: TileGrid) -> list[int]:
    """Those of :func:`_least_orders` above ``grid``'s."""
    return [nb for nb in _least_orders(grid.n) if nb > grid.nb]


def _least_orders(n: int) -> list[int]:
    """Ascending, the least order of a tile for each number of tile rows that may be planned."""
    most_rows = 1
    while most_rows**3 < 6 * MOST_STEPS:
        most_rows += 1
    return sorted({-(-n // (rows * TENSOR_MULTIPLE)) * TENSOR_MULTIPLE for rows in range(1, most_rows + 1)})


def check_window(problem: Problem, options: FactorOptions) -> None:
    """Raise ``ValueError`` where a window is not one, or what all windows of a matrix must share is left open."""
    if problem.window is None:
        return
    open_ones = [
        name for name, is_open in (("tile_size", options.tile_size is None), ("fp64", options.fp64 == "auto")) if is_open
    ]
    if open_ones:
        raise ValueError(
            f"a window is planned with {' and '.join(open_ones)} left open, which all windows must share: settle them"
        )
    if options.half_products:
        raise ValueError("half_products sums in FP32 by panels, which windows cut elsewhere: leave it out, or factor as a whole")
    if problem.in_file or problem.keeps_on_device or options.policy in ("sync", "async"):
        raise ValueError(
            "a window goes to memory or to a store of its own, and no half-updated tile does: policy and store forbid it"
        )
    assert options.tile_size is not None
    problem.window.check(TileGrid(problem.n, options.tile_size))
    if len(problem.given) != problem.window.n_needs:  # which ones, the simulator sees
        raise ValueError("given tiles of a window are those that it needs, no more and no fewer: take Problem.of_window")


def window_grid(problem: Problem, options: FactorOptions) -> TileGrid:
    """The tiles of the matrix; a window that has more steps than are planned is refused."""
    assert options.tile_size is not None and problem.window is not None
    grid, window = TileGrid(problem.n, options.tile_size), problem.window
    steps = sum(window.task_counts().values()) + 2 * window.n_tiles
    if steps > LEAST_MOST_STEPS and steps > (most := most_steps()):  # to ask for free memory takes as long as a small task
        what = (
            f"memory to plan tile rows {window.rows} x columns {window.columns} of {grid.nt} x {grid.nt} tiles, {steps:.3g} steps"
        )
        advice = f"at most {most} steps are planned here: give a larger tile_size, or fewer tile rows in a block"
        raise BudgetError(what, steps * STEP_BYTES, most * STEP_BYTES, advice)
    return grid
