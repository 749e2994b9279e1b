"""CUDA devices: CuPy's memory, streams and events behind the runtime's interface. Needs CuPy; imported only when asked for."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Protocol, cast, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublas

from ooc_chol.config import format_bytes
from ooc_chol.errors import BudgetError, OocCholError, ScheduleError
from ooc_chol.interfaces import (
    AbstractArena,
    AbstractDevice,
    AbstractEvent,
    AbstractFlags,
    AbstractKernelSet,
    AbstractResidueKernels,
    AbstractStream,
    AbstractTier,
    ArraySpec,
    Tile,
    TileFunction,
)
from ooc_chol.memory.sources_base import AbstractSource, check_dtype, check_shape

Callback = Callable[[BaseException | None], None]
_runtime = cp.cuda.runtime
#: Bytes that cuBLAS's handle and our kernels take beside the budget, by NVML on an H200 with CUDA 13.0. The context comes on top,
#: and the driver's tables for page-locked host memory, about 8 bytes for each 4 KiB.
LIBRARY_BYTES = 256 << 20
#: Priority of urgent streams: the highest of Hopper.
_MOST_URGENT = -5
#: Threads that touch host memory before it is page-locked: page faults take most of the time.
_TOUCHING_THREADS = 16


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
    """Free and total bytes of a device; creates its context."""
    with cp.cuda.Device(device_number(name)):
        free, total = _runtime.memGetInfo()
    return int(free), int(total)


def model(name: str) -> str:
    """Model name of a device, such as ``"NVIDIA H200"``."""
    properties = _runtime.getDeviceProperties(device_number(name))
    return str(properties["name"].decode())


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


class BindsWorkspace(Protocol):
    """What the device asks of its kernels beside the tile kernels."""

    def workspace_bytes(self, nb: int) -> int:
        """Bytes of workspace."""

    @property
    def blas(self) -> Any:
        """cuBLAS, for kernels of other kinds on the same streams."""

    def bind(self, nb: int, workspace: int) -> None:
        """Take the workspace at a device address."""

    def close(self) -> None:
        """Destroy the handles."""


class BindsBlas(Protocol):
    """What the device asks of kernels on residues beside their interface."""

    def bind(self, blas: Any) -> None:
        """Take the device's cuBLAS, and compile for the current device."""


class DeviceEvent(AbstractEvent):
    """A point in a CUDA stream, timed."""

    __slots__ = ("_owner", "event", "stream")

    def __init__(self, owner: CudaDevice, stream: CudaStream, event: Any) -> None:
        self._owner = owner
        self.stream = stream
        self.event = event

    def query(self) -> bool:
        """Whether all work before it is complete."""
        return bool(self.event.done)

    def synchronize(self) -> None:
        """Wait until complete; raise what a host function of the device raised."""
        self.event.synchronize()
        if self._owner.error is not None:
            raise self._owner.error

    def time_ns(self) -> int:
        """When it completed, on the host's clock."""
        return self._owner.host_time_ns(self.event)


class CudaStream(AbstractStream):
    """A non-blocking CUDA stream, and a thread that sleeps on its events for those who want to be told.

    Parameters
    ----------
    owner : CudaDevice
        Its device.
    name : str
        Name for traces.
    priority : int
        CUDA's, where less is more urgent; the driver takes the nearest that it has.
    """

    def __init__(self, owner: CudaDevice, name: str, priority: int = 0) -> None:
        self._owner = owner
        self.name = name
        with owner.current():
            self.stream = cp.cuda.Stream(non_blocking=True, priority=priority)
        self._watched: queue.SimpleQueue[tuple[DeviceEvent, Callback] | None] = queue.SimpleQueue()
        self._watcher: threading.Thread | None = None

    def wait(self, event: AbstractEvent) -> None:
        """Hold back later work until ``event``, of this or another device, is complete."""
        if not isinstance(event, DeviceEvent):
            raise TypeError(f"{type(event).__name__} is not an event of a CUDA device")
        self.stream.wait_event(event.event)

    def record(self) -> DeviceEvent:
        """Record a new event; its device is current."""
        event = self._owner.new_event()
        event.record(self.stream)
        return DeviceEvent(self._owner, self, event)

    def synchronize(self) -> None:
        """Wait until the stream is empty."""
        with self._owner.current():
            self.record().synchronize()

    def watch(self, callback: Callback) -> None:
        """Call back once all that is enqueued by now is complete; its device is current.

        Notes
        -----
        Events of one stream complete in order, so that one thread serves them all. It sleeps on an event of its own: only such
        events wake a sleeper, and a stream has room for no more than 56 of them (:func:`_timed_event`).
        """
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name=f"ooc_chol {self.name} watcher", daemon=True)
            self._watcher.start()
        event = cp.cuda.Event(block=True, disable_timing=True)
        event.record(self.stream)
        self._watched.put((DeviceEvent(self._owner, self, event), callback))

    def close(self) -> None:
        """End the watcher after all that it watches is complete."""
        if self._watcher is not None:
            self._watched.put(None)
            self._watcher.join()
            self._watcher = None

    def _watch(self) -> None:
        while (item := self._watched.get()) is not None:
            event, callback = item
            try:
                event.synchronize()
            except Exception as error:  # handed on to whoever asked to be told
                callback(error)
            else:
                callback(None)
            del item, event, callback


