"""A as a tier: a source, which is read by rectangles, cut into the tiles of a grid."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import TierError
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import AbstractLocking, AbstractTier, BlockIndex, Tile, TileFunction
from ooc_chol.memory.sources.base import STRIP_BYTES, AbstractSource
from ooc_chol.memory.sources.file import NpySource
from ooc_chol.memory.sources.function import FunctionSource
from ooc_chol.memory.sources.numbers import put_numbers
from ooc_chol.process.team import ThreadTeam
from ooc_chol.tasks.tiling import TileGrid


@final
class SourceTier(AbstractTier):
    """A source of A cut into tiles: a tier that is only read."""

    def __init__(self, source: AbstractSource, grid: TileGrid, fmt: PrecisionFormat = FP64) -> None:
        if source.n != grid.n:
            raise ValueError(f"the grid has order {grid.n}, but the source has order {source.n}")
        self.name = source.name
        self.source = source
        self.grid, self.fmt = grid, fmt
        #: The page-locking of A's memory for a run, set while there is one.
        self.locks: AbstractLocking | None = None

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        """The format in which tiles are computed."""
        return self.fmt

    def reads_file(self, index: BlockIndex) -> bool:
        """Tell whether A is in a file."""
        return self.source.name == NpySource.name

    def read(self, index: BlockIndex, out: NDArray[Any]) -> None:
        """Fill ``out`` with tile ``index`` of A, rounded where ``out`` is of a narrower type.

        A diagonal tile is read whole: its strict upper part may hold anything, and no later step reads it.
        """
        i, j = index
        self.source.read_block(self.grid.span(i), self.grid.span(j), out)

    def read_by(self, team: ThreadTeam, index: BlockIndex, out: NDArray[Any]) -> None:
        """Fill ``out`` by all threads of ``team`` where A is read faster so."""
        i, j = index
        self.source.read_block(self.grid.span(i), self.grid.span(j), out, team=team)

    def function_on(self, device: str) -> TileFunction:
        """Return what fills tiles on a device: :meth:`generate`, or CUDA source as it is, for which no stream is made current."""
        if isinstance(self.source, FunctionSource) and self.source.dtype == self.fmt.dtype:
            function = self.source.tile_function(on_host=device_kind(device).is_in_host_memory)
            if getattr(function, "takes_stream", False):
                return function
        return self.generate

    def generate(self, rows: range, cols: range, out: Tile, stream: Any) -> None:
        """Fill ``out`` by the source's tile function, on the host by way of its own type where ``out`` has another one."""
        made = self.source.dtype
        if not isinstance(out, np.ndarray) or out.dtype == made:
            self.source.function(rows, cols, out, stream)
            return
        height = max(1, STRIP_BYTES // (made.itemsize * len(cols)))
        strip = np.empty((min(height, len(rows)), len(cols)), made)
        for start in range(0, len(rows), height):
            part = rows[start : start + height]
            self.source.function(part, cols, strip[: len(part)], stream)
            put_numbers(strip[: len(part)], out[start : start + len(part)])

    def view(self, index: BlockIndex) -> NDArray[Any] | None:
        """Tile ``index`` of A in place, if it is in host memory in the type in which it is computed."""
        i, j = index
        return self.source.view(self.grid.span(i), self.grid.span(j)) if self.source.dtype == self.fmt.dtype else None

    def host_memory(self) -> NDArray[Any] | None:
        """The memory that holds A, if tiles are seen in place."""
        return self.source.host_memory() if self.source.dtype == self.fmt.dtype else None

    def locking(self) -> AbstractLocking | None:
        """The page-locking of A's memory in a run."""
        return self.locks

    def write(self, index: BlockIndex, data: NDArray[np.float64]) -> None:
        """Refuse to write, as A is only read."""
        raise TierError(
            f"tile {index} was to be written to A's source ({self.name}), which is read-only; write to the store of L"
        )

    def close(self) -> None:
        self.source.close()
