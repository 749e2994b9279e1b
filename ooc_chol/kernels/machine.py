"""The devices of this machine: their names, their memory, and opening one with its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.hardware.host import HostDevice, free_host_bytes, total_host_bytes
from ooc_chol.kernels import cuda as cuda_sizes
from ooc_chol.kernels.host.blas import blas_identity, current_threads
from ooc_chol.kernels.host.residues import HostResidueKernels
from ooc_chol.kernels.host.tiles import LEAST_STRIP, MOST_STRIP, HostKernels
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.memory.sources import as_source, register_source
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.tasks.cholesky import Task, TaskKind, flops
from ooc_chol.tasks.tiling import TileGrid

#: Largest number of host devices; more workers than cores is allowed, as tests do, but helps nobody.
HOST_DEVICES = 16
#: Bytes of a GPU's memory left to its context and to others when no budget is given.
CUDA_RESERVE_BYTES = 2 << 30


#: Bytes of state of a matrix row in residues: its limit, its running sum and its exponent.
RESIDUE_ROW_BYTES = 20


@dataclass(frozen=True)
class DeviceKind:
    """What planning must know of a kind of device; no device is needed for it."""

    name: str
    tile_sizes: tuple[int, ...]  #: Tile orders that the planner chooses from, largest first
    residue_tile_sizes: tuple[int, ...]  #: The same for products through residues
    #: Whether tiles are finished on a stream of their own. On a GPU a small kernel leaves processors to another stream's; on the
    #: host one team of threads serves one kernel after the other, and a second stream would only take its cores.
    finishes_beside: bool

    def workspace_bytes(self, nb: int) -> int:
        """Bytes of kernel workspace inside the budget."""
        return cuda_sizes.workspace_bytes(nb) if self.name == "cuda" else HostKernels().workspace_bytes(nb)

    def residue_workspace_bytes(self, n: int, nb: int) -> int:
        """The same for products through residues: more streams multiply, and rows have state."""
        if self.name != "cuda":
            return RESIDUE_ROW_BYTES * n
        return cuda_sizes.workspace_bytes(nb, cuda_sizes.RESIDUE_STREAMS) + RESIDUE_ROW_BYTES * n + 4096

    def executed_flops(self, task: Task, grid: TileGrid) -> int:
        """Flops that the kernels execute for ``task``, where :func:`ooc_chol.tasks.cholesky.flops` counts the leading terms."""
        if self.name == "cuda" and task.kind is TaskKind.SYRK:
            return cuda_sizes.syrk_flops(grid.size(task.i), grid.size(task.k))
        if self.name == "cuda" and task.kind is TaskKind.TRSM:
            return cuda_sizes.trsm_flops(grid.size(task.i), grid.size(task.j))
        return flops(task, grid)


HOST = DeviceKind("host", (2048, 1024, 512, 256, 128, 64, 32, 16), (256, 128, 64, 32, 16), finishes_beside=False)
CUDA = DeviceKind("cuda", (4096, 2048, 1024, 512, 256), (2048, 1024, 512, 256, 128, 64), finishes_beside=True)


@cache
def _import_problem() -> str | None:
    """Why CUDA's libraries cannot be imported; tried once, as a failing import takes milliseconds each time."""
    try:
        from ooc_chol.hardware import cuda  # noqa: F401 - whether it can be imported is the question
    except ImportError as error:
        return f"CuPy or nvmath-python cannot be imported ({error}); install ooc_chol[cuda13]"
    return None


def cuda_problem() -> str | None:
    """Why there is no CUDA device here; None when there is one."""
    if (problem := _import_problem()) is not None:
        return problem
    from ooc_chol.hardware import cuda

    return None if cuda.device_count() else "the CUDA driver shows no device"


def cuda_names() -> tuple[str, ...]:
    """Names of the visible CUDA devices."""
    if cuda_problem() is not None:
        return ()
    from ooc_chol.hardware import cuda

    return tuple(f"cuda:{number}" for number in range(cuda.device_count()))


def host_names() -> tuple[str, ...]:
    """Names of the host devices."""
    return tuple(f"host:{number}" for number in range(HOST_DEVICES))


def cuda_model(name: str) -> str:
    """Model of a CUDA device that is here."""
    from ooc_chol.hardware import cuda

    return cuda.model(name)


def cuda_link(name: str) -> tuple[str, str]:
    """Link and driver of a CUDA device that is here, by NVML."""
    from ooc_chol.hardware import cuda

    return cuda.link_and_driver(name)


def is_here(name: str) -> bool:
    """Whether a device of that name can be opened on this machine."""
    return kind_of(name) is HOST or name in cuda_names()


def kind_of(name: str) -> DeviceKind:
    """The kind of a device, by its name alone."""
    return CUDA if name.startswith("cuda:") else HOST


def named_devices(text: str | None) -> str | list[str] | int | None:
    """What a command's ``--devices`` means, as :func:`ooc_chol.cholesky` takes it."""
    if text is None:
        return None
    return int(text) if text.isdigit() else text.split(",")


