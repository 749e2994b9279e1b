"""Rates of the copies between a device and what holds A and L."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TypeAlias

import numpy as np

from ooc_chol.interfaces import AbstractStream, AbstractTier
from ooc_chol.machine import HOST, kind_of, page_locked
from ooc_chol.memory.sources import SourceTier, as_source
from ooc_chol.memory.store import FileStore
from ooc_chol.memory.store_array import MemoryStore
from ooc_chol.rates.opened import OpenedDevice
from ooc_chol.tiling import TileGrid

#: Tile rows of the matrix that is read and written, and its order above which there are fewer.
_TILE_ROWS, _MOST_ROWS = 6, 16384
#: Most rounds over all tiles.
_MOST_ROUNDS = 10

#: Enqueues the copy of one tile.
Move: TypeAlias = Callable[[tuple[int, int]], None]
#: ``meet()`` returns once all devices that are measured have called it.
Meet: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class LinkTiers:
    """Two matrices A and two stores of L, which all devices that are measured at once share.

    Parameters
    ----------
    grid : TileGrid
        Their tiles.
    array, file : SourceTier
        A in memory, and in a file.
    memory_store : MemoryStore
        L in memory, page-locked where a GPU is measured.
    file_store : FileStore
        L in a file.
    """

    grid: TileGrid
    array: SourceTier
    file: SourceTier
    memory_store: MemoryStore
    file_store: FileStore


@contextmanager
def link_tiers(names: Sequence[str], nb: int) -> Iterator[LinkTiers]:
    """Make the tiers for the devices ``names`` at tile order ``nb``; files are temporary, and stay in the page cache."""
    grid = TileGrid(nb * min(_TILE_ROWS, max(2, _MOST_ROWS // nb)), nb)
    a = np.ones((grid.n, grid.n))
    memory, array = MemoryStore(grid), SourceTier(as_source(a), grid)
    with (
        tempfile.TemporaryDirectory(prefix="ooc_chol_rates_") as folder,
        page_locked(names, fresh=memory.host_memory(), filled=array.host_memory()),
    ):
        np.save(f"{folder}/a.npy", a)
        file, store = SourceTier(as_source(f"{folder}/a.npy"), grid), FileStore.create(f"{folder}/l.ooc", grid)
        for index in grid.tiles():
            for tier in (memory, store):
                tier.write(index, np.ones((nb, nb)))
        try:
            yield LinkTiers(grid, array, file, memory, store)
        finally:
            file.close()
            store.discard()


def measure_links(opened: OpenedDevice, tiers: LinkTiers, place: float, meet: Meet, seconds: float) -> dict[str, float]:
    """Bytes per second of reading A from memory and file, and of reading and writing L in both stores.

    Parameters
    ----------
    opened : OpenedDevice
        The device.
    tiers : LinkTiers
        What is read and written.
    place : float
        In ``[0, 1)``: where among the tiles this device begins, so that several do not copy the same at once.
    meet : callable
        Called before each measurement.
    seconds : float
        How long each measurement takes, at least.

    Returns
    -------
    dict of str to float
        ``array``, ``file``, ``memory-read``, ``memory-write``, ``file-read`` and ``file-write``. On a GPU each is the rate while
        L is written, or read, in the same store as fast as possible, since a factorization copies both ways at once (51 GB/s
        each way on an H200 with PCIe 5, 55 alone); there ``memory-read-alone`` and ``memory-write-alone`` are for comparison.
    """
    device, tile = opened.device, opened.tiles
    streams = opened.stream, device.create_stream("rates of writing")

    def read(tier: AbstractTier) -> tuple[AbstractStream, Move]:
        return streams[0], lambda index: device.copy_in(streams[0], tier, index, tile.work)

    def write(tier: AbstractTier) -> tuple[AbstractStream, Move]:
        return streams[1], lambda index: device.copy_out(streams[1], tile.load, tier, index)

    rates = partial(_rates, tiers.grid, place, meet, seconds)
    array, file, memory, store = read(tiers.array), read(tiers.file), read(tiers.memory_store), read(tiers.file_store)
    to_memory, to_file = write(tiers.memory_store), write(tiers.file_store)
    if kind_of(device.name) is HOST:
        found = {"memory-write": rates(to_memory), "file-write": rates(to_file), "array": rates(array), "file": rates(file)}
        found |= {"memory-read": rates(memory), "file-read": rates(store)}
        return {name: rate for name, (rate,) in found.items()}
    both = {"memory-read": rates(memory, to_memory), "file-read": rates(store, to_file)}
    both |= {"array": rates(array, to_memory), "file": rates(file, to_memory)}
    alone = {"memory-read-alone": rates(memory), "memory-write-alone": rates(to_memory)}
    writes = {f"{kind}-write": both[f"{kind}-read"][1] for kind in ("memory", "file")}
    return {name: found[0] for name, found in (both | alone).items()} | writes


def _tiles_from(grid: TileGrid, place: float) -> list[tuple[int, int]]:
    """All tiles of the lower triangle, from a place among them on."""
    tiles: list[tuple[int, int]] = list(grid.tiles())
    first = int(place * len(tiles))
    return tiles[first:] + tiles[:first]


def _rates(
    grid: TileGrid, place: float, meet: Meet, seconds: float, *directions: tuple[AbstractStream, Move]
) -> tuple[float, ...]:
    """Bytes per second of each direction while all of them run, over whole rounds after one that warms up."""
    tiles = _tiles_from(grid, place)
    meet()
    warm = max(_seconds_of(tiles, 1, directions))
    # Each device may find another number of rounds: while the last one goes on alone, most of its copies are done.
    rounds = min(_MOST_ROUNDS, max(1, ceil(seconds / max(warm, 1e-9))))
    meet()
    nbytes = rounds * sum(8 * grid.entries(*index) for index in tiles)
    return tuple(nbytes / each for each in _seconds_of(tiles, rounds, directions))


def _seconds_of(tiles: Sequence[tuple[int, int]], rounds: int, directions: Sequence[tuple[AbstractStream, Move]]) -> list[float]:
    """Seconds of each direction, enqueued tile by tile in turn; the second direction goes through the tiles backwards."""
    starts = [stream.record() for stream, _ in directions]
    for at in range(rounds * len(tiles)):
        for number, (_, move) in enumerate(directions):
            move(tiles[(-1 - at if number else at) % len(tiles)])
    ends = [stream.record() for stream, _ in directions]
    for end in ends:
        end.synchronize()
    return [(end.time_ns() - start.time_ns()) / 1e9 for start, end in zip(starts, ends, strict=True)]
