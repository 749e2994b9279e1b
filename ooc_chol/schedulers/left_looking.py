"""The left-looking order by panels and row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from ooc_chol.schedulers.schedule import AbstractScheduler, Schedule
from ooc_chol.tasks.cholesky import Task, finish, update
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import Index, TileGrid
from ooc_chol.tasks.windows import Window, whole_triangle


@final
class LeftLookingScheduler(AbstractScheduler[Task]):
    """Each panel receives all updates from the columns before it, then is finished column by column.

    Order inside a panel: its own rows, then the next panel's rows (they may stay on the device until they are needed), then the
    rest, upwards in every other panel (snake), so that the rows used last are used first by the next panel. Several devices run
    the same order restricted to their rows.
    """

    name = "left-looking"

    def schedule(
        self,
        grid: TileGrid,
        owners: Sequence[int],
        panels: Sequence[Panel],
        given: frozenset[Index] = frozenset(),
        window: Window | None = None,
    ) -> Schedule[Task]:
        """Order every task; see :class:`AbstractScheduler`."""
        made = window or whole_triangle(grid.nt)
        n_devices = max(owners) + 1
        tasks: list[list[Task]] = [[] for _ in range(n_devices)]
        for number, panel in enumerate(panels):
            for device in range(n_devices):
                for group in _row_groups(made, owners, device, panel, snake=number % 2 == 1):
                    tasks[device].extend(_group_tasks(group, panel))
        if given and window is None:
            tasks = [[task for task in one if task.output not in given] for one in tasks]
        return Schedule(grid, tuple(map(tuple, tasks)))


def _row_groups(made: Window, owners: Sequence[int], device: int, panel: Panel, *, snake: bool) -> list[list[int]]:
    """The device's rows of ``panel`` in groups: the panel's own rows, then the following ones in snake order."""
    k1 = panel.k0 + panel.width
    rows = [m for m in made.rows_from(panel.k0) if owners[m] == device]
    own, rest = [m for m in rows if m < k1], [m for m in rows if m >= k1]
    groups = [rest[at : at + panel.height] for at in range(0, len(rest), panel.height)]
    if snake:
        groups[1:] = groups[:0:-1]
    return [own, *groups] if own else groups


def _group_tasks(rows: Sequence[int], panel: Panel) -> Iterator[Task]:
    """Tasks of one row group: the long sweep over k, then the columns of the panel one after the other."""
    k0, k1 = panel.k0, panel.k0 + panel.width
    for k in range(k0):
        for m in rows:
            for c in range(k0, min(m + 1, k1)):
                yield update(m, c, k)  # A[m, c] -= L[m, k] @ L[c, k].T
    for c in range(k0, k1):
        below = [m for m in rows if m >= c]
        for j in range(k0, c):
            for m in below:
                yield update(m, c, j)
        for m in below:
            yield finish(m, c)  # POTRF when m == c, else TRSM with L[c, c]
