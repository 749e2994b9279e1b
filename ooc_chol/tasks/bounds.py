"""Lower bounds on data movement, printed beside every plan."""

from __future__ import annotations

import math
from collections.abc import Callable

from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.tasks.tiling import TileGrid


def compulsory_bytes(grid: TileGrid, itemsize: int) -> int:
    """Bytes of every tile of the lower triangle once: what must be read of A, and again what must be written of L.

    Diagonal tiles count as the whole squares in which they are stored.
    """
    return itemsize * sum(grid.entries(i, j) for i, j in grid.tiles())


def tile_bytes_of(grid: TileGrid, fmt: PrecisionFormat = FP64) -> Callable[[tuple[int, int]], int]:
    """Bytes of a tile ``(i, j)`` in one format."""
    return lambda index: fmt.itemsize * grid.entries(*index)


def beaumont_bytes(n: int, capacity_bytes: float, itemsize: int) -> float:
    """``n³ / (3 √2 √S)`` entries, the least that any order of tasks must load when S entries fit on the device.

    Beaumont, Eyraud-Dubois, Vérité, Langou, *I/O-optimal algorithms for symmetric linear algebra kernels*, SPAA 2022.
    """
    entries = capacity_bytes / itemsize
    return itemsize * n**3 / (3 * math.sqrt(2) * math.sqrt(entries))
