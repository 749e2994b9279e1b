"""Blocks in a fixed order through one device: some stay, the others pass through a ring of slots, copies ahead of the kernels.

A cyclic scan over more blocks than a device holds keeps some of them for good: the best rule of eviction, which knows all that
comes, saves less than one copy a scan beside that (docs/decisions/0018-sparse-blocks.md). So there is no policy here: whoever
made the plan says which blocks are kept, and where.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Generic, NamedTuple, TypeVar, final

from ooc_chol.errors import ScheduleError
from ooc_chol.formats import FP64
from ooc_chol.interfaces import AbstractEvent, AbstractStream, AnyDevice, BlockIndex, Tile
from ooc_chol.runtime.passes import Track, finish

KeyT = TypeVar("KeyT", bound=BlockIndex)


class AbstractScanned(ABC, Generic[KeyT]):
    """The blocks of a scan: where each is on the device, and how it comes there."""

    def in_place(self, key: KeyT) -> Tile | None:
        """The block where it is stored, if kernels read it there: nothing is copied, and nothing waited for."""
        return None

    @abstractmethod
    def is_kept(self, key: KeyT) -> bool:
        """Tell whether the block has a place of its own, in which it stays; always the same answer."""

    @abstractmethod
    def place(self, key: KeyT, slot: int | None) -> Tile:
        """Where the block is on the device: in a slot of the ring, or in its own place if ``slot`` is None."""

    @abstractmethod
    def bring(self, stream: AbstractStream, key: KeyT, tile: Tile) -> None:
        """Enqueue the copy of the block to ``tile``."""

    @abstractmethod
    def nbytes(self, key: KeyT) -> int:
        """Bytes of the block as they are stored: what a copy takes over the link."""

    def format_of(self, key: KeyT) -> str:
        """Name of the format in which the block is stored, for the trace."""
        return FP64.name


class ScanStreams(NamedTuple):
    """Streams of a scan with their names in a trace; a device's own name of a stream says the device too."""

    computing: AbstractStream  #: In which blocks are used
    copying: AbstractStream  #: In which they are brought
    computes: str = "compute"
    copies: str = "copy-in"

    @classmethod
    def of(cls, device: AnyDevice, computes: str = "compute", copies: str = "copy-in") -> ScanStreams:
        """Two new streams of a device."""
        return cls(device.create_stream(computes), device.create_stream(copies), computes, copies)


class _Copy(NamedTuple):
    """A copy that was enqueued, whose block was not used yet."""

    key: BlockIndex
    tile: Tile
    slot: int | None  #: None in a place of its own
    done: AbstractEvent
    step: int | None  #: In the trace
    nbytes: int


