"""Triangular sweeps on the host: in place, by all threads of BLAS, the next tile read while this one computes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.factor.reading import HOST_NAME, stream_tiles
from ooc_chol.dense.factor.sweeps import NOTHING, AbstractSolver, AbstractSweeps, Needs, PanelSums, Part
from ooc_chol.dense.passes import track_of_l
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.interfaces import Tile, TileFunction
from ooc_chol.kernels.host.solves import put, substitute
from ooc_chol.memory.sources.function import FunctionSource
from ooc_chol.process.scipy_modules import linalg_module
from ooc_chol.process.team import map_in_threads
from ooc_chol.runtime.passes import Pass, Track
from ooc_chol.tasks.tiling import TileIndex

_blas = linalg_module("_fblas")
#: The product of each type.
_GEMM = {
    np.dtype(dtype): getattr(_blas, f"{letter}gemm")
    for letter, dtype in (("d", "float64"), ("s", "float32"), ("z", "complex128"), ("c", "complex64"))
}
#: How an operand enters a product: as it is, or its adjoint, of a real or a complex one.
_AS_IT_IS, _TRANSPOSED, _ADJOINT = range(3)
#: Rows and columns of the pieces of a matrix that are made at once: they stay in the cache.
_PIECE = 512


def subtract(target: Tile, l_ij: Tile, x: Tile, *, transposed: bool) -> None:
    """``target -= l_ij @ x``, or with its adjoint, by SciPy's BLAS: threads of NumPy's would spin beside."""
    # row-major arrays are column-major ones transposed: y.T -= x.T @ l_ij.T
    adjoint = _ADJOINT if x.dtype.kind == "c" else _TRANSPOSED
    how = adjoint if transposed else _AS_IT_IS
    put(target, _GEMM[x.dtype](-1.0, x.T, l_ij.T, beta=1.0, c=target.T, trans_b=how, overwrite_c=True).T)


@final
class HostSweeps(AbstractSweeps):
    """Beside the right-hand sides two tiles take memory, where the store does not have all tiles in memory in its type."""

    block_rows = _PIECE

    def __init__(self, store: AbstractStore, arrays: Sequence[NDArray[np.float64]], track: Track) -> None:
        self.grid = store.grid
        self._store, self._arrays, self._track = store, tuple(arrays), track
        self._columns = 0
        self._entries: NDArray[Any] | None = None

    def tiles(self, order: Sequence[TileIndex], columns: int) -> Generator[tuple[TileIndex, Tile], None, None]:
        """Tiles in place, or read ahead."""
        return stream_tiles(self._store, order, self._track, columns)

    def each(self, parts: Sequence[Part]) -> Iterator[Part]:
        return iter(parts)

    def substitute(self, l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
        substitute(l_kk, x_k, transposed=transposed)

    def subtract(self, target: Tile, l_ij: Tile, x: Tile, *, transposed: bool) -> None:
        subtract(target, l_ij, x, transposed=transposed)

    def copied(self, x_k: Tile) -> Tile:
        """A new array."""
        return np.array(x_k, order="C")

    def hand_over(self, part: Tile, rows: NDArray[Any], columns: slice) -> None:
        rows[:, columns] = part

    def columns_that_fit(self) -> int | None:
        """As many as the caller likes."""
        return None

    def allocate(self, columns: int) -> tuple[Tile, ...]:
        """Arrays stay where they are; room is taken when it is used: solves are in place."""
        self._columns = columns
        return self._arrays

    def array(self, rows: int, columns: int) -> Tile:
        """The one buffer, made when it is first asked for."""
        if self._entries is None:
            self._entries = np.empty(self.grid.n * self._columns, self._store.fmt.dtype)
        return self._entries[: rows * columns].reshape(rows, columns)

    def bring(self, x: NDArray[Any], columns: slice) -> Tile:
        """Columns in place: all of them, since all fit."""
        return x[:, columns]

    def take_back(self, part: Tile, x: NDArray[Any], columns: slice = slice(None)) -> None:
        """Columns were brought in place, so that nothing is to be copied back."""

    def prepare(self, matrices: Sequence[FunctionSource]) -> None:
        """Tile functions of the host need no compiling."""

    def generate(self, function: TileFunction, rows: range, cols: range, out: Tile) -> None:
        """Call the function, which knows no stream here."""
        function(rows, cols, out, None)

    def fill(self, matrix: FunctionSource, columns: range, y: Tile) -> None:
        """Several threads make the columns, each some rows at a time."""
        rows = [range(first, min(first + _PIECE, len(y))) for first in range(0, len(y), _PIECE)]
        map_in_threads(lambda part: matrix.read_filled(part, columns, y[part.start : part.stop]), rows)

    def add_column_squares(self, x: Tile, out: Tile) -> None:
        out += np.einsum("ij,ij->j", x, x)

    def set_product(self, y: Tile, vectors: Tile, out: Tile) -> None:
        out[...] = y.T @ vectors

    def panel_sums(
        self, panel: Tile, columns: range, blocks: Sequence[range], *, sums: PanelSums, vectors: Tile
    ) -> list[NDArray[np.float64]]:
        """Several threads take the sums, each of some blocks."""
        top = columns.start

        def part(rows: range) -> NDArray[np.float64]:
            return block_sums(panel[rows.start - top : rows.stop - top], rows, columns, sums=sums, vectors=vectors)

        return map_in_threads(part, blocks)

    def finish(self) -> None:
        """Every call has returned with its result: only the times are to be told."""
        self._track.settle()


def block_sums(
    inverse: NDArray[np.float64], rows: range, columns: range, *, sums: PanelSums, vectors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``sum(inverse * D)`` and ``v' D v`` of each matrix and vector over ``inv(A)[rows, columns]``, piece by piece."""
    left, right = vectors[rows.start : rows.stop], vectors[columns.start : columns.stop]
    total = np.zeros((len(sums.matrices), 1 + sums.forms))
    for matrix, found in zip(sums.matrices, total, strict=True):
        for start in range(0, len(columns), _PIECE):
            part = slice(start, min(start + _PIECE, len(columns)))
            piece = np.empty((len(rows), part.stop - part.start))
            matrix.read_filled(rows, columns[part], piece)
            found[0] += np.vdot(inverse[:, part], piece)
            found[1:] += np.einsum("iq,iq->q", left, piece @ right[part])
    return total


@final
class HostSolver(AbstractSolver):
    """The calling thread, and the threads of BLAS."""

    @contextmanager
    def opened(self, store: AbstractStore, run: Pass, needs: Needs = NOTHING) -> Iterator[HostSweeps]:
        """Sweeps over the store in place."""
        yield HostSweeps(store, needs.arrays, track_of_l(run, HOST_NAME))
