"""How A is cut, and in which arithmetic it is factored, as one machine would, by a worker's devices."""

from __future__ import annotations

from dataclasses import replace

from ooc_chol.dense.options import FactorOptions, default_moduli
from ooc_chol.dense.planner import choose_tile_size
from ooc_chol.dense.planner.problem import budget_of
from ooc_chol.dense.planner.residue_tiles import residue_grid
from ooc_chol.errors import PlanSizeError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.registry import resolve_devices
from ooc_chol.kernels.registry import kind_of

#: Tile rows that a matrix on a cluster should have, whatever the number of workers, on which the bits of L must not depend:
#: with fewer there are too few blocks for several workers.
LEAST_ROWS = 16
#: Block rows for each worker, and the least and most in all: enough that all are busy to the end, few enough that what Dask takes
#: for a task, and what a task takes beside its flops, is small.
BLOCK_ROWS_OF_A_WORKER, LEAST_BLOCK_ROWS, MOST_BLOCK_ROWS = 6, 8, 64
#: Block rows for each worker where there are more workers than that many block rows serve.
LEAST_ROWS_OF_A_WORKER = 2


def settled(n: int, options: FactorOptions, fmt: PrecisionFormat) -> FactorOptions:
    """``options`` with nothing left open that bits depend on; called on a worker, whose devices they are for.

    "auto" takes residues where the devices gain by them and have tiles for them, as mixed precision does on one machine. Tiles
    are those of one machine where these make 16 tile rows or more, else smaller ones; but one machine takes larger ones where its
    plan would be too large, which that of a block never is.
    """
    names = resolve_devices(options.devices)
    budget = budget_of(options, names)
    if options.fp64 == "residue" or (options.fp64 == "auto" and kind_of(names[0]).gains_by_residues):
        moduli = options.moduli or default_moduli(n, fmt)
        nb = _residue_order(n, replace(options, fp64="residue"), names, budget, moduli)
        if nb is not None:
            return replace(options, fp64="residue", moduli=moduli, tile_size=nb)
    nb = options.tile_size or choose_tile_size(n, budget, kind_of(names[0]), rows=LEAST_ROWS, fmt=fmt)
    return replace(options, fp64="native", moduli=None, tile_size=nb)


def _residue_order(n: int, options: FactorOptions, names: tuple[str, ...], budget: int, moduli: int) -> int | None:
    """Order of tiles for residues; None where there are none and nobody insists on them."""
    try:
        grid = residue_grid(n, options, names, budget_bytes=budget, moduli=moduli)
    except PlanSizeError:
        return options.tile_size or kind_of(names[0]).residue_tile_sizes[0]
    return None if grid is None else grid.nb


def block_height(tile_rows: int, n_workers: int) -> int:
    """Tile rows of a block, so that there are enough blocks for all workers.

    >>> block_height(16, 2), block_height(256, 2), block_height(256, 100)
    (2, 22, 2)
    """
    rows = min(
        max(MOST_BLOCK_ROWS, LEAST_ROWS_OF_A_WORKER * n_workers), max(LEAST_BLOCK_ROWS, BLOCK_ROWS_OF_A_WORKER * n_workers)
    )
    return max(1, -(-tile_rows // rows))
