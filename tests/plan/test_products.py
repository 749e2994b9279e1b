"""Products in FP16: which are chosen, and what the norms of a sample are worth."""

import numpy as np
import pytest

from tests.inside.precision import (
    FP16,
    SAFETY,
    SHARE,
    FactorNorms,
    MatrixNorms,
    NarrowProducts,
    ProductForm,
    choose_formats,
    sample_step,
)
from tests.inside.tasks import Panel, TileGrid


def covariance(n, correlation_range):
    """Exponential covariance of points along a line."""
    x = np.sort(np.random.default_rng(1).random(n))
    return np.exp(-np.abs(np.subtract.outer(x, x)) / correlation_range) + 1e-3 * np.eye(n)


def tile_norms(matrix, grid):
    """Frobenius norm and largest column norm of each tile of the lower triangle."""
    tiles, columns = np.zeros((grid.nt, grid.nt)), np.zeros((grid.nt, grid.nt))
    for i, j in grid.tiles():
        tile = matrix[grid.start(i) :, grid.start(j) :][: grid.size(i), : grid.size(j)]
        tiles[i, j], columns[i, j] = np.linalg.norm(tile), np.linalg.norm(tile, axis=0).max()
    return FactorNorms(tiles, columns)


def precision_of(a, nb, threshold):
    """The map of formats of a dense matrix."""
    grid = TileGrid(len(a), nb)
    tiles = tile_norms(a, grid).tiles[np.tril_indices(grid.nt)]
    ones = np.ones(grid.nt)
    return choose_formats(MatrixNorms(grid, tiles, nb * ones, ones, ones), threshold)


def strided(a, grid, step):
    """Every ``step``-th row and column of each tile."""
    rows = np.concatenate([np.arange(grid.start(i), grid.start(i) + grid.size(i), step) for i in range(grid.nt)])
    return a[np.ix_(rows, rows)]


@pytest.mark.parametrize("correlation_range", [0.01, 0.1, 1.0])
@pytest.mark.parametrize(("n", "nb"), [(1024, 64), (1000, 64)])
def test_a_sample_has_nearly_the_norms_of_the_factor(n, nb, correlation_range):
    a, grid = covariance(n, correlation_range), TileGrid(n, nb)
    true = tile_norms(np.linalg.cholesky(a), grid)
    expected = FactorNorms.expected(grid, strided(a, grid, 4), 4)
    assert expected is not None
    counts = true.tiles > 1e-6 * true.tiles.max()  # smaller ones decide nothing
    ratio = expected.tiles[counts] / true.tiles[counts]
    assert np.all((ratio >= SAFETY / 2) & (ratio <= 2 * SAFETY))


def test_a_sample_of_all_rows_has_the_norms_themselves():
    a, grid = covariance(300, 0.1), TileGrid(300, 64)
    true, expected = tile_norms(np.linalg.cholesky(a), grid), FactorNorms.expected(grid, a, 1)
    np.testing.assert_allclose(expected.tiles, 1.5 * true.tiles, rtol=1e-10)
    np.testing.assert_allclose(expected.columns, 1.5 * true.columns, rtol=1e-10)


def test_an_indefinite_sample_says_nothing():
    assert FactorNorms.expected(TileGrid(4, 2), np.diag([1.0, -1.0, 1.0, 1.0]), 1) is None


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


def choice_for(threshold, n, nb):
    """How products are chosen for an exponential covariance whose factor is known."""
    a = covariance(n, 0.05)
    precision = precision_of(a, nb, threshold)
    return NarrowProducts(precision, tile_norms(np.linalg.cholesky(a), precision.grid))


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("threshold", [1e-2, 1e-4, 1e-6])
def test_the_chosen_products_stay_within_their_share(threshold, width):
    choice = choice_for(threshold, 512, 32)
    norms, nt = choice.norms, choice.precision.grid.nt
    limit = (SHARE * threshold * choice.precision.norms.total / nt) ** 2
    for panel in (Panel(k0, min(width, nt - k0), 1) for k0 in range(0, nt, width)):
        stop = panel.k0 + panel.width
        for row in range(panel.k0, nt):
            chosen = choice.of(panel, row)
            assert len(chosen) == stop
            if row < stop:
                assert not any(chosen)
                continue
            taken = np.array([form is ProductForm.FP16 for form in chosen])
            for column in range(panel.k0, stop):
                errors = norms.squared_errors(row, slice(column, column + 1), column)[0]
                assert errors @ taken[:column] <= limit


def test_a_larger_threshold_chooses_more():
    shares = [choice_for(threshold, 1024, 64).share(4) for threshold in (1e-9, 1e-6, 1e-4, 1e-2)]
    assert shares == sorted(shares) and shares[0] < shares[-1]


def test_steps_of_a_sample():
    assert sample_step(TileGrid(163840, 2048)) == 64
    assert sample_step(TileGrid(300, 16)) == 1
    assert FP16.unit_roundoff == 2.0**-11
