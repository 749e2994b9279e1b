"""One pass over A for its tiles' norms, on the devices that will factor it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.formats import FP64
from ooc_chol.interfaces import AbstractArena, AbstractDevice, AbstractSurvey
from ooc_chol.memory.sources_base import SourceTier
from ooc_chol.planning.norms import FactorNorms, MatrixNorms, sample_starts, sample_step
from ooc_chol.runtime.collector import collector_off
from ooc_chol.runtime.ending import abort_all, ended
from ooc_chol.threads import OwnThread, start
from ooc_chol.tiling import TileGrid, TileIndex

#: Streams of a device that make or read tiles and measure them, each with one slot.
STREAMS = 2


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
    Each tile is made or read once. On GPUs it does not leave the device.
    """
    step = sample_step(grid) if samples else None
    surveys: dict[int, AbstractSurvey] = {}
    began: list[float] = []
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            device, share = devices[number], _Share(step, number, len(devices))
            arena = _prepare(grid, device, source)
            surveys[number] = device.create_survey(grid, step)
            began.append(time.perf_counter())
            _measure(grid, device, source, (arena, surveys[number], share))
        except BaseException as error:  # raised below, on the calling thread
            errors.append(error)
            abort_all(devices)  # behind the error: it comes first, and what the others meet follows from it

    threads = [OwnThread(run, (number,), "norms") for number in range(len(devices))]
    with collector_off(), ended(devices, threads):
        for thread in threads:
            start(thread)
        for thread in threads:
            thread.wait()
        if errors:
            raise errors[0]
        # Each tile was measured by one device; what it wrote is read before the devices close.
        tiles, diagonal = (
            sum(parts) for parts in zip(*[(each.norms(), each.diagonal()) for each in surveys.values()], strict=True)
        )
        expected = None if step is None else FactorNorms.expected(grid, _joined(grid, step, surveys), step)
    rows = [diagonal[span.start : span.stop] for span in map(grid.span, range(grid.nt))]
    with np.errstate(over="ignore", invalid="ignore"):
        traces, least, largest = (np.array([of(row) for row in rows]) for of in (np.sum, np.min, np.max))
    return MatrixNorms(grid, tiles, traces, least, largest, time.perf_counter() - min(began), expected)


class _Share(NamedTuple):
    """What one device measures: every ``of``-th tile from ``number`` on, with a sample of every ``step``-th row and column."""

    step: int | None
    number: int
    of: int

    def tiles(self, grid: TileGrid) -> list[TileIndex]:
        """The tiles."""
        return list(grid.tiles())[self.number :: self.of]


def _joined(grid: TileGrid, step: int, surveys: Mapping[int, AbstractSurvey]) -> NDArray[np.float64]:
    """The sample of all tiles, of which each device has its share."""
    sample, starts = surveys[0].sample(), sample_starts(grid, step)
    for number in range(1, len(surveys)):
        others = surveys[number].sample()
        for i, j in _Share(step, number, len(surveys)).tiles(grid):
            part = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
            sample[part] = others[part]
    return sample


def _prepare(grid: TileGrid, device: AbstractDevice, source: SourceTier) -> AbstractArena:
    """Memory for tiles, kernels compiled, and what a tile function needs, on the calling thread's device."""
    slot_bytes = whole_pages(FP64.itemsize * grid.size(0) ** 2)
    arena = device.allocate(STREAMS, slot_bytes, grid.size(0))
    device.activate()
    device.prepare(source.source.prepare)
    return arena


def _measure(
    grid: TileGrid, device: AbstractDevice, source: SourceTier, parts: tuple[AbstractArena, AbstractSurvey, _Share]
) -> None:
    """Make or read the tiles of one device and measure them."""
    arena, survey, share = parts
    streams = [device.create_stream(f"norms-{number}") for number in range(STREAMS)]
    for at, index in enumerate(share.tiles(grid)):
        stream, tile = streams[at % STREAMS], arena.tile(at % STREAMS, grid.shape(*index))
        if source.source.bytes_per_entry == 0:
            device.generate(stream, source.generate, grid.span(index.i), grid.span(index.j), tile)
        else:
            device.copy_in(stream, source, index, tile)
        survey.measure(stream, tile, index)
        _raise_failure(device)  # it may have been aborted
    for stream in streams:
        stream.synchronize()
    _raise_failure(device)


def _raise_failure(device: AbstractDevice) -> None:
    """Raise what an operation of the device raised on the host, if one did."""
    if (failure := device.failure()) is not None:
        raise failure
