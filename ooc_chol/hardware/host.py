"""The host as a device: a bounded arena, and streams that are threads.

It keeps CUDA's model exactly (ordered streams, recorded events, no waiting by the enqueuing thread), so that the same plan,
worker and trace serve both.
"""

from __future__ import annotations

import mmap
import os
import queue
import time
import weakref
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import format_bytes
from ooc_chol.errors import BudgetError, OocCholError
from ooc_chol.hardware.memory_limits import host_limit, total_bytes
from ooc_chol.interfaces import (
    AbstractArena,
    AbstractDevice,
    AbstractEvent,
    AbstractStream,
    AbstractTier,
    ArraySpec,
    BlockIndex,
    KernelSetT_co,
    Tile,
    TileFunction,
)
from ooc_chol.memory.promises import HOST_PROMISES
from ooc_chol.process.address_space import check_room
from ooc_chol.process.fork_safety import new_lock
from ooc_chol.process.forks import refuse_in_child
from ooc_chol.process.threads import GRACE_SECONDS, OwnThread, start, take, wait_out

Callback = Callable[[BaseException | None], None]


class AbortedError(OocCholError):
    """The operation was dropped because its run was stopped."""


#: Guards the hand-over of callbacks of all host events; held for nanoseconds only.
_HAND_OVER = new_lock()


class HostEvent(AbstractEvent):
    """A point in a host stream. Whoever waits for it brings a latch of his own: one who is interrupted holds up nobody else."""

    __slots__ = ("_callbacks", "_time_ns", "error")

    def __init__(self) -> None:
        self._time_ns = 0
        self._callbacks: list[Callback] = []
        self.error: BaseException | None = None

    def query(self) -> bool:
        """Tell whether the event is complete (also when its stream failed before)."""
        return self._time_ns != 0

    def wait(self, seconds: float | None = None) -> bool:
        """Block until complete, whether the stream failed or not, or for so long; returns whether it is complete."""
        if self._time_ns == 0:
            latch: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
            self.when_complete(latch.put)
            if seconds is None:
                take(latch)
                return True
            try:
                latch.get(timeout=seconds)
            except queue.Empty:
                return False
        return True

    def synchronize(self) -> None:
        self.wait()
        if self.error is not None:
            raise self.error

    def succeeded(self) -> bool:
        return self._time_ns != 0 and self.error is None

    def time_ns(self) -> int:
        return self._time_ns

    def complete(self, error: BaseException | None) -> None:
        """Call back; by the stream's thread, or by who closes the stream, once."""
        self.error = error
        with _HAND_OVER:
            self._time_ns = time.perf_counter_ns()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(error)

    def when_complete(self, callback: Callback) -> None:
        """Call ``callback(error)`` at completion: from the stream's thread, or at once when complete already."""
        with _HAND_OVER:
            if self._time_ns == 0:
                self._callbacks.append(callback)
                return
        callback(self.error)


