"""The tile grid of a symmetric matrix: which rows a tile has, and where it lies in packed order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

#: Tile row and tile column.
Index: TypeAlias = tuple[int, int]


class TileIndex(NamedTuple):
    """Tile ``(i, j)`` of the lower triangle, ``i >= j``."""

    i: int
    j: int


@dataclass(frozen=True)
class TileGrid:
    """The lower triangle of an ``(n, n)`` matrix cut into tiles of order ``nb``; the last tile row may be short."""

    n: int  #: Order of the matrix; that of order 0 has no tiles
    nb: int  #: Order of a tile, at least 1. May exceed ``n``: then there is one tile.

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError(f"n is {self.n}, but no matrix has fewer than 0 rows")
        if self.nb < 1:
            raise ValueError(f"tile_size is {self.nb}, but a tile has at least 1 row")

    @property
    def nt(self) -> int:
        """Number of tile rows."""
        return -(-self.n // self.nb)

    @property
    def n_tiles(self) -> int:
        """Number of tiles of the lower triangle, diagonal included."""
        return self.nt * (self.nt + 1) // 2

    def start(self, i: int) -> int:
        """First matrix row of tile row ``i``."""
        return i * self.nb

    def size(self, i: int) -> int:
        """Matrix rows of tile row ``i``."""
        rows = self.n - i * self.nb
        return rows if rows < self.nb else self.nb  # in a third of the time of ``min``: planning asks millions of times

    def columns(self, j: int, count: int) -> int:
        """Matrix columns of ``count`` tile columns from ``j`` on, as far as there are so many."""
        return min(count * self.nb, self.n - j * self.nb)

    @cached_property
    def _spans(self) -> tuple[range, ...]:
        return tuple(range(start, min(start + self.nb, self.n)) for start in range(0, self.n, self.nb))

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self._spans))

    def span(self, i: int) -> range:
        """Matrix rows of tile row ``i`` as a range."""
        return self._spans[i]

    def shape(self, i: int, j: int) -> tuple[int, int]:
        """Rows and columns of tile ``(i, j)``."""
        sizes = self._sizes
        return sizes[i], sizes[j]

    def entries(self, i: int, j: int) -> int:
        """Entries of tile ``(i, j)``; a diagonal tile counts its whole square."""
        nb, rows, columns = self.nb, self.n - i * self.nb, self.n - j * self.nb
        return (rows if rows < nb else nb) * (columns if columns < nb else nb)

    def packed(self, i: int, j: int) -> int:
        """Position of tile ``(i, j)`` in packed order: row by row of the lower triangle."""
        return i * (i + 1) // 2 + j

    def tiles(self, first: int = 0) -> Iterator[TileIndex]:
        """Every tile of the lower triangle in packed order, or of the trailing one that begins with tile row ``first``."""
        for i in range(first, self.nt):
            for j in range(first, i + 1):
                yield TileIndex(i, j)
