"""Memory of a GPU that outlives a run: for what stays there."""

from __future__ import annotations

from typing import Any, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import format_bytes
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.cuda.captures import wait_for_device
from ooc_chol.hardware.cuda.facts import device_number
from ooc_chol.hardware.cuda.pools import device_memory, free_and_total
from ooc_chol.interfaces import AbstractDeviceMemory

_runtime = cp.cuda.runtime
#: Bytes up to which memory comes from CuPy's pool, where it costs least, and stays.
_MOST_POOLED = 64 << 20


@final
class CudaMemory(AbstractDeviceMemory):
    """An allocation on one GPU."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.device, self.nbytes = name, nbytes
        self._device = cp.cuda.Device(device_number(name))
        try:
            with self._device:
                self._memory: Any = _pointer(nbytes)
        except (cp.cuda.memory.OutOfMemoryError, _runtime.CUDARuntimeError) as error:
            with self._device:
                free, total = free_and_total()
            advice = f"{format_bytes(free)} of {format_bytes(total)} are free; keep L in host memory (store='host')"
            raise BudgetError(f"memory of {name} for L", nbytes, free, advice) from error

    @property
    def address(self) -> int:
        return int(self._memory.ptr)

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return cp.ndarray(shape, dtype, self._memory + offset)

    def read(self, offset: int, out: NDArray[Any], pitch: int | None = None) -> None:
        """Copy behind all that the device has been given."""
        target, source = out.ctypes.data, self.address + offset
        with self._device:
            wait_for_device()
            if pitch is None:
                _runtime.memcpy(target, source, out.nbytes, _runtime.memcpyDeviceToHost)
            else:
                width = out.nbytes // len(out)
                _runtime.memcpy2D(target, width, source, pitch, width, len(out), _runtime.memcpyDeviceToHost)

    def write(self, offset: int, data: NDArray[Any]) -> None:
        with self._device:
            wait_for_device()
            _runtime.memcpy(self.address + offset, data.ctypes.data, data.nbytes, _runtime.memcpyHostToDevice)

    def close(self) -> None:
        self._memory = None


def _pointer(nbytes: int) -> Any:
    """Memory that goes back to its pool when the last pointer is gone."""
    if nbytes <= _MOST_POOLED:
        return cp.cuda.alloc(nbytes)
    return cp.cuda.MemoryPointer(device_memory(nbytes, outlives_run=True), 0)
