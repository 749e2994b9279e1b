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


def choose_tile_size(
    n: int,
    budget_bytes: int,
    kind: AbstractKernelKind,
    *,
    rows: int = 4,
    dear_order: int = 0,
    least_rows: int = 1,
    fmt: PrecisionFormat = FP64,
) -> int:
    """Tile order: large tiles run faster, but there must be enough of them.

    At least ``rows`` tile rows, four so that little of a diagonal tile's square is wasted, or where the order is at most
    ``dear_order`` at least ``least_rows``; and as many tiles within the budget as the kernels want, so that blocks of tiles are
    reused, or all.
    """
    for nb in kind.tile_sizes:
        grid, is_dear = TileGrid(n, nb), nb <= dear_order
        room = budget_bytes - kind.workspace_bytes(grid.size(0), fmt)
        if is_dear and grid.nt == 1 == least_rows and room >= slot_bytes_of(grid, fmt):
            return n
        wanted = min(kind.wanted_slots(nb), max(grid.n_tiles, LEAST_SLOTS)) if is_dear else kind.wanted_slots(nb)
        if (n >= rows * nb or (is_dear and grid.nt > 1)) and room >= wanted * fmt.itemsize * nb * nb:
            return nb
    least, whole = TileGrid(n, kind.tile_sizes[-1]), TileGrid(n, n)
    fits_sooner = slot_bytes_of(whole, fmt) <= min(LEAST_SLOTS, least.n_tiles) * slot_bytes_of(least, fmt)
    return n if n <= dear_order and least_rows == 1 and fits_sooner else least.nb


def default_tile_size(
    n: int, options: FactorOptions, names: tuple[str, ...], budget_bytes: int, *, rows: int = 4, fmt: PrecisionFormat = FP64
) -> int:
    """As :func:`choose_tile_size`; by rows alone where several devices or a policy ask for tiles, or L has a budget.

    In mixed precision there are two tile rows at least: what lies on the diagonal stays in FP64.
    """
    kind, is_mixed = kind_of(names[0]), options.precision_threshold is not None
    dear_order = kind.dear_mixed_order if is_mixed else kind.dear_order
    if len(names) > 1 or options.policy != "planned" or options.host_budget is not None:
        dear_order = 0
    return choose_tile_size(n, budget_bytes, kind, rows=rows, dear_order=dear_order, least_rows=1 + is_mixed, fmt=fmt)


def native_grid(
    n: int, options: FactorOptions, names: tuple[str, ...], budget_bytes: int, *, rows: int = 4, fmt: PrecisionFormat = FP64
) -> TileGrid:
    """The tiles of a plan in the devices' own arithmetic; if not told, larger than is best where those are too many to plan."""
    kind, tiles_of = kind_of(names[0]), tiles_in_budget(options, names, budget_bytes, fmt)
    grid = TileGrid(n, options.tile_size or default_tile_size(n, options, names, budget_bytes, rows=rows, fmt=fmt))
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
    """Function from a grid to a plan's bytes by its tiles, whatever order of tiles ``options`` names."""
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
