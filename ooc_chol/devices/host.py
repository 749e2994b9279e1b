"""The host as a device: a bounded arena, and streams that are threads.

It keeps CUDA's model exactly (ordered streams, recorded events, no waiting by the enqueuing thread), so that the same plan,
worker and trace serve both.
"""

from __future__ import annotations

import mmap
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

Callback = Callable[[BaseException | None], None]


class AbortedError(OocCholError):
    """The operation was dropped because its run was stopped."""


#: Guards the hand-over of callbacks of all host events; held for nanoseconds only.
_HAND_OVER = threading.Lock()


class HostEvent(AbstractEvent):
    """A point in a host stream; a latch that its stream's thread opens."""

    __slots__ = ("_callbacks", "_latch", "_time_ns", "error")

    def __init__(self) -> None:
        self._latch = threading.Lock()
        self._latch.acquire()
        self._time_ns = 0
        self._callbacks: list[Callback] = []
        self.error: BaseException | None = None

    def query(self) -> bool:
        """Whether the event is complete (also when its stream failed before)."""
        return self._time_ns != 0

    def wait(self) -> None:
        """Block until complete, whether the stream failed or not."""
        if self._time_ns == 0:
            self._latch.acquire()
            self._latch.release()

    def synchronize(self) -> None:
        """Block until complete; raise the stream's error."""
        self.wait()
        if self.error is not None:
            raise self.error

    def succeeded(self) -> bool:
        """Whether it is complete and its stream had not failed."""
        return self._time_ns != 0 and self.error is None

    def time_ns(self) -> int:
        """When it completed."""
        return self._time_ns

    def complete(self, error: BaseException | None) -> None:
        """Open the latch and call back; by the stream's thread, once."""
        self.error = error
        with _HAND_OVER:
            self._time_ns = time.perf_counter_ns()
            callbacks, self._callbacks = self._callbacks, []
        self._latch.release()
        for callback in callbacks:
            callback(error)

    def when_complete(self, callback: Callback) -> None:
        """Call ``callback(error)`` at completion: from the stream's thread, or at once when complete already."""
        with _HAND_OVER:
            if self._time_ns == 0:
                self._callbacks.append(callback)
                return
        callback(self.error)


class HostStream(AbstractStream):
    """A thread that runs its queue in order. After an error it runs nothing more; events behind it complete with the error."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._queue: queue.SimpleQueue[tuple[str, object]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"ooc_chol {name}", daemon=True)
        self._thread.start()

    def enqueue(self, operation: Callable[[], None]) -> None:
        """Append an operation."""
        self._queue.put(("run", operation))

    def wait(self, event: AbstractEvent) -> None:
        """Hold back later operations until ``event`` is complete; its error becomes this stream's error."""
        self._queue.put(("wait", event))

    def record(self) -> HostEvent:
        """Record a new event behind all operations so far."""
        event = HostEvent()
        self._queue.put(("record", event))
        return event

    def synchronize(self) -> None:
        """Block until the queue so far has run; raise its error."""
        self.record().synchronize()

    def abort(self) -> None:
        """Run nothing more than the current operation."""
        if self.error is None:
            self.error = AbortedError("the run was stopped")

    def stop(self) -> None:
        """Let the thread end once the queue has run."""
        self._queue.put(("stop", None))

    def close(self) -> None:
        """End the thread once the queue has run, and wait for that; idempotent."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        while True:
            kind, item = self._queue.get()
            if kind == "stop":
                return
            if isinstance(item, HostEvent):
                if kind == "record":
                    item.complete(self.error)
                else:
                    item.wait()
                    self.error = self.error or item.error
            elif self.error is None and callable(item):
                try:
                    item()
                except BaseException as error:  # whatever it is belongs to the thread that waits on this stream's events
                    self.error = error
            del item  # an idle stream must not keep a tile or a source alive


class HostArena(AbstractArena):
    """Anonymous memory cut into slots, and arrays behind them."""

    def __init__(self, n_slots: int, slot_bytes: int, arrays: Sequence[ArraySpec] = ()) -> None:
        self.n_slots = n_slots
        self.slot_bytes = slot_bytes
        nbytes = n_slots * slot_bytes + sum(spec.nbytes for spec in arrays)
        self._memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._entries: NDArray[np.float64] = np.frombuffer(self._memory, dtype=np.float64, count=n_slots * slot_bytes // 8)
        views, offset = [], n_slots * slot_bytes
        for spec in arrays:
            view = np.frombuffer(self._memory, dtype=spec.dtype, count=prod(spec.shape), offset=offset)
            views.append(view.reshape(spec.shape))
            offset += spec.nbytes
        self.arrays = tuple(views)

    def tile(self, slot: int, shape: tuple[int, int], dtype: str = "float64") -> NDArray[Any]:
        """The first entries of ``slot`` as a row-major array."""
        start = slot * (self.slot_bytes // 8)
        entries = self._entries[start : start + self.slot_bytes // 8]
        return entries.view(dtype)[: shape[0] * shape[1]].reshape(shape)

    def part(self, number: int, corner: tuple[int, int], shape: tuple[int, int]) -> Tile:
        """The rectangle of every plane of an array."""
        (row, column), (rows, columns) = corner, shape
        return self.arrays[number][:, row : row + rows, column : column + columns]

    def release(self) -> None:
        """Give the memory back to the system, also while tiles of it are in sight, as from the traceback of an error."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._memory.madvise(mmap.MADV_DONTNEED)


