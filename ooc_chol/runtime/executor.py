"""Execute a plan: one worker thread per device performs the actions of its state machine on streams."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from ooc_chol.errors import NonFiniteError, NotPositiveDefiniteError, OocCholError
from ooc_chol.interfaces import AbstractDevice, AbstractEvent, AbstractFlags, AbstractStream, AbstractTier, BlockKey, Tile
from ooc_chol.memory.cache import BlockCache
from ooc_chol.memory.sources_base import SourceTier
from ooc_chol.planning.plan import Plan
from ooc_chol.planning.program import STREAM_NAMES, URGENT_STREAMS, Link, Program, Step, StepKind, StreamKind
from ooc_chol.runtime.progress import Progress, ProgressTable
from ooc_chol.runtime.records import Writers, find_writers, step_record
from ooc_chol.runtime.worker import (
    Await,
    BlockReady,
    Drain,
    Drained,
    Enqueue,
    Finish,
    Start,
    StepDone,
    Stop,
    WorkerEvent,
    WorkerState,
    make_window,
)
from ooc_chol.tasks import TaskKind
from ooc_chol.tasks import flops as task_flops
from ooc_chol.tiling import TileGrid
from ooc_chol.tracing.records import TraceRecord


class BadFlagError(OocCholError):
    """A worker saw a failure flag; replaced by the error that the flags of all devices tell."""


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
    """

    seconds: float
    link_bytes: tuple[tuple[int, int, int], ...]
    peak_bytes: tuple[int, ...]
    records: tuple[TraceRecord, ...]


class _News(NamedTuple):
    """What a worker tells the coordinating thread."""

    worker: int
    finished: bool
    error: BaseException | None
    flops: int


class _Failure(NamedTuple):
    """Inbox message: an event completed with an error, or enqueueing failed."""

    error: BaseException


