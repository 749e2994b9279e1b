"""Open devices and execute a plan: one thread performs the actions of all devices' state machines on their streams.

One thread and not one a device: threads that share the interpreter lock hand it over at every call of a library, which takes
longer than the call (measured with four GPUs: 46 us an operation against 4.5 us).
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.progress import ProgressReporter
from ooc_chol.dense.execution.device_worker import Channels, DeviceWorker, News
from ooc_chol.dense.execution.narrow_decisions import NarrowDecisions
from ooc_chol.dense.execution.operations import AbstractOperations, BadFlagError, TileOperations
from ooc_chol.dense.execution.page_locking import refused_bytes, source_locked, waited_seconds
from ooc_chol.dense.execution.progress_table import ProgressTable
from ooc_chol.dense.execution.records import executed_records, spans_of
from ooc_chol.dense.execution.residue_operations import ResidueOperations
from ooc_chol.dense.execution.worker import Start
from ooc_chol.dense.keeping import flushed
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.steps import final_keys
from ooc_chol.dense.stores.array import OverwriteStore
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.display.prints import brief_repr
from ooc_chol.errors import NonFiniteError, NotHermitianError, NotPositiveDefiniteError
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import AbstractTier, Tiers
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.kernels.registry import kind_of, open_tile_device
from ooc_chol.memory.sources.base import AbstractSource, unchanged
from ooc_chol.precision.measured_products import MeasuredProducts
from ooc_chol.process.forks import refuse_in_child
from ooc_chol.process.garbage_collector import collector_off
from ooc_chol.process.threads import OwnThread, start, take
from ooc_chol.runtime.passes import reach_each_other
from ooc_chol.runtime.shutdown import abort_all, devices_closed, driver_errors_typed
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tracing.records import LazySequence, TraceRecord

#: What performs the steps of each engine, by the name that a memory layout has for it.
ENGINES: Mapping[str, type[AbstractOperations]] = {"native": TileOperations, "residue": ResidueOperations}


@dataclass(frozen=True)
class Execution:
    """Result of a run: its time, the bytes that it moved, and its records."""

    seconds: float  #: Seconds from the first step enqueued to the last byte in its store
    link_bytes: tuple[tuple[int, ...], ...]  #: Executed bytes over each :class:`Link`, per device, counted from the copies issued
    peak_bytes: tuple[int, ...]  #: Most bytes of blocks on each device at once, by its program: a run takes no slots but those
    records: Sequence[TraceRecord]  #: Every operation of every stream; made when somebody looks at them
    #: (n_tiles, len(NORM_COLUMNS)) what was measured of final tiles, the numbers of :data:`~ooc_chol.interfaces.NORM_COLUMNS`;
    #: None where all is FP64
    norms: NDArray[np.float64] | None = None
    #: (s, s) ``U.T @ L @ L.T @ V`` of the random vectors that the plan holds beside the run; None where it holds none
    probed: NDArray[np.float64] | None = None
    #: Seconds before and after the run for that: the vectors' way to the devices, and the sums' to the host
    probing_seconds: float = 0.0
    locking_seconds: float = 0.0  #: Seconds of the run for which enqueuing waited until host memory was page-locked
    #: Bytes of host memory that the driver would not page-lock, so that copies went through staging buffers
    refused_bytes: int = 0
    #: Nanoseconds at which each step began and ended, by device, in the order of its program, made when somebody looks at them;
    #: empty where nothing ran
    times: Sequence[Sequence[tuple[int, int]]] = ()
    #: Of the bytes in ``link_bytes`` those over each :class:`FileLink`, per device, as the tiers tell; empty where nothing ran
    file_bytes: tuple[tuple[int, ...], ...] = ()
    products: MeasuredProducts | None = None  #: What decided which products run in FP16; None where all were exact

    __repr__ = brief_repr


@dataclass
class Salvage:
    """Remains of a run that failed: filled by :func:`execute` before it raises."""

    seconds: float = 0.0  #: How long it ran
    #: Tiles of L that are final in the store, given ones too; empty where the devices cannot tell
    finished: set[tuple[int, int]] = field(default_factory=set)
    norms: NDArray[np.float64] | None = None  #: What was measured of final tiles


def execute(
    plan: Plan,
    devices: Sequence[TileDevice],
    tiers: Tiers,
    *,
    report: Callable[[int, int, float], None] | None = None,
    salvage: Salvage | None = None,
    probes: NDArray[np.float64] | None = None,
    norms: NDArray[np.float64] | None = None,
) -> Execution:
    """Run ``plan`` on ``devices``, from the tier ``"A"``, which makes or reads tiles of A, to the tier ``"L"``.

    ``probes`` are the random vectors that a plan in mixed precision has room for, ``norms`` what was measured of given tiles.
    """
    workers: list[DeviceWorker] = []
    with collector_off(), _only_sound(tiers["L"], devices):
        decisions = _decisions(plan, norms)
        ended = _run(plan, devices, tiers, workers=workers, report=report, probes=probes, decisions=decisions)
        if not ended.errors:
            with driver_errors_typed(devices, "reading the times of its steps"):
                return replace(_summary(plan, workers, ended), products=None if decisions is None else decisions.products)
    errors, began = ended.errors, ended.began
    if salvage is not None:
        salvage.seconds = (time.perf_counter_ns() - began) / 1e9
        salvage.finished.update(plan.given, *(worker.finished_tiles() for worker in workers))
        salvage.norms = _norms_of(workers)
    raise _verdict(workers, errors, plan.grid)


@contextmanager
def _only_sound(tier: AbstractTier, devices: Sequence[TileDevice]) -> Iterator[None]:
    """Let nothing be kept of what devices wrote once one of them had failed, and the others did not know."""
    try:
        yield
    finally:
        if failures := [device.failed_at for device in devices if device.failed_at is not None]:
            tier.distrust(min(failures))


class _Ended(NamedTuple):
    """How a run ended: the errors met, when it began, and what its probes saw."""

    errors: list[BaseException]
    began: int
    probed: NDArray[np.float64] | None = None
    probing_seconds: float = 0.0


def _run(
    plan: Plan,
    devices: Sequence[TileDevice],
    tiers: Tiers,
    *,
    workers: list[DeviceWorker],
    report: Callable[[int, int, float], None] | None,
    probes: NDArray[np.float64] | None,
    decisions: NarrowDecisions | None,
) -> _Ended:
    """Make the workers and let one thread work for them all."""
    channels = Channels(ProgressTable(), queue.SimpleQueue(), queue.SimpleQueue())
    thread = OwnThread(_enqueue_all, (workers, channels), "enqueuer")

    def stop() -> None:
        abort_all(devices)  # also those that have no worker yet
        for worker in workers:
            worker.stop()

    with devices_closed(devices, [thread], stop):
        for number, (device, operations) in enumerate(zip(devices, _operations(plan, devices, tiers), strict=True)):
            operations.decisions = decisions
            workers.append(DeviceWorker(number, device, plan, operations=operations, tiers=tiers, channels=channels))
        if plan.given:  # a device that fetches them waits for what is complete already
            channels.progress.mark_given(final_keys(plan.given), workers[0].stream_event())
        since = time.perf_counter()
        sums = [each for worker in workers if (each := worker.start_probes(probes)) is not None]
        starting = time.perf_counter() - since
        began = time.perf_counter_ns()
        start(thread)
        try:
            errors = _coordinate(workers, channels.news, plan, report=report, began=began)
        except KeyboardInterrupt:
            if tiers["L"].keeps_unfinished:  # a second interrupt ends this at once
                _let_run_out(workers, thread)
            raise
        if errors or not sums:
            return _Ended(errors, began)
        since = time.perf_counter()
        probed = workers[0].read_probes(sums)
        return _Ended(errors, began, probed, starting + time.perf_counter() - since)


def _decisions(plan: Plan, norms: NDArray[np.float64] | None) -> NarrowDecisions | None:
    """Decisions on products in FP16; None where strips hold no such entries."""
    if plan.precision is None or not isinstance(plan.layout, ResidueLayout) or not plan.layout.has_fp16:
        return None
    return NarrowDecisions(plan.precision, plan.panels, given=plan.given, norms=norms)


def _enqueue_all(workers: Sequence[DeviceWorker], channels: Channels) -> None:
    """Enqueue until every worker has finished; a thread's body, whose end the coordinating thread hears of in any case."""
    running = set(range(len(workers)))
    try:
        _handle_events(workers, channels, running)
    except BaseException as error:  # no memory to hand on an error, say
        for number in running:
            channels.news.put(News(number, True, error, 0))


