"""Windows: the tiles of a few tile rows in a few tile columns, which one run of several makes final."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ooc_chol.tasks.tiling import Index, TileGrid, TileIndex


class Window(NamedTuple):
    """Tiles ``(i, j)`` of ``rows`` and ``columns``, ``i >= j``.

    ``rows`` begin where ``columns`` do, and then the window has the diagonal tiles of its columns; or at or below their end.
    """

    rows: range
    columns: range

    @property
    def has_diagonal(self) -> bool:
        """True if the window makes the diagonal tiles of its columns, too."""
        return self.rows.start == self.columns.start

    @property
    def n_tiles(self) -> int:
        """How many tiles it has."""
        above = len(self.columns) * (len(self.columns) - 1) // 2 if self.has_diagonal else 0
        return len(self.rows) * len(self.columns) - above

    @property
    def met_rows(self) -> list[int]:
        """The tile rows of all tiles that it makes or needs: those of its columns, and its own."""
        return sorted({*self.columns, *self.rows})

    def tiles(self) -> Iterator[TileIndex]:
        """Its tiles, row by row."""
        for i in self.rows:
            for j in range(self.columns.start, min(i + 1, self.columns.stop)):
                yield TileIndex(i, j)

    def rows_from(self, first: int) -> range:
        """Its rows from tile row ``first`` on."""
        return range(max(first, self.rows.start), self.rows.stop)

    def below(self) -> Window:
        """As many rows just below its columns: what is true of these whatever lies between is true of all such windows."""
        end = self.columns.stop
        return Window(range(end, end + len(self.rows)), self.columns)

    @property
    def n_needs(self) -> int:
        """How many tiles :meth:`needs` names."""
        left = len(self.met_rows) * self.columns.start
        return left if self.has_diagonal else left + len(self.columns) * (len(self.columns) + 1) // 2

    def needs(self) -> frozenset[Index]:
        """Tiles of L that must be final before: those left of it in its rows, and all of its columns' own rows up to it."""
        own = range(self.columns.start, self.columns.stop)
        left = {(i, j) for i in {*self.rows, *own} for j in range(self.columns.start)}
        return frozenset(left if self.has_diagonal else left | {(i, j) for i in own for j in range(self.columns.start, i + 1)})

    def task_counts(self) -> dict[str, int]:
        """How many tasks of each kind make its tiles final."""
        updates = [0, 0]  # of tiles on the diagonal and below it
        for i, j in self.tiles():
            updates[i > j] += j
        pivots = len(self.columns) if self.has_diagonal else 0
        return {"POTRF": pivots, "TRSM": self.n_tiles - pivots, "SYRK": updates[0], "GEMM": updates[1]}

    def check(self, grid: TileGrid) -> None:
        """Raise ``ValueError`` unless this is a window of the lower triangle of ``grid``, with a tile at least."""
        (first, end), (left, right) = (self.rows.start, self.rows.stop), (self.columns.start, self.columns.stop)
        if not (0 <= left < right <= grid.nt and self.rows.step == self.columns.step == 1):
            raise ValueError(f"tile columns {self.columns} are no columns of {grid.nt} x {grid.nt} tiles")
        if not (right <= first < end <= grid.nt or (first == left and right <= end <= grid.nt)):
            raise ValueError(
                f"tile rows {self.rows} of a window begin where its columns {self.columns} do and reach their end, or lie below, "
                f"within {grid.nt} tile rows"
            )


def whole_triangle(nt: int) -> Window:
    """The window of all tiles of ``nt`` tile rows."""
    return Window(range(nt), range(nt))