class DeviceWorker:
    """Performs one device's actions; everything here runs on the worker's own thread except where said.

    Parameters
    ----------
    number : int
        Index of the device in the plan.
    device : AbstractDevice
        The device, freshly opened.
    plan : Plan
        The plan.
    source : SourceTier
        Tiles of A, read or generated.
    store : AbstractTier
        Where tiles of L go.
    progress : ProgressTable
        Shared by all workers.
    news : queue
        Where the coordinating thread listens.
    """

    def __init__(
        self,
        number: int,
        device: AbstractDevice,
        plan: Plan,
        source: SourceTier,
        store: AbstractTier,
        progress: ProgressTable,
        news: queue.SimpleQueue[_News],
    ) -> None:
        self.number = number
        self.device = device
        self._grid: TileGrid = plan.grid
        self._program: Program = plan.programs[number]
        budget = plan.budgets[number]
        self._source, self._store = source, store
        self._source_itemsize = source.source.bytes_per_entry
        self._progress = progress
        self._news = news
        self._inbox: queue.SimpleQueue[WorkerEvent | _Failure] = queue.SimpleQueue()
        self.cache = BlockCache(budget.n_slots, budget.slot_bytes)
        self._arena = device.allocate(budget.n_slots, budget.slot_bytes, plan.grid.size(0))
        device.prepare(source.source.prepare)
        self.flags: AbstractFlags = device.create_flags(plan.grid.nt)
        created = {
            kind: device.create_stream(STREAM_NAMES[kind], is_urgent=kind in URGENT_STREAMS)
            for kind in sorted({StreamKind.COMPUTE, *self._program.streams})
        }
        self._streams: list[AbstractStream] = [created.get(kind, created[StreamKind.COMPUTE]) for kind in StreamKind]
        self._state = WorkerState(self._program, make_window(self._program, plan.grid, device.nominal_flops_per_second))
        self._events: list[tuple[AbstractEvent, AbstractEvent]] = []
        self._resident: list[int] = []
        self.link_bytes = [0, 0, 0]
        self._flops_reported_up_to = -1

    def stop(self) -> None:
        """End the run early; may be called from any thread, any number of times."""
        self.device.abort()
        self._inbox.put(Stop())

    def run(self) -> None:
        """Handle worker events until the state machine finishes; the body of the worker's thread."""
        error: BaseException | None = None
        try:
            self.device.activate()
            self._loop()
        except BaseException as caught:  # handed to the coordinating thread, which raises it
            error = caught
        # Told before the streams are aborted: a device that waits for this one then fails too, and its error must come second.
        self._news.put(_News(self.number, True, error, 0))
        if error is not None:
            self.device.abort()

    def _loop(self) -> None:
        event: WorkerEvent | _Failure = Start()
        while True:
            if isinstance(event, _Failure):
                raise event.error
            if isinstance(event, StepDone):
                self._after(event.position)
            if self._perform_all(event):
                return
            event = self._inbox.get()

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
                elif isinstance(action, Drain):
                    self._drain()
                elif isinstance(action, Finish):
                    if not action.stopped:
                        self._check_flags()
                    return True
        return False

    def _is_ready(self, key: BlockKey) -> bool:
        """Whether ``key`` may be read now; else the inbox will be told."""
        level = Progress.RECORDED if self._store.ordered_by_events else Progress.DURABLE
        return self._progress.when(key, level, lambda: self._inbox.put(BlockReady(key)))

    def _enqueue(self, position: int, *, watch: bool) -> None:
        """Enqueue one step: its waits, a start event, the operation, an end event, and what must be told when it completes."""
        step = self._program.steps[position]
        stream = self._streams[step.stream]
        for index in step.evicts:
            self.cache.evict("L", index)
        for earlier in step.waits:
            stream.wait(self._events[earlier][1])
        if step.needs_store and self._store.ordered_by_events:
            stream.wait(self._progress.event(step.block))
        start = stream.record()
        self._operate(step, stream)
        end = stream.record()
        self._events.append((start, end))
        self._resident.append(self.cache.resident_bytes)
        if watch:
            self._when_done(end, lambda: self._inbox.put(StepDone(position)))
        if step.kind is StepKind.WRITE:
            self._progress.record(step.block, end)
            self._when_done(end, lambda: self._progress.mark_durable(step.block))

    def _when_done(self, event: AbstractEvent, then: Callable[[], None]) -> None:
        """Call ``then`` when ``event`` completes, or put its error into the inbox; both happen on a thread of the device."""
        self.device.notify(event, lambda error: then() if error is None else self._inbox.put(_Failure(error)))

    def _operate(self, step: Step, stream: AbstractStream) -> None:
        """The operation of ``step`` and its effect on the cache."""
        tile = self._tile(step.slot, step.tile)
        if step.kind is StepKind.COMPUTE:
            self._compute(step, stream, tile)
        elif step.kind is StepKind.WRITE:
            self.device.copy_out(stream, tile, self._store, step.tile)
            self.cache.written(step.block)
            self.cache.release(step.block)
        else:
            self._bring(step, stream, tile)
        if step.link is not None:
            self.link_bytes[step.link] += self._moved_bytes(step, tile)

    def _moved_bytes(self, step: Step, tile: Tile) -> int:
        """Bytes that the issued copy moves; a narrower source is widened on arrival."""
        itemsize = self._source_itemsize if step.link is Link.SOURCE else tile.dtype.itemsize
        return int(tile.shape[0] * tile.shape[1] * itemsize)

    def _bring(self, step: Step, stream: AbstractStream, tile: Tile) -> None:
        """Fetch or generate a tile; tiles of A are checked for NaN and infinity before anything uses them."""
        i, j = step.tile
        self.cache.reserve(step.block, step.slot, tile.nbytes)
        if step.kind is StepKind.GENERATE:
            self.device.generate(stream, self._source.source.function, self._grid.span(i), self._grid.span(j), tile)
        else:
            self.device.copy_in(stream, self._source if step.version == 0 else self._store, step.tile, tile)
        if step.version == 0:
            self.device.kernels.check_finite(stream, tile, i == j, self.flags, self._grid.packed(i, j))
        self.cache.loaded(step.block)
        if step.version <= j:  # an accumulator: it stays until it is written
            self.cache.hold(step.block)

    def _compute(self, step: Step, stream: AbstractStream, tile: Tile) -> None:
        """One tile kernel on tiles that the cache vouches for."""
        task = step.task
        assert task is not None
        kernels = self.device.kernels
        before = BlockKey("L", step.tile, step.version - 1)
        assert self.cache.slot(before) == step.slot
        reads = [BlockKey("L", (i, j), j + 1) for i, j in task.reads]
        operands = [self._tile(self.cache.slot(key), key.coords) for key in reads]
        if task.kind is TaskKind.GEMM:
            kernels.gemm(stream, tile, operands[0], operands[1], k0=self._grid.start(task.k))
        elif task.kind is TaskKind.SYRK:
            kernels.syrk(stream, tile, operands[0], k0=self._grid.start(task.k))
        elif task.kind is TaskKind.TRSM:
            kernels.trsm(stream, operands[0], tile, task.k)
        else:
            kernels.potrf(stream, tile, self.flags, task.k)
            self.flags.copy_back(stream)
        self.cache.modify(before)

    def _tile(self, slot: int, index: tuple[int, int]) -> Tile:
        return self._arena.tile(slot, self._grid.shape(*index))

    def _after(self, position: int) -> None:
        """A watched step is complete: read the flags at pivots, tell the coordinating thread how far we are."""
        task = self._program.steps[position].task
        if task is not None and task.kind is TaskKind.POTRF:
            self._check_flags()
        first, self._flops_reported_up_to = self._flops_reported_up_to + 1, max(position, self._flops_reported_up_to)
        done = sum(
            task_flops(step.task, self._grid) for step in self._program.steps[first : position + 1] if step.task is not None
        )
        self._news.put(_News(self.number, False, None, done))

    def _check_flags(self) -> None:
        is_set = self.flags.nonfinite() is not None or self.flags.failed_pivot() is not None
        if (failure := self.device.failure()) is not None:
            raise failure  # asked after the flags were read: what was computed since the failure may have set them
        if is_set:
            raise BadFlagError("a failure flag is set")

    def _drain(self) -> None:
        """Tell the inbox when the streams are empty: each records an event, and the compute stream waits for all of them."""
        last = self._streams[StreamKind.COMPUTE]
        for stream in dict.fromkeys(self._streams):
            if stream is not last:
                last.wait(stream.record())
        self._when_done(last.record(), lambda: self._inbox.put(Drained()))

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
    progress = ProgressTable()
    news: queue.SimpleQueue[_News] = queue.SimpleQueue()
    workers: list[DeviceWorker] = []
    threads: list[threading.Thread] = []
    began = time.perf_counter_ns()
    try:
        for number, device in enumerate(devices):
            workers.append(DeviceWorker(number, device, plan, source, store, progress, news))
        threads = [
            threading.Thread(target=worker.run, name=f"ooc_chol {worker.device.name} worker", daemon=True) for worker in workers
        ]
        began = time.perf_counter_ns()
        for thread in threads:
            thread.start()
        errors = _coordinate(workers, news, plan.flops, report, began)
    finally:
        with ExitStack() as stack:  # a second interrupt may cut one of these short, and the others are done nevertheless
            for device in devices:
                stack.callback(device.close)
            for thread in threads:
                if thread.ident is not None:
                    stack.callback(thread.join)
            for worker in workers:
                if any(thread.is_alive() for thread in threads):
                    worker.stop()
    if errors:
        raise _verdict(workers, errors, plan.grid)
    return _summary(plan, workers, began)


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
                worker.stop()
        elif report is not None and item.flops:
            report(done, total, (time.perf_counter_ns() - began) / 1e9)
    return errors


