"""One pass over A for its tiles' norms, on the devices that will factor it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from math import frexp, inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP64
from ooc_chol.interfaces import NORM_COLUMNS, AbstractDevice, AbstractTier, FinalTile
from ooc_chol.memory.sources_base import SourceTier
from ooc_chol.planning.norms import FactorNorms, MatrixNorms, sample_step
from ooc_chol.tiling import TileGrid

#: Streams of a device that make or read tiles and measure them, each with one slot.
STREAMS = 2
#: Rows of a diagonal tile that are squared at once.
_ROWS = 64
#: Largest exponent of a scale: its square is a float64, as are those of subnormal numbers that are scaled by it.
_LARGEST_SCALE = 1000


class _Diagonal(AbstractTier):
    """Takes diagonal tiles of A, and keeps what the planner must know of them."""

    name = "diagonal"

    def __init__(self, grid: TileGrid) -> None:
        self._grid = grid
        self.norms: NDArray[np.float64] = np.zeros(grid.nt)
        self.traces, self.least, self.largest = np.zeros(grid.nt), np.zeros(grid.nt), np.zeros(grid.nt)

    def read(self, index: tuple[int, int], out: NDArray[np.float64]) -> None:
        """Nothing is read."""
        raise NotImplementedError("diagonal tiles are only measured")

    def write(self, index: tuple[int, int], data: NDArray[np.float64]) -> None:
        """Measure a diagonal tile: only its lower triangle counts."""
        k, diagonal = index[0], data.diagonal()
        with np.errstate(over="ignore", invalid="ignore"):
            self.traces[k], self.least[k], self.largest[k] = diagonal.sum(), diagonal.min(), diagonal.max()
        self.norms[k] = _norm_of_lower(data)


def _norm_of_lower(tile: NDArray[np.float64]) -> float:
    """Frobenius norm of the symmetric matrix whose lower triangle is that of a tile, in strips that stay in a core's cache."""
    diagonal = tile.diagonal()
    largest = float(np.abs(diagonal).max())  # of a positive definite matrix the largest entry of all
    scale = 2.0 ** min(_LARGEST_SCALE, -frexp(largest)[1]) if 0.0 < largest < inf else 1.0
    strip, below = np.empty((min(_ROWS, len(tile)), len(tile))), 0.0
    with np.errstate(all="ignore"):
        for start in range(0, len(tile), _ROWS):
            rows = tile[start : start + _ROWS]
            columns = min(start + _ROWS, len(tile))
            scaled = np.multiply(rows[:, :columns], scale, out=strip[: len(rows), :columns])
            scaled[:, start:] = np.tril(scaled[:, start:], -1)
            below += float(np.einsum("ij,ij->", scaled, scaled))
        return sqrt(2.0 * below + float(np.square(diagonal * scale).sum())) / scale


def measure_matrix(
    grid: TileGrid, devices: Sequence[AbstractDevice], source: SourceTier, *, samples: bool = False
) -> MatrixNorms:
    """Norms of all tiles of A's lower triangle.

    Parameters
    ----------
    grid : TileGrid
        The tiles.
    devices : sequence of AbstractDevice
        Freshly opened; closed here. They share the tiles.
    source : SourceTier
        Tiles of A, read or generated.
    samples : bool
        Whether the norms of L's tiles are estimated, too, by the factor of a sample of A.

    Returns
    -------
    MatrixNorms
        Entries that are not finite make norms that are not; the factorization will name them.

    Raises
    ------
    TierError
        A tile cannot be read.
    BudgetError
        A device has no room for :data:`STREAMS` tiles.

    Notes
    -----
    Each tile is made or read once. On GPUs it does not leave the device, unless it is a diagonal one.
    """
    diagonal, sample = _Diagonal(grid), _Sample.of(grid) if samples else None
    rows = np.zeros((grid.n_tiles, len(NORM_COLUMNS)))
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            share = slice(number, None, len(devices))
            rows[share] = _measure(grid, devices[number], source, (diagonal, sample), share)
        except BaseException as error:  # raised below, on the calling thread
            errors.append(error)

    began = time.perf_counter()
    threads = [threading.Thread(target=run, args=(number,), name="ooc_chol norms") for number in range(len(devices))]
    with ExitStack() as stack:
        for device in devices:
            stack.callback(device.close)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    tiles = rows[:, 0]
    tiles[[grid.packed(k, k) for k in range(grid.nt)]] = diagonal.norms
    expected = None if sample is None else FactorNorms.expected(grid, sample.entries, sample.step)
    seconds = time.perf_counter() - began
    return MatrixNorms(grid, tiles, diagonal.traces, diagonal.least, diagonal.largest, seconds, expected)


class _Sample(NamedTuple):
    """Every ``step``-th row and column of each tile of A: ``entries``, and where each tile row starts in it."""

    step: int
    starts: NDArray[np.int64]
    entries: NDArray[np.float64]

    @classmethod
    def of(cls, grid: TileGrid) -> _Sample:
        """Room for a sample."""
        step = sample_step(grid)
        starts = np.cumsum([0, *(-(-grid.size(i) // step) for i in range(grid.nt))])
        return cls(step, starts, np.zeros((int(starts[-1]), int(starts[-1]))))

    def part(self, index: tuple[int, int]) -> NDArray[np.float64]:
        """Where the entries of a tile go."""
        (i, j), starts = index, self.starts
        return self.entries[starts[i] : starts[i + 1], starts[j] : starts[j + 1]]


def _measure(
    grid: TileGrid, device: AbstractDevice, source: SourceTier, targets: tuple[_Diagonal, _Sample | None], share: slice
) -> NDArray[np.float64]:
    """The rows of norms of one device's ``share`` of the packed tiles."""
    diagonal, sample = targets
    slot_bytes = -(-FP64.itemsize * grid.size(0) ** 2 // 4096) * 4096
    arena = device.allocate(STREAMS, slot_bytes, grid.size(0))
    device.activate()
    device.prepare(source.source.prepare)
    norms = device.create_norms(grid.n_tiles)
    streams = [device.create_stream(f"norms-{number}") for number in range(STREAMS)]
    tiles = list(enumerate(grid.tiles()))[share]
    with np.errstate(all="ignore"):
        for at, (packed, index) in enumerate(tiles):
            stream = streams[at % STREAMS]
            tile = arena.tile(at % STREAMS, grid.shape(*index))
            if source.source.bytes_per_entry == 0:
                device.generate(stream, source.generate, grid.span(index.i), grid.span(index.j), tile)
            else:
                device.copy_in(stream, source, index, tile)
            if sample is not None:
                device.copy_sample(stream, tile, sample.step, sample.part(index))
            if index.i == index.j:  # what is above its diagonal may be anything: the host measures the rest
                device.copy_out(stream, tile, diagonal, index)
            else:
                device.kernels.finish(stream, tile, FP64, norms, FinalTile(packed, False))
    for stream in streams:
        stream.synchronize()
    norms.copy_back(streams[0])
    streams[0].synchronize()
    if (failure := device.failure()) is not None:
        raise failure
    return norms.values()[share].copy()
