"""One pass over A for its tiles' norms, and its products with random vectors, on the devices that will factor it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.passes import track_of_a
from ooc_chol.dense.probing import ProbedSums, form_of_matrix, probe_arrays
from ooc_chol.dense.programs.layouts import slot_bytes_of
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.interfaces import AbstractArena, AbstractStream, Tile
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.kernels.interfaces import AbstractSurvey, TileDevice
from ooc_chol.precision.norms import FactorNorms, MatrixNorms, Probes, foreseen_pivot, sample_starts, sample_step
from ooc_chol.runtime.passes import Pass, Track, enqueued_in_turns, finish
from ooc_chol.tasks.tiling import TileGrid, TileIndex

#: Streams of a device that make or read tiles and measure them, each with one slot.
STREAMS = 2
#: Most tiles, one below the other, that a GPU makes and multiplies at once: one thread starts all kernels of a pass, and a tile
#: has half as many then.
_MOST_STACKED = 4
#: Share of a device's budget that tiles made at once may take.
_STACK_SHARE = 8


@dataclass(frozen=True)
class Stack:
    """Tiles of one tile column, one below the other."""

    rows: range  #: Tile rows
    column: int

    @property
    def tiles(self) -> list[TileIndex]:
        """Its tiles, from above."""
        return [TileIndex(i, self.column) for i in self.rows]


def stacked_tiles(grid: TileGrid, budget_bytes: int) -> int:
    """How many tiles a GPU of this budget makes at once."""
    return max(1, min(_MOST_STACKED, budget_bytes // (_STACK_SHARE * STREAMS * slot_bytes_of(grid))))


def _stacks(tiles: Sequence[TileIndex], most: int) -> list[Stack]:
    """The tiles in stacks of at most so many, column by column; diagonal ones, of which half counts, are alone."""
    if most == 1:
        return [Stack(range(i, i + 1), j) for i, j in tiles]
    found: list[Stack] = []
    for i, j in sorted(tiles, key=lambda tile: (tile.j, tile.i)):
        last = found[-1] if found else None
        if last and last.column == j and last.rows.stop == i and len(last.rows) < most and last.rows.start != j:
            found[-1] = Stack(range(last.rows.start, i + 1), j)
        else:
            found.append(Stack(range(i, i + 1), j))
    return found


@dataclass(frozen=True, eq=False)
class MeasuredTiles:
    """Measurements of some tiles of A; nothing, that is zero, for the others."""

    grid: TileGrid
    tiles: NDArray[np.float64]  #: Frobenius norm of each packed tile
    diagonal: NDArray[np.float64]  #: The diagonal of A
    sample: NDArray[np.float64] | None  #: Entries of a sample's rows and columns, where one was taken
    form: NDArray[np.float64] | None  #: ``U.T @ A @ V`` of the tiles and what mirrors them, where there are probes
    seconds: float  #: From the first tile to the last
    product: NDArray[np.float64] | None = None  #: ``A @ factor``, where one was given


def measure_matrix(
    grid: TileGrid,
    devices: Sequence[TileDevice],
    source: SourceTier,
    *,
    probes: Probes | None = None,
    run: Pass | None = None,
    stacked: int = 1,
) -> MatrixNorms:
    """Norms of all tiles of A's lower triangle, up to ``stacked`` of them made at once where they are made.

    Each tile is made or read once. On GPUs it does not leave the device. Two sets of s probes take ``16 s (1 + STREAMS)`` bytes a
    row of A on each device, and ``2 n**2 s`` flops.
    """
    step = sample_step(grid)
    measured = measure_tiles(grid, devices, source, list(grid.tiles()), step=step, probes=probes, run=run, stacked=stacked)
    return norms_of(measured, step=step, probes=probes)


def norms_of(measured: MeasuredTiles, *, step: int | None, probes: Probes | None) -> MatrixNorms:
    """Norms of A for the planner, from the measurements of all its tiles."""
    grid = measured.grid
    rows = [measured.diagonal[span.start : span.stop] for span in map(grid.span, range(grid.nt))]
    with np.errstate(over="ignore", invalid="ignore"):
        traces, least, largest = (np.array([of(row) for row in rows]) for of in (np.sum, np.min, np.max))
    began, expected, pivot = time.perf_counter(), None, None
    if step is not None and measured.sample is not None:
        with blas_threads(1):  # of a thousand rows: by 32 threads it took 55 ms in place of 26, with bits of its own
            expected = FactorNorms.expected(grid, measured.sample, step)
            pivot = foreseen_pivot(measured.sample, grid.n)
    return MatrixNorms(
        grid,
        measured.tiles,
        traces=traces,
        least=least,
        largest=largest,
        seconds=measured.seconds + time.perf_counter() - began,
        expected=expected,
        probes=probes,
        form=measured.form,
        diagonal=measured.diagonal,
        pivot=pivot,
    )


def measure_tiles(
    grid: TileGrid,
    devices: Sequence[TileDevice],
    source: SourceTier,
    tiles: Sequence[TileIndex],
    *,
    step: int | None = None,
    probes: Probes | None = None,
    factor: NDArray[np.float64] | None = None,
    run: Pass | None = None,
    stacked: int = 1,
) -> MeasuredTiles:
    """Norms of ``tiles`` of A's lower triangle, with a sample of every ``step``-th row and column of each.

    With ``probes`` their form; else with an (n, m) ``factor`` the product of these tiles, and what mirrors them, with it.
    """
    told = run or Pass("norms of A")
    vectors = factor if probes is None else probes.vectors
    tracks = [track_of_a(told, device.name) for device in devices]
    stacked = stacked if source.source.bytes_per_entry == 0 else 1
    stacks = _stacks(tiles, stacked)
    shares = [stacks[number :: len(devices)] for number in range(len(devices))]
    surveys: dict[int, AbstractSurvey] = {}
    products: dict[int, ProbedSums] = {}
    forms: dict[int, NDArray[np.float64]] = {}  # or products
    began: list[float] = []

    def measure_share(number: int) -> Iterator[None]:
        device = devices[number]
        arena, streams = _prepare(grid, device, source, 0 if vectors is None else vectors.shape[1], stacked)
        surveys[number] = device.kernels.create_survey(grid, step)
        began.append(time.perf_counter())
        if vectors is not None:
            products[number] = ProbedSums(grid, device, arena.arrays, slot_bytes_of(grid))
            products[number].start(streams[0], vectors)
        parts, uses = (arena, streams, shares[number]), (surveys[number].measure, products.get(number))
        yield from _measure(grid, device, source, parts=parts, uses=uses, is_form=probes is not None, track=tracks[number])
        finish(device, streams)
        tracks[number].settle()
        if probes is not None:
            forms[number] = form_of_matrix(products[number].with_vectors(streams[0]))
        elif vectors is not None:
            forms[number] = products[number].total(streams[0])

    with enqueued_in_turns(devices, measure_share, "norms"):
        # Each tile was measured by one device; what it wrote is read before the devices close.
        norms, diagonal = (
            sum(parts) for parts in zip(*[(each.norms(), each.diagonal()) for each in surveys.values()], strict=True)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            found = None if vectors is None else _summed([forms[number] for number in sorted(forms)])
        sample = None if step is None else _joined(grid, step, surveys, shares)
    form, product = (None, found) if probes is None else (found, None)
    return MeasuredTiles(grid, norms, diagonal, sample, form, time.perf_counter() - min(began), product)


def _summed(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The sum of arrays, in the memory of the first one."""
    total, *others = parts
    for other in others:
        total += other
    return total