def resolve_devices(devices: str | Sequence[str] | int | None, *, must_exist: bool = True) -> tuple[str, ...]:
    """Device names meant by ``devices``."""
    if isinstance(devices, bool) or not isinstance(devices, str | int | Sequence | None):
        raise TypeError(f"devices is a {type(devices).__name__}; give a name such as 'host:0', a list of names, a count, or None")
    if devices is None:
        return cuda_names() or ("host:0",)
    if isinstance(devices, int):
        names = cuda_names() or host_names()
        if not 1 <= devices <= len(names):
            raise ValueError(f"devices is {devices}; there are {names[0]} to {names[-1]}, so give a count from 1 to {len(names)}")
        return names[:devices]
    asked = (devices,) if isinstance(devices, str) else tuple(devices)
    for name in asked:
        _check_name(name, must_exist)
    if not asked or len(set(asked)) < len(asked) or len({kind_of(name).name for name in asked}) > 1:
        raise ValueError(f"devices is {list(asked)}; give at least one name, none twice, all of one kind")
    return asked


def _check_name(name: str, must_exist: bool) -> None:
    """Refuse a name that no device has."""
    if name in host_names() or name in cuda_names():
        return
    is_cuda_name = isinstance(name, str) and name.startswith("cuda:") and name[5:].isdigit()
    if is_cuda_name and not must_exist:
        return
    there = ", ".join([*cuda_names(), f"host:0 to host:{HOST_DEVICES - 1}"])
    why = f" ({cuda_problem()})" if is_cuda_name and cuda_problem() else ""
    raise ValueError(f"there is no device {name!r}{why}; there are {there}")


def default_budget(names: Sequence[str]) -> int:
    """Bytes of memory budget per device when the user gives none.

    Half of the free host memory, shared by the host devices; on GPUs what is free but for 2 GiB.
    """
    if kind_of(names[0]) is HOST:
        return max(1 << 20, free_host_bytes() // (2 * len(names)))
    return max(1 << 20, min(memory_info(name)[0] for name in names) - CUDA_RESERVE_BYTES)


def memory_info(name: str) -> tuple[int, int]:
    """Free and total bytes of a device's memory."""
    if kind_of(name) is HOST:
        return free_host_bytes(), total_host_bytes()
    if name not in cuda_names():
        raise ValueError(f"the memory of {name} is unknown: {cuda_problem() or 'there is no such device'}; give memory_budget")
    from ooc_chol.hardware import cuda

    return cuda.memory_info(name)


def host_threads(n_devices: int) -> int:
    """Threads of each host device: the cores that BLAS may use now, shared among the devices."""
    return max(1, current_threads() // n_devices)


def open_device(name: str, threads: int = 1, moduli: int | None = None) -> TileDevice:
    """The device, with its kernels, for one run."""
    if kind_of(name) is HOST:
        return HostDevice(name, HostKernels(threads, None if moduli is None else HostResidueKernels(moduli, threads)))
    from ooc_chol.hardware.cuda import CudaDevice
    from ooc_chol.kernels.cuda.residues import CudaResidueKernels
    from ooc_chol.kernels.cuda.tiles import CudaKernels

    return CudaDevice(name, CudaKernels(None if moduli is None else CudaResidueKernels(moduli)))


def page_locked(
    names: Sequence[str], *, fresh: NDArray[Any] | None = None, filled: Sequence[NDArray[Any] | None] = ()
) -> AbstractContextManager[None]:
    """Page-lock host memory for a run on GPUs; nothing for host devices."""
    if kind_of(names[0]) is HOST:
        return nullcontext()
    from ooc_chol.hardware import cuda

    return cuda.page_locked([] if fresh is None else [fresh], [memory for memory in filled if memory is not None])


@dataclass(frozen=True)
class DeviceFacts:
    """What the bits of a factor depend on, of a kind of device."""

    model: str  #: Model of the device; library with version and kernel architecture
    library: str
    trsm: str  #: How the triangular solve is done, and into which calls a tile kernel is divided
    kernels: str


def device_facts(names: Sequence[str]) -> DeviceFacts:
    """The facts of the devices of a run, for the arithmetic key."""
    if kind_of(names[0]) is HOST:
        rows = f"strips of {LEAST_STRIP} to {MOST_STRIP} rows"
        return DeviceFacts("host", " ".join(blas_identity().values()), "substitution", rows)
    from ooc_chol.hardware import cuda

    models = " + ".join(dict.fromkeys(cuda.model(name) for name in names))
    trsm = f"POTRF and TRSM of our own by blocks of {cuda_sizes.TRSM_BLOCK}, inverted and refined once"
    return DeviceFacts(
        models, cuda.library_versions(), trsm, f"SYRK in {cuda_sizes.SYRK_PARTS} strips, {cuda_sizes.segments_text()}"
    )


#: DLPack's numbers of CUDA memory: of a device, and managed.
_DLPACK_CUDA = (2, 13)


@register_source
def _by_dlpack(a: Any) -> AbstractSource | None:
    """The source of what hands its memory over by DLPack, on the host or on a GPU; None for anything else."""
    device = getattr(a, "__dlpack_device__", None)
    if device is None or isinstance(a, np.ndarray):
        return None
    on_gpu = device()[0] in _DLPACK_CUDA
    try:
        array = _from_dlpack_on_gpu(a) if on_gpu else np.from_dlpack(a)
    except (BufferError, RuntimeError) as error:
        what = f"{type(a).__module__}.{type(a).__qualname__}"
        raise TypeError(f"the {what} cannot be handed over by DLPack ({error}); detach it, or pass np.asarray(A)") from error
    return _device_source(array) if on_gpu else as_source(array)


def _from_dlpack_on_gpu(a: Any) -> Any:
    """A CuPy array of the same memory, ready on that GPU once its streams are."""
    from ooc_chol.hardware import cuda

    return cuda.from_dlpack(a)


def _device_source(array: Any) -> AbstractSource:
    """The source of a CuPy array."""
    from ooc_chol.hardware import cuda

    return cuda.DeviceSource(array)
