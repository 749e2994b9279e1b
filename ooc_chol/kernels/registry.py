"""The kernels of each kind of device: what planning asks of them, and devices opened with them."""

from __future__ import annotations

from collections.abc import Sequence

from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.registry import device_kind, open_device
from ooc_chol.kernels.cuda.kind import CudaKernelKind
from ooc_chol.kernels.host.kind import HostKernelKind
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.kernels.kinds import AbstractKernelKind, KernelFacts

HOST, CUDA = HostKernelKind(), CudaKernelKind()
_KINDS: dict[str, AbstractKernelKind] = {kind.name: kind for kind in (HOST, CUDA)}


def kind_of(name: str) -> AbstractKernelKind:
    """The kind of kernels that a device has, by its name alone."""
    return _KINDS[device_kind(name).name]


def open_tile_device(name: str, threads: int = 1, moduli: int | None = None, fmt: PrecisionFormat = FP64) -> TileDevice:
    """Open a device with its tile kernels, for one run: with ``threads`` on the host, and ``moduli`` for residues."""
    return open_device(name, kind_of(name).create(threads, moduli, fmt))


def kernel_facts(names: Sequence[str], fmt: PrecisionFormat = FP64) -> KernelFacts:
    """What the bits of a factor depend on when ``names``, all of one kind, make it; for the arithmetic key."""
    return kind_of(names[0]).facts(names, fmt)