class HostDevice(AbstractDevice):
    """``host:K``: the machine's cores and a bounded arena, with one thread per stream.

    Parameters
    ----------
    name : str
        Device name.
    kernels : AbstractKernelSet
        Tile kernels that take NumPy arrays and host streams.
    create_flags : callable
        ``create_flags(nt)`` returns the flags that the kernels write.
    residues : AbstractResidueKernels or None
        Kernels of products through residues, for a run that has some.
    """

    nominal_flops_per_second = 2e11

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
        self._create_flags = create_flags
        self._streams: list[HostStream] = []
        self._arenas: list[HostArena] = []

    def allocate(
        self, n_slots: int, slot_bytes: int, nb: int, arrays: Sequence[ArraySpec] = (), *, narrow_bytes: int = 0
    ) -> HostArena:
        """Allocate the arena, unless the machine has less free memory than that."""
        free, needed = free_host_bytes(), n_slots * slot_bytes + sum(spec.nbytes for spec in arrays)
        if needed > free:
            advice = f"the machine has {format_bytes(free)} free; give a smaller memory_budget"
            raise BudgetError(f"arena of {self.name}", needed, free, advice)
        self._arenas.append(HostArena(n_slots, slot_bytes, arrays))
        return self._arenas[-1]

    def open_residues(self, n: int) -> AbstractResidueKernels:
        """The residue kernels with state for ``n`` matrix rows."""
        if self.residues is None:
            raise ScheduleError(f"{self.name} was opened without kernels for residues; open it with their moduli")
        self.residues.open(n)
        return self.residues

    def create_flags(self, nt: int) -> AbstractFlags:
        """Clear flags for ``nt`` tile columns."""
        return self._create_flags(nt)

    def create_stream(self, name: str, *, is_urgent: bool = False) -> HostStream:
        """A new thread with a queue; the system knows no urgency among threads."""
        self._streams.append(HostStream(f"{self.name} {name}"))
        return self._streams[-1]

    def copy_in(self, stream: AbstractStream, tier: AbstractTier, index: tuple[int, int], tile: Tile) -> None:
        """Enqueue a read."""
        _host(stream).enqueue(lambda: tier.read(index, tile))

    def copy_stored(self, stream: AbstractStream, tier: AbstractTier, index: tuple[int, int], target: Tile) -> None:
        """Enqueue a read of stored bytes."""
        _host(stream).enqueue(lambda: tier.read_stored(index, target.reshape(-1)))

    def copy_out(self, stream: AbstractStream, tile: Tile, tier: AbstractTier, index: tuple[int, int]) -> None:
        """Enqueue a write."""
        _host(stream).enqueue(lambda: tier.write(index, tile))

    def generate(self, stream: AbstractStream, function: TileFunction, rows: range, cols: range, tile: Tile) -> None:
        """Enqueue a call of a tile function."""
        _host(stream).enqueue(lambda: function(rows, cols, tile, stream))

    def copy_between(self, stream: AbstractStream, source: Tile, target: Tile) -> None:
        """Enqueue a copy."""
        _host(stream).enqueue(lambda: np.copyto(target, source))

    def notify(self, event: AbstractEvent, callback: Callback) -> None:
        """Call back from the stream's thread."""
        if not isinstance(event, HostEvent):
            raise TypeError(f"{type(event).__name__} is not an event of the host device")
        event.when_complete(callback)

    def abort(self) -> None:
        """Drop what has not started."""
        for stream in self._streams:
            stream.abort()

    def synchronize(self) -> None:
        """Wait for the threads of all streams."""
        for stream in self._streams:
            stream.record().wait()

    def close(self) -> None:
        """End all threads and give back the arena."""
        for stream in self._streams:
            stream.stop()  # all of them before any is waited for: an interrupt while waiting leaves no thread behind
        try:
            while self._streams:
                self._streams.pop().close()
        finally:
            if self.residues is not None:
                self.residues.close()
            self.kernels.close()  # also when the wait for a stream is interrupted
        while self._arenas:
            self._arenas.pop().release()


def _host(stream: AbstractStream) -> HostStream:
    """``stream`` as a host stream."""
    if not isinstance(stream, HostStream):
        raise TypeError(f"{type(stream).__name__} is not a stream of the host device")
    return stream


def total_host_bytes() -> int:
    """Bytes of memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_host_bytes() -> int:
    """Bytes that can be taken without swapping: Linux's MemAvailable, elsewhere half of the machine's memory."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return total_host_bytes() // 2
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024
