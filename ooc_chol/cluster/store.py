"""L in the memory of a cluster's workers, as the client reads it: a block comes here when a tile of it is asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
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

#: Blocks that the client keeps at least, and bytes of more of them: neighbouring tiles are mostly asked for together.
LEAST_KEPT, KEPT_BYTES = 2, 256 << 20


@final
class ClusterStore(AbstractStore):
    """L as futures of its blocks, which keep them on the workers until the store is closed.

    The client keeps the two blocks that it read last, and more up to 256 MiB. Several threads may read; they wait for each other.
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
        self._kept: OrderedDict[BlockPlace, LBlock] = OrderedDict()
        self._lock = new_lock()

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        return self._formats

    def view(self, index: BlockIndex) -> None:
        """Nothing lies in this process."""
        return None

    def read(self, index: BlockIndex, out: Floats) -> None:
        self.read_rows(index, range(self.grid.size(index[0])), out)

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
        """A tile as it is stored, in a block that the client has."""
        height = self.blocks.height
        tiles = self._block(BlockPlace(index[0] // height, index[1] // height)).tiles
        assert tiles is not None
        return tiles[index[0], index[1]]

    def _block(self, place: BlockPlace) -> LBlock:
        """A block, from the workers unless it is here."""
        with self._lock:
            if self.futures is None:
                raise closed_error(self.name)
            if place not in self._kept:
                self._kept[place] = self._fetched(place, self.futures[place])
                self._forget()
            self._kept.move_to_end(place)
            return self._kept[place]

    def _fetched(self, place: BlockPlace, future: Any) -> LBlock:
        """A block from a worker; Dask makes it again where that is gone."""
        distributed = distributed_package()
        check_alive(self.client)
        try:
            block = gathered(self.client, self._as_bytes(future))
        except (distributed.client.FutureCancelledError, distributed.CancelledError, distributed.KilledWorker) as error:
            raise ClusterError(
                f"block ({place.row}, {place.column}) of L is lost ({error})",
                "factor again; an L that must outlive its workers goes to a Zarr group (store=)",
            ) from error
        if isinstance(block, Verdict):
            raise block.error
        assert isinstance(block, LBlock)
        return block

    def _as_bytes(self, future: Any) -> Any:
        """Future of a block as bytes, for this process: it may come by way of the scheduler, from another machine."""
        if not self._shares_memory:
            return future
        from ooc_chol.cluster.shared_blocks import without_memory  # needs Dask

        return self.client.submit(without_memory, future, pure=False, priority=1)

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
