"""Narrow formats on the current CUDA device: rounding of final tiles, their norms, and conversion to stored bytes and back."""

from __future__ import annotations

from typing import final

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FORMATS, FP64, PrecisionFormat
from ooc_chol.hardware.cuda import device_memory
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.cuda.launches import Kernel
from ooc_chol.kernels.cuda.modules import load
from ooc_chol.kernels.interfaces import NORM_COLUMNS, AbstractTileNorms, FinalTile

_runtime = cp.cuda.runtime
#: Threads of a block, entries that a thread takes at once, and most blocks: each takes groups of entries a grid apart.
_THREADS, _GROUP, _MOST_BLOCKS = 256, 4, 1024
#: Rows and columns that a block of :func:`largest_sums` takes: a warp a row, or 32 columns.
_SUM_BLOCK = (32, 8)
#: Bytes of a row of ``Row`` in formats.cu: the norms, of which the largest magnitude is the last, and the exponent of the sums of
#: squares.
_ROW_BYTES = 8 * (len(NORM_COLUMNS) + 1)
_LARGEST, _EXPONENT = NORM_COLUMNS.index("largest"), len(NORM_COLUMNS)
#: Streams that may encode, one in a run: each has a place for the largest magnitude of its tile.
_ENCODING_STREAMS = 16


@final
class CudaNorms(AbstractTileNorms):
    """Norms of final tiles, written by the kernels of one device, with a page-locked mirror on the host.

    48 bytes a tile, beside the device's budget.
    """

    def __init__(self, n_tiles: int) -> None:
        self._size = _ROW_BYTES * n_tiles
        self._memory = cp.cuda.alloc_pinned_memory(self._size)
        mirror: NDArray[np.uint8] = np.frombuffer(self._memory, dtype=np.uint8, count=self._size)
        mirror[:] = 0
        self._mirror = mirror.view(np.float64).reshape(n_tiles, -1)
        self._device = cp.cuda.MemoryPointer(device_memory(self._size), 0)
        self._device.copy_from_host(mirror.ctypes.data, self._size)
        self._is_used = bytearray(n_tiles)

    def row(self, packed: int) -> int:
        """Device address of the row of tile ``packed``."""
        return int(self._device.ptr) + _ROW_BYTES * packed

    def cleared_row(self, stream: AbstractStream, packed: int) -> int:
        """Device address of the row of tile ``packed``, for its kernels on ``stream``: zero as it was made, or cleared anew."""
        row = self.row(packed)
        if self._is_used[packed]:
            _runtime.memsetAsync(row, 0, _ROW_BYTES, cupy_stream(stream).ptr)
        self._is_used[packed] = True
        return row

    def largest(self, packed: int) -> int:
        return self.row(packed) + 8 * _LARGEST

    def copy_back(self, stream: AbstractStream) -> None:
        address, kind = self._mirror.ctypes.data, _runtime.memcpyDeviceToHost
        _runtime.memcpyAsync(address, self._device.ptr, self._size, kind, cupy_stream(stream).ptr)

    def copy_rows(self, stream: AbstractStream, first: int, count: int) -> None:
        address, kind = self._mirror.ctypes.data + _ROW_BYTES * first, _runtime.memcpyDeviceToHost
        _runtime.memcpyAsync(address, self.row(first), _ROW_BYTES * count, kind, cupy_stream(stream).ptr)

    def rows(self, first: int, count: int) -> NDArray[np.float64]:
        return self._norms(self._mirror[first : first + count])

    def values(self) -> NDArray[np.float64]:
        """The norms as they are on the device now, which is waited for: also of a run that failed before it copied them."""
        with cp.cuda.Device(self._device.device_id):  # whichever is current cannot reach it
            _runtime.memcpy(self._mirror.ctypes.data, self._device.ptr, self._size, _runtime.memcpyDeviceToHost)
        return self._norms(self._mirror)

    @staticmethod
    def _norms(mirror: NDArray[np.float64]) -> NDArray[np.float64]:
        """Norms of rows as kernels write them."""
        norms = mirror[:, : len(NORM_COLUMNS)].copy()
        exponents = mirror.view(np.int64)[:, _EXPONENT:]
        with np.errstate(over="ignore", invalid="ignore"):  # of tiles that hold what is no number
            norms[:, :2] = np.ldexp(np.sqrt(norms[:, :2]), -exponents)
        return norms


