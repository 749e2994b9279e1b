"""Host memory that GPUs reach at full rate: page-locked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES
from ooc_chol.interfaces import AbstractTier
from ooc_chol.team import ThreadTeam

_runtime = cp.cuda.runtime
#: Threads that touch host memory before it is page-locked: page faults take most of the time.
_TOUCHING_THREADS = 16


@contextmanager
def page_locked(fresh: Sequence[NDArray[Any]], filled: Sequence[NDArray[Any]]) -> Iterator[None]:
    """Page-lock host memory for the time of a run, so that copies reach it at full rate and without blocking.

    About 0.025 s per GiB of memory that was touched before, and 0.35 s of one thread otherwise; hence fresh memory is touched by
    several threads first. What is page-locked already is left as it is, and what the driver will not lock (a read-only file
    mapping, say) is read through staging buffers.
    """
    locked: list[int] = []
    try:
        for memory in (*fresh, *filled):
            if _runtime.pointerGetAttributes(memory.ctypes.data).type == _runtime.memoryTypeHost:
                continue
            if any(memory is own for own in fresh):
                _touch(memory)
            low, high = np.lib.array_utils.byte_bounds(memory)
            try:
                _runtime.hostRegister(int(low), int(high - low), _PORTABLE)
            except _runtime.CUDARuntimeError:
                continue
            locked.append(int(low))
        yield
    finally:
        for pointer in locked:
            _runtime.hostUnregister(pointer)


#: cudaHostRegisterPortable: page-locked for every device's context.
_PORTABLE = 1


def _touch(memory: NDArray[Any]) -> None:
    """Write to every page of a contiguous allocation by several threads: page faults are what page-locking waits for."""
    pages = memory.reshape(-1).view(np.uint8)[::PAGE_BYTES]
    with closing(ThreadTeam(_TOUCHING_THREADS)) as team:
        team.map(lambda part: part.fill(0), np.array_split(pages, _TOUCHING_THREADS))


@final
class LockedMemory:
    """Which bytes of tiers are page-locked, so that copies reach them in place.

    Notes
    -----
    Asked once for a tier: the memory behind its views is locked for the time of a run, or is not. What it holds elsewhere, such
    as tiles of a store that were made FP64 later, is not.
    """

    def __init__(self) -> None:
        self._ranges: dict[AbstractTier, tuple[int, int]] = {}

    def holds(self, tier: AbstractTier, part: NDArray[Any]) -> bool:
        """Whether ``part``, an array that ``tier`` shows, is page-locked."""
        if tier not in self._ranges:
            self._ranges[tier] = _locked_range(tier.host_memory())
        low, high = self._ranges[tier]
        return low <= part.ctypes.data < high

    def clear(self) -> None:
        """Forget all tiers, so that none is kept alive."""
        self._ranges.clear()


def _locked_range(memory: NDArray[Any] | None) -> tuple[int, int]:
    """First address of page-locked memory, and the first behind it; equal when there is none."""
    if memory is None or _runtime.pointerGetAttributes(memory.ctypes.data).type != _runtime.memoryTypeHost:
        return 0, 0
    low, high = np.lib.array_utils.byte_bounds(memory)
    return int(low), int(high)
