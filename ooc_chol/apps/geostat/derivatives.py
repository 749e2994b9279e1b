"""Derivatives of a covariance matrix by its parameters, as tile functions, and the sums over all their tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ooc_chol.apps.geostat.covariance import Matern, TileFunction

#: Rows and columns of the tiles in which derivatives are made, and forgotten.
TILE = 512

_Result = TypeVar("_Result")


def shape_parameters(model: Matern) -> tuple[str, ...]:
    """Parameters of the correlation function that have a derivative, without variance and nugget.

    Parameters
    ----------
    model : Matern
        The covariance function.

    Returns
    -------
    tuple of str
        Names of fields of ``model``.
    """
    return ("range",)


def derivative_tiles(model: Matern, coordinates: NDArray[np.float64], name: str) -> TileFunction:
    """Make the tile function of ``dSigma[i, j] / d name``.

    Parameters
    ----------
    model : Matern
        The covariance function.
    coordinates : (n, d) array
        Cartesian coordinates of the observations in matrix order.
    name : str
        One of :func:`shape_parameters`.

    Returns
    -------
    callable
        ``tile_fn(rows, cols, out, stream)``.

    Raises
    ------
    ValueError
        There is no derivative by that name.
    """
    if name not in shape_parameters(model):
        raise ValueError(f"there is no derivative of the covariance by {name!r}; there are {', '.join(shape_parameters(model))}")
    sites = np.ascontiguousarray(coordinates, dtype=np.float64)
    # with r = h / a: dC/da = variance r**2 p(r) exp(-r) / a, and p = 1/r, 1, (1 + r) / 3 for nu = 1/2, 3/2, 5/2
    scale = model.variance / model.range

    def tile_fn(rows: range, cols: range, out: NDArray[np.float64], stream: object) -> None:
        r = cdist(sites[rows.start : rows.stop], sites[cols.start : cols.stop]) / model.range
        np.exp(-r, out=out)
        out *= {0.5: r, 1.5: r * r, 2.5: r * r * (1.0 + r) / 3.0}[model.smoothness]
        out *= scale

    return tile_fn


def over_blocks(work: Callable[[range], _Result], blocks: Sequence[range]) -> Iterator[_Result]:
    """Results of ``work`` on each block in order, computed by several threads: NumPy's functions release the interpreter lock.

    Parameters
    ----------
    work : callable
        A pure function of a range of rows.
    blocks : sequence of range
        What to call it with.

    Yields
    ------
    object
        Its results.
    """
    with ThreadPoolExecutor(thread_name_prefix="derivatives") as pool:
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
