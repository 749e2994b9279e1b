"""Execute a plan: one thread performs the actions of all devices' state machines on their streams.

One thread and not one a device: threads that share the interpreter lock hand it over at every call of a library, which takes
longer than the call (measured with four GPUs: 46 us an operation against 4.5 us).
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import NonFiniteError, NotPositiveDefiniteError
from ooc_chol.interfaces import AbstractDevice, AbstractEvent, AbstractStream, AbstractTier, BlockKey
from ooc_chol.memory.sources_base import SourceTier
from ooc_chol.planning.plan import Plan
from ooc_chol.planning.program import STREAM_NAMES, URGENT_STREAMS, Link, Step, StepKind, StreamKind, final_keys
from ooc_chol.planning.residue_steps import STEP, ResidueProgram, ResidueStep, step_key
from ooc_chol.runtime.operations import AbstractOperations, BadFlagError, TileOperations
from ooc_chol.runtime.progress import Progress, ProgressTable
from ooc_chol.runtime.records import Writers, find_writers, step_record
from ooc_chol.runtime.residue_operations import ResidueOperations
from ooc_chol.runtime.worker import (
    Await,
    BlockReady,
    Drain,
    Drained,
    Enqueue,
    Finish,
    Pause,
    Resume,
    Start,
    StepDone,
    Stop,
    WorkerEvent,
    WorkerState,
    make_window,
)
from ooc_chol.tiling import TileGrid
from ooc_chol.tracing.records import TraceRecord


@dataclass(frozen=True)
class Execution:
    """What a run did.

    Parameters
    ----------
    seconds : float
        From the first step enqueued to the last byte in its store.
    link_bytes : tuple of tuple of int
        Executed bytes over each :class:`Link`, per device, counted from the copies issued.
    peak_bytes : tuple of int
        Most bytes of blocks on each device at once.
    records : tuple of TraceRecord
        Every operation of every stream.
    norms : (n_tiles, 4) array or None
        What was measured of final tiles, the numbers of :data:`~ooc_chol.interfaces.NORM_COLUMNS`; None where all is FP64.
    """

    seconds: float
    link_bytes: tuple[tuple[int, ...], ...]
    peak_bytes: tuple[int, ...]
    records: tuple[TraceRecord, ...]
    norms: NDArray[np.float64] | None = None


@dataclass
class Salvage:
    """What is left of a run that failed: filled by :func:`execute` before it raises.

    Parameters
    ----------
    seconds : float
        How long it ran.
    finished : set of tuple of int
        Tiles of L that are final in the store, given ones too; empty where the devices cannot tell.
    norms : (n_tiles, 4) array or None
        What was measured of final tiles.
    """

    seconds: float = 0.0
    finished: set[tuple[int, int]] = field(default_factory=set)
    norms: NDArray[np.float64] | None = None


class _News(NamedTuple):
    """What a worker tells the coordinating thread."""

    worker: int
    finished: bool
    error: BaseException | None
    flops: int


class _Channels(NamedTuple):
    """What the workers of a run share."""

    progress: ProgressTable
    news: queue.SimpleQueue[_News]
    inbox: queue.SimpleQueue[tuple[int, WorkerEvent | _Failure]]


class _Failure(NamedTuple):
    """Inbox message: an event completed with an error, or enqueueing failed."""

    error: BaseException


class DeviceWorker:
    """Performs one device's actions; everything here runs on the enqueuing thread except where said.

    Parameters
    ----------
    number : int
        Index of the device in the plan.
    device : AbstractDevice
        The device, freshly opened.
    plan : Plan
        The plan.
    operations : AbstractOperations
        What performs the steps.
    store : AbstractTier
        Where tiles of L go.
    channels : _Channels
        What all workers share.
    """

    def __init__(
        self,
        number: int,
        device: AbstractDevice,
        plan: Plan,
        operations: AbstractOperations,
        store: AbstractTier,
        channels: _Channels,
    ) -> None:
        self.number = number
        self.device = device
        self._grid: TileGrid = plan.grid
        self._program = plan.programs[number]
        self._store = store
        self._progress = channels.progress
        self._news = channels.news
        self._inbox = channels.inbox
        self.operations = operations
        created = {
            kind: device.create_stream(STREAM_NAMES[kind], is_urgent=kind in URGENT_STREAMS or self._converts(kind))
            for kind in sorted({StreamKind.COMPUTE, *self._program.streams})
        }
        self._streams: list[AbstractStream] = [created.get(kind, created[StreamKind.COMPUTE]) for kind in StreamKind]
        device.reserve_events(2 * len(self._program.steps))
        self._state = WorkerState(self._program, make_window(self._program, plan.grid, _nominal_rate(device, plan)))
        self._events: list[tuple[AbstractEvent, AbstractEvent]] = []
        self._resident: list[int] = []
        self.link_bytes = [0] * len(Link)
        self._flops_reported_up_to = -1
        self.norms: NDArray[np.float64] | None = None

    def _converts(self, kind: StreamKind) -> bool:
        """Whether a stream's copies widen or round tiles: a kernel that must not wait for long products."""
        return self.operations.finisher is not None and kind in (StreamKind.COPY_IN, StreamKind.COPY_OUT)

    def stop(self) -> None:
        """End the run early; may be called from any thread, any number of times."""
        self.device.abort()
        self._tell(Stop())

    def halt(self) -> None:
        """Enqueue nothing more, but let run what is enqueued; as :meth:`stop` otherwise."""
        self._tell(Stop())

    def handle(self, event: WorkerEvent | _Failure) -> bool:
        """Take one event and do all that follows from it; whether the worker is finished."""
        self.device.activate()
        if isinstance(event, _Failure):
            raise event.error
        if isinstance(event, StepDone):
            self._after(event.position)
        return self._perform_all(event)

    def _tell(self, event: WorkerEvent | _Failure) -> None:
        """Put an event into the inbox; from any thread."""
        self._inbox.put((self.number, event))

    def _perform_all(self, event: WorkerEvent) -> bool:
        """Handle one event and all that follows at once; whether the worker is finished."""
        pending: list[WorkerEvent] = [event]
        while pending:
            for action in self._state.handle(pending.pop(0)):
                if isinstance(action, Enqueue):
                    self._enqueue(action.position, watch=action.watch)
                elif isinstance(action, Await):
                    if self._is_ready(action.key):
                        pending.append(BlockReady(action.key))
                elif isinstance(action, Pause):
                    self._tell(Resume())
                elif isinstance(action, Drain):
                    self._drain()
                elif isinstance(action, Finish):
                    if not action.stopped:
                        self._check_flags(self._grid.nt)
                        self._collect()
                    return True
        return False

    def _is_ready(self, key: BlockKey) -> bool:
        """Whether a step that awaits ``key`` may be enqueued now; else the inbox will be told."""
        level = Progress.RECORDED if self._is_ordered(key) else Progress.DURABLE
        return self._progress.when(key, level, lambda: self._tell(BlockReady(key)))

    def _is_ordered(self, key: BlockKey) -> bool:
        """Whether a stream can wait for ``key``: a device's step, or a value in a store that is ordered by events."""
        return key.name == STEP or self._store.ordered_by_events

    def _enqueue(self, position: int, *, watch: bool) -> None:
        """Enqueue one step: its waits, a start event, the operation, an end event, and what must be told when it completes."""
        step = self._program.steps[position]
        stream, link, events = self._streams[step.stream], step.link, self._events
        for earlier in step.waits:
            stream.wait(events[earlier][1])
        for key in step.awaits:
            if self._is_ordered(key):
                stream.wait(self._progress.event(key))
        start = stream.record()
        moved = self.operations.perform(step, stream)
        end = stream.record()
        if link is not None:
            self.link_bytes[link] += moved
        events.append((start, end))
        self._resident.append(self.operations.resident_bytes)
        if watch:
            self._when_done(end, lambda: self._tell(StepDone(position)))
        if step.kind is StepKind.WRITE:
            self._progress.record(step.block, end)
            if not self._store.ordered_by_events:  # else nobody asks, and each call back costs the enqueuing thread time
                self._when_done(end, lambda: self._progress.mark_durable(step.block))
        if step.announced:
            self._progress.record(step_key(self.number, position), end)

    def _when_done(self, event: AbstractEvent, then: Callable[[], None]) -> None:
        """Call ``then`` when ``event`` completes, or put its error into the inbox; both happen on a thread of the device."""
        self.device.notify(event, lambda error: then() if error is None else self._tell(_Failure(error)))

    def _after(self, position: int) -> None:
        """A watched step is complete: read the flags at pivots, tell the coordinating thread how far we are."""
        if self._program.steps[position].is_pivot:
            self._check_flags(self._program.steps[position].tile[1] + 1)
        first, self._flops_reported_up_to = self._flops_reported_up_to + 1, max(position, self._flops_reported_up_to)
        done = sum(step.counted_flops(self._grid) for step in self._program.steps[first : position + 1])
        self._news.put(_News(self.number, False, None, done))

    def _check_flags(self, columns: int) -> None:
        """Fail if a flag is set that counts once the pivots of the first ``columns`` tile columns are taken."""
        is_set = self.operations.is_flagged(columns)
        if (failure := self.device.failure()) is not None:
            raise failure  # asked after the flags were read: what was computed since the failure may have set them
        if is_set:
            raise BadFlagError("a failure flag is set")

    def finished_tiles(self) -> set[tuple[int, int]]:
        """Tiles that this worker wrote to the store, as far as is known; after a run that failed."""
        if self.operations.finisher is not None:
            self.norms = self.operations.finisher.latest_norms()
        steps: Sequence[Step | ResidueStep] = self._program.steps
        done = zip(steps, self._events, strict=False)
        writes = [(step.tile, end) for step, (_, end) in done if step.kind is StepKind.WRITE]
        return {tile for tile, end in writes if self.device.wrote(self._store, tile, end)}

    def _collect(self) -> None:
        """What was measured of tiles, once all are final."""
        if self.operations.finisher is not None:
            self.norms = self.operations.finisher.norms(self._streams[StreamKind.COMPUTE])

    def stream_event(self) -> AbstractEvent:
        """An event of the compute stream, recorded now."""
        with self.device.current():
            return self._streams[StreamKind.COMPUTE].record()

    def _drain(self) -> None:
        """Tell the inbox when the streams are empty: each records an event, and the compute stream waits for all of them."""
        last = self._streams[StreamKind.COMPUTE]
        for stream in dict.fromkeys(self._streams):
            if stream is not last:
                last.wait(stream.record())
        self._when_done(last.record(), lambda: self._tell(Drained()))

    def records(self, writers: Writers) -> list[TraceRecord]:
        """Every enqueued step as a record; only after the run."""
        steps = self._program.steps
        return [
            step_record(
                position, steps[position], self.device.name, self._grid, start.time_ns(), end.time_ns(), resident, writers
            )
            for position, ((start, end), resident) in enumerate(zip(self._events, self._resident, strict=True))
        ]


