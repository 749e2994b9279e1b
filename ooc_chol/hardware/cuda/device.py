"""One GPU behind the runtime's interface: arena, streams, copies, staging buffers."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple, cast, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublas

from ooc_chol.config import format_bytes
from ooc_chol.errors import BudgetError, OocCholError, ScheduleError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.cuda.arena import CudaArena
from ooc_chol.hardware.cuda.captures import captured, wait_for_device
from ooc_chol.hardware.cuda.copies import allow_peer, copy_bytes, copy_matrices, copy_rows, has_adjacent_entries
from ooc_chol.hardware.cuda.facts import device_number
from ooc_chol.hardware.cuda.failures import driver_errors
from ooc_chol.hardware.cuda.locking import LockedMemory
from ooc_chol.hardware.cuda.narrow import NarrowBuffers
from ooc_chol.hardware.cuda.pools import free_and_total
from ooc_chol.hardware.cuda.streams import Callback, CudaStream, DeviceEvent, cuda_stream, timed_event
from ooc_chol.interfaces import (
    AbstractDevice,
    AbstractEvent,
    AbstractStorageKernels,
    AbstractStream,
    AbstractTier,
    AnyDevice,
    ArraySpec,
    BlockIndex,
    KernelSetT_co,
    Tile,
    TileFunction,
)
from ooc_chol.process.team import ThreadTeam

_runtime = cp.cuda.runtime
#: Bytes that cuBLAS's handle and our kernels take beside the budget, by NVML on an H200 with CUDA 13.0. The context comes on top,
#: and the driver's tables for page-locked host memory, about 8 bytes for each 4 KiB.
LIBRARY_BYTES = 256 << 20
#: Threads that fill a staging buffer with a tile of A which no copy reaches in place: one alone turns columns into rows at 2 to 5
#: GB/s, a tenth of what the link to the GPU takes.
_READING_THREADS = 8
#: Streams beside the one that is captured, on which a graph's branches are.
_BRANCHES = 3
#: Events of runs that are over, by device, and how many are kept: making one takes a microsecond.
_SPARE_EVENTS: dict[int, list[Any]] = {}
MOST_SPARE_EVENTS = 1 << 16
#: Priority of urgent streams: the highest of Hopper.
_MOST_URGENT = -5


class _ReadAhead(NamedTuple):
    """A stream that reads blocks for another one, which copies them."""

    stream: CudaStream
    #: Page-locked, with an event behind the last copy from each; the next one to be filled first.
    buffers: deque[tuple[NDArray[np.uint8], DeviceEvent | None]]


@final
class CudaDevice(AbstractDevice[KernelSetT_co]):
    """``cuda:K``: one GPU with an arena, streams, and page-locked staging buffers for blocks that no copy can reach in place."""

    nominal_flops_per_second = 6e13
    driver_errors = driver_errors()

    def __init__(self, name: str, kernels: KernelSetT_co) -> None:
        self.name = name
        self.kernels = kernels
        self.error: BaseException | None = None
        self._device = cp.cuda.Device(device_number(name))
        self._streams: list[CudaStream] = []
        self._branches: list[CudaStream] = []
        self._is_capturing = False
        self._arena: CudaArena | None = None
        self._staging: dict[int, NDArray[np.uint8]] = {}
        self._ahead: dict[int, _ReadAhead] = {}
        self._locked = LockedMemory()
        self._narrow = NarrowBuffers()
        self.spare_events: list[Any] = []
        self._readers = ThreadTeam(max(1, min(_READING_THREADS, (os.cpu_count() or 1) - 1)))
        self._staging_bytes = 0
        self._aborted = False
        with self.current():
            self._base = timed_event()
            self._base.record()
            self._base.synchronize()
            self._base_ns = time.perf_counter_ns()

    def current(self) -> AbstractContextManager[object]:
        return cast(AbstractContextManager[object], self._device)

    def reserve_events(self, count: int) -> None:
        """Make ``count`` events ahead; the driver takes memory for events that live at once, and time for taking it."""
        kept = _SPARE_EVENTS.setdefault(self._device.id, [])
        with suppress(IndexError):  # another run on this GPU may take them as well
            while len(self.spare_events) < count:
                self.spare_events.append(kept.pop())
        with self.current():
            self.spare_events += [timed_event() for _ in range(count - len(self.spare_events))]

    def take_back_events(self, events: Iterable[AbstractEvent]) -> None:
        """Keep events for a later run on this GPU; nobody looks at them any more."""
        kept = _SPARE_EVENTS.setdefault(self._device.id, [])
        kept.extend(event.event for event in events if isinstance(event, DeviceEvent))
        kept.extend(self.spare_events)
        self.spare_events.clear()
        del kept[MOST_SPARE_EVENTS:]

    def times_ns(self, events: Sequence[AbstractEvent]) -> list[int]:
        """In half the time of asking them one by one: a run has thousands."""
        base, base_ns, apart = self._base.ptr, self._base_ns, _runtime.eventElapsedTime
        return [base_ns + int(1e6 * apart(base, event.event.ptr)) for event in events]  # type: ignore[attr-defined]

    def host_time_ns(self, event: Any) -> int:
        """Completion of ``event`` on the host's clock; resolution about a microsecond in runs of some seconds."""
        return self._base_ns + int(1e6 * cp.cuda.get_elapsed_time(self._base, event))

    def allocate(
        self, n_slots: int, slot_bytes: int, nb: int, arrays: Sequence[ArraySpec] = (), *, narrow_bytes: int = 0
    ) -> CudaArena:
        """Allocate slots, arrays, workspace and buffers in one piece, and bind the kernels to their workspace."""
        workspace = self.kernels.workspace_bytes(nb)
        needed = CudaArena.bytes_for(n_slots, slot_bytes, workspace, arrays, narrow_bytes=narrow_bytes)
        with self.current():
            free, total = free_and_total()
            if needed > free:
                advice = f"{format_bytes(free)} of {format_bytes(total)} are free, others may use the device; lower memory_budget"
                raise BudgetError(f"arena of {self.name}", needed, free, advice)
            try:
                self._arena = CudaArena(n_slots, slot_bytes, workspace, arrays, narrow_bytes=narrow_bytes)
            except (cp.cuda.memory.OutOfMemoryError, _runtime.CUDARuntimeError) as error:
                advice = f"the driver refused ({error}); give a smaller memory_budget"
                raise BudgetError(f"arena of {self.name}", needed, free, advice) from error
            try:
                self.kernels.bind(nb, self._arena.workspace)
            except cublas.cuBLASError as error:
                advice = f"cuBLAS needs memory beside the budget ({error}); give a smaller memory_budget"
                raise BudgetError(f"libraries of {self.name}", needed + LIBRARY_BYTES, free, advice) from error
            # What was cleared on the default stream is done then: ours do not wait for it, nor for the user's work before it.
            cp.cuda.Stream.null.synchronize()
        self._narrow = NarrowBuffers(self._arena.narrow, narrow_bytes)
        self._staging_bytes = max(slot_bytes, narrow_bytes)
        return self._arena

    def create_stream(self, name: str, *, is_urgent: bool = False) -> CudaStream:
        """A new non-blocking stream; thread blocks of an urgent one start before those of others that wait."""
        self._streams.append(CudaStream(self, f"{self.name} {name}", _MOST_URGENT if is_urgent else 0))
        return self._streams[-1]

    def activate(self) -> None:
        self._device.use()

    def prepare(self, once: Callable[[], None]) -> None:
        """Compile and upload what a tile function needs."""
        with self.current():
            once()
            wait_for_device()  # uploads, and whatever still fills an array of the user's on this device

    def captured(self, stream: AbstractStream, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Capture a graph, which takes the thread that enqueues some microseconds, or enqueue anew where that was voided."""
        cupy_stream = cuda_stream(stream).stream
        while len(self._branches) < _BRANCHES:
            self._branches.append(self.create_stream("branch"))
        self._is_capturing = True
        try:
            with self.current():
                graph = captured(cupy_stream, enqueue)
        finally:
            self._is_capturing = False
        return enqueue if graph is None else partial(graph.launch, cupy_stream)

    def fork_join(self, stream: AbstractStream, works: Sequence[Callable[[AbstractStream], None]]) -> None:
        """As branches of a graph while it is captured: the last thread blocks of a kernel run beside the first of others."""
        branches = self._branches[: len(works) - 1] if self._is_capturing else []
        begun = stream.record() if branches else None
        for branch in branches:
            branch.wait(begun)  # type: ignore[arg-type] # there is one
        streams = [stream, *branches]
        for number, work in enumerate(works):
            work(streams[number % len(streams)])
        for branch in branches:
            stream.wait(branch.record())

    def copy_in(self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, tile: Tile) -> None:
        """Enqueue a copy from page-locked memory, else a read into a staging buffer and a copy from there.

        Stored bytes of a narrow format go to the stream's buffer on the device, from which a kernel widens them.
        """
        fmt, cupy_stream = tier.format_of(index), cuda_stream(stream).stream
        if fmt.dtype != tile.dtype:
            self._copy_narrow_in(stream, tier, index, tile, fmt)
            return
        if (address := self._on_device(tier, index)) is not None:
            _runtime.memcpyAsync(tile.data.ptr, address, tile.nbytes, _runtime.memcpyDefault, cupy_stream.ptr)
            return
        view = self._view_in_place(tier, index, fmt.dtype)
        if view is None:
            staged = view = self._stage_tile(stream, tile.shape, fmt.dtype)
            self._on_host(cupy_stream, lambda: tier.read_by(self._readers, index, staged))
        shape, cuts = (tile.shape[0], fmt.itemsize * tile.shape[1]), self._locked.cuts(tier, view)
        pitches = shape[1], view.strides[0]
        copy_rows(tile.data.ptr, view.ctypes.data, pitches, shape, _runtime.memcpyHostToDevice, cupy_stream, cuts)

    def _copy_narrow_in(
        self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, tile: Tile, fmt: PrecisionFormat
    ) -> None:
        storage, nbytes = self._storage(index, fmt, tile), fmt.stored_bytes(tile.size)
        if (address := self._here(tier, index)) is not None:
            storage.widen(stream, address, fmt, tile)
            return
        buffer = self._narrow.of(stream, nbytes)
        # The copy and the kernel, and all later uses of the buffer, are in the order of this stream.
        self._copy_bytes_in(stream, tier, index, buffer, nbytes)
        storage.widen(stream, buffer, fmt, tile)

    def copy_stored(self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, target: Tile) -> None:
        """Enqueue a copy of stored bytes from page-locked memory, else a read into a staging buffer and a copy from there."""
        self._copy_bytes_in(stream, tier, index, target.data.ptr, target.size)

    def _copy_bytes_in(self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, address: int, nbytes: int) -> None:
        """Enqueue the copy of a block's stored bytes to ``address``; uses of the staging buffer are in stream order."""
        cupy_stream = cuda_stream(stream).stream
        if (source := self._on_device(tier, index)) is not None:
            _runtime.memcpyAsync(address, source, nbytes, _runtime.memcpyDefault, cupy_stream.ptr)
            return
        stored = self._stored_in_place(tier, index)
        if stored is None and tier.is_only_read:
            self._copy_read_ahead(cuda_stream(stream), tier, index, address, nbytes)
            return
        if stored is None:
            staged = stored = self._stage(stream, nbytes)
            self._on_host(cupy_stream, lambda: tier.read_stored(index, staged))
        cuts = self._locked.cuts(tier, stored)
        copy_bytes(address, stored.ctypes.data, nbytes, _runtime.memcpyHostToDevice, cupy_stream, cuts)

    def _copy_read_ahead(self, stream: CudaStream, tier: AbstractTier, index: BlockIndex, address: int, nbytes: int) -> None:
        """Enqueue the copy of a block that nobody writes: its reading waits for a buffer alone, not for what is before the copy.

        1. The reading stream waits for the copy from that buffer before, and fills it.
        2. The copy waits for that; meanwhile the next block is read into the other buffer.
        """
        self._check_staged(nbytes)
        reading, buffers = self._read_ahead_of(stream)
        buffer, copied = buffers[0]
        if copied is not None:
            reading.wait(copied)
        staged = buffer[:nbytes]
        self._on_host(reading.stream, lambda: tier.read_stored(index, staged))
        stream.wait(reading.record())
        cuts = self._locked.cuts(tier, staged)
        copy_bytes(address, staged.ctypes.data, nbytes, _runtime.memcpyHostToDevice, stream.stream, cuts)
        buffers[0] = buffer, stream.record()
        buffers.rotate(-1)

    def copy_out(
        self, stream: AbstractStream, tile: Tile, tier: AbstractTier, index: BlockIndex, *, largest: int | None = None
    ) -> None:
        """Enqueue a copy to page-locked memory, else a copy into a staging buffer and a write from there.

        For a narrow format a kernel writes what is stored of the tile to the stream's buffer on the device first.
        """
        fmt, cupy_stream = tier.format_of(index), cuda_stream(stream).stream
        if fmt.dtype != tile.dtype:
            self._copy_narrow_out(stream, tile, tier, index, fmt, largest)
            return
        if (address := self._on_device(tier, index)) is not None:
            _runtime.memcpyAsync(address, tile.data.ptr, tile.nbytes, _runtime.memcpyDefault, cupy_stream.ptr)
            return
        view = self._view_in_place(tier, index, fmt.dtype)
        target = self._stage_tile(stream, tile.shape, fmt.dtype) if view is None else view
        shape, cuts = (tile.shape[0], fmt.itemsize * tile.shape[1]), self._locked.cuts(tier, target)
        pitches = target.strides[0], shape[1]
        copy_rows(target.ctypes.data, tile.data.ptr, pitches, shape, _runtime.memcpyDeviceToHost, cupy_stream, cuts)
        if view is None:
            self._on_host(cupy_stream, lambda: tier.write_by(self._readers, index, target))
        elif tier.wants_word_of_writes:
            self._on_host(cupy_stream, lambda: tier.written(index))

    def _copy_narrow_out(
        self,
        stream: AbstractStream,
        tile: Tile,
        tier: AbstractTier,
        index: BlockIndex,
        fmt: PrecisionFormat,
        largest: int | None,
    ) -> None:
        storage, nbytes, cupy_stream = self._storage(index, fmt, tile), fmt.stored_bytes(tile.size), cuda_stream(stream).stream
        if (address := self._here(tier, index)) is not None:
            storage.encode(stream, tile, fmt, address, largest=largest)
            return
        buffer = self._narrow.of(stream, nbytes)
        if (address := self._on_device(tier, index)) is not None:
            storage.encode(stream, tile, fmt, buffer, largest=largest)
            _runtime.memcpyAsync(address, buffer, nbytes, _runtime.memcpyDefault, cupy_stream.ptr)
            return
        stored = self._stored_in_place(tier, index)
        target = self._stage(stream, nbytes) if stored is None else stored
        # The kernel and the copy, and all later uses of the two buffers, are in the order of this stream.
        storage.encode(stream, tile, fmt, buffer, largest=largest)
        copy_bytes(target.ctypes.data, buffer, nbytes, _runtime.memcpyDeviceToHost, cupy_stream, self._locked.cuts(tier, target))
        if stored is None:
            self._on_host(cupy_stream, lambda: tier.write_stored(index, target))
        elif tier.wants_word_of_writes:
            self._on_host(cupy_stream, lambda: tier.written(index))

    def copy_all_in(self, stream: AbstractStream, tier: AbstractTier, tiles: Sequence[Tile]) -> None:
        """By two buffers, and the thread that calls: functions that streams call take turns in the whole process."""
        if not tiles:
            return
        target, buffers, copied = cuda_stream(stream), self._buffers(stream, tiles), list[DeviceEvent]()
        target.synchronize()  # what was enqueued before may use the buffers
        for number, tile in enumerate(tiles):
            if number >= len(buffers):
                copied[number - len(buffers)].synchronize()
            data = _as_tile(buffers[number % len(buffers)], tile)
            tier.read_by(self._readers, (number, 0), data)
            _runtime.memcpyAsync(tile.data.ptr, data.ctypes.data, tile.nbytes, _runtime.memcpyHostToDevice, target.stream.ptr)
            copied.append(target.record())

    def copy_all_out(self, stream: AbstractStream, tiles: Sequence[Tile], tier: AbstractTier) -> None:
        """As :meth:`copy_all_in`."""
        if not tiles:
            return
        source, buffers = cuda_stream(stream), self._buffers(stream, tiles)
        copied = deque[tuple[DeviceEvent, int, NDArray[Any]]]()
        for number, tile in enumerate(tiles):
            if len(copied) == len(buffers):
                self._write_copied(tier, *copied.popleft())
            data = _as_tile(buffers[number % len(buffers)], tile)
            _runtime.memcpyAsync(data.ctypes.data, tile.data.ptr, tile.nbytes, _runtime.memcpyDeviceToHost, source.stream.ptr)
            copied.append((source.record(), number, data))
        for each in copied:
            self._write_copied(tier, *each)

    def _buffers(self, stream: AbstractStream, tiles: Sequence[Tile]) -> NDArray[np.uint8]:
        """Halves of the stream's page-locked buffer, or all of it for tiles that are larger."""
        most = max(tile.nbytes for tile in tiles)
        count = 2 if 2 * most <= self._staging_bytes else 1
        return self._stage(stream, count * most).reshape(count, most)

    def _write_copied(self, tier: AbstractTier, copied: DeviceEvent, number: int, data: NDArray[Any]) -> None:
        """Write a block that is in a staging buffer once the copy is complete."""
        copied.synchronize()
        tier.write_by(self._readers, (number, 0), data)

    def wrote(self, tier: AbstractTier, index: BlockIndex, event: AbstractEvent) -> bool:
        """Tell whether the copy is complete: after an abort, only where the block lies in memory page-locked for a run."""
        if not (isinstance(event, DeviceEvent) and event.event.done):  # one that failed would answer a query, too
            return False
        return not self._aborted or self._on_device(tier, index) is not None or self._stored_in_place(tier, index) is not None

    def generate(self, stream: AbstractStream, function: TileFunction, rows: range, cols: range, tile: Tile) -> None:
        """Call a tile function with the stream current, so that its CuPy operations and kernels are enqueued there.

        One that says that it takes the stream (``takes_stream``) is called as it is, while the device is current.
        """
        if getattr(function, "takes_stream", False):
            function(rows, cols, tile, cuda_stream(stream).stream)
        else:
            with self.current(), cuda_stream(stream).stream as current:
                function(rows, cols, tile, current)
        if self._aborted and self.error is not None:
            raise self.error  # nobody waited for a function that took long: what follows would use a device that is closed

    def copy_between(self, stream: AbstractStream, source: Tile, target: Tile) -> None:
        """Enqueue copies, directly between GPUs that reach each other's memory, else by way of the host."""
        cupy_stream = cuda_stream(stream).stream
        for tile in (source, target):
            allow_peer(tile.data.device_id, self._device.id)
        copy_matrices(target, source, cupy_stream)

    def reaches(self, other: AnyDevice) -> bool:
        return allow_peer(device_number(other.name), self._device.id)

    def notify(self, event: AbstractEvent, callback: Callback) -> None:
        """Call back from a watcher thread, once ``event`` and all that its stream holds by now is complete."""
        if not isinstance(event, DeviceEvent):
            raise TypeError(f"{type(event).__name__} is not an event of a CUDA device")
        with self.current():
            event.stream.watch(callback)

    def failure(self) -> BaseException | None:
        """Error that a host function raised: results computed after it are void, its flags too."""
        return self.error

    def abort(self) -> None:
        """Let host functions do nothing, and nobody wait for page-locking; what is enqueued, at most the window, runs out."""
        self._aborted = True
        if self.error is None:
            self.error = OocCholError("the run was stopped")
        self._locked.stop()

    def synchronize(self) -> None:
        """Wait until all streams are empty, whatever became of their work."""
        with self.current():
            for stream in self._streams:
                stream.stream.synchronize()

    def close(self) -> None:
        """Wait for the streams, end the watchers, free memory: all of it, also where the driver refuses, as after a loss."""
        with ExitStack() as stack:  # which does the last first, and all of it; if not below, then at its end
            stack.callback(self._streams.clear)
            stack.callback(self._branches.clear)
            stack.callback(self._let_go)
            stack.callback(self.kernels.close)
            stack.callback(self._readers.close)
            for stream in self._streams:
                stack.callback(stream.close)  # a watcher is told of what it watches, by an error at the worst, and ends
            for stream in self._streams:
                stack.callback(stream.stream.synchronize)
            with self.current():
                stack.close()

    def _let_go(self) -> None:
        """Free all memory of the device, once nothing uses it."""
        if self._arena is not None:
            self._arena.close()
            self._arena = None
        self._staging.clear()
        self._ahead.clear()
        self._locked.clear()
        self._narrow = NarrowBuffers()
        self.spare_events.clear()

    def _storage(self, index: BlockIndex, fmt: PrecisionFormat, tile: Tile) -> AbstractStorageKernels:
        """The kernels, which must be able to widen and round a block of another format than the tile's type."""
        if not isinstance(self.kernels, AbstractStorageKernels):
            change = f"block {tuple(index)} is stored in {fmt.name}, its tile on {self.name} is {tile.dtype}"
            advice = "copy its stored bytes (copy_stored), or open the device with kernels that do (AbstractStorageKernels)"
            raise TypeError(f"{change}: {type(self.kernels).__name__} cannot widen or round it; {advice}")
        return self.kernels

    def _on_device(self, tier: AbstractTier, index: BlockIndex) -> int | None:
        """Address of the bytes of block ``index`` on a GPU, this one or another, whose memory copies then reach."""
        block = tier.on_device(index)
        if block is None:
            return None
        if block.device != self.name:
            allow_peer(device_number(block.device), self._device.id)
        return block.address

    def _here(self, tier: AbstractTier, index: BlockIndex) -> int | None:
        """Address of the bytes of block ``index`` in this GPU's own memory."""
        block = tier.on_device(index)
        return block.address if block is not None and block.device == self.name else None

    def _view_in_place(self, tier: AbstractTier, index: BlockIndex, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """Block ``index`` if an asynchronous copy can read or write it in place: rows of adjacent entries, page-locked."""
        view = tier.view(index)
        if view is None or not has_adjacent_entries(view, dtype):
            return None
        return view if self._locked.holds(tier, view) else None

    def _stored_in_place(self, tier: AbstractTier, index: BlockIndex) -> NDArray[np.uint8] | None:
        """The stored bytes of block ``index`` if an asynchronous copy can read or write them in place."""
        stored = tier.stored(index)
        return stored if stored is not None and self._locked.holds(tier, stored) else None

    def _stage_tile(self, stream: AbstractStream, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The stream's page-locked buffer, shaped as a tile."""
        return self._stage(stream, dtype.itemsize * shape[0] * shape[1]).view(dtype).reshape(shape)

    def _stage(self, stream: AbstractStream, nbytes: int) -> NDArray[np.uint8]:
        """The first bytes of the stream's page-locked buffer; uses of it are in stream order."""
        self._check_staged(nbytes)
        if (key := id(stream)) not in self._staging:
            self._staging[key] = self._page_locked()
        return self._staging[key][:nbytes]

    def _read_ahead_of(self, stream: CudaStream) -> _ReadAhead:
        """The stream and the buffers that read for another stream."""
        if (key := id(stream)) not in self._ahead:
            buffers = [(self._page_locked(), None) for _ in range(2)]
            self._ahead[key] = _ReadAhead(self.create_stream("read"), deque(buffers))
        return self._ahead[key]

    def _check_staged(self, nbytes: int) -> None:
        """Refuse a block that is larger than a page-locked buffer."""
        if nbytes > self._staging_bytes:
            raise ScheduleError(
                f"a block has {nbytes} bytes, but the staging buffers of {self.name} {self._staging_bytes} bytes each"
            )

    def _page_locked(self) -> NDArray[np.uint8]:
        """A page-locked buffer."""
        return np.frombuffer(cp.cuda.alloc_pinned_memory(self._staging_bytes), dtype=np.uint8, count=self._staging_bytes)

    def _on_host(self, stream: Any, operation: Callable[[], None]) -> None:
        """Enqueue a host function; its error becomes the device's."""

        def run(_: object) -> None:
            if self._aborted or self.error is not None:
                return
            try:
                operation()
            except BaseException as error:  # raised by the next synchronize of any event of this device
                self.failed_at = time.perf_counter()
                self.error = error

        stream.launch_host_func(run, None)


def _as_tile(buffer: NDArray[np.uint8], tile: Tile) -> NDArray[Any]:
    """The first bytes of a buffer, as an array of a tile's type and shape."""
    found: NDArray[Any] = buffer[: tile.nbytes].view(tile.dtype).reshape(tile.shape)
    return found
