"""How long one call takes: alone on an idle device, or on one that never stands still."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from math import ceil
from statistics import fmean, median
from typing import TypeAlias, final

from ooc_chol.interfaces import AbstractEvent, AbstractStream

Call: TypeAlias = Callable[[], None]
_Span: TypeAlias = tuple[AbstractEvent, AbstractEvent]

#: Seconds of load in front of every measurement.
BRIDGE_SECONDS = 0.2
#: Seconds of load that are enqueued at once.
_BATCH_SECONDS = 0.02
#: Most calls of the load, or of what is measured, one after the other, and most rounds of both.
_MOST_CALLS, _MOST_ROUNDS = 32, 2000
#: Calls on the host that took so many times the seconds that are wanted are enough, be they ever so few.
_ENOUGH = 10


def nothing() -> None:
    """Do nothing."""


class AbstractTimer(ABC):
    """Measures calls that enqueue work on one stream."""

    def __init__(self, stream: AbstractStream, seconds: float, bridge_seconds: float = BRIDGE_SECONDS) -> None:
        self.stream = stream
        self._seconds, self._bridge_seconds = seconds, bridge_seconds

    @abstractmethod
    def put_under_load(self, load: Call, seconds: float = 0.0) -> None:
        """Name the call that keeps the device busy from now on, and run it for ``seconds``."""

    @abstractmethod
    def seconds_each(self, call: Call, before: Call = nothing) -> float:
        """Seconds of what ``call`` enqueues; ``before`` enqueues what it needs each time and is not counted."""


@final
class IdleTimer(AbstractTimer):
    """The median of calls on a device that does nothing else: for the host, whose cores others use as they like."""

    def put_under_load(self, load: Call, seconds: float = 0.0) -> None:
        """Do nothing: the host's clock does not wait for a load."""

    def seconds_each(self, call: Call, before: Call = nothing) -> float:
        """Median over at least three calls, or one where they are long, after one that warms up."""
        times: list[float] = []
        while len(times) < 2 or (len(times) < 1000 and sum(times) < self._seconds * (1 if len(times) > 3 else _ENOUGH)):
            before()
            times.append(elapsed(self.stream, call))
        return median(times[1:])


@final
class LoadedTimer(AbstractTimer):
    """The mean of calls in the state of a long run: for GPUs, whose clock follows the power of the last milliseconds.

    What is measured alternates with the load, as long each, in one queue that never runs empty; the second half counts. A kernel
    that draws little power is thus measured at the clock that the load leaves, as it runs in a factorization.
    """

    def __init__(self, stream: AbstractStream, seconds: float, bridge_seconds: float = BRIDGE_SECONDS) -> None:
        super().__init__(stream, seconds, bridge_seconds)
        self._load: Call = nothing
        self._load_seconds = 0.0

    def put_under_load(self, load: Call, seconds: float = 0.0) -> None:
        self._load = load
        elapsed(self.stream, load)  # libraries choose and load their kernels
        self._load_seconds = elapsed(self.stream, load)
        self._keep_busy(seconds)

    def seconds_each(self, call: Call, before: Call = nothing) -> float:
        """Mean over the second half of rounds of load and calls."""
        self._prepared(call, before)
        each = self._prepared(call, before)
        loads, calls = _times(each, self._load_seconds), _times(self._load_seconds, each)
        in_a_round = loads * self._load_seconds + calls * each
        rounds = min(_MOST_ROUNDS, max(4, ceil(self._seconds / max(in_a_round, 1e-9))))
        self._keep_busy(self._bridge_seconds)
        spans: list[_Span] = []
        for _ in range(rounds):
            for _ in range(loads):
                self._load()
            spans += [self._recorded(call, before) for _ in range(calls)]
        self.stream.synchronize()
        return fmean((end.time_ns() - start.time_ns()) / 1e9 for start, end in spans[len(spans) // 2 :])

    def _prepared(self, call: Call, before: Call) -> float:
        """Seconds of one call by itself."""
        before()
        return elapsed(self.stream, call)

    def _recorded(self, call: Call, before: Call) -> _Span:
        """Time one call by events before and after it."""
        before()
        start = self.stream.record()
        call()
        return start, self.stream.record()

    def _keep_busy(self, seconds: float) -> None:
        """Enqueue load for ``seconds``, always one batch ahead, and leave the last one running."""
        batch = max(1, min(1000, int(_BATCH_SECONDS / max(self._load_seconds, 1e-9))))
        began, behind = time.perf_counter(), self.stream.record()
        while time.perf_counter() - began < seconds:
            for _ in range(batch):
                self._load()
            ahead = self.stream.record()
            behind.synchronize()
            behind = ahead


def elapsed(stream: AbstractStream, enqueue: Call) -> float:
    """Seconds of what ``enqueue`` enqueues, between two events of its stream; waits for it."""
    start = stream.record()
    enqueue()
    end = stream.record()
    end.synchronize()
    return (end.time_ns() - start.time_ns()) / 1e9


def _times(long: float, short: float) -> int:
    """How many short ones make a long one, in bounds."""
    return max(1, min(_MOST_CALLS, round(long / max(short, 1e-9))))
