"""Cholesky of many small matrices on the host: a team of threads shares the batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.files.inputs import plain_array
from ooc_chol.hardware.arrays import device_of
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import Tile
from ooc_chol.kernels.host.blas import blas_threads, host_threads
from ooc_chol.kernels.host.tiles import MOST_ALONE, factor_tile
from ooc_chol.kernels.interfaces.batch import AbstractBatchKernels, Failure, check_right_hand_sides
from ooc_chol.kernels.interfaces.whole import nonfinite_error
from ooc_chol.memory.sources.numbers import put_numbers
from ooc_chol.process.team import ThreadTeam

#: Largest order that NumPy's loop over a stack factors sooner than a call for each matrix: 0.4 microseconds instead of 4 at
#: order 10, 24 instead of 34 at order 64, but 337 instead of 304 at order 200.
_MOST_TOGETHER = 96
#: Rows of all matrices that a solve finishes before later rows are updated with them by one product each.
_ROWS = 16
#: Bytes of matrices whose factors are still in a core's cache when they are copied to their place.
_CACHED = 1 << 17
#: Least bytes of a share of the batch: below, starting a thread takes longer than the work.
_LEAST_SHARE = 1 << 18


@final
class HostBatch(AbstractBatchKernels):
    """NumPy's LAPACK for the smallest, SciPy's for others; matrices of several strips are factored one by one by all threads."""

    def __init__(self) -> None:
        self._threads = host_threads(1)  # before the limit of :meth:`current`

    def current(self) -> AbstractContextManager[Any]:
        return blas_threads(1)

    def numbers(self, a: Any) -> Tile:
        there = a if (home := device_of(a)) is None else device_kind(home).to_host(device_kind(home).from_dlpack(a))
        array = np.asarray(there)
        is_masked = np.ma.is_masked(there)
        if array.dtype == np.float64 and not is_masked:
            return array
        put_numbers(array, out := np.empty(array.shape))
        if is_masked:
            out[np.ma.getmaskarray(there)] = np.nan
        return out

    def factor(self, a: Tile) -> tuple[Tile, Failure | None]:
        factors, n = np.empty(a.shape), a.shape[1]
        if not a.size:
            return factors, None
        if n > MOST_ALONE:
            with closing(ThreadTeam(self._threads)) as team:
                return factors, _first(_factor_each(team, a, factors), 0)
        share = _factor_together if n <= _MOST_TOGETHER else _factor_alone
        found = self._by_shares(lambda part: _first(share(a[part], factors[part]), part.start), factors)
        return factors, min(filter(None, found), default=None)

    def right_hand_sides(self, b: Any, shape: tuple[int, ...]) -> Tile:
        raw = (
            plain_array("the right-hand side", b)
            if (home := device_of(b)) is None
            else device_kind(home).to_host(device_kind(home).from_dlpack(b))
        )
        check_right_hand_sides(raw.dtype, raw.shape, shape)
        x = np.array(raw, np.float64, order="C")
        finite = np.isfinite(x)
        if not finite.all():
            place = np.unravel_index(int(np.argmin(finite)), x.shape)
            raise nonfinite_error(tuple(map(int, place)), x[place])
        return x if x.ndim == 3 else x[:, :, None]

    def solve(self, stack: Tile, x: Tile, *, transposed: bool) -> None:
        if not x.size:
            return
        substitute = _back if transposed else _forward
        self._by_shares(lambda part: substitute(stack[part], x[part]), stack)

    def multiply(self, stack: Tile, z: Tile) -> Tile:
        product = np.empty(z.shape)
        if z.size:
            self._by_shares(lambda part: np.matmul(stack[part], z[part], out=product[part]), stack)
        return product

    def _by_shares(self, function: Callable[[slice], Any], stack: NDArray[np.float64]) -> list[Any]:
        """``function`` of equal parts of the batch, by several threads where there is enough for them."""
        count = max(1, min(self._threads, len(stack), stack.nbytes // _LEAST_SHARE))
        bounds = [len(stack) * at // count for at in range(count + 1)]
        with closing(ThreadTeam(count)) as team:
            return team.map(function, [slice(start, stop) for start, stop in pairwise(bounds)])


def _first(minors: list[int], start: int) -> Failure | None:
    """The first of the matrices from ``start`` on that failed, by the orders of their minors; 0 is none."""
    return next((Failure(start + at, minor) for at, minor in enumerate(minors) if minor), None)


def _factor_each(team: ThreadTeam, a: NDArray[np.float64], factors: NDArray[np.float64]) -> list[int]:
    """Factor one after the other until one fails; the orders of their minors."""
    minors: list[int] = []
    while len(minors) < len(a) and not any(minors[-1:]):
        tile = factors[len(minors)]
        tile[...] = a[len(minors)]
        minors.append(factor_tile(team, tile))
    return minors


def _factor_alone(a: NDArray[np.float64], factors: NDArray[np.float64]) -> list[int]:
    """The same by the thread that calls."""
    with closing(ThreadTeam(1)) as team:
        return _factor_each(team, a, factors)


def _factor_together(a: NDArray[np.float64], factors: NDArray[np.float64]) -> list[int]:
    """Factor a few hundred by one call of NumPy's, and the next; where one fails, find out which, and by which minor."""
    step = max(1, _CACHED // a[0].nbytes)
    for start in range(0, len(a), step):
        part = slice(start, start + step)
        try:
            factors[part] = np.linalg.cholesky(a[part])
        except np.linalg.LinAlgError:
            return [*[0] * start, *_minors(a[part])]
        if not np.isfinite(np.diagonal(factors[part], axis1=1, axis2=2)).all():  # LAPACK may take a NaN for a positive pivot
            return [*[0] * start, *_minors(a[part])]
    return []


def _minors(part: NDArray[np.float64]) -> list[int]:
    """The order of the first leading minor that fails of each matrix, 0 for none, up to the first that has one."""
    minors: list[int] = []
    for a in part:
        minors.append(0 if _is_positive(a) else next(k for k in range(1, len(a) + 1) if not _is_positive(a[:k, :k])))
        if minors[-1]:
            break
    return minors


def _is_positive(a: NDArray[np.float64]) -> bool:
    try:
        return bool(np.isfinite(np.linalg.cholesky(a).diagonal()).all())
    except np.linalg.LinAlgError:
        return False


def _forward(l_all: NDArray[np.float64], x: NDArray[np.float64]) -> None:
    """``x[i] = inv(L[i]) @ x[i]``, row by row of all matrices at once."""
    n = x.shape[1]
    for top in range(0, n, _ROWS):
        bottom = min(top + _ROWS, n)
        for k in range(top, bottom):
            if k > top:  # x[k] -= L[k, top:k] @ x[top:k]
                x[:, k : k + 1] -= l_all[:, k : k + 1, top:k] @ x[:, top:k]
            x[:, k] /= l_all[:, k, k, None]
        if bottom < n:  # x[bottom:] -= L[bottom:, top:bottom] @ x[top:bottom]
            x[:, bottom:] -= l_all[:, bottom:, top:bottom] @ x[:, top:bottom]


def _back(l_all: NDArray[np.float64], x: NDArray[np.float64]) -> None:
    """``x[i] = inv(L[i]).T @ x[i]``, row by row from the last."""
    turned = l_all.swapaxes(1, 2)
    for bottom in range(x.shape[1], 0, -_ROWS):
        top = max(0, bottom - _ROWS)
        for k in range(bottom - 1, top - 1, -1):
            if k < bottom - 1:  # x[k] -= L[k + 1:bottom, k].T @ x[k + 1:bottom]
                x[:, k : k + 1] -= turned[:, k : k + 1, k + 1 : bottom] @ x[:, k + 1 : bottom]
            x[:, k] /= l_all[:, k, k, None]
        if top:  # x[:top] -= L[top:bottom, :top].T @ x[top:bottom]
            x[:, :top] -= turned[:, :top, top:bottom] @ x[:, top:bottom]
