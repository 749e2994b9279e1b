"""Measurements of one block for mixed precision: norms of A's tiles, and products of A's or L's with random vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.pieces import ArrayPiece, Piece, SourcePiece, TierPiece
from ooc_chol.dense.execution.executor import opened_for_a_pass
from ooc_chol.dense.matrix_norms import STREAMS, MeasuredTiles, measure_tiles, norms_of
from ooc_chol.dense.probing import ProbedSums, probe_arrays
from ooc_chol.dense.programs.layouts import slot_bytes_of
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.formats import FP64
from ooc_chol.hardware.registry import resolve_devices
from ooc_chol.interfaces import AbstractTier
from ooc_chol.memory.sources.base import unchanged
from ooc_chol.precision.norms import MatrixNorms, Probes, sample_starts
from ooc_chol.process.garbage_collector import collector_off
from ooc_chol.runtime.passes import finish
from ooc_chol.runtime.shutdown import devices_closed
from ooc_chol.tasks.windows import Window


@dataclass(frozen=True)
class Measuring:
    """Measurements requested of every block of A."""

    #: Every how many rows and columns of a tile a sample takes, in the whole matrix; None where none is taken
    step: int | None = None
    power: int | None = None  #: That of the random vectors that A is multiplied with; None where it is multiplied with none


@dataclass(frozen=True, eq=False)
class BlockNorms:
    """Measurements of one block of A."""

    tiles: NDArray[np.float64]  #: (n tiles of the window,) Frobenius norms, in the order of ``window.tiles()``
    diagonal: NDArray[np.float64] | None  #: (rows,) the diagonal of A, of a block on it
    sample: NDArray[np.float64] | None  #: (sample rows, sample columns) the block's part of the sample
    form: NDArray[np.float64] | None  #: (s, s) the block's part of ``U.T @ A @ V``, with that of its mirror image
    seconds: float  #: Seconds that the pass took


def measure_block(run: ClusterRun, window: Window, asked: Measuring, a: NDArray[np.float64] | None = None) -> BlockNorms:
    """Measure one block of A on this worker's devices; ``a`` are its entries where the worker cannot read them for itself.

    The norms are those that one machine measures, to the bit: they are per tile. The vectors are drawn for the rows that the
    block meets, the same on every worker.
    """
    piece = Piece(run.grid, window)
    source = SourcePiece(run.source, piece) if a is None else ArrayPiece(a, piece)
    probes = None if asked.power is None else Probes.of_rows(*piece.spans, power=asked.power)
    with unchanged(source), opened_for_a_pass(resolve_devices(run.options.devices), piece.grid) as devices:
        tier, own = SourceTier(source, piece.grid), piece.own_tiles()
        measured = measure_tiles(piece.grid, devices, tier, own, step=asked.step, probes=probes)
    return BlockNorms(
        measured.tiles[[piece.grid.packed(*index) for index in own]],
        measured.diagonal if window.has_diagonal else None,
        _own_sample(piece, measured.sample, asked.step),
        measured.form,
        measured.seconds,
    )


def _own_sample(piece: Piece, sample: NDArray[np.float64] | None, step: int | None) -> NDArray[np.float64] | None:
    """The window's part of a sample of the piece."""
    if sample is None or step is None or piece.window.has_diagonal:
        return sample
    end = sample_starts(piece.grid, step)[len(piece.window.columns)]
    return sample[end:, :end]


def joined_norms(
    blocks: BlockGrid, asked: Measuring, parts: Iterable[tuple[BlockPlace, BlockNorms]], probes: Probes | None = None
) -> MatrixNorms:
    """Norms of A by what was measured of its blocks; sums are taken column of blocks after column, whoever made the parts."""
    grid = blocks.tiles
    tiles, diagonal = np.zeros(grid.n_tiles), np.empty(grid.n)
    starts = None if asked.step is None else sample_starts(grid, asked.step)
    sample = None if starts is None else np.zeros((starts[-1], starts[-1]))
    columns: dict[int, NDArray[np.float64]] = {}
    seconds = 0.0
    for place, part in parts:
        window, rows = blocks.window(place), blocks.rows(place.row)
        tiles[[grid.packed(*index) for index in window.tiles()]] = part.tiles
        seconds += part.seconds
        if part.diagonal is not None:
            diagonal[rows.start : rows.stop] = part.diagonal
        if sample is not None and starts is not None and part.sample is not None:
            sample[_sampled(starts, window.rows), _sampled(starts, window.columns)] = part.sample
        if part.form is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # of entries that are no numbers; the factorization names them
                columns[place.column] = part.form + columns[place.column] if place.column in columns else part.form
    with np.errstate(over="ignore", invalid="ignore"):
        form: NDArray[np.float64] | None = np.sum(list(columns.values()), axis=0) if columns else None
    measured = MeasuredTiles(grid, tiles, diagonal, sample, form, seconds)
    return norms_of(measured, step=asked.step, probes=probes)


def _sampled(starts: NDArray[np.int64], rows: range) -> slice:
    """The rows of a sample that come from some tile rows."""
    return slice(int(starts[rows.start]), int(starts[rows.stop]))


def transposed_product(run: ClusterRun, window: Window, store: AbstractTier, power: int) -> NDArray[np.float64]:
    """``L[s, p].T @ W[s]`` of one block on this worker's first device, ``W`` being the random vectors: ``(columns, 2 s)``.

    The tiles of the block are read from ``store``, whose other ones need not be there.
    """
    piece = Piece(run.grid, window)
    probes, grid = Probes.of_rows(*piece.spans, power=power), piece.grid
    tier, own, slot_bytes = TierPiece(store, piece), piece.own_tiles(), slot_bytes_of(grid)
    narrow = max((fmt.stored_bytes(grid.entries(*index)) for index in own if (fmt := tier.format_of(index)) != FP64), default=0)
    with opened_for_a_pass(resolve_devices(run.options.devices)[:1], grid) as devices, collector_off():
        (device,) = devices
        with devices_closed(devices, ()):
            arrays = probe_arrays(grid.n, probes.vectors.shape[1], STREAMS)
            arena = device.allocate(STREAMS, slot_bytes, grid.size(0), arrays, narrow_bytes=narrow)
            with device.current():
                streams = [device.create_stream(f"product-{number}") for number in range(STREAMS)]
                sums = ProbedSums(grid, device, arena.arrays, slot_bytes)
                sums.start(streams[0], probes.vectors)
                for at, index in enumerate(own):  # Z[j] += L[i, j].T @ W[i]
                    number = at % STREAMS
                    tile = arena.tile(number, grid.shape(*index))
                    device.copy_in(streams[number], tier, index, tile)
                    sums.add(streams[number], tile, range(index[0], index[0] + 1), index[1])
                finish(device, streams)
                return sums.total(streams[0])[: len(piece.spans[0])]


def column_square(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """``Y.T @ Y`` of ``Y = sum_s L[s, p].T W[s]``, in the order of the block rows."""
    total = parts[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts[1:]:
            total = total + part
        square: NDArray[np.float64] = total.T @ total
    return square
