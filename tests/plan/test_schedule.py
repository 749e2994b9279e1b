"""Every schedule holds each task once in an order that can run, and ``check_schedule`` finds every one that does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ooc_chol.errors import ScheduleError
from tests.inside.dense import ResidueLayout, TileSlots
from tests.inside.schedulers import SCHEDULERS, LeftLookingScheduler, ResidueScheduler, Schedule, TriangularScheduler
from tests.inside.tasks import Panel, Task, TaskKind, TileGrid, finish, uniform_panels, update
from tests.plan.problems import make_schedule, ownership_tables, panel_shapes, schedules
from tests.plan.schedule_checks import check_schedule


def needed_before(task: Task) -> Iterator[Task]:
    """Tasks that must be complete before ``task``: the earlier updates of its tile, and those that make its operands final."""
    if task.k > 0:
        yield update(task.i, task.j, task.k - 1)
    for i, j in task.reads:
        yield finish(i, j)


def can_run(schedule: Schedule) -> bool:
    """Whether the devices' orders and the dependencies together have no cycle: an oracle of its own."""
    graph: TopologicalSorter[Task] = TopologicalSorter()
    for tasks in schedule.tasks:
        for task in tasks:
            graph.add(task, *needed_before(task))
        for earlier, later in pairwise(tasks):
            graph.add(later, earlier)
    try:
        graph.prepare()
    except CycleError:
        return False
    return True


@given(data=st.data(), nt=st.integers(1, 12))
def test_each_task_stands_once_in_a_valid_order(data, nt):
    schedule = make_schedule(nt, data.draw(panel_shapes(nt)), data.draw(ownership_tables(nt)))
    kinds = Counter(task.kind for tasks in schedule.tasks for task in tasks)
    assert kinds[TaskKind.POTRF] == nt
    assert kinds[TaskKind.TRSM] == kinds[TaskKind.SYRK] == nt * (nt - 1) // 2
    assert kinds[TaskKind.GEMM] == nt * (nt - 1) * (nt - 2) // 6
    assert set(Counter(task for tasks in schedule.tasks for task in tasks).values()) == {1}
    assert can_run(schedule)
    check_schedule(schedule)


@given(data=st.data(), nt=st.integers(1, 9))
def test_a_device_changes_only_its_own_rows(data, nt):
    owners = data.draw(ownership_tables(nt))
    schedule = make_schedule(nt, data.draw(panel_shapes(nt)), owners)
    assert all(owners[task.i] == device for device, tasks in enumerate(schedule.tasks) for task in tasks)


@given(data=st.data(), nt=st.integers(1, 9))
def test_schedules_are_deterministic(data, nt):
    panels, owners = data.draw(panel_shapes(nt)), data.draw(ownership_tables(nt))
    assert make_schedule(nt, panels, owners) == make_schedule(nt, list(panels), list(owners))


def test_each_engine_has_its_order_in_the_register():
    assert {name: type(scheduler()) for name, scheduler in SCHEDULERS.items()} == {
        "left-looking": LeftLookingScheduler,
        "residues": ResidueScheduler,
        "triangular": TriangularScheduler,
    }
    assert {layout.scheduler for layout in (TileSlots, ResidueLayout)} <= set(SCHEDULERS)


@given(data=st.data(), nt=st.integers(1, 9))
def test_rows_through_residues_stand_once_in_each_of_their_panels(data, nt):
    panels, owners = data.draw(panel_shapes(nt)), data.draw(ownership_tables(nt))
    schedule = ResidueScheduler().schedule(TileGrid(4 * nt, 4), owners, panels)
    jobs = [(job.panel, job.row) for tasks in schedule.tasks for job in tasks]
    assert sorted(jobs) == [(number, row) for number, panel in enumerate(panels) for row in range(panel.k0, nt)]
    for device, tasks in enumerate(schedule.tasks):
        assert all(owners[job.row] == device for job in tasks)
        assert [job.panel for job in tasks] == sorted(job.panel for job in tasks)


@given(nt=st.integers(1, 9), first=st.integers(0, 9))
def test_a_solve_takes_a_tile_when_what_it_multiplies_is_final(nt, first):
    (order,) = TriangularScheduler(first).schedule(TileGrid(4 * nt, 4)).tasks
    assert len(set(order)) == len(order) and set(order) == {(i, j) for i in range(first, nt) for j in range(first, i + 1)}
    place = {tile: at for at, tile in enumerate(order)}
    assert all(place[j, j] < place[i, j] < place[i, i] for i, j in order if i > j)
    (back,) = TriangularScheduler(first, transposed=True).schedule(TileGrid(4 * nt, 4)).tasks
    assert back == order[::-1]


