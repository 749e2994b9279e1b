"""The pass over A on CUDA devices: the norms, diagonal and sample that NumPy finds."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import measured_norms, open_device
from tests.host.matrices import upper_poisoned
from tests.inside.bench import CovarianceProblem
from tests.inside.precision import FactorNorms, sample_step
from tests.tolerances import NORM_RTOL, SAMPLE_RTOL

pytestmark = pytest.mark.cuda


def symmetric(n, scale=1.0):
    """A symmetric matrix with a dominant diagonal."""
    entries = np.random.default_rng(0).standard_normal((n, n))
    return scale * (np.tril(entries) + np.tril(entries, -1).T + np.diag(n + np.arange(n) / n))


def surveyed(a, nb):
    """Norms of the tiles of A, a matrix or a source, on a GPU."""
    return measured_norms(a, nb, [open_device("cuda:0")])


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize(("n", "nb"), [(1, 8), (64, 16), (70, 16), (300, 130), (1000, 333)])
def test_norms_of_an_array_with_anything_above_the_diagonal(n, nb, scale):
    a = symmetric(n, scale)
    norms = surveyed(upper_poisoned(a), nb)
    spans = [slice(span.start, span.stop) for span in map(norms.grid.span, range(norms.grid.nt))]
    expected = [scale * np.linalg.norm(a[spans[i], spans[j]] / scale) for i, j in norms.grid.tiles()]
    np.testing.assert_allclose(norms.tiles, expected, rtol=NORM_RTOL, atol=0.0)
    diagonals = [np.diagonal(a)[span] for span in spans]
    np.testing.assert_allclose(norms.traces, [diagonal.sum() for diagonal in diagonals], rtol=NORM_RTOL)
    assert norms.least.tolist() == [diagonal.min() for diagonal in diagonals]
    assert norms.largest.tolist() == [diagonal.max() for diagonal in diagonals]


@pytest.mark.parametrize(("n", "nb"), [(300, 130), (2000, 256), (64, 64)])
def test_a_sample_of_a_function_tells_what_to_expect_of_the_factor(n, nb):
    problem = CovarianceProblem(n)
    found = surveyed(oc.from_function(n, problem.host_tile, cuda=problem.cuda_tile()), nb)
    grid, step = found.grid, sample_step(found.grid)
    rows = np.concatenate([np.arange(n)[span.start : span.stop : step] for span in map(grid.span, range(grid.nt))])
    expected = FactorNorms.expected(grid, problem.block(slice(0, n), slice(0, n))[np.ix_(rows, rows)], step)
    assert expected is not None and found.expected is not None
    np.testing.assert_allclose(found.expected.tiles, expected.tiles, rtol=SAMPLE_RTOL)
    np.testing.assert_allclose(found.expected.columns, expected.columns, rtol=SAMPLE_RTOL)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(("row", "col"), [(0, 0), (45, 45), (95, 3)])
def test_an_entry_that_is_not_finite_makes_a_norm_that_is_not(row, col, value):
    a = symmetric(100)
    a[row, col] = value
    norms = surveyed(a, 40)
    bad = norms.grid.packed(row // 40, col // 40)
    assert [at for at, norm in enumerate(norms.tiles) if not np.isfinite(norm)] == [bad]
