"""Tiles of plans in the devices' own arithmetic, and the slots that a budget has for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import limit
from ooc_chol.dense.planner.limit import Tiles, check_steps, larger_tile
from ooc_chol.dense.planner.problem import most_narrow_bytes
from ooc_chol.dense.planner.step_counts import least_native_steps, native_steps
from ooc_chol.dense.programs.layouts import slot_bytes_of
from ooc_chol.dense.programs.policy import policy_named
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.kernels.kinds import AbstractKernelKind
from ooc_chol.kernels.registry import kind_of
from ooc_chol.tasks.tiling import TileGrid

#: Least tiles on a device: an accumulator and the two operands of a GEMM.
LEAST_SLOTS = 3
#: Most slots that are kept free for tiles in transit.
MOST_PREFETCH = 8


def choose_tile_size(n: int, budget_bytes: int, kind: AbstractKernelKind, *, rows: int = 4, fmt: PrecisionFormat = FP64) -> int:
    """Tile order: large tiles run faster, but there must be enough of them.

    At least ``rows`` tile rows, four so that little of a diagonal tile's square is wasted, and twenty tiles within the budget, so
    that blocks of tiles are reused.
    """
    for nb in kind.tile_sizes:
        if n >= rows * nb and budget_bytes - kind.workspace_bytes(nb, fmt) >= 20 * fmt.itemsize * nb * nb:
            return nb
    return kind.tile_sizes[-1]


def native_grid(
    n: int,
    options: FactorOptions,
    names: tuple[str, ...],
    budget_bytes: int,
    *,
    rows: int = 4,
    fmt: PrecisionFormat = FP64,
) -> TileGrid:
    """The tiles of a plan in the devices' own arithmetic; if not told, larger than is best where those are too many to plan."""
    kind, tiles_of = kind_of(names[0]), tiles_in_budget(options, names, budget_bytes, fmt)
    grid = TileGrid(n, options.tile_size or choose_tile_size(n, budget_bytes, kind, rows=rows, fmt=fmt))
    steps = tiles_of(grid).steps
    if (
        options.tile_size is None
        and steps > limit.MOST_STEPS
        and (larger := larger_tile(grid, kind.tile_sizes, tiles_of)) is not None
    ):
        grid, steps = larger, tiles_of(larger).steps
    check_steps(grid, steps, tiles_of)
    return grid


def tiles_in_budget(
    options: FactorOptions, names: tuple[str, ...], budget_bytes: int, fmt: PrecisionFormat = FP64
) -> Callable[[TileGrid], Tiles]:
    """What a plan takes by its tiles, whatever order of theirs ``options`` names."""
    return partial(_tiles_in, options, names, budget_bytes, fmt)


def _tiles_in(options: FactorOptions, names: tuple[str, ...], budget_bytes: int, fmt: PrecisionFormat, grid: TileGrid) -> Tiles:
    """Steps of a plan with these tiles in the budget, or in the least that holds them."""
    policy, kind = policy_named(options.policy), kind_of(names[0])
    workspace = kind.workspace_bytes(grid.size(0), fmt) + most_narrow_bytes(grid, options, kind)
    needed = needed_bytes_of(grid, workspace, fmt)
    steps = least_native_steps(grid.nt)
    if steps <= limit.MOST_STEPS:
        n_slots = (max(needed, budget_bytes) - workspace) // slot_bytes_of(grid, fmt)
        capacity = n_slots - (prefetch_slots(n_slots) if policy.overlaps else 0)
        steps = native_steps(grid.nt, max(LEAST_SLOTS, capacity), policy, min(len(names), grid.nt))
    return Tiles(steps, None if needed <= budget_bytes else needed)


def prefetch_slots(n_slots: int) -> int:
    """Slots kept free for tiles in transit: an eighth, at most eight, none where every slot is needed."""
    return 0 if n_slots < 2 * LEAST_SLOTS else min(MOST_PREFETCH, max(1, n_slots // 8))


def needed_bytes_of(grid: TileGrid, workspace: int, fmt: PrecisionFormat = FP64) -> int:
    """Least bytes of a budget: three slots, fewer where there are no three tiles."""
    return min(LEAST_SLOTS, grid.n_tiles) * slot_bytes_of(grid, fmt) + workspace
