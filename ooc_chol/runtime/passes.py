"""Passes over blocks of a matrix on devices: what they read, for the report, and when, for the trace."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar, final

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.formats import FP64
from ooc_chol.interfaces import AbstractDevice, AbstractEvent, AbstractStream, AnyDevice, BlockIndex, BlockKey, KernelSetT, Turns
from ooc_chol.process.fork_safety import new_rlock, renewed_in_child
from ooc_chol.process.garbage_collector import collector_off
from ooc_chol.process.threads import OwnThread, start
from ooc_chol.runtime.shutdown import abort_all, devices_closed
from ooc_chol.tracing.records import StreamRole, TraceRecord

_Result = TypeVar("_Result")

#: An event of a device, or nanoseconds of ``time.perf_counter_ns``.
Moment: TypeAlias = AbstractEvent | int

#: Instead of what work yields, once it is over.
_OVER: Any = object()
#: Guards the sums and records of all matrices; held for microseconds, once a pass. No part of them, which may be pickled. One
#: thread may take it twice: a generator of panels that nobody holds any more ends wherever Python collects garbage.
_ADDING = new_rlock()
renewed_in_child(lambda: None, lambda: _ADDING)


@contextmanager
def device_for_a_pass(
    open_device: Callable[[], AbstractDevice[KernelSetT]], locked: AbstractContextManager[None]
) -> Iterator[AbstractDevice[KernelSetT]]:
    """Open a device, current, with host memory ``locked`` that copies reach in place; it is closed at the end."""
    with collector_off(), locked:
        device = open_device()
        with devices_closed([device], []), device.current():
            yield device


def on_each_device(count: int, work: Callable[[int], _Result]) -> list[_Result]:
    """``work(number)`` for every device at once, a thread each, while Python's garbage collector is off for all of them."""
    with collector_off(), ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(count)))


def side_by_side(devices: Sequence[AnyDevice], work: Callable[[int], None]) -> None:
    """``work(number)`` for every device at once, current on a thread of its own, or on the caller's if there is only one."""

    def of(number: int) -> None:
        with devices[number].current():
            work(number)

    if len(devices) == 1:
        of(0)
    else:
        on_each_device(len(devices), of)


def reach_each_other(devices: Sequence[AnyDevice]) -> None:
    """Let devices reach each other's memory where they can, before they have any: what is there already takes longer."""
    for each in devices:
        with each.current():
            for other in devices:
                each.reaches(other)


@final
class _Aside:
    """A function that holds up whoever calls it, on a thread with the device current; asked as an event is."""

    def __init__(self, device: AnyDevice, call: Callable[[], None]) -> None:
        self._device, self._call = device, call
        self._errors: list[BaseException] = []
        self._thread = OwnThread(self._run, (), f"{device.name} aside")
        start(self._thread)

    def _run(self) -> None:
        try:
            with self._device.current():
                self._call()
        except BaseException as error:  # raised by synchronize
            self._errors.append(error)

    def query(self) -> bool:
        return not self._thread.is_alive()

    def synchronize(self) -> None:
        self.wait()
        if self._errors:
            raise self._errors[0]

    def wait(self) -> None:
        """Wait for the thread, whatever came of it."""
        self._thread.wait()


def take_turns(devices: Sequence[AnyDevice], work: Callable[[int], Turns]) -> None:
    """Enqueue all that ``work(number)`` does for each device, in turns up to its next ``yield``.

    The calling thread does it for all: threads of their own would wait for each other at each launch. A device whose event is
    not complete, or whose function is not over, is passed over while others are left.
    """
    left = {number: work(number) for number in range(len(devices))}
    awaited: dict[int, AbstractEvent | _Aside] = {}
    try:
        while left:
            if not _took_a_turn(devices, left, awaited):
                time.sleep(0)  # other threads may have the interpreter; a true sleep would take longer than kernels of a launch
    finally:
        for event in awaited.values():
            if isinstance(event, _Aside):
                event.wait()


def _took_a_turn(devices: Sequence[AnyDevice], left: dict[int, Turns], awaited: dict[int, AbstractEvent | _Aside]) -> bool:
    """Let each device that waits for nothing have its turn; whether there was one."""
    has_worked = False
    for number in list(left):
        if (event := awaited.get(number)) is not None:
            if len(left) > 1 and not event.query():
                continue
            event.synchronize()  # also of one that is complete: it says what went wrong
            del awaited[number]
        has_worked = True
        with devices[number].current():
            found = next(left[number], _OVER)
            if found is _OVER:
                del left[number]
            elif callable(found) and len(left) == 1:
                found()
            elif found is not None:
                awaited[number] = _Aside(devices[number], found) if callable(found) else found
    return has_worked


