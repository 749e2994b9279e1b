"""What every tier that holds L has in common."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import TierError
from ooc_chol.interfaces import AbstractTier
from ooc_chol.tiling import TileGrid


class AbstractStore(AbstractTier):
    """A tier for L: written tile by tile during a run, then read by the factor."""

    #: Tiles of L.
    grid: TileGrid

    @abstractmethod
    def view(self, index: tuple[int, int]) -> NDArray[np.float64] | None:
        """Tile ``index`` in place as a row-major contiguous array, or None when tiles must be read."""

    @abstractmethod
    def read_rows(self, index: tuple[int, int], rows: range, out: NDArray[np.float64]) -> None:
        """Fill ``out`` with rows ``rows`` of tile ``index``, counted within the tile, step 1.

        Raises
        ------
        TierError
            The bytes cannot be read.
        """

    @abstractmethod
    def complete(self) -> None:
        """Make what was written durable, once every tile is; from then on the store is only read.

        Raises
        ------
        TierError
            The bytes cannot be made durable.
        """

    @abstractmethod
    def discard(self) -> None:
        """Close a store whose run has failed, and remove what it leaves behind. A completed store is only closed."""


def check_tile(tile: NDArray[np.float64], shape: tuple[int, int]) -> None:
    """Raise ValueError unless ``tile`` is a row-major contiguous float64 array of ``shape``."""
    if tile.shape != shape or tile.dtype != np.float64 or not tile.flags.c_contiguous:
        order = "row-major contiguous" if tile.flags.c_contiguous else "not row-major contiguous"
        raise ValueError(
            f"the tile buffer is {tile.dtype} {tile.shape}, {order}; needed is a row-major contiguous float64 {shape}"
        )


def closed_error(name: str) -> TierError:
    """Describe the use of store ``name`` after its end."""
    return TierError(f"the {name} store of L is closed; use the factor before closing it, or save it and load the file")