def _verdict(workers: Sequence[DeviceWorker], errors: Sequence[BaseException], grid: TileGrid) -> BaseException:
    """The one error to raise: what came first, and where that is a flag, bad input before the smallest failed minor."""
    if not isinstance(errors[0], BadFlagError):
        return errors[0]  # flags may have been set by what was computed since
    index = list(grid.tiles())
    bad = min((flag for worker in workers if (flag := worker.flags.nonfinite()) is not None), default=None)
    if bad is not None:
        i, j = index[bad[0]]
        row, col = divmod(bad[1], grid.size(j))
        return NonFiniteError(grid.start(i) + row, grid.start(j) + col, (i, j))
    pivot = min((flag for worker in workers if (flag := worker.flags.failed_pivot()) is not None), default=None)
    if pivot is not None:
        return NotPositiveDefiniteError(grid.start(pivot[0]) + pivot[1], (pivot[0], pivot[0]))
    return errors[0]


def _summary(plan: Plan, workers: Sequence[DeviceWorker], began: int) -> Execution:
    """Gather what the workers counted."""
    writers = find_writers(plan.devices, plan.programs)
    records = tuple(record for worker in workers for record in worker.records(writers))
    ended = max((record.end_ns for record in records), default=began)
    return Execution(
        (ended - began) / 1e9,
        tuple((worker.link_bytes[0], worker.link_bytes[1], worker.link_bytes[2]) for worker in workers),
        tuple(worker.cache.peak_bytes for worker in workers),
        records,
    )
