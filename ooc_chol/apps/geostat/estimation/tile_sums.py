"""Sums over all tiles of a matrix that a tile function makes, each made and forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.covariance import TileFunction

#: Rows and columns of the tiles that are made.
TILE = 512

_Block = TypeVar("_Block")
_Result = TypeVar("_Result")


def over_blocks(work: Callable[[_Block], _Result], blocks: Sequence[_Block]) -> Iterator[_Result]:
    """Results of ``work`` on each block in order, computed by several threads: NumPy's functions release the interpreter lock.

    Parameters
    ----------
    work : callable
        A pure function of a block, such as a range of rows.
    blocks : sequence
        What to call it with.

    Yields
    ------
    object
        Its results.
    """
    with ThreadPoolExecutor(thread_name_prefix="tiles") as pool:
        yield from pool.map(work, blocks)


def blocks_of(rows: range, size: int = TILE) -> list[range]:
    """``rows`` cut into ranges of at most ``size``."""
    return [range(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size)]


def made(tile_fn: TileFunction, rows: range, cols: range) -> NDArray[np.float64]:
    """One tile of a tile function, shape ``(len(rows), len(cols))``."""
    tile = np.empty((len(rows), len(cols)))
    tile_fn(rows, cols, tile, None)
    return tile


def products(tile_fn: TileFunction, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multiply the symmetric matrix of a tile function with vectors, its tiles made and forgotten.

    Parameters
    ----------
    tile_fn : callable
        Makes any tile of an ``(n, n)`` matrix.
    vectors : (n, m) array
        What to multiply.

    Returns
    -------
    (n, m) array
        The products.

    Notes
    -----
    Cost ``2 n**2 m`` flops and ``n**2`` entries made.
    """
    n = len(vectors)

    def rows_of_product(rows: range) -> NDArray[np.float64]:
        total = np.zeros((len(rows), vectors.shape[1]))
        for cols in blocks_of(range(n)):
            total += made(tile_fn, rows, cols) @ vectors[cols.start : cols.stop]
        return total

    return np.concatenate(list(over_blocks(rows_of_product, blocks_of(range(n)))))
