"""Matrices, their factors by LAPACK, and every kind of store with such a factor in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ooc_chol import CholeskyFactor
from tests.builders import KEY, factor_over, file_store, memory_store, overwrite_store
from tests.inside.dense import AbstractStore, FileStore, MemoryStore, TieredStore
from tests.inside.precision import PrecisionFormat
from tests.inside.tasks import TileGrid


def strided(grid: TileGrid) -> NDArray[np.float64]:
    """An ``(n, n)`` array of NaN with a negative and a non-unit stride."""
    return np.full((2 * grid.n, 3 * grid.n), np.nan)[::-2, ::3]


def past_the_cache(store: FileStore) -> FileStore:
    """``store``, read and written directly until it is complete."""
    store.keep_out_of_cache()
    return store


def half_kept(file: FileStore) -> TieredStore:
    """A store over ``file`` of which memory keeps every other tile."""
    return TieredStore(past_the_cache(file), list(file.grid.tiles())[::2])


#: Every kind of store, by name: a function of the grid and an empty folder.
STORES: dict[str, Callable[[TileGrid, Path], AbstractStore]] = {
    "memory": lambda grid, folder: memory_store(grid),
    "file": lambda grid, folder: file_store(folder / "L.ooc", grid),
    "over C": lambda grid, folder: overwrite_store(np.full((grid.n, grid.n), np.nan), grid),
    "over Fortran": lambda grid, folder: overwrite_store(np.full((grid.n, grid.n), np.nan, order="F"), grid),
    "over strided": lambda grid, folder: overwrite_store(strided(grid), grid),
}

#: Those, and what a file is under a ``host_budget``.
TIERED_STORES = STORES | {
    "file past the cache": lambda grid, folder: past_the_cache(file_store(folder / "L.ooc", grid)),
    "memory over file": lambda grid, folder: half_kept(file_store(folder / "L.ooc", grid)),
}


#: The kinds of store that narrow formats are for, by name: a function of the grid, the format of every tile and an empty folder.
MIXED_STORES: dict[str, Callable[[TileGrid, Sequence[PrecisionFormat], Path], MemoryStore | FileStore]] = {
    "memory": lambda grid, formats, folder: memory_store(grid, formats),
    "file": lambda grid, formats, folder: file_store(folder / "L.ooc", grid, KEY, formats),
}


def random_spd(n: int, seed: int, condition: float = 1e3) -> NDArray[np.float64]:
    """A symmetric positive definite matrix with eigenvalues from 1 down to ``1 / condition``."""
    basis, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    a = (basis * np.geomspace(1.0, 1.0 / condition, n)) @ basis.T
    return (a + a.T) / 2


def write_factor(l_dense: NDArray[np.float64], store: AbstractStore) -> None:
    """Write the lower triangular ``l_dense`` tile by tile, and complete the store."""
    grid = store.grid
    for i, j in grid.tiles():
        rows, cols = grid.span(i), grid.span(j)
        store.write((i, j), np.ascontiguousarray(l_dense[rows.start : rows.stop, cols.start : cols.stop]))
    store.complete()


def factor_in(kind: str, l_dense: NDArray[np.float64], nb: int, folder: Path) -> CholeskyFactor:
    """The factor object over ``l_dense`` in a store of the given kind."""
    grid = TileGrid(len(l_dense), nb)
    store = STORES[kind](grid, folder)
    write_factor(l_dense, store)
    return factor_over(store)


def lapack_factor(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """L of ``a`` by LAPACK's POTRF."""
    return np.asarray(scipy.linalg.cholesky(a, lower=True))
