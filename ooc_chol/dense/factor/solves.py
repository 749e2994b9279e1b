"""Solves with a factor, and the product with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.dense.factor.reading import HOST_NAME, stream_tiles
from ooc_chol.dense.factor.sweeps import AbstractSolver, Needs
from ooc_chol.dense.passes import Pass
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.formats import FP64


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


def solve(solver: AbstractSolver, store: AbstractStore, x: NDArray[np.float64], *, transposed: Sequence[bool], run: Pass) -> None:
    """Solve ``L y = x``, or ``L.T y = x``, one after the other, in place of ``x``.

    As many columns at a time as there is room for; each such group reads L once for each system. Backward stable row by row:
    Higham (2002), Thm 8.5.
    """
    m = x.shape[1]
    with solver.opened(store, run, Needs(locked=(x,))) as sweeps:
        width = min(m, sweeps.columns_that_fit() or m)
        sweeps.allocate(width)
        for start in range(0, m, width):
            columns = slice(start, min(start + width, m))
            part = sweeps.bring(x, columns)
            for system in transposed:
                sweeps.solve(part, transposed=system)
            sweeps.take_back(part, x, columns)
        sweeps.finish()


def multiply(store: AbstractStore, z: NDArray[np.float64], run: Pass) -> NDArray[np.float64]:
    """Multiply ``L @ z``.

    Cost ``n**2 m`` flops and one reading of L in the order in which it is stored.
    """
    grid, track = store.grid, run.track(HOST_NAME)
    y = np.zeros_like(z)
    product = np.empty((min(grid.nb, grid.n), z.shape[1]))
    with closing(stream_tiles(store, list(grid.tiles()), track, z.shape[1])) as tiles:
        for (i, j), l_ij in tiles:  # y[i] += L[i, j] @ z[j]
            y_i = y[grid.start(i) :][: grid.size(i)]
            y_i += np.matmul(l_ij, z[grid.start(j) :][: grid.size(j)], out=product[: len(y_i)])
    track.settle()
    return y
