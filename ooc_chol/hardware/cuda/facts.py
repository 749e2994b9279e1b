"""Which CUDA devices the machine has, and their names, memory, links and library versions."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy as cp
from nvmath.bindings import cublas

from ooc_chol.hardware.cuda.pools import free_and_total
from ooc_chol.hardware.gpu_facts import GpuFacts

_runtime = cp.cuda.runtime


def device_count() -> int:
    """CUDA devices that the driver shows; 0 without a driver."""
    try:
        return int(_runtime.getDeviceCount())
    except _runtime.CUDARuntimeError:
        return 0


def device_number(name: str) -> int:
    """Number K of ``"cuda:K"``."""
    return int(name.removeprefix("cuda:"))


def memory_info(name: str) -> tuple[int, int]:
    """Bytes of a device that this process may have, and all of it; creates its context."""
    with cp.cuda.Device(device_number(name)):
        return free_and_total()


@cache
def _properties(number: int) -> Any:
    """Properties of a device by the driver, which takes it milliseconds; creates no context."""
    return _runtime.getDeviceProperties(number)


def model(name: str) -> str:
    """Model name of a device, such as ``"NVIDIA H200"``."""
    properties = _properties(device_number(name))
    return str(properties["name"].decode())


def identity(name: str) -> str:
    """Identity of a device among all of its machine, whatever its number in a process; creates no context.

    Parts of one GPU have the bus number of the whole, and identifiers of their own.
    """
    number = device_number(name)
    own = _properties(number).get("uuid", b"")
    return f"{_runtime.deviceGetPCIBusId(number)} {bytes(own).hex()}"


def gpu_facts(name: str) -> GpuFacts:
    """Facts of a device by the driver; creates no context."""
    properties = _properties(device_number(name))
    # The driver tells clocks in kHz and the bus in bits; memory moves two words a clock.
    memory = 2 * 1e3 * properties["memoryClockRate"] * properties["memoryBusWidth"] / 8
    return GpuFacts(
        model=str(properties["name"].decode()),
        capability=(int(properties["major"]), int(properties["minor"])),
        processors=int(properties["multiProcessorCount"]),
        clock_hz=1e3 * properties["clockRate"],
        memory_bytes_per_second=memory,
    )


def nvml_handle(name: str) -> tuple[Any, Any]:
    """NVML and its handle of a device; ``ImportError`` without nvidia-ml-py."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(_runtime.deviceGetPCIBusId(device_number(name)))


def link_and_driver(name: str) -> tuple[str, str]:
    """Link and driver version as NVML tells them; without nvidia-ml-py the text says so."""
    try:
        nvml, handle = nvml_handle(name)
    except ImportError:
        return "link unknown (nvidia-ml-py is not installed)", ""
    generation, width = nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle), nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
    return f"PCIe {generation} x{width}", f"driver {nvml.nvmlSystemGetDriverVersion()}"


def library_versions() -> str:
    """Versions of the libraries that the bits of a factor depend on."""
    # By property, not by handle: a handle takes device memory, which may be short.
    blas = ".".join(str(cublas.get_property(part)) for part in range(3))
    return f"cuBLAS {blas}, CUDA runtime {_runtime.runtimeGetVersion()}"
