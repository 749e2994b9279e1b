"""Random vectors ``W = [U, V]`` beside tiles: sums ``Z_j = sum_i T_ij.T W_i`` of tile columns, and what they show in the end.

For the tiles on and below the diagonal of A, the diagonal ones halved, ``U.T A V = Z_U.T V + U.T Z_V``; for those of L,
``U.T L L.T V = Z_U.T Z_V``. So a tile is multiplied once and needed no more, wherever it happens to be. Where each tile of A is
multiplied as what mirrors it, too, ``Z = A W``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractEvent, AbstractStream, ArraySpec, Tile
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.runtime.vectors import copy_columns_in, copy_columns_out, vector_arrays, zeros
from ooc_chol.tasks.tiling import TileGrid


def probe_arrays(n: int, columns: int, n_sums: int = 1, workspace_bytes: int = 0) -> tuple[ArraySpec, ...]:
    """The arrays of :class:`ProbedSums` on a device.

    Workspace for a stream that has none, W, sums of so many streams, and a square for what is read in the end.
    """
    sums = vector_arrays((n, columns), 1 + n_sums)
    return (*vector_arrays((workspace_bytes // 8,), 1), *sums, *vector_arrays((columns, columns), 1))


@final
class ProbedSums:
    """``Z`` of the tiles that one device meets; each stream adds to sums of its own, so that none waits for another."""

    def __init__(self, grid: TileGrid, device: TileDevice, arrays: Sequence[Tile], slot_bytes: int) -> None:
        self._grid, self._device, self._slot_bytes = grid, device, slot_bytes
        self._workspace, self._w, *self._sums, self._square = arrays
        self._kernels = device.kernels.create_solves()
        spans = [grid.span(i) for i in range(grid.nt)]
        #: Views of tile rows: cutting one anew takes 5 microseconds of a thread that has 50 for a tile.
        self._rows_of_w, *self._rows_of_sums = (
            [array[span.start : span.stop] for span in spans] for array in (self._w, *self._sums)
        )
        self._numbers: dict[str, int] = {}
        self._there: AbstractEvent | None = None

    def start(self, stream: AbstractStream, vectors: NDArray[np.float64]) -> None:
        """Enqueue the journey of W to the device, which other streams wait for; ``vectors`` must live as long.

        Where there is workspace, the stream is to have it.
        """
        if self._workspace.size:
            self._kernels.lend(stream, self._workspace)
        copy_columns_in(self._device, stream, vectors, self._w, slot_bytes=self._slot_bytes)
        self._there = stream.record()

    def add(self, stream: AbstractStream, block: Tile, rows: range, column: int, *, halved: bool = False) -> int:
        """Enqueue ``Z[j] += T[rows, j].T @ W[rows]`` of tiles one below the other, or half of it; returns the flops."""
        target, w_rows = self._rows_of_sums[self._of(stream)][column], self._rows(self._rows_of_w, self._w, rows)
        self._kernels.add_product(stream, target, block, w_rows, transposed=True, halved=halved)
        return int(2 * block.shape[0] * block.shape[1] * self._w.shape[1])

    def add_mirrored(self, stream: AbstractStream, block: Tile, rows: range, column: int) -> int:
        """Enqueue ``Z[j] += A[rows, j].T @ W[rows]`` and, off the diagonal, ``Z[rows] += A[rows, j] @ W[j]``; the flops."""
        flops = self.add(stream, block, rows, column)
        if rows.start == column:
            return flops
        number = self._of(stream)
        target = self._rows(self._rows_of_sums[number], self._sums[number], rows)
        self._kernels.add_product(stream, target, block, self._rows_of_w[column])
        return 2 * flops

    def _rows(self, views: Sequence[Tile], whole: Tile, rows: range) -> Tile:
        """The part of an array that belongs to tile rows."""
        if len(rows) == 1:
            return views[rows.start]
        return whole[self._grid.span(rows[0]).start : self._grid.span(rows[-1]).stop]

    def with_vectors(self, stream: AbstractStream) -> NDArray[np.float64]:
        """``W.T @ Z`` on the host; the streams that added must be done."""
        self._clear(stream, self._square)
        for number in self._in_order():
            for w_j, z_j in zip(self._rows_of_w, self._rows_of_sums[number], strict=True):
                self._kernels.add_product(stream, self._square, w_j, z_j, transposed=True)
        return self._read(stream)

    def with_themselves(self, stream: AbstractStream, others: Sequence[ProbedSums] = ()) -> NDArray[np.float64]:
        """``Z.T @ Z`` on the host, of the sums of this device and of ``others``; the streams that added must be done."""
        first, *rest = self._in_order() or [self._of(stream)]
        for number in rest:
            self._add_to(stream, self._sums[first], self._sums[number])
        for other in others:
            for number in other._in_order():  # W is needed no more, and makes room
                self._device.copy_between(stream, other._sums[number], self._w)
                self._add_to(stream, self._sums[first], self._w)
        self._clear(stream, self._square)
        for z_k in self._rows_of_sums[first]:
            self._kernels.add_product(stream, self._square, z_k, z_k, transposed=True)
        return self._read(stream)

    def total(self, stream: AbstractStream) -> NDArray[np.float64]:
        """``Z`` on the host; the streams that added must be done."""
        first, *rest = self._in_order() or [self._of(stream)]
        for number in rest:
            self._add_to(stream, self._sums[first], self._sums[number])
        found = np.empty(self._sums[first].shape)
        copy_columns_out(self._device, stream, self._sums[first], found, slot_bytes=self._slot_bytes)
        stream.synchronize()
        return found

    def _of(self, stream: AbstractStream) -> int:
        """The number of a stream's sums, which are zero at its first use."""
        number = self._numbers.get(stream.name)
        if number is None:
            number = self._numbers[stream.name] = len(self._numbers)
            if number == len(self._sums):
                raise RuntimeError(f"stream {stream.name} has tiles for probes, but all {number} sums are taken")
            assert self._there is not None  # started
            stream.wait(self._there)
            self._clear(stream, self._sums[number])
        return number

    def _in_order(self) -> list[int]:
        """The sums that streams added to, in the order of the streams' names, which no chance decides."""
        return [self._numbers[name] for name in sorted(self._numbers)]

    def _clear(self, stream: AbstractStream, array: Tile) -> None:
        self._device.generate(stream, zeros, range(len(array)), range(array.shape[1]), array)

    def _add_to(self, stream: AbstractStream, target: Tile, other: Tile) -> None:
        def add(rows: range, cols: range, out: Tile, stream: Any) -> None:
            out += other

        self._device.generate(stream, add, range(len(target)), range(target.shape[1]), target)

    def _read(self, stream: AbstractStream) -> NDArray[np.float64]:
        found = np.empty(self._square.shape)
        copy_columns_out(self._device, stream, self._square, found, slot_bytes=self._slot_bytes)
        stream.synchronize()
        return found


def form_of_matrix(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """``U.T @ A @ V`` by ``W.T @ Z`` of A's tiles."""
    s = len(products) // 2
    with np.errstate(over="ignore", invalid="ignore"):  # of entries that are no numbers; the factorization names them
        form: NDArray[np.float64] = products[s:, :s].T + products[:s, s:]
    return form


def form_of_factor(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """``U.T @ L @ L.T @ V`` by ``Z.T @ Z`` of L's tiles."""
    s = len(products) // 2
    return products[:s, s:]
