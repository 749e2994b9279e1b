"""Run a plan in a discrete simulator: slots, waits and streams as at run time, with seconds when rates are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.program import URGENT_STREAMS, Program, Step, StepKind, StreamKind, final_keys
from ooc_chol.dense.programs.residue_state import ResidueState
from ooc_chol.dense.programs.residue_steps import ResidueProgram, ResidueStep, step_key
from ooc_chol.dense.programs.sharing import SharedProcessors
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockKey
from ooc_chol.tasks.tiling import Index, TileGrid


@dataclass(frozen=True)
class Timeline:
    """When each step of each device starts and ends, in seconds from the start of the run; zeros without rates."""

    starts: tuple[tuple[float, ...], ...]
    ends: tuple[tuple[float, ...], ...]

    @property
    def seconds(self) -> float:
        """End of the last step."""
        return max((max(ends, default=0.0) for ends in self.ends), default=0.0)


@dataclass
class _DeviceRun:
    """One device in the simulator."""

    number: int
    program: Program | ResidueProgram
    state: ResidueState | None
    next: int = 0
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    free_at: list[float] = field(default_factory=lambda: [0.0] * len(StreamKind))
    slots: dict[int, tuple[Index, int]] = field(default_factory=dict)  # tile and version in each slot that is taken
    contents: dict[int, tuple[Index, int]] = field(default_factory=dict)  # what each slot was filled with last
    where: dict[Index, int] = field(default_factory=dict)
    processors: SharedProcessors = field(default_factory=SharedProcessors)


def simulate(
    programs: Sequence[Program | ResidueProgram], grid: TileGrid, rates: Rates | None, given: Iterable[Index] = ()
) -> Timeline:
    """Run every program in order, as the workers will, and verify each step.

    Parameters
    ----------
    programs : sequence of Program
        One per device.
    grid : TileGrid
        The tiles.
    rates : Rates or None
        Measured rates; None checks the plan without times.
    given : iterable of tuple of int
        Tiles of L that are in the store from the start.

    Returns
    -------
    Timeline
        Start and end of each step.

    Raises
    ------
    ScheduleError
        A step uses a tile that is not in its slot, overwrites one that is still there, evicts one that is not, waits on a later
        step, fetches a value that nobody writes (the plan would block), or a tile of L is left unwritten.
    """
    runs = [_device_run(number, program, grid) for number, program in enumerate(programs)]
    states = {run.number: run.state for run in runs if run.state is not None}
    stored: dict[BlockKey, float] = dict.fromkeys(final_keys(given), 0.0)
    moved = True
    while moved:
        moved = False
        for run in runs:
            moved |= _advance(run, runs, states, grid, rates, stored)
    for device, run in enumerate(runs):
        if run.next < len(run.program.steps):
            step = run.program.steps[run.next]
            where = f"device {device} waits at step {run.next} ({step.label})"
            missing = next(key for key in step.awaits if key not in stored)
            raise ScheduleError(f"the plan blocks: {where} for {missing}, which is never written")
    for i, j in grid.tiles():
        if BlockKey("L", (i, j), j + 1) not in stored:
            raise ScheduleError(f"tile {(i, j)} of L is never written to the store")
    return Timeline(tuple(tuple(run.starts) for run in runs), tuple(tuple(run.ends) for run in runs))


def _device_run(number: int, program: Program | ResidueProgram, grid: TileGrid) -> _DeviceRun:
    """A device before its first step."""
    return _DeviceRun(number, program, ResidueState(grid, program.layout) if isinstance(program, ResidueProgram) else None)


def _advance(
    run: _DeviceRun,
    runs: Sequence[_DeviceRun],
    states: dict[int, ResidueState],
    grid: TileGrid,
    rates: Rates | None,
    stored: dict[BlockKey, float],
) -> bool:
    """Run steps of one device until it must wait for another; whether any ran."""
    first = run.next
    while run.next < len(run.program.steps):
        step = run.program.steps[run.next]
        if any(key not in stored for key in step.awaits):
            break
        _apply(run, runs, states, step)
        if any(earlier >= run.next for earlier in step.waits):
            raise ScheduleError(f"{step.label} waits on step {max(step.waits)}, which is enqueued after it")
        earlier_ends = [run.ends[earlier] for earlier in step.waits]
        start = max([run.free_at[step.stream], *earlier_ends, *[stored[key] for key in step.awaits]])
        end = _end(run.processors, step, start, grid, rates) if rates else start
        run.starts.append(start)
        run.ends.append(end)
        run.free_at[step.stream] = end
        if step.kind is StepKind.WRITE:
            stored[step.block] = end
        if step.announced:
            stored[step_key(run.number, run.next)] = end
        run.next += 1
    return run.next > first


def _end(processors: SharedProcessors, step: Step | ResidueStep, start: float, grid: TileGrid, rates: Rates) -> float:
    """When ``step`` ends: kernels share the processors, copies and generations run beside them."""
    seconds = rates.seconds(step, grid)
    if step.kind is not StepKind.COMPUTE or seconds == 0.0:
        return start + seconds
    place = processors.urgent if step.stream in URGENT_STREAMS else processors.compute
    return place(start, seconds, rates.share(step))


def _apply(run: _DeviceRun, runs: Sequence[_DeviceRun], states: dict[int, ResidueState], step: Step | ResidueStep) -> None:
    """Verify what ``step`` finds in its slots, and apply its effect on them."""
    if isinstance(step, ResidueStep):
        states[run.number].apply(step, states)
    else:
        assert isinstance(run.program, Program)
        if step.source is not None:
            other, slot = step.source  # the tile may be evicted there: its bytes stay until the slot is filled again
            held = runs[other].contents.get(slot)
            if held != (step.tile, step.version):
                holds = "is empty" if held is None else f"holds {BlockKey('L', *held)}"
                raise ScheduleError(f"{step.label}: slot {slot} of device {other} {holds}, not {step.block}")
        _check(run, step, run.program.n_slots)


def _check(run: _DeviceRun, step: Step, n_slots: int) -> None:
    """Verify the slots that ``step`` uses and apply its effect on them."""
    for index in step.evicts:
        if index not in run.where:
            raise ScheduleError(f"{step.label}: tile {tuple(index)} is to be evicted, but is not on the device")
        run.slots.pop(run.where.pop(index))
    if step.kind in (StepKind.FETCH, StepKind.GENERATE, StepKind.PULL):
        if step.slot in run.slots or not 0 <= step.slot < n_slots:
            raise ScheduleError(f"{step.label}: slot {step.slot} is not free")
        if step.tile in run.where:
            raise ScheduleError(f"{step.label}: the tile is on the device already, in slot {run.where[step.tile]}")
        run.slots[step.slot] = run.contents[step.slot] = step.tile, step.version
        run.where[step.tile] = step.slot
        return
    expected = step.version - 1 if step.task is not None else step.version
    _expect(run, step, step.slot, (step.tile, expected))
    if step.task is not None:
        for slot, tile in zip(step.operands, step.task.reads, strict=True):
            _expect(run, step, slot, (tile, tile[1] + 1))
        run.slots[step.slot] = run.contents[step.slot] = step.tile, step.version


def _expect(run: _DeviceRun, step: Step, slot: int, value: tuple[Index, int]) -> None:
    """Verify that ``slot`` holds version ``value[1]`` of tile ``value[0]``."""
    held = run.slots.get(slot)
    if held != value:
        holds = "is empty" if held is None else f"holds {BlockKey('L', *held)}"
        raise ScheduleError(f"{step.label}: slot {slot} {holds}, not {BlockKey('L', *value)}")
