"""L in a Zarr group as one task of a cluster sees it: through the tiles that its worker keeps in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.kept_tiles import KeptTiles, Stored
from ooc_chol.dense.stores.base import AbstractStore, check_stored, check_tile
from ooc_chol.dense.stores.zarr_store import ZarrStore
from ooc_chol.errors import ScheduleError
from ooc_chol.files.positional_io import tile_bytes
from ooc_chol.formats import Floats, PrecisionFormat, decode, encode
from ooc_chol.interfaces import BlockIndex
from ooc_chol.process.fork_safety import new_lock
from ooc_chol.tasks.tiling import Index
from ooc_chol.tasks.windows import Window


@final
class GroupWindow(AbstractStore):
    """Tiles of a group: those that are kept are read in memory, others in the group, where each is checked.

    Tiles of the window are written to the group at once, and kept for later tasks from :meth:`finish` on, which lets all others
    have them. Neither the group nor what is kept is closed with it.
    """

    name = "zarr"
    writes_file = True

    def __init__(self, group: ZarrStore, kept: KeptTiles, window: Window, kept_bytes: int) -> None:
        self.grid, self.fmt = group.grid, group.fmt
        self._group, self._kept, self._window = group, kept, window
        self._made: dict[Index, Stored] = {}
        self._lock = new_lock()
        #: Bytes that were read from the group.
        self.read_bytes = 0
        kept.begin(window, kept_bytes)

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        return self._group.formats

    @property
    def nbytes(self) -> int:
        """Bytes of the tiles of L."""
        return self._group.nbytes

    def reads_file(self, index: BlockIndex) -> bool:
        """Tell whether reading a tile now reads the group."""
        key = _key(index)
        return key not in self._made and not self._kept.has(key)

    def read(self, index: BlockIndex, out: Floats) -> None:
        fmt = self.format_of(index)
        check_tile(out, self.grid.shape(*index), fmt, self.fmt)
        if (stored := self._in_memory(index)) is None:
            self._count(index)
            self._group.read(index, out)
        else:
            decode(stored, fmt, slice(0, out.size), out)

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        fmt, columns = self.format_of(index), self.grid.size(index[1])
        check_tile(out, (len(rows), columns), fmt, self.fmt)
        if (stored := self._in_memory(index)) is None:
            stored = self._read_new(index)
        decode(stored, fmt, slice(rows.start * columns, rows.stop * columns), out)

    def read_stored(self, index: BlockIndex, out: Stored) -> None:
        check_stored(out, self._nbytes_of(index))
        if (stored := self._in_memory(index)) is None:
            self._count(index)
            self._group.read_stored(index, out)
        else:
            np.copyto(out, stored)

    def write(self, index: BlockIndex, data: Floats) -> None:
        fmt = self.format_of(index)
        check_tile(data, self.grid.shape(*index), fmt, self.fmt)
        if not self._keeps(index):
            self._group.write(index, data)
        elif data.dtype == fmt.dtype and fmt.top is None:
            self._write_kept(index, np.frombuffer(tile_bytes(data), np.uint8).copy())
        else:
            stored = np.zeros(self._nbytes_of(index), np.uint8)
            encode(data, fmt, stored)
            self._write_kept(index, stored)

    def write_stored(self, index: BlockIndex, data: Stored) -> None:
        if self._keeps(index):
            self._write_kept(index, data.copy())
        else:
            self._group.write_stored(index, data)

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Refuse: the formats of a run on a cluster are settled before."""
        raise ScheduleError("tiles of a window are of the formats that its run names: start one with wider formats")

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Let the tiles of the window be there for others, with what was measured, and for later tasks of this worker."""
        self._group.finish_window(self._window, facts)
        for index in list(self._made):
            self._kept.put(index, self._made.pop(index))

    def complete(self) -> None:
        """Do nothing: a group is completed by whoever made it."""

    def discard(self) -> None:
        """Keep nothing of a window that failed."""
        self.close()

    def close(self) -> None:
        """Keep no tiles of a window that is not finished."""
        for index in list(self._made):
            self._kept.drop(index, self._made.pop(index).nbytes)

    def _in_memory(self, index: BlockIndex) -> Stored | None:
        """The stored bytes of a tile that is kept, or may be from now on; None where it must be read without."""
        key = _key(index)
        if (made := self._made.get(key)) is not None:
            return made
        if key[0] in self._window.rows and key[1] in self._window.columns:
            return None  # not to be kept before its window is finished
        return self._kept.get(key, self._nbytes_of(index), partial(self._read_new, index))

    def _read_new(self, index: BlockIndex) -> Stored:
        """The stored bytes of a tile from the group, checked, as new memory."""
        stored = np.empty(self._nbytes_of(index), np.uint8)
        self._count(index)
        self._group.read_stored(index, stored)
        return stored

    def _keeps(self, index: BlockIndex) -> bool:
        """Tell whether there is room to keep a tile that is about to be written; then it is taken, but where it was before."""
        key = _key(index)
        return key in self._made or self._kept.hold(key, self._nbytes_of(index))

    def _write_kept(self, index: BlockIndex, stored: NDArray[np.uint8]) -> None:
        """Write a tile to the group, and note it for later tasks."""
        self._made[_key(index)] = stored
        self._group.write_stored(index, stored)

    def _nbytes_of(self, index: BlockIndex) -> int:
        """Bytes of a tile as it is stored."""
        return self._group.layout.nbytes(*index)

    def _count(self, index: BlockIndex) -> None:
        """Count a tile that is read from the group."""
        with self._lock:
            self.read_bytes += self._nbytes_of(index)


def _key(index: BlockIndex) -> Index:
    """A tile's row and column."""
    return int(index[0]), int(index[1])
