"""The devices of this machine: as data for a program, as a table for a person."""

from __future__ import annotations

from dataclasses import dataclass

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import brief_repr, one_line
from ooc_chol.hardware.registry import CUDA, HOST, KINDS, memory_info
from ooc_chol.kernels.registry import kind_of


@dataclass(frozen=True)
class DeviceInfo:
    """One device; ``host:0`` stands for all host devices."""

    name: str  #: Name that ``devices=`` takes, such as ``"cuda:0"``
    model: str  #: GPU model, or the BLAS library with its kernel architecture
    free_bytes: int  #: Bytes of its memory, free and in all; host devices share theirs
    total_bytes: int
    link: str  #: How it is reached, such as ``"PCIe 5 x16"``; empty for the host, ``"link unknown"`` without NVML
    driver: str  #: Version of the driver; empty for the host and without NVML

    __repr__ = brief_repr

    def __str__(self) -> str:
        memory = f"{format_bytes(self.free_bytes)} free of {format_bytes(self.total_bytes)}"
        return ", ".join(filter(None, (f"{self.name:<8} {memory}", self.model, self.link, self.driver)))


@dataclass(frozen=True)
class DeviceList:
    """All devices, GPUs first, and why there is no GPU if there is none."""

    devices: tuple[DeviceInfo, ...]  #: The devices that this machine has, GPUs first, the host as ``host:0``
    cuda_problem: str | None  #: What is missing for GPUs to be used, such as CuPy; None where there is a GPU

    def __repr__(self) -> str:
        return one_line(self, {device.name: device.model for device in self.devices})

    def __str__(self) -> str:
        lines = [str(device) for device in self.devices]
        lines.append(f"{'':<8} ({HOST.choice()} are alike and share this memory)")
        if self.cuda_problem is not None:
            lines.append(f"{'cuda':<8} none: {self.cuda_problem}")
        return "\n".join(lines)


def devices() -> DeviceList:
    """List the devices that ``cholesky`` can use.

    Returns
    -------
    DeviceList
        Names, models, memory in bytes, links and drivers; printed, it is a table with a line for each device.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> [device.name for device in oc.devices().devices][-1]
    'host:0'
    """
    found = [
        DeviceInfo(name, kind_of(name).processor(name), *memory_info(name), *kind.link(name))
        for kind in KINDS
        for name in kind.default_names()
    ]
    return DeviceList(tuple(found), CUDA.problem())