def test_width_one_is_the_left_looking_order():
    # Column k receives all updates from the columns before it, then POTRF, then TRSM: nothing of column k + 1 comes earlier.
    tasks = make_schedule(6, uniform_panels(6, 1, 1)).tasks[0]
    assert [task.j for task in tasks] == sorted(task.j for task in tasks)


# what check_schedule finds


def with_tasks(schedule: Schedule, device: int, tasks: list[Task]) -> Schedule:
    changed = list(schedule.tasks)
    changed[device] = tuple(tasks)
    return Schedule(schedule.grid, tuple(changed))


def draw_position(data: st.DataObject, schedule: Schedule) -> tuple[int, int]:
    device = data.draw(st.sampled_from([at for at, tasks in enumerate(schedule.tasks) if tasks]), label="device")
    return device, data.draw(st.integers(0, len(schedule.tasks[device]) - 1), label="position")


@given(data=st.data(), schedule=schedules())
def test_a_dropped_task_is_found(data, schedule):
    device, position = draw_position(data, schedule)
    tasks = list(schedule.tasks[device])
    del tasks[position]
    with pytest.raises(ScheduleError):
        check_schedule(with_tasks(schedule, device, tasks))


@given(data=st.data(), schedule=schedules())
def test_a_doubled_task_is_found(data, schedule):
    device, position = draw_position(data, schedule)
    tasks = list(schedule.tasks[device])
    tasks.insert(data.draw(st.integers(0, len(tasks)), label="where"), tasks[position])
    with pytest.raises(ScheduleError):
        check_schedule(with_tasks(schedule, device, tasks))


@given(data=st.data(), schedule=schedules())
def test_two_swapped_tasks_are_found_exactly_when_the_order_cannot_run(data, schedule):
    device, first = draw_position(data, schedule)
    tasks = list(schedule.tasks[device])
    second = data.draw(st.integers(0, len(tasks) - 1), label="second")
    tasks[first], tasks[second] = tasks[second], tasks[first]
    swapped = with_tasks(schedule, device, tasks)
    if can_run(swapped):
        check_schedule(swapped)
    else:
        with pytest.raises(ScheduleError):
            check_schedule(swapped)


@given(data=st.data(), schedule=schedules())
def test_a_task_moved_to_another_device_is_found(data, schedule):
    device, position = draw_position(data, schedule)
    task = schedule.tasks[device][position]
    assume(task.i > 0)  # row 0 is a single task: on another device it is still changed by one device only
    rest = [other for other in schedule.tasks[device] if other != task]
    tasks = (*schedule.tasks[:device], tuple(rest), *schedule.tasks[device + 1 :], (task,))
    with pytest.raises(ScheduleError, match=rf"row {task.i} belongs to device"):
        check_schedule(Schedule(schedule.grid, tasks))


@given(data=st.data(), schedule=schedules())
def test_a_task_of_another_factorization_is_found(data, schedule):
    device, position = draw_position(data, schedule)
    tasks = list(schedule.tasks[device])
    tasks[position] = tasks[position]._replace(k=tasks[position].k + 1)
    with pytest.raises(ScheduleError):
        check_schedule(with_tasks(schedule, device, tasks))


def test_errors_say_which_task_and_why():
    schedule = make_schedule(3, (Panel(0, 1, 1), Panel(1, 2, 1)), (0, 1, 0))
    first, second = schedule.tasks
    with pytest.raises(ScheduleError, match=r"device 0 waits for ever before TRSM \(2, 0\), a tile that it reads is never final"):
        check_schedule(Schedule(schedule.grid, (first[1:], second)))
    with pytest.raises(ScheduleError, match=r"POTRF \(0, 0\) changes a tile that is final already"):
        check_schedule(Schedule(schedule.grid, ((first[0], *first), second)))
    with pytest.raises(ScheduleError, match=r"POTRF \(2, 2\) stands after 1 updates of its tile"):
        check_schedule(Schedule(schedule.grid, ((*first[:-2], first[-1], first[-2]), second)))
    with pytest.raises(ScheduleError, match=r"tile \(2, 2\) is never made final"):
        check_schedule(Schedule(schedule.grid, (first[:-1], second)))