class CudaArena(AbstractArena):
    """One allocation of device memory: the slots, behind them the arrays, and the workspace."""

    def __init__(self, n_slots: int, slot_bytes: int, workspace_bytes: int, arrays: Sequence[ArraySpec] = ()) -> None:
        self.n_slots = n_slots
        self.slot_bytes = slot_bytes
        offset = n_slots * slot_bytes
        self._memory: Any = cp.cuda.Memory(offset + sum(spec.nbytes for spec in arrays) + workspace_bytes)
        views = []
        for spec in arrays:
            views.append(cp.ndarray(spec.shape, spec.dtype, cp.cuda.MemoryPointer(self._memory, offset)))
            offset += spec.nbytes
        self.arrays: tuple[Any, ...] = tuple(views)
        self.workspace = int(self._memory.ptr) + offset
        self._tiles: dict[tuple[int, tuple[int, int]], Any] = {}
        self._parts: dict[tuple[int, tuple[int, int], tuple[int, int]], Any] = {}

    def tile(self, slot: int, shape: tuple[int, int]) -> Any:
        """The first entries of ``slot`` as a row-major CuPy array."""
        key = (slot, shape)
        if key not in self._tiles:
            pointer = cp.cuda.MemoryPointer(self._memory, slot * self.slot_bytes)
            self._tiles[key] = cp.ndarray(shape, cp.float64, pointer)
        return self._tiles[key]

    def part(self, number: int, corner: tuple[int, int], shape: tuple[int, int]) -> Any:
        """The rectangle of every plane of an array; kept, since slicing takes longer than looking up."""
        key = (number, corner, shape)
        if key not in self._parts:
            (row, column), (rows, columns) = corner, shape
            self._parts[key] = self.arrays[number][:, row : row + rows, column : column + columns]
        return self._parts[key]

    def close(self) -> None:
        """Free the memory once no tile is left."""
        self._tiles.clear()
        self._parts.clear()
        self.arrays = ()
        self._memory = None


