"""The factor of ``A + V @ V.T`` or ``A - V @ V.T`` from that of A, by one sweep over the tile columns of L.

Of complex matrices every transpose is an adjoint.

With columns ``c`` of L, from the left to the right, an orthogonal U takes V out of them: ``[L_c, V] U = [L'_c, V']`` for all
rows, where the rows of ``c`` itself leave nothing of V. A downdate is the same backwards: ``[L_c, V'] U = [L'_c, V]``. Every row
is multiplied by orthogonal matrices only, or for ``V'`` solved for with a block of one, so that both are backward stable, row by
row in the scale of ``sqrt(A_ii)``, also where L is ill-conditioned (for downdates one column at a time: Stewart 1979; Bojanczyk,
Brent, Van Dooren and de Hoog 1987). No matrix is squared but ``I - W.T @ W``, whose factor need only be backward stable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.factor.conditioning import signs_of
from ooc_chol.dense.factor.reading import HOST_NAME, stream_tiles
from ooc_chol.dense.passes import track_of_l
from ooc_chol.dense.stores.array import MemoryStore
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.choice import create_kept
from ooc_chol.dense.stores.device import DeviceStore
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.dense.stores.places import ON_DEVICE, Place, is_file
from ooc_chol.errors import BudgetError, DowndateError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.process import blas_buffers
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.process.scipy_modules import linalg_module
from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.runtime.passes import Pass
from ooc_chol.tasks.tiling import TileGrid, TileIndex

Matrix = NDArray[Any]
_flapack = linalg_module("_flapack")
#: The triangular solve, by the type of entries.
_TRTRS = {np.dtype(name): getattr(_flapack, f"{letter}trtrs") for letter, name in zip("dszc", ("d", "f", "D", "F"), strict=True)}

#: Columns of L that one orthogonal matrix meets, at least and, for a V with many columns, at most.
_LEAST_COLUMNS, _MOST_COLUMNS = 32, 256
#: Rows that are worth a thread.
_LEAST_ROWS = 128


class _Update(NamedTuple):
    """``[L_c, V] U`` for columns ``c`` of a tile column."""

    columns: slice
    u: Matrix

    def apply(self, l_i: Matrix, v_i: Matrix) -> None:
        """Rows of ``L'_c`` and ``V'`` in place of those of ``L_c`` and V."""
        width = self.columns.stop - self.columns.start
        product = np.concatenate([l_i[:, self.columns], v_i], axis=1) @ self.u
        l_i[:, self.columns], v_i[...] = product[:, :width], product[:, width:]


class _Downdate(NamedTuple):
    """``[L_c, V'] U`` for columns ``c`` of a tile column, with ``U = [[n1, w], [n2, g.T]]``."""

    columns: slice
    n1: Matrix
    n2: Matrix
    w: Matrix
    g: Matrix

    def apply(self, l_i: Matrix, v_i: Matrix) -> None:
        """Rows of ``L'_c`` and ``V'`` in place of those of ``L_c`` and V."""
        old = l_i[:, self.columns]
        v_i[...] = _substituted(self.g, (v_i - old @ self.w).conj().T).conj().T  # V' g.T = V - L_c w
        l_i[:, self.columns] = old @ self.n1 + v_i @ self.n2


def sweep(store: AbstractStore, target: AbstractStore, v: Matrix, *, downdate: bool, run: Pass) -> None:
    """Write the updated L to ``target``, which may be ``store``; ``v`` is overwritten.

    Cost ``4 n**2 k`` flops for k columns, ``36 n**2`` at least; one reading and one writing of L. Beside ``v`` it takes three
    tiles and the orthogonal matrices of a tile column.
    """
    grid, track = store.grid, track_of_l(run, HOST_NAME)
    order = [TileIndex(i, j) for j in range(grid.nt) for i in range(j, grid.nt)]
    buffer, steps = np.empty(grid.size(0) ** 2, store.fmt.dtype), list[_Update | _Downdate]()
    with (
        blas_threads(1),  # products are small: its threads would wait for each other
        closing(ThreadTeam(cores())) as team,
        closing(stream_tiles(store, order, track, 2 * v.shape[1])) as tiles,
    ):
        for (i, j), l_ij in tiles:
            view, v_i = target.view((i, j)), v[grid.start(i) :][: grid.size(i)]
            out = buffer[: l_ij.size].reshape(l_ij.shape) if view is None else view
            np.copyto(out, l_ij)
            if i == j:
                steps = _eliminate(out, v_i, team, downdate=downdate, place=(grid.start(j), (j, j)))
            else:
                _apply(steps, out, v_i, team)
            if view is None:
                target.write((i, j), out)
    track.settle()


def _apply(steps: Sequence[_Update | _Downdate], l_i: Matrix, v_i: Matrix, team: ThreadTeam) -> None:
    """Apply what was done to a diagonal tile to rows below it, in place; threads share the rows."""

    def run(first: int) -> None:
        blas_buffers.ensure(numpys=True)
        rows = slice(first, first + strip)
        for step in steps:
            step.apply(l_i[rows], v_i[rows])

    strip = max(_LEAST_ROWS, -(-len(l_i) // team.size))
    if len(l_i) and steps:
        team.run([partial(run, first) for first in range(0, len(l_i), strip)])


def _eliminate(
    l_jj: Matrix, v_j: Matrix, team: ThreadTeam, *, downdate: bool, place: tuple[int, tuple[int, int]]
) -> list[_Update | _Downdate]:
    """Update a diagonal tile in place, some columns at a time; what was done to each, for the rows below."""
    steps: list[_Update | _Downdate] = []
    n, k = v_j.shape
    width = min(_MOST_COLUMNS, max(_LEAST_COLUMNS, k))
    for start in range(0, n, width):
        columns = slice(start, min(start + width, n))
        v_c, l_c = v_j[columns], l_jj[columns, columns]
        if not v_c.any():
            continue  # these rows, and so these columns, stay as they are
        step: _Update | _Downdate
        if downdate:
            l_c[...], step = _downdated(l_c, v_c, columns, (place[0] + start, place[1]))
        else:
            l_c[...], step = _updated(l_c, v_c, columns)
        v_c[...] = 0.0
        _apply([step], l_jj[columns.stop :], v_j[columns.stop :], team)
        steps.append(step)
    return steps


def _updated(l_c: Matrix, v_c: Matrix, columns: slice) -> tuple[Matrix, _Update]:
    """``L'_c`` of the diagonal block, and the step for the rows below: ``[L_c, V_c].T = U R`` by Householder."""
    u, r = np.linalg.qr(np.concatenate([l_c, v_c], axis=1).conj().T, mode="complete")
    width = len(l_c)
    signs = signs_of(r.diagonal())
    u[:, :width] *= signs
    return _lower(r[:width], signs), _Update(columns, u)


def _downdated(l_c: Matrix, v_c: Matrix, columns: slice, place: tuple[int, tuple[int, int]]) -> tuple[Matrix, _Downdate]:
    """``L'_c`` of the diagonal block, and the step for the rows below.

    ``w = inv(L_c) V_c`` and g, with ``g g.T = I - w.T w``, are the last columns ``[w; g.T]`` of U; the others are what is
    orthogonal to them, turned such that ``L'_c = L_c n1`` is lower triangular.
    """
    width = len(l_c)
    w = _substituted(l_c, v_c)
    g = _root_of_rest(w)
    if g is None:
        raise DowndateError(place[0] + first_lost_row(w), place[1])
    basis, _ = np.linalg.qr(np.concatenate([w, g.conj().T]), mode="complete")
    others = basis[:, w.shape[1] :]
    turn, r = np.linalg.qr((l_c @ others[:width]).conj().T)
    signs = signs_of(r.diagonal())
    others = others @ (turn * signs)
    return _lower(r, signs), _Downdate(columns, others[:width], others[width:], w, g)


def _lower(r: Matrix, signs: Matrix) -> Matrix:
    """The lower triangular adjoint of R, its rows divided by the signs of its diagonal, which becomes real and positive."""
    lower = np.tril((r * signs.conj()[:, None]).conj().T)
    if lower.dtype.kind == "c":
        np.fill_diagonal(lower, lower.diagonal().real)  # all else is rounding
    return lower


def _substituted(lower: Matrix, b: Matrix) -> Matrix:
    """``inv(lower) @ b`` by LAPACK."""
    x, info = _TRTRS[lower.dtype](lower.T, b, lower=0, trans=1)  # row-major and lower is column-major and upper, transposed
    if info > 0:
        raise np.linalg.LinAlgError(f"L[{info - 1}, {info - 1}] of a diagonal block is 0")
    solution: Matrix = x
    return solution


def _root_of_rest(w: Matrix) -> Matrix | None:
    """Cholesky factor of ``I - w.T @ w``; None where that is not positive definite."""
    try:
        root = np.linalg.cholesky(np.eye(w.shape[1], dtype=w.dtype) - w.conj().T @ w)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(root, dtype=w.dtype)


def first_lost_row(w: Matrix) -> int:
    """Order of the first leading minor of ``A - V @ V.T`` that is not positive definite, with ``w = inv(L) @ V``; 0 if none."""
    if _root_of_rest(w) is not None:
        return 0
    low, high = 0, len(w)  # with ``low`` rows it is positive definite, with ``high`` it is not: more rows only take away
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _root_of_rest(w[:middle]) is not None else (low, middle)
    return high


def store_for(store: AbstractStore, place: Place, key: Mapping[str, Any], owned: ExitStack) -> AbstractStore:
    """An empty store in one type for an updated L, which ``owned`` discards: a file, host memory, or the GPUs where L lies."""
    with HeldInterrupts():
        made = _created(store, place, key)
        owned.callback(made.discard)
    return made


def _created(store: AbstractStore, place: Place, key: Mapping[str, Any]) -> AbstractStore:
    grid = store.grid
    if is_file(place):
        return create_kept(place, grid, key, fmt=store.fmt)
    if store.devices and (place is None or place == ON_DEVICE):
        places = [store.on_device((i, 0)) for i in range(grid.nt)]
        owners = [0 if place is None else store.devices.index(place.device) for place in places]
        return DeviceStore(grid, store.devices, owners, fmt=store.fmt)
    if place == ON_DEVICE:
        raise ValueError("store='device' keeps an updated L on the GPUs where L lies, but it is in no GPU's memory: leave it out")
    _check_room(grid, store.fmt)
    return MemoryStore(grid, None, place if isinstance(place, HostMemory) else None, fmt=store.fmt)


def _check_room(grid: TileGrid, fmt: PrecisionFormat) -> None:
    """Refuse a second L that the host has no memory for."""
    nbytes, free = TileLayout(grid, fmt=fmt).end, free_host_bytes()
    if nbytes > free:
        raise BudgetError("host memory for an updated L", nbytes, free, "give overwrite=True, or a file as store=")
