"""Factors made window by window, as the tasks of a cluster make them, in one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol import FactorOptions
from tests.inside.cluster import BlockGrid, BlockPlace, ClusterRun, LBlock, key_here, make_block
from tests.inside.precision import TYPES, PrecisionMap, decode
from tests.inside.tasks import TileGrid

#: What all windows share.
OPTIONS: dict[str, Any] = {"devices": "host:0", "memory_budget": "64 MiB", "fp64": "native"}


def run_of(n: int, height: int, *, store: str | None = None, precision: PrecisionMap | None = None, **options: Any) -> ClusterRun:
    """A run over a matrix of order ``n``, as a client would settle it."""
    settled = FactorOptions(**{**OPTIONS, "dtype": "float64", **options})
    assert settled.tile_size is not None and settled.dtype is not None
    grid, fmt = TileGrid(n, settled.tile_size), TYPES[settled.dtype]
    return ClusterRun(grid, settled, fmt, precision, key_here(settled, BlockGrid(grid, height), fmt), store=store)


def needed(blocks: Mapping[BlockPlace, LBlock], place: BlockPlace) -> list[LBlock]:
    """The blocks that a block needs, as a client hands them on."""
    row, column = place
    above = [] if row == column else [blocks[BlockPlace(column, q)] for q in range(column + 1)]
    return [*(blocks[BlockPlace(row, q)] for q in range(column)), *above]


def made_block(
    run: ClusterRun,
    grid: BlockGrid,
    a: NDArray[Any],
    place: BlockPlace,
    given: Sequence[LBlock],
    coming: BlockPlace | None = None,
) -> LBlock:
    """One block, of a copy of its part of A: nothing else is there to be read."""
    rows, columns = grid.rows(place.row), grid.rows(place.column)
    part = a[rows.start : rows.stop, columns.start : columns.stop].copy()
    diagonal = a.diagonal().copy() if run.options.fp64 == "residue" else None
    return make_block(run, grid.window(place), given, part, diagonal, coming=None if coming is None else grid.window(coming))


def made_blocks(
    run: ClusterRun, a: NDArray[Any], height: int, order: Iterable[BlockPlace] | None = None
) -> dict[BlockPlace, LBlock]:
    """All blocks of L, in an order in which each finds what it needs."""
    grid, blocks = BlockGrid(run.grid, height), dict[BlockPlace, LBlock]()
    for place in grid.places() if order is None else order:
        blocks[place] = made_block(run, grid, a, place, needed(blocks, place))
    return blocks


def dense(run: ClusterRun, blocks: Mapping[BlockPlace, LBlock]) -> NDArray[Any]:
    """L as an array."""
    grid, precision = run.grid, run.precision
    l_dense = np.zeros((grid.n, grid.n), run.fmt.dtype)
    for block in blocks.values():
        assert block.tiles is not None
        for (i, j), tile in block.tiles.items():
            rows, columns = grid.span(i), grid.span(j)
            out = np.empty(grid.shape(i, j), run.fmt.dtype)
            if precision is not None and precision.format_of((i, j)) != run.fmt:
                decode(tile, precision.format_of((i, j)), slice(0, out.size), out)
            else:
                out[...] = tile
            l_dense[rows.start : rows.stop, columns.start : columns.stop] = out
    return np.asarray(np.tril(l_dense))


def in_one_run(a: NDArray[Any], **options: Any) -> oc.CholeskyFactor:
    """The factor that all windows together must give, to the bit."""
    return oc.cholesky(a, **{**OPTIONS, **options})
