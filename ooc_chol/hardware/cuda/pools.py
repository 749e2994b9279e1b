"""Memory of a GPU from a pool of the driver's, which keeps what one call gives back for the next one.

``cudaMalloc`` and ``cudaFree`` take a millisecond for a few GiB, three for one GiB where as much was freed just before, and 30
for a byte where GPUs reach each other's memory. A pool has what it keeps ready in 20 microseconds. Nobody in this process lacks
that: where ``cudaMalloc`` finds too little, the driver takes what pools keep. Other processes get it once nothing was given back
for two seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, final

import cupy as cp
from cuda.bindings import runtime as cudart

from ooc_chol.hardware.cuda.captures import wait_for_device
from ooc_chol.hardware.cuda.failures import checked
from ooc_chol.memory.release import RELEASER, DeviceMemoryBlock, MemoryBlock

_runtime = cp.cuda.runtime
_KEEP_ALL = (1 << 63) - 1
_OUT_OF_MEMORY = 2


@final
class DevicePool:
    """A pool of one GPU; :func:`pools_of` has it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._device = cp.cuda.Device(number)
        self._unused = _Unused(self)
        with self._device:
            # For memory that is ordered by nothing else: who gives some back waits for the device before.
            self._stream = cp.cuda.Stream(non_blocking=True)
            properties = cudart.cudaMemPoolProps()
            properties.allocType = cudart.cudaMemAllocationType.cudaMemAllocationTypePinned
            properties.location = _location(number)
            self._pool = int(checked(cudart.cudaMemPoolCreate(properties)))
            _runtime.memPoolSetAttribute(self._pool, _runtime.cudaMemPoolAttrReleaseThreshold, _KEEP_ALL)

    def memory(self, nbytes: int) -> Any:
        """Memory, as CuPy has it, that goes back once nobody holds it. Raises ``CUDARuntimeError``: there is too little."""
        owner = _Allocation(self, nbytes)
        return cp.cuda.UnownedMemory(owner.address, nbytes, owner, self.number)

    def take(self, nbytes: int) -> int:
        """Address of so many bytes, which any stream may use."""
        with self._device:
            try:
                address = _runtime.mallocFromPoolAsync(nbytes, self._pool, self._stream.ptr)
            except _runtime.CUDARuntimeError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                for pool in pools_of(self.number):  # what is kept may be in pieces that do not fit
                    pool.trim()
                address = _runtime.mallocFromPoolAsync(nbytes, self._pool, self._stream.ptr)
            self._stream.synchronize()
        return int(address)

    def give_back(self, address: int) -> None:
        """Keep the memory for whoever asks next, once all that the device was given is done."""
        with self._device:
            wait_for_device()
            _runtime.freeAsync(address, self._stream.ptr)
            self._stream.synchronize()
        self._unused.wait_for_release()

    def kept_bytes(self) -> int:
        """Bytes of the pool that nobody uses."""
        reserved, used = (
            _runtime.memPoolGetAttribute(self._pool, which)
            for which in (_runtime.cudaMemPoolAttrReservedMemCurrent, _runtime.cudaMemPoolAttrUsedMemCurrent)
        )
        return int(reserved) - int(used)

    def trim(self) -> None:
        """Give the driver back all that nobody uses."""
        with self._device:
            _runtime.memPoolTrimTo(self._pool, 0)

    def let_reach(self, other: int) -> None:
        """Let GPU ``other``, which the hardware lets do so, reach memory of this pool, what is in use already too."""
        access = cudart.cudaMemAccessDesc()
        access.location, access.flags = _location(other), cudart.cudaMemAccessFlags.cudaMemAccessFlagsProtReadWrite
        checked(cudart.cudaMemPoolSetAccess(self._pool, [access], 1))


@final
class _Unused(DeviceMemoryBlock):
    """Memory that a pool keeps."""

    def __init__(self, pool: DevicePool) -> None:
        super().__init__()
        self._pool = pool

    def wait_for_release(self) -> None:
        """Wait anew."""
        self.holder = held = list[MemoryBlock]([self])
        RELEASER.hand_over(held)

    def release(self, pause: Callable[[float], bool]) -> bool:
        with suppress(_runtime.CUDARuntimeError):  # of a device that is lost
            self._pool.trim()
        return True


class _Allocation:
    """Bytes of a pool; whoever has them holds this."""

    def __init__(self, pool: DevicePool, nbytes: int) -> None:
        self._pool, self.address = pool, 0  # as long as nothing was taken
        if nbytes:
            self.address = pool.take(nbytes)

    def __del__(self) -> None:
        if self.address:
            with suppress(Exception):  # the device is lost, or the process ends: there is nobody to tell
                self._pool.give_back(self.address)


@cache
def pools_of(number: int) -> tuple[DevicePool, DevicePool]:
    """The pools of GPU ``number``: of runs, and of what outlives them.

    Two, so that what stays after one run does not lie in the midst of what the next one asks for in one piece.
    """
    return DevicePool(number), DevicePool(number)


def device_memory(nbytes: int, *, outlives_run: bool = False) -> Any:
    """Memory of the current device, from one of its pools."""
    return pools_of(cp.cuda.Device().id)[outlives_run].memory(nbytes)


def kept_bytes(number: int) -> int:
    """Bytes that the pools of GPU ``number`` keep and nobody uses."""
    return sum(pool.kept_bytes() for pool in pools_of(number))


def free_and_total() -> tuple[int, int]:
    """Bytes of the current device that this process may have, what its pools keep among them, and all of it."""
    free, total = _runtime.memGetInfo()
    return int(free) + kept_bytes(cp.cuda.Device().id), int(total)


def _location(number: int) -> Any:
    location = cudart.cudaMemLocation()
    location.type, location.id = cudart.cudaMemLocationType.cudaMemLocationTypeDevice, number
    return location
