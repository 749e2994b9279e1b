"""Solves with a factor, and the product with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.dense.factor.operators import refuse_triangular
from ooc_chol.dense.factor.reading import HOST_NAME, stream_tiles
from ooc_chol.dense.factor.sweeps import AbstractSolver, AbstractTeamSolver, Left, Needs
from ooc_chol.dense.factor.team_sweeps import opened_team
from ooc_chol.dense.passes import track_of_l
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.files.inputs import plain_array
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.kernels.interfaces.whole import check_right_hand_side, nonfinite_error
from ooc_chol.process.team import by_shares
from ooc_chol.runtime.passes import Pass


def right_hand_side(b: ArrayLike, n: int, *, copy: bool, fmt: PrecisionFormat = FP64) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Check right-hand sides of a matrix of order ``n``, and convert them to its format."""
    refuse_triangular(b)
    raw = plain_array("the right-hand side", b)
    check_right_hand_side(raw.dtype, raw.shape, n, fmt)
    # What float32 cannot hold becomes infinite, and is refused as such.
    with np.errstate(over="ignore") if raw.itemsize > fmt.itemsize else nullcontext():
        x = np.array(raw, dtype=fmt.dtype, order="C", copy=True if copy else None)
    if not all(by_shares(lambda rows: bool(np.isfinite(x[rows]).all()), len(x), x.nbytes)):
        place = np.unravel_index(int(np.argmin(np.isfinite(x))), x.shape)
        raise nonfinite_error(tuple(map(int, place)), raw[place], fmt.dtype)
    return x if x.ndim == 2 else x.reshape(n, 1), raw.shape


def column_powers(x: NDArray[np.float64], rows: NDArray[np.intc]) -> NDArray[np.intc]:
    """Exponents e of columns such that ``2**-e`` times the largest entry, in units of ``2**rows``, is near 1; 0 for zeros."""
    powers = np.where(x == 0.0, np.iinfo(np.intc).min, np.frexp(x)[1] - rows[:, None]).max(axis=0, initial=np.iinfo(np.intc).min)
    return np.where(powers == np.iinfo(np.intc).min, 0, powers)


