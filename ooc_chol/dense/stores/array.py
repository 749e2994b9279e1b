"""The tiers that hold L in memory: packed, or over the lower triangle of the user's own array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.stores.base import AbstractStore, check_stored, check_tile, closed_error
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.formats import FP64, Floats, PrecisionFormat, decode, encode
from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar, BlockIndex
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.pages import allocate_aligned
from ooc_chol.tasks.tiling import TileGrid

#: Order of the sub-blocks of a diagonal tile that are copied through a mask; all others are copied whole.
_MASKED_ORDER = 64
_LOWER = np.tri(_MASKED_ORDER, dtype=bool)


@final
class MemoryStore(AbstractStore):
    """L packed in one allocation of ordinary memory, every tile at a page.

    ``TileLayout(grid, formats=formats).end`` bytes. Pages that were never written hold no memory; from 8 MiB on they are
    huge ones, of 2 MiB, where the system has them. Widened tiles get memory of their own: the first allocation never moves, since
    a device may have page-locked it.
    """

    name = "memory"

    def __init__(
        self,
        grid: TileGrid,
        formats: Sequence[PrecisionFormat] | None = None,
        memory: HostMemory | None = None,
        *,
        fmt: PrecisionFormat = FP64,
    ) -> None:
        self.grid, self.fmt = grid, fmt
        self.layout = TileLayout(grid, formats=None if formats is None else tuple(formats), fmt=fmt)
        self.memory, self._is_own = memory or HostMemory(), memory is None
        self._bytes: NDArray[np.uint8] | None = self.memory.take(self, self.layout.end)
        #: Widened tiles, outside the first allocation.
        self._widened: dict[BlockIndex, NDArray[np.uint8]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the allocations that hold tiles."""
        return self.layout.end

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        return self.layout.present_formats

    def view(self, index: BlockIndex) -> NDArray[Any] | None:
        """Tile ``index`` of :attr:`fmt` in place, row-major; writing into it changes L. None for a tile of another format."""
        if self._bytes is not None and self.layout.formats is None:  # in one step: small solves ask often
            return np.ndarray(self.grid.shape(*index), self.fmt.dtype, self._bytes, self.layout.offset(*index))
        raw = self.stored(index)
        return raw.view(self.fmt.dtype).reshape(self.grid.shape(*index)) if self.format_of(index) == self.fmt else None

    def stored(self, index: BlockIndex) -> NDArray[np.uint8]:
        """The bytes of tile ``index`` in its format, in place; writing into them changes L."""
        if self._bytes is None:
            raise closed_error(self.name)
        widened = self._widened.get((index[0], index[1]))
        if widened is not None:
            return widened
        start = self.layout.offset(*index)
        return self._bytes[start : start + self.layout.nbytes(*index)]

    def host_memory(self) -> NDArray[np.uint8] | None:
        """All tiles but widened ones and the unused bytes between them, as whole pages; None once the store is closed."""
        return self._bytes

    def lock(self, registrar: AbstractRegistrar, order: Iterable[tuple[int, int]]) -> None:
        """Begin to page-lock the tiles, those of ``order`` first; copies wait for the piece that they need."""
        ranges = ((start := self.layout.offset(*index), start + self.layout.nbytes(*index)) for index in order)
        self.memory.lock(registrar, self.layout.end, ranges)

    def locking(self) -> AbstractLocking | None:
        """The page-locking of all tiles but widened ones, once it has begun."""
        return None if self._bytes is None else self.memory.locking

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        fmt, columns = self.format_of(index), self.grid.size(index[1])
        check_tile(out, (len(rows), columns), fmt, self.fmt)
        tile = self.view(index)
        if tile is not None:
            np.copyto(out, tile[rows.start : rows.stop])
        else:
            decode(self.stored(index), fmt, slice(rows.start * columns, rows.stop * columns), out)

    def write(self, index: BlockIndex, data: Floats) -> None:
        """Copy ``data`` into tile ``index``, rounded to its format."""
        fmt = self.format_of(index)
        check_tile(data, self.grid.shape(*index), fmt, self.fmt)
        tile = self.view(index)
        if tile is not None:
            np.copyto(tile, data)
        else:
            encode(data, fmt, self.stored(index))

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        stored = self.stored(index)
        check_stored(out, len(stored))
        np.copyto(out, stored)

    def write_stored(self, index: BlockIndex, data: NDArray[np.uint8]) -> None:
        """Copy ``data`` over the stored bytes of tile ``index``."""
        stored = self.stored(index)
        check_stored(data, len(stored))
        np.copyto(stored, data)

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Widen them in one more allocation."""
        if self._bytes is None:
            raise closed_error(self.name)
        layout = self.layout.with_wider(tiles)
        memory = allocate_aligned(layout.end - self.layout.end)
        for i, j in layout.widened[len(self.layout.widened) :]:
            start = layout.offset(i, j) - self.layout.end
            self._widened[i, j] = memory[start : start + layout.nbytes(i, j)]
        self.layout = layout

    def complete(self) -> None:
        """Nothing to do: memory is as durable as it gets."""

    def discard(self) -> None:
        """Free the memory, of which nothing lasts anyway."""
        self.close()

    def close(self) -> None:
        """Give the memory up or back; a second call does nothing. What is page-locked is freed some seconds later."""
        if self._bytes is not None:
            self.memory.give_back()
            if self._is_own:
                self.memory.close()
        self._bytes = None
        self._widened = {}


@final
class OverwriteStore(AbstractStore):
    """L over the lower triangle of the user's array, in its type; the strict upper triangle is neither read nor written."""

    name = "array"

    def __init__(self, a: NDArray[Any], grid: TileGrid, fmt: PrecisionFormat = FP64) -> None:
        if not isinstance(a, np.ndarray) or a.dtype != fmt.dtype:
            kind = a.dtype if isinstance(a, np.ndarray) else type(a).__name__
            raise TypeError(f"L can be written over a NumPy {fmt.dtype} array only, not {kind}; leave overwrite=True out")
        if a.shape != (grid.n, grid.n):
            raise ValueError(f"L of order {grid.n} cannot be written over an array of shape {a.shape}")
        if not a.flags.writeable:
            raise ValueError(
                "L cannot be written over a read-only array; leave overwrite=True out, or open it writable (mode 'r+')"
            )
        if grid.n > 1 and 0 in a.strides:
            raise ValueError(f"L cannot be written over an array whose entries share memory (strides {a.strides}); pass a copy")
        self.grid, self.fmt = grid, fmt
        self._a: NDArray[Any] | None = a

    @property
    def nbytes(self) -> int:
        """Bytes that the store needs beside the user's array: none."""
        return 0

    @property
    def formats(self) -> None:
        """Always None, as all tiles lie in an array of one type."""
        return None

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Nothing to do: all tiles are of the array's type."""

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        """Copy rows ``rows`` of tile ``index`` into ``out``; strict upper entries become zero."""
        check_tile(out, (len(rows), self.grid.size(index[1])), self.fmt, self.fmt)
        tile = self._tile(index)[rows.start : rows.stop]
        if index[0] != index[1]:
            np.copyto(out, tile)
            return
        out[...] = 0.0
        _copy_lower(out, tile, rows.start)

    def write(self, index: BlockIndex, data: Floats) -> None:
        """Copy ``data`` over tile ``index``, of a diagonal tile the lower part only."""
        check_tile(data, self.grid.shape(*index), self.fmt, self.fmt)
        if index[0] != index[1]:
            np.copyto(self._tile(index), data)
        else:
            _copy_lower(self._tile(index), data, 0)

    def complete(self) -> None:
        """Flush an array that is a map of a file."""
        if isinstance(self._a, np.memmap):
            self._a.flush()

    def discard(self) -> None:
        """Let go of the array; its lower triangle holds a mixture of A and L."""
        self.close()

    def close(self) -> None:
        self._a = None

    def _tile(self, index: BlockIndex) -> NDArray[Any]:
        if self._a is None:
            raise closed_error(self.name)
        rows, columns = self.grid.span(index[0]), self.grid.span(index[1])
        return self._a[rows.start : rows.stop, columns.start : columns.stop]


def _copy_lower(target: Floats, source: Floats, first_row: int) -> None:
    """Copy the entries on and below the diagonal; row 0 of both is row ``first_row`` of the diagonal tile."""
    for top in range(0, target.shape[0], _MASKED_ORDER):
        rows = slice(top, min(top + _MASKED_ORDER, target.shape[0]))
        left = first_row + top
        columns = slice(left, first_row + rows.stop)
        order = rows.stop - top
        target[rows, :left] = source[rows, :left]
        np.copyto(target[rows, columns], source[rows, columns], where=_LOWER[:order, :order])
