"""The order in which triangular solves with L take its tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ooc_chol.schedulers.schedule import AbstractScheduler, Schedule
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import Index, TileGrid, TileIndex
from ooc_chol.tasks.windows import Window


@final
class TriangularScheduler(AbstractScheduler[TileIndex]):
    """Tiles of L, or of its trailing triangle from tile row ``first`` on, each once; backwards where ``transposed``.

    ``L y = x`` goes through them as they are stored, row by row: tile (i, j) takes ``y[j]``, final behind tile (j, j), out of
    row i, and tile (i, i) ends that row. ``L.T y = x`` goes the opposite way: tile (i, i) ends row i, and the tiles left of it
    take ``y[i]`` out of the rows above. Both read a file of L from one end to the other.
    """

    name = "triangular"

    def __init__(self, first: int = 0, *, transposed: bool = False) -> None:
        self._first, self._transposed = first, transposed

    def schedule(
        self,
        grid: TileGrid,
        owners: Sequence[int] = (),
        panels: Sequence[Panel] = (),
        given: frozenset[Index] = frozenset(),
        window: Window | None = None,
    ) -> Schedule[TileIndex]:
        """Order the tiles, whoever made them in whatever panels."""
        order = tuple(grid.tiles(self._first))
        return Schedule(grid, (order[::-1] if self._transposed else order,))
