"""Streams and events: CUDA's model, kept by the host device too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

#: Whatever array the device's kernels take: a NumPy array on the host, a CuPy array on CUDA.
Tile: TypeAlias = Any
#: A function ``(rows, cols, out, stream)`` that fills the tile ``out`` with ``A[rows, cols]``.
TileFunction: TypeAlias = Callable[[range, range, Tile, Any], None]


class AbstractEvent(ABC):
    """A point in a stream: it is complete once all work before it is."""

    @abstractmethod
    def query(self) -> bool:
        """Tell whether all work before the event is complete, or given up since something failed."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block the calling thread until the event is complete; raise the error of its stream, if any."""

    def succeeded(self) -> bool:
        """Tell whether all work before the event is known to be done, without an error; a device that cannot tell says no."""
        return False

    @abstractmethod
    def time_ns(self) -> int:
        """The time at which the event completed, in nanoseconds of ``time.perf_counter_ns``; asked for only after completion."""


class AbstractStream(ABC):
    """An ordered queue of operations on one device."""

    name: str  #: Name in traces, such as ``"compute"``

    @abstractmethod
    def wait(self, event: AbstractEvent) -> None:
        """Hold back all later operations of this stream until ``event`` is complete. The event must be recorded already."""

    @abstractmethod
    def record(self) -> AbstractEvent:
        """Record a new event behind all operations enqueued so far."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block the calling thread until the stream is empty; raise its error, if any."""


#: Work that is enqueued piece by piece: each yields what must be complete before the next one, or None. A function stands for
#: what would hold up the calling thread, as a library that waits for the device inside: it is called, on a thread of its own
#: where other devices could go on. Whoever asks for a piece, or calls a function, has made its device current; between two pieces
#: it may be another one.
Turns: TypeAlias = Iterator[AbstractEvent | Callable[[], None] | None]
