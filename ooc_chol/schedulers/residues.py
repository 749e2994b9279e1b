"""The left-looking order through residues: whole rows of a panel, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from ooc_chol.schedulers.schedule import AbstractScheduler, Schedule
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import Index, TileGrid
from ooc_chol.tasks.windows import Window, whole_triangle


class Job(NamedTuple):
    """Tile row ``row`` in panel number ``panel``: its long products, and then what makes its tiles final."""

    panel: int
    row: int


@final
class ResidueScheduler(AbstractScheduler[Job]):
    """A device's rows of each panel: the panel's own, then the next panel's, then the rest in snake order."""

    name = "residues"

    def schedule(
        self,
        grid: TileGrid,
        owners: Sequence[int],
        panels: Sequence[Panel],
        given: frozenset[Index] = frozenset(),
        window: Window | None = None,
    ) -> Schedule[Job]:
        """Order all rows; of a panel of which a tile of a row is given, all are."""
        made = window or whole_triangle(grid.nt)
        jobs: list[list[Job]] = [[] for _ in range(max(owners) + 1)]
        for number, panel in enumerate(panels):
            k1 = panel.k0 + panel.width
            following = panels[number + 1].width if number + 1 < len(panels) else 0
            for device, mine in enumerate(jobs):
                mine_here = [m for m in made.rows_from(panel.k0) if owners[m] == device]
                near, rest = [m for m in mine_here if m < k1 + following], [m for m in mine_here if m >= k1 + following]
                rows = [*near, *(rest[::-1] if number % 2 else rest)]
                mine += [Job(number, m) for m in rows if (m, panel.k0) not in given]
        return Schedule(grid, tuple(map(tuple, jobs)))
