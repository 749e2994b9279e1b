"""Tiles of A or L one after the other on the host: in place, or the next one read while this one is in use."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.passes import COMPUTES, COPIES, track_of_l
from ooc_chol.dense.stores.file import AbstractStore
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.process.threads import OwnThread, start, take, wait_out
from ooc_chol.runtime.passes import Moment, Pass, Track
from ooc_chol.tasks.tiling import Index, TileIndex

#: The host in traces.
HOST_NAME = "host:0"


class _Read(NamedTuple):
    """A tile, and between which moments it was read; None where it lies in memory, or no times are kept."""

    tile: NDArray[Any]
    is_copied: bool
    check: Callable[[], None] | None = None  # what is still to be done before it is used
    begun: Moment | None = None
    ended: Moment | None = None


def stream_tiles(
    store: AbstractStore, order: Sequence[TileIndex], track: Track | None = None, columns: int = 0
) -> Generator[tuple[TileIndex, NDArray[Any]], None, None]:
    """Yield tiles of L in the given order; a tile is valid until the next one is asked for.

    Close the generator (``contextlib.closing``): that ends its thread even when the loop over it fails. ``track`` is told of each
    tile, and that it was multiplied with so many columns meanwhile.
    """
    if not order:
        return
    if store.formats is not None or store.view(order[0]) is None:
        yield from read_ahead(store, order, track, columns)
        return
    track = track or track_of_l(Pass("tiles"), HOST_NAME)
    for index in order:
        tile = store.view(index)
        assert tile is not None  # a store has all its FP64 tiles in memory, or none
        track.nbytes += tile.nbytes
        begun = track.now()
        yield index, tile
        if begun is not None:
            _tell(track, index, begun, tile.size * columns)


def read_ahead(
    tier: AbstractStore | SourceTier, order: Sequence[TileIndex], track: Track | None = None, columns: int = 0
) -> Generator[tuple[TileIndex, NDArray[Any]], None, None]:
    """Yield tiles of A or L, each that is not in memory in its type read in a second thread while the one before it is in use."""
    grid = tier.grid
    largest = max(grid.entries(*index) for index in order)
    buffers = [np.empty(largest, tier.fmt.dtype), np.empty(largest, tier.fmt.dtype)]
    track = track or track_of_l(Pass("tiles"), HOST_NAME)
    track.resident_bytes = sum(buffer.nbytes for buffer in buffers)

    def read(position: int) -> _Read:
        index = order[position]
        view = tier.view(index)
        if view is not None:
            return _Read(view, False)
        tile = buffers[position % 2][: grid.entries(*index)].reshape(grid.shape(*index))
        begun = track.now()
        check = tier.read_unchecked(index, tile)
        return _Read(tile, True, check, begun, track.now())

    asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    answers: queue.SimpleQueue[_Read | BaseException] = queue.SimpleQueue()
    reader = OwnThread(_answer, (read, asked, answers), "read-ahead")
    steps: list[int | None] = [None, None]  # that used a buffer last
    try:
        asked.put(0)
        start(reader)
        for position, index in enumerate(order):
            found = take(answers)
            if isinstance(found, BaseException):
                raise found
            # The buffer of position + 1 is free: its last tile, position - 1, went out of use when this one was asked for.
            if position + 1 < len(order):
                asked.put(position + 1)
            if found.is_copied:
                fmt = tier.format_of(index)
                nbytes, span = fmt.stored_bytes(found.tile.size), (found.begun, found.ended)
                track.ran("fetch", index, COPIES, span, nbytes=nbytes, fmt=fmt.name, after=steps[position % 2])
            else:
                track.nbytes += found.tile.nbytes
            if found.check is not None:  # here, as the reading thread is the slower one
                found.check()
            begun = track.now()
            yield index, found.tile
            steps[position % 2] = _tell(track, index, begun, found.tile.size * columns)
    finally:
        asked.put(None)
        wait_out([reader])


def _tell(track: Track, index: Index, begun: Moment | None, products: int) -> int | None:
    """Tell of a tile that was in use from ``begun`` until now; a substitution takes half of a product's flops."""
    if begun is None:
        return None
    return track.ran("compute", index, COMPUTES, (begun, track.now()), flops=products * (1 if index[0] == index[1] else 2))


def _answer(
    read: Callable[[int], _Read], asked: queue.SimpleQueue[int | None], answers: queue.SimpleQueue[_Read | BaseException]
) -> None:
    """Read what is asked for until nothing more is; a thread's body."""
    while (position := asked.get()) is not None:
        try:
            answers.put(read(position))
        except BaseException as error:  # raised by the thread that waits for the tile
            answers.put(error)