class _Lane:
    """Work of a stream's thread. It does not know the stream: one that is dropped ends its thread, like one closed.

    Once it has ended, whatever is put into it is dropped, and events complete with an error: nobody waits for ever.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.has_ended = True  # until its thread is started
        self._is_over = False  # ended by another thread, for good
        #: Kinds and items, or instead of both what ends the thread: a reference to a stream that is gone.
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._latch: queue.SimpleQueue[BaseException | None] | None = None

    def put(self, kind: str, item: object) -> None:
        """Append an operation to run, or an event to record or to wait for."""
        self.queue.put((kind, item))
        # 1. The thread looks into the queue for the last time, 2. we put, 3. the thread has ended. It says so before 1: one of
        # the two sees what the other did, and takes the item out.
        if self.has_ended:
            self._drain()

    def abort(self) -> None:
        """Run nothing more than the current operation, and wait for no event of another stream."""
        if self.error is None:
            self.error = AbortedError("the run was stopped")
        if (latch := self._latch) is not None:
            latch.put(None)

    def end(self) -> None:
        """End at once, but for the operation that runs: its thread is left alone with it."""
        if not self.has_ended:
            self.abort()
            self.has_ended = True
        self._is_over = True
        self._drain()

    def run(self, stream: weakref.ref[HostStream]) -> None:
        """Perform what comes, in order, until told to end, or until ``stream`` is gone, as it then says in the queue."""
        try:
            while not self.has_ended:
                what = self.queue.get()
                if not isinstance(what, tuple) or what[0] == "stop":
                    return
                self._perform(*what)
                del what  # an idle stream must not keep a tile or a source alive
        finally:
            self.has_ended = True
            self._drain()

    def _perform(self, kind: str, item: object) -> None:
        if isinstance(item, HostEvent):
            if kind == "record":
                item.complete(self.error)
            else:
                self._wait(item)
        elif self.error is None and callable(item):
            try:
                item()
            except BaseException as error:  # whatever it is belongs to the thread that waits on this stream's events
                self.error = self.error or error

    def _wait(self, event: HostEvent) -> None:
        """Until the event is complete, or this lane has an error."""
        self._latch = queue.SimpleQueue()
        event.when_complete(self._latch.put)
        if self.error is None:  # asked behind the latch's making: an abort that did not see it is seen here
            self._latch.get()
        self._latch = None
        self.error = self.error or event.error

    def _drain(self) -> None:
        """Take out all that is left; any number of threads may do so at once."""
        while True:
            try:
                what = self.queue.get_nowait()
            except queue.Empty:
                break
            if isinstance(what, tuple) and what[0] == "record":
                what[1].complete(self.error or AbortedError("its stream is closed"))
        # 1. The thread sees that it has not ended, 2. :meth:`end` says so and takes out all, 3. the thread looks for more: it
        # finds this. So it does when whoever puts something behind that takes it out before the thread wakes.
        if self._is_over:
            self.queue.put(None)


class HostStream(AbstractStream):
    """A thread that runs its queue in order. After an error it runs nothing more; events behind it complete with the error."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lane = _Lane()
        self.thread = OwnThread(self._lane.run, (weakref.ref(self, self._lane.queue.put),), name)

    def start(self) -> None:
        """Start the thread; before that, and once it has ended, operations are dropped."""
        try:
            self._lane.has_ended = False
            start(self.thread)
        except BaseException:
            self._lane.end()  # an interrupt may have come before or after the system started the thread
            raise

    def enqueue(self, operation: Callable[[], None]) -> None:
        """Append an operation, which the thread runs behind all earlier ones."""
        self._lane.put("run", operation)

    def wait(self, event: AbstractEvent) -> None:
        """The event's error becomes this stream's error."""
        self._lane.put("wait", event)

    def record(self) -> HostEvent:
        """Record a new event behind all operations so far; of a stream that has ended it is complete, with an error."""
        event = HostEvent()
        self._lane.put("record", event)
        return event

    def synchronize(self) -> None:
        self.record().synchronize()

    def abort(self) -> None:
        """Run nothing more than the current operation."""
        self._lane.abort()

    def stop(self) -> None:
        """Let the thread end once the queue has run."""
        self._lane.put("stop", None)

    def close(self) -> None:
        """End the thread once the queue has run, and wait for that unless the user's code holds it; idempotent."""
        self.stop()
        wait_out([self.thread])
        self.end()

    def end(self) -> None:
        """Complete all events, whatever the thread does: it ends once the operation returns that it runs, if it ever does."""
        self._lane.end()


