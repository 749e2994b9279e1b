"""``L (L.T W)`` of a stored factor on the devices that made it, by one reading of L: what random vectors see of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.dense.factor.device_sweeps import largest_narrow_bytes
from ooc_chol.dense.passes import Pass, Track, finish
from ooc_chol.dense.programs.layouts import slot_bytes_of
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.vectors import copy_columns_in, summed_vectors, vector_arrays, zeros
from ooc_chol.interfaces import NARROW_BUFFERS, AbstractArena, AbstractEvent, Tile
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.runtime.garbage_collector import collector_off
from ooc_chol.runtime.shutdown import devices_closed
from ooc_chol.tasks.tiling import Index

#: Streams of a device, each with tile columns of its own: one copies while the other multiplies.
LANES = 2
#: Tile columns that a stream may be behind with what is enqueued on it.
_AHEAD = 2


def product_with_transpose(
    store: AbstractStore,
    devices: Sequence[TileDevice],
    vectors: NDArray[np.float64],
    *,
    budget_bytes: int,
    run: Pass | None = None,
) -> NDArray[np.float64]:
    """Compute ``L @ (L.T @ vectors)``.

    Cost ``2 n**2 s`` flops and one reading of L, two where a tile column does not fit. Column k is ``W_k = sum_i L_ik.T w_i``,
    then ``y_i += L_ik W_k``: no column needs another, and each stream has sums of its own.
    """
    run = run or Pass("certificate")
    with collector_off(), devices_closed(devices, ()):
        tracks = [run.track(device.name) for device in devices]
        lanes = [
            lane
            for device, track in zip(devices, tracks, strict=True)
            for lane in _open(device, store, vectors, budget_bytes=budget_bytes, track=track)
        ]
        for column in range(store.grid.nt):  # the longest columns first, dealt back and forth
            turn, place = divmod(column, len(lanes))
            lanes[place if turn % 2 == 0 else -1 - place].enqueue(column)
        for lane in lanes:
            with lane.device.current():
                finish(lane.device, [lane.stream])
        for track in tracks:
            track.settle()
        total: NDArray[np.float64] = np.zeros(vectors.shape)
        for device in devices:
            sums = [lane.total for lane in lanes if lane.device is device]
            total += summed_vectors(device, sums, slot_bytes_of(store.grid))
        return total


def _open(
    device: TileDevice, store: AbstractStore, vectors: NDArray[np.float64], *, budget_bytes: int, track: Track
) -> list[_Lane]:
    """The streams of one device, with its memory shared among them and the vectors on it."""
    grid, shape = store.grid, vectors.shape
    nbytes, narrow = slot_bytes_of(grid), largest_narrow_bytes(store)
    arrays = vector_arrays(shape, 1 + LANES) + vector_arrays((grid.size(0), shape[1]), LANES)
    others = sum(spec.nbytes for spec in arrays) + device.kernels.workspace_bytes(grid.nb) + NARROW_BUFFERS * whole_pages(narrow)
    n_slots = max(1, min(grid.nt, (budget_bytes - others) // (LANES * nbytes)))
    arena = device.allocate(LANES * n_slots, nbytes, grid.size(0), arrays, narrow_bytes=narrow)
    track.resident_bytes = LANES * n_slots * nbytes + sum(spec.nbytes for spec in arrays)
    lanes = [_Lane(device, store, arena, number=number, n_slots=n_slots, track=track) for number in range(LANES)]
    with device.current():
        copy_columns_in(device, lanes[0].stream, vectors, arena.arrays[0], slot_bytes=nbytes)
        for lane in lanes:
            device.generate(lane.stream, zeros, range(grid.n), range(shape[1]), lane.total)
        lanes[0].stream.synchronize()
    return lanes


class _Lane:
    """One stream of a device, its slots, and its sum of ``L (L.T W)``."""

    def __init__(
        self, device: TileDevice, store: AbstractStore, arena: AbstractArena, *, number: int, n_slots: int, track: Track
    ) -> None:
        self.device, self._store, self._grid, self._arena, self._track = device, store, store.grid, arena, track
        self._slots = range(number * n_slots, (number + 1) * n_slots)
        self._w, self.total, self._inner = arena.arrays[0], arena.arrays[1 + number], arena.arrays[1 + LANES + number]
        with device.current():
            self._kernels = device.kernels.create_solves()
            self._name = f"product-{number}"
            self.stream = device.create_stream(self._name)
        self._ends: deque[AbstractEvent] = deque()

    def enqueue(self, k: int) -> None:
        """Enqueue all of tile column ``k``, once this stream is no further behind than :data:`_AHEAD` columns."""
        if len(self._ends) == _AHEAD:
            self._ends.popleft().synchronize()
        with self.device.current():
            inner = self._inner[: self._grid.size(k)]
            self.device.generate(self.stream, zeros, range(len(inner)), range(inner.shape[1]), inner)
            rows = range(k, self._grid.nt)
            for i in rows:  # W[k] += L[i, k].T @ w[i]
                self._add(inner, (i, k), self._fetched(i, k), self._rows(self._w, i), transposed=True)
            for i in reversed(rows):  # y[i] += L[i, k] @ W[k]
                tile = self._fetched(i, k) if self._is_gone(i, k) else self._tile(i, k)
                self._add(self._rows(self.total, i), (i, k), tile, inner)
            self._ends.append(self.stream.record())

    def _add(self, target: Tile, index: Index, l_ik: Tile, x: Tile, *, transposed: bool = False) -> None:
        """Enqueue ``target += L[i, k] @ x``, or with ``L[i, k].T``."""
        begun = self._track.now(self.stream)
        self._kernels.add_product(self.stream, target, l_ik, x, transposed=transposed)
        flops = 2 * self._grid.entries(*index) * x.shape[1]
        self._track.ran("compute", index, self._name, (begun, self._track.now(self.stream)), flops=flops)

    def _is_gone(self, i: int, k: int) -> bool:
        """Whether another tile of the column took the slot of tile ``(i, k)``: those that do not fit share the last one."""
        return len(self._slots) - 1 <= i - k < self._grid.nt - 1 - k

    def _tile(self, i: int, k: int) -> Tile:
        """The slot of tile ``(i, k)``."""
        return self._arena.tile(self._slots[min(i - k, len(self._slots) - 1)], self._grid.shape(i, k))

    def _fetched(self, i: int, k: int) -> Tile:
        """Tile ``(i, k)`` in its slot: copies and products of one stream run in order."""
        tile, begun, fmt = self._tile(i, k), self._track.now(self.stream), self._store.format_of((i, k))
        self.device.copy_in(self.stream, self._store, (i, k), tile)
        nbytes = fmt.stored_bytes(self._grid.entries(i, k))
        self._track.ran("fetch", (i, k), self._name, (begun, self._track.now(self.stream)), nbytes=nbytes, fmt=fmt)
        return tile

    def _rows(self, x: Tile, i: int) -> Tile:
        span = self._grid.span(i)
        return x[span.start : span.stop]