@final
class CudaDevice(AbstractDevice):
    """``cuda:K``: one GPU with an arena, streams, and page-locked staging buffers for blocks that no copy can reach in place.

    Parameters
    ----------
    name : str
        ``"cuda:0"`` and so on.
    kernels : AbstractKernelSet
        Tile kernels that take CuPy arrays, and bind their workspace.
    create_flags : callable
        ``create_flags(nt)`` returns the flags that the kernels write.
    residues : AbstractResidueKernels or None
        Kernels of products through residues, for a run that has some; they bind the tile kernels' cuBLAS.
    """

    nominal_flops_per_second = 6e13

    def __init__(
        self,
        name: str,
        kernels: AbstractKernelSet,
        create_flags: Callable[[int], AbstractFlags],
        residues: AbstractResidueKernels | None = None,
    ) -> None:
        self.name = name
        self.kernels = kernels
        self.residues = residues
        self.error: BaseException | None = None
        self._device = cp.cuda.Device(device_number(name))
        self._create_flags = create_flags
        self._streams: list[CudaStream] = []
        self._arena: CudaArena | None = None
        self._staging: dict[int, NDArray[np.uint8]] = {}
        self._is_locked: dict[AbstractTier, bool] = {}
        self._spare_events: list[Any] = []
        self._slot_bytes = 0
        self._aborted = False
        with self.current():
            self._base = _timed_event()
            self._base.record()
            self._base.synchronize()
            self._base_ns = time.perf_counter_ns()

    def current(self) -> AbstractContextManager[object]:
        """Make this the current device of the calling thread for the time of a ``with`` block."""
        return cast(AbstractContextManager[object], self._device)

    def reserve_events(self, count: int) -> None:
        """Make ``count`` events ahead; the driver takes memory for events that live at once, and time for taking it."""
        with self.current():
            self._spare_events += [_timed_event() for _ in range(count)]

    def new_event(self) -> Any:
        """CuPy's event, one that was made ahead while there is one; the device is current."""
        return self._spare_events.pop() if self._spare_events else _timed_event()

    def host_time_ns(self, event: Any) -> int:
        """Completion of ``event`` on the host's clock; resolution about a microsecond in runs of some seconds."""
        return self._base_ns + int(1e6 * cp.cuda.get_elapsed_time(self._base, event))

    def allocate(self, n_slots: int, slot_bytes: int, nb: int, arrays: Sequence[ArraySpec] = ()) -> CudaArena:
        """Allocate slots, arrays and workspace in one piece, and bind the kernels to their workspace."""
        kernels = self._binding_kernels()
        workspace = kernels.workspace_bytes(nb)
        needed = n_slots * slot_bytes + sum(spec.nbytes for spec in arrays) + workspace
        with self.current():
            free, total = _runtime.memGetInfo()
            if needed > free:
                advice = f"{format_bytes(free)} of {format_bytes(total)} are free, others may use the device; lower memory_budget"
                raise BudgetError(f"arena of {self.name}", needed, int(free), advice)
            try:
                self._arena = CudaArena(n_slots, slot_bytes, workspace, arrays)
            except (cp.cuda.memory.OutOfMemoryError, _runtime.CUDARuntimeError) as error:
                advice = f"the driver refused ({error}); give a smaller memory_budget"
                raise BudgetError(f"arena of {self.name}", needed, int(free), advice) from error
            try:
                kernels.bind(nb, self._arena.workspace)
                if self.residues is not None:
                    cast(BindsBlas, self.residues).bind(kernels.blas)
            except cublas.cuBLASError as error:
                advice = f"cuBLAS needs memory beside the budget ({error}); give a smaller memory_budget"
                raise BudgetError(f"libraries of {self.name}", needed + LIBRARY_BYTES, int(free), advice) from error
        self._slot_bytes = slot_bytes
        return self._arena

    def _binding_kernels(self) -> BindsWorkspace:
        return cast(BindsWorkspace, self.kernels)

    def open_residues(self, n: int) -> AbstractResidueKernels:
        """The residue kernels with state for ``n`` matrix rows."""
        if self.residues is None:
            raise ScheduleError(f"{self.name} was opened without kernels for residues; open it with their moduli")
        with self.current():
            self.residues.open(n)
        return self.residues

    def create_flags(self, nt: int) -> AbstractFlags:
        """Clear flags for ``nt`` tile columns."""
        with self.current():
            return self._create_flags(nt)

    def create_stream(self, name: str, *, is_urgent: bool = False) -> CudaStream:
        """A new non-blocking stream; thread blocks of an urgent one start before those of others that wait."""
        self._streams.append(CudaStream(self, f"{self.name} {name}", _MOST_URGENT if is_urgent else 0))
        return self._streams[-1]

    def activate(self) -> None:
        """Make this the current device of the calling thread."""
        self._device.use()

    def prepare(self, once: Callable[[], None]) -> None:
        """Compile and upload what a tile function needs."""
        with self.current():
            once()
            self._device.synchronize()  # uploads, and whatever still fills an array of the user's

    def copy_in(self, stream: AbstractStream, tier: AbstractTier, index: tuple[int, int], tile: Tile) -> None:
        """Enqueue a copy from page-locked memory, else a read into a staging buffer and a copy from there."""
        cupy_stream = _cuda(stream).stream
        view = self._view_in_place(tier, index)
        if view is None:
            staged = view = self._stage(stream, tile.shape)
            self._on_host(cupy_stream, lambda: tier.read(index, staged))
        rows, width = tile.shape[0], 8 * tile.shape[1]
        pitches = width, view.strides[0]
        _copy_rows(tile.data.ptr, view.ctypes.data, pitches, (rows, width), _runtime.memcpyHostToDevice, cupy_stream)

    def copy_out(self, stream: AbstractStream, tile: Tile, tier: AbstractTier, index: tuple[int, int]) -> None:
        """Enqueue a copy to page-locked memory, else a copy into a staging buffer and a write from there."""
        cupy_stream = _cuda(stream).stream
        view = self._view_in_place(tier, index)
        target = self._stage(stream, tile.shape) if view is None else view
        rows, width = tile.shape[0], 8 * tile.shape[1]
        pitches = target.strides[0], width
        _copy_rows(target.ctypes.data, tile.data.ptr, pitches, (rows, width), _runtime.memcpyDeviceToHost, cupy_stream)
        if view is None:
            self._on_host(cupy_stream, lambda: tier.write(index, target))

    def generate(self, stream: AbstractStream, function: TileFunction, rows: range, cols: range, tile: Tile) -> None:
        """Call a tile function with the stream current, so that its CuPy operations and kernels are enqueued there."""
        with self.current(), _cuda(stream).stream as current:
            function(rows, cols, tile, current)

    def copy_between(self, stream: AbstractStream, source: Tile, target: Tile) -> None:
        """Enqueue copies, directly between GPUs that reach each other's memory, else by way of the host."""
        cupy_stream = _cuda(stream).stream
        _allow_peer(source.data.device_id, target.data.device_id)
        *_, rows, columns = target.shape
        pitches, shape = (target.strides[-2], source.strides[-2]), (rows, columns * target.itemsize)
        for to_plane, from_plane in zip(_planes(target), _planes(source), strict=True):
            _copy_rows(to_plane, from_plane, pitches, shape, _runtime.memcpyDefault, cupy_stream)

    def notify(self, event: AbstractEvent, callback: Callback) -> None:
        """Call back from a watcher thread that sleeps on the event."""
        if not isinstance(event, DeviceEvent):
            raise TypeError(f"{type(event).__name__} is not an event of a CUDA device")
        with self.current():
            event.stream.watch(callback)

    def failure(self) -> BaseException | None:
        """What a host function raised: what was computed after it is void, its flags too."""
        return self.error

    def abort(self) -> None:
        """Let host functions do nothing; what is enqueued on the GPU, at most the window, runs out."""
        self._aborted = True
        if self.error is None:
            self.error = OocCholError("the run was stopped")

    def synchronize(self) -> None:
        """Wait for the streams."""
        with self.current():
            for stream in self._streams:
                stream.stream.synchronize()

    def close(self) -> None:
        """Wait for the streams, end the watchers, free memory."""
        with self.current():
            while self._streams:
                stream = self._streams.pop()
                stream.stream.synchronize()
                stream.close()
            if self.residues is not None:
                self.residues.close()
            self._binding_kernels().close()
            if self._arena is not None:
                self._arena.close()
                self._arena = None
            self._staging.clear()
            self._is_locked.clear()
            self._spare_events.clear()

    def _view_in_place(self, tier: AbstractTier, index: tuple[int, int]) -> NDArray[np.float64] | None:
        """Block ``index`` if an asynchronous copy can read or write it in place: rows of adjacent float64, page-locked."""
        view = tier.view(index)
        if view is None or not _has_adjacent_entries(view):
            return None
        if tier not in self._is_locked:  # asked once: all of a tier's memory is locked for the time of a run, or none
            self._is_locked[tier] = _runtime.pointerGetAttributes(view.ctypes.data).type == _runtime.memoryTypeHost
        return view if self._is_locked[tier] else None

    def _stage(self, stream: AbstractStream, shape: tuple[int, int]) -> NDArray[np.float64]:
        """The stream's page-locked buffer, shaped as a tile; uses of it are in stream order."""
        key = id(stream)
        if key not in self._staging:
            self._staging[key] = np.frombuffer(
                cp.cuda.alloc_pinned_memory(self._slot_bytes), dtype=np.uint8, count=self._slot_bytes
            )
        return self._staging[key][: 8 * shape[0] * shape[1]].view(np.float64).reshape(shape)

    def _on_host(self, stream: Any, operation: Callable[[], None]) -> None:
        """Enqueue a host function; its error becomes the device's."""

        def run(_: object) -> None:
            if self._aborted or self.error is not None:
                return
            try:
                operation()
            except BaseException as error:  # raised by the next synchronize of any event of this device
                self.error = error

        stream.launch_host_func(run, None)


