"""Tiles of L as chunks of a Zarr group: read, written and hashed piece by piece."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.stores.checksums import combined, tile_seed
from ooc_chol.dense.stores.zarr_layout import CRC_BYTES, GroupShape, crc32c
from ooc_chol.errors import DamagedFileError
from ooc_chol.files.checksums import hash_bytes, pieces
from ooc_chol.files.object_folders import AbstractObjectFolder
from ooc_chol.formats import SCALE_BYTES, PrecisionFormat
from ooc_chol.interfaces import BlockIndex

_AGAIN = "copy the group again, or factor the matrix again (`ooc-chol verify` lists all that is damaged)"


@final
class TileChunks:
    """The chunks of tiles in one group. A tile at the end of L is the upper left part of its chunk.

    What is stored of a tile is what a factor file stores of it: its entries, and the exponent of a format with a scale. The group
    has that exponent in another array.
    """

    def __init__(self, folder: AbstractObjectFolder, shape: GroupShape) -> None:
        self._folder, self._shape, self._grid = folder, shape, shape.grid
        self._arrays = {fmt.name: shape.of_tiles(fmt) for fmt in (shape.fmt, *shape.formats)}

    def key(self, index: BlockIndex, fmt: PrecisionFormat) -> str:
        """Key of the chunk of a tile of that format."""
        return self._arrays[fmt.name].key(int(index[0]), int(index[1]))

    def damaged(self, index: BlockIndex, fmt: PrecisionFormat, what: str) -> DamagedFileError:
        """The error for a tile that is not what was written."""
        tile, path = (int(index[0]), int(index[1])), self._folder.name
        text = f"{path}: tile {tile} is damaged: {what}, chunk {self.key(index, fmt)}; {_AGAIN}"
        return DamagedFileError(text, path, tile=tile)

    def write(self, index: BlockIndex, fmt: PrecisionFormat, stored: NDArray[np.uint8]) -> int:
        """Write a tile, given what is stored of it; returns its checksum."""
        seed, crc = tile_seed(self._grid, index, fmt), bytes(CRC_BYTES)
        entries = stored[: self._grid.entries(*index) * fmt.itemsize]
        is_chunk, hashes = self._is_chunk(index), []
        for first, stop in pieces(len(stored)):
            hashes.append(hash_bytes(stored[first:stop], seed))
            if is_chunk:  # while the piece is in the core's cache
                crc = crc32c(entries[first : min(stop, len(entries))], crc)
        data = entries
        if not is_chunk:
            data = self._padded(index, fmt, entries)
            crc = crc32c(data)
        self._folder.write(self.key(index, fmt), [data.data, memoryview(crc)])
        return combined(hashes, seed)

    def read(
        self, index: BlockIndex, fmt: PrecisionFormat, stored: NDArray[np.uint8], exponent: int, *, crc: bool = False
    ) -> tuple[int, bool]:
        """Fill what is stored of a tile; returns the checksum of that, and where asked whether the chunk's CRC-32C is right.

        Raises ``DamagedFileError``: the chunk is missing, or has another size.
        """
        count = self._grid.entries(*index) * fmt.itemsize
        if fmt.top is not None:
            stored[count:] = 0
            stored[-SCALE_BYTES:].view(np.int64)[0] = exponent
        array, is_chunk = self._arrays[fmt.name], self._is_chunk(index)
        data = stored[:count] if is_chunk else np.empty(array.chunk_bytes - CRC_BYTES, np.uint8)
        behind = bytearray(CRC_BYTES)
        try:
            size = self._folder.read_into(self.key(index, fmt), [data.data, memoryview(behind)])
        except FileNotFoundError:
            raise self.damaged(index, fmt, "its chunk is missing") from None
        if size != array.chunk_bytes:
            raise self.damaged(index, fmt, f"its chunk has {size} bytes, expected {array.chunk_bytes}")
        if not is_chunk:
            self._unpad(index, fmt, data, stored)
        seed = tile_seed(self._grid, index, fmt)
        found = combined([hash_bytes(stored[first:stop], seed) for first, stop in pieces(len(stored))], seed)
        return found, not crc or crc32c(data) == bytes(behind)

    def _is_chunk(self, index: BlockIndex) -> bool:
        """Tell whether a tile is all of its chunk."""
        return self._grid.shape(*index) == (self._shape.chunk, self._shape.chunk)

    def _padded(self, index: BlockIndex, fmt: PrecisionFormat, entries: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The entries of a tile as a chunk, with zeros behind its rows and below."""
        rows, columns = self._grid.shape(*index)
        chunk = np.zeros((self._shape.chunk, self._shape.chunk * fmt.itemsize), np.uint8)
        chunk[:rows, : columns * fmt.itemsize] = entries.reshape(rows, -1)
        return chunk.reshape(-1)

    def _unpad(self, index: BlockIndex, fmt: PrecisionFormat, chunk: NDArray[np.uint8], stored: NDArray[np.uint8]) -> None:
        """The entries of a tile from its chunk."""
        rows, columns = self._grid.shape(*index)
        entries = stored[: rows * columns * fmt.itemsize].reshape(rows, -1)
        entries[...] = chunk.reshape(self._shape.chunk, -1)[:rows, : columns * fmt.itemsize]
