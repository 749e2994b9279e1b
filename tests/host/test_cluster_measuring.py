"""What a worker measures of single blocks, put together, is what one machine measures of the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import FactorOptions
from tests.host.mixed_precision import matern
from tests.inside.cluster import BlockGrid, ClusterRun, Measuring, column_square, joined_norms, measure_block, transposed_product
from tests.inside.dense import MemoryStore, SourceTier, form_of_factor, measure_matrix, opened_for_a_pass
from tests.inside.memory import as_source
from tests.inside.precision import FP8, FP16, FP32, FP64, Probes, sample_step
from tests.inside.tasks import TileGrid
from tests.tolerances import unit_roundoff

N, NB, HEIGHT = 147, 16, 3
A = matern(N, 1.5, 0.1, 0.01)


def tile_of_a(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """A as a tile function."""
    out[...] = A[rows.start : rows.stop, cols.start : cols.stop]


def blocks(height: int = HEIGHT) -> BlockGrid:
    return BlockGrid(TileGrid(N, NB), height)


def run_of(source: object = None) -> ClusterRun:
    options = FactorOptions(tile_size=NB, devices="host:0", fp64="native")
    return ClusterRun(TileGrid(N, NB), options, FP64, None, {}, None if source is None else as_source(source))


def measured_by_blocks(cut: BlockGrid, asked: Measuring, source: object):
    run, parts = run_of(source), []
    for place in cut.places():
        rows, cols = cut.rows(place.row), cut.rows(place.column)
        given = None if source is not None else A[rows.start : rows.stop, cols.start : cols.stop]
        parts.append((place, measure_block(run, cut.window(place), asked, given)))
    return joined_norms(cut, asked, parts, Probes.of(N))


@pytest.mark.parametrize("height", [1, 3, 4, 20])
@pytest.mark.parametrize("source", [None, A, oc.from_function(N, tile_of_a)], ids=["blocks", "array", "function"])
def test_norms_of_blocks_are_those_of_the_matrix_to_the_bit(height, source):
    grid = TileGrid(N, NB)
    asked = Measuring(sample_step(grid), power=0)
    with opened_for_a_pass(("host:0",), grid) as devices:
        whole = measure_matrix(grid, devices, SourceTier(as_source(A), grid), probes=Probes.of(N))
    parts = measured_by_blocks(blocks(height), asked, source)
    for name in ("tiles", "traces", "least", "largest", "diagonal"):
        assert np.array_equal(getattr(parts, name), getattr(whole, name)), name
    assert np.array_equal(parts.expected.tiles, whole.expected.tiles)
    assert np.array_equal(parts.expected.columns, whole.expected.columns)
    vectors = Probes.of(N).vectors
    form = vectors[:, :64].T @ A @ vectors[:, 64:]
    scale = np.abs(vectors[:, :64]).T @ np.abs(A) @ np.abs(vectors[:, 64:])
    for found in (parts.form, whole.form):
        assert np.all(np.abs(found - form) <= 4 * N * unit_roundoff(np.float64) * scale)


def test_rows_of_random_vectors_are_those_of_all():
    every = Probes.of(10_000, 6).vectors
    some = Probes.of_rows(range(100, 300), range(4000, 9001), power=6).vectors
    assert np.array_equal(some, np.concatenate([every[100:300], every[4000:9001]]))


@pytest.mark.parametrize("height", [1, 3, 20])
def test_products_of_blocks_of_l_with_vectors_make_the_form_of_the_factor(height):
    cut, rng = blocks(height), np.random.default_rng(0)
    formats = tuple(FP64 if i == j else (FP64, FP32, FP16, FP8)[(i + j) % 4] for i, j in cut.tiles.tiles())
    store, factor = MemoryStore(cut.tiles, formats), np.zeros((N, N))
    for i, j in cut.tiles.tiles():
        tile = rng.standard_normal(cut.tiles.shape(i, j))
        store.write((i, j), np.tril(tile) if i == j else tile)
        store.read((i, j), tile)
        factor[cut.tiles.span(i).start : cut.tiles.span(i).stop, cut.tiles.span(j).start : cut.tiles.span(j).stop] = tile
    squares = [
        column_square([transposed_product(run_of(), cut.window(p), store, power=0) for p in cut.places() if p.column == column])
        for column in range(cut.n_blocks)
    ]
    vectors = Probes.of(N).vectors
    square = (factor.T @ vectors).T @ (factor.T @ vectors)
    bound = 8 * N * unit_roundoff(np.float64) * (np.abs(factor).T @ np.abs(vectors)).T @ (np.abs(factor).T @ np.abs(vectors))
    assert np.all(np.abs(sum(squares) - square) <= bound)
    assert np.array_equal(form_of_factor(sum(squares)), sum(squares)[:64, 64:])