def _handle_events(workers: Sequence[DeviceWorker], channels: Channels, running: set[int]) -> None:
    """Handle the events of all workers, in the order in which they come, until every worker has finished."""
    for number in sorted(running):
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
            channels.news.put(News(number, True, error, 0))
        if error is not None and not isinstance(error, BadFlagError):
            workers[number].device.abort()  # at a failed pivot what is enqueued runs out: its writes may be of use


def _operations(plan: Plan, devices: Sequence[TileDevice], tiers: Tiers) -> list[AbstractOperations]:
    """Operations of each device, which perform its steps; allocates its memory."""
    # They know each other only while they live: nothing that holds a device's memory is part of a cycle.
    others: WeakValueDictionary[int, AbstractOperations] = WeakValueDictionary()
    engine, operations = ENGINES[plan.layout.engine], []
    reach_each_other(devices)
    for number, device in enumerate(devices):
        operations.append(one := engine(device, plan, number, tiers=tiers, others=others))
        others[number] = one
    return operations


def _coordinate(
    workers: Sequence[DeviceWorker],
    news: queue.SimpleQueue[News],
    plan: Plan,
    *,
    report: Callable[[int, int, float], None] | None,
    began: int,
) -> list[BaseException]:
    """Listen until every worker has finished; the first error stops them, a flag behind what is enqueued. Returns the errors."""
    running, errors, process = len(workers), [], os.getpid()
    done = plan.given_flops
    total = plan.flops + done
    while running:
        item = take(news)
        running -= item.finished
        done += item.flops
        if item.error is not None:
            errors.append(item.error)
            for worker in workers:
                (DeviceWorker.halt if isinstance(errors[0], BadFlagError) else DeviceWorker.stop)(worker)
        elif report is not None and item.flops:
            report(done, total, (time.perf_counter_ns() - began) / 1e9)
            refuse_in_child(process, "this factorization")
    if report is not None and not errors and done < total:  # steps behind the last one that was watched
        report(total, total, (time.perf_counter_ns() - began) / 1e9)
    return errors