def _cuda(stream: AbstractStream) -> CudaStream:
    """``stream`` as a CUDA stream."""
    if not isinstance(stream, CudaStream):
        raise TypeError(f"{type(stream).__name__} is not a stream of a CUDA device")
    return stream


def _timed_event() -> Any:
    """CuPy's event, timed; a thread that waits for it keeps a core busy.

    A stream on an H200 takes 1,021 of these before recording one blocks the thread that enqueues for all, but only 56 of those on
    which a thread can sleep (``block=True``): 28 steps.
    """
    return cp.cuda.Event()


def _has_adjacent_entries(view: NDArray[np.float64]) -> bool:
    """Whether ``view`` is made of float64 rows, one above the other, of adjacent entries."""
    if view.dtype != np.float64 or view.strides[1] != 8:
        return False
    return bool(view.shape[0] == 1 or view.strides[0] >= 8 * view.shape[1])


def _copy_rows(target: int, source: int, pitches: tuple[int, int], shape: tuple[int, int], kind: int, stream: Any) -> None:
    """Enqueue the copy of ``shape[0]`` rows of ``shape[1]`` bytes between addresses, ``pitches`` bytes apart in each."""
    rows, width = shape
    if pitches == (width, width):
        _runtime.memcpyAsync(target, source, rows * width, kind, stream.ptr)
    else:
        _runtime.memcpy2DAsync(target, pitches[0], source, pitches[1], width, rows, kind, stream.ptr)


