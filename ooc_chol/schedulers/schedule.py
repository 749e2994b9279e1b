"""A schedule: what each device does in order, and the checks that any schedule of tasks must pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ooc_chol.errors import ScheduleError
from ooc_chol.tasks.cholesky import Task, TaskKind
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import Index, TileGrid

#: Position of a use that never comes.
NEVER = 1 << 62


#: What is ordered: tasks on tiles, or what stands for many of them.
Work = TypeVar("Work")


@dataclass(frozen=True)
class Schedule(Generic[Work]):
    """Ordered work per device."""

    grid: TileGrid
    tasks: tuple[tuple[Work, ...], ...]  #: Work of each device in order


class AbstractScheduler(ABC, Generic[Work]):
    """Turns a grid, an ownership table and panel shapes into a schedule; deterministic."""

    name: str

    @abstractmethod
    def schedule(
        self, grid: TileGrid, owners: Sequence[int], panels: Sequence[Panel], given: frozenset[Index] = frozenset()
    ) -> Schedule[Work]:
        """Order all work but that on ``given`` tiles, so that every device may run its list in order.

        A device changes tiles of its own rows only, those of which ``owners`` is its number; ``panels`` cover all tile columns.
        """


def count_tasks(schedule: Schedule[Task], kind: TaskKind) -> int:
    """Number of tasks of one kind over all devices."""
    return sum(task.kind is kind for tasks in schedule.tasks for task in tasks)


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
