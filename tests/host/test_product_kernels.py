"""Products of packed row blocks on the host: within their bounds for every kind, precision and width, with the same bits."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse

from ooc_chol import Precision
from ooc_chol.errors import ScheduleError
from tests.host.packed_blocks import block_of, blocks_of
from tests.inside.kernels import MOST_ENTRIES, PANEL_COLUMNS, open_product_device, piece_bounds
from tests.inside.process import sparse_tools
from tests.inside.tasks import ValueKind
from tests.tolerances import sparse_product_bound

PATTERN, INT8, FP32, FP64 = ValueKind
FFF, FDF, DDD = Precision

#: Values that a kind holds, and that narrower ones do not.
VALUES = {
    PATTERN: lambda rng, count: np.full(count, 0.1),
    INT8: lambda rng, count: rng.integers(-128, 128, count).astype(float),
    FP32: lambda rng, count: rng.standard_normal(count).astype(np.float32).astype(float),
    FP64: lambda rng, count: rng.standard_normal(count),
}


def matrix(lengths, n_columns, kind, seed=0):
    """A CSR matrix whose rows have these lengths, of random columns."""
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.choice(n_columns, length, replace=False)) for length in lengths]
    indices = np.concatenate([np.empty(0, np.int32), *columns]).astype(np.int32)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    return scipy.sparse.csr_array((VALUES[kind](rng, len(indices)), indices, starts), shape=(len(lengths), n_columns))


def panel(rows, columns, precision, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(precision.storage)


@contextmanager
def opened(precision, n_columns, columns=8, threads=1):
    """A host device with product kernels, and its stream."""
    with closing(open_product_device("host:0", precision, columns, 1, threads)) as device:
        device.allocate(0, 0, n_columns)
        stream = device.create_stream("compute")
        yield device.kernels, stream
        stream.synchronize()


def product(blocks, shape, x, precision, *, y=None, threads=1, left=1.0, shift=0.0):
    """What the kernels make of all blocks and one panel."""
    y = np.full((shape[0], x.shape[1]), np.nan, precision.storage) if y is None else y.copy()
    with opened(precision, shape[1], x.shape[1], threads) as (kernels, stream):
        kernels.prepare(stream, x)
        for block, data in blocks:
            rows = slice(block.rows.start, block.rows.stop)
            of_rows = [part if isinstance(part, float) else part[rows] for part in (left, shift)]
            kernels.multiply(stream, block, data, x, y[rows], left=of_rows[0], shift=of_rows[1])
        stream.synchronize()
    return y


def check(a, x, y, precision):
    """Hold the product against the one in extended precision."""
    exact = a.astype(np.longdouble) @ x.astype(np.longdouble)
    magnitudes = abs(a).astype(np.longdouble) @ np.abs(x).astype(np.longdouble)
    entries = np.diff(a.indptr)[:, None]
    assert np.all(np.abs(y - exact) <= sparse_product_bound(entries, magnitudes, precision.compute, exact, precision.storage))


# accuracy


@pytest.mark.parametrize("columns", PANEL_COLUMNS)
@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("kind", ValueKind)
def test_a_product_is_within_its_bound(kind, precision, columns):
    lengths = np.random.default_rng(2).integers(0, 60, 700)
    lengths[[0, 5, 6, 7, 699]] = 0, 0, 5000, 0, 0
    a = matrix(lengths, 6000, kind)
    x = panel(6000, columns, precision)
    check(a, x, product([block_of(a, range(700), kind)], a.shape, x, precision), precision)


@pytest.mark.parametrize("precision", Precision)
def test_blocks_of_all_kinds_make_one_matrix(precision):
    parts = [matrix([20] * 50, 300, kind, seed) for seed, kind in enumerate(ValueKind)]
    a = scipy.sparse.csr_array(scipy.sparse.vstack(parts))
    x = panel(300, 4, precision)
    check(a, x, product(blocks_of(a, range(0, 201, 50), list(ValueKind)), a.shape, x, precision), precision)


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("kind", [PATTERN, INT8, FP64])
def test_a_row_of_a_million_entries(kind, precision):
    """Equal terms, whose roundings are all of one sign: a plain sum in float32 is wrong by a percent."""
    a = matrix([3, 1_000_000, 0, 2], 1_000_000, PATTERN)
    if kind is not PATTERN:
        a.data[:] = 3.0 if kind is INT8 else 0.1
    for columns in (1, 2):
        x = np.full((1_000_000, columns), 0.7, precision.storage)
        check(a, x, product([block_of(a, range(4), kind)], a.shape, x, precision, threads=2), precision)


@pytest.mark.parametrize(
    ("lengths", "n_columns"), [([1], 1), ([0], 1), ([0, 0, 0], 5), ([0, 1, 1], 1), ([2, 0], 3), ([], 4), ([0, 0], 0)]
)
@pytest.mark.parametrize("precision", Precision)
def test_small_and_empty_matrices(lengths, n_columns, precision):
    a = matrix(lengths, n_columns, FP64)
    x = panel(n_columns, 2, precision)
    y = product([block_of(a, range(len(lengths)), FP64)], a.shape, x, precision)
    check(a, x, y, precision)
    assert not np.isnan(y).any()


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("kind", [PATTERN, FP64])
@pytest.mark.parametrize("columns", [1, 8])
def test_scalings_and_shifts_are_those_of_the_rows(kind, precision, columns):
    a = matrix([9, 0, 30, 6000, 2], 6000, kind)
    rng = np.random.default_rng(3)
    x, y = panel(6000, columns, precision), panel(5, columns, precision, seed=4)
    sums = a.astype(np.longdouble) @ x.astype(np.longdouble)
    magnitudes = abs(a).astype(np.longdouble) @ np.abs(x).astype(np.longdouble)
    vector, other = rng.standard_normal(5), rng.standard_normal(5)
    for left, shift in ((-1.0, vector), (vector, 0.0), (vector, other), (0.5, 2.0), (1.0, -3.0), (0.0, 1.0)):
        found = product([block_of(a, range(5), kind)], a.shape, x, precision, y=y, left=left, shift=shift)
        scale, add = (np.broadcast_to(part, 5)[:, None] for part in (left, shift))
        exact = add * y.astype(np.longdouble) + scale * sums
        size = np.abs(add * y) + np.abs(scale) * magnitudes
        bound = sparse_product_bound(np.diff(a.indptr)[:, None] + 2, size, precision.compute, exact, precision.storage)
        assert np.all(np.abs(found - exact) <= bound), (left, shift)


def test_a_result_is_rounded_once():
    """In FDF, of the sum in float64; and a diagonal is applied before that, not after."""
    a = matrix([40] * 200, 500, FP64)
    x = panel(500, 1, FDF)
    wide = a @ x.astype(float)
    blocks = [block_of(a, range(200), FP64)]
    assert np.array_equal(product(blocks, a.shape, x, FDF), wide.astype(np.float32))
    factors = np.random.default_rng(5).standard_normal(200)
    assert np.array_equal(product(blocks, a.shape, x, FDF, left=factors), (wide * factors[:, None]).astype(np.float32))


@pytest.mark.parametrize("precision", Precision)
def test_a_panel_is_scaled_in_float64_and_rounded_once(precision):
    x, factors = panel(300_000, 2, precision), np.random.default_rng(6).standard_normal(300_000)
    expected = (x.astype(float) * factors[:, None]).astype(precision.storage)
    with opened(precision, len(x), threads=2) as (kernels, stream):
        kernels.scale(stream, factors, x)
    assert np.array_equal(x, expected)


# bits


@pytest.fixture(scope="module")
def graph():
    """Of several pieces, with a row longer than a piece may be and rows of several segments; every value is a whole number."""
    lengths = np.random.default_rng(7).integers(0, 120, 8000)
    lengths[[17, 4000, 7990]] = 300_000, 70_000, 9000
    return matrix(lengths, 300_000, INT8)


@pytest.mark.parametrize("precision", Precision)
def test_blocks_threads_kinds_and_widths_leave_no_trace_in_the_bits(graph, precision):
    n = graph.shape[0]
    x = panel(graph.shape[1], 8, precision)
    left, shift = np.random.default_rng(8).standard_normal((2, n))
    y = panel(n, 8, precision, seed=9)

    def made(blocks, columns=range(8), threads=1):
        parts = [np.ascontiguousarray(part[:, columns.start : columns.stop]) for part in (x, y)]
        return product(blocks, graph.shape, parts[0], precision, y=parts[1], threads=threads, left=left, shift=shift)

    wanted = made([block_of(graph, range(n), INT8)])
    for threads in range(1, 5):
        blocks = blocks_of(graph, [0, 1, 17, 18, 3000 + threads, n], [FP64, FP32, INT8])
        assert np.array_equal(made(blocks, threads=threads), wanted)
    for width in PANEL_COLUMNS:
        blocks = [block_of(graph, range(n), FP32)]
        found = np.hstack([made(blocks, range(at, at + width), threads=2) for at in range(0, 8, width)])
        assert np.array_equal(found, wanted), width


@pytest.mark.parametrize("precision", Precision)
def test_a_pattern_has_the_bits_of_its_stored_values(precision):
    a = matrix([50] * 400, 1000, PATTERN)
    x = panel(1000, 2, precision)
    results = [product([block_of(a, range(400), kind)], a.shape, x, precision) for kind in (PATTERN, FP64)]
    assert np.array_equal(*results)


@pytest.mark.parametrize("most_rows", [1, 7, 32768])
def test_pieces_are_whole_rows_and_fit_their_scratch(graph, most_rows):
    for starts in (
        graph.indptr.astype(np.int32),
        np.zeros(10, np.int32),
        np.array([0, MOST_ENTRIES, 2 * MOST_ENTRIES, 2 * MOST_ENTRIES], np.int32),
        np.array([0, 5, 5, 5 + 2 * MOST_ENTRIES, 5 + 2 * MOST_ENTRIES], np.int32),
    ):
        bounds = piece_bounds(starts, most_rows)
        assert bounds[0] == 0 and bounds[-1] == len(starts) - 1 and bounds == sorted(set(bounds))
        for first, stop in pairwise(bounds):
            assert stop - first == 1 or (starts[stop] - starts[first] <= MOST_ENTRIES and stop - first <= most_rows)


# panels and workspace


def test_several_panels_stay_prepared_and_a_changed_one_is_prepared_again():
    a = matrix([10] * 30, 40, FP64)
    block, data = block_of(a, range(30), FP64)
    with opened(FDF, 40, columns=6) as (kernels, stream):
        panels = [panel(40, columns, FDF, seed=columns) for columns in (4, 2)]
        for _ in range(2):
            for x in panels:
                kernels.prepare(stream, x)
            for x in panels:
                y = np.empty((30, x.shape[1]), np.float32)
                kernels.multiply(stream, block, data, x, y)
                stream.synchronize()
                assert np.array_equal(y, (a @ x.astype(float)).astype(np.float32))
                x *= 3
        others = [panel(40, 4, FDF, seed=11), panel(40, 2, FDF, seed=12)]
        for x in others:
            kernels.prepare(stream, x)
        with pytest.raises(ScheduleError, match="prepare"):
            kernels.multiply(stream, block, data, panels[0], np.empty((30, 4), np.float32))
        with pytest.raises(ValueError, match="room for 40 rows and 6 columns"):
            kernels.prepare(stream, panel(40, 8, FDF))


def test_only_fdf_takes_room_for_panels():
    def nbytes(precision, nb, columns, threads=1):
        with closing(open_product_device("host:0", precision, columns, 1, threads)) as device:
            return device.kernels.workspace_bytes(nb)

    assert nbytes(FDF, 1024, 8) - nbytes(FDF, 0, 8) == 8 * 8 * 1024
    assert nbytes(DDD, 1024, 8) == nbytes(DDD, 0, 8) and nbytes(FFF, 1024, 8) == nbytes(FFF, 0, 8)
    assert nbytes(DDD, 0, 1, threads=3) - nbytes(DDD, 0, 1, threads=2) < 4 << 20


def test_what_compiled_code_would_read_outside_of_is_refused():
    a = matrix([10] * 30, 40, FP64)
    block, data = block_of(a, range(30), FP64)
    x, y = panel(40, 2, DDD), np.empty((30, 2))
    with opened(DDD, 40) as (kernels, stream):
        for wrong in (
            (data, x.astype(np.float32), y),
            (data, np.asfortranarray(x), y),
            (data, x[:, :1], y),
            (data, np.ones((40, 3)), np.empty((30, 3))),
            (data, x, y[:-1]),
            (data[:-128], x, y),
        ):
            with pytest.raises(ValueError):
                kernels.multiply(stream, block, *wrong)
        for diagonal in (np.ones(29), np.ones(30, np.float32)):
            with pytest.raises(ValueError):
                kernels.multiply(stream, block, data, x, y, left=diagonal)
        with pytest.raises(ValueError):
            kernels.scale(stream, np.ones(39), x)


def test_the_interpreter_runs_beside_one_call_of_scipys():
    """Threads could not share the pieces of a block otherwise."""
    count, columns = 1 << 20, 256
    arrays = np.array([0, count], np.int32), np.zeros(count, np.int32), np.ones(count)
    y, ticks = np.zeros(columns), 0
    thread = threading.Thread(target=sparse_tools().csr_matvecs, args=(1, 1, columns, *arrays, np.ones(columns), y))
    thread.start()
    while thread.is_alive():
        time.sleep(1e-3)
        ticks += 1
    assert (y == count).all()
    assert ticks >= 8