def _planes(array: Any) -> range:
    """Addresses of the matrices of an array of two or three dimensions."""
    first, stride = array.data.ptr, array.strides[0]
    return range(first, first + 1) if array.ndim == 2 else range(first, first + array.shape[0] * stride, stride)


@cache
def _allow_peer(source: int, target: int) -> None:
    """Let device ``target``, the current one, reach the memory of ``source`` where the hardware can."""
    if source != target and _runtime.deviceCanAccessPeer(target, source):
        try:
            _runtime.deviceEnablePeerAccess(source)
        except _runtime.CUDARuntimeError as error:
            if error.status != _PEER_ALREADY_ENABLED:
                raise


#: cudaErrorPeerAccessAlreadyEnabled: another library was first.
_PEER_ALREADY_ENABLED = 704


@final
class DeviceSource(AbstractSource):
    """A matrix that lies in a GPU's memory: a CuPy array, or anything that hands one over by DLPack.

    Parameters
    ----------
    a : (n, n) CuPy array, or an object with ``__dlpack__``
        float64 or float32, any strides.
    """

    name = "device-array"
    bytes_per_entry = 0

    def __init__(self, a: Any) -> None:
        self._a: Any = a if isinstance(a, cp.ndarray) else cp.from_dlpack(a)
        self.n = check_shape(self._a.shape, "the array")
        check_dtype(self._a.dtype, "the array")

    def function(self, rows: range, cols: range, out: Tile, stream: Any) -> None:
        """Copy the rectangle on the device, widened to float64."""
        block = self._a[rows.start : rows.stop, cols.start : cols.stop]
        if isinstance(out, np.ndarray):
            out[...] = cp.asnumpy(block)
        else:
            cp.copyto(out, block)

    def _read(self, rows: range, cols: range, out: NDArray[np.float64]) -> None:
        """Copy the rectangle to the host."""
        self.function(rows, cols, out, None)


@contextmanager
def page_locked(fresh: Sequence[NDArray[Any]], filled: Sequence[NDArray[Any]]) -> Iterator[None]:
    """Page-lock host memory for the time of a run, so that copies reach it at full rate and without blocking.

    Parameters
    ----------
    fresh : sequence of array
        Our own allocations, of which most pages were never touched; they are zeroed where they are touched.
    filled : sequence of array
        The user's arrays, of any strides; they are not written, not even with what they hold.

    Notes
    -----
    About 0.025 s per GiB of memory that was touched before, and 0.35 s of one thread otherwise; hence fresh memory is touched by
    several threads first. What is page-locked already is left as it is, and what the driver will not lock (a read-only file
    mapping, say) is read through staging buffers.
    """
    locked: list[int] = []
    try:
        for memory in (*fresh, *filled):
            if _runtime.pointerGetAttributes(memory.ctypes.data).type == _runtime.memoryTypeHost:
                continue
            if any(memory is own for own in fresh):
                _touch(memory)
            low, high = np.lib.array_utils.byte_bounds(memory)
            try:
                _runtime.hostRegister(int(low), int(high - low), _PORTABLE)
            except _runtime.CUDARuntimeError:
                continue
            locked.append(int(low))
        yield
    finally:
        for pointer in locked:
            _runtime.hostUnregister(pointer)


#: cudaHostRegisterPortable: page-locked for every device's context.
_PORTABLE = 1


def _touch(memory: NDArray[Any]) -> None:
    """Write to every page of a contiguous allocation by several threads: page faults are what page-locking waits for."""
    pages = memory.reshape(-1).view(np.uint8)[::4096]
    with ThreadPoolExecutor(_TOUCHING_THREADS) as pool:
        list(pool.map(lambda part: part.fill(0), np.array_split(pages, _TOUCHING_THREADS)))