def execute(
    plan: Plan,
    devices: Sequence[AbstractDevice],
    source: SourceTier,
    store: AbstractTier,
    *,
    report: Callable[[int, int, float], None] | None = None,
    salvage: Salvage | None = None,
) -> Execution:
    """Run ``plan`` on ``devices`` from ``source`` to ``store``.

    Parameters
    ----------
    plan : Plan
        The plan; its devices in the order of ``devices``.
    devices : sequence of AbstractDevice
        Freshly opened; closed here, whatever happens.
    source : SourceTier
        Tiles of A.
    store : AbstractTier
        Where the tiles of L go.
    report : callable or None
        ``report(flops_done, flops_total, seconds)``, called on this thread.
    salvage : Salvage or None
        Receives what is left of a run that fails.

    Returns
    -------
    Execution
        Times, bytes and records.

    Raises
    ------
    NonFiniteError
        The lower triangle of A holds a NaN or an infinity.
    NotPositiveDefiniteError
        A pivot is not positive.
    BudgetError
        A device has less free memory than its budget.
    TierError
        A tile could not be read or written.
    """
    workers: list[DeviceWorker] = []
    with _collector_off():
        errors, began = _run(plan, devices, (source, store), workers, report)
    if errors:
        if salvage is not None:
            salvage.seconds = (time.perf_counter_ns() - began) / 1e9
            salvage.finished.update(plan.given, *(worker.finished_tiles() for worker in workers))
            salvage.norms = _norms_of(workers)
        raise _verdict(workers, errors, plan.grid)
    return _summary(plan, workers, began)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Keep Python's garbage collector from stopping the thread that feeds all devices: one full collection takes 50 to 150 ms."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(
    plan: Plan,
    devices: Sequence[AbstractDevice],
    tiers: tuple[SourceTier, AbstractTier],
    workers: list[DeviceWorker],
    report: Callable[[int, int, float], None] | None,
) -> tuple[list[BaseException], int]:
    """Make the workers and let one thread work for them all; returns the errors met, and when it began."""
    source, store = tiers
    channels = _Channels(ProgressTable(), queue.SimpleQueue(), queue.SimpleQueue())
    thread = threading.Thread(target=_enqueue_all, args=(workers, channels), name="ooc_chol enqueuer", daemon=True)
    began = time.perf_counter_ns()
    try:
        for number, (device, operations) in enumerate(zip(devices, _operations(plan, devices, source, store), strict=True)):
            workers.append(DeviceWorker(number, device, plan, operations, store, channels))
        if plan.given:  # a device that fetches them waits for what is complete already
            before = workers[0].stream_event()
            for key in final_keys(plan.given):
                channels.progress.record(key, before)
                channels.progress.mark_durable(key)
        began = time.perf_counter_ns()
        thread.start()
        errors = _coordinate(workers, channels.news, plan.flops, report, began)
    finally:
        with ExitStack() as stack:  # a second interrupt may cut one of these short, and the others are done nevertheless
            for device in devices:
                stack.callback(device.close)
            for device in devices:
                stack.callback(device.synchronize)  # another device may still copy from its memory
            if thread.ident is not None:
                stack.callback(thread.join)
            for worker in workers:
                if thread.is_alive():
                    worker.stop()
    return errors, began


