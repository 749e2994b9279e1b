"""L as one task of a cluster sees it: blocks that it is given, and the tiles of its window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.blocks import LBlock
from ooc_chol.dense.stores.base import AbstractStore, check_stored, check_tile
from ooc_chol.errors import ScheduleError
from ooc_chol.formats import FP64, Floats, PrecisionFormat, decode, encode
from ooc_chol.interfaces import AbstractLocking, BlockIndex, Tile
from ooc_chol.memory.pages import copy_by
from ooc_chol.memory.shared import SharedMemory, shared_arrays
from ooc_chol.process.team import ThreadTeam
from ooc_chol.tasks.tiling import Index, TileGrid
from ooc_chol.tasks.windows import Window

if TYPE_CHECKING:
    from ooc_chol.cluster.resident_tiles import ResidentTiles


@final
class WindowStore(AbstractStore):
    """Tiles in memory: those of given blocks in place, which are only read, and new ones of a window.

    Raises ``ScheduleError``: a given block has no tiles with it.
    """

    name = "memory"

    def __init__(
        self,
        grid: TileGrid,
        window: Window,
        given: Sequence[LBlock],
        *,
        formats: tuple[PrecisionFormat, ...] | None = None,
        fmt: PrecisionFormat = FP64,
        is_shared: bool = False,
        resident: ResidentTiles | None = None,
    ) -> None:
        self.grid, self.fmt, self._formats, self._resident = grid, fmt, formats, resident
        self._tiles: dict[Index, NDArray[Any]] = {}
        for block in given:
            if block.tiles is None:
                raise ScheduleError(f"block {block.window} of L came without its tiles, and no store is named that has them")
            self._tiles.update({index: _read_only(tile) for index, tile in block.tiles.items()})
        #: The page-locking of given blocks, where devices copy them in place.
        self.locks: AbstractLocking | None = None
        shapes = {(i, j): self._shape((i, j)) for i, j in window.tiles()}
        #: What the tiles of the window are parts of, where others may map it.
        self.memory: SharedMemory | None = None
        #: The tiles of the window as they are stored.
        self.made: Mapping[Index, NDArray[Any]]
        if is_shared:
            self.memory, self.made = shared_arrays(shapes, window)
        else:
            self.made = {index: np.empty(*shape) for index, shape in shapes.items()}
        self._tiles.update(self.made)

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        return self._formats

    @property
    def nbytes(self) -> int:
        """Bytes of the tiles of the window."""
        return sum(tile.nbytes for tile in self.made.values())

    def locking(self) -> AbstractLocking | None:
        """The page-locking of blocks, given and new."""
        return self.locks

    def view(self, index: BlockIndex) -> NDArray[Any] | None:
        """Tile ``index`` of :attr:`fmt` in place, which is read-only where it was given; None for one of another format."""
        return self._tile(index) if self.format_of(index) == self.fmt else None

    def kept_on(self, device: str, index: BlockIndex) -> Tile | None:
        return None if self._resident is None else self._resident.kept_on(device, (index[0], index[1]))

    def place_on(self, device: str, index: BlockIndex) -> Tile | None:
        return None if self._resident is None else self._resident.place_on(device, (index[0], index[1]))

    def ahead_on(self, device: str) -> Sequence[BlockIndex]:
        ahead = () if self._resident is None else self._resident.ahead_on(device)
        # Those of other formats would need a buffer.
        return [index for index in ahead if index in self._tiles and self.format_of(index) == self.fmt]

    def stored(self, index: BlockIndex) -> NDArray[np.uint8]:
        return self._tile(index).reshape(-1).view(np.uint8)

    def read_by(self, team: ThreadTeam, index: BlockIndex, out: Floats) -> None:
        """Copy tile ``index`` into ``out``, some rows by each thread: one alone is slower than the link to a GPU."""
        fmt = self.format_of(index)
        if fmt != self.fmt:
            self.read(index, out)
            return
        check_tile(out, self.grid.shape(*index), fmt, self.fmt)
        copy_by(team, out, self._tile(index))

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        fmt, columns = self.format_of(index), self.grid.size(index[1])
        check_tile(out, (len(rows), columns), fmt, self.fmt)
        if fmt == self.fmt:
            np.copyto(out, self._tile(index)[rows.start : rows.stop])
        else:
            decode(self.stored(index), fmt, slice(rows.start * columns, rows.stop * columns), out)

    def write(self, index: BlockIndex, data: Floats) -> None:
        """Copy ``data`` into tile ``index`` of the window, rounded to its format."""
        fmt, tile = self.format_of(index), self._own(index)
        check_tile(data, self.grid.shape(*index), fmt, self.fmt)
        if fmt == self.fmt:
            np.copyto(tile, data)
        else:
            encode(data, fmt, tile)

    def write_by(self, team: ThreadTeam, index: BlockIndex, data: Floats) -> None:
        """Copy ``data`` into tile ``index`` of the window, some rows by each thread: the memory is new, and slow to come."""
        fmt = self.format_of(index)
        if fmt != self.fmt:
            self.write(index, data)
            return
        tile = self._own(index)
        check_tile(data, self.grid.shape(*index), fmt, self.fmt)
        copy_by(team, tile, data)

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        stored = self.stored(index)
        check_stored(out, len(stored))
        np.copyto(out, stored)

    def write_stored(self, index: BlockIndex, data: NDArray[np.uint8]) -> None:
        """Copy ``data`` over the stored bytes of tile ``index`` of the window."""
        stored = self._own(index).reshape(-1).view(np.uint8)
        check_stored(data, len(stored))
        np.copyto(stored, data)

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Refuse: the formats of a run on a cluster are settled before."""
        raise ScheduleError("tiles of a window are of the formats that its run names: start one with wider formats")

    def complete(self) -> None:
        """Do nothing: memory is as durable as it gets."""

    def discard(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all tiles; who has :attr:`made` keeps those."""
        self._tiles, self.locks, self._resident = {}, None, None

    def _shape(self, index: Index) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type of a tile in memory: an array, or the bytes of another format."""
        fmt = self.format_of(index)
        if fmt == self.fmt:
            return self.grid.shape(*index), fmt.dtype
        return (fmt.stored_bytes(self.grid.entries(*index)),), np.dtype(np.uint8)

    def _tile(self, index: BlockIndex) -> NDArray[Any]:
        """A tile as it is stored."""
        tile = self._tiles.get((index[0], index[1]))
        if tile is None:
            raise ScheduleError(f"tile {tuple(index)} of L is neither given nor of the window that is made")
        return tile

    def _own(self, index: BlockIndex) -> NDArray[Any]:
        """A tile of the window."""
        if (index[0], index[1]) not in self.made:
            raise ScheduleError(f"tile {tuple(index)} of L is not of the window that is made: it is only read")
        return self.made[index[0], index[1]]


def _read_only(tile: NDArray[Any]) -> NDArray[Any]:
    """The same entries, which nobody changes here: other tasks of the worker read them."""
    seen = tile.view()
    seen.flags.writeable = False
    return seen
