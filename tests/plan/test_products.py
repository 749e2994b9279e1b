"""Products in FP16: which are chosen, what they really lose, and what the norms of a sample are worth."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.kernels import NORM_COLUMNS
from tests.inside.precision import (
    FP16,
    PROBES,
    PRODUCTS_PART,
    SAFETY,
    FactorNorms,
    MatrixNorms,
    MeasuredProducts,
    PrecisionMap,
    ResidueBasis,
    choose_formats,
    expected_share,
    narrow_of,
    safety_factor,
    sample_step,
)
from tests.inside.tasks import Panel, TileGrid


@cache
def covariance(n, correlation_range, where="line"):
    """Exponential covariance of points along a line, or in a square, strip by strip."""
    points = np.random.default_rng(1).random((n, 1 if where == "line" else 2))
    points = points[np.lexsort((points[:, 0], np.floor(8 * points[:, -1]) if where == "square" else points[:, 0]))]
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    return np.exp(-distances / correlation_range) + 1e-3 * np.eye(n)


@cache
def factor(n, correlation_range):
    """Its Cholesky factor."""
    return np.linalg.cholesky(covariance(n, correlation_range))


def tile_of(matrix, grid, i, j):
    return matrix[np.ix_(grid.span(i), grid.span(j))]


def tile_norms(matrix, grid):
    """Frobenius norm and largest column norm of each tile of the lower triangle."""
    tiles, columns = np.zeros((grid.nt, grid.nt)), np.zeros((grid.nt, grid.nt))
    for i, j in grid.tiles():
        tile = tile_of(matrix, grid, i, j)
        tiles[i, j], columns[i, j] = np.linalg.norm(tile), np.linalg.norm(tile, axis=0).max()
    return FactorNorms(tiles, columns)


def precision_of(a, nb, threshold) -> PrecisionMap:
    """The map of formats of a dense matrix."""
    grid = TileGrid(len(a), nb)
    tiles = tile_norms(a, grid).tiles[np.tril_indices(grid.nt)]
    diagonals = [a.diagonal()[list(grid.span(k))] for k in range(grid.nt)]
    return choose_formats(
        MatrixNorms(grid, tiles, *(np.array([f(each) for each in diagonals]) for f in (np.sum, np.min, np.max))), threshold
    )


def measured(lower, grid) -> np.ndarray:
    """Numbers that kernels measure of each packed tile of L."""
    rows = np.zeros((grid.n_tiles, len(NORM_COLUMNS)))
    for i, j in grid.tiles():
        magnitudes = np.abs(tile_of(lower, grid, i, j))
        sums = magnitudes.sum(axis=1).max(), magnitudes.sum(axis=0).max()
        rows[grid.packed(i, j)] = np.linalg.norm(magnitudes), 0.0, *sums, magnitudes.max()
    return rows


def panels_of(nt, width) -> list[Panel]:
    return [Panel(k0, min(width, nt - k0), 1) for k0 in range(0, nt, width)]


def learn_panel(choice, panel, rows, grid):
    """Numbers that a run tells as a panel has become final."""
    for i in range(panel.k0, grid.nt):
        first, count = grid.packed(i, panel.k0), min(panel.width, i + 1 - panel.k0)
        choice.learn([i], panel.k0, rows[np.newaxis, first : first + count])


def decided(precision, rows, width) -> MeasuredProducts:
    """Decisions of a run, panel by panel, as each has become final."""
    grid, panels = precision.grid, panels_of(precision.grid.nt, width)
    choice = MeasuredProducts(precision, panels)
    for number, panel in enumerate(panels):
        for row in range(panel.k0, grid.nt):
            choice.forms(number, row)
        learn_panel(choice, panel, rows, grid)
    return choice


def decision(threshold, n=1024, nb=32, width=4, correlation_range=0.05) -> MeasuredProducts:
    """The decisions for an exponential covariance."""
    precision = precision_of(covariance(n, correlation_range), nb, threshold)
    return decided(precision, measured(factor(n, correlation_range), precision.grid), width)


# what a sample tells


def strided(a, grid, step):
    """Every ``step``-th row and column of each tile."""
    rows = np.concatenate([np.arange(grid.start(i), grid.start(i) + grid.size(i), step) for i in range(grid.nt)])
    return a[np.ix_(rows, rows)]


@pytest.mark.parametrize("correlation_range", [0.01, 0.1, 1.0])
@pytest.mark.parametrize(("n", "nb"), [(1024, 64), (1000, 64)])
def test_a_sample_has_nearly_the_norms_of_the_factor(n, nb, correlation_range):
    a, grid = covariance(n, correlation_range), TileGrid(n, nb)
    true = tile_norms(factor(n, correlation_range), grid)
    expected = FactorNorms.expected(grid, strided(a, grid, 4), 4)
    assert expected is not None
    counts = true.tiles > 1e-6 * true.tiles.max()  # smaller ones decide nothing
    ratio = expected.tiles[counts] / true.tiles[counts]
    assert np.all((ratio >= SAFETY / 2) & (ratio <= 2 * SAFETY))


def test_a_sample_of_all_rows_has_the_norms_themselves():
    a, grid = covariance(300, 0.1), TileGrid(300, 64)
    true, expected = tile_norms(factor(300, 0.1), grid), FactorNorms.expected(grid, a, 1)
    np.testing.assert_allclose(expected.tiles, 1.5 * true.tiles, rtol=1e-10)
    np.testing.assert_allclose(expected.columns, 1.5 * true.columns, rtol=1e-10)


def test_an_indefinite_sample_says_nothing():
    assert FactorNorms.expected(TileGrid(4, 2), np.diag([1.0, -1.0, 1.0, 1.0]), 1) is None


def test_steps_of_a_sample():
    assert sample_step(TileGrid(163840, 2048)) == 256
    assert sample_step(TileGrid(300, 16)) == 1
    assert FP16.unit_roundoff == 2.0**-11


@pytest.mark.parametrize("width", [1, 4, 8])
def test_the_expected_share_is_that_of_a_run_whose_norms_are_as_expected(width):
    """But for what a panel leaves to the next, and for norms rounded up: at most 1.2 times the share, and half of it at least."""
    precision = precision_of(covariance(1024, 0.05), 32, 1e-5)
    rows = measured(factor(1024, 0.05), precision.grid)
    share = expected_share(precision, FactorNorms.measured(precision.grid, rows), width)
    nt = precision.grid.nt
    choice = decided(precision, rows, width)
    assert 0.0 < share < 1.0
    assert 0.5 * choice.share <= share <= 1.2 * choice.share
    assert choice.share == choice.products().sum() / (nt * (nt - 1) * (nt - 2) // 6)


# what is chosen


def test_squared_errors_are_those_of_rounding_both_factors():
    rng = np.random.default_rng(2)
    left, right = rng.standard_normal((2, 96, 96))
    norms = FactorNorms(np.zeros((2, 2)), np.zeros((2, 2)))
    norms.tiles[:, 0] = np.linalg.norm(left), np.linalg.norm(right)
    norms.columns[:, 0] = np.linalg.norm(left, axis=0).max(), np.linalg.norm(right, axis=0).max()
    rounded = left.astype(np.float16).astype(float) @ right.astype(np.float16).astype(float).T
    measured = np.linalg.norm(rounded - left @ right.T)
    (squared,) = norms.squared_errors(0, slice(1, 2), 1)[0]
    # Entries of magnitude 1 to 2 err by at most u, which is two of the smallest errors of a binade.
    assert 0.3 * np.sqrt(squared) <= measured <= np.sqrt(squared)


@given(seed=st.integers(0, 2**32 - 1), width=st.integers(1, 5), decades=st.floats(-16.0, 2.0))
def test_the_smallest_products_are_narrow_and_no_tile_takes_more_than_it_may(seed, width, decades):
    """By norms over many decades, some of them zero: none that was left out would have fitted, too."""
    rng, nt, row = np.random.default_rng(seed), 12, 11
    tiles = np.tril(10.0 ** rng.uniform(-6, 0, (nt, nt)) * (rng.random((nt, nt)) > 0.1))
    norms, panel, allowed = FactorNorms(tiles, 0.5 * tiles), Panel(6, width, 1), 10.0**decades
    columns = slice(panel.k0, panel.k0 + panel.width)
    rows, limits = [9, row, 10], [1e3 * allowed, allowed, 0.0]  # those beside it change nothing
    (_, chosen, _), (_, errors, _) = narrow_of(norms, rows, panel, limits, 64)
    (alone,), _ = narrow_of(norms, [row], panel, [allowed], 64)
    assert np.array_equal(alone, chosen)
    squares = norms.squared_errors(row, columns, panel.k0)
    assert chosen.shape == (panel.k0,)
    assert np.all(squares[:, chosen].sum(axis=1) <= allowed)
    assert squares[:, chosen].sum() <= errors * (1 + 1e-12) <= allowed * width * (1 + 2e-12)
    largest = squares.max(axis=0)
    assert largest[chosen].max(initial=0.0) <= largest[~chosen].min(initial=np.inf)
    (more,), _ = narrow_of(norms, [row], panel, [10 * allowed], 64)
    assert np.all(more >= chosen)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_norms_that_are_no_numbers_are_of_no_product_in_fp16(bad):
    tiles = np.tril(np.full((4, 4), 1e-3))
    tiles[3, 1] = bad
    (chosen,), (errors,) = narrow_of(FactorNorms(tiles, tiles), [3], Panel(2, 1, 1), [1.0], 64)
    assert chosen.tolist() == [True, False] and errors < 1.0


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("threshold", [1e-2, 1e-4, 1e-6])
def test_nothing_inside_a_panel_or_in_its_own_rows_is_narrow(threshold, width):
    choice = decision(threshold, width=width)
    products = choice.products()
    nt = len(products)
    assert products.any()
    for panel in panels_of(nt, width):
        stop = panel.k0 + panel.width
        assert not products[:stop, panel.k0 : stop].any()
        assert not products[:, panel.k0 : stop, panel.k0 :].any()
    for i in range(nt):
        assert not products[i, i:].any()  # neither the diagonal nor what is above it


# what it costs


def error_of(products, a, lower, grid) -> float:
    """Frobenius norm of what products in FP16 change ``L L.T`` by, sums in FP64; rows are scaled as kernels scale them."""
    basis = ResidueBasis(8)
    powers = np.array([basis.fp16_exponent(basis.exponent(a_ii)) for a_ii in a.diagonal().tolist()])[:, None]
    rounded = np.ldexp(np.ldexp(lower, powers).astype(np.float16).astype(float), -powers)
    square = 0.0
    for i, j in grid.tiles():
        lost = np.zeros(grid.shape(i, j))
        for k in np.flatnonzero(products[i, j]):
            lost += tile_of(lower, grid, i, k) @ tile_of(lower, grid, j, k).T
            lost -= tile_of(rounded, grid, i, k) @ tile_of(rounded, grid, j, k).T
        square += (1 if i == j else 2) * float(np.square(lost).sum())
    return np.sqrt(square)


@pytest.mark.parametrize("name", ["line, 0.002", "line, 0.05", "line, 1", "square, 0.03", "square, 0.3"])
@pytest.mark.parametrize("width", [1, 4, 8])
@pytest.mark.parametrize("threshold", [1e-2, 1e-3, 1e-4, 1e-6, 1e-9])
def test_what_products_in_fp16_really_lose_is_within_their_part(threshold, width, name):
    """Both factors rounded to FP16, entry by entry: subnormal numbers and zeros among them."""
    where, correlation_range = name.split(", ")
    a = covariance(768, float(correlation_range), where)
    precision, lower = precision_of(a, 32, threshold), np.linalg.cholesky(a)
    choice = decided(precision, measured(lower, precision.grid), width)
    lost = error_of(choice.products(), a, lower, precision.grid)
    limit = PRODUCTS_PART * precision.within / safety_factor(PROBES) * precision.norms.total
    print(f"{name}: {choice.share:.0%} of the products in FP16 lose {lost / limit:.2g} of what they may")
    assert lost <= limit


def test_a_larger_threshold_chooses_more():
    shares = [decision(threshold).share for threshold in (1e-12, 1e-9, 1e-6, 1e-5, 1e-4)]
    assert shares == sorted(set(shares)) and 4 * shares[0] < shares[-1]


# the same choice each time


@given(seed=st.integers(0, 2**32 - 1))
def test_the_last_bits_of_norms_change_no_choice(seed):
    """Kernels sum squares in any order, so that norms differ by a few roundings; but on a step's edge none of these is."""
    precision = precision_of(covariance(512, 0.05), 32, 1e-5)
    rows, rng = measured(factor(512, 0.05), precision.grid), np.random.default_rng(seed)
    changed = rows * (1 + rng.uniform(-1e-14, 1e-14, rows.shape))
    first, second = (decided(precision, each, 3).products() for each in (rows, changed))
    assert first.any() and np.array_equal(first, second)


