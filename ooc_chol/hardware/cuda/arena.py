"""The memory of one CUDA device that a run takes, in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy as cp

from ooc_chol.config import whole_pages
from ooc_chol.formats import TYPES
from ooc_chol.hardware.cuda.pools import device_memory
from ooc_chol.interfaces import NARROW_BUFFERS, AbstractArena, ArraySpec


class CudaArena(AbstractArena):
    """One allocation of device memory: the slots, behind them the arrays, the workspace, and buffers of narrow formats."""

    def __init__(
        self, n_slots: int, slot_bytes: int, workspace_bytes: int, arrays: Sequence[ArraySpec] = (), *, narrow_bytes: int = 0
    ) -> None:
        self.n_slots = n_slots
        self.slot_bytes = slot_bytes
        offset = n_slots * slot_bytes
        self._memory: Any = device_memory(self.bytes_for(n_slots, slot_bytes, workspace_bytes, arrays, narrow_bytes=narrow_bytes))
        views = []
        for spec in arrays:
            views.append(cp.ndarray(spec.shape, spec.dtype, cp.cuda.MemoryPointer(self._memory, offset)))
            offset += spec.nbytes
        self.arrays: tuple[Any, ...] = tuple(views)
        self.workspace = int(self._memory.ptr) + offset
        behind = int(self._memory.ptr) + whole_pages(offset + workspace_bytes)
        self.narrow = tuple(
            behind + number * whole_pages(narrow_bytes) for number in range(NARROW_BUFFERS if narrow_bytes else 0)
        )
        self._tiles: dict[tuple[int, tuple[int, int], str], Any] = {}
        self._parts: dict[tuple[int, tuple[int, int], tuple[int, int]], Any] = {}

    @staticmethod
    def bytes_for(
        n_slots: int, slot_bytes: int, workspace_bytes: int, arrays: Sequence[ArraySpec] = (), *, narrow_bytes: int = 0
    ) -> int:
        """Bytes that an arena of these slots, arrays, workspace and narrow buffers takes."""
        nbytes = n_slots * slot_bytes + sum(spec.nbytes for spec in arrays) + workspace_bytes
        return whole_pages(nbytes) + NARROW_BUFFERS * whole_pages(narrow_bytes) if narrow_bytes else nbytes

    def tile(self, slot: int, shape: tuple[int, int], dtype: str = "float64") -> Any:
        if dtype not in TYPES and dtype != "uint8":
            raise ValueError(f"tiles in slots of CUDA devices are of {', '.join(TYPES)} or bytes, not of {dtype}")
        key = (slot, shape, dtype)
        if key not in self._tiles:
            pointer = cp.cuda.MemoryPointer(self._memory, slot * self.slot_bytes)
            self._tiles[key] = cp.ndarray(shape, dtype, pointer)
        return self._tiles[key]

    def part(self, number: int, corner: tuple[int, int], shape: tuple[int, int]) -> Any:
        """The rectangle of every plane of an array; kept, and made by its address, in a third of the time of slicing."""
        key = (number, corner, shape)
        found = self._parts.get(key)
        if found is None:
            array, (row, column) = self.arrays[number], corner
            (planes, height, width), strides = array.shape, array.strides
            rows, columns = min(shape[0], height - row), min(shape[1], width - column)
            start = array.data + (row * strides[1] + column * strides[2])
            found = self._parts[key] = cp.ndarray((planes, rows, columns), array.dtype, start, strides)
        return found

    def close(self) -> None:
        """Give the memory back once no tile is left."""
        self._tiles.clear()
        self._parts.clear()
        self.arrays = ()
        self._memory = None
