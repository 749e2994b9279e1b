"""``L.T W`` of a stored factor on the devices that made it, by one reading of L: what random vectors see of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.factor.device_sweeps import largest_narrow_bytes
from ooc_chol.dense.passes import track_of_l
from ooc_chol.dense.programs.layouts import slot_bytes_of
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.interfaces import AbstractArena, AbstractEvent, Tile
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.process.garbage_collector import collector_off
from ooc_chol.runtime.passes import Pass, Track, finish
from ooc_chol.runtime.shutdown import devices_closed
from ooc_chol.runtime.vectors import copy_columns_in, summed_vectors, vector_arrays, zeros

#: Streams of a device, each with tile columns of its own: one copies while the other multiplies.
LANES = 2
#: Tile columns that a stream may be behind with what is enqueued on it.
_AHEAD = 2


def gram_of_transpose(
    store: AbstractStore, devices: Sequence[TileDevice], vectors: NDArray[np.float64], run: Pass | None = None
) -> NDArray[np.float64]:
    """Compute ``Y.T @ Y`` of ``Y = L.T @ vectors``.

    Cost ``n**2 m`` flops and one reading of L. Rows k of Y are ``Y_k = sum_i L_ik.T w_i``, and their part is ``Y_k.T Y_k``: no
    tile column needs another, and each stream has a sum of its own.
    """
    run = run or Pass("certificate")
    with collector_off(), devices_closed(devices, ()):
        tracks = [track_of_l(run, device.name) for device in devices]
        lanes = [lane for device, track in zip(devices, tracks, strict=True) for lane in _open(device, store, vectors, track)]
        for column in range(store.grid.nt):  # the longest columns first, dealt back and forth
            turn, place = divmod(column, len(lanes))
            lanes[place if turn % 2 == 0 else -1 - place].enqueue(column)
        for lane in lanes:
            with lane.device.current():
                finish(lane.device, [lane.stream])
        for track in tracks:
            track.settle()
        total: NDArray[np.float64] = np.zeros((vectors.shape[1], vectors.shape[1]))
        for device in devices:
            sums = [lane.total for lane in lanes if lane.device is device]
            total += summed_vectors(device, sums, slot_bytes_of(store.grid))
        return total


def _open(device: TileDevice, store: AbstractStore, vectors: NDArray[np.float64], track: Track) -> list[_Lane]:
    """The streams of one device, each with a slot, and the vectors on it."""
    grid, (n, columns) = store.grid, vectors.shape
    nbytes = slot_bytes_of(grid)
    blocks = vector_arrays((grid.size(0), columns), LANES), vector_arrays((columns, columns), LANES)
    arrays = (*vector_arrays((n, columns), 1), *blocks[0], *blocks[1])
    arena = device.allocate(LANES, nbytes, grid.size(0), arrays, narrow_bytes=largest_narrow_bytes(store))
    track.resident_bytes = LANES * nbytes + sum(spec.nbytes for spec in arrays)
    lanes = [_Lane(device, store, arena, number, track) for number in range(LANES)]
    with device.current():
        copy_columns_in(device, lanes[0].stream, vectors, arena.arrays[0], slot_bytes=nbytes)
        for lane in lanes:
            lane.clear(lane.total)
        lanes[0].stream.synchronize()
    return lanes


class _Lane:
    """One stream of a device, its slot, and its sum of ``Y_k.T Y_k``."""

    def __init__(self, device: TileDevice, store: AbstractStore, arena: AbstractArena, number: int, track: Track) -> None:
        self.device, self._store, self._grid, self._arena, self._track = device, store, store.grid, arena, track
        self._number = number
        self._w, self._y_k, self.total = arena.arrays[0], arena.arrays[1 + number], arena.arrays[1 + LANES + number]
        with device.current():
            self._kernels = device.kernels.create_solves()
            self._name = f"product-{number}"
            self.stream = device.create_stream(self._name)
        self._ends: deque[AbstractEvent] = deque()

    def clear(self, array: Tile) -> None:
        """Enqueue: set an array to zero."""
        self.device.generate(self.stream, zeros, range(len(array)), range(array.shape[1]), array)

    def enqueue(self, k: int) -> None:
        """Enqueue all of tile column ``k``, once this stream is no further behind than :data:`_AHEAD` columns."""
        if len(self._ends) == _AHEAD:
            self._ends.popleft().synchronize()
        with self.device.current():
            y_k = self._y_k[: self._grid.size(k)]
            self.clear(y_k)
            for i in range(k, self._grid.nt):  # Y[k] += L[i, k].T @ w[i]
                l_ik, span, begun = self._fetched(i, k), self._grid.span(i), self._track.now(self.stream)
                self._kernels.add_product(self.stream, y_k, l_ik, self._w[span.start : span.stop], transposed=True)
                flops = 2 * self._grid.entries(i, k) * y_k.shape[1]
                self._track.ran("compute", (i, k), self._name, (begun, self._track.now(self.stream)), flops=flops)
            self._kernels.add_product(self.stream, self.total, y_k, y_k, transposed=True)
            self._ends.append(self.stream.record())

    def _fetched(self, i: int, k: int) -> Tile:
        """Tile ``(i, k)`` in the slot: copies and products of one stream run in order."""
        tile, begun = self._arena.tile(self._number, self._grid.shape(i, k)), self._track.now(self.stream)
        fmt = self._store.format_of((i, k))
        self.device.copy_in(self.stream, self._store, (i, k), tile)
        nbytes = fmt.stored_bytes(self._grid.entries(i, k))
        self._track.ran("fetch", (i, k), self._name, (begun, self._track.now(self.stream)), nbytes=nbytes, fmt=fmt.name)
        return tile
