"""The pass over A's tiles on the current CUDA device: norms, the diagonal, and a sample."""

from __future__ import annotations

from typing import final

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.formats import CudaNorms, FormatKernels
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.cuda.launches import Kernel
from ooc_chol.kernels.cuda.modules import load
from ooc_chol.kernels.interfaces import AbstractSurvey
from ooc_chol.precision.norms import sample_starts
from ooc_chol.tasks.tiling import TileGrid

_BLOCK = (32, 8)
#: Order of the squares that ``mirror_lower`` moves.
_SQUARE = 32


@final
class CudaSurvey(AbstractSurvey):
    """Norms and the diagonal of A's tiles in the device's memory, a sample in page-locked memory that the kernel writes to.

    48 bytes a tile and 8 a row beside the device's budget. Three or four launches for tiles one below the other, and no copy
    until the end: functions that streams call on the host run one after the other, at tens of microseconds each.
    """

    def __init__(self, formats: FormatKernels, grid: TileGrid, step: int | None) -> None:
        module = load("survey.cu")
        self._mirror_lower = Kernel(module.get_function("mirror_lower"), "qiq", _BLOCK)
        self._sample_tile = Kernel(module.get_function("sample_tile"), "qiiiiqi", _BLOCK)
        self._formats, self._grid, self._step = formats, grid, step
        self._norms = CudaNorms(grid.n_tiles)
        self._diagonal = cp.zeros(grid.n)
        self._starts = sample_starts(grid, step or grid.nb)
        order = 0 if step is None else int(self._starts[-1])
        self._memory = cp.cuda.alloc_pinned_memory(max(1, 8 * order**2))
        # Only what kernels write there is read.
        self._sample: NDArray[np.float64] = np.frombuffer(self._memory, dtype=np.float64, count=order**2).reshape(order, order)
        cp.cuda.get_current_stream().synchronize()  # other streams write the diagonal

    def measure(self, stream: AbstractStream, tiles: Tile, rows: range, column: int) -> None:
        first, nb = rows[0], self._grid.nb
        if first == column:
            squares = -(-len(tiles) // _SQUARE)
            address = self._diagonal.data.ptr + 8 * self._grid.start(first)
            self._mirror_lower(cupy_stream(stream).ptr, (squares, squares), tiles.data.ptr, len(tiles), address)
        if self._step is not None:
            # Every so many rows of all tiles together are those of each where a tile has a multiple of so many.
            whole = [rows] if nb % self._step == 0 else [range(i, i + 1) for i in rows]
            for part in whole:
                self._enqueue_sample(stream, tiles[(part[0] - first) * nb :], part, column, self._step)
        self._formats.measure_stack(stream, tiles, nb, self._norms, (first, column))

    def _enqueue_sample(self, stream: AbstractStream, tiles: Tile, rows: range, column: int, step: int) -> None:
        top, bottom, left, right = (int(self._starts[at]) for at in (rows[0], rows[-1] + 1, column, column + 1))
        count, columns, order = bottom - top, right - left, len(self._sample)
        target = self._sample.ctypes.data + 8 * (top * order + left)
        blocks = -(-columns // _BLOCK[0]), -(-count // _BLOCK[1])
        sizes = tiles.shape[1], step, count, columns
        self._sample_tile(cupy_stream(stream).ptr, blocks, tiles.data.ptr, *sizes, target, order)

    def norms(self) -> NDArray[np.float64]:
        return self._norms.values()[:, 0]

    def diagonal(self) -> NDArray[np.float64]:
        diagonal: NDArray[np.float64] = np.empty(self._grid.n)
        address, kind = diagonal.ctypes.data, cp.cuda.runtime.memcpyDeviceToHost
        cp.cuda.runtime.memcpy(address, self._diagonal.data.ptr, diagonal.nbytes, kind)  # addresses tell the device
        return diagonal

    def sample(self) -> NDArray[np.float64]:
        return self._sample