def joined_columns(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join matrices beside each other in a new array, by threads where it is large.

    Parameters
    ----------
    parts : sequence of (n, m_i) array
        At least one matrix. All have the same number of rows, and the type of the first.

    Returns
    -------
    (n, sum m_i) array
        The columns of all matrices in turn, in row-major order.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> oc.toolbox.joined_columns([np.eye(2), np.zeros((2, 1))])
    array([[1., 0., 0.],
           [0., 1., 0.]])
    """
    x = np.empty((len(parts[0]), sum(part.shape[1] for part in parts)), parts[0].dtype)

    def join(rows: slice) -> None:
        np.concatenate([part[rows] for part in parts], axis=1, out=x[rows])

    by_shares(join, len(x), x.nbytes)
    return x


def solve(
    solver: AbstractSolver,
    store: AbstractStore,
    x: NDArray[Any],
    *,
    transposed: Sequence[bool],
    run: Pass,
    left: NDArray[Any] | None = None,
) -> None:
    """Solve ``L y = x``, or with the adjoint of L, one after the other, in place of ``x``; ``left`` is what the last one leaves.

    As many columns at a time as there is room for; each such group reads L once for each system. Backward stable row by row:
    Higham (2002), Thm 8.5.
    """
    m, arrays = x.shape[1], (x,) if left is None else (x, left)
    if team := solver.sweepers_for(store):
        with opened_team(team, store, run, arrays, checks=left is not None) as devices:
            width = min(m, devices.columns_that_fit())
            devices.allocate(width)
            for start in range(0, m, width):
                columns = slice(start, min(start + width, m))
                for system in transposed:
                    devices.solve(x[:, columns], transposed=system, left=None if left is None else Left(left[:, columns]))
        return
    with solver.opened(store, run, Needs(locked=arrays, checks=left is not None)) as sweeps:
        width = min(m, sweeps.columns_that_fit() or m)
        sweeps.allocate(width)
        for start in range(0, m, width):
            columns = slice(start, min(start + width, m))
            part = sweeps.bring(x, columns)
            for system in transposed:
                sweeps.solve(part, transposed=system, left=None if left is None else Left(left, columns))
            sweeps.take_back(part, x, columns)
        sweeps.finish()


def solve_there_and_back(solver: AbstractSolver, store: AbstractStore, y: NDArray[Any], x: NDArray[Any], run: Pass) -> None:
    """Solve ``L y = y`` in place, then ``L.H x = [y, x]``, where the first columns of ``x`` are room for ``y``.

    L is read twice, but for the tiles that the devices keep from the first solve; more often where not all columns fit.
    """
    team = solver.sweepers_for(store)
    if not (_team_there_and_back(team, store, y, x, run) if team else _there_and_back(solver, store, y, x, run)):
        solve(solver, store, y, transposed=(False,), run=run)
        x[:, : y.shape[1]] = y
        solve(solver, store, x, transposed=(True,), run=run)


def _team_there_and_back(
    team: Sequence[AbstractTeamSolver], store: AbstractStore, y: NDArray[Any], x: NDArray[Any], run: Pass
) -> bool:
    """On several devices or streams; False where they have no room for all columns."""
    with opened_team(team, store, run, [y, x]) as devices:
        if devices.columns_that_fit() < x.shape[1]:
            return False
        devices.allocate(x.shape[1])
        devices.solve(y, transposed=False)
        x[:, : y.shape[1]] = y
        devices.solve(x, transposed=True)
    return True


def _there_and_back(solver: AbstractSolver, store: AbstractStore, y: NDArray[Any], x: NDArray[Any], run: Pass) -> bool:
    """On one device, where ``y`` stays from the first solve to the second; False where it has no room for all columns."""
    with solver.opened(store, run, Needs(arrays=(y,), locked=(x,))) as sweeps:
        fitting = sweeps.columns_that_fit()
        if fitting is not None and fitting < x.shape[1]:
            return False
        (half,) = sweeps.allocate(x.shape[1])
        sweeps.solve(half)
        both = sweeps.bring(x, slice(0, x.shape[1]))

        def put(rows: range, cols: range, out: Any, stream: Any) -> None:
            out[...] = half

        sweeps.generate(put, range(len(y)), range(y.shape[1]), both[:, : y.shape[1]])
        sweeps.solve(both, transposed=True)
        sweeps.take_back(half, y)
        sweeps.take_back(both, x)
        sweeps.finish()
    return True


def multiply(store: AbstractStore, z: NDArray[Any], run: Pass, *, transposed: bool = False) -> NDArray[Any]:
    """Multiply ``L @ z``, or ``L.H @ z``, the adjoint.

    Cost ``n**2 m`` flops and one reading of L in the order in which it is stored.
    """
    grid, track = store.grid, track_of_l(run, HOST_NAME)
    y = np.zeros_like(z)
    conjugates = transposed and store.fmt.is_complex  # L.H @ z is conj(L.T @ conj(z)), and no tile is copied
    z = z.conj() if conjugates else z
    product = np.empty((min(grid.nb, grid.n), z.shape[1]), z.dtype)
    with closing(stream_tiles(store, list(grid.tiles()), track, z.shape[1])) as tiles:
        for (i, j), l_ij in tiles:  # y[i] += L[i, j] @ z[j], or y[j] += L[i, j].T @ z[i]
            target, other = (j, i) if transposed else (i, j)
            y_i = y[grid.start(target) :][: grid.size(target)]
            z_j = z[grid.start(other) :][: grid.size(other)]
            y_i += np.matmul(l_ij.T if transposed else l_ij, z_j, out=product[: len(y_i)])
    track.settle()
    return np.conjugate(y, out=y) if conjugates else y


def multiply_on_device(
    solver: AbstractSolver, store: AbstractStore, z: NDArray[Any], run: Pass, *, transposed: bool = False
) -> NDArray[Any]:
    """As :func:`multiply`, where L lies; some columns at a time, each of which reads L once there."""
    y = np.empty_like(z)
    order = list(store.grid.tiles())
    for start in range(0, z.shape[1], MOST_COLUMNS):
        columns = slice(start, start + MOST_COLUMNS)
        part = np.ascontiguousarray(z[:, columns])
        sums = np.zeros_like(part)
        with solver.opened(store, run, Needs(arrays=(sums,), locked=(part,))) as sweeps:
            (negative,) = sweeps.allocate(part.shape[1])
            there = sweeps.bring(part, slice(0, part.shape[1]))
            with closing(sweeps.tiles(order, part.shape[1])) as tiles:
                for (i, j), l_ij in tiles:  # -y[i] -= L[i, j] @ z[j], or -y[j] -= L[i, j].H @ z[i]
                    target, other = (j, i) if transposed else (i, j)
                    sweeps.subtract(sweeps.rows(negative, target), l_ij, sweeps.rows(there, other), transposed=transposed)
            sweeps.take_back(negative, sums)
            sweeps.finish()
        y[:, columns] = -sums
    return y


#: Columns of a right factor that are multiplied at once on a device.
MOST_COLUMNS = 1024
