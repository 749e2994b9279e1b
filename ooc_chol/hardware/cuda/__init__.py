"""CUDA devices: CuPy's memory, streams and events behind the runtime's interface. Needs CuPy; imported only when asked for."""

from __future__ import annotations

from ooc_chol.hardware.cuda.captures import captured, no_capture, wait_for_device
from ooc_chol.hardware.cuda.device import LIBRARY_BYTES, CudaDevice
from ooc_chol.hardware.cuda.facts import (
    device_count,
    device_number,
    gpu_facts,
    identity,
    library_versions,
    link_and_driver,
    memory_info,
    model,
    nvml_handle,
)
from ooc_chol.hardware.cuda.failures import driver_errors
from ooc_chol.hardware.cuda.handles import LentMemory, MappedMemory
from ooc_chol.hardware.cuda.locking import CudaRegistrar, page_locked
from ooc_chol.hardware.cuda.memory import CudaMemory
from ooc_chol.hardware.cuda.pools import device_memory, free_and_total
from ooc_chol.hardware.cuda.source import DeviceSource, from_dlpack, to_device, to_host

__all__ = [
    "LIBRARY_BYTES",
    "CudaDevice",
    "CudaMemory",
    "CudaRegistrar",
    "DeviceSource",
    "LentMemory",
    "MappedMemory",
    "captured",
    "device_count",
    "device_memory",
    "device_number",
    "driver_errors",
    "free_and_total",
    "from_dlpack",
    "gpu_facts",
    "identity",
    "library_versions",
    "link_and_driver",
    "memory_info",
    "model",
    "no_capture",
    "nvml_handle",
    "page_locked",
    "to_device",
    "to_host",
    "wait_for_device",
]
