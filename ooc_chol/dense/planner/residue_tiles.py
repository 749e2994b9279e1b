"""Tiles of plans with products through residues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import limit
from ooc_chol.dense.planner.limit import Tiles, check_steps, larger_tile
from ooc_chol.dense.planner.problem import most_narrow_bytes
from ooc_chol.dense.planner.residue_layouts import best_layouts, least_layout
from ooc_chol.dense.planner.step_counts import least_residue_steps, residue_steps
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.registry import device_kind
from ooc_chol.kernels.kinds import AbstractKernelKind
from ooc_chol.kernels.registry import folds_products, kind_of
from ooc_chol.precision.moduli import MOST_ROWS, TENSOR_MULTIPLE
from ooc_chol.tasks.tiling import TileGrid

#: Tile rows that products through residues should have, so that little of a panel is finished in small pieces.
LEAST_RESIDUE_ROWS = 16
#: Tile rows above which smaller tiles are not tried: a plan has about a sixth of their cube steps over the width of a panel.
MOST_RESIDUE_ROWS = 160
#: In mixed precision, GPUs from which on one thread does not feed them all with tiles of usual orders: those of twice the order
#: have 0.2 to 0.3 of the steps. What they take: rows for each GPU, and room for so many in its budget.
MANY_DEVICES, ROWS_OF_A_DEVICE, TILES_OF_A_DEVICE = 4, 8, 128


def check_for_residues(n: int, tile_size: int | None) -> None:
    """Raise ``ValueError`` where residues have no room for ``n`` rows, or take no tiles of that order."""
    if n > MOST_ROWS:
        raise ValueError(f"n is {n}, but residues have room for the rounding of {MOST_ROWS} rows; use fp64='native'")
    if tile_size is not None and tile_size % TENSOR_MULTIPLE:
        raise ValueError(f"tile_size is {tile_size}, but products through residues take multiples of {TENSOR_MULTIPLE}")


def residue_grid(n: int, options: FactorOptions, names: tuple[str, ...], *, budget_bytes: int, moduli: int) -> TileGrid | None:
    """The tiles of a plan through residues of so many moduli; None where the budget does not hold any."""
    check_for_residues(n, options.tile_size)
    tiles_of = residue_tiles_in_budget(options, names, budget_bytes, moduli)
    grids = residue_grids(n, options.tile_size, kind_of(names[0]), tiles_of)
    if options.tile_size is None and options.precision_threshold is not None and len(names) >= MANY_DEVICES:
        grids = [*_doubled_grid(n, names, budget_bytes), *grids]
    for grid in grids:
        tiles = tiles_of(grid)
        if tiles.needed_bytes is None:
            check_steps(grid, tiles.steps, tiles_of)
            return grid
    return None


def _doubled_grid(n: int, names: tuple[str, ...], budget_bytes: int) -> list[TileGrid]:
    """Tiles of twice the largest usual order, where there are enough of them for so many GPUs."""
    grid = TileGrid(n, 2 * kind_of(names[0]).residue_tile_sizes[0])
    has_rows = not device_kind(names[0]).shares_processor and grid.nt >= ROWS_OF_A_DEVICE * len(names)
    return [grid] if has_rows and TILES_OF_A_DEVICE * FP64.itemsize * grid.nb**2 <= budget_bytes else []


def residue_grids(
    n: int, tile_size: int | None, kind: AbstractKernelKind, tiles_of: Callable[[TileGrid], Tiles]
) -> list[TileGrid]:
    """Tiles to try, the best first, of those that are not too many to plan."""
    grids = _best_grids(n, tile_size, kind)
    steps = [tiles_of(grid).steps for grid in grids]
    if planned := [grid for grid, each in zip(grids, steps, strict=True) if each <= limit.MOST_STEPS]:
        return planned
    if tile_size is None and (larger := larger_tile(grids[0], kind.residue_tile_sizes, tiles_of)) is not None:
        return [larger]
    check_steps(grids[0], steps[0], tiles_of)
    return grids


def _best_grids(n: int, tile_size: int | None, kind: AbstractKernelKind) -> list[TileGrid]:
    """Tiles that run fast, the largest first: enough tile rows, but no more than can be planned in seconds."""
    if tile_size is not None:
        return [TileGrid(n, tile_size)]
    grids = [TileGrid(n, nb) for nb in kind.residue_tile_sizes]
    sensible = [grid for grid in grids if LEAST_RESIDUE_ROWS <= grid.nt <= MOST_RESIDUE_ROWS]
    return sensible or [min(grids, key=lambda grid: abs(grid.nt - LEAST_RESIDUE_ROWS))]


def residue_tiles_in_budget(
    options: FactorOptions, names: tuple[str, ...], budget_bytes: int, moduli: int, fmt: PrecisionFormat = FP64
) -> Callable[[TileGrid], Tiles]:
    """Function from a grid to the bytes of a plan through residues by its tiles, whatever order of tiles ``options`` names."""
    return partial(_tiles_in, options, names, budget_bytes=budget_bytes, moduli=moduli, fmt=fmt)


def _tiles_in(
    options: FactorOptions, names: tuple[str, ...], grid: TileGrid, *, budget_bytes: int, moduli: int, fmt: PrecisionFormat
) -> Tiles:
    """Steps of a plan with these tiles in the layout of the budget that looks best, or in the least layout."""
    kind, is_narrow = kind_of(names[0]), bool(options.half_products) and options.precision_threshold is not None
    folds = folds_products(names)
    least = replace(least_layout(grid, moduli, fmt, folds=folds), has_fp16=is_narrow)
    workspace = kind.residue_workspace_bytes(grid.n, grid.nb, fmt) + most_narrow_bytes(grid, options, kind)
    needed = workspace + least.arena_bytes
    steps = least_residue_steps(grid.nt)
    if steps <= limit.MOST_STEPS:
        layouts = [least]
        if needed <= budget_bytes:
            half_share = 0.5 if is_narrow else None
            room, n_devices = budget_bytes - workspace, len(names[: grid.nt])
            layouts = best_layouts(grid, room, moduli, n_devices, rates=None, half_share=half_share, fmt=fmt, folds=folds)
        steps = _steps_of_best(grid, layouts, len(names[: grid.nt]))
    return Tiles(steps, None if needed <= budget_bytes else needed)


def _steps_of_best(grid: TileGrid, layouts: list[ResidueLayout], n_devices: int) -> int:
    """Steps in the first layout that can be planned; in none, about the fewest."""
    shapes: dict[tuple[int, int], ResidueLayout] = {}
    for layout in layouts:
        shapes.setdefault((layout.chunk, layout.width), layout)
    steps = [residue_steps(grid, layout, n_devices) for layout in shapes.values()]
    return next((each for each in steps if each <= limit.MOST_STEPS), min(steps))