@final
class BlockScan(Generic[KeyT]):
    """Brings blocks to a device in the order of their use, as far ahead as the ring has room.

    Nothing here waits: all waiting is between streams. A copy into a slot of the ring waits for the last use of the block that
    was there, a use for the block's copy. Copies run in the order of uses. A scan that is left before its end leaves copies
    behind that nobody needs: they complete, and count, and the next scan brings its blocks anew.
    """

    def __init__(
        self, device: AnyDevice, scanned: AbstractScanned[KeyT], *, slots: int, streams: ScanStreams, track: Track
    ) -> None:
        #: Bytes of all copies that were enqueued: what crossed the link, once :meth:`finish` has returned.
        self.copied_bytes = 0
        self._device, self._scanned, self._track = device, scanned, track
        self._computing, self._copying, self._computes, self._copies = streams
        #: Behind the last use of each slot of the ring, and the step that it was.
        self._used: list[tuple[AbstractEvent, int | None] | None] = [None] * slots
        self._next = 0  # slot of the next copy into the ring
        self._taken = 0  # slots whose block is not used up
        self._coming: deque[_Copy] = deque()
        self._kept: dict[KeyT, Tile] = {}  # blocks that stay, here or on their way
        self._announced: Sequence[KeyT] = ()  # the first blocks of the next scan, looked at already
        self._was_left = False  # the last scan, before its end

    @property
    def ahead_bytes(self) -> int:
        """Bytes of copies, among those counted, whose blocks were not used yet."""
        return sum(copy.nbytes for copy in self._coming)

    def run_ahead(self, order: Sequence[KeyT]) -> None:
        """Enqueue copies for the next scan, as many as the ring has room for: they run while other work is done."""
        ready = self._begin(order)
        try:
            self._announced = order[: self._bring_ahead(order, ready)]
        except BaseException:
            self._leave()
            raise

    def over(
        self,
        order: Sequence[KeyT],
        flops: Callable[[KeyT], int] | None = None,
        on: tuple[AbstractStream, str] | None = None,
    ) -> Generator[tuple[KeyT, Tile], None, None]:
        """Yield blocks in order; what the caller enqueues on the computing stream until it asks for the next one uses the block.

        The computing stream is that of the scan unless ``on`` gives another with its name. Raises ``ScheduleError``:
        :meth:`run_ahead` announced another order, or a block is to be copied and the ring has no slot.
        """
        ready, self._announced, is_over = self._begin(order), (), False
        computing, computes = on or (self._computing, self._computes)
        try:
            for key in order:
                if ready < len(order):
                    ready = self._bring_ahead(order, ready)
                tile, copy = self._take(key, computing)
                begun = self._track.now(computing)
                yield key, tile
                step = None
                if begun is not None:
                    span, count = (begun, self._track.now(computing)), 0 if flops is None else flops(key)
                    after = None if copy is None else copy.step
                    step = self._track.ran("compute", key, computes, span, flops=count, after=after)
                if copy is not None and copy.slot is not None:
                    self._used[copy.slot] = computing.record(), step
                    self._taken -= 1
            is_over = True
        finally:
            if not is_over:
                self._leave()

    def finish(self) -> None:
        """Wait for both streams, settle the track and raise what went wrong on the way."""
        finish(self._device, [self._computing, self._copying])
        self._track.settle()

    def close(self) -> None:
        """Let go of the device's memory, which would outlive it in the traceback of an error; nothing is scanned any more."""
        self._leave()
        self._kept.clear()

    def _begin(self, order: Sequence[KeyT]) -> int:
        """How many blocks of ``order`` were looked at already; all that comes is behind a scan that was left."""
        if self._was_left:
            self._copying.wait(self._computing.record())  # slots may still be in use
            self._computing.wait(self._copying.record())  # kept blocks may be on their way
            self._was_left = False
        count = len(self._announced)
        if list(order[:count]) != list(self._announced):
            ahead, given = ([tuple(key) for key in keys[:count]] for keys in (self._announced, order))
            raise ScheduleError(f"copies ran ahead for a scan that begins with blocks {ahead}, but this one begins with {given}")
        return count

    def _bring_ahead(self, order: Sequence[KeyT], position: int) -> int:
        """Enqueue copies for blocks from ``position`` on while there is room; returns the position that is next."""
        slots, kept, coming = len(self._used), self._kept, self._coming
        ahead = max(1, slots)  # kept blocks have room always: no further ahead than the ring for them
        while position < len(order) and len(coming) < ahead:
            key = order[position]
            if key not in kept and self._scanned.in_place(key) is None:
                if self._scanned.is_kept(key):
                    self._bring(key, None)
                elif self._taken < slots:
                    slot, self._taken = self._next, self._taken + 1
                    self._next = (slot + 1) % slots
                    self._bring(key, slot)
                elif slots:
                    break  # the block in the next slot is still to be used
                else:
                    where = f"{self._device.name} keeps it nowhere and has no ring"
                    raise ScheduleError(f"block {tuple(key)} is to be copied, but {where}")
            position += 1
        return position

    def _bring(self, key: KeyT, slot: int | None) -> None:
        """Enqueue a copy behind the last use of its slot."""
        copying, after = self._copying, None
        if slot is not None and (used := self._used[slot]) is not None:
            copying.wait(used[0])
            after = used[1]
        tile, begun = self._scanned.place(key, slot), self._track.now(copying)
        self._scanned.bring(copying, key, tile)
        done, nbytes = copying.record(), self._scanned.nbytes(key)
        self.copied_bytes += nbytes
        fmt = "" if begun is None else self._scanned.format_of(key)  # for the trace alone
        step = self._track.ran("fetch", key, self._copies, (begun, done), nbytes=nbytes, fmt=fmt, after=after)
        self._coming.append(_Copy(key, tile, slot, done, step, nbytes))
        if slot is None:
            self._kept[key] = tile

    def _take(self, key: KeyT, computing: AbstractStream) -> tuple[Tile, _Copy | None]:
        """A block that the computing stream may use from now on, and the copy that was made for it."""
        if self._coming and self._coming[0].key == key:
            copy = self._coming.popleft()
            computing.wait(copy.done)
            return copy.tile, copy
        if (tile := self._kept.get(key)) is None:
            tile = self._scanned.in_place(key)
            self._track.nbytes += self._scanned.nbytes(key)
        return tile, None

    def _leave(self) -> None:
        """Let go of what is on its way; the device is not asked for anything, which it may refuse by now."""
        self._coming.clear()
        self._announced, self._taken, self._was_left = (), 0, True