def _enqueue_all(workers: Sequence[DeviceWorker], channels: _Channels) -> None:
    """Handle the events of all workers, in the order in which they come, until every worker has finished; a thread's body."""
    running = set(range(len(workers)))
    for number in running:
        channels.inbox.put((number, Start()))
    while running:
        number, event = channels.inbox.get()
        if number not in running:
            continue
        error: BaseException | None = None
        try:
            finished = workers[number].handle(event)
        except BaseException as caught:  # handed to the coordinating thread, which raises it
            error, finished = caught, True
        if finished:
            running.discard(number)
            # Told before the streams are aborted: a device that waits for this one fails too, and its error must come second.
            channels.news.put(_News(number, True, error, 0))
        if error is not None and not isinstance(error, BadFlagError):
            workers[number].device.abort()  # at a failed pivot what is enqueued runs out: its writes may be of use


def _nominal_rate(device: AbstractDevice, plan: Plan) -> float:
    """Upper estimate of the rate in flops per second; products through residues are twice as fast."""
    return device.nominal_flops_per_second * (1 if plan.layout is None else 2)


def _operations(
    plan: Plan, devices: Sequence[AbstractDevice], source: SourceTier, store: AbstractTier
) -> list[AbstractOperations]:
    """What performs the steps of each device; allocates its memory."""
    residues: dict[int, ResidueOperations] = {}
    tiles: dict[int, TileOperations] = {}
    operations: list[AbstractOperations] = []
    for number, device in enumerate(devices):
        if isinstance(plan.programs[number], ResidueProgram):
            residues[number] = ResidueOperations(device, plan, number, source, store, residues)
            operations.append(residues[number])
        else:
            tiles[number] = TileOperations(device, plan, number, source, store, tiles)
            operations.append(tiles[number])
    return operations


