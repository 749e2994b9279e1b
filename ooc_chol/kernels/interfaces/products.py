"""Kernels for products of packed row blocks with vectors, on whatever device."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeAlias

import numpy as np

from ooc_chol.interfaces import AbstractDevice, AbstractDeviceKernels, AbstractStream, Tile
from ooc_chol.precision.triples import Precision
from ooc_chol.tasks.row_blocks import RowBlock

#: Columns of the panels that kernels take; more columns are several panels.
PANEL_COLUMNS = (1, 2, 4, 8)


class AbstractProductKernels(AbstractDeviceKernels):
    """Products of one precision; a panel is a row-major array of 1, 2, 4 or 8 columns of the type of storage.

    Workspace is for one stream. ``workspace_bytes(nb)`` is what kernels need to multiply panels x of ``nb`` rows, as many as the
    matrix has columns: partial sums of segments of long rows in the largest block, or what is made of x by :meth:`prepare`. Who
    opens a device gives the same ``nb`` to ``allocate``, and counts these bytes in its plan.
    """

    precision: Precision
    #: Most columns of all panels that are prepared at a time, and most places for sums of segments in a block
    #: (:attr:`RowBlock.segment_places`), for which there is workspace.
    columns: int
    most_segments: int

    def prepare(self, stream: AbstractStream, x: Tile) -> None:
        """Enqueue what is to be done once with a panel, before the products of all blocks with it, and again when it has changed.

        Panels of up to ``columns`` columns together stay prepared; more than that take the place of all earlier ones.
        """

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

        Every entry is multiplied by its value, also in a pattern whose value is not 1: the bits do not depend on the kind in
        which the values of a block happen to be stored. ``data`` are the bytes of the block, ``x`` (n_columns, b) is as it was
        when it was given to :meth:`prepare`, ``y`` (block.n_rows, b) the rows that the block makes; ``left`` and ``shift`` are
        numbers, or float64 by row of the block.
        """

    @abstractmethod
    def scale(self, stream: AbstractStream, factors: Tile, x: Tile) -> None:
        """Enqueue ``x[i, :] *= factors[i]``, factors of float64, the product rounded once."""


def check_panel(kernels: AbstractProductKernels, name: str, x: Tile) -> None:
    """Refuse what is no panel of the type of storage."""
    storage = kernels.precision.storage
    if x.dtype != storage or x.ndim != 2 or x.shape[1] not in PANEL_COLUMNS or not x.flags.c_contiguous:
        raise ValueError(
            f"{name} is {x.dtype} of shape {x.shape}, but a panel in {kernels.precision.value} is row-major {storage} of "
            f"{', '.join(map(str, PANEL_COLUMNS))} columns"
        )


def check_product(kernels: AbstractProductKernels, block: RowBlock, data: Tile, x: Tile, y: Tile) -> None:
    """Refuse what kernels would read or write outside of."""
    check_panel(kernels, "x", x)
    check_panel(kernels, "y", y)
    if y.shape != (block.n_rows, x.shape[1]):
        raise ValueError(f"y has shape {y.shape}, but the block's rows of the product are {(block.n_rows, x.shape[1])}")
    if data.nbytes < block.nbytes:
        raise ValueError(f"{data.nbytes} bytes are not the block's {block.nbytes}")


def check_factors(kernels: AbstractProductKernels, factors: Tile, x: Tile) -> None:
    """Refuse what scales no panel."""
    check_panel(kernels, "x", x)
    if factors.shape != x.shape[:1] or factors.dtype != np.float64:
        raise ValueError(f"{factors.shape} factors of {factors.dtype} cannot scale a panel of shape {x.shape}: give float64")


#: A device that multiplies packed row blocks.
ProductDevice: TypeAlias = AbstractDevice[AbstractProductKernels]
