"""The memory of one CUDA device that a run takes, in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import cupy as cp

from ooc_chol.config import whole_pages
from ooc_chol.formats import TYPES
from ooc_chol.hardware.cuda.pools import device_memory
from ooc_chol.interfaces import NARROW_BUFFERS, AbstractArena, ArraySpec


@final
class Rectangle:
    """The same rectangle of every plane of an array, with what kernels and copies ask of CuPy's arrays.

    A run makes thousands, in the thread that enqueues for all devices: they are no arrays, which take longer to make and to ask.
    """

    __slots__ = ("data", "dtype", "itemsize", "shape", "strides")
    ndim = 3

    def __init__(self, data: Any, dtype: Any, itemsize: int, shape: tuple[int, int, int], strides: tuple[int, int, int]) -> None:
        self.data, self.dtype, self.itemsize, self.shape, self.strides = data, dtype, itemsize, shape, strides

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, planes: slice) -> Rectangle:
        """Some of the planes."""
        start, stop, _ = planes.indices(self.shape[0])
        shape = stop - start, *self.shape[1:]
        return Rectangle(self.data + start * self.strides[0], self.dtype, self.itemsize, shape, self.strides)

    @property
    def nbytes(self) -> int:
        """Bytes of its entries."""
        planes, rows, columns = self.shape
        return self.itemsize * planes * rows * columns


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
        self._parts: dict[tuple[int, tuple[int, int], tuple[int, int]], Rectangle] = {}
        #: Arrays of planes, each as a whole.
        self._wholes = [
            Rectangle(view.data, view.dtype, view.itemsize, view.shape, view.strides) if view.ndim == 3 else None
            for view in views
        ]

    @staticmethod
    def bytes_for(
        n_slots: int, slot_bytes: int, workspace_bytes: int, arrays: Sequence[ArraySpec] = (), *, narrow_bytes: int = 0
    ) -> int:
        """Bytes that an arena of these slots, arrays, workspace and narrow buffers takes."""
        nbytes = n_slots * slot_bytes + sum(spec.nbytes for spec in arrays) + workspace_bytes
        return whole_pages(nbytes) + NARROW_BUFFERS * whole_pages(narrow_bytes) if narrow_bytes else nbytes

    def tile(self, slot: int, shape: tuple[int, int], dtype: str = "float64") -> Any:
        key = (slot, shape, dtype)
        found = self._tiles.get(key)
        if found is None:
            if dtype not in TYPES and dtype != "uint8":
                raise ValueError(f"tiles in slots of CUDA devices are of {', '.join(TYPES)} or bytes, not of {dtype}")
            pointer = cp.cuda.MemoryPointer(self._memory, slot * self.slot_bytes)
            found = self._tiles[key] = cp.ndarray(shape, dtype, pointer)
        return found

    def part(self, number: int, corner: tuple[int, int], shape: tuple[int, int]) -> Rectangle:
        """The rectangle of every plane of an array, which is kept."""
        key = (number, corner, shape)
        found = self._parts.get(key)
        if found is None:
            whole, (row, column) = self._wholes[number], corner
            assert whole is not None  # the array has planes
            (planes, height, width), strides = whole.shape, whole.strides
            rows, columns = min(shape[0], height - row), min(shape[1], width - column)
            start = whole.data + (row * strides[1] + column * strides[2])
            found = self._parts[key] = Rectangle(start, whole.dtype, whole.itemsize, (planes, rows, columns), strides)
        return found

    def close(self) -> None:
        """Give the memory back once no tile is left."""
        self._tiles.clear()
        self._parts.clear()
        self._wholes.clear()
        self.arrays = ()
        self._memory = None
