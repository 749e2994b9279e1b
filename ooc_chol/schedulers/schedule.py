"""A schedule: what each device does in order, and the class whose subclasses make one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import Index, TileGrid
from ooc_chol.tasks.windows import Window

#: Position of a use that never comes.
NEVER = 1 << 62


#: What is ordered: tasks on tiles, or what stands for many of them.
Work = TypeVar("Work")


@dataclass(frozen=True)
class Schedule(Generic[Work]):
    """Tasks of each device, in order."""

    grid: TileGrid
    tasks: tuple[tuple[Work, ...], ...]  #: Work of each device in order


class AbstractScheduler(ABC, Generic[Work]):
    """Turns a grid, an ownership table and panel shapes into a schedule; deterministic."""

    name: str

    @abstractmethod
    def schedule(
        self,
        grid: TileGrid,
        owners: Sequence[int],
        panels: Sequence[Panel],
        given: frozenset[Index] = frozenset(),
        window: Window | None = None,
    ) -> Schedule[Work]:
        """Order all work but that on ``given`` tiles, so that every device may run its list in order.

        A device changes tiles of its own rows only, those of which ``owners`` is its number; ``panels`` cover all tile columns,
        or those of ``window``, whose tiles are then all that is made: none of them is given.
        """
