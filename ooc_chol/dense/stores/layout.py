"""Where the tiles of L lie behind each other, in memory or in a file, in whatever formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES, whole_pages
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.tasks.tiling import TileGrid

#: Every tile starts at a multiple of this many bytes: a page, and the granularity of direct I/O.
TILE_ALIGNMENT = PAGE_BYTES


def mixed_formats(grid: TileGrid, formats: Sequence[PrecisionFormat] | None) -> tuple[PrecisionFormat, ...] | None:
    """``formats`` as a tuple, or None when all are FP64."""
    if formats is None:
        return None
    if len(formats) != grid.n_tiles:
        raise ValueError(
            f"{len(formats)} formats are given for {grid.n_tiles} tiles; give one for each tile of the lower triangle"
        )
    return tuple(formats) if any(fmt.name != FP64.name for fmt in formats) else None


@dataclass(frozen=True)
class TileLayout:
    """Where each tile of the lower triangle starts, in bytes.

    Offsets of tiles of one format are a closed form; those of other layouts take 8 bytes a tile, computed at first use.
    """

    grid: TileGrid
    data_offset: int = 0  #: Bytes before the first tile, a multiple of 4096
    #: Format of every tile in packed order when the layout was made; None, also where they were given, when all are FP64
    formats: tuple[PrecisionFormat, ...] | None = None
    #: Tiles of narrow formats that are FP64 now, in the order in which they were appended behind all others
    widened: tuple[tuple[int, int], ...] = ()
    fmt: PrecisionFormat = FP64  #: Format of all tiles where ``formats`` is None

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", mixed_formats(self.grid, self.formats))
        for i, j in self.widened:
            if not 0 <= j <= i < self.grid.nt or self._first_format(i, j) == FP64:
                raise ValueError(f"tile {(i, j)} cannot be widened: there is none of a narrow format")
        if len(set(self.widened)) < len(self.widened):
            raise ValueError("a tile is widened twice")

    def _first_format(self, i: int, j: int) -> PrecisionFormat:
        return self.fmt if self.formats is None else self.formats[self.grid.packed(i, j)]

    @cached_property
    def present_formats(self) -> tuple[PrecisionFormat, ...] | None:
        """Format of every tile in packed order, widened ones as FP64; None when all are FP64."""
        if self.formats is None or not self.widened:
            return self.formats
        formats = list(self.formats)
        for i, j in self.widened:
            formats[self.grid.packed(i, j)] = FP64
        return mixed_formats(self.grid, formats)

    def format_of(self, i: int, j: int) -> PrecisionFormat:
        """Format of tile ``(i, j)``, FP64 once it is widened."""
        return self.fmt if self.present_formats is None else self.present_formats[self.grid.packed(i, j)]

    def nbytes(self, i: int, j: int) -> int:
        """Bytes of tile ``(i, j)``, without the zeros that follow it."""
        return self.format_of(i, j).stored_bytes(self.grid.entries(i, j))

    def offset(self, i: int, j: int) -> int:
        """First byte of tile ``(i, j)``.

        Closed form of one format: the ``i (i + 1) / 2`` tiles of the rows above are all of order nb, and so are the first ``i``
        tile columns.
        """
        if self.formats is not None:
            return int(self._starts[self.grid.packed(i, j)])
        rows_above = self.grid.packed(i, 0) * whole_pages(self.grid.nb**2 * self.fmt.itemsize)
        return self.data_offset + rows_above + j * whole_pages(self.grid.size(i) * self.grid.nb * self.fmt.itemsize)

    @property
    def end(self) -> int:
        """First byte behind the last tile and its zeros: the size of the file."""
        if self.formats is not None:
            return int(self._starts[-1])
        if not self.grid.n:
            return self.data_offset or TILE_ALIGNMENT  # memory that holds nothing is still memory
        last = self.grid.nt - 1
        return self.offset(last, last) + whole_pages(self.nbytes(last, last))

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """First byte of every tile of a mixed layout in packed order, then its end."""
        assert self.formats is not None
        grid, last = self.grid, self.grid.nt - 1
        names = {fmt.name: fmt for fmt in self.formats}
        number = {name: place for place, name in enumerate(names)}
        # Three sizes of tiles: full ones, those of the last row, and the last tile.
        entries = [grid.nb**2, grid.size(last) * grid.nb, grid.size(last) ** 2]
        sizes = np.array([[whole_pages(fmt.stored_bytes(count)) for count in entries] for fmt in names.values()], dtype=np.int64)
        rank = np.zeros(grid.n_tiles, dtype=np.int8)
        rank[grid.packed(last, 0) :] = 1
        rank[-1] = 2
        starts = np.empty(grid.n_tiles + 1, dtype=np.int64)
        starts[0] = self.data_offset
        starts[1:] = sizes[np.fromiter((number[fmt.name] for fmt in self.formats), np.int8, grid.n_tiles), rank]
        np.cumsum(starts, out=starts)
        for i, j in self.widened:
            starts[grid.packed(i, j)] = starts[-1]
            starts[-1] += whole_pages(FP64.stored_bytes(grid.entries(i, j)))
        return starts

    def with_wider(self, tiles: Iterable[tuple[int, int]]) -> TileLayout:
        """The layout with the narrow ones of ``tiles`` in FP64, appended in their order; all other tiles stay where they are."""
        added = dict.fromkeys((int(i), int(j)) for i, j in tiles)
        for i, j in added:
            if not 0 <= j <= i < self.grid.nt:
                raise ValueError(f"there is no tile {(i, j)} in the lower triangle of {self.grid.nt} tile rows")
        return replace(self, widened=self.widened + tuple(index for index in added if self.format_of(*index) != self.fmt))
