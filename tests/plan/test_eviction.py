"""Eviction policies: next use fetches least, whatever the schedule."""

from __future__ import annotations

from collections import OrderedDict
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.builders import tile_program
from tests.inside.dense import EVICTION_POLICIES, POLICIES, Lru, NextUse, ResidencyPlanner
from tests.inside.schedulers import NEVER, Schedule
from tests.inside.tasks import Task, TaskKind, uniform_panels, varying_panels
from tests.plan.problems import fetches, make_schedule, schedules

PLANNED = POLICIES["planned"]
#: Tile rows and capacities of the golden schedules, from a tenth of the triangle to two thirds. All tiles are whole: for tiles of
#: unequal size the fewest fetches need not be the fewest bytes.
GOLDEN = [(8, 5), (8, 12), (8, 24), (14, 10), (14, 35), (14, 60), (24, 30), (24, 80), (24, 160)]


def golden_schedules(nt: int, capacity: int) -> list[Schedule[Task]]:
    """The orders that a planner with this memory may choose."""
    shapes = [uniform_panels(nt, 1, 1), uniform_panels(nt, 2, 1), varying_panels(nt, capacity)]
    return [make_schedule(nt, panels) for panels in shapes]


def loaded_bytes(schedule: Schedule[Task], capacity: int, policy: NextUse | Lru) -> int:
    """Bytes that the program of the only device loads."""
    builder = tile_program(schedule.grid, capacity)
    ResidencyPlanner(schedule.tasks[0], capacity, PLANNED, policy).run(builder)
    source, fetch, *_ = builder.build().link_bytes
    return source + fetch


def test_the_register_names_each_policy():
    assert {name: type(policy) for name, policy in EVICTION_POLICIES.items()} == {"next-use": NextUse, "lru": Lru}
    assert all(policy.name == name for name, policy in EVICTION_POLICIES.items())


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(100, 199) | st.just(NEVER)), min_size=1, max_size=9, unique=True))
def test_the_largest_rank_is_the_farthest_next_use_or_the_oldest_last_use(blocks):
    assert max(blocks, key=lambda block: NextUse().rank(*block))[1] == max(next_use for _, next_use in blocks)
    assert max(blocks, key=lambda block: Lru().rank(*block))[0] == min(last_use for last_use, _ in blocks)


@pytest.mark.parametrize(("nt", "capacity"), GOLDEN)
def test_next_use_never_moves_more_bytes_than_lru_on_the_golden_schedules(nt, capacity):
    for schedule in golden_schedules(nt, capacity):
        assert loaded_bytes(schedule, capacity, NextUse()) <= loaded_bytes(schedule, capacity, Lru())


def test_next_use_moves_clearly_fewer_bytes_where_it_matters():
    schedule = make_schedule(14, uniform_panels(14, 1, 1))
    assert loaded_bytes(schedule, 35, NextUse()) < 0.7 * loaded_bytes(schedule, 35, Lru())


@given(schedule=schedules(most_rows=8), capacity=st.integers(3, 40))
def test_next_use_never_fetches_more_tiles_than_lru(schedule, capacity):
    by_next_use = fetches(schedule, capacity, PLANNED, NextUse())
    by_age = fetches(schedule, capacity, PLANNED, Lru())
    assert (by_next_use is None) == (by_age is None)  # what fits does not depend on who leaves
    assert by_next_use is None or by_next_use <= by_age


def fetches_of_the_least_recently_used(tasks: tuple[Task, ...], capacity: int) -> int:
    """Fetches when the final tile that was used longest ago leaves, told with an ordered dictionary."""
    cached: OrderedDict[tuple[int, int], None] = OrderedDict()  # oldest use first
    accumulators: set[tuple[int, int]] = set()
    loads = 0
    for task in tasks:
        for tile in (task.output, *task.reads):
            if tile not in cached and tile not in accumulators:
                loads += 1
                if len(cached) + len(accumulators) == capacity:
                    del cached[next(old for old in cached if old not in task.reads)]
                if tile == task.output:
                    accumulators.add(tile)
            if tile != task.output:
                cached[tile] = None
                cached.move_to_end(tile)
        if task.kind in (TaskKind.POTRF, TaskKind.TRSM):
            accumulators.discard(task.output)
            cached[task.output] = None
    return loads


@given(schedule=schedules(most_rows=8, most_devices=1), capacity=st.integers(3, 25))
def test_lru_evicts_the_tile_that_was_used_longest_ago(schedule, capacity):
    counted = fetches(schedule, capacity, PLANNED, Lru())
    assume(counted is not None)
    assert counted == fetches_of_the_least_recently_used(schedule.tasks[0], capacity)


def fewest_fetches(tasks: tuple[Task, ...], capacity: int) -> int:
    """Least fetches over every choice of what to evict: all sets of cached tiles that can be reached, task by task."""
    costs: dict[frozenset[tuple[int, int]], int] = {frozenset(): 0}
    accumulators: set[tuple[int, int]] = set()
    loads = 0
    for task in tasks:
        loads += task.output not in accumulators
        accumulators.add(task.output)
        costs = _after_placing(costs, frozenset(task.reads), capacity - len(accumulators))
        if task.kind in (TaskKind.POTRF, TaskKind.TRSM):
            accumulators.discard(task.output)
            costs = {cached | {task.output}: cost for cached, cost in costs.items()}
    return loads + min(costs.values())


def _after_placing(
    costs: dict[frozenset[tuple[int, int]], int], reads: frozenset[tuple[int, int]], room: int
) -> dict[frozenset[tuple[int, int]], int]:
    """Cheapest way to each set of cached tiles that holds ``reads`` and fits ``room``; none larger need be dropped."""
    after: dict[frozenset[tuple[int, int]], int] = {}
    for cached, cost in costs.items():
        others = sorted(cached - reads)
        kept = min(len(others), room - len(reads))
        for stay in combinations(others, kept):
            held = reads | frozenset(stay)
            after[held] = min(cost + len(reads - cached), after.get(held, cost + len(reads - cached)))
    return after


@pytest.mark.parametrize("capacity", [3, 4, 5, 6])
@pytest.mark.parametrize("width", [1, 2])
def test_next_use_fetches_as_few_tiles_as_any_policy_could(width, capacity):
    schedule = make_schedule(5, uniform_panels(5, width, 1))
    if width == 2 and capacity < 5:
        assert fetches(schedule, capacity, PLANNED, NextUse()) is None
    else:
        assert fetches(schedule, capacity, PLANNED, NextUse()) == fewest_fetches(schedule.tasks[0], capacity)
