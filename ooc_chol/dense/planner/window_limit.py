"""Requirements on a window to be planned: tiles and arithmetic that are settled, and no larger than others."""

from __future__ import annotations

from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.limit import LEAST_MOST_STEPS, STEP_BYTES, most_steps
from ooc_chol.dense.planner.problem import Problem
from ooc_chol.errors import BudgetError
from ooc_chol.tasks.tiling import TileGrid


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
