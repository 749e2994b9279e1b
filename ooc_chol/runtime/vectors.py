"""Vectors by the side of blocks: (n, s) arrays on a device, brought there and back in blocks of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP64, TYPES, PrecisionFormat
from ooc_chol.interfaces import AbstractStream, AbstractTier, AnyDevice, ArraySpec, BlockIndex, Tile


@final
class Columns(AbstractTier):
    """Some columns of a host array as blocks of rows: block ``(b, 0)`` has rows ``b height`` and so on. Shapes: ``x`` (n, m)."""

    name = "columns"

    def __init__(self, x: NDArray[Any], columns: slice, height: int) -> None:
        self._x, self._columns, self.height = x, columns, height

    def __len__(self) -> int:
        return -(-len(self._x) // self.height)

    def rows(self, block: int) -> slice:
        """The rows of a block."""
        return slice(block * self.height, min((block + 1) * self.height, len(self._x)))

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        return TYPES[self._x.dtype.name]

    def view(self, index: BlockIndex) -> NDArray[Any]:
        return self._x[self.rows(index[0]), self._columns]

    def host_memory(self) -> NDArray[Any]:
        """The array itself, to be page-locked as a whole."""
        return self._x

    def read(self, index: BlockIndex, out: NDArray[Any]) -> None:
        out[...] = self.view(index)

    def write(self, index: BlockIndex, data: NDArray[Any]) -> None:
        self.view(index)[...] = data


def vector_arrays(shape: tuple[int, ...], count: int, fmt: PrecisionFormat = FP64) -> tuple[ArraySpec, ...]:
    """Arguments of :meth:`~ooc_chol.interfaces.AbstractDevice.allocate` for ``count`` arrays of one shape and format."""
    return (ArraySpec(fmt.dtype, shape),) * count


def zeros(rows: range, cols: range, out: Tile, stream: Any) -> None:
    """A tile function of zeros."""
    out[...] = 0.0


def copy_columns_in(
    device: AnyDevice, stream: AbstractStream, x: NDArray[Any], target: Tile, *, slot_bytes: int, columns: slice = slice(None)
) -> None:
    """Enqueue: fill ``target`` with columns of ``x``, in blocks of rows that fit staging buffers of a slot's size."""
    blocks = _blocks(x, columns, target, slot_bytes)
    for block in range(len(blocks)):
        device.copy_in(stream, blocks, (block, 0), target[blocks.rows(block)])


def copy_columns_out(
    device: AnyDevice, stream: AbstractStream, part: Tile, x: NDArray[Any], *, slot_bytes: int, columns: slice = slice(None)
) -> None:
    """Enqueue: copy ``part`` to columns of ``x``, in such blocks."""
    blocks = _blocks(x, columns, part, slot_bytes)
    for block in range(len(blocks)):
        device.copy_out(stream, part[blocks.rows(block)], blocks, (block, 0))


def _blocks(x: NDArray[Any], columns: slice, tile: Tile, slot_bytes: int) -> Columns:
    return Columns(x, columns, max(1, slot_bytes // (x.itemsize * tile.shape[1])))


def summed_vectors(device: AnyDevice, arrays: Sequence[Tile], slot_bytes: int) -> NDArray[np.float64]:
    """Copy arrays of one shape to the host, one after the other, and add them in order."""
    total, part, stream = np.zeros(arrays[0].shape), np.empty(arrays[0].shape), device.create_stream("vectors")
    for array in arrays:
        with device.current():
            copy_columns_out(device, stream, array, part, slot_bytes=slot_bytes)
            stream.synchronize()
        with np.errstate(over="ignore", invalid="ignore"):
            total += part
    return total