class HostArena(AbstractArena):
    """Anonymous memory cut into slots, arrays behind them, and the kernels' workspace."""

    def __init__(self, n_slots: int, slot_bytes: int, arrays: Sequence[ArraySpec] = (), workspace_bytes: int = 0) -> None:
        self.n_slots = n_slots
        self.slot_bytes = slot_bytes
        nbytes = self.bytes_for(n_slots, slot_bytes, arrays, workspace_bytes)
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
        self.workspace = self._entries.ctypes.data + offset

    @staticmethod
    def bytes_for(n_slots: int, slot_bytes: int, arrays: Sequence[ArraySpec] = (), workspace_bytes: int = 0) -> int:
        """Bytes that an arena of these slots, arrays and workspace takes."""
        return n_slots * slot_bytes + sum(spec.nbytes for spec in arrays) + workspace_bytes

    def tile(self, slot: int, shape: tuple[int, int], dtype: str = "float64") -> NDArray[Any]:
        start = slot * (self.slot_bytes // 8)
        entries = self._entries[start : start + self.slot_bytes // 8]
        return entries.view(dtype)[: shape[0] * shape[1]].reshape(shape)

    def part(self, number: int, corner: tuple[int, int], shape: tuple[int, int]) -> Tile:
        (row, column), (rows, columns) = corner, shape
        return self.arrays[number][:, row : row + rows, column : column + columns]

    def release(self) -> None:
        """Give the memory back to the system, also while tiles of it are in sight, as from the traceback of an error."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._memory.madvise(mmap.MADV_DONTNEED)


class HostDevice(AbstractDevice[KernelSetT_co]):
    """``host:K``: the machine's cores and a bounded arena, with one thread per stream."""

    nominal_flops_per_second = 2e11

    def __init__(self, name: str, kernels: KernelSetT_co) -> None:
        self.name = name
        self.kernels = kernels
        self._streams: list[HostStream] = []
        self._arenas: list[HostArena] = []
        self._is_aborted = False
        self._process = os.getpid()

    def allocate(
        self, n_slots: int, slot_bytes: int, nb: int, arrays: Sequence[ArraySpec] = (), *, narrow_bytes: int = 0
    ) -> HostArena:
        """Allocate the arena, unless the machine has less free memory than that, or a limit of the process forbids it."""
        workspace = self.kernels.workspace_bytes(nb)
        needed, promised = HostArena.bytes_for(n_slots, slot_bytes, arrays, workspace), HOST_PROMISES.nbytes
        free = max(0, free_host_bytes() - promised)
        if needed > free:
            others = f" beside {format_bytes(promised)} of other calls in this process" if promised else ""
            advice = f"{host_limit().name} has {format_bytes(free)} free{others}; give a smaller memory_budget"
            raise BudgetError(f"arena of {self.name}", needed, free, advice)
        HOST_PROMISES.promise(self, needed)
        check_room(needed, f"arena of {self.name}", "give a smaller memory_budget")
        self._arenas.append(HostArena(n_slots, slot_bytes, arrays, workspace))
        self.kernels.bind(nb, self._arenas[-1].workspace)
        return self._arenas[-1]

    def create_stream(self, name: str, *, is_urgent: bool = False) -> HostStream:
        """A new thread with a queue; the system knows no urgency among threads."""
        refuse_in_child(self._process, f"the work of {self.name}")
        stream = HostStream(f"{self.name} {name}")
        self._streams.append(stream)  # before it starts: whenever an interrupt comes, it is told to end
        stream.start()
        if self._is_aborted:  # asked behind the list: an abort that did not see the stream there is seen here
            stream.abort()
        return stream

    def copy_in(self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, tile: Tile) -> None:
        _host(stream).enqueue(lambda: tier.read(index, tile))

    def copy_stored(self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, target: Tile) -> None:
        _host(stream).enqueue(lambda: tier.read_stored(index, target.reshape(-1)))

    def copy_out(
        self, stream: AbstractStream, tile: Tile, tier: AbstractTier, index: BlockIndex, *, largest: int | None = None
    ) -> None:
        _host(stream).enqueue(lambda: tier.write(index, tile))

    def generate(self, stream: AbstractStream, function: TileFunction, rows: range, cols: range, tile: Tile) -> None:
        _host(stream).enqueue(lambda: function(rows, cols, tile, stream))

    def copy_between(self, stream: AbstractStream, source: Tile, target: Tile) -> None:
        _host(stream).enqueue(lambda: np.copyto(target, source))

    def notify(self, event: AbstractEvent, callback: Callback) -> None:
        """Call back from the stream's thread."""
        if not isinstance(event, HostEvent):
            raise TypeError(f"{type(event).__name__} is not an event of the host device")
        event.when_complete(callback)

    def abort(self) -> None:
        """Drop what has not started, also in streams that are still to come."""
        self._is_aborted = True
        for stream in list(self._streams):
            stream.abort()

    def synchronize(self) -> None:
        """Wait for the threads of all streams; of a device that is aborted, not for one that stays inside the user's code."""
        self._leave_behind()
        self._settle(lambda: self._is_aborted)

    def close(self) -> None:
        """End all threads and give back the arena; a thread that stays inside the user's code ends when that returns."""
        for stream in self._streams:
            stream.stop()  # all of them before any is waited for: an interrupt while waiting leaves no thread behind
        self._leave_behind()
        try:
            self._settle(lambda: True)
            wait_out([stream.thread for stream in self._streams])
        finally:
            HOST_PROMISES.give_back(self)
            self.kernels.close()  # also when the wait for a stream is interrupted
        self._streams.clear()
        while self._arenas:
            self._arenas.pop().release()

    def _leave_behind(self) -> None:
        """In a forked child, which has none of the threads: whoever waits for one is told."""
        if self._process != os.getpid():
            for stream in self._streams:
                stream.end()

    def _settle(self, may_end: Callable[[], bool]) -> None:
        """Wait until all streams have run; where it may be, end one that stays inside the user's code: others may wait for it."""
        for event in [stream.record() for stream in self._streams]:
            while not event.wait(GRACE_SECONDS):
                for stream in self._streams:
                    if may_end() and stream.thread.is_lent:
                        stream.end()


def _host(stream: AbstractStream) -> HostStream:
    """``stream`` as a host stream."""
    if not isinstance(stream, HostStream):
        raise TypeError(f"{type(stream).__name__} is not a stream of the host device")
    return stream


def total_host_bytes() -> int:
    """Bytes of memory that the machine, or the control group of this process, has, in use or not."""
    return total_bytes()


def free_host_bytes() -> int:
    """Bytes that this process can take without swapping, by the machine, its control groups and its own limits."""
    return host_limit().free_bytes
