"""Run a plan in a discrete simulator: slots, waits and streams as at run time, with seconds when rates are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ooc_chol.dense.programs.contents import Contents
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.file_costs import FileCosts, FileMove, FileRun
from ooc_chol.dense.programs.sharing import SharedProcessors
from ooc_chol.dense.programs.steps import Program, final_keys
from ooc_chol.display.prints import brief_repr
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockKey
from ooc_chol.tasks.operations import URGENT_STREAMS, StepKind, StreamKind, step_key
from ooc_chol.tasks.tiling import Index, TileGrid
from ooc_chol.tasks.windows import Window

_COMPUTE, _WRITE = StepKind.COMPUTE, StepKind.WRITE
_IS_URGENT = [stream in URGENT_STREAMS for stream in StreamKind]


@dataclass(frozen=True)
class Timeline:
    """When each step of each device starts and ends in the simulator."""

    #: Seconds from the start of the run, by device and by position in its program; all 0 without rates
    starts: tuple[tuple[float, ...], ...]
    ends: tuple[tuple[float, ...], ...]
    filed: float = 0.0  #: Seconds at which the last tile that host memory keeps is in its file, too; 0 where none is kept

    __repr__ = brief_repr

    @property
    def seconds(self) -> float:
        """Seconds at which the last step ends, and all is in its file."""
        return max(self.filed, max((max(ends, default=0.0) for ends in self.ends), default=0.0))


@dataclass
class _DeviceRun:
    """How far one device is in the simulator; ``alone`` are the seconds of its steps, empty without rates."""

    number: int
    program: Program
    contents: Contents
    alone: list[float]
    moves: dict[int, FileMove]  #: What files take of these steps, and are spared
    next: int = 0
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    free_at: list[float] = field(default_factory=lambda: [0.0] * len(StreamKind))
    processors: SharedProcessors = field(default_factory=SharedProcessors)


def simulate(
    programs: Sequence[Program],
    grid: TileGrid,
    rates: Rates | None,
    given: Iterable[Index] = (),
    *,
    checks_slots: bool = True,
    files: FileCosts | None = None,
    window: Window | None = None,
) -> Timeline:
    """Run every program in order, as the workers will, and verify each step.

    Raises ``ScheduleError``.
    """
    runs = [_run_of(number, program, grid, rates, files) for number, program in enumerate(programs)]
    disks = None if files is None or rates is None else FileRun(files)
    contents = [run.contents for run in runs] if checks_slots else None
    shares = rates.shares() if rates else {}
    stored: dict[BlockKey, float] = dict.fromkeys(final_keys(given), 0.0)
    moved = True
    while moved:
        moved = False
        for run in runs:
            moved |= _advance(run, contents, shares=shares, stored=stored, disks=disks)
    for device, run in enumerate(runs):
        if run.next < len(run.program.steps):
            step = run.program.steps[run.next]
            where = f"device {device} waits at step {run.next} ({step.label})"
            missing = next(key for key in step.awaits if key not in stored)
            raise ScheduleError(f"the plan blocks: {where} for {missing}, which is never written")
    for i, j in grid.tiles() if window is None else window.tiles():
        if BlockKey("L", (i, j), j + 1) not in stored:
            raise ScheduleError(f"tile {(i, j)} of L is never written to the store")
    filed = 0.0 if disks is None else disks.ends
    return Timeline(tuple(tuple(run.starts) for run in runs), tuple(tuple(run.ends) for run in runs), filed)


def _run_of(number: int, program: Program, grid: TileGrid, rates: Rates | None, files: FileCosts | None) -> _DeviceRun:
    """One device before its first step."""
    contents = Contents(grid, program.layout)
    if rates is None:
        return _DeviceRun(number, program, contents, [], {})
    return _DeviceRun(
        number, program, contents, rates.all_seconds(program.steps, grid), {} if files is None else files.moves(program.steps)
    )


def _advance(
    run: _DeviceRun,
    contents: Sequence[Contents] | None,
    *,
    shares: Mapping[type, float],
    stored: dict[BlockKey, float],
    disks: FileRun | None,
) -> bool:
    """Run steps of one device until it must wait for another; whether any ran."""
    first, steps, check, alone = run.next, run.program.steps, run.contents.apply, run.alone
    starts, ends, free_at, place = run.starts, run.ends, run.free_at, _places(run.processors)
    for position in range(first, len(steps)):
        step = steps[position]
        stream = step.stream
        start = free_at[stream]
        for key in step.awaits:
            ready = stored.get(key)
            if ready is None:
                run.next = position
                return position > first
            if ready > start:
                start = ready
        if contents is not None:
            check(step, contents)
        for earlier in step.waits:
            if earlier >= position:
                raise ScheduleError(f"{step.label} waits on step {max(step.waits)}, which is enqueued after it")
            if ends[earlier] > start:
                start = ends[earlier]
        end = start
        if alone and (seconds := alone[position]):
            # Kernels share the processors; copies and generations run beside them.
            if step.kind is _COMPUTE:
                end = place[stream](start, seconds, shares[type(step.operation)])
            elif disks is not None and (move := run.moves.get(position)) is not None:
                end = disks.end(move, start)
            else:
                end = start + seconds
        starts.append(start)
        ends.append(end)
        free_at[stream] = end
        if step.kind is _WRITE:
            stored[step.block] = end
        if step.announced:
            stored[step_key(run.number, position)] = end
    run.next = len(steps)
    return run.next > first


def _places(processors: SharedProcessors) -> list[Callable[[float, float, float], float]]:
    """For each stream what tells when a kernel there ends."""
    return [processors.urgent if is_urgent else processors.compute for is_urgent in _IS_URGENT]
