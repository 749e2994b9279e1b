"""Checksums of the tiles of a factor file: XXH3-64 of their stored bytes, bound to their place, their shape and their format.

The checksum of a tile has two levels, so that rows of a large tile are checked without reading all of it. Its stored bytes are
cut into pieces of :data:`PIECE_BYTES`; each piece has the XXH3-64 of its bytes, and the tile that of the checksums of its pieces
behind each other (little-endian u64). All are seeded with the XXH3-64 of order n, nb, i and j (little-endian u64) and the name of
the tile's format, so that neither tiles that changed places nor a header that tells of another matrix go unseen. A checksum of 0
means that the tile was not written; one that is 0 is stored as 1.
"""

from __future__ import annotations

import json
import struct
from typing import Any, final

import numpy as np
import xxhash
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.files.checksums import PIECE_BYTES, hash_bytes
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.interfaces import BlockIndex
from ooc_chol.tasks.tiling import TileGrid

#: Entry of a tile that was not written.
NOT_WRITTEN = 0

_WORD = 8
_PLACE = struct.Struct("<4Q")
#: Type of all tables of checksums.
_ENTRY = np.dtype("<u8")


def tile_seed(grid: TileGrid, index: BlockIndex, fmt: PrecisionFormat) -> int:
    """The seed that binds checksums to a tile: to where it stands in which matrix, and to its format."""
    return int(xxhash.xxh3_64_intdigest(_PLACE.pack(grid.n, grid.nb, index[0], index[1]) + fmt.name.encode()))


@final
class ChecksumTables:
    """Where the checksums of a file lie, and those of its tiles, in memory.

    The index has a u64 for each tile in packed order, and in files of several formats as many again for tiles that were widened.
    Behind it lie the checksums of pieces, for each place of the index as many as the largest tile needs; none where every tile is
    one piece.
    """

    def __init__(self, layout: TileLayout, offset: int) -> None:
        self.grid, self.offset = layout.grid, offset
        self.n_places = places_of(layout)
        self.n_pieces = pieces_of(layout)
        self.pieces_offset = offset + whole_pages(_WORD * self.n_places)
        self.pieces_end = self.pieces_offset + _WORD * self.n_places * self.n_pieces
        self.end = whole_pages(self.pieces_end)
        self.index: NDArray[np.uint64] = np.zeros(0, _ENTRY)

    def clear(self) -> None:
        """Let no tile be written yet."""
        self.index = np.zeros(self.n_places, _ENTRY)

    def place(self, layout: TileLayout, index: BlockIndex) -> int:
        """Place of a tile in the index, another one once it is widened."""
        packed = self.grid.packed(*index)
        if layout.formats is None or layout.formats[packed] == layout.format_of(*index):
            return packed
        return self.grid.n_tiles + packed

    def entry_offset(self, place: int) -> int:
        """First byte of an entry of the index in the file."""
        return self.offset + _WORD * place

    def entry_bytes(self, place: int) -> bytes:
        """An entry of the index as it is in the file."""
        return self.index[place : place + 1].tobytes()

    def piece_offset(self, place: int) -> int:
        """First byte of the checksums of a tile's pieces in the file."""
        return self.pieces_offset + _WORD * self.n_pieces * place

    def index_hash(self, geometry: dict[str, Any]) -> int:
        """Signature of the index: XXH3-64 of its bytes, seeded with that of the header's lines on the matrix and its tiles."""
        return hash_bytes(self.index, hash_bytes(json.dumps(geometry, sort_keys=True).encode(), 0))


def places_of(layout: TileLayout) -> int:
    """Entries of the index of a file."""
    return layout.grid.n_tiles * (1 if layout.formats is None else 2)


def pieces_of(layout: TileLayout) -> int:
    """Checksums of pieces that each place has; 0 where the largest tile is one piece."""
    if not layout.grid.n:
        return 0
    widest = layout.fmt if layout.formats is None else FP64
    count = -(-widest.stored_bytes(layout.grid.entries(0, 0)) // PIECE_BYTES)
    return count if count > 1 else 0


def combined(hashes: list[int], seed: int) -> int:
    """The checksum of a tile from those of its pieces."""
    return hash_bytes(np.array(hashes, _ENTRY), seed)
