"""Products of int8 planes reduced modulo each plane's number in registers, by a kernel of our own for Hopper's tensor cores."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import cupy as cp
import numpy as np

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.cuda.launches import Kernel
from ooc_chol.kernels.cuda.modules import compiled_for
from ooc_chol.kernels.cuda.residue_source import (
    BLOCK_COLUMNS,
    BLOCK_DEPTH,
    BLOCK_ROWS,
    PRODUCTS_ARCHITECTURE,
    PRODUCTS_SHARED_BYTES,
    PRODUCTS_THREADS,
    divisions,
    products_source,
)

#: K that a thread block multiplies in all: long enough to make up for its start, short enough that other streams are not held up.
_LONG_K = 32768
#: What the driver calls uint8, swizzles of 128 bytes, and cache lines of 256 that are brought to L2.
_UINT8, _SWIZZLE_128, _PROMOTE_256 = 0, 3, 3
_MAP_BYTES = 128
#: Types of the kernel's ``Shape``.
_SHAPE = "6i"
#: Boxes of one copy along the three axes from the last one on: of rows, and of what is transposed beside them.
_BY_ROWS, _BY_COLUMNS = (BLOCK_DEPTH, BLOCK_ROWS, 1), (BLOCK_DEPTH, BLOCK_COLUMNS, 1)
#: Maps that are kept: a run at n = 131,072 on two GPUs makes 1,800.
_MOST_MAPS = 1 << 14


class ResidueProducts:
    """``S[p] (+)= left[p] @ right[p].T`` modulo ``moduli[p]``, in int8, on the current device."""

    def __init__(self, moduli: Sequence[int]) -> None:
        function = compiled_for(PRODUCTS_ARCHITECTURE, products_source()).get_function("multiply_residues")
        function.max_dynamic_shared_size_bytes = PRODUCTS_SHARED_BYTES
        self._processors = cp.cuda.Device().attributes["MultiProcessorCount"]
        self._moduli = divisions(moduli).tobytes()
        types = *[f"{_MAP_BYTES}s"] * 3, f"{len(self._moduli)}s", _SHAPE, "q", "q", "q"
        self._kernel = Kernel(function, types, (PRODUCTS_THREADS,), shared_bytes=PRODUCTS_SHARED_BYTES)

    def multiply(self, stream: AbstractStream, sums: Tile, left: Tile, right: Tile, *, accumulates: bool, lower: bool) -> None:
        """Enqueue the products of all planes in one launch."""
        planes, rows, inner = left.shape
        cols = sums.shape[2]
        plane_bytes, row_bytes, _ = sums.strides
        blocks = planes * -(-rows // BLOCK_ROWS) * -(-cols // BLOCK_COLUMNS)
        rounds = -(-blocks // (self._processors * max(1, _LONG_K // inner)))
        turns = -(-blocks // (self._processors * rounds))
        self._kernel(
            cupy_stream(stream).ptr, (-(-blocks // turns), 1), _map(left, _BY_ROWS), _map(right, _BY_COLUMNS),
            _map(sums, _BY_ROWS), self._moduli, rows, cols, inner, planes, accumulates, lower, sums.data.ptr, row_bytes,
            plane_bytes,
        )  # fmt: skip


def _map(array: Tile, box: tuple[int, int, int]) -> bytes:
    """Where an array lies, for copies of boxes of it."""
    return _encoded(array.data.ptr, array.shape, array.strides, box)


@lru_cache(maxsize=_MOST_MAPS)
def _encoded(address: int, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, int, int]) -> bytes:
    """The driver's description of an array of bytes.

    Kept across runs: a map is numbers alone, and the next run of a problem often has its memory where the last one had.
    """
    room = np.zeros(2 * _MAP_BYTES, dtype=np.uint8)
    start = -room.ctypes.data % _MAP_BYTES
    found = room[start : start + _MAP_BYTES]
    # Extents from the last axis on, and strides in bytes but for the last axis.
    words = (ctypes.c_uint64 * 5)(*shape[::-1], *strides[1::-1])
    counts = (ctypes.c_uint32 * 6)(*box, 1, 1, 1)
    status = _encode()(
        found.ctypes.data, _UINT8, 3, address, ctypes.addressof(words), ctypes.addressof(words) + 24, ctypes.addressof(counts),
        ctypes.addressof(counts) + 12, 0, _SWIZZLE_128, _PROMOTE_256, 0,
    )  # fmt: skip
    if status:
        raise RuntimeError(f"cuTensorMapEncodeTiled answered {status} for {shape} bytes with strides {strides} at {address:#x}")
    return found.tobytes()


@cache
def _encode() -> Any:
    """The driver's function, which CuPy does not have."""
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    pointer, number = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [pointer, number, ctypes.c_uint32, *[pointer] * 5, *[number] * 4]
    function.restype = number
    return function
