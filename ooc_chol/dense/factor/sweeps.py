"""Triangular sweeps over a stored factor on one device: its tiles stream through, right-hand sides stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.vectors import Columns
from ooc_chol.errors import BudgetError
from ooc_chol.formats import FP64
from ooc_chol.interfaces import NARROW_BUFFERS, AbstractEvent, ArraySpec, Tile
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.tasks.tiling import TileGrid, TileIndex

#: Slots through which tiles pass that the device does not keep.
IN_TRANSIT = 4


def needed_bytes(device: TileDevice, store: AbstractStore) -> int:
    """Bytes that a device needs for sweeps beside right-hand sides: slots in transit, workspace, buffers of narrow formats."""
    grid = store.grid
    return (
        IN_TRANSIT * slot_bytes(grid)
        + device.kernels.workspace_bytes(grid.nb)
        + NARROW_BUFFERS * whole_pages(largest_narrow_bytes(store))
    )


def slot_bytes(grid: TileGrid) -> int:
    """Bytes of a slot."""
    return whole_pages(FP64.itemsize * grid.size(0) ** 2)


def largest_narrow_bytes(store: AbstractStore) -> int:
    """Stored bytes of the largest tile of a narrow format; 0 where all are FP64."""
    if store.formats is None:
        return 0
    sizes = (
        fmt.stored_bytes(store.grid.entries(*index))
        for index, fmt in zip(store.grid.tiles(), store.formats, strict=True)
        if fmt != FP64
    )
    return max(sizes, default=0)


@final
class TriangularSweeps:
    """Solves ``L y = x`` and ``L.T y = x`` on one device, with right-hand sides that lie there.

    What the budget leaves holds tiles of L for later sweeps, the last in stored order first: all sweeps over trailing triangles
    need those.
    """

    def __init__(
        self, device: TileDevice, store: AbstractStore, *, budget_bytes: int, entries: int, arrays: Sequence[ArraySpec] = ()
    ) -> None:
        self.device, self._store, self.grid = device, store, store.grid
        specs = [ArraySpec(np.dtype(np.float64), (entries,)), *arrays]
        nbytes, narrow = slot_bytes(self.grid), largest_narrow_bytes(store)
        fixed = needed_bytes(device, store) + sum(spec.nbytes for spec in specs)
        if fixed > budget_bytes:
            advice = "solve with fewer columns at a time, or give a larger memory_budget"
            raise BudgetError(f"right-hand sides on {device.name}", fixed, budget_bytes, advice)
        self._n_held = min(self.grid.n_tiles, (budget_bytes - fixed) // nbytes)
        self._arena = device.allocate(IN_TRANSIT + self._n_held, nbytes, self.grid.nb, specs, narrow_bytes=narrow)
        self._entries, *others = self._arena.arrays
        self.others: tuple[Any, ...] = tuple(others)
        self.kernels = device.kernels.create_solves()
        self.stream, self._copies = device.create_stream("solve"), device.create_stream("solve copy-in")
        self._held: set[TileIndex] = set()
        self._used: list[AbstractEvent | None] = [None] * IN_TRANSIT
        self._next = 0

    def array(self, rows: int, columns: int) -> Tile:
        """The one large array, as a ``(rows, columns)`` one."""
        return self._entries[: rows * columns].reshape(rows, columns)

    def rows(self, x: Tile, i: int, first: int) -> Tile:
        """The rows of ``x`` that belong to tile row ``i``; ``x`` begins with tile row ``first``."""
        span, top = self.grid.span(i), self.grid.start(first)
        return x[span.start - top : span.stop - top]

    def solve(self, x: Tile, *, first: int = 0, transposed: bool = False) -> None:
        """Enqueue: solve ``L y = x``, or ``L.T y = x``, in place.

        Cost ``(n - n0)**2 m`` flops. Copies of tiles run ahead by :data:`IN_TRANSIT`.
        """
        order = list(self.grid.tiles(first))
        for index in reversed(order) if transposed else order:
            (i, j), (slot, tile) = index, self._fetch(index)
            x_i, x_j = self.rows(x, i, first), self.rows(x, j, first)
            if i == j:  # x[k] = inv(L[k, k]) @ x[k]
                self.kernels.substitute(self.stream, tile, x_i, transposed=transposed)
            elif transposed:  # x[j] -= L[i, j].T @ x[i]
                self.kernels.subtract(self.stream, x_j, tile, x_i, transposed=True)
            else:  # x[i] -= L[i, j] @ x[j]
                self.kernels.subtract(self.stream, x_i, tile, x_j, transposed=False)
            if slot is not None:
                self._used[slot] = self.stream.record()

    def _fetch(self, index: TileIndex) -> tuple[int | None, Tile]:
        """A tile that the stream may use, and the slot in transit that it is in; None where it is kept."""
        shape = self.grid.shape(*index)
        kept = self.grid.n_tiles - 1 - self.grid.packed(*index)
        if kept < self._n_held:
            tile = self._arena.tile(IN_TRANSIT + kept, shape)
            if index not in self._held:
                self._held.add(index)
                self._copy(index, tile)
            return None, tile
        slot = self._next
        self._next = (slot + 1) % IN_TRANSIT
        used = self._used[slot]
        if used is not None:
            self._copies.wait(used)
        tile = self._arena.tile(slot, shape)
        self._copy(index, tile)
        return slot, tile

    def _copy(self, index: TileIndex, tile: Tile) -> None:
        self.device.copy_in(self._copies, self._store, index, tile)
        self.stream.wait(self._copies.record())

    def copy_in(self, target: Tile, x: NDArray[np.float64], columns: slice) -> None:
        """Enqueue: fill ``target`` with some columns of a host array."""
        blocks = self._blocks(target, x, columns)
        for block in range(len(blocks)):
            self.device.copy_in(self.stream, blocks, (block, 0), target[blocks.rows(block)])

    def copy_out(self, source: Tile, x: NDArray[np.float64], columns: slice) -> None:
        """Enqueue: copy ``source`` to some columns of a host array."""
        blocks = self._blocks(source, x, columns)
        for block in range(len(blocks)):
            self.device.copy_out(self.stream, source[blocks.rows(block)], blocks, (block, 0))

    def _blocks(self, tile: Tile, x: NDArray[np.float64], columns: slice) -> Columns:
        """Blocks of rows that fit the device's staging buffers, which hold a tile of L."""
        return Columns(x, columns, max(1, self.grid.size(0) ** 2 // tile.shape[1]))

    def finish(self) -> None:
        """Wait for the stream; raise what went wrong on the way."""
        self.stream.synchronize()
        if (failure := self.device.failure()) is not None:
            raise failure
