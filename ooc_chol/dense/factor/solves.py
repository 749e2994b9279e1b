"""Triangular sweeps over a stored factor: every tile passes through memory once, the next one read while this one computes.

All functions take right-hand sides as ``(n, m)`` row-major arrays and hold, beside them, one tile row of ``m`` columns and, when
the store does not have all tiles in memory as float64, two tiles. The triangular solves can leave out the tile rows before
``first``: then they solve with the trailing triangle of L, and ``x`` has its rows only.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dgemm

from ooc_chol.dense.stores.file import AbstractStore
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.formats import FP64
from ooc_chol.tasks.tiling import TileGrid, TileIndex
from ooc_chol.threads import OwnThread, start, take, wait_out


def right_hand_side(b: ArrayLike, n: int, *, copy: bool) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """Check right-hand sides of a matrix of order ``n``."""
    raw = np.asarray(b)
    if raw.dtype.kind not in "fiub" or raw.dtype.itemsize > FP64.itemsize:
        raise TypeError(
            f"the right-hand side has dtype {raw.dtype}, but real numbers up to float64 are needed: convert it to float64"
        )
    if raw.ndim not in (1, 2) or raw.shape[0] != n:
        raise ValueError(f"the right-hand side has shape {raw.shape}, but A is ({n}, {n}): it must be ({n},) or ({n}, m)")
    x = np.array(raw, dtype=np.float64, order="C", copy=True if copy else None)
    finite = np.isfinite(x)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), x.shape)
        where = ", ".join(str(int(index)) for index in place)
        raise ValueError(f"entry [{where}] of the right-hand side is {x[place]}; all must be finite: mend or drop that row")
    return x if x.ndim == 2 else x.reshape(n, 1), raw.shape


def stream_tiles(
    store: AbstractStore, order: Sequence[TileIndex]
) -> Generator[tuple[TileIndex, NDArray[np.float64]], None, None]:
    """Yield tiles in the given order; a tile is valid until the next one is asked for.

    Close the generator (``contextlib.closing``): that ends its thread even when the loop over it fails.
    """
    if store.formats is not None or store.view(order[0]) is None:
        yield from read_ahead(store, order)
        return
    for index in order:
        tile = store.view(index)
        assert tile is not None  # a store has all its FP64 tiles in memory, or none
        yield index, tile


def read_ahead(
    tier: AbstractStore | SourceTier, order: Sequence[TileIndex]
) -> Generator[tuple[TileIndex, NDArray[np.float64]], None, None]:
    """Yield tiles of A or L, each that is not in memory as float64 read in a second thread while the one before it is in use."""
    grid = tier.grid
    largest = max(grid.entries(*index) for index in order)
    buffers = [np.empty(largest), np.empty(largest)]

    def read(position: int) -> NDArray[np.float64]:
        index = order[position]
        view = tier.view(index)
        if view is not None:
            return view
        tile = buffers[position % 2][: grid.entries(*index)].reshape(grid.shape(*index))
        tier.read(index, tile)
        return tile

    asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    answers: queue.SimpleQueue[NDArray[np.float64] | BaseException] = queue.SimpleQueue()
    reader = OwnThread(_answer, (read, asked, answers), "read-ahead")
    try:
        asked.put(0)
        start(reader)
        for position, index in enumerate(order):
            tile = take(answers)
            if isinstance(tile, BaseException):
                raise tile
            # The buffer of position + 1 is free: its last tile, position - 1, went out of use when this one was asked for.
            if position + 1 < len(order):
                asked.put(position + 1)
            yield index, tile
    finally:
        asked.put(None)
        wait_out([reader])


def _answer(
    read: Callable[[int], NDArray[np.float64]],
    asked: queue.SimpleQueue[int | None],
    answers: queue.SimpleQueue[NDArray[np.float64] | BaseException],
) -> None:
    """Read what is asked for until nothing more is; a thread's body."""
    while (position := asked.get()) is not None:
        try:
            answers.put(read(position))
        except BaseException as error:  # raised by the thread that waits for the tile
            answers.put(error)


def _rows(x: NDArray[np.float64], grid: TileGrid, i: int, first: int = 0) -> NDArray[np.float64]:
    """The rows of ``x`` that belong to tile row ``i``, in place; ``x`` begins with tile row ``first``."""
    span = grid.span(i)
    return x[span.start - grid.start(first) : span.stop - grid.start(first)]


def _subtract_product(
    y: NDArray[np.float64], l_ij: NDArray[np.float64], x: NDArray[np.float64], *, transposed: bool = False
) -> None:
    """``y -= l_ij @ x``, or with ``l_ij.T``, by SciPy's BLAS as the triangular solves: threads of NumPy's would spin beside."""
    # row-major arrays are column-major ones transposed: y.T -= x.T @ l_ij.T
    y[...] = dgemm(-1.0, x.T, l_ij.T, beta=1.0, c=y.T, trans_b=transposed, overwrite_c=True).T


def forward_solve(store: AbstractStore, x: NDArray[np.float64], *, first: int = 0) -> None:
    """Solve ``L y = x`` in place of ``x``.

    Cost ``n**2 m`` flops and one reading of L in its stored order. Row-wise backward stable: Higham (2002), Thm 8.5.
    """
    grid = store.grid
    with closing(stream_tiles(store, list(grid.tiles(first)))) as tiles:
        for (i, j), l_ij in tiles:
            x_i = _rows(x, grid, i, first)
            if i == j:  # x[i] = inv(L[i, i]) @ x[i]
                x_i[...] = solve_triangular(l_ij, x_i, lower=True, check_finite=False)
            else:  # x[i] -= L[i, j] @ x[j]
                _subtract_product(x_i, l_ij, _rows(x, grid, j, first))


def backward_solve(store: AbstractStore, x: NDArray[np.float64], *, first: int = 0) -> None:
    """Solve ``L.T y = x`` in place of ``x``.

    Cost ``n**2 m`` flops and one reading of L from its last tile to its first. Backward stable as :func:`forward_solve`.
    """
    grid = store.grid
    with closing(stream_tiles(store, list(grid.tiles(first))[::-1])) as tiles:
        for (i, j), l_ij in tiles:
            x_i, x_j = _rows(x, grid, i, first), _rows(x, grid, j, first)
            if i == j:  # x[i] = inv(L[i, i]).T @ x[i]
                x_i[...] = solve_triangular(l_ij, x_i, lower=True, trans=1, check_finite=False)
            else:  # x[j] -= L[i, j].T @ x[i]
                _subtract_product(x_j, l_ij, x_i, transposed=True)


def multiply(store: AbstractStore, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multiply ``L @ z``.

    Cost ``n**2 m`` flops and one reading of L in the order in which it is stored.
    """
    grid = store.grid
    y = np.zeros_like(z)
    product = np.empty((min(grid.nb, grid.n), z.shape[1]))
    with closing(stream_tiles(store, list(grid.tiles()))) as tiles:
        for (i, j), l_ij in tiles:  # y[i] += L[i, j] @ z[j]
            y_i = _rows(y, grid, i)
            y_i += np.matmul(l_ij, _rows(z, grid, j), out=product[: len(y_i)])
    return y
