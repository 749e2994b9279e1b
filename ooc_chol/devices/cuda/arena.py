"""The memory of one CUDA device that a run takes, in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy as cp

from ooc_chol.interfaces import AbstractArena, ArraySpec


class CudaArena(AbstractArena):
    """One allocation of device memory: the slots, behind them the arrays, and the workspace."""

    def __init__(self, n_slots: int, slot_bytes: int, workspace_bytes: int, arrays: Sequence[ArraySpec] = ()) -> None:
        self.n_slots = n_slots
        self.slot_bytes = slot_bytes
        offset = n_slots * slot_bytes
        self._memory: Any = cp.cuda.Memory(offset + sum(spec.nbytes for spec in arrays) + workspace_bytes)
        views = []
        for spec in arrays:
            views.append(cp.ndarray(spec.shape, spec.dtype, cp.cuda.MemoryPointer(self._memory, offset)))
            offset += spec.nbytes
        self.arrays: tuple[Any, ...] = tuple(views)
        self.workspace = int(self._memory.ptr) + offset
        self._tiles: dict[tuple[int, tuple[int, int]], Any] = {}
        self._parts: dict[tuple[int, tuple[int, int], tuple[int, int]], Any] = {}

    def tile(self, slot: int, shape: tuple[int, int]) -> Any:
        """The first entries of ``slot`` as a row-major CuPy array."""
        key = (slot, shape)
        if key not in self._tiles:
            pointer = cp.cuda.MemoryPointer(self._memory, slot * self.slot_bytes)
            self._tiles[key] = cp.ndarray(shape, cp.float64, pointer)
        return self._tiles[key]

    def part(self, number: int, corner: tuple[int, int], shape: tuple[int, int]) -> Any:
        """The rectangle of every plane of an array; kept, since slicing takes longer than looking up."""
        key = (number, corner, shape)
        if key not in self._parts:
            (row, column), (rows, columns) = corner, shape
            self._parts[key] = self.arrays[number][:, row : row + rows, column : column + columns]
        return self._parts[key]

    def close(self) -> None:
        """Free the memory once no tile is left."""
        self._tiles.clear()
        self._parts.clear()
        self.arrays = ()
        self._memory = None
