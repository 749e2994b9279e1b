"""The kinds of device: what is known of each without opening one, and opening one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.hardware.gpu_facts import GpuFacts
from ooc_chol.hardware.host import HostDevice, free_host_bytes, total_host_bytes
from ooc_chol.interfaces import AbstractCommonMemory, AbstractDevice, AbstractDeviceMemory, AbstractRegistrar, KernelSetT
from ooc_chol.memory.promises import HOST_PROMISES
from ooc_chol.memory.release import RELEASER
from ooc_chol.memory.sources import as_source
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.process.forks import note_driver

#: Largest number of host devices; more workers than cores is allowed, as tests do, but helps nobody.
HOST_DEVICES = 16
_HOST_NAMES = tuple(f"host:{number}" for number in range(HOST_DEVICES))
#: Bytes of a GPU's memory left to its context and to others when no budget is given.
CUDA_RESERVE_BYTES = 2 << 30


class AbstractDeviceKind(ABC):
    """A kind of device: ``name`` is what stands before the colon in the names of its devices."""

    name: str
    #: Whether its memory is the host's: what lies there, such as tiles of a store, is computed with in place.
    is_in_host_memory: bool
    #: Whether its devices are shares of one processor, so that two of them do no more than one.
    shares_processor: bool
    #: Whether it slows down as it warms up: rates are then measured under load.
    slows_under_load: bool
    #: DLPack's numbers of memory that its devices compute in.
    dlpack_types: tuple[int, ...]

    @property
    def driver_errors(self) -> tuple[type[Exception], ...]:
        """Errors of the driver and the libraries of its devices; asked once something has gone wrong there."""
        return ()

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the devices of this kind that the machine has."""

    @abstractmethod
    def default_names(self) -> tuple[str, ...]:
        """Names of the devices that are used, or listed, where none is named."""

    @abstractmethod
    def choice(self) -> str:
        """Write the names that may be given, for a reader; empty without devices."""

    @abstractmethod
    def problem(self) -> str | None:
        """Say why the machine has no such device; None when it has one."""

    @abstractmethod
    def may_be_elsewhere(self, name: str) -> bool:
        """Tell whether a machine may have a device of that name, though this one need not."""

    @abstractmethod
    def link(self, name: str) -> tuple[str, str]:
        """Say how a device that is here is reached, and its driver version; both are empty for the host."""

    @abstractmethod
    def gpu_facts(self, name: str) -> GpuFacts | None:
        """Say what the driver tells of a device that is here, without opening it; None for the host."""

    @abstractmethod
    def identity(self, name: str) -> str:
        """Identity of a device that is here among those of its machine, whatever its name; empty for shares of a processor."""

    @abstractmethod
    def memory(self, name: str) -> tuple[int, int]:
        """Free and total bytes of a device's memory."""

    @abstractmethod
    def default_budget(self, names: Sequence[str]) -> int:
        """Bytes of memory budget for each of ``names`` when the user gives none."""

    @abstractmethod
    def page_locked(self, fresh: NDArray[Any] | None, filled: Sequence[NDArray[Any] | None]) -> AbstractContextManager[None]:
        """Page-lock host memory for a pass, where that speeds up copies."""

    @abstractmethod
    def registrar(self, name: str) -> AbstractRegistrar | None:
        """Registrar that page-locks pieces of host memory for a device and others of its kind; None where that is of no use."""

    @abstractmethod
    def from_dlpack(self, a: Any) -> Any:
        """The array, of the kind's own library, of the memory that ``a`` hands over by DLPack."""

    @abstractmethod
    def to_host(self, array: Any) -> NDArray[Any]:
        """An array of the kind's own library in host memory."""

    @abstractmethod
    def to_device(self, name: str, x: NDArray[Any]) -> Any:
        """A copy of ``x`` in a device's memory, or ``x`` itself where that is the host's."""

    @abstractmethod
    def array_source(self, array: Any) -> AbstractSource:
        """The source of A that reads an array of the kind's own library."""

    @abstractmethod
    def keep(self, name: str, nbytes: int) -> AbstractDeviceMemory:
        """Allocate memory of a device for what stays there; ``BudgetError`` where there is not so much."""

    def lend(self, name: str, nbytes: int) -> AbstractCommonMemory | None:
        """Memory of a device for other processes to map; None where there is none, or host memory serves as well."""
        return None

    def mapped(self, name: str, handle: bytes) -> AbstractCommonMemory | None:
        """Memory of another process's device, mapped for one of this process; None where that cannot be."""
        return None

    @abstractmethod
    def open(self, name: str, kernels: KernelSetT) -> AbstractDevice[KernelSetT]:
        """Open a device with these kernels, for one run."""