def _joined(
    grid: TileGrid, step: int, surveys: Mapping[int, AbstractSurvey], shares: Sequence[Sequence[Stack]]
) -> NDArray[np.float64]:
    """The sample of all tiles, of which each device has its share."""
    sample, starts = surveys[0].sample(), sample_starts(grid, step)
    for number in range(1, len(surveys)):
        others = surveys[number].sample()
        for i, j in (tile for stack in shares[number] for tile in stack.tiles):
            part = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
            sample[part] = others[part]
    return sample


def _prepare(
    grid: TileGrid, device: TileDevice, source: SourceTier, columns: int, stacked: int
) -> tuple[AbstractArena, list[AbstractStream]]:
    """Memory for tiles and vectors, kernels compiled, and what a tile function needs, on the calling thread's device."""
    slot_bytes = slot_bytes_of(grid)
    arrays = probe_arrays(grid.n, columns, STREAMS) if columns else ()
    arena = device.allocate(STREAMS, stacked * slot_bytes, grid.size(0), arrays)
    device.activate()
    device.prepare(source.source.prepare)
    return arena, [device.create_stream(f"norms-{number}") for number in range(STREAMS)]


def _measure(
    grid: TileGrid,
    device: TileDevice,
    source: SourceTier,
    *,
    parts: tuple[AbstractArena, Sequence[AbstractStream], Sequence[Stack]],
    uses: tuple[Callable[[AbstractStream, Tile, range, int], None], ProbedSums | None],
    is_form: bool,
    track: Track,
) -> Iterator[None]:
    """Make or read the tiles of one device, and measure and multiply them, up to a stack at each ``next``."""
    (arena, streams, share), (measure, products) = parts, uses
    track.resident_bytes = arena.n_slots * arena.slot_bytes
    function = source.function_on(device.name)
    for at, stack in enumerate(share):
        number = at % STREAMS
        first = TileIndex(stack.rows[0], stack.column)
        rows = range(grid.span(stack.rows[0]).start, grid.span(stack.rows[-1]).stop)
        stream, name = streams[number], f"norms-{number}"
        block = arena.tile(number, (len(rows), grid.size(stack.column)))
        begun = track.now(stream)
        if source.source.bytes_per_entry == 0:
            device.generate(stream, function, rows, grid.span(stack.column), block)
            track.ran("generate", first, name, (begun, track.now(stream)))
        else:
            device.copy_in(stream, source, first, block)
            nbytes = source.source.bytes_per_entry * grid.entries(*first)
            track.ran("fetch", first, name, (begun, track.now(stream)), nbytes=nbytes)
        begun = track.now(stream)
        measure(stream, block, stack.rows, stack.column)
        flops = 0
        if products is not None and is_form:
            flops = products.add(stream, block, stack.rows, stack.column, halved=first.i == first.j)
        elif products is not None:
            flops = products.add_mirrored(stream, block, stack.rows, stack.column)
        track.ran("compute", first, name, (begun, track.now(stream)), flops=flops)
        finish(device, ())  # it may have been aborted
        yield
