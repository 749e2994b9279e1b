"""The tiers that hold L in memory: packed, or over the lower triangle of the user's own array."""

from __future__ import annotations

import os
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import BudgetError
from ooc_chol.memory.store_base import AbstractStore, check_tile, closed_error
from ooc_chol.memory.store_file import TILE_ALIGNMENT, TileLayout
from ooc_chol.tiling import TileGrid

#: Order of the sub-blocks of a diagonal tile that are copied through a mask; all others are copied whole.
_MASKED_ORDER = 64
_LOWER = np.tri(_MASKED_ORDER, dtype=bool)


@final
class MemoryStore(AbstractStore):
    """L packed in one allocation of ordinary memory, every tile at a page.

    Parameters
    ----------
    grid : TileGrid
        Tiles of L.

    Raises
    ------
    BudgetError
        The system does not grant that much memory.

    Notes
    -----
    ``TileLayout(grid).end`` bytes. Pages that were never written hold no memory.
    """

    name = "memory"
    ordered_by_events = True

    def __init__(self, grid: TileGrid) -> None:
        self.grid = grid
        self.layout = TileLayout(grid)
        self._bytes: NDArray[np.uint8] | None = _allocate_aligned(self.layout.end)

    @property
    def nbytes(self) -> int:
        """Bytes of the allocation that hold tiles."""
        return self.layout.end

    def view(self, index: tuple[int, int]) -> NDArray[np.float64]:
        """Tile ``index`` in place, row-major; writing into it changes L.

        Raises
        ------
        TierError
            The store is closed.
        """
        if self._bytes is None:
            raise closed_error(self.name)
        start = self.layout.offset(*index)
        raw = self._bytes[start : start + self.layout.nbytes(*index)]
        return raw.view(np.float64).reshape(self.grid.shape(*index))

    def host_memory(self) -> NDArray[np.uint8] | None:
        """All tiles and the unused bytes between them, as whole pages; None once the store is closed."""
        return self._bytes

    def read(self, index: tuple[int, int], out: NDArray[np.float64]) -> None:
        """Copy tile ``index`` into ``out``."""
        check_tile(out, self.grid.shape(*index))
        np.copyto(out, self.view(index))

    def read_rows(self, index: tuple[int, int], rows: range, out: NDArray[np.float64]) -> None:
        """Copy rows ``rows`` of tile ``index`` into ``out``."""
        check_tile(out, (len(rows), self.grid.size(index[1])))
        np.copyto(out, self.view(index)[rows.start : rows.stop])

    def write(self, index: tuple[int, int], data: NDArray[np.float64]) -> None:
        """Copy ``data`` into tile ``index``."""
        check_tile(data, self.grid.shape(*index))
        np.copyto(self.view(index), data)

    def complete(self) -> None:
        """Nothing to do: memory is as durable as it gets."""

    def discard(self) -> None:
        """Free the memory."""
        self.close()

    def close(self) -> None:
        """Free the memory once no view is left; a second call does nothing."""
        self._bytes = None


def _allocate_aligned(nbytes: int) -> NDArray[np.uint8]:
    """``nbytes`` uninitialised bytes that start at a page."""
    try:
        raw = np.empty(nbytes + TILE_ALIGNMENT, dtype=np.uint8)
    except MemoryError as error:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        advice = "keep L in a file (store=) or over A (overwrite=True)"
        raise BudgetError("host memory for L", nbytes, free, advice) from error
    skip = -raw.ctypes.data % TILE_ALIGNMENT
    return raw[skip : skip + nbytes]


@final
class OverwriteStore(AbstractStore):
    """L over the lower triangle of the user's array; the strict upper triangle is neither read nor written.

    Parameters
    ----------
    a : (n, n) array
        Writable float64 array of any strides.
    grid : TileGrid
        Tiles of L, of the same ``n``.

    Raises
    ------
    TypeError
        ``a`` is no float64 array.
    ValueError
        ``a`` is not ``(n, n)``, read-only, or its entries share memory.
    """

    name = "array"
    ordered_by_events = True

    def __init__(self, a: NDArray[np.float64], grid: TileGrid) -> None:
        if not isinstance(a, np.ndarray) or a.dtype != np.float64:
            kind = a.dtype if isinstance(a, np.ndarray) else type(a).__name__
            raise TypeError(f"L can be written over a NumPy float64 array only, not {kind}; leave overwrite=True out")
        if a.shape != (grid.n, grid.n):
            raise ValueError(f"L of order {grid.n} cannot be written over an array of shape {a.shape}")
        if not a.flags.writeable:
            raise ValueError(
                "L cannot be written over a read-only array; leave overwrite=True out, or open it writable (mode 'r+')"
            )
        if grid.n > 1 and 0 in a.strides:
            raise ValueError(f"L cannot be written over an array whose entries share memory (strides {a.strides}); pass a copy")
        self.grid = grid
        self._a: NDArray[np.float64] | None = a

    @property
    def nbytes(self) -> int:
        """Bytes that the store needs beside the user's array: none."""
        return 0

    def view(self, index: tuple[int, int]) -> None:
        """None: tiles of the array are not contiguous, and above its diagonal are not ours."""
        return None

    def read(self, index: tuple[int, int], out: NDArray[np.float64]) -> None:
        """Copy tile ``index`` into ``out``; the strict upper part of a diagonal tile becomes zero."""
        self.read_rows(index, range(self.grid.size(index[0])), out)

    def read_rows(self, index: tuple[int, int], rows: range, out: NDArray[np.float64]) -> None:
        """Copy rows ``rows`` of tile ``index`` into ``out``; strict upper entries become zero."""
        check_tile(out, (len(rows), self.grid.size(index[1])))
        tile = self._tile(index)[rows.start : rows.stop]
        if index[0] != index[1]:
            np.copyto(out, tile)
            return
        out[...] = 0.0
        _copy_lower(out, tile, rows.start)

    def write(self, index: tuple[int, int], data: NDArray[np.float64]) -> None:
        """Copy ``data`` over tile ``index``, of a diagonal tile the lower part only."""
        check_tile(data, self.grid.shape(*index))
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
        """Let go of the array; a second call does nothing."""
        self._a = None

    def _tile(self, index: tuple[int, int]) -> NDArray[np.float64]:
        if self._a is None:
            raise closed_error(self.name)
        rows, columns = self.grid.span(index[0]), self.grid.span(index[1])
        return self._a[rows.start : rows.stop, columns.start : columns.stop]


def _copy_lower(target: NDArray[np.float64], source: NDArray[np.float64], first_row: int) -> None:
    """Copy the entries on and below the diagonal; row 0 of both is row ``first_row`` of the diagonal tile."""
    for top in range(0, target.shape[0], _MASKED_ORDER):
        rows = slice(top, min(top + _MASKED_ORDER, target.shape[0]))
        left = first_row + top
        columns = slice(left, first_row + rows.stop)
        order = rows.stop - top
        target[rows, :left] = source[rows, :left]
        np.copyto(target[rows, columns], source[rows, columns], where=_LOWER[:order, :order])