@final
class FormatKernels:
    """The kernels of ``formats.cu``, loaded for the current device.

    All are bound by memory. An entry of 8 bytes is read to find the largest, read and written to be rounded, and read and written
    once more in ``itemsize`` bytes on its way to the host.
    """

    def __init__(self) -> None:
        module = load("formats.cu")
        types = {"largest_magnitude": "qqq", "largest_of_stack": "qqqqqq", "measure_stack": "qqqqqq"}
        types |= {f"finish_{name}": "qqq" for name in FORMATS}
        for name in FORMATS:
            if name != FP64.name:
                types |= {f"encode_{name}": "qqqqq", f"widen_{name}": "qqqq"}
        self._kernels = {name: Kernel(module.get_function(name), each, (_THREADS,)) for name, each in types.items()}
        self._largest_sums = Kernel(module.get_function("largest_sums"), "qiiq", _SUM_BLOCK)
        self._largest = device_memory(8 * _ENCODING_STREAMS)
        self._of_stream: dict[int, int] = {}

    def finish(
        self, stream: AbstractStream, l_ij: Tile, fmt: PrecisionFormat, norms: AbstractTileNorms, index: FinalTile
    ) -> None:
        """Round a final tile to what ``fmt`` stores of it, in place, and measure it.

        Two launches, three for a diagonal tile. The sums come in any order: they are no part of the factor's bits.
        """
        address, row, entries = l_ij.data.ptr, _cuda_norms(norms).cleared_row(stream, index.packed), l_ij.size
        self._launch("largest_magnitude", stream, entries, address, entries, row + 8 * _LARGEST)
        self._launch(f"finish_{fmt.name}", stream, entries, address, entries, row)
        if index.is_diagonal:
            rows, columns = l_ij.shape
            grid = max(-(-rows // _SUM_BLOCK[1]), -(-columns // _SUM_BLOCK[0])), 2
            self._largest_sums(cupy_stream(stream).ptr, grid, address, rows, columns, row)

    def measure_stack(self, stream: AbstractStream, tiles: Tile, height: int, norms: CudaNorms, first: tuple[int, int]) -> None:
        """Measure tiles of ``height`` rows or, the last one, fewer: one below the other from tile ``first`` on, their norms zero.

        Two launches, however many tiles.
        """
        rows, columns = tiles.shape
        grid = min(_MOST_BLOCKS, -(-height * columns // (_GROUP * _THREADS))), -(-rows // height)
        arguments = tiles.data.ptr, height * columns, rows * columns, norms.row(0), *first
        for name in ("largest_of_stack", "measure_stack"):
            self._kernels[name](cupy_stream(stream).ptr, grid, *arguments)

    def encode(
        self, stream: AbstractStream, tile: Tile, fmt: PrecisionFormat, address: int, *, largest: int | None = None
    ) -> None:
        """Write what ``fmt`` stores of a tile; its exponent is the same by the largest entry before rounding and after."""
        entries, behind = tile.size, 0
        if fmt.top is None:
            largest = 0
        else:
            behind = address + fmt.scale_offset(tile.size)
            if largest is None:
                largest = self._place(stream)
                _runtime.memsetAsync(largest, 0, 8, cupy_stream(stream).ptr)
                self._launch("largest_magnitude", stream, entries, tile.data.ptr, entries, largest)
        self._launch(f"encode_{fmt.name}", stream, entries, tile.data.ptr, entries, address, largest, behind)

    def widen(self, stream: AbstractStream, address: int, fmt: PrecisionFormat, tile: Tile) -> None:
        """Make a tile of what :meth:`encode`, or the host, stored of it at a device address, a multiple of 16."""
        behind = 0 if fmt.top is None else address + fmt.scale_offset(tile.size)
        self._launch(f"widen_{fmt.name}", stream, tile.size, address, tile.size, tile.data.ptr, behind)

    def _place(self, stream: AbstractStream) -> int:
        """Device address for the largest magnitude of the tile that ``stream`` encodes; the next free one at its first use."""
        pointer = cupy_stream(stream).ptr
        if pointer not in self._of_stream:
            if len(self._of_stream) == _ENCODING_STREAMS:
                raise RuntimeError(f"stream {stream.name} encodes tiles, but {_ENCODING_STREAMS} others do so already")
            self._of_stream[pointer] = int(self._largest.ptr) + 8 * len(self._of_stream)
        return self._of_stream[pointer]

    def _launch(self, name: str, stream: AbstractStream, entries: int, *arguments: int) -> None:
        """Launch a kernel that goes through the entries of a tile."""
        self._kernels[name](cupy_stream(stream).ptr, (min(_MOST_BLOCKS, -(-entries // (_GROUP * _THREADS))), 1), *arguments)


def _cuda_norms(norms: AbstractTileNorms) -> CudaNorms:
    """Refuse norms of another kind of device."""
    if not isinstance(norms, CudaNorms):
        raise TypeError(f"CUDA kernels write CudaNorms, not {type(norms).__name__}; create the norms with the CUDA device")
    return norms