@contextmanager
def enqueued_in_turns(devices: Sequence[AnyDevice], work: Callable[[int], Turns], name: str) -> Iterator[None]:
    """Enqueue on a thread what :func:`take_turns` does; devices close behind the block."""
    errors: list[BaseException] = []

    def enqueue() -> None:
        try:
            take_turns(devices, work)
        except BaseException as error:  # raised below, on the calling thread
            errors.append(error)
            abort_all(devices)  # behind the error: it comes first, and what the others meet follows from it

    thread = OwnThread(enqueue, (), name)
    with collector_off(), devices_closed(devices, [thread]):
        start(thread)
        thread.wait()
        if errors:
            raise errors[0]
        yield


def finish(device: AnyDevice, streams: Sequence[AbstractStream]) -> None:
    """Wait for the streams; raise what went wrong on the way."""
    for stream in streams:
        stream.synchronize()
    if (failure := device.failure()) is not None:
        raise failure


class BlockNames(NamedTuple):
    """How a trace calls the blocks of one matrix, where they come from, and the streams that bring them."""

    name: str  #: Of the matrix, such as ``"L"``
    place: str  #: Where its blocks are stored, such as ``"store"``: links are called ``"store->host:0"``
    #: Streams that only copy: a device stands still while no other stream runs.
    copying: tuple[str, ...] = ("copy-in",)
    #: How often a block has been changed.
    version: Callable[[BlockIndex], int] = lambda _: 0


@final
class Track:
    """Record of one device in a pass over blocks of one matrix, told by one thread at a time; times are kept for a trace only."""

    def __init__(self, title: str, device: str, blocks: BlockNames, *, lane: int, is_traced: bool) -> None:
        self.nbytes = 0  #: Bytes of blocks that were read, in place or over the link
        self.resident_bytes = 0  #: Bytes that the pass holds on the device
        self._title, self.device, self._blocks, self._is_traced = title, device, blocks, is_traced
        self._suffix = f"-{lane}" if lane else ""
        self._told: list[tuple[TraceRecord, Moment, Moment]] = []  # without times, which may be still to come
        self._records: list[TraceRecord] = []
        self._fetches: dict[BlockIndex, int] = {}  # the step that brought a block last

    def now(self, stream: AbstractStream | None = None) -> Moment | None:
        """The present moment of a stream, or of the calling thread; None where no times are kept."""
        if not self._is_traced:
            return None
        return time.perf_counter_ns() if stream is None else stream.record()

    def ran(
        self,
        kind: str,
        index: BlockIndex,
        stream: str,
        span: tuple[Moment | None, Moment | None],
        *,
        nbytes: int = 0,
        fmt: str = FP64.name,
        flops: int = 0,
        after: int | None = None,
        link: str | None = None,
        label: str | None = None,
    ) -> int | None:
        """A block was brought over the link ("fetch"), made ("generate") or computed with ("compute"), behind step ``after``.

        Returns the step, where steps are kept. What computes with a block that was brought waited for that. ``link`` is the one
        from where blocks are stored unless another is named. Work on anything but a block of the matrix has a ``label``.
        """
        self.nbytes += nbytes
        begun, ended = span
        if begun is None or ended is None:
            return None
        step = len(self._records) + len(self._told)
        if kind == "fetch":
            self._fetches[index] = step
        elif after is None and label is None:
            after = self._fetches.get(index)
        block = label or str(BlockKey(self._blocks.name, tuple(index), self._blocks.version(index)))
        label = label or f"{self._title if kind == 'compute' else kind} {tuple(index)}"
        crossed = (link or f"{self._blocks.place}->{self.device}") if nbytes else ""
        waits = () if after is None else ((self.device, after),)
        named = (step, self.device, stream + self._suffix, kind, label, block, fmt)
        role = StreamRole(0, stream not in self._blocks.copying)
        self._told.append((TraceRecord(*named, nbytes, crossed, flops, 0, 0, waits, self.resident_bytes, role), begun, ended))
        return step

    def settle(self) -> None:
        """Look at the times, once all that was told is complete and before the device closes."""
        for record, *span in self._told:
            start, end = (at if isinstance(at, int) else at.time_ns() for at in span)
            self._records.append(record._replace(start_ns=start, end_ns=max(start, end)))
        self._told.clear()

    def records(self, first: int) -> list[TraceRecord]:
        """Trace records of the settled steps, counted from ``first`` on."""
        return [
            record._replace(step=first + record.step, after=tuple((device, first + step) for device, step in record.after))
            for record in self._records
        ]


