"""The store of an L that stays in the memory of the GPUs that made it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.dense.stores.base import AbstractStore, check_stored, check_tile, closed_error
from ooc_chol.dense.stores.layout import mixed_formats
from ooc_chol.formats import FP64, Floats, PrecisionFormat, decode, encode
from ooc_chol.hardware.registry import keep_on_device
from ooc_chol.interfaces import AbstractDeviceMemory, BlockIndex, DeviceBlock, Tile
from ooc_chol.tasks.tiling import TileGrid


@final
class DeviceStore(AbstractStore):
    """L in tiles on GPUs, each tile row on the one that makes it; copies to the host are made when asked for.

    Raises ``BudgetError``: a GPU has too little memory.
    """

    name = "device"

    def __init__(
        self,
        grid: TileGrid,
        devices: Sequence[str],
        owners: Sequence[int],
        formats: Sequence[PrecisionFormat] | None = None,
        fmt: PrecisionFormat = FP64,
    ) -> None:
        self.grid, self.fmt = grid, fmt
        self._formats = mixed_formats(grid, formats)
        self._places: dict[tuple[int, int], tuple[int, int]] = {}  # the memory of a tile, and its first byte there
        ends = [0] * len(devices)
        for i, j in grid.tiles():
            number = owners[i]
            self._places[i, j] = number, ends[number]
            ends[number] += whole_pages(self.format_of((i, j)).stored_bytes(grid.entries(i, j)))
        self._memory: list[AbstractDeviceMemory] = []
        try:
            for name, nbytes in zip(devices, ends, strict=True):
                self._memory.append(keep_on_device(name, max(nbytes, 1)))
        except BaseException:
            self.close()
            raise

    @property
    def nbytes(self) -> int:
        """Bytes of all allocations."""
        return sum(memory.nbytes for memory in self._memory)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(memory.device for memory in self._memory))

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        return self._formats

    def _place(self, index: BlockIndex) -> tuple[AbstractDeviceMemory, int]:
        """The memory that tile ``index`` lies in, and its first byte there."""
        if not self._memory:
            raise closed_error(self.name)
        number, offset = self._places[index[0], index[1]]
        return self._memory[number], offset

    def on_device(self, index: BlockIndex) -> DeviceBlock:
        memory, offset = self._place(index)
        return DeviceBlock(memory.device, memory.address + offset)

    def tile_on(self, device: str, index: BlockIndex) -> Tile | None:
        memory, offset = self._place(index)
        is_there = memory.device == device and self.format_of(index) == self.fmt
        return memory.array(offset, self.grid.shape(*index), self.fmt.dtype) if is_there else None

    def row_on(self, device: str, i: int) -> Tile | None:
        memory, offset = self._place((i, 0))
        if memory.device != device or self._formats is not None:
            return None
        rows, columns = self.grid.shape(i, 0)
        step = whole_pages(self.fmt.stored_bytes(rows * columns)) // self.fmt.itemsize
        return memory.array(offset, (i, step), self.fmt.dtype)[:, : rows * columns].reshape(i, rows, columns)

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        fmt, columns = self.format_of(index), self.grid.size(index[1])
        check_tile(out, (len(rows), columns), fmt, self.fmt)
        memory, offset = self._place(index)
        if fmt == self.fmt and out.dtype == fmt.dtype:
            if out.size:
                memory.read(offset + fmt.itemsize * rows.start * columns, out)
            return
        stored = np.empty(fmt.stored_bytes(self.grid.entries(*index)), np.uint8)
        memory.read(offset, stored)
        decode(stored, fmt, slice(rows.start * columns, rows.stop * columns), out)

    def read_diagonal(self, k: int, out: NDArray[np.float64]) -> None:
        memory, offset = self._place((k, k))
        diagonal = np.empty((self.grid.size(k), 1), self.fmt.dtype)
        memory.read(offset, diagonal, pitch=self.fmt.itemsize * (self.grid.size(k) + 1))
        out[...] = diagonal[:, 0].real

    def write(self, index: BlockIndex, data: Floats) -> None:
        fmt = self.format_of(index)
        check_tile(data, self.grid.shape(*index), fmt, self.fmt)
        memory, offset = self._place(index)
        if fmt == self.fmt and data.dtype == fmt.dtype:
            memory.write(offset, data)
            return
        stored = np.empty(fmt.stored_bytes(data.size), np.uint8)
        encode(data, fmt, stored)
        memory.write(offset, stored)

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        memory, offset = self._place(index)
        check_stored(out, self.format_of(index).stored_bytes(self.grid.entries(*index)))
        memory.read(offset, out)

    def write_stored(self, index: BlockIndex, data: NDArray[np.uint8]) -> None:
        memory, offset = self._place(index)
        check_stored(data, self.format_of(index).stored_bytes(self.grid.entries(*index)))
        memory.write(offset, data)

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Store these tiles in FP64 from now on, each in memory of its own on the same GPU."""
        if self._formats is None:
            return
        formats = list(self._formats)
        for i, j in tiles:
            if self.format_of((i, j)) != FP64:
                self._memory.append(keep_on_device(self._place((i, j))[0].device, FP64.stored_bytes(self.grid.entries(i, j))))
                self._places[i, j] = len(self._memory) - 1, 0
                formats[self.grid.packed(i, j)] = FP64
        self._formats = tuple(formats)

    def complete(self) -> None:
        """Nothing to do: memory is as durable as it gets."""

    def discard(self) -> None:
        """Free the memory, of which nothing lasts anyway."""
        self.close()

    def close(self) -> None:
        while self._memory:
            self._memory.pop().close()