def _let_run_out(workers: Sequence[DeviceWorker], thread: OwnThread) -> None:
    """Enqueue nothing more, and wait until what is enqueued has run: what it writes is kept."""
    for worker in workers:
        worker.halt()
    thread.wait()
    for worker in workers:
        worker.device.synchronize()


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
    imaginary = min((flag for one in all_operations if (flag := one.flags.imaginary()) is not None), default=None)
    if imaginary is not None:
        k, row = imaginary
        return NotHermitianError(grid.start(k) + row, (k, k))
    pivots = (one.flags.failed_pivot() for one in all_operations)
    minors = [grid.start(pivot[0]) + pivot[1] for pivot in pivots if pivot is not None]
    # A row whose squares exceed its diagonal entry has a negative pivot, whatever was computed with it since.
    rows = (one.flagged_row() for one in all_operations)
    minors += [flagged + 1 for flagged in rows if flagged is not None]
    if minors:
        column = (min(minors) - 1) // grid.nb
        return NotPositiveDefiniteError(min(minors), (column, column))
    return errors[0]


def _summary(plan: Plan, workers: Sequence[DeviceWorker], run: _Ended) -> Execution:
    """Gather what the workers counted."""
    began = run.began
    ends = [worker.ends() for worker in workers]
    for worker in workers:
        worker.let_go_of_events()
    ended = max((max(of_device) for of_device in ends if of_device), default=began)
    times = LazySequence(partial(spans_of, plan, [worker.enqueued for worker in workers], ends))
    return Execution(
        (ended - began) / 1e9,
        link_bytes=tuple(tuple(worker.link_bytes) for worker in workers),
        peak_bytes=tuple(program.peak_resident for program in plan.programs),
        records=LazySequence(partial(executed_records, plan, times)),
        norms=_norms_of(workers),
        probed=run.probed,
        probing_seconds=run.probing_seconds,
        times=times,
        file_bytes=tuple(tuple(worker.file_bytes) for worker in workers),
    )


def _norms_of(workers: Sequence[DeviceWorker]) -> NDArray[np.float64] | None:
    """Rows of all devices: each tile's is zero but on its own device."""
    measured = [worker.norms for worker in workers if worker.norms is not None]
    return np.sum(measured, axis=0) if measured else None


def run(
    plan: Plan,
    source: AbstractSource,
    store: AbstractStore,
    *,
    report: ProgressReporter,
    salvage: Salvage | None = None,
    probes: NDArray[np.float64] | None = None,
    norms: NDArray[np.float64] | None = None,
    host_cores: int | None = None,
) -> Execution:
    """Open the devices of ``plan`` and execute it, while the memory of A and L is still being page-locked.

    Host devices share ``host_cores`` threads, by default those that BLAS may use; the bits do not depend on it.
    """
    threads = host_threads(len(plan.devices)) if host_cores is None else max(1, host_cores // len(plan.devices))
    tier = SourceTier(source, plan.grid, plan.fmt)
    tiers = {"A": tier, "L": store}
    watched = nullcontext() if isinstance(store, OverwriteStore) else unchanged(source)
    with kind_of(plan.devices[0]).calling(), watched, source_locked(plan, tier), flushed(store):
        before = waited_seconds(tiers)
        devices = [open_tile_device(name, threads, plan.moduli, plan.fmt) for name in plan.devices]
        probes = probes if plan.probe_arrays else None
        execution = execute(plan, devices, tiers, report=report, salvage=salvage, probes=probes, norms=norms)
        return replace(execution, locking_seconds=waited_seconds(tiers) - before, refused_bytes=refused_bytes(tiers))


@contextmanager
def opened_for_a_pass(names: Sequence[str], grid: TileGrid) -> Iterator[list[TileDevice]]:
    """Devices for one pass over tiles; on the host one does it all, with a stream for each of two cores."""
    threads = host_threads(len(names))
    chosen = names[:1] if device_kind(names[0]).shares_processor else names[: grid.n_tiles]
    with kind_of(names[0]).calling():
        yield [open_tile_device(name, threads) for name in chosen]
