"""Residency: what is told to a sink keeps every rule, under every policy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.errors import ScheduleError
from tests.inside.dense import (
    POLICIES,
    AbstractResidencySink,
    FetchCounter,
    Lru,
    NextUse,
    ResidencyPlanner,
    TooManyFetchesError,
    next_uses,
    policy_named,
)
from tests.inside.schedulers import NEVER
from tests.inside.tasks import Index, Panel, Task, TaskKind, uniform_panels
from tests.plan.problems import eviction_of, fetches, make_schedule, planning_problems, schedules

PLANNED = POLICIES["planned"]


class RuleBook(AbstractResidencySink):
    """Checks every move against the rules of one device."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.versions: dict[Index, int] = {}  # on the device
        self.stored: dict[Index, int] = {}  # newest value of own tiles in the store
        self.tasks: list[Task] = []

    def fetch(self, index: Index, version: int) -> None:
        assert index not in self.versions
        assert version == self.stored.get(index, version), "an old value is fetched"
        self.versions[index] = version
        assert len(self.versions) <= self.capacity

    def compute(self, task: Task) -> None:
        assert self.versions[task.output] == task.k
        assert all(self.versions[i, j] == j + 1 for i, j in task.reads)
        self.versions[task.output] = task.k + 1
        self.tasks.append(task)

    def write(self, index: Index, version: int) -> None:
        assert self.versions[index] == version
        assert version > self.stored.get(index, 0), "a value is written twice"
        self.stored[index] = version

    def evict(self, index: Index) -> None:
        version = self.versions.pop(index)
        changed = any(task.output == index for task in self.tasks)
        assert not changed or self.stored[index] == version, "a changed tile is dropped before it is written"


@given(planning_problems())
def test_every_move_keeps_the_rules_and_the_device_ends_empty(problem):
    for tasks in problem.schedule.tasks:
        book = RuleBook(problem.capacity)
        ResidencyPlanner(tasks, problem.capacity, problem.policy, eviction_of(problem.policy)).run(book)
        assert book.tasks == list(tasks)
        assert not book.versions
        assert book.stored == {task.output: task.k + 1 for task in tasks if task.kind in (TaskKind.POTRF, TaskKind.TRSM)}


@given(planning_problems())
def test_accumulators_stay_until_they_are_final_when_the_policy_says_so(problem):
    class Accumulators(FetchCounter):
        def fetch(self, index: Index, version: int) -> None:
            assert version in (0, index[1] + 1)

    if problem.policy.keeps_accumulator:
        for tasks in problem.schedule.tasks:
            ResidencyPlanner(tasks, problem.capacity, problem.policy, eviction_of(problem.policy)).run(Accumulators())


@given(schedule=schedules(most_rows=7), eviction=st.sampled_from([NextUse(), Lru()]))
def test_with_room_for_all_each_tile_is_fetched_once(schedule, eviction):
    once = sum(len({tile for task in tasks for tile in (task.output, *task.reads)}) for tasks in schedule.tasks)
    assert fetches(schedule, schedule.grid.n_tiles, PLANNED, eviction) == once


@given(schedule=schedules(most_rows=7), capacity=st.integers(3, 30))
def test_more_memory_never_means_more_fetches(schedule, capacity):
    fewer, more = (fetches(schedule, size, PLANNED, NextUse()) for size in (capacity, capacity + 1))
    assert fewer is None or (more is not None and more <= fewer)


def test_three_tiles_are_enough_for_plain_columns_and_two_are_not():
    schedule = make_schedule(6, uniform_panels(6, 1, 1))
    assert fetches(schedule, 3, PLANNED, NextUse()) is not None
    with pytest.raises(ScheduleError, match="2 tiles are too few for these panels; give more memory or a smaller tile_size"):
        ResidencyPlanner(schedule.tasks[0], 2, PLANNED, NextUse()).run(FetchCounter())


def test_panels_that_need_more_than_there_is_are_refused():
    schedule = make_schedule(6, (Panel(0, 3, 1), Panel(3, 3, 2)))
    with pytest.raises(ScheduleError, match="4 tiles are too few"):
        ResidencyPlanner(schedule.tasks[0], 4, PLANNED, NextUse()).run(FetchCounter())


def test_a_count_ends_at_its_limit():
    schedule = make_schedule(8, uniform_panels(8, 1, 1))
    total = fetches(schedule, 10, PLANNED, NextUse())
    counter = FetchCounter(total)
    ResidencyPlanner(schedule.tasks[0], 10, PLANNED, NextUse()).run(counter)
    assert counter.fetches == total
    with pytest.raises(TooManyFetchesError):
        ResidencyPlanner(schedule.tasks[0], 10, PLANNED, NextUse()).run(FetchCounter(total - 1))


@given(schedules(most_devices=1))
def test_next_uses_name_the_next_task_that_reads_the_tile(schedule):
    tasks = schedule.tasks[0]
    found = next_uses([task.output for task in tasks], [task.reads for task in tasks])
    for position, task in enumerate(tasks):
        for tile, use in zip((task.output, *task.reads), found[position], strict=True):
            later = [at for at, other in enumerate(tasks) if at > position and tile in other.reads]
            assert use == (later[0] if later else NEVER)


def test_an_unknown_policy_is_answered_with_those_there_are():
    with pytest.raises(ValueError, match=r"there is no policy 'eager'; there are .*'sync'.*'planned'"):
        policy_named("eager")
    assert all(policy_named(name).name == name for name in POLICIES)