def test_norms_count_as_the_next_eighth_of_a_power_of_two():
    """All that lie between two of these choose the same, and far larger ones less."""
    precision = precision_of(covariance(512, 0.05), 32, 1e-5)
    rows = measured(factor(512, 0.05), precision.grid)
    rows[rows > 0] = np.exp2((np.floor(8 * np.log2(rows[rows > 0])) + 0.01) / 8)
    low, high, more = (decided(precision, scale * rows, 3).products() for scale in (1.0, 2 ** (0.98 / 8), 4.0))
    assert np.array_equal(low, high)
    assert more.sum() < low.sum()


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("threshold", [1e-4, 1e-6])
def test_rows_decided_together_choose_as_alone(threshold, width):
    precision = precision_of(covariance(768, 0.05), 32, threshold)
    grid, rows = precision.grid, measured(factor(768, 0.05), precision.grid)
    alone, panels = decided(precision, rows, width), panels_of(grid.nt, width)
    together, rng = MeasuredProducts(precision, panels), np.random.default_rng(0)
    for number, panel in enumerate(panels):
        for row in range(panel.k0, grid.nt):
            together.forms(number, row, [each for each in range(row + 1, grid.nt) if rng.random() < 0.5])
        below = range(panel.k0 + panel.width, grid.nt)
        each = [slice(first := grid.packed(i, panel.k0), first + panel.width) for i in below]
        if each:
            together.learn(below, panel.k0, np.stack([rows[part] for part in each]))
        learn_panel(together, panel, rows, grid)
    assert np.array_equal(together.products(), alone.products()) and alone.share > 0.0


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("threshold", [1e-4, 1e-6])
def test_panels_asked_at_the_end_choose_as_in_turn(threshold, width):
    """As on resuming, where all that is given is learned first, and rows ask for the panels of the rest alone."""
    precision = precision_of(covariance(768, 0.05), 32, threshold)
    grid, rows = precision.grid, measured(factor(768, 0.05), precision.grid)
    in_turn, panels = decided(precision, rows, width), panels_of(grid.nt, width)
    at_end = MeasuredProducts(precision, panels)
    for i, j in grid.tiles():
        at = grid.packed(i, j)
        at_end.learn([i], j, rows[np.newaxis, at : at + 1])
    for row in reversed(range(grid.nt)):
        last = next(number for number, panel in enumerate(panels) if row < panel.k0 + panel.width)
        at_end.forms(last, row)
    assert in_turn.share == at_end.share > 0.0
    assert np.array_equal(in_turn.products(), at_end.products())
    # What was decided stays, whatever is learned later.
    before = in_turn.products()
    learn_panel(in_turn, panels[0], 1e6 * rows, grid)
    for row in range(grid.nt):
        in_turn.forms(0, row)
    assert np.array_equal(in_turn.products(), before)
