"""Programs: what ``waits`` promises, slots and prefetch, and the bytes and flops that are planned."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.dense import POLICIES, Program, simulate
from tests.inside.tasks import Link, Pool, Potrf, StepKind, StreamKind, flops, uniform_panels
from tests.plan.problems import PlanningProblem, make_schedule, planning_problems, task_of, with_steps
from tests.plan.rates import UNIT_RATES
from tests.plan.replay import RaceError, Replay
from tests.products import share_of_examples

#: Where each example is a whole program.
fewer_examples = share_of_examples(0.4)

#: From a stream that hardly ever moves to one that always moves first.
EAGERNESS = st.lists(st.sampled_from([1e-6, 1e-2, 1.0, 1e3]), min_size=12, max_size=12)
SEEDS = st.integers(0, 2**32 - 1)


def small_problem(
    policy: str = "planned", *, prefetch: int = 2, capacity: int = 8, nt: int = 6, finishes: bool = False
) -> PlanningProblem:
    """Six tile rows on one device, out of core."""
    panels = uniform_panels(nt, 2, 2)
    finishing = panels if finishes else None
    return PlanningProblem(make_schedule(nt, panels), POLICIES[policy], capacity, prefetch, finishing=finishing)


def without_waits(program: Program, stream: StreamKind, other: StreamKind) -> Program:
    """``program`` whose steps on ``stream`` do not wait on ``other``."""
    steps = program.steps
    kept = [
        step._replace(waits=tuple(at for at in step.waits if step.stream is not stream or steps[at].stream is not other))
        for step in steps
    ]
    return with_steps(program, kept)


# what `waits` promises


@fewer_examples
@given(problem=planning_problems(), eagerness=EAGERNESS, seed=SEEDS)
def test_waits_are_enough_for_any_interleaving_of_the_streams(problem, eagerness, seed):
    replay = Replay(problem.programs(), problem.schedule.grid)
    replay.run(eagerness, seed)
    final = {spot[1:]: version for spot, version in replay.held.items() if spot[0] == "store"}
    assert final == {(i, j): j + 1 for i, j in problem.schedule.grid.tiles()}


@pytest.mark.parametrize("late", range(4))
@fewer_examples
@given(problem=planning_problems())
def test_waits_are_enough_when_one_stream_hardly_moves(late, problem):
    eagerness = [1e-9 if at % 4 == late else 1.0 for at in range(12)]
    Replay(problem.programs(), problem.schedule.grid).run(eagerness, 0)


@pytest.mark.parametrize(
    ("stream", "other"),
    [
        (StreamKind.COPY_IN, StreamKind.COMPUTE),  # a slot is filled again while a task still reads it
        (StreamKind.COPY_IN, StreamKind.COPY_OUT),  # ... or while it is still written to the store
        (StreamKind.COMPUTE, StreamKind.COPY_IN),  # a task reads a tile that is not there yet
        (StreamKind.COPY_OUT, StreamKind.COMPUTE),  # a tile is written before it is final
        (StreamKind.FINISH, StreamKind.COPY_IN),
        (StreamKind.FINISH, StreamKind.COMPUTE),  # a tile is finished before all its updates
        (StreamKind.COMPUTE, StreamKind.FINISH),  # ... or read before it is finished
        (StreamKind.COPY_IN, StreamKind.FINISH),
        (StreamKind.COPY_OUT, StreamKind.FINISH),
    ],
)
def test_each_kind_of_wait_is_needed(stream, other):
    finishes = StreamKind.FINISH in (stream, other)
    problem = small_problem(finishes=finishes)
    program, grid = problem.programs()[0], problem.schedule.grid
    Replay([program], grid).run([1.0, 1.0, 1e-9, 1.0], 0)
    broken = without_waits(program, stream, other)
    assert broken != program
    eagerness = [1e-9 if lane is other else 1.0 for lane in StreamKind]
    with pytest.raises(RaceError):
        Replay([broken], grid).run(eagerness, 0)


@fewer_examples
@given(planning_problems())
def test_waits_name_earlier_steps_on_other_streams_and_none_twice(problem):
    for program in problem.programs():
        last = {(stream, other): -1 for stream in StreamKind for other in StreamKind}
        for position, step in enumerate(program.steps):
            for earlier in step.waits:
                other = program.steps[earlier].stream
                assert earlier < position
                assert other is not step.stream
                assert earlier > last[step.stream, other]
                last[step.stream, other] = earlier


@fewer_examples
@given(planning_problems())
def test_without_overlap_every_step_is_on_one_stream(problem):
    for program in problem.programs():
        streams = {step.stream for step in program.steps}
        assert set(program.streams) == streams
        assert streams <= (set(StreamKind) if problem.policy.overlaps else {StreamKind.COMPUTE})
        if not problem.policy.overlaps:
            assert not any(step.waits for step in program.steps)


# slots


@fewer_examples
@given(planning_problems())
def test_the_peak_never_exceeds_the_slots(problem):
    grid = problem.schedule.grid
    for program in problem.programs():
        held, most = {}, 0
        for step in program.steps:
            for place in step.drops:
                del held[place]
            if step.kind in (StepKind.FETCH, StepKind.GENERATE):
                held[step.operation.place] = step.tile
            most = max(most, len(held))
            assert step.resident == sum(8 * grid.entries(*tile) for tile in held.values())
        assert program.peak_bytes == most * program.layout.tile_bytes
        assert most <= problem.capacity
        assert program.layout.slots(Pool.TILE) == problem.capacity + problem.prefetch


@fewer_examples
@given(planning_problems())
def test_a_slot_rests_for_as_many_evictions_as_there_are_prefetch_slots(problem):
    # A fetch into a slot must wait for what still reads it: the longer ago it was freed, the earlier the fetch may run.
    for program in problem.programs():
        freed = deque()
        for step in program.steps:
            freed.extend(step.drops)
            if step.kind in (StepKind.FETCH, StepKind.GENERATE) and (place := step.operation.place) in freed:
                assert len(freed) - 1 - freed.index(place) >= problem.prefetch
                freed.remove(place)


def test_prefetch_slots_hide_copies_behind_computation():
    seconds = [simulate(p.programs(), p.schedule.grid, UNIT_RATES).seconds for p in map(with_prefetch, range(4))]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[1] < 0.95 * seconds[0]


def with_prefetch(prefetch: int) -> PlanningProblem:
    return small_problem(prefetch=prefetch, nt=10)


# bytes and flops


@fewer_examples
@given(planning_problems())
def test_every_tile_of_a_is_loaded_once_and_every_tile_of_l_written_once(problem):
    steps = [step for program in problem.programs() for step in program.steps]
    tiles = sorted(problem.schedule.grid.tiles())
    assert sorted(step.tile for step in steps if step.version == 0) == tiles
    assert sorted(step.tile for step in steps if step.kind is StepKind.WRITE and step.version == step.tile[1] + 1) == tiles
    if problem.policy.keeps_accumulator:
        assert sum(step.kind is StepKind.WRITE for step in steps) == len(tiles)


@fewer_examples
@given(planning_problems())
def test_bytes_per_link_are_those_of_the_tiles(problem):
    grid = problem.schedule.grid
    for program in problem.programs():
        expected = [0] * len(Link)
        for step in program.steps:
            rows, cols = grid.shape(*step.tile)
            if step.kind is StepKind.FETCH and step.version == 0:
                expected[Link.SOURCE] += (problem.source_itemsize or 0) * rows * cols
            elif step.kind is StepKind.FETCH:
                expected[Link.FETCH] += 8 * rows * cols
            elif step.kind is StepKind.WRITE:
                expected[Link.WRITE] += 8 * rows * cols
        assert list(program.link_bytes) == expected
        generated = [step for step in program.steps if step.kind is StepKind.GENERATE]
        assert bool(generated) <= (problem.source_itemsize is None)


@fewer_examples
@given(planning_problems())
def test_the_tasks_of_a_program_are_those_of_its_device_in_order(problem):
    for tasks, program in zip(problem.schedule.tasks, problem.programs(), strict=True):
        assert tuple(task_of(step) for step in program.steps if step.kind is StepKind.COMPUTE) == tasks
        assert program.flops == sum(flops(task, problem.schedule.grid) for task in tasks)


@fewer_examples
@given(planning_problems(most_devices=1))
def test_sync_moves_every_operand_of_every_task(problem):
    schedule = problem.schedule
    program = PlanningProblem(schedule, POLICIES["sync"], 3, 0).programs()[0]
    entries, tasks = schedule.grid.entries, schedule.tasks[0]
    fetched = sum(entries(*tile) for task in tasks for tile in task.reads)
    fetched += sum(entries(*task.output) for task in tasks if task.k > 0)
    written = sum(entries(*task.output) for task in tasks)
    source = sum(entries(i, j) for i, j in schedule.grid.tiles())
    assert program.link_bytes == (8 * source, 8 * fetched, 8 * written, 0)


def test_steps_are_named_for_traces():
    steps = small_problem().programs()[0].steps
    labels = [step.label for step in steps]
    assert labels[:3] == ["fetch (0, 0)", "POTRF (0, 0)", "write (0, 0)"]
    assert any(label.startswith("GEMM (") and " k=" in label for label in labels)
    assert sum(isinstance(step.operation, Potrf) for step in steps) == 6
    assert [step.link for step in steps[:3]] == [Link.SOURCE, None, Link.WRITE]
