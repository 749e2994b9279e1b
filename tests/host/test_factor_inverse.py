"""The inverse by panels: the inverse of the factor that is stored, from every store, reading no tile that is not needed."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol import CholeskyFactor
from ooc_chol.errors import TierError
from tests.builders import factor_over
from tests.host.counted_reads import tell_reads
from tests.host.stored_factors import MIXED_STORES, STORES, factor_in, lapack_factor, random_spd, write_factor
from tests.inside.dense import PANEL_BYTES, load, panel_width
from tests.inside.precision import FORMATS
from tests.inside.tasks import TileGrid
from tests.products import share_of_examples
from tests.tolerances import KERNEL_C, gamma, solve_bound

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def assembled(factor: CholeskyFactor, width: int | None) -> NDArray[np.float64]:
    """The symmetric inverse that the panels describe; every entry of the lower triangle is given once."""
    inverse = np.full(factor.shape, np.nan)
    at = 0
    for columns, panel in factor.inverse_panels(width):
        assert columns.start == at and panel.shape == (factor.n - at, len(columns))
        inverse[at:, columns.start : columns.stop] = panel
        inverse[columns.start : columns.stop, at:] = panel.T
        at = columns.stop
    assert at == factor.n
    return inverse


def check_inverse(inverse: NDArray[np.float64], a: NDArray[np.float64]) -> None:
    """Compare column by column: a residual within a solve's bound is an error of ``||inv(A)||`` times that, twice for both."""
    expected = np.linalg.inv(a)
    norm, inverse_norm = float(np.linalg.norm(a, 2)), float(np.linalg.norm(expected, 2))
    for ours, column in zip(inverse.T, expected.T, strict=True):
        bound = 2 * inverse_norm * solve_bound(len(a), norm, float(np.linalg.norm(column)))
        assert np.linalg.norm(ours - column) <= bound


@pytest.mark.parametrize("kind", STORES)
@share_of_examples(0.2)
@given(n=st.integers(1, 40), nb=st.integers(1, 45), width=st.sampled_from([None, 1, 3, 8, 50]), seed=st.integers(0, 2**32 - 1))
def test_panels_and_diagonal_are_those_of_the_inverse(kind: str, n: int, nb: int, width: int | None, seed: int) -> None:
    a = random_spd(n, seed, condition=1e4)
    with tempfile.TemporaryDirectory() as folder, factor_in(kind, lapack_factor(a), nb, Path(folder)) as factor:
        inverse = assembled(factor, width)
        diagonal = factor.inverse_diagonal(width)
    check_inverse(inverse, a)
    # the same number by another route: squares of the forward solve alone, whose error is at most that of the whole column
    columns = np.linalg.norm(inverse, axis=0)
    inverse_norm = float(np.linalg.norm(inverse, 2))
    bound = 2 * inverse_norm * np.array([solve_bound(n, float(np.linalg.norm(a, 2)), norm) for norm in columns])
    assert (np.abs(diagonal - inverse.diagonal()) <= bound).all()


@pytest.mark.parametrize("kind", MIXED_STORES)
def test_a_mixed_factor_gives_the_inverse_of_what_it_stores(kind: str, tmp_path: Path) -> None:
    grid = TileGrid(75, 16)
    names = itertools.cycle(FORMATS)
    formats = [FORMATS["fp64"] if i == j else FORMATS[next(names)] for i, j in grid.tiles()]
    store = MIXED_STORES[kind](grid, formats, tmp_path)
    write_factor(lapack_factor(random_spd(75, seed=3, condition=10.0)), store)
    with factor_over(store) as factor:
        stored = np.asarray(factor)
        check_inverse(assembled(factor, 20), stored @ stored.T)
        np.testing.assert_allclose(factor.inverse_diagonal(), assembled(factor, None).diagonal(), rtol=1e3 * gamma(75))


def test_the_trace_of_the_product_with_the_matrix_is_n(tmp_path: Path) -> None:
    a = random_spd(130, seed=4)
    with factor_in("file", lapack_factor(a), 32, tmp_path) as factor:
        trace = 0.0
        for columns, panel in factor.inverse_panels(50):
            products = panel * a[columns.start :, columns.start : columns.stop]
            trace += products[: len(columns)].sum() + 2 * products[len(columns) :].sum()
    assert trace == pytest.approx(130, rel=1e3 * gamma(130))


def test_only_trailing_tiles_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factor_in("file", lapack_factor(random_spd(90, seed=5)), 20, tmp_path).close()
    read: list[tuple[int, int]] = []
    tell_reads(monkeypatch, lambda layout, index: read.append(index))
    with load(tmp_path / "L.ooc") as factor:
        for columns, _ in factor.inverse_panels(20):
            first = columns.start // 20
            trailing = sorted((i, j) for i in range(first, 5) for j in range(first, i + 1))
            assert sorted(read) == sorted(2 * trailing)
            read.clear()
        factor.inverse_diagonal(20)
    assert len(read) == sum(k * (k + 1) // 2 for k in range(1, 6))


def test_every_store_gives_the_same_bits(tmp_path: Path) -> None:
    l_dense = lapack_factor(random_spd(100, seed=6))
    results = []
    for number, kind in enumerate(STORES):
        (tmp_path / str(number)).mkdir()
        with factor_in(kind, l_dense, 32, tmp_path / str(number)) as factor:
            results.append((assembled(factor, 32), factor.inverse_diagonal()))
    assert all(np.array_equal(ours, first) for result in results[1:] for ours, first in zip(result, results[0], strict=True))


def test_transposed_half_solve_is_row_wise_backward_stable(tmp_path: Path) -> None:
    l_dense = lapack_factor(random_spd(70, seed=7, condition=1e6))
    b = np.random.default_rng(7).standard_normal((70, 3))
    with factor_in("file", l_dense, 16, tmp_path) as factor:
        y = factor.half_solve(b, transposed=True)
        assert np.array_equal(factor.half_solve(factor.half_solve(b), transposed=True), factor.solve(b))
    residual = np.abs(l_dense.T.astype(np.longdouble) @ y.astype(np.longdouble) - b)
    # Thm 8.5 for the upper triangular L.T, with the factor that trsm_bound allows
    assert (residual <= KERNEL_C * gamma(70) * (np.abs(l_dense.T) @ np.abs(y))).all()


def test_the_width_fits_the_memory_and_whole_tiles() -> None:
    for n, nb in ((50, 8), (100_000, 512), (100_000, 128), (40_000_000, 4096), (60_000_000, 1024)):
        width = panel_width(TileGrid(n, nb), None)
        assert 1 <= width <= n
        assert 8 * n * width <= PANEL_BYTES or width == 1
        assert width % nb == 0 or width == n or 8 * n * nb > PANEL_BYTES


def test_wrong_widths_and_closed_factors_are_said_at_once(tmp_path: Path) -> None:
    with oc.cholesky(np.eye(5)) as factor:
        with pytest.raises(ValueError, match="at least 1 column"):
            factor.inverse_panels(0)
        with pytest.raises(ValueError, match="at least 1 column"):
            factor.inverse_diagonal(0)
    with pytest.raises(TierError, match="closed"):
        factor.inverse_panels()
    with pytest.raises(TierError, match="closed"):
        factor.inverse_diagonal()
