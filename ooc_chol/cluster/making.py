"""One task of a run on a cluster, as its worker does it: plan a window, run it on the worker's devices, hand back its block."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.progress import ProgressReporter
from ooc_chol.cluster.block_locks import BlockLocks
from ooc_chol.cluster.blocks import BlockGrid, BlockPlace, LBlock
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.resident_tiles import ResidentTiles
from ooc_chol.cluster.window_source import WindowSource
from ooc_chol.cluster.window_store import WindowStore
from ooc_chol.cluster.worker_state import TaskRoom, task_room, worker_address, worker_threads
from ooc_chol.dense.execution.executor import Execution
from ooc_chol.dense.execution.executor import run as run_plan
from ooc_chol.dense.execution.page_locking import written_order
from ooc_chol.dense.key import arithmetic_key, machine_part
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import make_plan
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import Problem, machine_of
from ooc_chol.dense.rates.lookup import known_rates
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.display.prints import shortened
from ooc_chol.errors import BudgetError, ClusterError
from ooc_chol.files.inputs import plain_array
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.registry import device_kind, resolve_devices
from ooc_chol.memory.promises import HOST_PROMISES
from ooc_chol.memory.shared import KEPT, has_room
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.process.address_space import memory_errors_typed
from ooc_chol.process.garbage_collector import collector_off
from ooc_chol.tasks.operations import Link
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tasks.windows import Window, whole_triangle

#: The part of a device's budget that tiles take which stay there between tasks.
RESIDENT_PART = 2


def make_block(
    run: ClusterRun,
    window: Window,
    given: Sequence[LBlock],
    a: NDArray[Any] | None = None,
    diagonal: NDArray[Any] | None = None,
    report: ProgressReporter = None,
    coming: Window | None = None,
) -> LBlock:
    """Make the tiles of ``window`` final, on the devices of the process that calls; ``report`` hears of the flops done.

    Of the ``coming`` window devices that keep tiles bring beside it what is given of its columns' own rows.

    Shapes: ``a`` (rows, columns), ``diagonal`` (n,). For one arithmetic key the tiles are bitwise those of one run over all of A.
    On the host a task takes some milliseconds beside its flops. Raises ``NotPositiveDefiniteError``, ``NonFiniteError``,
    ``NotHermitianError``, ``ClusterError``, ``BudgetError`` and ``TierError``.
    """
    room = task_room()
    # Between steps of planning and opening the collector would take a tenth of a second now and then.
    with room.turn, memory_errors_typed("a block of the factorization"), HOST_PROMISES.call(), collector_off():
        began = time.perf_counter()
        if room.has_ended(run):
            raise ClusterError("the run of this task was taken back", "nothing is left to do")
        if run.store is not None and (there := _made_before(room, run, window)) is not None:
            return there
        source = _source_of(run, window, a, diagonal)
        plan = _plan_of(run.options, run.grid, window, source=source, fmt=run.fmt, run=run)
        _check_arithmetic(plan, run)
        if run.store is not None:
            plan = _beside_kept_tiles(plan, source, run, window)
            place: _AbstractPlace = _GroupPlace(room, run, window, plan)
        else:
            plan, resident = _beside_resident_tiles(room, plan, source, run, window, coming)
            place = _MemoryPlace(room, run, plan, given, resident)
        with place as store:
            execution = run_plan(plan, source, store, report=report, host_cores=worker_threads())
            facts = LBlock(
                window,
                tiles=None,
                norms=_norms_of(plan, execution),
                seconds=time.perf_counter() - began,
                link_bytes=tuple(map(sum, zip(*execution.link_bytes, strict=True))),
                worker=worker_address(),
            )
            return place.finished(facts)


def _made_before(room: TaskRoom, run: ClusterRun, window: Window) -> LBlock | None:
    """The block, where a task of this run has written it to the group and was lost before anybody was told."""
    group = room.group(run).store
    facts = group.window_facts(window)
    if facts.get("run") != run.name or not group.is_finished(window):
        return None
    made = {"seconds": facts["seconds"], "link_bytes": tuple(facts["link_bytes"]), "worker": facts["worker"]}
    return LBlock(window, tiles=None, norms=facts.get("norms"), **made, was_there=True)


def key_here(options: FactorOptions, blocks: BlockGrid, fmt: PrecisionFormat) -> dict[str, str | int]:
    """The arithmetic key of a run with these options on the devices of this process, by the plan of its first block."""
    window = blocks.window(BlockPlace(0, 0))
    return arithmetic_key(_plan_of(options, blocks.tiles, window, source=None, fmt=fmt)).to_dict()


def _source_of(run: ClusterRun, window: Window, a: NDArray[Any] | None, diagonal: NDArray[Any] | None) -> AbstractSource:
    """Source from which the window reads A."""
    if run.source is not None:
        assert isinstance(run.source, AbstractSource)
        return run.source
    if a is None:
        raise ValueError(f"neither the block of A at {window} is given, nor a source that the run reads it from")
    rows, columns = (_matrix_rows(run.grid, span) for span in window)
    return WindowSource(plain_array("A", a, gaps_as_nan=True), rows, columns, diagonal=diagonal, n=run.grid.n)


def _matrix_rows(grid: TileGrid, span: range) -> range:
    """Matrix rows of some tile rows."""
    return range(grid.start(span.start), min(grid.start(span.stop), grid.n))


def _plan_of(
    options: FactorOptions,
    grid: TileGrid,
    window: Window,
    *,
    source: AbstractSource | None,
    fmt: PrecisionFormat,
    run: ClusterRun | None = None,
) -> Plan:
    """The plan of a window, without rates: closed forms choose, so that no task measures anything.

    That of all of L in memory is the plan of one process, by rates that are known.
    """
    precision = None if run is None else run.precision
    itemsize, name = (fmt.itemsize, "array") if source is None else (source.bytes_per_entry, source.name)
    problem = Problem(grid.n, itemsize, name, precision=precision, fmt=fmt)
    if run is None or run.store is not None or window != whole_triangle(grid.nt):
        return make_plan(problem.of_window(window), options, lambda _: None)
    machine = machine_of(options)
    is_known = len(machine.names) == 1 or not machine.kind.shares_processor
    return make_plan(problem, options, lambda tiles: known_rates(tiles, name, "memory", machine, fmt) if is_known else None)


def _beside_kept_tiles(plan: Plan, source: AbstractSource, run: ClusterRun, window: Window) -> Plan:
    """The plan, or one of half the memory that reads no more: the other half is for tiles that later tasks need."""
    most = run.memory_bytes // 2
    if _host_bytes(plan) <= most or not most:
        return plan
    try:
        smaller = _plan_of(replace(run.options, memory_budget=most), run.grid, window, source=source, fmt=run.fmt, run=run)
    except BudgetError:
        return plan
    return smaller if smaller.link_bytes(Link.FETCH) <= plan.link_bytes(Link.FETCH) else plan


def _beside_resident_tiles(
    room: TaskRoom, plan: Plan, source: AbstractSource, run: ClusterRun, window: Window, coming: Window | None
) -> tuple[Plan, ResidentTiles | None]:
    """The plan, or one of half the budget whose fetches bring no more, beside tiles that devices keep in the other half."""
    if not run.keeps_tiles or plan.window is None:
        return plan, None
    half = plan.budgets[0].budget_bytes // RESIDENT_PART
    options = replace(run.options, memory_budget=half)
    try:
        smaller = _plan_of(options, run.grid, window, source=source, fmt=run.fmt, run=run)
        later = None if coming is None else _plan_of(options, run.grid, coming, source=source, fmt=run.fmt, run=run)
        resident = room.resident(
            run, lambda: ResidentTiles(run.name, run.grid, run.fmt, resolve_devices(run.options.devices), half)
        )
    except BudgetError:
        room.close_resident()
        return plan, None
    if resident.begin(smaller, window, later, () if coming is None else coming.columns) > plan.link_bytes(Link.FETCH):
        room.close_resident()
        return plan, None
    return smaller, resident


def _host_bytes(plan: Plan) -> int:
    """Bytes of the worker's memory that a plan's devices take."""
    if not device_kind(plan.devices[0]).is_in_host_memory:
        return 0
    arenas = [budget.n_slots * budget.slot_bytes + budget.workspace_bytes for budget in plan.budgets]
    return max(sum(arenas), len(arenas) * plan.peak_bytes)


def _check_arithmetic(plan: Plan, run: ClusterRun) -> None:
    """Raise ``ClusterError`` where this process would give other bits than the run."""
    here, there = machine_part(plan), run.arithmetic_key
    differing = [name for name, value in here.items() if there.get(name, value) != value]
    if not differing:
        return
    told = ", ".join(f"{name} ({shortened(str(there[name]))} there, {shortened(str(here[name]))} here)" for name in differing)
    raise ClusterError(
        f"this worker computes with other bits than the run that it is to take part in: {told}",
        "retire it, or give all workers the same package, libraries and kind of device",
        {worker_address() or "this process": told},
    )


def _norms_of(plan: Plan, execution: Execution) -> NDArray[np.float64] | None:
    """Measured norms of the tiles of the plan's window, in their order."""
    if execution.norms is None:
        return None
    return execution.norms[[plan.grid.packed(i, j) for i, j in plan.made.tiles()]]


