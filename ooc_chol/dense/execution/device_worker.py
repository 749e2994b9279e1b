"""One device's worker: performs the actions of its state machine on the device's streams."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.execution.operations import AbstractOperations, BadFlagError
from ooc_chol.dense.execution.progress_table import Progress, ProgressTable
from ooc_chol.dense.execution.worker import (
    Await,
    BlockReady,
    Drain,
    Drained,
    Enqueue,
    Finish,
    Pause,
    Resume,
    StepDone,
    Stop,
    WorkerEvent,
    WorkerState,
    make_window,
)
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.probing import ProbedSums, form_of_factor
from ooc_chol.dense.programs.steps import Step
from ooc_chol.interfaces import AbstractEvent, AbstractStream, BlockKey, Tiers
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.runtime.shutdown import driver_errors_typed, typed
from ooc_chol.tasks.operations import STEP, STREAM_NAMES, URGENT_STREAMS, FileLink, Link, StepKind, StreamKind, step_key
from ooc_chol.tasks.tiling import TileGrid


class News(NamedTuple):
    """News from a worker to the coordinating thread."""

    worker: int
    finished: bool
    error: BaseException | None
    flops: int


class Channels(NamedTuple):
    """State shared by the workers of a run."""

    progress: ProgressTable
    news: queue.SimpleQueue[News]
    inbox: queue.SimpleQueue[tuple[int, WorkerEvent | Failure]]


class Failure(NamedTuple):
    """Inbox message: an event behind a step, or behind all of them, completed with an error."""

    error: BaseException
    position: int | None = None


class DeviceWorker:
    """Performs one device's actions; everything here runs on the enqueuing thread except where said."""

    def __init__(
        self, number: int, device: TileDevice, plan: Plan, *, operations: AbstractOperations, tiers: Tiers, channels: Channels
    ) -> None:
        self.number = number
        self.device = device
        self._grid: TileGrid = plan.grid
        self._program = plan.programs[number]
        self._steps = self._program.steps
        self._precision = plan.precision
        self._pivots_before, self._has_last_pivot = plan.pivots_before, plan.window is None
        self._tiers = tiers
        self._progress = channels.progress
        self._news = channels.news
        self._inbox = channels.inbox
        self.operations = operations
        created = {
            kind: device.create_stream(STREAM_NAMES[kind], is_urgent=kind in URGENT_STREAMS or self._converts(kind))
            for kind in sorted({StreamKind.COMPUTE, *self._program.streams})
        }
        self._streams: list[AbstractStream] = [created.get(kind, created[StreamKind.COMPUTE]) for kind in StreamKind]
        device.reserve_events(len(self._program.steps))
        self._state = WorkerState(self._program, make_window(self._program, _nominal_rate(device, plan)))
        self._enqueued: list[int] = []  # when each step was, in nanoseconds
        self._events: list[AbstractEvent] = []  # behind each step
        self.link_bytes = [0] * len(Link)
        self.file_bytes = [0] * len(FileLink)
        self._meets_files = not plan.file_traffic.is_none
        self._flops_reported_up_to = -1
        self._ahead = deque(tiers["L"].ahead_on(device.name))  # what is brought beside the steps, for a later run
        self._ahead_steps = len(self._steps) / (1 + len(self._ahead))  # between one of these and the next
        self._ahead_stream = device.create_stream("ahead") if self._ahead else None
        self.norms: NDArray[np.float64] | None = None

    def _converts(self, kind: StreamKind) -> bool:
        """Tell whether a stream's copies widen or round tiles: a kernel that must not wait for long products."""
        return self.operations.finisher is not None and kind in (StreamKind.COPY_IN, StreamKind.COPY_OUT)

    def stop(self) -> None:
        """End the run early; may be called from any thread, any number of times."""
        self.device.abort()
        self._tell(Stop())

    def halt(self) -> None:
        """Enqueue nothing more, but let run what is enqueued; as :meth:`stop` otherwise."""
        self._tell(Stop())

    def handle(self, event: WorkerEvent | Failure) -> bool:
        """Take one event and do all that follows from it; whether the worker is finished."""
        if isinstance(event, Failure):
            raise typed(event.error, [self.device], lambda: self._label(event.position))
        with driver_errors_typed([self.device], "enqueuing its steps"):
            return self._handle(event)

    def _handle(self, event: WorkerEvent) -> bool:
        self.device.activate()
        if isinstance(event, StepDone):
            self._after(event.position)
        return self._perform_all(event)

    def _tell(self, event: WorkerEvent | Failure) -> None:
        """Put an event into the inbox; from any thread."""
        self._inbox.put((self.number, event))

    def _perform_all(self, event: WorkerEvent) -> bool:
        """Handle one event and all that follows at once; whether the worker is finished."""
        pending: list[WorkerEvent] = [event]
        while pending:
            for action in self._state.handle(pending.pop(0)):
                if type(action) is Enqueue:
                    self._enqueue(*action)
                elif isinstance(action, Await):
                    if self._is_ready(action.key):
                        pending.append(BlockReady(action.key))
                elif isinstance(action, Pause):
                    self._tell(Resume())
                elif isinstance(action, Drain):
                    self._drain()
                elif isinstance(action, Finish):
                    if not action.stopped:
                        self._end_if(self.operations.is_flagged(self._pivots_before))
                        self._collect()
                    return True
        return False

    def _is_ready(self, key: BlockKey) -> bool:
        """Tell whether a step that awaits ``key`` may be enqueued now; else the inbox will be told."""
        level = Progress.RECORDED if self._is_ordered(key) else Progress.DURABLE
        return self._progress.when(key, level, lambda: self._tell(BlockReady(key)))

    def _is_ordered(self, key: BlockKey) -> bool:
        """Tell whether a stream can wait for ``key``: a device's step, or a value in a store that is ordered by events."""
        return key.name == STEP or self._tiers[key.name].ordered_by_events

    def _label(self, position: int | None) -> str:
        """A step in words, for an error that came there or on a stream somewhere before."""
        return "the end of its streams" if position is None else f"step {self._program.steps[position].label}"

    def _enqueue(self, position: int, watch: bool) -> None:
        """Enqueue one step: its waits, the operation, an event, and what must be told when it completes.

        What the driver refuses is an error that names it. This is the thread that feeds all devices: nothing is looked up twice.
        """
        step, events = self._steps[position], self._events
        stream, kind = self._streams[step.stream], step.kind
        try:
            for earlier in step.waits:
                stream.wait(events[earlier])
            for key in step.awaits:
                if self._is_ordered(key):
                    stream.wait(self._progress.event(key))
            self._enqueued.append(time.perf_counter_ns())
            moved = self.operations.perform(step, stream)
            end = stream.record()
            events.append(end)
            if moved:
                self._count(step, moved)
            if watch:
                self._when_done(end, partial(self._tell, StepDone(position)), position)
            if kind is StepKind.WRITE:
                self._progress.record(step.block, end)
                if not self._is_ordered(step.block):  # else nobody asks, and each call back costs the enqueuing thread time
                    self._when_done(end, partial(self._progress.mark_durable, step.block), position)
            if step.announced:
                self._progress.record(step_key(self.number, position), end)
            if self._ahead and self._ahead_stream is not None:
                self._bring_ahead(position, end, self._ahead_stream)
        except self.device.driver_errors as error:
            raise typed(error, [self.device], partial(self._label, position)) from error

    def _bring_ahead(self, position: int, end: AbstractEvent, stream: AbstractStream) -> None:
        """Enqueue copies for a later run, evenly beside the steps: the link is for what these fetch first."""
        due = len(self._ahead) - int((len(self._steps) - 1 - position) / self._ahead_steps)
        if due > 0:
            stream.wait(end)
        for _ in range(due):
            self.link_bytes[Link.FETCH] += self.operations.bring(self._ahead.popleft(), stream)

    def _count(self, step: Step, moved: int) -> None:
        """Count the bytes that a step moves over its link, and those of a file."""
        if (link := step.link) is None:
            return
        self.link_bytes[link] += moved
        if self._meets_files and (way := self._file_link(step, link)) is not None:
            self.file_bytes[way] += moved

    def _file_link(self, step: Step, link: Link) -> FileLink | None:
        """The way to or from a file that the bytes of a step take, as its tier says."""
        if link is Link.PEER:
            return None
        tier = self._tiers["A" if link is Link.SOURCE else "L"]
        if link is Link.WRITE:
            return FileLink.WRITE if tier.writes_file else None
        if not tier.reads_file(step.tile):
            return None
        return FileLink.SOURCE if link is Link.SOURCE else FileLink.READ

    def _when_done(self, event: AbstractEvent, then: Callable[[], None], position: int | None = None) -> None:
        """Call ``then`` when ``event`` completes, or put its error into the inbox; both happen on a thread of the device."""
        self.device.notify(event, lambda error: then() if error is None else self._tell(Failure(error, position)))

    def _after(self, position: int) -> None:
        """A watched step is complete: read the flags at pivots, tell the coordinating thread how far we are."""
        step = self._program.steps[position]
        self._end_if(self.operations.must_end_after(step))
        if step.is_pivot:  # no flag was set by it or by its row
            self._tiers["L"].confirm(step.tile)
        first, self._flops_reported_up_to = self._flops_reported_up_to + 1, max(position, self._flops_reported_up_to)
        done = sum(step.flops for step in self._program.steps[first : position + 1])
        self._news.put(News(self.number, False, None, done))

    def _end_if(self, is_flagged: bool) -> None:
        """Fail where a flag is set; asked after the flags were read, as what was computed since a failure may have set them."""
        if (failure := self.device.failure()) is not None:
            raise failure
        if is_flagged:
            raise BadFlagError("a failure flag is set")

    def finished_tiles(self) -> set[tuple[int, int]]:
        """Tiles that this worker wrote to the store, as far as is known; after a run that failed."""
        if self.operations.finisher is not None:
            self.norms = self.operations.finisher.latest_norms()
        done = zip(self._program.steps, self._events, strict=False)
        writes = [(step.tile, end) for step, end in done if step.kind is StepKind.WRITE]
        return {tile for tile, end in writes if self.device.wrote(self._tiers["L"], tile, end)}

    def _collect(self) -> None:
        """Collect the measurements of tiles, once all are final."""
        if self.operations.finisher is not None:
            self.norms = self.operations.finisher.norms(self._streams[StreamKind.COMPUTE])

    def start_probes(self, vectors: NDArray[np.float64] | None) -> ProbedSums | None:
        """Enqueue the vectors' way to the device, on a stream that has nothing to do at first; its sums where it has any."""
        if vectors is None:
            self.operations.probed = None  # nobody asked for a certificate
        elif self.operations.probed is not None:
            with self.device.current():
                self.operations.probed.start(self._streams[StreamKind.COPY_OUT], vectors)
        return self.operations.probed

    def read_probes(self, sums: Sequence[ProbedSums]) -> NDArray[np.float64]:
        """Sum of all devices' probes, this one's first; once all streams are empty."""
        stream = self._streams[StreamKind.COPY_OUT]
        with self.device.current():
            return form_of_factor(sums[0].with_themselves(stream, sums[1:]))

    def stream_event(self) -> AbstractEvent:
        """An event of the compute stream, recorded now."""
        with self.device.current():
            return self._streams[StreamKind.COMPUTE].record()

    def _drain(self) -> None:
        """Tell the inbox when the streams are empty: each records an event, and the compute stream waits for all of them."""
        last = self._streams[StreamKind.COMPUTE]
        for stream in dict.fromkeys([*self._streams, *([] if self._ahead_stream is None else [self._ahead_stream])]):
            if stream is not last:
                last.wait(stream.record())
        if not self._has_last_pivot:  # which would have brought all flags to the host
            self.operations.copy_flags_back(last)
        self._when_done(last.record(), lambda: self._tell(Drained()))

    def ends(self) -> list[int]:
        """When every enqueued step ended, in nanoseconds, once all devices are idle."""
        return self.device.times_ns(self._events)

    @property
    def enqueued(self) -> list[int]:
        """When every step was enqueued, in nanoseconds."""
        return self._enqueued

    def let_go_of_events(self) -> None:
        """Give the events back to the device: no time of any device is asked for any more."""
        self.device.take_back_events(self._events)
        self._events.clear()


def _nominal_rate(device: TileDevice, plan: Plan) -> float:
    """Upper estimate of the rate in flops per second: twice as high through 13 residues, and more with fewer for a product."""
    if plan.moduli is None:
        return device.nominal_flops_per_second
    products = plan.moduli / 2 if plan.fmt.is_complex else plan.moduli  # of residues, for one of real numbers
    return device.nominal_flops_per_second * max(2.0, 2.0 * 13 / products)
