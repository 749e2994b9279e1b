"""What any schedule of tasks must pass: each task stands once, in an order that can run."""

from __future__ import annotations

from ooc_chol.errors import ScheduleError
from tests.inside.schedulers import Schedule
from tests.inside.tasks import Task, TaskKind


def check_schedule(schedule: Schedule[Task]) -> None:
    """Verify that every task stands once, in an order that can run.

    Each device runs its list in order; a task may start when the tiles that it reads are final and its output has received all
    earlier updates, k ascending.
    """
    _check_owners(schedule)
    updates: dict[tuple[int, int], int] = dict.fromkeys(schedule.grid.tiles(), 0)
    position = [0] * len(schedule.tasks)
    final: set[tuple[int, int]] = set()
    moved = True
    while moved:
        moved = False
        for device, tasks in enumerate(schedule.tasks):
            while position[device] < len(tasks) and all(tile in final for tile in tasks[position[device]].reads):
                _apply(tasks[position[device]], updates, final)
                position[device] += 1
                moved = True
    for device, tasks in enumerate(schedule.tasks):
        if position[device] < len(tasks):
            raise ScheduleError(
                f"device {device} waits for ever before {tasks[position[device]]}, a tile that it reads is never final"
            )
    if len(final) != schedule.grid.n_tiles:
        missing = next(index for index in schedule.grid.tiles() if index not in final)
        raise ScheduleError(f"tile {tuple(missing)} is never made final")


def _check_owners(schedule: Schedule[Task]) -> None:
    """Each tile row is changed by one device only: another one would read updates that are never written."""
    owners: dict[int, int] = {}
    for device, tasks in enumerate(schedule.tasks):
        for task in tasks:
            if owners.setdefault(task.i, device) != device:
                raise ScheduleError(f"{task} stands on device {device}, but row {task.i} belongs to device {owners[task.i]}")


def _apply(task: Task, updates: dict[tuple[int, int], int], final: set[tuple[int, int]]) -> None:
    """Apply ``task`` to the bookkeeping, or say why it cannot stand here."""
    done = updates[task.output]
    if task.output in final:
        raise ScheduleError(f"{task} changes a tile that is final already")
    if task.k != done:
        raise ScheduleError(f"{task} stands after {done} updates of its tile; k must ascend without gaps")
    if task.kind in (TaskKind.POTRF, TaskKind.TRSM):
        final.add(task.output)
    updates[task.output] = done + 1