class _AbstractPlace(ABC):
    """Where L is for one task, inside a ``with`` block: it is left as it was, unless the task calls :meth:`finished`."""

    store: AbstractStore

    def __enter__(self) -> AbstractStore:
        return self.store

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Let go of what the task alone needed."""

    @abstractmethod
    def finished(self, facts: LBlock) -> LBlock:
        """Let others have the tiles, once all are written; the block that they are told of."""


@final
class _MemoryPlace(_AbstractPlace):
    """L in the memory of workers."""

    def __init__(
        self, room: TaskRoom, run: ClusterRun, plan: Plan, given: Sequence[LBlock], resident: ResidentTiles | None
    ) -> None:
        self._room, self._resident = room, resident
        formats = None if run.precision is None else run.precision.formats
        # Blocks of an L like this one have the sizes of these. Of twice ``memory_bytes`` Dask uses 0.6 before it writes to disk.
        KEPT.only_for((run.grid, formats, run.fmt), 6 * run.memory_bytes // 5)
        is_shared = run.shares_memory and has_room()
        tiles = WindowStore(run.grid, plan.made, given, formats=formats, fmt=run.fmt, is_shared=is_shared, resident=resident)
        self.store = self._tiles = tiles
        registrar = device_kind(plan.devices[0]).registrar(plan.devices[0])
        if run.shares_memory and registrar is not None:
            from ooc_chol.cluster.shared_blocks import SharedBlock  # needs Dask

            blocks = [(each.memory, each.tiles or {}) for each in given if isinstance(each, SharedBlock)]
            if tiles.memory is not None:  # which later tasks of the row read, too
                tiles.memory.locks(registrar, is_fresh=True)
                blocks.append((tiles.memory, tiles.made))
            ahead = [] if resident is None else [index for name in plan.devices for index in resident.ahead_on(name)]
            tiles.locks = BlockLocks(registrar, blocks, lambda: [*written_order(plan), *ahead])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.store.close()
        if kind is not None:
            self._room.close_resident()
        elif self._resident is not None:
            self._resident.rest()

    def finished(self, facts: LBlock) -> LBlock:
        block = replace(facts, tiles=self._tiles.made)
        if self._tiles.memory is None:
            return block
        from ooc_chol.cluster.shared_blocks import shared_block  # tells Dask how such blocks are sent

        return shared_block(block, self._tiles.memory)


@final
class _GroupPlace(_AbstractPlace):
    """L in a Zarr group, which has all tiles that are needed; what is made is there once its checksums are, which come last."""

    def __init__(self, room: TaskRoom, run: ClusterRun, window: Window, plan: Plan) -> None:
        from ooc_chol.cluster.group_window import GroupWindow  # Zarr is an extra

        there, kept_bytes = room.group(run), max(0, run.memory_bytes - _host_bytes(plan))
        self.store = self._tiles = GroupWindow(there.store, there.kept, window, kept_bytes)
        self._room, self._run = room, run.name

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.store.close()
        if kind is not None:  # checksums of a window that is not finished would hide what another worker makes of it
            self._room.close_group()

    def finished(self, facts: LBlock) -> LBlock:
        measured = {"seconds": facts.seconds, "link_bytes": list(facts.link_bytes), "worker": facts.worker, "run": self._run}
        self._tiles.finish(measured if facts.norms is None else {**measured, "norms": facts.norms})
        return replace(facts, read_bytes=self._tiles.read_bytes)
