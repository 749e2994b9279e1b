"""One block of A or L as a matrix of its own: of the rows of its columns, and its own, and of no other size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.blocks import LBlock
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.errors import ScheduleError
from ooc_chol.formats import PrecisionFormat, decode
from ooc_chol.interfaces import AbstractTier, BlockIndex, DeviceBlock, Tile
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.memory.sources.numbers import put_numbers
from ooc_chol.tasks.tiling import TileGrid, TileIndex
from ooc_chol.tasks.windows import Window


@dataclass(frozen=True)
class Piece:
    """The tile rows that a window meets, numbered from 0: those of its columns, and below them its own.

    >>> piece = Piece(TileGrid(10, 2), Window(range(4, 5), range(1, 3)))
    >>> piece.grid, piece.own_tiles(), piece.row(2), piece.spans
    (TileGrid(n=6, nb=2), [TileIndex(i=2, j=0), TileIndex(i=2, j=1)], 4, (range(2, 6), range(8, 10)))
    """

    tiles: TileGrid  #: How the whole matrix is cut into tiles
    window: Window  #: Tiles of that grid; where its rows are not those of its columns, its columns are no short ones

    @property
    def grid(self) -> TileGrid:
        """The tiles of the piece."""
        return TileGrid(sum(map(len, self.spans)), self.tiles.nb)

    @property
    def spans(self) -> tuple[range, ...]:
        """Rows of the whole matrix, in the order of the piece's own."""
        rows = (self.window.columns,) if self.window.has_diagonal else (self.window.columns, self.window.rows)
        return tuple(range(self.tiles.start(each.start), min(self.tiles.start(each.stop), self.tiles.n)) for each in rows)

    def row(self, i: int) -> int:
        """The tile row of the whole matrix that is row ``i`` of the piece."""
        columns = self.window.columns
        return columns.start + i if i < len(columns) else self.window.rows.start + i - len(columns)

    def index(self, index: BlockIndex) -> tuple[int, int]:
        """The place in the whole matrix of a tile of the piece."""
        return self.row(index[0]), self.row(index[1])

    def own_tiles(self) -> list[TileIndex]:
        """The window's tiles, in its order, as those of the piece."""
        grid, is_below = self.grid, not self.window.has_diagonal
        first = len(self.window.columns) if is_below else 0
        return [TileIndex(i, j) for i in range(first, grid.nt) for j in range(min(i + 1, len(self.window.columns)))]

    def entries(self, rows: range) -> range:
        """Rows of the whole matrix that are ``rows`` of the piece; they lie in one span."""
        span, before = self.spans[0], 0
        if rows.start >= len(span):
            span, before = self.spans[1], len(span)
        return range(span.start + rows.start - before, span.start + rows.stop - before)


@final
class SourcePiece(AbstractSource):
    """The piece of a matrix that a worker reads or makes for itself."""

    def __init__(self, source: AbstractSource, piece: Piece) -> None:
        self._source, self._piece = source, piece
        self.name, self.dtype, self.bytes_per_entry = source.name, source.dtype, source.bytes_per_entry
        self.n, self.is_transposed, self.is_bounded = piece.grid.n, source.is_transposed, source.is_bounded

    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        """Read it from the whole matrix."""
        self._source.read_block(self._piece.entries(rows), self._piece.entries(cols), out)

    def view(self, rows: range, cols: range) -> NDArray[Any] | None:
        """The rectangle in place, where the matrix has it."""
        return self._source.view(self._piece.entries(rows), self._piece.entries(cols))

    @property
    def files(self) -> tuple[str, ...]:
        """Those of the matrix."""
        return self._source.files

    def prepare(self) -> None:
        """Compile and upload what the matrix needs."""
        self._source.prepare()

    def function(self, rows: range, cols: range, out: Tile, stream: Any) -> None:
        """Let the matrix fill ``out`` where it is."""
        self._source.function(self._piece.entries(rows), self._piece.entries(cols), out, stream)

    def check_unchanged(self) -> None:
        """Ask the matrix."""
        self._source.check_unchanged()


@final
class ArrayPiece(AbstractSource):
    """The piece of which a task is given the window's entries, and no others."""

    name = "array"

    def __init__(self, a: NDArray[Any], piece: Piece) -> None:
        self._a, self._first = a, 0 if piece.window.has_diagonal else len(piece.spans[0])
        self.n, self.dtype, self.bytes_per_entry = piece.grid.n, a.dtype, a.dtype.itemsize

    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        put_numbers(self._a[rows.start - self._first : rows.stop - self._first, cols.start : cols.stop], out)


@final
class BlockTier(AbstractTier):
    """The tiles of one block of L in this process, in the formats of a run, which are only read."""

    name = "block"

    def __init__(self, block: LBlock, run: ClusterRun) -> None:
        assert block.tiles is not None
        self._tiles, self._run = block.tiles, run

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        """The format that the run stores the tile in."""
        return self._run.fmt if self._run.precision is None else self._run.precision.format_of((index[0], index[1]))

    def view(self, index: BlockIndex) -> NDArray[Any] | None:
        """The tile in place; None where it is of a narrow format."""
        tile = self._tiles[index[0], index[1]]
        return tile.reshape(self._run.grid.shape(*index)) if self.format_of(index) == self._run.fmt else None

    def stored(self, index: BlockIndex) -> NDArray[np.uint8]:
        return self._tiles[index[0], index[1]].reshape(-1).view(np.uint8)

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        np.copyto(out, self.stored(index))

    def read(self, index: BlockIndex, out: NDArray[Any]) -> None:
        fmt, tile = self.format_of(index), self.view(index)
        if tile is not None:
            np.copyto(out, tile)
        else:
            decode(self.stored(index), fmt, slice(0, out.size), out)

    def write(self, index: BlockIndex, data: NDArray[Any]) -> None:
        """Refuse to write: the block is final."""
        raise ScheduleError(f"tile {index} of a block that is final was to be written")


@final
class TierPiece(AbstractTier):
    """The piece of an L in some tier, which is only read."""

    def __init__(self, tier: AbstractTier, piece: Piece) -> None:
        self._tier, self._piece = tier, piece
        self.name, self.ordered_by_events = tier.name, tier.ordered_by_events

    def reads_file(self, index: BlockIndex) -> bool:
        """As the tier does."""
        return self._tier.reads_file(self._piece.index(index))

    def view(self, index: BlockIndex) -> NDArray[Any] | None:
        """The tile in place, where the tier has it so."""
        return self._tier.view(self._piece.index(index))

    def on_device(self, index: BlockIndex) -> DeviceBlock | None:
        """Where the tier has it on a device."""
        return self._tier.on_device(self._piece.index(index))

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        """The format in which the tier stores the tile."""
        return self._tier.format_of(self._piece.index(index))

    def stored(self, index: BlockIndex) -> NDArray[np.uint8] | None:
        return self._tier.stored(self._piece.index(index))

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        self._tier.read_stored(self._piece.index(index), out)

    def read(self, index: BlockIndex, out: NDArray[Any]) -> None:
        self._tier.read(self._piece.index(index), out)

    def write(self, index: BlockIndex, data: NDArray[Any]) -> None:
        """Refuse to write: a piece is there to be read."""
        raise ScheduleError(f"tile {self._piece.index(index)} of a block that is final was to be written")
