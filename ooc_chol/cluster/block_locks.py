"""Page-locking of blocks that workers of a machine have in common: once, for as long as a worker has the memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar
from ooc_chol.memory.locking import PieceLocks
from ooc_chol.memory.shared import SharedMemory
from ooc_chol.tasks.tiling import Index

#: Memory, and the tiles in it.
MemoryTiles: TypeAlias = tuple[SharedMemory, Mapping[Index, NDArray[Any]]]


@final
class BlockLocks(AbstractLocking):
    """The blocks that one task is given, each locked in pieces beside the task, unless an earlier one has begun that.

    Tiles come in the order of ``order()``, which is asked where there is something to lock.
    """

    def __init__(
        self, registrar: AbstractRegistrar, blocks: Sequence[MemoryTiles], order: Callable[[], Sequence[Index]] = tuple
    ) -> None:
        wanted = [] if all(memory.is_locking for memory, _ in blocks) else order()
        found = {_first(memory): _locks_of(registrar, memory, tiles, wanted) for memory, tiles in blocks}
        self._firsts = sorted(found)
        self._locks = [found[first] for first in self._firsts]
        self._waited_before = sum(locks.waited_seconds for locks in self._locks)

    @property
    def waited_seconds(self) -> float:  # type: ignore[override]
        """Seconds for which this task has waited."""
        return sum(locks.waited_seconds for locks in self._locks) - self._waited_before

    @property
    def refused_bytes(self) -> int:
        return sum(locks.refused_bytes for locks in self._locks)

    def holds(self, low: int, high: int, is_stopped: Callable[[], bool]) -> bool:
        """Wait for the tile's pieces."""
        return any(locks.holds(low, high, is_stopped) for locks in self._of(low))

    def cuts(self, low: int, high: int) -> Sequence[int]:
        return [address for locks in self._of(low) for address in locks.cuts(low, high)]

    def _of(self, low: int) -> Sequence[PieceLocks]:
        """The block that may hold an address; none before the first."""
        number = bisect_right(self._firsts, low)
        return self._locks[max(0, number - 1) : number]

    def wake(self) -> None:
        for locks in self._locks:
            locks.wake()


def _first(memory: SharedMemory) -> int:
    """Its first address."""
    return int(memory.bytes.ctypes.data)


def _locks_of(
    registrar: AbstractRegistrar, memory: SharedMemory, tiles: Mapping[Index, NDArray[Any]], order: Sequence[Index]
) -> PieceLocks:
    """The page-locking of a block, begun by now; pieces that are locked from an earlier use of its memory stay so."""
    locks = memory.locks(registrar)
    if not memory.is_locking:
        memory.is_locking = True
        ranges = ((low := int(tiles[index].ctypes.data), low + tiles[index].nbytes) for index in order if index in tiles)
        locks.begin(_first(memory) + memory.bytes.nbytes, ranges)
    return locks
