"""Tables with an entry for every tile, of which each chunk in the group holds those of a block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.stores.zarr_layout import ArrayShape, chunk_parts, tile_part, unpacked_chunk
from ooc_chol.errors import DamagedFileError
from ooc_chol.files.object_folders import AbstractObjectFolder
from ooc_chol.interfaces import BlockIndex
from ooc_chol.process.fork_safety import new_lock, new_rlock

#: Block row and block column.
BlockOf = tuple[int, int]


@final
class BlockTable:
    """One array of a group, of which this process keeps the blocks that it has read or written.

    Several threads may ask and set entries at once; other processes may write other blocks meanwhile.
    """

    def __init__(self, folder: AbstractObjectFolder, shape: ArrayShape) -> None:
        self._folder, self.shape = folder, shape
        self._height = shape.chunks[0]
        self._lock, self._writing = new_rlock(), new_lock()
        self._blocks: dict[BlockOf, NDArray[Any]] = {}
        self._changed: set[BlockOf] = set()

    def block_of(self, index: BlockIndex) -> BlockOf:
        """The block of a tile."""
        return index[0] // self._height, index[1] // self._height

    def entry(self, index: BlockIndex) -> Any:
        """The entry of a tile, read where this process has none of its block; 0 where the group has none either."""
        return self._block(self.block_of(index))[tile_part(index, self._height)]

    def set(self, index: BlockIndex, entry: Any) -> None:
        """Let a tile have an entry, which :meth:`write` brings to the group."""
        with self._lock:
            block = self.block_of(index)
            self._block(block)[tile_part(index, self._height)] = entry
            self._changed.add(block)

    def changed(self) -> list[BlockOf]:
        """Blocks with entries that the group does not have yet."""
        with self._lock:
            return sorted(self._changed)

    def write(self, block: BlockOf, *, hidden: Iterable[tuple[int, int]] = ()) -> None:
        """Bring the entries of a block to the group, as 0 those of tiles that are ``hidden``, by their places in the block.

        One thread at a time: none brings older entries behind another's newer ones. A block with hidden entries stays changed:
        who hid them may have looked before another thread let them be seen.
        """
        with self._writing:
            with self._lock:
                self._changed.discard(block)
                entries = self._block(block).copy()
            for part in hidden:
                entries[part] = 0
                with self._lock:
                    self._changed.add(block)
            self._folder.write(self._key(block), chunk_parts(entries))

    def remove(self, block: BlockOf) -> None:
        """Remove the entries of a block from the group."""
        self._folder.remove(self._key(block))

    def values(self, block: BlockOf) -> NDArray[Any]:
        """A copy of the entries of a block."""
        with self._lock:
            return self._block(block).copy()

    def read_again(self, block: BlockOf) -> None:
        """Let entries of a block be those of the group, unless this process has some that the group has not."""
        with self._lock:
            if block not in self._changed:
                self._blocks.pop(block, None)
                self._block(block)

    def _key(self, block: BlockOf) -> str:
        """Key of the chunk of a block."""
        return self.shape.key(*block, *(0,) * (len(self.shape.shape) - 2))

    def _block(self, block: BlockOf) -> NDArray[Any]:
        """The entries of a block in memory."""
        with self._lock:
            if (found := self._blocks.get(block)) is None:
                found = self._blocks[block] = self._read(block)
            return found

    def _read(self, block: BlockOf) -> NDArray[Any]:
        """The entries of a block in the group; zeros where it has none."""
        key = self._key(block)
        try:
            data = self._folder.read(key)
        except FileNotFoundError:
            return np.zeros(self.shape.chunks, self.shape.dtype)
        try:
            return unpacked_chunk(self.shape, data, key).copy()
        except ValueError as error:
            what = f"{self._folder.name}: {self.shape.name} are damaged: {error}"
            text = f"{what}; copy the group again, or factor the matrix again"
            raise DamagedFileError(text, self._folder.name) from error
