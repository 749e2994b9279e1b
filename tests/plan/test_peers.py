"""Copies from device to device: planned where they may be, in an order that cannot block, and waited for on both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ooc_chol.errors import ScheduleError
from tests.inside.dense import POLICIES, simulate, waits_of, with_pulls
from tests.inside.tasks import Link, Place, Pool, Pull, StepKind, StreamKind, step_key, tile_bytes_of, uniform_panels
from tests.plan.problems import PlanningProblem, make_schedule, planning_problems


def problem_of(owners: tuple[int, ...], width: int, capacity: int) -> PlanningProblem:
    """A factorization of ``len(owners)`` tile rows."""
    return PlanningProblem(
        make_schedule(len(owners), uniform_panels(len(owners), width, 1), owners), POLICIES["planned"], capacity, 2
    )


@st.composite
def shared_problems(draw: st.DrawFn) -> PlanningProblem:
    """Two to four devices, rows dealt in any way, little memory or much."""
    nt = draw(st.integers(3, 9))
    devices = draw(st.integers(2, 4))
    owners = tuple(draw(st.lists(st.integers(0, devices - 1), min_size=nt, max_size=nt)))
    assume(set(owners) == set(range(max(owners) + 1)) and max(owners) > 0)
    return problem_of(owners, draw(st.integers(1, 2)), draw(st.integers(6, 40)))


def moved_with(problem: PlanningProblem):
    """The programs before and after, by the simulator's leave."""
    before = problem.programs()
    after = with_pulls(before, None, tile_bytes_of(problem.schedule.grid))
    simulate(after, problem.schedule.grid, None)
    return before, after


@given(problem=planning_problems(most_rows=6))
def test_the_waits_of_a_program_are_those_that_its_slots_call_for(problem):
    for program in problem.programs():
        assert waits_of(program.steps) == [step.waits for step in program.steps]


@given(problem=shared_problems())
def test_only_the_way_of_tiles_changes(problem):
    before, after = moved_with(problem)
    for old, new in zip(before, after, strict=True):
        assert len(old.steps) == len(new.steps)
        for first, second in zip(old.steps, new.steps, strict=True):
            changed = second._replace(
                kind=first.kind,
                stream=first.stream,
                operation=first.operation,
                waits=first.waits,
                awaits=first.awaits,
                announced=False,
            )
            assert changed == first
            assert second.operation == first.operation or second.operation.place == first.operation.place
            assert (second.kind is first.kind) or (first.kind is StepKind.FETCH and second.kind is StepKind.PULL)
        loaded = old.link_bytes[Link.FETCH] + old.link_bytes[Link.SOURCE]
        assert sum(new.link_bytes[link] for link in (Link.FETCH, Link.SOURCE, Link.PEER)) == loaded


@given(problem=shared_problems())
def test_a_copy_awaits_what_made_its_tile_and_the_next_filling_awaits_the_copy(problem):
    _, programs = moved_with(problem)
    for device, program in enumerate(programs):
        for position, step in enumerate(program.steps):
            work = step.operation
            if not isinstance(work, Pull):
                continue
            assert work.device != device and step.stream is StreamKind.PEER and not step.needs_store
            made = step.awaits[0].coords  # behind it are copies from the slot that it fills
            maker = programs[work.device].steps[made[1]]
            assert (
                made[0] == work.device
                and maker.tile == step.tile
                and maker.operation.place == work.source
                and maker.announced
                and step.announced
            )
            fills = [
                at
                for at in range(made[1] + 1, len(programs[work.device].steps))
                if programs[work.device].steps[at].operation.place == work.source
                and programs[work.device].steps[at].kind in (StepKind.FETCH, StepKind.GENERATE, StepKind.PULL)
            ]
            if fills:
                assert step_key(device, position) in programs[work.device].steps[fills[0]].awaits


def test_with_memory_for_all_a_tile_is_fetched_by_nobody():
    before, after = moved_with(problem_of((0, 1, 2, 0, 1, 2, 0, 1), 1, 60))
    assert sum(program.link_bytes[Link.FETCH] for program in before) > 0
    assert sum(program.link_bytes[Link.FETCH] for program in after) == 0


def test_a_copy_of_what_the_other_device_does_not_hold_is_refused():
    _, programs = moved_with(problem_of((0, 1, 0, 1, 0, 1), 1, 30))
    device, position = next(
        (number, at)
        for number, program in enumerate(programs)
        for at, step in enumerate(program.steps)
        if isinstance(step.operation, Pull)
    )
    steps = list(programs[device].steps)
    work = steps[position].operation
    other, slot = work.device, work.source.slot
    far = Place(Pool.TILE, (slot + 1) % programs[other].layout.n_slots)
    steps[position] = steps[position]._replace(operation=work._replace(source=far))
    broken = [replace(program, steps=tuple(steps)) if at == device else program for at, program in enumerate(programs)]
    with pytest.raises(ScheduleError, match=rf"pull .* slot \d+ of TILE of device {other} (holds|is empty)"):
        simulate(broken, problem_of((0, 1, 0, 1, 0, 1), 1, 30).schedule.grid, None)


def test_programs_that_wait_for_what_nobody_writes_are_refused():
    problem = problem_of((0, 1, 0, 1), 1, 20)
    programs = list(problem.programs())
    programs[0] = replace(programs[0], steps=tuple(step for step in programs[0].steps if step.kind is not StepKind.WRITE))
    with pytest.raises(ScheduleError, match=r"the plan blocks: device \d waits for L"):
        with_pulls(programs, None, tile_bytes_of(problem.schedule.grid))
