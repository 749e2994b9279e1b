"""The pass over A for its tiles' norms: against NumPy, for every source, shape and scale, on one device and on two."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.errors import BudgetError
from tests.builders import measured_norms, open_device
from tests.host.matrices import upper_poisoned
from tests.inside.dense import SourceTier, measure_matrix, stacked_tiles
from tests.inside.hardware import host
from tests.inside.precision import FactorNorms, Probes, sample_step
from tests.inside.tasks import TileGrid
from tests.tolerances import NORM_RTOL

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")


def symmetric(n, scale=1.0, seed=0):
    """A symmetric matrix with a dominant diagonal."""
    entries = np.random.default_rng(seed).standard_normal((n, n))
    return scale * (np.tril(entries) + np.tril(entries, -1).T + np.diag(4.0 + np.arange(n) / n))


def measured(a, nb, devices=("host:0",)):
    """Norms of the tiles of A, a matrix or a source."""
    return measured_norms(a, nb, [open_device(name, 2) for name in devices])


def norm_of(tile):
    """Frobenius norm by scaled squares in extended precision."""
    entries = tile.astype(np.longdouble)
    largest = np.abs(entries).max() or 1
    return float(largest * np.sqrt(np.sum(np.square(entries / largest))))


def check(norms, a):
    """Compare with NumPy on the whole matrix."""
    grid, spans = norms.grid, [slice(span.start, span.stop) for span in map(norms.grid.span, range(norms.grid.nt))]
    expected = [norm_of(a[spans[i], spans[j]]) for i, j in grid.tiles()]
    np.testing.assert_allclose(norms.tiles, expected, rtol=NORM_RTOL, atol=0.0)
    diagonals = [np.diagonal(a)[span] for span in spans]
    np.testing.assert_allclose(norms.traces, [diagonal.sum() for diagonal in diagonals], rtol=NORM_RTOL)
    assert norms.least.tolist() == [diagonal.min() for diagonal in diagonals]
    assert norms.largest.tolist() == [diagonal.max() for diagonal in diagonals]
    assert norms.total == pytest.approx(norm_of(a), rel=NORM_RTOL, abs=0.0)
    assert norms.trace == pytest.approx(float(np.diagonal(a).sum()), rel=NORM_RTOL, abs=0.0)
    assert norms.seconds > 0.0


@pytest.mark.parametrize("devices", [("host:0",), ("host:0", "host:1")], ids=len)
@pytest.mark.parametrize(("n", "nb"), [(1, 1), (1, 8), (5, 8), (64, 16), (70, 16), (300, 130), (200, 65)])
def test_norms_of_an_array_with_anything_above_the_diagonal(n, nb, devices):
    a = symmetric(n)
    check(measured(upper_poisoned(a), nb, devices), a)


@pytest.mark.parametrize("scale", [1e-150, 1e-300, 1e150, 1e300])
def test_norms_neither_overflow_nor_vanish(scale):
    a = symmetric(150, scale)
    check(measured(a, 70), a)


def test_rows_of_different_scales():
    n = 200
    powers = 10.0 ** np.linspace(-75, 75, n)
    a = symmetric(n) * powers * powers[:, None]
    check(measured(upper_poisoned(a), 32), a)


def test_subnormal_entries_and_zeros():
    a = symmetric(90, 1e-310)
    check(measured(a, 40), a)
    norms = measured(np.zeros((90, 90)), 40)
    assert not norms.tiles.any() and norms.total == norms.trace == 0.0


@pytest.mark.parametrize("devices", [("host:0",), ("host:0", "host:1")], ids=len)
def test_tiles_of_a_function_are_made_once(devices):
    a, made = symmetric(150), []

    def tile(rows, cols, out, stream):
        made.append((rows, cols))
        out[...] = a[rows.start : rows.stop, cols.start : cols.stop]
        if rows == cols:
            out[np.triu_indices(len(rows), 1)] = np.nan

    norms = measured(oc.from_function(150, tile), 40, devices)
    check(norms, a)
    assert sorted(made, key=str) == sorted(((norms.grid.span(i), norms.grid.span(j)) for i, j in norms.grid.tiles()), key=str)


def test_norms_of_float32_and_of_a_file(tmp_path):
    a = symmetric(100).astype(np.float32)
    check(measured(a, 32), a.astype(np.float64))
    np.save(tmp_path / "a.npy", a.astype(np.float64))
    check(measured(str(tmp_path / "a.npy"), 32), a.astype(np.float64))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("row", "col"), [(0, 0), (45, 44), (45, 45), (95, 3), (99, 99)])
def test_an_entry_that_is_not_finite_makes_a_norm_that_is_not(row, col, value):
    a = symmetric(100)
    a[row, col] = value
    norms = measured(a, 40)
    bad = norms.grid.packed(row // 40, col // 40)
    assert [at for at, norm in enumerate(norms.tiles) if not np.isfinite(norm)] == [bad]
    assert not np.isfinite(norms.total)


def test_a_diagonal_tile_takes_little_memory():
    a, nb = symmetric(1200), 1200
    tracemalloc.start()
    try:
        measured(a, nb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < a.nbytes / 8, "the slots are outside of what is traced"


@pytest.mark.parametrize("devices", [("host:0",), ("host:0", "host:1"), ("host:0", "host:1", "host:2")], ids=len)
@pytest.mark.parametrize(("n", "nb"), [(300, 130), (200, 65), (64, 64), (40, 8)])
def test_a_sample_of_the_tiles_tells_what_to_expect_of_the_factor(n, nb, devices):
    a = symmetric(n) + n * np.eye(n)
    grid = TileGrid(n, nb)
    step = sample_step(grid)
    rows = np.concatenate([np.arange(n)[span.start : span.stop : step] for span in map(grid.span, range(grid.nt))])
    expected = FactorNorms.expected(grid, a[np.ix_(rows, rows)], step)
    opened = [open_device(name, 2) for name in devices]
    found = measured_norms(upper_poisoned(a), nb, opened).expected
    assert expected is not None and found is not None
    np.testing.assert_allclose(found.tiles, expected.tiles, rtol=NORM_RTOL)
    np.testing.assert_allclose(found.columns, expected.columns, rtol=NORM_RTOL)


@pytest.mark.parametrize("devices", [("host:0",), ("host:0", "host:1")], ids=len)
def test_an_error_of_the_source_is_raised(devices):
    def tile(rows, cols, out, stream):
        if (rows.start, cols.start) == (40, 20):
            raise OSError("no such tile")
        out[...] = np.eye(len(rows), len(cols))

    with pytest.raises(OSError, match="no such tile"):
        measured(oc.from_function(100, tile), 20, devices)


def test_too_little_memory_is_told(monkeypatch):
    monkeypatch.setattr(host, "free_host_bytes", lambda: 1000)
    with pytest.raises(BudgetError, match="host:0"):
        measured(symmetric(100), 50)


# tiles that are made at once


@pytest.mark.parametrize("devices", [("host:0",), ("host:0", "host:1"), ("host:0", "host:1", "host:2")], ids=len)
@pytest.mark.parametrize("stacked", [2, 3, 4, 99])
@pytest.mark.parametrize(("n", "nb"), [(300, 40), (64, 64), (65, 64), (320, 40)])
def test_tiles_made_at_once_have_the_norms_of_tiles_made_alone(n, nb, stacked, devices):
    a = symmetric(n)
    source = oc.from_function(
        n, lambda rows, cols, out, stream: out.__setitem__(slice(None), a[rows.start : rows.stop, cols.start : cols.stop])
    )
    grid, probes = TileGrid(n, nb), Probes.of(n)
    alone = measure_matrix(grid, [open_device("host:0", 2)], SourceTier(source, grid), probes=probes)
    opened = [open_device(name, 2) for name in devices]
    at_once = measure_matrix(grid, opened, SourceTier(source, grid), probes=probes, stacked=stacked)
    for name in ("tiles", "traces", "least", "largest", "diagonal"):
        assert np.array_equal(getattr(at_once, name), getattr(alone, name)), name
    assert (at_once.expected is None) == (alone.expected is None)
    if alone.expected is not None:
        assert np.array_equal(at_once.expected.tiles, alone.expected.tiles)
    vectors = np.abs(probes.vectors)
    half = vectors.shape[1] // 2
    scale = vectors[:, :half].T @ np.abs(a) @ vectors[:, half:]
    assert np.all(np.abs(at_once.form - alone.form) <= 4 * n * np.finfo(float).eps * scale)


def test_a_function_is_asked_for_stacks_of_a_column_that_end_at_the_diagonal():
    grid, asked = TileGrid(100, 20), []

    def tile_fn(rows, cols, out, stream):
        asked.append((rows.start // 20, -(-rows.stop // 20), cols.start // 20))
        out[...] = 1.0

    source = oc.from_function(100, tile_fn)
    measure_matrix(grid, [open_device("host:0", 2)], SourceTier(source, grid), stacked=3)
    column = {j: sorted((first, stop) for first, stop, of in asked if of == j) for j in range(5)}
    assert column == {0: [(0, 1), (1, 4), (4, 5)], 1: [(1, 2), (2, 5)], 2: [(2, 3), (3, 5)], 3: [(3, 4), (4, 5)], 4: [(4, 5)]}


@pytest.mark.parametrize(("budget", "stacked"), [(1, 1), (16 * 32768, 1), (2 * 16 * 32768, 2), (10**9, 4)])
def test_stacks_take_an_eighth_of_a_budget_at_most(budget, stacked):
    assert stacked_tiles(TileGrid(640, 64), budget) == stacked