@final
class Pass:
    """One pass under way: a solve, a sum over the inverse, a product."""

    def __init__(self, title: str, columns: int = 0, *, is_traced: bool = False, lane: int = 0) -> None:
        self.title, self.columns, self.lane, self.is_traced = title, columns, lane, is_traced
        self.seconds = 0.0
        self.tracks: list[Track] = []

    def track(self, device: str, blocks: BlockNames) -> Track:
        """Track of ``device`` for the blocks of a matrix."""
        self.tracks.append(Track(self.title, device, blocks, lane=self.lane, is_traced=self.is_traced))
        return self.tracks[-1]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the seconds of a block, which are the caller's."""
        since = time.perf_counter()
        try:
            yield
        finally:
            self.seconds -= time.perf_counter() - since


class PassTotals(NamedTuple):
    """Totals of all passes of one kind.

    Parameters
    ----------
    calls : int
        How many there were.
    columns : int
        Right-hand sides, columns of the inverse, or random vectors, of all of them.
    seconds : float
        Wall clock of all of them.
    nbytes : int
        Bytes of blocks that were read, in the formats in which they are stored.
    """

    calls: int = 0
    columns: int = 0
    seconds: float = 0.0
    nbytes: int = 0

    def __str__(self) -> str:
        calls = f"{self.calls} call{'s' * (self.calls != 1)}"
        columns = f", {self.columns} column{'s' * (self.columns != 1)}" if self.columns else ""
        return f"{calls}{columns}, {self.seconds:.3g} s, {format_bytes(self.nbytes)} read"


@final
class Passes:
    """All passes over one matrix, by kind: sums always, records where a trace is kept.

    Any number of threads may add to them.

    Parameters
    ----------
    is_traced : bool
        True if :attr:`records` are kept: one for each block that a pass reads or computes with.
    """

    def __init__(self, *, is_traced: bool = False) -> None:
        self._is_traced = is_traced
        self._totals: dict[str, PassTotals] = {}
        self._records: list[TraceRecord] = []
        self._steps: dict[str, int] = {}
        self._lanes: set[int] = set()  # of passes under way: each has streams of its own in the trace
        self._over: deque[Pass] = deque()  # to be added
        self._is_adding = False

    @contextmanager
    def running(self, title: str, columns: int = 0) -> Iterator[Pass]:
        """Run one pass inside a block, and add what it did, also when it fails."""
        with _ADDING:
            lane = next(number for number in itertools.count() if number not in self._lanes)
            self._lanes.add(lane)
        one, since = Pass(title, columns, is_traced=self._is_traced, lane=lane), time.perf_counter()
        try:
            yield one
        finally:
            one.seconds += time.perf_counter() - since
            self._over.append(one)
            with _ADDING:
                self._add_all()

    def _add_all(self) -> None:
        """Add what is over; a call further up on this thread that is adding takes it too."""
        if self._is_adding:
            return
        self._is_adding = True
        try:
            while self._over:
                self._add(self._over.popleft())
        finally:
            self._is_adding = False

    def _add(self, one: Pass) -> None:
        self._lanes.remove(one.lane)
        calls, columns, seconds, before = self._totals.get(one.title, PassTotals())
        nbytes = before + sum(track.nbytes for track in one.tracks)
        self._totals[one.title] = PassTotals(calls + 1, columns + one.columns, seconds + one.seconds, nbytes)
        for track in one.tracks:
            for record in track.records(self._steps.get(track.device, 0)):
                self._records.append(record)
                self._steps[record.device] = record.step + 1

    def __repr__(self) -> str:
        return one_line(self, {"calls": {title: totals.calls for title, totals in self.totals.items()}})

    @property
    def totals(self) -> dict[str, PassTotals]:
        """Sums by kind, in the order of their first passes."""
        with _ADDING:
            return dict(self._totals)

    @property
    def records(self) -> tuple[TraceRecord, ...]:
        """Operations of all passes that are over; none where no trace is kept."""
        with _ADDING:
            return tuple(self._records)
