"""Memory of a GPU that several processes of a machine reach, by CUDA's handles."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, final

import cupy as cp

from ooc_chol.hardware.cuda.facts import device_number
from ooc_chol.interfaces import AbstractCommonMemory
from ooc_chol.memory.release import RELEASER, DeviceMemoryBlock, MemoryBlock

_runtime = cp.cuda.runtime


@final
class LentMemory(AbstractCommonMemory):
    """Memory of this process that others map; it is of ``cudaMalloc``, since memory of pools has no handles.

    CUDA wants it to stay as long as others map it. It is freed by a thread: whoever drops this last may be a function that a
    stream calls, which must not call CUDA.
    """

    def __init__(self, name: str, nbytes: int) -> None:
        self.device = name
        self._device = cp.cuda.Device(device_number(name))
        with self._device:
            block = _Block(cp.cuda.Memory(nbytes))
            held: list[MemoryBlock] = [block]
            block.holder = held
            self._free = weakref.finalize(self, RELEASER.hand_over, held, 0.0)
            self._free.atexit = False
            self.address = int(block.allocation.ptr)
            self.handle = bytes(_runtime.ipcGetMemHandle(self.address))

    def close(self) -> None:
        self._free()


@final
class _Block(DeviceMemoryBlock):
    """An allocation, as a block that waits for its release."""

    def __init__(self, allocation: Any) -> None:
        super().__init__()
        self.allocation = allocation

    def release(self, pause: Callable[[float], bool]) -> bool:
        self.allocation = None
        return True


@final
class MappedMemory(AbstractCommonMemory):
    """Memory of another process, mapped for one GPU of this one; it may lie on a GPU that this process does not see."""

    def __init__(self, name: str, handle: bytes) -> None:
        self.device, self.handle = name, handle
        self._device = cp.cuda.Device(device_number(name))
        with self._device:
            self.address = int(_runtime.ipcOpenMemHandle(handle))

    def close(self) -> None:
        address, self.address = self.address, 0
        if address:
            with self._device, suppress(_runtime.CUDARuntimeError):  # of a GPU that has failed: nothing is mapped there
                _runtime.ipcCloseMemHandle(address)