def _coordinate(
    workers: Sequence[DeviceWorker],
    news: queue.SimpleQueue[_News],
    total: int,
    report: Callable[[int, int, float], None] | None,
    began: int,
) -> list[BaseException]:
    """Listen until every worker has finished; the first error stops them all. Returns the errors met."""
    running, done, errors = len(workers), 0, []
    while running:
        item = news.get()
        running -= item.finished
        done += item.flops
        if item.error is not None:
            errors.append(item.error)
            for worker in workers:
                worker.halt() if isinstance(errors[0], BadFlagError) else worker.stop()
        elif report is not None and item.flops:
            report(done, total, (time.perf_counter_ns() - began) / 1e9)
    return errors


def _verdict(workers: Sequence[DeviceWorker], errors: Sequence[BaseException], grid: TileGrid) -> BaseException:
    """The one error to raise: what came first, and where that is a flag, bad input before the smallest failed minor."""
    if not isinstance(errors[0], BadFlagError):
        return errors[0]  # flags may have been set by what was computed since
    index = list(grid.tiles())
    all_operations = [worker.operations for worker in workers]
    bad = min((flag for one in all_operations if (flag := one.flags.nonfinite()) is not None), default=None)
    if bad is not None:
        i, j = index[bad[0]]
        row, col = divmod(bad[1], grid.size(j))
        return NonFiniteError(grid.start(i) + row, grid.start(j) + col, (i, j))
    pivots = (one.flags.failed_pivot() for one in all_operations)
    minors = [grid.start(pivot[0]) + pivot[1] for pivot in pivots if pivot is not None]
    # A row whose squares exceed its diagonal entry has a negative pivot, whatever was computed with it since.
    rows = (one.flagged_row() for one in all_operations)
    minors += [flagged + 1 for flagged in rows if flagged is not None]
    if minors:
        column = (min(minors) - 1) // grid.nb
        return NotPositiveDefiniteError(min(minors), (column, column))
    return errors[0]


def _summary(plan: Plan, workers: Sequence[DeviceWorker], began: int) -> Execution:
    """Gather what the workers counted."""
    writers = find_writers(plan.devices, plan.programs)
    records = tuple(record for worker in workers for record in worker.records(writers))
    ended = max((record.end_ns for record in records), default=began)
    return Execution(
        (ended - began) / 1e9,
        tuple(tuple(worker.link_bytes) for worker in workers),
        tuple(worker.operations.peak_bytes for worker in workers),
        records,
        _norms_of(workers),
    )


def _norms_of(workers: Sequence[DeviceWorker]) -> NDArray[np.float64] | None:
    """Rows of all devices: each tile's is zero but on its own device."""
    measured = [worker.norms for worker in workers if worker.norms is not None]
    return np.sum(measured, axis=0) if measured else None
