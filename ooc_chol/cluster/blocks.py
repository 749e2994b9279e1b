"""Blocks of tiles: what one task of a cluster makes, sends and keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.tasks.tiling import Index, TileGrid
from ooc_chol.tasks.windows import Window


class BlockPlace(NamedTuple):
    """Block row and block column, ``row >= column``."""

    row: int
    column: int


@dataclass(frozen=True)
class BlockGrid:
    """The lower triangle of a tile grid cut into blocks of ``height`` tile rows and columns; the last block row may be short."""

    tiles: TileGrid  #: How the matrix is cut into tiles
    height: int  #: Tile rows of a block, at least 1

    def __post_init__(self) -> None:
        if self.height < 1:
            raise ValueError(f"a block has {self.height} tile rows, but at least 1 is needed")

    @property
    def n_blocks(self) -> int:
        """Number of block rows."""
        return -(-self.tiles.nt // self.height)

    def span(self, block: int) -> range:
        """Tile rows of block row ``block``."""
        return range(block * self.height, min((block + 1) * self.height, self.tiles.nt))

    def window(self, place: BlockPlace) -> Window:
        """The tiles of a block."""
        return Window(self.span(place.row), self.span(place.column))

    def places(self) -> Iterator[BlockPlace]:
        """All blocks, column by column from left to right, each from its diagonal block down: a valid order to make them."""
        for column in range(self.n_blocks):
            for row in range(column, self.n_blocks):
                yield BlockPlace(row, column)

    def rows(self, block: int) -> range:
        """Matrix rows of block row ``block``."""
        span = self.span(block)
        return range(self.tiles.start(span.start), min(self.tiles.start(span.stop), self.tiles.n))


@dataclass(frozen=True)
class LBlock:
    """A block of L that is final, with what its run measured; a worker keeps it, and it travels to others."""

    window: Window
    #: Row-major arrays in the formats of storage, as a store of L keeps them; None where they are in a file or a Zarr group
    tiles: Mapping[Index, NDArray[Any]] | None
    #: (n tiles of the window, NORM_COLUMNS) what was measured of its final tiles, in the order of ``window.tiles()``; None where
    #: all is in one format
    norms: NDArray[np.float64] | None
    seconds: float  #: Seconds of the run that made it, opening and planning included
    link_bytes: tuple[int, ...]  #: Executed bytes over each :class:`~ooc_chol.tasks.operations.Link` of its device
    worker: str = ""  #: Address of the worker that made it, empty outside a cluster
    read_bytes: int = 0  #: Bytes of L that its run read from a Zarr group; what its worker kept in memory is not read again
    was_there: bool = False  #: Whether a task before had made it, whose worker was lost since

    @property
    def nbytes(self) -> int:
        """Bytes of its tiles, as they are kept and sent."""
        return 0 if self.tiles is None else sum(tile.nbytes for tile in self.tiles.values())

    def __sizeof__(self) -> int:
        """Bytes in memory, which Dask asks for: by that it moves, spills and balances."""
        return object.__sizeof__(self) + self.nbytes + (0 if self.norms is None else self.norms.nbytes)
