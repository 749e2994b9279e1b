"""The simulator: it times a plan as streams would, and finds each plan that cannot run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.errors import ScheduleError
from tests.inside.dense import POLICIES, Program, Rates, simulate
from tests.inside.tasks import Fold, Gemm, Place, Pool, StepKind, StreamKind, TileGrid, uniform_panels
from tests.plan.problems import (
    PlanningProblem,
    changed,
    make_schedule,
    on_other_places,
    planning_problems,
    task_of,
    with_steps,
)
from tests.plan.rates import UNIT_RATES

GRID = TileGrid(24, 4)


def two_devices(policy: str = "planned") -> tuple[Program, ...]:
    """Six tile rows on two devices, out of core."""
    return PlanningProblem(make_schedule(6, uniform_panels(6, 2, 1), (0, 1, 1, 0, 0, 1)), POLICIES[policy], 7, 1).programs()


def first(program: Program, kind: StepKind, *, after: int = 0, needs_store: bool = False) -> int:
    """Position of the first step of one kind, from step ``after`` on."""
    steps = enumerate(program.steps)
    return next(at for at, step in steps if at >= after and step.kind is kind and step.needs_store >= needs_store)


def run(*programs: Program) -> None:
    simulate(programs, GRID, None)


# times


def test_times_alone_are_those_of_a_run_that_is_checked():
    one, two = two_devices()
    wrong = on_other_places(one, 0, place=tile_slot(8))
    assert simulate((wrong, two), GRID, UNIT_RATES, checks_slots=False) == simulate((one, two), GRID, UNIT_RATES)
    with pytest.raises(ScheduleError, match="enqueued after it"):
        simulate((changed(one, 1, waits=(2,)), two), GRID, UNIT_RATES, checks_slots=False)


@given(planning_problems())
def test_steps_start_after_what_they_wait_for_and_one_at_a_time_on_a_stream(problem):
    programs = problem.programs()
    timeline = simulate(programs, problem.schedule.grid, UNIT_RATES)
    written = {}
    for program, ends in zip(programs, timeline.ends, strict=True):
        written |= {step.block: end for step, end in zip(program.steps, ends, strict=True) if step.kind is StepKind.WRITE}
    for program, starts, ends in zip(programs, timeline.starts, timeline.ends, strict=True):
        free = {}
        for step, start, end in zip(program.steps, starts, ends, strict=True):
            before = [free.get(step.stream, 0.0), *(ends[earlier] for earlier in step.waits)]
            if step.needs_store:
                before.append(written[step.block])
            assert start == max(before)
            alone = start + UNIT_RATES.seconds(step, problem.schedule.grid)
            may_be_slowed = step.stream is StreamKind.COMPUTE and StreamKind.FINISH in program.streams
            assert end >= alone - 1e-9 if may_be_slowed else end == pytest.approx(alone)
            free[step.stream] = end
    assert timeline.seconds == max(max(ends, default=0.0) for ends in timeline.ends)


@given(planning_problems(most_devices=1))
def test_without_overlap_the_time_is_the_sum_of_all_steps(problem):
    program = PlanningProblem(problem.schedule, POLICIES["sync"], 3, 0, problem.source_itemsize).programs()[0]
    total = sum(UNIT_RATES.seconds(step, problem.schedule.grid) for step in program.steps)
    assert simulate([program], problem.schedule.grid, UNIT_RATES).seconds == pytest.approx(total)


@given(planning_problems())
def test_without_rates_everything_takes_no_time(problem):
    timeline = simulate(problem.programs(), problem.schedule.grid, None)
    assert timeline.seconds == 0.0
    assert [len(ends) for ends in timeline.ends] == [len(program.steps) for program in problem.programs()]


def test_two_tile_rows_by_hand():
    # fetch 00 | POTRF 00 | write 00, fetch 10 | TRSM 10 | write 10, fetch 11 | SYRK 11 | POTRF 11 | write 11
    program = PlanningProblem(make_schedule(2, uniform_panels(2, 1, 1)), POLICIES["planned"], 3, 0).programs()[0]
    timeline = simulate([program], TileGrid(8, 4), UNIT_RATES)
    times = {
        step.label: (start, end) for step, start, end in zip(program.steps, timeline.starts[0], timeline.ends[0], strict=True)
    }
    expected = {
        "fetch (0, 0)": (0, 1),
        "POTRF (0, 0)": (1, 2),
        "write (0, 0)": (2, 3),
        "fetch (1, 0)": (1, 2),  # behind the POTRF
        "TRSM (1, 0)": (2, 3),
        "write (1, 0)": (3, 4),
        "fetch (1, 1)": (2, 3),
        "SYRK (1, 1) k=0": (3, 4),
        "POTRF (1, 1)": (4, 5),
        "write (1, 1)": (5, 6),
    }
    assert times == {label: pytest.approx(when) for label, when in expected.items()}


def test_a_finish_stream_beside_the_sweeps_by_hand():
    # Two columns, one panel: TRSM 10, then SYRK 11 by the column just before and POTRF 11 are the finish stream's.
    panels = uniform_panels(2, 2, 1)
    program = PlanningProblem(make_schedule(2, panels), POLICIES["planned"], 3, 0, finishing=panels).programs()[0]
    assert all(step.stream is StreamKind.FINISH for step in program.steps if task_of(step) is not None)
    timeline = simulate([program], TileGrid(8, 4), UNIT_RATES)
    steps = zip(program.steps, timeline.starts[0], timeline.ends[0], strict=True)
    finished = [(start, end) for step, start, end in steps if task_of(step) is not None]
    assert finished == [pytest.approx(when) for when in [(1, 2), (2, 3), (3, 4), (4, 5)]]


def test_kernels_share_the_processors():
    # POTRF leaves 107/128 of the processors to the sweep beside it, so that the pair ends before a single stream would.
    panels, planned = uniform_panels(6, 2, 1), POLICIES["planned"]
    one = PlanningProblem(make_schedule(6, panels), planned, 21, 4, None).programs()
    two = PlanningProblem(make_schedule(6, panels), planned, 21, 4, None, panels).programs()
    grid = TileGrid(24, 4)
    kernels, shares = [step for step in two[0].steps if task_of(step) is not None], UNIT_RATES.shares()
    busy = sum(shares[type(step.operation)] * UNIT_RATES.seconds(step, grid) for step in kernels)
    assert busy < simulate(two, grid, UNIT_RATES).seconds < simulate(one, grid, UNIT_RATES).seconds


def test_rates_must_be_measured():
    with pytest.raises(ValueError, match=r"rate gemm is 0, but a measured rate is more than zero"):
        Rates(**{**vars(UNIT_RATES), "gemm": 0})


# plans that cannot run


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_whole_plan_passes(policy):
    run(*two_devices(policy))


def tile_slot(slot: int) -> Place:
    return Place(Pool.TILE, slot)


def test_overlapping_slots_are_found():
    one, two = two_devices()
    second = first(one, StepKind.FETCH, after=first(one, StepKind.FETCH) + 1)
    with pytest.raises(ScheduleError, match=r"fetch .*: slot \d+ of TILE is not free, it holds L"):
        run(on_other_places(changed(one, second, drops=()), second, place=one.steps[0].operation.place), two)


@pytest.mark.parametrize("slot", [-1, 8])
def test_a_slot_that_does_not_exist_is_found(slot):
    one, two = two_devices()
    with pytest.raises(ScheduleError, match=rf"fetch \(0, 0\): there is no slot {slot} of TILE"):
        run(on_other_places(one, 0, place=tile_slot(slot)), two)


def test_a_missing_fetch_is_found():
    one, two = two_devices()
    with pytest.raises(ScheduleError, match=r"POTRF \(0, 0\): slot 0 of TILE is empty, not L\(0, 0\)v0"):
        run(with_steps(one, one.steps[1:]), two)


def test_an_operand_in_another_slot_is_found():
    one, two = two_devices()
    at = next(at for at, step in enumerate(one.steps) if isinstance(step.operation, Gemm))
    work = one.steps[at].operation
    with pytest.raises(ScheduleError, match=r"GEMM .*: slot \d+ of TILE holds L.*, not L"):
        run(on_other_places(one, at, left=work.right, right=work.left), two)


def test_a_wrong_version_is_found():
    one, two = two_devices()
    potrf, write = first(one, StepKind.COMPUTE), first(one, StepKind.WRITE)
    with pytest.raises(ScheduleError, match=r"slot 0 of TILE holds L\(0, 0\)v0, not L\(0, 0\)v1"):
        run(changed(one, potrf, block=one.steps[potrf].block._replace(version=2)), two)
    with pytest.raises(ScheduleError, match=r"write \(0, 0\): slot 0 of TILE holds L\(0, 0\)v1, not L\(0, 0\)v2"):
        run(changed(one, write, block=one.steps[write].block._replace(version=2)), two)


def test_giving_up_what_is_not_there_is_found():
    one, two = two_devices()
    with pytest.raises(ScheduleError, match=r"POTRF \(0, 0\): slot 3 of TILE is to be given up, but holds nothing"):
        run(changed(one, 1, drops=(tile_slot(3),)), two)


def test_an_eviction_too_early_is_found():
    one, two = two_devices()
    with pytest.raises(ScheduleError, match=r"POTRF \(0, 0\): slot 0 of TILE is empty"):
        run(changed(one, 1, drops=(tile_slot(0),)), two)


def test_an_eviction_before_the_write_is_found():
    one, two = two_devices()
    write = first(one, StepKind.WRITE)
    with pytest.raises(ScheduleError, match=r"write .*: slot 0 of TILE is to be given up, but L\(0, 0\)v1 is not in the store"):
        run(changed(one, write, drops=(tile_slot(0),)), two)


def test_a_step_for_which_the_memory_has_no_place_is_found():
    one, two = two_devices()
    with pytest.raises(ScheduleError, match=r"the device's memory has no place for residues"):
        run(changed(one, 1, operation=Fold(0, 0, 1)), two)


@pytest.mark.parametrize("ahead", [0, 5])
def test_a_wait_on_a_later_step_is_found(ahead):
    one, two = two_devices()
    with pytest.raises(ScheduleError, match=rf"POTRF \(0, 0\) waits on step {1 + ahead}, which is enqueued after it"):
        run(changed(one, 1, waits=(0, 1 + ahead)), two)


def test_devices_that_wait_on_each_other_are_found():
    one, two = two_devices()
    foreign = first(one, StepKind.FETCH, needs_store=True)
    # Device 0 asks for its first tile from device 1 before it writes the one that device 1 waits for.
    steps = list(one.steps)
    work = steps[foreign].operation._replace(place=tile_slot(one.layout.n_slots - 1))
    steps.insert(first(one, StepKind.WRITE), steps.pop(foreign)._replace(operation=work, waits=(), drops=()))
    with pytest.raises(
        ScheduleError, match=r"the plan blocks: device \d waits at step \d+ \(.*\) for L.*, which is never written"
    ):
        run(with_steps(one, [step._replace(waits=()) for step in steps]), two)


def test_a_value_that_another_device_never_writes_is_found():
    one, two = two_devices()
    with pytest.raises(ScheduleError, match=r"the plan blocks: device 0 waits at step \d+ \(fetch .*\) for L"):
        run(one, with_steps(two, ()))


def test_an_unwritten_tile_is_found():
    one, two = two_devices()
    last = len(two.steps) - 1
    assert two.steps[last].kind is StepKind.WRITE
    with pytest.raises(ScheduleError, match=r"tile \(5, 5\) of L is never written to the store"):
        run(one, with_steps(two, two.steps[:last]))


@given(data=st.data(), problem=planning_problems())
def test_any_dropped_step_is_found(data, problem):
    programs = list(problem.programs())
    device = data.draw(st.sampled_from([at for at, program in enumerate(programs) if program.steps]))
    position = data.draw(st.integers(0, len(programs[device].steps) - 1))
    steps = list(programs[device].steps)
    del steps[position]
    # Later positions move: waits are dropped, for they are not what is tested here.
    programs[device] = with_steps(programs[device], [step._replace(waits=()) for step in steps])
    with pytest.raises(ScheduleError):
        simulate(programs, problem.schedule.grid, None)
