"""The order in which triangular solves with L take its tiles."""

from __future__ import annotations

from typing import final

from ooc_chol.tasks.tiling import TileGrid, TileIndex


@final
class TriangularScheduler:
    """Tiles of L, or of its trailing triangle from a tile row on, each once.

    ``L y = x`` goes through them as they are stored, row by row: tile (i, j) takes ``y[j]``, final behind tile (j, j), out of
    row i, and tile (i, i) ends that row. ``L.T y = x`` goes the opposite way: tile (i, i) ends row i, and the tiles left of it
    take ``y[i]`` out of the rows above. Both read a file of L from one end to the other.
    """

    name = "triangular"

    def schedule(self, grid: TileGrid, *, first: int = 0, transposed: bool = False) -> list[TileIndex]:
        """Order the tiles of the triangle that begins with tile row ``first``."""
        order = list(grid.tiles(first))
        return order[::-1] if transposed else order
