"""Base of every tier that holds L."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import ClosedError
from ooc_chol.formats import FP64, Floats, PrecisionFormat
from ooc_chol.interfaces import AbstractTier, BlockIndex, Tile
from ooc_chol.tasks.tiling import TileGrid


class AbstractStore(AbstractTier):
    """A tier for L: written tile by tile during a run, then read by the factor.

    Tiles are given and taken in the type of :attr:`fmt`; in mixed precision as float64, those of a narrower format also as
    float32, and rounded to their format when written.
    """

    #: How L is cut into tiles.
    grid: TileGrid
    #: Format of what is given and taken, and of all tiles where :attr:`formats` is None.
    fmt: PrecisionFormat = FP64

    @property
    @abstractmethod
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        """Format of every tile in packed order, as it is now; None when all are of :attr:`fmt`."""

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        """Format in which tile ``index`` is stored."""
        formats = self.formats
        return self.fmt if formats is None else formats[self.grid.packed(*index)]

    def view(self, index: BlockIndex) -> NDArray[Any] | None:
        """Tile ``index`` in place as a row-major contiguous array, or None, as here, when it must be read."""
        return None

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the GPUs in whose memory L lies; none for host memory and files."""
        return ()

    def tile_on(self, device: str, index: BlockIndex) -> Tile | None:
        """Tile ``index`` of :attr:`fmt` in place, where it lies in that device's memory; None elsewhere and of other formats."""
        return None

    def row_on(self, device: str, i: int) -> Tile | None:
        """Tiles ``(i, 0)`` to ``(i, i - 1)`` of :attr:`fmt` in place, one array of three dimensions with steps of any length.

        None where they do not lie in that device's memory so.
        """
        return None

    @abstractmethod
    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Store these tiles in FP64 from now on: each must be written again before it is read. FP64 ones stay as they are.

        Other tiles stay where they are, so that other threads may go on with them.
        """

    def read(self, index: BlockIndex, out: Floats) -> None:
        self.read_rows(index, range(self.grid.size(index[0])), out)

    @abstractmethod
    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        """Fill ``out`` with rows ``rows`` of tile ``index``, counted within the tile, step 1."""

    def read_diagonal(self, k: int, out: NDArray[np.float64]) -> None:
        """Fill ``out`` with the diagonal of tile ``(k, k)``, which is of :attr:`fmt`, and real."""
        tile = self.view((k, k))
        if tile is None:
            self.read((k, k), tile := np.empty(self.grid.shape(k, k), self.fmt.dtype))
        out[...] = tile.diagonal().real

    def describe(self, arithmetic_key: Mapping[str, Any]) -> None:
        """Replace the arithmetic key that was given when the store was made, before :meth:`complete`; memory keeps none."""

    def forget(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Let these tiles be unwritten again, durably, in a store that is kept: they are to be computed anew."""

    def settle(self) -> None:
        """Wait until all that was written is where it is kept."""

    def flush(self) -> None:
        """Make durable what was written until now."""

    @abstractmethod
    def complete(self) -> None:
        """Make what was written durable, once every tile is; from then on the store is only read."""

    def result(self) -> AbstractStore:
        """The store that a factor has, once this one is complete: another one where that holds all by then."""
        return self

    @abstractmethod
    def discard(self) -> None:
        """Close a store whose run has failed, and remove what it leaves behind. A completed store is only closed."""


def check_tile(tile: Floats, shape: tuple[int, int], fmt: PrecisionFormat = FP64, wide: PrecisionFormat = FP64) -> None:
    """Raise ValueError unless ``tile`` is a row-major contiguous array of ``shape``: of ``wide``, or for narrow ones float32."""
    is_narrow = fmt.itemsize < wide.itemsize
    fits = tile.dtype == wide.dtype or (is_narrow and tile.dtype == np.float32)
    if tile.shape != shape or not fits or not tile.flags.c_contiguous:
        order = "row-major contiguous" if tile.flags.c_contiguous else "not row-major contiguous"
        kinds = f"{wide.dtype} or float32" if is_narrow else f"{wide.dtype}"
        raise ValueError(
            f"the tile buffer is {tile.dtype} {tile.shape}, {order}; needed is a row-major contiguous {kinds} {shape}"
        )


def check_stored(data: NDArray[np.uint8], nbytes: int) -> None:
    """Raise ValueError unless ``data`` holds exactly the ``nbytes`` bytes of a stored tile, contiguous."""
    if data.shape != (nbytes,) or data.dtype != np.uint8 or not data.flags.c_contiguous:
        raise ValueError(f"the buffer is {data.dtype} {data.shape}; a stored tile is contiguous uint8 of shape {(nbytes,)}")


def closed_error(name: str) -> ClosedError:
    """Describe the use of store ``name`` after its end."""
    return ClosedError(f"the {name} store of L is closed; use the factor before closing it, or save it and load the file")
