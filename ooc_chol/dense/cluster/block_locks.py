"""Page-locking of blocks that workers of a machine have in common: once for a worker, for as long as it has the block."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from ooc_chol.dense.cluster.shared_blocks import SharedBlock
from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar
from ooc_chol.memory.locking import PieceLocks
from ooc_chol.memory.shared import SharedMemory

#: Of memory that a task of this process has needed. It is unlocked with the block, when no task has it any more.
_LOCKS: weakref.WeakKeyDictionary[SharedMemory, PieceLocks] = weakref.WeakKeyDictionary()


@final
class BlockLocks(AbstractLocking):
    """The blocks that one task is given, each locked in pieces beside the task, unless an earlier one has begun that.

    Parameters
    ----------
    registrar : AbstractRegistrar
        What page-locks a piece.
    blocks : sequence of SharedBlock
        The blocks, in the order in which they are needed.
    """

    def __init__(self, registrar: AbstractRegistrar, blocks: Sequence[SharedBlock]) -> None:
        found = {_first(block.memory): _locks_of(registrar, block) for block in blocks}
        self._firsts = sorted(found)
        self._locks = [found[first] for first in self._firsts]
        self._waited_before = sum(locks.waited_seconds for locks in self._locks)

    @property
    def waited_seconds(self) -> float:  # type: ignore[override]
        """Seconds for which this task has waited."""
        return sum(locks.waited_seconds for locks in self._locks) - self._waited_before

    @property
    def refused_bytes(self) -> int:
        """Bytes of the blocks that the driver would not lock until now."""
        return sum(locks.refused_bytes for locks in self._locks)

    def holds(self, low: int, high: int, is_stopped: Callable[[], bool]) -> bool:
        """Whether the bytes of a tile are page-locked; waits for their piece."""
        number = bisect_right(self._firsts, low) - 1
        return number >= 0 and self._locks[number].holds(low, high, is_stopped)

    def wake(self) -> None:
        """Let all who wait ask whether they are stopped."""
        for locks in self._locks:
            locks.wake()


def _first(memory: SharedMemory) -> int:
    """Its first address."""
    return int(memory.bytes.ctypes.data)


def _locks_of(registrar: AbstractRegistrar, block: SharedBlock) -> PieceLocks:
    """The page-locking of a block, begun by now."""
    memory = block.memory
    if (locks := _LOCKS.get(memory)) is None:
        assert block.tiles is not None
        locks = _LOCKS[memory] = PieceLocks(registrar, memory.bytes)
        # Tasks hold the blocks that they are given until their devices are closed: no copy is under way then.
        weakref.finalize(memory, locks.close).atexit = False
        starts = np.array(sorted(tile.ctypes.data for tile in block.tiles.values()), dtype=np.int64)
        locks.begin(starts, _first(memory) + memory.bytes.nbytes, [])
    return locks
