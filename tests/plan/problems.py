"""Random panels, ownership tables and whole problems for the tests of planning; and how to build their programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from ooc_chol.errors import ScheduleError
from tests.builders import tile_program
from tests.inside.dense import EVICTION_POLICIES, POLICIES, FetchCounter, Program, ResidencyPlanner, Step
from tests.inside.dense import ResidencyPolicy as Policy
from tests.inside.interfaces import AbstractEvictionPolicy
from tests.inside.schedulers import FinishingTasks, LeftLookingScheduler, Schedule
from tests.inside.tasks import Gemm, Panel, Potrf, Syrk, Task, TileGrid, Trsm, finish, update


@dataclass(frozen=True)
class PlanningProblem:
    """A schedule, and how much memory its program gets."""

    schedule: Schedule[Task]
    policy: Policy
    capacity: int
    prefetch: int
    source_itemsize: int | None = 8
    finishing: tuple[Panel, ...] | None = None  # panels by which tasks get to the finish stream; None: none does

    def __repr__(self) -> str:
        """The arguments that make it again, short enough to read in a failure."""
        grid = self.schedule.grid
        devices = len(self.schedule.tasks)
        beside = "" if self.finishing is None else f" finish by {[tuple(panel) for panel in self.finishing]}"
        return f"<n={grid.n} nb={grid.nb} {devices} devices {self.policy.name!r} {self.capacity}+{self.prefetch} tiles{beside}>"

    def programs(self) -> tuple[Program, ...]:
        """The program of each device."""
        return tuple(self._program(device, tasks) for device, tasks in enumerate(self.schedule.tasks))

    def _program(self, device: int, tasks: Sequence[Task]) -> Program:
        grid, overlaps = self.schedule.grid, self.policy.overlaps
        finishing = None if self.finishing is None else FinishingTasks(self.finishing)
        moves = tile_program(
            grid, self.capacity + self.prefetch, self.source_itemsize, device=device, overlaps=overlaps, finishing=finishing
        )
        ResidencyPlanner(tasks, self.capacity, self.policy, eviction_of(self.policy)).run(moves)
        return moves.build()


def with_steps(program: Program, steps: Sequence[Step]) -> Program:
    """``program`` with other steps."""
    return replace(program, steps=tuple(steps))


def changed(program: Program, position: int, **what: object) -> Program:
    """``program`` with other facts in one step."""
    steps = list(program.steps)
    steps[position] = steps[position]._replace(**what)
    return with_steps(program, steps)


def task_of(step: Step) -> Task | None:
    """The task that a step does; None for one that moves a tile."""
    (i, j), work = step.tile, step.operation
    if isinstance(work, Gemm | Syrk):
        return update(i, j, work.k)
    return finish(i, j) if isinstance(work, Potrf | Trsm) else None


def on_other_places(program: Program, position: int, **what: object) -> Program:
    """``program`` with other places in one operation."""
    return changed(program, position, operation=program.steps[position].operation._replace(**what))


def eviction_of(policy: Policy) -> AbstractEvictionPolicy | None:
    """The policy's operand cache."""
    return EVICTION_POLICIES[policy.eviction] if policy.eviction else None


def fetches(schedule: Schedule[Task], capacity: int, policy: Policy, eviction: AbstractEvictionPolicy | None) -> int | None:
    """Tiles fetched by all devices; None when the panels do not fit."""
    counter = FetchCounter()
    try:
        for tasks in schedule.tasks:
            ResidencyPlanner(tasks, capacity, policy, eviction).run(counter)
    except ScheduleError:
        return None
    return counter.fetches


def least_capacity(schedule: Schedule[Task], policy: Policy) -> int:
    """Fewest tiles with which the schedule runs."""
    capacity = 1
    while fetches(schedule, capacity, policy, eviction_of(policy)) is None:
        capacity += 1
    return capacity


def make_schedule(nt: int, panels: Sequence[Panel], owners: Sequence[int] | None = None, *, nb: int = 4) -> Schedule[Task]:
    """The schedule of ``nt`` whole tile rows; on one device when no owners are given."""
    return LeftLookingScheduler().schedule(TileGrid(nt * nb, nb), owners or (0,) * nt, panels)


@st.composite
def panel_shapes(draw: st.DrawFn, nt: int) -> tuple[Panel, ...]:
    """Consecutive panels of any widths and heights that cover ``nt`` tile columns."""
    panels: list[Panel] = []
    k0 = 0
    while k0 < nt:
        width = draw(st.integers(1, nt - k0))
        panels.append(Panel(k0, width, draw(st.integers(1, nt))))
        k0 += width
    return tuple(panels)


@st.composite
def ownership_tables(draw: st.DrawFn, nt: int, *, most: int = 3) -> tuple[int, ...]:
    """Any device for each tile row; a device may own nothing."""
    return tuple(draw(st.lists(st.integers(0, most - 1), min_size=nt, max_size=nt)))


@st.composite
def schedules(draw: st.DrawFn, *, most_rows: int = 7, most_devices: int = 3) -> Schedule[Task]:
    """Tasks on any panels and ownership, the last tile row as short as may be."""
    nt, nb = draw(st.integers(1, most_rows)), draw(st.integers(1, 5))
    grid = TileGrid(nt * nb - draw(st.integers(0, nb - 1)), nb)
    owners = draw(ownership_tables(nt, most=most_devices))
    return LeftLookingScheduler().schedule(grid, owners, draw(panel_shapes(nt)))


@st.composite
def planning_problems(draw: st.DrawFn, *, most_rows: int = 6, most_devices: int = 3) -> PlanningProblem:
    """Any schedule under any policy, with memory from barely enough to plenty."""
    schedule = draw(schedules(most_rows=most_rows, most_devices=most_devices))
    policy = POLICIES[draw(st.sampled_from(sorted(POLICIES)))]
    capacity = max(3, least_capacity(schedule, policy)) + draw(st.integers(0, 8))
    prefetch = draw(st.integers(0, 4))
    finishing = draw(st.none() | panel_shapes(schedule.grid.nt))  # any panels: waits must be right for any division
    return PlanningProblem(schedule, policy, capacity, prefetch, draw(st.sampled_from([8, 4, None])), finishing)