@final
class HostKind(AbstractDeviceKind):
    """The cores and the memory of the machine itself, divided into any number of devices."""

    name = "host"
    is_in_host_memory = True
    shares_processor = True
    slows_under_load = False
    dlpack_types = (1,)

    def names(self) -> tuple[str, ...]:
        return _HOST_NAMES

    def default_names(self) -> tuple[str, ...]:
        return _HOST_NAMES[:1]

    def choice(self) -> str:
        return f"host:0 to host:{HOST_DEVICES - 1}"

    def problem(self) -> str | None:
        return None

    def may_be_elsewhere(self, name: str) -> bool:
        return False

    def link(self, name: str) -> tuple[str, str]:
        return "", ""

    def gpu_facts(self, name: str) -> GpuFacts | None:
        return None

    def identity(self, name: str) -> str:
        return ""

    def memory(self, name: str) -> tuple[int, int]:
        return free_host_bytes(), total_host_bytes()

    def default_budget(self, names: Sequence[str]) -> int:
        """Share half of the free host memory among the devices, with what is kept for another call on a GPU.

        Calls that run at once share it, and leave to each other what was promised.
        """
        RELEASER.release_now()
        free = free_host_bytes() - HOST_PROMISES.nbytes
        return max(1 << 20, free // (2 * len(names) * HOST_PROMISES.calls))

    def page_locked(self, fresh: NDArray[Any] | None, filled: Sequence[NDArray[Any] | None]) -> AbstractContextManager[None]:
        """Do nothing: the host copies within its memory."""
        return nullcontext()

    def registrar(self, name: str) -> None:
        """None: the host copies within its memory."""
        return

    def from_dlpack(self, a: Any) -> Any:
        return np.from_dlpack(a)

    def to_host(self, array: Any) -> NDArray[Any]:
        return np.asarray(array)

    def to_device(self, name: str, x: NDArray[Any]) -> Any:
        return x

    def array_source(self, array: Any) -> AbstractSource:
        return as_source(array)

    def keep(self, name: str, nbytes: int) -> AbstractDeviceMemory:
        raise ValueError("store='device' keeps L on GPUs, but the host factors: leave it out, L is in host memory then")

    def open(self, name: str, kernels: KernelSetT) -> AbstractDevice[KernelSetT]:
        """Open a device, which finds the host memory free that was kept for another call on a GPU."""
        RELEASER.release_now()
        return HostDevice(name, kernels)


@cache
def _import_failure() -> str | None:
    """Why CUDA's libraries cannot be imported; tried once, as a failing import takes milliseconds each time."""
    try:
        from ooc_chol.hardware import cuda  # noqa: F401 - whether it can be imported is the question
    except ImportError as error:
        return str(error)
    return None


@cache
def _cuda() -> Any:
    """The module of CUDA devices for what each small call asks: an import statement takes ten times as long to find it."""
    from ooc_chol.hardware import cuda

    return cuda


@cache
def _cuda_names(count: int) -> tuple[str, ...]:
    return tuple(f"cuda:{number}" for number in range(count))


@final
class CudaKind(AbstractDeviceKind):
    """NVIDIA's GPUs; CuPy is imported when the first one is asked for."""

    name = "cuda"
    is_in_host_memory = False
    shares_processor = False
    slows_under_load = True
    dlpack_types = (2, 13)  # of a device, and managed

    @property
    def driver_errors(self) -> tuple[type[Exception], ...]:
        from ooc_chol.hardware import cuda

        return cuda.driver_errors()

    def names(self) -> tuple[str, ...]:
        return () if _import_failure() is not None else _cuda_names(_cuda().device_count())

    def default_names(self) -> tuple[str, ...]:
        return self.names()

    def choice(self) -> str:
        return ", ".join(self.names())

    def problem(self) -> str | None:
        if (failure := _import_failure()) is not None:
            from ooc_chol.extras import install_hint  # 10 ms, which nobody needs who asks for no GPU

            return f"CuPy or nvmath-python cannot be imported ({failure}); {install_hint('cuda13')}"
        return None if _cuda().device_count() else "the CUDA driver shows no device"

    def may_be_elsewhere(self, name: str) -> bool:
        return name.removeprefix("cuda:").isdigit()

    def link(self, name: str) -> tuple[str, str]:
        from ooc_chol.hardware import cuda

        return cuda.link_and_driver(name)

    def gpu_facts(self, name: str) -> GpuFacts | None:
        from ooc_chol.hardware import cuda

        return cuda.gpu_facts(name)

    def identity(self, name: str) -> str:
        from ooc_chol.hardware import cuda

        return cuda.identity(name)

    def memory(self, name: str) -> tuple[int, int]:
        if name not in self.names():
            raise ValueError(
                f"the memory of {name} is unknown: {self.problem() or 'there is no such device'}; a plan for "
                "another machine needs a memory_budget"
            )
        note_driver(self.name)
        from ooc_chol.hardware import cuda

        return cuda.memory_info(name)

    def default_budget(self, names: Sequence[str]) -> int:
        """Take what is free on the fullest of them, but for 2 GiB."""
        return max(1 << 20, min(self.memory(name)[0] for name in names) - CUDA_RESERVE_BYTES)

    def page_locked(self, fresh: NDArray[Any] | None, filled: Sequence[NDArray[Any] | None]) -> AbstractContextManager[None]:
        from ooc_chol.hardware import cuda

        return cuda.page_locked([] if fresh is None else [fresh], [memory for memory in filled if memory is not None])

    def registrar(self, name: str) -> AbstractRegistrar:
        from ooc_chol.hardware import cuda

        return cuda.CudaRegistrar(name)

    def from_dlpack(self, a: Any) -> Any:
        """Make a CuPy array, which is ready once the streams of its GPU are."""
        return _cuda().from_dlpack(a)

    def to_host(self, array: Any) -> NDArray[Any]:
        note_driver(self.name)
        from ooc_chol.hardware import cuda

        return cuda.to_host(array)

    def to_device(self, name: str, x: NDArray[Any]) -> Any:
        note_driver(self.name)
        from ooc_chol.hardware import cuda

        return cuda.to_device(name, x)

    def array_source(self, array: Any) -> AbstractSource:
        source: AbstractSource = _cuda().DeviceSource(array)
        return source

    def keep(self, name: str, nbytes: int) -> AbstractDeviceMemory:
        note_driver(self.name)
        memory: AbstractDeviceMemory = _cuda().CudaMemory(name, nbytes)
        return memory

    def lend(self, name: str, nbytes: int) -> AbstractCommonMemory | None:
        return self._common(_cuda().LentMemory, name, nbytes)

    def mapped(self, name: str, handle: bytes) -> AbstractCommonMemory | None:
        return self._common(_cuda().MappedMemory, name, handle)

    def _common(self, make: Callable[..., AbstractCommonMemory], *given: Any) -> AbstractCommonMemory | None:
        note_driver(self.name)
        try:
            return make(*given)
        except self.driver_errors:  # there is no room, or the system keeps processes apart
            return None

    def open(self, name: str, kernels: KernelSetT) -> AbstractDevice[KernelSetT]:
        note_driver(self.name)
        from ooc_chol.hardware.cuda import CudaDevice

        return CudaDevice(name, kernels)
