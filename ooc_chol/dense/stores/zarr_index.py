"""Which tiles of a Zarr group are there: their checksums and exponents, block by block, and what of these others may see yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.stores.checked_tiles import Withheld
from ooc_chol.dense.stores.zarr_layout import GroupShape, tile_part
from ooc_chol.dense.stores.zarr_tables import BlockOf, BlockTable
from ooc_chol.files.object_folders import AbstractObjectFolder
from ooc_chol.interfaces import BlockIndex
from ooc_chol.tasks.tiling import Index
from ooc_chol.tasks.windows import Window


@final
class GroupIndex:
    """Checksums of the tiles of one group, and exponents where some formats have scales: a chunk of each for a block of tiles.

    A tile is there for others once its checksum is in the group, behind its bytes and its exponent. Several threads may note
    tiles at once.
    """

    def __init__(self, folder: AbstractObjectFolder, shape: GroupShape) -> None:
        self.grid, self.height = shape.grid, shape.height
        self._checksums = BlockTable(folder, shape.checksums)
        self._exponents = BlockTable(folder, shape.exponents) if shape.is_mixed else None
        self._withheld: Withheld | None = None

    def checksum(self, index: BlockIndex) -> int:
        """The checksum of a tile, as this process knows it; 0 where it is not written."""
        return int(self._checksums.entry(index))

    def newest_checksum(self, index: BlockIndex) -> int:
        """The same, but that of a tile which another process may have written since its block was read."""
        if entry := self.checksum(index):
            return entry
        block = self.block_of(index)
        self._checksums.read_again(block)
        if self._exponents is not None:
            self._exponents.read_again(block)
        return self.checksum(index)

    def exponent(self, index: BlockIndex) -> int:
        """The exponent of the scale of a tile; 0 where no format has any."""
        return 0 if self._exponents is None else int(self._exponents.entry(index))

    def note(self, index: BlockIndex, checksum: int, exponent: int | None = None) -> None:
        """Let a tile have a checksum, 0 where it is to be written again, and where its format has a scale an exponent."""
        if exponent is not None and self._exponents is not None:
            self._exponents.set(index, exponent)
        self._checksums.set(index, checksum)

    def block_of(self, index: BlockIndex) -> BlockOf:
        """The block of a tile."""
        return self._checksums.block_of(index)

    def blocks(self) -> Iterator[BlockOf]:
        """All blocks of the lower triangle."""
        count = -(-self.grid.nt // self.height)
        return ((s, p) for s in range(count) for p in range(s + 1))

    def window(self, block: BlockOf) -> Window:
        """The window of a block."""
        rows, columns = (range(at * self.height, min((at + 1) * self.height, self.grid.nt)) for at in block)
        return Window(rows, columns)

    def blocks_of(self, window: Window) -> list[BlockOf]:
        """The blocks that a window is made of; ``ValueError`` where it is not made of blocks."""
        height = self.height
        for span in (window.rows, window.columns):
            if span.start % height or (span.stop % height and span.stop != self.grid.nt):
                raise ValueError(f"{window} is not made of blocks of {height} tile rows, whose checksums are written at once")
        return sorted({self.block_of(index) for index in window.tiles()})

    def finished_windows(self) -> list[Window]:
        """The windows, each a block, all of whose tiles have checksums in the group, column by column."""
        found = []
        for block in sorted(self.blocks(), key=lambda block: (block[1], block[0])):
            self.read_unfinished(block)
            if self._is_whole(block):
                found.append(self.window(block))
        return found

    def is_finished(self, window: Window) -> bool:
        """Tell whether all tiles of a window have checksums in the group, whichever process has written them."""
        blocks = self.blocks_of(window)
        for block in blocks:
            self.read_unfinished(block)
        return all(map(self._is_whole, blocks))

    def read_unfinished(self, block: BlockOf) -> None:
        """Read a block again that is not whole here: another process may have finished it."""
        if not self._is_whole(block):
            self._checksums.read_again(block)

    def _is_whole(self, block: BlockOf) -> bool:
        """Tell whether all tiles of a block have checksums."""
        entries = self._checksums.values(block)
        return all(entries[tile_part(index, self.height)] for index in self.window(block).tiles())

    def packed(self) -> NDArray[np.uint64]:
        """The checksums of all tiles, packed."""
        packed = np.zeros(self.grid.n_tiles, "<u8")
        for block in self.blocks():
            entries = self._checksums.values(block)
            for index in self.window(block).tiles():
                packed[self.grid.packed(*index)] = entries[tile_part(index, self.height)]
        return packed

    def finish(self, blocks: Sequence[BlockOf]) -> None:
        """Bring all of some blocks to the group, the checksums last."""
        if self._exponents is not None:
            for block in blocks:
                self._exponents.write(block)
        for block in blocks:
            self._checksums.write(block)

    def show(self, block: BlockOf) -> None:
        """Bring the checksums of a block to the group, but for those that are withheld."""
        if self._exponents is not None and block in self._exponents.changed():
            self._exponents.write(block)
        withheld = self._withheld_places()
        hidden = [index for index in self.window(block).tiles() if withheld and self.grid.packed(*index) in withheld]
        self._checksums.write(block, hidden=[tile_part(index, self.height) for index in hidden])

    def remove(self) -> None:
        """Remove the checksums of all tiles from the group."""
        for block in self.blocks():
            self._checksums.remove(block)

    def show_changed(self) -> None:
        """Bring the checksums of all blocks to the group that it has not yet, but for those that are withheld."""
        for block in self._checksums.changed():
            self.show(block)

    def withhold_pivots(self) -> None:
        """Keep checksums of diagonal tiles from the group until these are confirmed: see :class:`Withheld`."""
        self._withheld = Withheld()

    def withhold_nothing(self) -> None:
        """Let all checksums be shown from now on."""
        self._withheld = None

    def written(self, index: BlockIndex) -> None:
        """Note that a tile is written; a diagonal one is withheld until it is confirmed."""
        if self._withheld is not None and index[0] == index[1]:
            self._withheld.may_show(self.grid.packed(*index))

    def confirm(self, index: BlockIndex) -> bool:
        """Note that a diagonal tile is right; whether its checksum was withheld, and is to be shown."""
        if self._withheld is None or not self._withheld.confirm(self.grid.packed(*index)):
            return False
        self._checksums.set(index, self.checksum(index))
        return True

    def forget(self, tiles: Iterable[Index]) -> None:
        """Let these tiles be unwritten again."""
        for index in tiles:
            self._checksums.set(index, 0)
            if self._withheld is not None:
                self._withheld.doubt(self.grid.packed(*index))

    @property
    def n_written(self) -> int:
        """How many tiles have checksums that others may see."""
        withheld = self._withheld_places()
        return sum(bool(self.checksum(index)) and self.grid.packed(*index) not in withheld for index in self.grid.tiles())

    def _withheld_places(self) -> set[int]:
        """Packed places of tiles that are withheld."""
        return set() if self._withheld is None else set(self._withheld.places())
