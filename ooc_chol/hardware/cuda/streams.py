"""Streams and events of a CUDA device."""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, final

import cupy as cp

from ooc_chol.interfaces import AbstractEvent, AbstractStream
from ooc_chol.process.threads import OwnThread, start, wait_out

Callback: TypeAlias = Callable[[BaseException | None], None]
#: The word of ``cudaEventQuery`` for what is still to come; any other one is zero, or an error.
_NOT_READY = 600
_record, _wait_event = cp.cuda.runtime.eventRecord, cp.cuda.runtime.streamWaitEvent


class StreamOwner(Protocol):
    """Interface of a device to its streams and events."""

    error: BaseException | None

    def current(self) -> AbstractContextManager[object]:
        """Make the device current for the time of a ``with`` block."""

    spare_events: list[Any]  #: CuPy's events, timed, that were made ahead

    def host_time_ns(self, event: Any) -> int:
        """Completion of an event on the host's clock."""


@final
class DeviceEvent(AbstractEvent):
    """A point in a CUDA stream; timed, but for those that a watcher sleeps on."""

    __slots__ = ("_owner", "event", "stream")

    def __init__(self, owner: StreamOwner, stream: CudaStream, event: Any) -> None:
        self._owner = owner
        self.stream = stream
        self.event = event

    def query(self) -> bool:
        return bool(cp.cuda.runtime.eventQuery(self.event.ptr) != _NOT_READY)

    def synchronize(self) -> None:
        """Wait until complete; raise what a host function of the device raised."""
        self.event.synchronize()
        if self._owner.error is not None:
            raise self._owner.error

    def time_ns(self) -> int:
        return self._owner.host_time_ns(self.event)


class CudaStream(AbstractStream):
    """A non-blocking CUDA stream, and a thread that sleeps on its events for those who want to be told."""

    def __init__(self, owner: StreamOwner, name: str, priority: int = 0) -> None:
        self._owner = owner
        self.name = name
        with owner.current():
            self.stream = cp.cuda.Stream(non_blocking=True, priority=priority)
        self._address = self.stream.ptr
        #: Events and what to call, or instead of both what ends the watcher: a reference to a stream that is gone.
        self._watched: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._watcher: OwnThread | None = None

    def wait(self, event: AbstractEvent) -> None:
        if type(event) is not DeviceEvent:
            raise TypeError(f"{type(event).__name__} is not an event of a CUDA device")
        _wait_event(self._address, event.event.ptr)

    def record(self) -> DeviceEvent:
        """Record a new event; its device is current."""
        spare = self._owner.spare_events
        event = spare.pop() if spare else timed_event()
        _record(event.ptr, self._address)
        return DeviceEvent(self._owner, self, event)

    def synchronize(self) -> None:
        with self._owner.current():
            self.record().synchronize()

    def watch(self, callback: Callback) -> None:
        """Call back once all that is enqueued by now is complete; its device is current.

        Events of one stream complete in order, so that one thread serves them all. It sleeps on an event of its own: only such
        events wake a sleeper, and a stream has room for no more than 56 of them (:func:`timed_event`).
        """
        if self._watcher is None:
            # It knows the queue and not the stream: one that is dropped ends it, as one that is closed does.
            gone = weakref.ref(self, self._watched.put)
            watcher = OwnThread(_watch, (self._watched, gone), f"{self.name} watcher")
            self._watcher = watcher  # before it starts: whenever an interrupt comes, it is told to end
            try:
                start(watcher)
            except Exception:  # it could not start
                self._watcher = None
                raise
        event = cp.cuda.Event(block=True, disable_timing=True)
        event.record(self.stream)
        self._watched.put((DeviceEvent(self._owner, self, event), callback))

    def close(self) -> None:
        """End the watcher after all that it watches is complete."""
        if self._watcher is not None:
            self._watched.put(None)
            wait_out([self._watcher])
            self._watcher = None


def _watch(watched: queue.SimpleQueue[Any], stream: weakref.ref[CudaStream]) -> None:
    """Sleep on one event after the other until told to end, or until ``stream`` is gone; a watcher's body."""
    while isinstance(item := watched.get(), tuple):
        event, callback = item
        try:
            event.synchronize()
        except Exception as error:  # handed on to whoever asked to be told
            callback(error)
        else:
            callback(None)
        del item, event, callback


def cuda_stream(stream: AbstractStream) -> CudaStream:
    """``stream`` as a CUDA stream."""
    if not isinstance(stream, CudaStream):
        raise TypeError(f"{type(stream).__name__} is not a stream of a CUDA device")
    return stream


def timed_event() -> Any:
    """CuPy's event, timed; a thread that waits for it keeps a core busy.

    A stream on an H200 takes 1,021 of these before recording one blocks the thread that enqueues for all, but only 56 of those on
    which a thread can sleep (``block=True``).
    """
    return cp.cuda.Event()
