"""Host memory that GPUs reach at full rate: page-locked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.hardware.cuda.facts import device_number
from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar, AbstractTier, LockState
from ooc_chol.memory.pages import touch
from ooc_chol.process.team import ThreadTeam

_runtime = cp.cuda.runtime
#: Threads that touch host memory before it is page-locked: page faults take most of the time.
_TOUCHING_THREADS = 16


@contextmanager
def page_locked(fresh: Sequence[NDArray[Any]], filled: Sequence[NDArray[Any]]) -> Iterator[None]:
    """Page-lock host memory for the time of a pass, so that copies reach it at full rate and without blocking.

    About 0.025 s per GiB of memory that was touched before, and 0.35 s of one thread otherwise; hence fresh memory is touched by
    several threads first. What is page-locked already is left as it is, and what the driver will not lock (a read-only file
    mapping, say) is read through staging buffers.
    """
    locked: list[int] = []
    try:
        for memory in (*fresh, *filled):
            if _is_locked(memory.ctypes.data):
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
    """Touch a contiguous allocation by several threads: page faults are what page-locking waits for."""
    with closing(ThreadTeam(_TOUCHING_THREADS)) as team:
        team.map(touch, np.array_split(memory.reshape(-1).view(np.uint8), _TOUCHING_THREADS))


@final
class CudaRegistrar(AbstractRegistrar):
    """Page-locks pieces of host memory for all GPUs of the process, in the context of the one named."""

    def __init__(self, name: str) -> None:
        self._number = device_number(name)

    def activate(self) -> None:
        """Make the GPU current: a new thread would go back to the first one, and take memory there for a context."""
        cp.cuda.Device(self._number).use()

    def register(self, address: int, nbytes: int) -> LockState:
        """Ask the driver: what it will not lock is REFUSED, a read-only file mapping, say, or memory that is locked in part."""
        with cp.cuda.Device(self._number):
            if _is_locked(address) and _is_locked(address + nbytes - 1):
                return LockState.FOUND
            try:
                _runtime.hostRegister(address, nbytes, _PORTABLE)
            except _runtime.CUDARuntimeError:
                return LockState.REFUSED
            return LockState.LOCKED

    def unregister(self, address: int) -> None:
        with cp.cuda.Device(self._number):
            _runtime.hostUnregister(address)


def _is_locked(address: int) -> bool:
    """Tell whether the driver has the page of ``address`` page-locked."""
    return bool(_runtime.pointerGetAttributes(address).type == _runtime.memoryTypeHost)


@final
class LockedMemory:
    """Which bytes of tiers are page-locked, so that copies reach them in place.

    A tier that is locked piece by piece is asked for each block, and copies wait for its piece. Of any other the driver is asked
    once: the memory behind its views is locked for the time of a pass, or is not. What a tier holds elsewhere, such as tiles of a
    store that were made FP64 later, is not.
    """

    def __init__(self) -> None:
        self._ranges: dict[AbstractTier, tuple[int, int]] = {}
        self._lockings: dict[AbstractTier, AbstractLocking | None] = {}
        self._is_stopped = False

    def holds(self, tier: AbstractTier, part: NDArray[Any]) -> bool:
        """Tell whether copies reach ``part``, an array that ``tier`` shows, in place; waits for its pieces, but not once stopped.

        It is page-locked then, and lies in one piece unless its bytes are adjacent.
        """
        if tier not in self._lockings:
            self._lockings[tier] = tier.locking()
        locking = self._lockings[tier]
        low = part.ctypes.data
        if locking is None:
            if tier not in self._ranges:
                self._ranges[tier] = _locked_range(tier.host_memory())
            first, end = self._ranges[tier]
            return first <= low < end
        end = _end(low, part)
        return (part.flags.c_contiguous or not locking.cuts(low, end)) and locking.holds(low, end, self._stopped)

    def cuts(self, tier: AbstractTier, part: NDArray[Any]) -> list[int]:
        """Bytes of ``part``, which is held, from which on it is copied apart: no copy may cross two registrations."""
        locking, low = self._lockings.get(tier), part.ctypes.data
        return [] if locking is None else [address - low for address in locking.cuts(low, _end(low, part))]

    def stop(self) -> None:
        """End all waiting, from any thread: nothing is enqueued any more."""
        # 1. A tier is known, 2. we are asked whether to stop, 3. waiting begins: whoever does not see this at 2 is known here.
        self._is_stopped = True
        for locking in list(self._lockings.values()):
            if locking is not None:
                locking.wake()

    def _stopped(self) -> bool:
        return self._is_stopped

    def clear(self) -> None:
        """Forget all tiers, so that none is kept alive."""
        self._ranges.clear()
        self._lockings.clear()


def _end(low: int, part: NDArray[Any]) -> int:
    """First address behind an array of adjacent entries, or of rows of them, that begins at ``low``."""
    if part.ndim == 2:
        return low + int((part.shape[0] - 1) * part.strides[0] + part.shape[1] * part.itemsize)
    return low + part.nbytes


def _locked_range(memory: NDArray[Any] | None) -> tuple[int, int]:
    """First address of page-locked memory, and the first behind it; equal when there is none."""
    if memory is None or not _is_locked(memory.ctypes.data):
        return 0, 0
    low, high = np.lib.array_utils.byte_bounds(memory)
    return int(low), int(high)
