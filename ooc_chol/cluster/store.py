"""L in the memory of a cluster's workers, as the client reads it: a block comes here when a tile of it is asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from math import isqrt
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.blocks import BlockGrid, BlockPlace, LBlock
from ooc_chol.cluster.connection import check_alive, distributed_package
from ooc_chol.cluster.tasks import Verdict
from ooc_chol.cluster.waiting import gathered
from ooc_chol.dense.stores.base import AbstractStore, check_tile, closed_error
from ooc_chol.errors import ClusterError, ScheduleError
from ooc_chol.formats import Floats, PrecisionFormat, decode
from ooc_chol.interfaces import BlockIndex
from ooc_chol.process.fork_safety import new_lock
from ooc_chol.tasks.windows import Window

#: Blocks that the client keeps at least, and bytes of more of them: neighbouring tiles are mostly asked for together.
LEAST_KEPT, KEPT_BYTES = 2, 256 << 20
#: Bytes of a block from which on it comes in pieces of about :data:`KEPT_BYTES`.
MOST_BLOCK_BYTES = 2 << 30


@final
class ClusterStore(AbstractStore):
    """L as futures of its blocks, which keep them on the workers until the store is closed.

    The client keeps the two blocks that it read last, and more up to 256 MiB; of larger blocks pieces. Several threads may read;
    they wait for each other.
    """

    name = "cluster"

    def __init__(
        self,
        client: Any,
        blocks: BlockGrid,
        futures: Mapping[BlockPlace, Any],
        *,
        fmt: PrecisionFormat,
        formats: tuple[PrecisionFormat, ...] | None = None,
        release: Callable[[], None],
        shares_memory: bool = False,
    ) -> None:
        self.grid, self.fmt, self._formats = blocks.tiles, fmt, formats
        self.blocks, self.client = blocks, client
        #: Every block on the workers; none once the store is closed.
        self.futures: dict[BlockPlace, Any] | None = dict(futures)
        self._release, self._shares_memory = release, shares_memory
        self._piece_height = _piece_height(blocks, fmt)
        self._kept: OrderedDict[Window, LBlock] = OrderedDict()  # by the piece that it is, or the whole block
        self._lock = new_lock()

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        return self._formats

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        fmt, columns = self.format_of(index), self.grid.size(index[1])
        check_tile(out, (len(rows), columns), fmt, self.fmt)
        tile = self._tile(index)
        if fmt == self.fmt:
            np.copyto(out, tile.reshape(-1, columns)[rows.start : rows.stop])
        else:
            decode(tile.reshape(-1).view(np.uint8), fmt, slice(rows.start * columns, rows.stop * columns), out)

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        np.copyto(out, self._tile(index).reshape(-1).view(np.uint8))

    def _tile(self, index: BlockIndex) -> NDArray[Any]:
        """A tile as it is stored, in a block or a piece that the client has."""
        tiles = self._piece(Window(*map(self._span, index))).tiles
        assert tiles is not None
        return tiles[index[0], index[1]]

    def _span(self, row: int) -> range:
        """Tile rows of the piece that has one: those of its block row, or a part of them."""
        block = self.blocks.span(row // self.blocks.height)
        first = row - (row - block.start) % self._piece_height
        return range(first, min(first + self._piece_height, block.stop))

    def _piece(self, window: Window) -> LBlock:
        """A block or a piece of one, from the workers unless it is here."""
        with self._lock:
            if self.futures is None:
                raise closed_error(self.name)
            if window not in self._kept:
                self._kept[window] = self._fetched(window, self.futures)
                self._forget()
            self._kept.move_to_end(window)
            return self._kept[window]

    def _fetched(self, window: Window, futures: Mapping[BlockPlace, Any]) -> LBlock:
        """A piece from a worker; Dask makes its block again where that is gone."""
        distributed, place = distributed_package(), BlockPlace(*(span.start // self.blocks.height for span in window))
        check_alive(self.client)
        try:
            block = gathered(self.client, self._as_bytes(futures[place], None if window == self.blocks.window(place) else window))
        except (distributed.client.FutureCancelledError, distributed.CancelledError, distributed.KilledWorker) as error:
            raise ClusterError(
                f"block ({place.row}, {place.column}) of L is lost ({error})",
                "factor again; an L that must outlive its workers goes to a Zarr group (store=)",
            ) from error
        if isinstance(block, Verdict):
            raise block.error
        assert isinstance(block, LBlock)
        return block

    def _as_bytes(self, future: Any, window: Window | None) -> Any:
        """Future of a block, or of its tiles in a window, as bytes: they may come by way of the scheduler, from elsewhere."""
        if window is None and not self._shares_memory:
            return future
        return self.client.submit(sent_block, future, window, pure=False, priority=1)

    def _forget(self) -> None:
        """Let go of the blocks that were read longest ago."""
        while len(self._kept) > LEAST_KEPT and sum(block.nbytes for block in self._kept.values()) > KEPT_BYTES:
            self._kept.popitem(last=False)

    def write(self, index: BlockIndex, data: Floats) -> None:
        """Refuse: L is final."""
        raise ScheduleError("blocks on a cluster are written by the tasks that make them")

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Refuse: L is final."""
        raise ScheduleError("blocks on a cluster are of the formats that their tasks gave them")

    def complete(self) -> None:
        """Do nothing: all blocks are final."""

    def close(self) -> None:
        """Let the workers forget L; a second call does nothing."""
        with self._lock:
            futures, self.futures = self.futures, None
            self._kept.clear()
        if futures is not None:
            futures.clear()
            self._release()

    def discard(self) -> None:
        """Close the store."""
        self.close()


def sent_block(block: LBlock | Verdict, window: Window | None) -> LBlock | Verdict:
    """A block, or its tiles in a window, which go as their bytes wherever they go."""
    if isinstance(block, Verdict):
        return block
    if window is not None:
        assert block.tiles is not None
        tiles = {(i, j): block.tiles[i, j] for i, j in window.tiles()}
        return LBlock(window, tiles, None, block.seconds, block.link_bytes, block.worker)
    from ooc_chol.cluster.shared_blocks import without_memory  # needs Dask

    return without_memory(block)


def _piece_height(blocks: BlockGrid, fmt: PrecisionFormat) -> int:
    """Tile rows and columns of what is read at a time: a block, or a part of a large one."""
    nb = blocks.tiles.nb
    if fmt.itemsize * (blocks.height * nb) ** 2 <= MOST_BLOCK_BYTES:
        return blocks.height
    return max(1, isqrt(KEPT_BYTES // fmt.itemsize) // nb)
