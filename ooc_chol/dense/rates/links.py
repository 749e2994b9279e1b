"""Rates of the copies between a device and what holds A and L."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TypeAlias

import numpy as np

from ooc_chol.dense.rates.opened import OpenedDevice
from ooc_chol.dense.stores.array import MemoryStore
from ooc_chol.dense.stores.file import FileStore
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.hardware.registry import device_kind, page_locked
from ooc_chol.interfaces import AbstractEvent, AbstractStream, AbstractTier
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.memory.sources import as_source
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.tasks.tiling import TileGrid

#: Tile rows of the matrix that is read and written, and its order above which there are fewer, for GPUs and for the host, whose
#: memory it shares; two where it is to be quick.
_TILE_ROWS, _MOST_ROWS, _MOST_HOST_ROWS, _QUICK_TILE_ROWS = 6, 16384, 6144, 2
#: Most rounds over all tiles.
_MOST_ROUNDS = 10

#: Enqueues the copy of one tile.
Move: TypeAlias = Callable[[tuple[int, int]], None]
#: A stream of one device, what moves a tile on it, and whether it goes through the tiles backwards.
Direction: TypeAlias = tuple[AbstractStream, Move, bool]
#: A device, and what it does at once.
Work: TypeAlias = tuple[TileDevice, Sequence[Direction]]


@dataclass(frozen=True)
class LinkTiers:
    """Two matrices A and two stores of L, which all devices that are measured at once share."""

    grid: TileGrid
    array: SourceTier  #: A in memory
    file: SourceTier  #: A in a file
    memory_store: MemoryStore  #: L in memory, page-locked where a GPU is measured
    file_store: FileStore  #: L in a file, which is only read: several devices write tiles of one file in no order
    written_file: FileStore  #: L in a file, which is only written


@contextmanager
def link_tiers(names: Sequence[str], nb: int, *, quick: bool = False) -> Iterator[LinkTiers]:
    """Make the tiers for the devices ``names`` at tile order ``nb``; files are temporary, and stay in the page cache."""
    most = _MOST_HOST_ROWS if device_kind(names[0]).is_in_host_memory else _MOST_ROWS
    grid = TileGrid(nb * min(_QUICK_TILE_ROWS if quick else _TILE_ROWS, max(2, most // nb)), nb)
    a = np.ones((grid.n, grid.n))
    memory, array = MemoryStore(grid), SourceTier(as_source(a), grid)
    with (
        tempfile.TemporaryDirectory(prefix="ooc_chol_rates_") as folder,
        page_locked(names, fresh=memory.host_memory(), filled=[array.host_memory()]),
        ExitStack() as owned,
    ):
        np.save(f"{folder}/a.npy", a)
        file = SourceTier(as_source(f"{folder}/a.npy"), grid)
        owned.callback(file.close)
        stores = []
        for name in ("read", "written"):
            with HeldInterrupts():
                store = FileStore.create(f"{folder}/{name}.ooc", grid)
                owned.callback(store.discard)
            stores.append(store)
        for index in grid.tiles():
            for tier in (memory, *stores):
                tier.write(index, np.ones((nb, nb)))
        yield LinkTiers(grid, array, file=file, memory_store=memory, file_store=stores[0], written_file=stores[1])


def measure_links(opened: Sequence[OpenedDevice], tiers: LinkTiers, seconds: float) -> list[dict[str, float]]:
    """Bytes per second of reading A from memory and file, and of reading and writing L in both stores, on all devices at once."""
    ways = [_Ways(each, tiers) for each in opened]

    def rates(read: str | None, write: str | None) -> list[tuple[float, ...]]:
        return _rates(tiers.grid, [(way.device, way.directions(read, write)) for way in ways], seconds)

    if device_kind(opened[0].device.name).is_in_host_memory:
        alone = {"memory-write": (None, "memory"), "file-write": (None, "file"), "array": ("array", None), "file": ("file", None)}
        alone |= {"memory-read": ("memory", None), "file-read": ("store", None)}
        found = {name: rates(*which) for name, which in alone.items()}
        return [{name: each[number][0] for name, each in found.items()} for number in range(len(opened))]
    memory, store = rates("memory", "memory"), rates("store", "file")
    array, file = rates("array", "memory"), rates("file", "memory")
    read_alone, write_alone = rates("memory", None), rates(None, "memory")
    return [
        {
            "memory-read": memory[number][0],
            "memory-write": memory[number][1],
            "file-read": store[number][0],
            "file-write": store[number][1],
            "array": array[number][0],
            "file": file[number][0],
            "memory-read-alone": read_alone[number][0],
            "memory-write-alone": write_alone[number][0],
        }
        for number in range(len(opened))
    ]


class _Ways:
    """Transfers of one device, to be measured."""

    def __init__(self, opened: OpenedDevice, tiers: LinkTiers) -> None:
        self.device, self._tiles = opened.device, opened.tiles
        self._reading, self._writing = opened.stream, opened.device.create_stream("rates of writing")
        self._sources = {"array": tiers.array, "file": tiers.file, "memory": tiers.memory_store, "store": tiers.file_store}
        self._stores = {"memory": tiers.memory_store, "file": tiers.written_file}

    def directions(self, read: str | None, write: str | None) -> list[Direction]:
        """The copies of a measurement; of two, writes go through the tiles backwards."""
        found: list[Direction] = []
        if read is not None:
            found.append((self._reading, partial(self._read, self._sources[read]), False))
        if write is not None:
            found.append((self._writing, partial(self._write, self._stores[write]), read is not None))
        return found

    def _read(self, tier: AbstractTier, index: tuple[int, int]) -> None:
        self.device.copy_in(self._reading, tier, index, self._tiles.work)

    def _write(self, tier: AbstractTier, index: tuple[int, int]) -> None:
        self.device.copy_out(self._writing, self._tiles.load, tier, index)


def _rates(grid: TileGrid, devices: Sequence[Work], seconds: float) -> list[tuple[float, ...]]:
    """Bytes per second of each direction of each device while all of them run, over whole rounds after one that warms up."""
    tiles = list(grid.tiles())
    warm = max(max(each) for each in _seconds_of(tiles, 1, devices))
    rounds = min(_MOST_ROUNDS, max(1, ceil(seconds / max(warm, 1e-9))))
    nbytes = rounds * sum(8 * grid.entries(*index) for index in tiles)
    return [tuple(nbytes / each for each in found) for found in _seconds_of(tiles, rounds, devices)]


def _seconds_of(tiles: Sequence[tuple[int, int]], rounds: int, devices: Sequence[Work]) -> list[tuple[float, ...]]:
    """Seconds of each direction of each device, enqueued tile by tile in turn; each device begins at another tile."""
    starts = [_record(*work) for work in devices]
    for at in range(rounds * len(tiles)):
        for number, (device, directions) in enumerate(devices):
            place = at + number * len(tiles) // len(devices)
            with device.current():
                for _, move, is_backward in directions:
                    move(tiles[(-1 - place if is_backward else place) % len(tiles)])
    ends = [_record(*work) for work in devices]
    for end in (end for each in ends for end in each):
        end.synchronize()
    return [
        tuple((end.time_ns() - start.time_ns()) / 1e9 for start, end in zip(*pair, strict=True))
        for pair in zip(starts, ends, strict=True)
    ]


def _record(device: TileDevice, directions: Sequence[Direction]) -> list[AbstractEvent]:
    """A new event on the stream of each direction."""
    with device.current():
        return [stream.record() for stream, _, _ in directions]
