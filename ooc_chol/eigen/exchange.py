"""Rows and sums that other processes have: an all-gather in lockstep, which devices of a space copy to and from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.space_device import SpaceDevice
from ooc_chol.formats import TYPES, PrecisionFormat
from ooc_chol.interfaces import AbstractEvent, AbstractTier, BlockIndex, Tile
from ooc_chol.precision.triples import Precision

#: Multiples of bytes at which arrays begin in a piece.
_ALIGNMENT = 64
#: Bytes behind the pieces, for flags of a device on their way to the host.
_FLAG_BYTES = 256
#: Types of numbers that are exchanged, by their bytes.
_NUMBERS = {each.itemsize: each for each in (Precision.FFF.storage, Precision.DDD.storage)}


class Window(NamedTuple):
    """Numbers in the bytes of a process: how a tier calls them."""

    turn: int  #: Step, of which every second one has the same memory
    rank: int
    first: int  #: First byte
    rows: int
    columns: int
    itemsize: int

    def of(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        """These numbers, among all bytes of the process for such steps."""
        nbytes = self.rows * self.columns * self.itemsize
        return data[self.first : self.first + nbytes].view(_NUMBERS[self.itemsize]).reshape(self.rows, self.columns)


class WindowTier(AbstractTier):
    """Bytes of processes as blocks, by :class:`Window`."""

    name = "exchange"

    def __init__(self, memory: Callable[[int, int], NDArray[np.uint8]]) -> None:
        self._memory = memory  # by step and rank

    def view(self, index: BlockIndex) -> NDArray[Any]:
        window = Window(*index)
        return window.of(self._memory(window.turn, window.rank))

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        return TYPES[_NUMBERS[Window(*index).itemsize].name]

    def read(self, index: BlockIndex, out: NDArray[Any]) -> None:
        out[...] = self.view(index)

    def write(self, index: BlockIndex, data: NDArray[Any]) -> None:
        self.view(index)[...] = data


class AbstractExchange(ABC):
    """Processes that hold rows of a space each, and give each other bytes in steps: every one of them takes all steps."""

    rank: int  #: Number of this process among them
    rows: tuple[range, ...]  #: Rows of each, in their order
    piece_bytes: int  #: Most bytes that each gives in a step
    tier: WindowTier  #: Bytes of this step and of the last, in host memory
    step: int  #: The step to come, from 0 on

    def tier_of(self, device: str) -> WindowTier:
        """The bytes that a device copies: those in host memory, or others that it reaches faster."""
        return self.tier

    @abstractmethod
    def publish(self, nbytes: int) -> None:
        """Let the others have the first bytes of this step; those of the last step are read here by now."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until all have published this step; the next one begins. Raises ``ClusterError`` where one of them has gone."""


class Gathered(NamedTuple):
    """An array of which every device gets all rows, and has its own."""

    own: Callable[[SpaceDevice], Tile]
    whole: Callable[[SpaceDevice], Tile]


