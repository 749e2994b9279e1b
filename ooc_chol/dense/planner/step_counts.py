"""How many steps a plan has, by tile rows, memory and order alone: told before anything of its size is made.

The least numbers are true of every plan, and cost nothing to tell; the others look at each panel. Against built plans of at
least eight tile rows they are 0.9 to 1.75 times the real number, up to twice it with room for products in FP16, and exact for
the policies ``sync``, ``async`` and ``v1``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.policy import Policy
from ooc_chol.dense.programs.residues.strips import STREAMING, residue_panels
from ooc_chol.precision.moduli import MOST_TERMS
from ooc_chol.precision.products import NARROW_TILES
from ooc_chol.tasks.panels import Panel, own_rows_need, tallest_group
from ooc_chol.tasks.tiling import TileGrid

#: Steps of a tile that residues finish: A, its updates taken off, POTRF or TRSM, inverse or residues, and the way to its store.
_STEPS_OF_A_RESIDUE_TILE = 5


def tasks_of(nt: int) -> int:
    """Tasks of a factorization in ``nt`` tile rows: of tile (i, j) j updates, and what makes it final."""
    return nt * (nt + 1) * (nt + 2) // 6


def operands_of(nt: int) -> int:
    """Tiles that all tasks together read beside the one that they change: two a GEMM, one a SYRK or TRSM."""
    return nt * (nt - 1) * (nt - 2) // 3 + nt * (nt - 1)


def least_native_steps(nt: int) -> int:
    """Steps of any plan in the devices' own FP64: its tasks, and every tile read and written once."""
    return tasks_of(nt) + nt * (nt + 1)


def native_steps(nt: int, capacity: int, policy: Policy, n_devices: int = 1) -> int:
    """Steps of a plan in the devices' own FP64, all devices together.

    O(nt log nt) for ``planned``, O(nt) for others.
    """
    if not policy.keeps_accumulator:
        return 3 * tasks_of(nt) + operands_of(nt)  # a task's output is fetched before it and written after it
    loads = operands_of(nt)
    if policy.widens_panels:
        loads = min(loads, _loads_of_panels(nt, capacity, n_devices))
    elif policy.eviction is not None:
        loads = min(loads, _loads_of_columns(nt, capacity, n_devices))
    return least_native_steps(nt) + loads


def _loads_of_columns(nt: int, capacity: int, n_devices: int) -> int:
    """Tiles of L fetched by plain columns, the operand longest unused leaving first."""
    loads = 0
    for column in range(nt):
        rows = -(-(nt - column - 1) // n_devices)
        # Rows used last in one column are used first in the next one, but for the few that stand between.
        kept = max(0, capacity // (column + 1) - 5)
        below = max(0, rows - kept) * column
        fits_twice = capacity >= 2 * column + 5  # the column's own row, and one that streams past it
        own = column + 1 if n_devices > 1 or kept < rows else 0
        loads += n_devices * (below + (own if fits_twice else rows * (column + 1))) + (column if kept < rows else 0)
    return loads


def _loads_of_panels(nt: int, capacity: int, n_devices: int) -> int:
    """Tiles of L fetched by panels of the one width that fetches least; the planner's, of several widths, fetch less."""
    least = operands_of(nt)
    for width in range(1, nt + 1):
        if width > 1 and own_rows_need(1, width) > capacity:
            break
        panels = (Panel(k0, min(width, nt - k0), 1) for k0 in range(0, nt, width))
        least = min(least, panel_loads(nt, panels, capacity, n_devices))
    return least


def panel_loads(nt: int, panels: Iterable[Panel], capacity: int, n_devices: int) -> int:
    """Tiles of L that all devices fetch in these panels, their rows in groups of the best height."""
    return sum(n_devices * _loads_of_panel(nt, panel, capacity, n_devices) for panel in panels)


def _loads_of_panel(nt: int, panel: Panel, capacity: int, n_devices: int) -> int:
    """Tiles of L that one device fetches in a panel: its rows one by one past held own rows, or in the tallest groups."""
    k0, width, _ = panel
    rows, others = -(-(nt - k0) // n_devices), -(-(nt - k0 - width) // n_devices)
    own = width * k0 + width * (width + 1) // 2
    loads = []
    for height in {1, max(1, min(others, tallest_group(width, capacity)))}:
        resident = max(0, capacity - width * height - 1)
        streamed = max(0, rows * k0 - max(0, resident - own))
        loads.append(streamed + -(-others // height) * max(0, own - resident))
    return min(loads) + (own if n_devices > 1 else 0)


def least_residue_steps(nt: int) -> int:
    """Steps of any plan through residues: what every tile takes, products left out."""
    return _STEPS_OF_A_RESIDUE_TILE * nt * (nt + 1) // 2


def residue_steps(grid: TileGrid, layout: ResidueLayout, n_devices: int = 1) -> int:
    """Steps of a plan through residues, all devices together; an estimate that is seldom too small."""
    scales = 2 * grid.nt * n_devices  # each device reads every diagonal tile of A for the exponents of its rows
    panels = residue_panels(grid.nt, layout.width, layout)
    return scales + sum(_steps_of_residue_panel(grid, layout, panel, n_devices) for panel in panels)


def _steps_of_residue_panel(grid: TileGrid, layout: ResidueLayout, panel: Panel, n_devices: int) -> int:
    """Steps of one panel: tiles made final, long products, and strips that are not there any more."""
    k0, width, _ = panel
    rows, passes = grid.nt - k0, -(-k0 // layout.chunk)
    tiles = width * (rows - width) + width * (width + 1) // 2
    inside = (tiles - rows) * (-(-width // NARROW_TILES) if layout.has_fp16 else 1)
    diagonals = 2 * width * (n_devices - 1)
    strips = width * passes if n_devices == 1 else (n_devices - 1) * width * (passes + width)
    pieces = passes + (k0 // NARROW_TILES if layout.has_fp16 else 0)
    folds = 0 if layout.folds else k0 * grid.nb // MOST_TERMS
    products = rows * (pieces + folds) + width * pieces  # an own row multiplies with itself apart
    # Strips stay where the panel's own and the next one's leave room; each tile else is fetched and converted.
    kept = max(0, layout.strips - STREAMING - width - 2 * width * passes) * min(k0, layout.chunk)
    streamed = max(0, rows * k0 - n_devices * kept)
    return _STEPS_OF_A_RESIDUE_TILE * tiles + inside + diagonals + strips + products + 2 * streamed
