"""What devices there are: as data for a program, as a table for a person."""

from __future__ import annotations

from dataclasses import dataclass

from ooc_chol.config import format_bytes
from ooc_chol.kernels.host.blas import blas_identity
from ooc_chol.kernels.machine import HOST_DEVICES, cuda_link, cuda_model, cuda_names, cuda_problem, host_threads, memory_info


@dataclass(frozen=True)
class DeviceInfo:
    """One device; ``host:0`` stands for all host devices.

    Parameters
    ----------
    name : str
        Name for ``devices=``.
    model : str
        GPU model, or the BLAS library with its kernel architecture.
    free_bytes, total_bytes : int
        Memory; host devices share theirs.
    link : str
        How it is reached, such as ``"PCIe 5 x16"``; empty for the host, ``"link unknown"`` without NVML.
    driver : str
        Driver version; empty for the host and without NVML.
    """

    name: str
    model: str
    free_bytes: int
    total_bytes: int
    link: str
    driver: str

    def __str__(self) -> str:
        memory = f"{format_bytes(self.free_bytes)} free of {format_bytes(self.total_bytes)}"
        return ", ".join(filter(None, (f"{self.name:<8} {memory}", self.model, self.link, self.driver)))


@dataclass(frozen=True)
class DeviceList:
    """All devices, GPUs first, and why there is no GPU if there is none.

    Parameters
    ----------
    devices : tuple of DeviceInfo
        The devices.
    cuda_problem : str or None
        What is missing.
    """

    devices: tuple[DeviceInfo, ...]
    cuda_problem: str | None

    def __str__(self) -> str:
        lines = [str(device) for device in self.devices]
        lines.append(f"{'':<8} (host:0 to host:{HOST_DEVICES - 1} are alike and share this memory)")
        if self.cuda_problem is not None:
            lines.append(f"{'cuda':<8} none: {self.cuda_problem}")
        return "\n".join(lines)


def devices() -> DeviceList:
    """List the devices that ``cholesky`` can use.

    Returns
    -------
    DeviceList
        Names, models, memory, links and drivers; ``print`` it.
    """
    found = []
    for name in cuda_names():
        link, driver = cuda_link(name)
        found.append(DeviceInfo(name, cuda_model(name), *memory_info(name), link, driver))
    model = f"{' '.join(blas_identity().values())}, {host_threads(1)} threads"
    found.append(DeviceInfo("host:0", model, *memory_info("host:0"), "", ""))
    return DeviceList(tuple(found), cuda_problem())