@final
class RemoteRows:
    """Gathers arrays over all processes on the devices of this one; whoever calls waits for the others."""

    def __init__(self, exchange: AbstractExchange, devices: Sequence[SpaceDevice]) -> None:
        self._exchange, self._devices = exchange, devices
        self._streams = []
        for each in devices:
            with each.device.current():
                self._streams.append(each.device.create_stream("give"))
        self._reading: list[AbstractEvent] = []  # behind what devices read of the last step
        self.received_bytes = 0  #: Bytes that came from other processes

    def gather(self, arrays: Sequence[Gathered], ready: Sequence[AbstractEvent], *, of_chunks: bool) -> None:
        """Enqueue: rows of arrays, or chunks, that other processes have, once those of each device are ``ready``.

        Copies to devices are in their streams for that, behind what is there. Pieces leave while others arrive.
        """
        for each, stream, done in zip(self._devices, self._streams, ready, strict=True):
            with each.device.current():
                stream.wait(done)
        spans = [self._span(rows, of_chunks) for rows in self._exchange.rows]
        layout = _Layout.of([array.whole(self._devices[0]) for array in arrays], self._exchange.piece_bytes)
        for first in range(0, max(map(len, spans)), layout.height):
            parts = [span[first : first + layout.height] for span in spans]
            self._give(arrays, parts[self._exchange.rank], layout, of_chunks=of_chunks)
            step = self._exchange.step
            self._exchange.wait()
            self._take(arrays, parts, layout, step)

    def is_set(self, flags: Callable[[SpaceDevice], Tile]) -> bool:
        """Tell whether one of some flags is not 0, which all devices have alike; waits for the first device."""
        each, exchange = self._devices[0], self._exchange
        with each.device.current():
            bits = flags(each).view(_NUMBERS[4]).reshape(1, -1)
            window = Window(exchange.step, exchange.rank, exchange.piece_bytes - _FLAG_BYTES, 1, bits.shape[1], 4)
            each.device.copy_out(each.computing, bits, exchange.tier, window)
            each.computing.record().synchronize()
        return bool(exchange.tier.view(window).view(np.uint32).any())

    def _span(self, rows: range, of_chunks: bool) -> range:
        height = self._devices[0].plan.products.blocks.chunk_rows if of_chunks else 1
        return range(rows.start // height, -(-rows.stop // height))

    def _give(self, arrays: Sequence[Gathered], part: range, layout: _Layout, *, of_chunks: bool) -> None:
        """Copy a part of this process's rows to where others take it, and let them."""
        exchange, copied = self._exchange, list[AbstractEvent]()
        for each, stream in zip(self._devices, self._streams, strict=True):
            own = each.chunks if of_chunks else each.rows
            low, high = max(part.start, own.start), min(part.stop, own.stop)
            if low < high:
                with each.device.current():
                    for number, array in enumerate(arrays):
                        source = array.own(each)[low - own.start : high - own.start].reshape(high - low, -1)
                        window = layout.window(number, exchange.step, exchange.rank, range(low - part.start, high - part.start))
                        each.device.copy_out(stream, source, exchange.tier_of(each.device.name), window)
                    copied.append(stream.record())
        for event in (*copied, *self._reading):
            event.synchronize()
        exchange.publish(layout.end if len(part) else 0)

    def _take(self, arrays: Sequence[Gathered], parts: Sequence[range], layout: _Layout, step: int) -> None:
        """Enqueue copies of what other processes gave in a step."""
        self._reading = []
        for each in self._devices:
            tier = self._exchange.tier_of(each.device.name)
            with each.device.current():
                for rank, part in enumerate(parts):
                    if rank != self._exchange.rank and len(part):
                        for number, array in enumerate(arrays):
                            target = array.whole(each)[part.start : part.stop].reshape(len(part), -1)
                            window = layout.window(number, step, rank, range(len(part)))
                            each.device.copy_in(each.products.peer, tier, window, target)
                            self.received_bytes += target.nbytes
                self._reading.append(each.products.peer.record())


class _Layout(NamedTuple):
    """Places of arrays in the bytes of a process: so many rows of each, one array behind the other."""

    height: int  #: Rows of each array in a step
    firsts: tuple[int, ...]
    columns: tuple[int, ...]
    itemsizes: tuple[int, ...]
    end: int  #: Bytes in all

    @classmethod
    def of(cls, arrays: Sequence[Tile], most: int) -> _Layout:
        """Layout of as many rows as find room in ``most`` bytes."""
        row_bytes = [array.nbytes // len(array) for array in arrays]
        height = max(1, (most - _FLAG_BYTES - _ALIGNMENT * len(arrays)) // sum(row_bytes))
        height = min(height, max(map(len, arrays)))
        firsts, end = [], 0
        for nbytes in row_bytes:
            firsts.append(end)
            end += -(-height * nbytes // _ALIGNMENT) * _ALIGNMENT
        sizes = tuple(array.dtype.itemsize for array in arrays)
        columns = tuple(nbytes // size for nbytes, size in zip(row_bytes, sizes, strict=True))
        return cls(height, tuple(firsts), columns, sizes, end)

    def window(self, number: int, step: int, rank: int, rows: range) -> Window:
        """Some rows of an array, counted from the first of the step on."""
        columns, itemsize = self.columns[number], self.itemsizes[number]
        return Window(step, rank, self.firsts[number] + rows.start * columns * itemsize, len(rows), columns, itemsize)
