"""Products of int8 planes reduced modulo each plane's number in registers, by a kernel of our own for Hopper's tensor cores."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.handles import cupy_stream
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
#: Maps that are kept: a run at n = 131,072 on two GPUs makes 1,800.
_MOST_MAPS = 1 << 14


class ResidueProducts:
    """``S[p] (+)= left[p] @ right[p].T`` modulo ``moduli[p]``, in int8, on the current device."""

    def __init__(self, moduli: Sequence[int]) -> None:
        self._kernel = compiled_for(PRODUCTS_ARCHITECTURE, products_source()).get_function("multiply_residues")
        self._kernel.max_dynamic_shared_size_bytes = PRODUCTS_SHARED_BYTES
        self._processors = cp.cuda.Device().attributes["MultiProcessorCount"]
        self._moduli = by_value(divisions(moduli).ravel())

    def multiply(self, stream: AbstractStream, sums: Tile, left: Tile, right: Tile, *, accumulates: bool, lower: bool) -> None:
        """Enqueue the products of all planes in one launch."""
        planes, rows, inner = left.shape
        cols = sums.shape[2]
        plane_bytes, row_bytes, _ = sums.strides
        maps = (
            _map(left, BLOCK_DEPTH, BLOCK_ROWS),
            _map(right, BLOCK_DEPTH, BLOCK_COLUMNS),
            _map(sums, BLOCK_DEPTH, BLOCK_ROWS),
        )
        shape = _numbers(rows, cols, inner, planes, accumulates, lower)
        blocks = planes * -(-rows // BLOCK_ROWS) * -(-cols // BLOCK_COLUMNS)
        rounds = -(-blocks // (self._processors * max(1, _LONG_K // inner)))
        turns = -(-blocks // (self._processors * rounds))
        arguments = (*maps, self._moduli, shape, sums.data.ptr, row_bytes, plane_bytes)
        self._kernel(
            (-(-blocks // turns),), (PRODUCTS_THREADS,), arguments, shared_mem=PRODUCTS_SHARED_BYTES, stream=cupy_stream(stream)
        )


def _map(array: Tile, columns: int, rows: int) -> NDArray[np.void]:
    """Where an array lies, for copies of boxes of so many columns and rows of one plane."""
    plane_bytes, row_bytes, _ = array.strides
    return _encoded(array.data.ptr, array.shape[::-1], (row_bytes, plane_bytes), (columns, rows, 1))


@lru_cache(maxsize=_MOST_MAPS)
def _numbers(*numbers: int) -> NDArray[np.void]:
    """Numbers that the kernel takes as one."""
    return by_value(np.array(numbers, dtype=np.int32))


def by_value(array: NDArray[Any]) -> NDArray[np.void]:
    """An array as one item, which CuPy passes by value."""
    return array.view(np.dtype((np.void, array.nbytes)))


@lru_cache(maxsize=_MOST_MAPS)
def _encoded(address: int, extents: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> NDArray[np.void]:
    """The driver's description of an array of bytes: extents from the last axis on, strides in bytes but for the last axis.

    Kept across runs: a map is numbers alone, and the next run of a problem often has its memory where the last one had.
    """
    room = np.zeros(2 * _MAP_BYTES, dtype=np.uint8)
    start = -room.ctypes.data % _MAP_BYTES
    found = room[start : start + _MAP_BYTES]
    words = (ctypes.c_uint64 * 5)(*extents, *strides)
    counts = (ctypes.c_uint32 * 6)(*box, 1, 1, 1)
    status = _encode()(
        found.ctypes.data, _UINT8, 3, address, ctypes.addressof(words), ctypes.addressof(words) + 24, ctypes.addressof(counts),
        ctypes.addressof(counts) + 12, 0, _SWIZZLE_128, _PROMOTE_256, 0,
    )  # fmt: skip
    if status:
        raise RuntimeError(f"cuTensorMapEncodeTiled answered {status} for {extents} bytes with strides {strides} at {address:#x}")
    return by_value(found)


@cache
def _encode() -> Any:
    """The driver's function, which CuPy does not have."""
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    pointer, number = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [pointer, number, ctypes.c_uint32, *[pointer] * 5, *[number] * 4]
    function.restype = number
    return function
