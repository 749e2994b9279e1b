"""Kernels for products of packed row blocks with vectors, on whatever device."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeAlias

from ooc_chol.interfaces import AbstractDevice, AbstractDeviceKernels, AbstractStream, Tile
from ooc_chol.precision.triples import Precision
from ooc_chol.tasks.row_blocks import RowBlock

#: Columns of the panels that kernels take; more columns are several panels.
PANEL_COLUMNS = (1, 2, 4, 8)


class AbstractProductKernels(AbstractDeviceKernels):
    """Products of one precision; a panel is a row-major array of 1, 2, 4 or 8 columns of the type of storage.

    Workspace, :meth:`workspace_bytes`, is what partial sums of segments of long rows take in the largest block, for one stream.
    """

    precision: Precision
    #: Most columns of a panel, and most segments of a block, for which there is workspace.
    columns: int
    most_segments: int

    @abstractmethod
    def multiply(
        self,
        stream: AbstractStream,
        block: RowBlock,
        data: Tile,
        x: Tile,
        y: Tile,
        *,
        left: Tile | float = 1.0,
        shift: Tile | float = 0.0,
    ) -> None:
        """Enqueue ``y = shift * y + left * (A x)`` for the rows of one block, rounded once; with ``shift`` 0.0 y is only written.

        Parameters
        ----------
        data : (nbytes,) uint8
            The bytes of the block.
        x : (n_columns, b) Tile
            A panel with a row for each column of the matrix.
        y : (block.n_rows, b) Tile
            The panel's rows that the block makes.
        left, shift : float or (block.n_rows,) float64 Tile
            One number for all rows, or one for each row of the block.
        """

    @abstractmethod
    def scale(self, stream: AbstractStream, factors: Tile, x: Tile) -> None:
        """Enqueue ``x[i, :] *= factors[i]``, factors of float64, the product rounded once."""


#: A device that multiplies packed row blocks.
ProductDevice: TypeAlias = AbstractDevice[AbstractProductKernels]
