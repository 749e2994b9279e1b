"""The estimated error as a formula of what was measured: its parts, its scale, and that no error counts for less than it is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.kernels import NORM_COLUMNS
from tests.inside.precision import (
    FP16,
    FP32,
    FP64,
    MOST_MODULI,
    RULES,
    ErrorEstimate,
    MatrixNorms,
    PrecisionMap,
    choose_formats,
    estimated_error,
)
from tests.inside.tasks import TileGrid
from tests.tolerances import gamma

FROBENIUS, LOST, ROW_SUM, COLUMN_SUM = (NORM_COLUMNS.index(name) for name in ("frobenius", "lost", "row_sum", "column_sum"))
seeds = st.integers(0, 2**32 - 1)


def problem(seed: int, nt: int = 5, nb: int = 4, *, scale: float = 1.0, products=FP64) -> tuple[PrecisionMap, np.ndarray]:
    """A random L, cut into tiles, as it would be measured after its tiles lost up to a thousandth; and the map of it."""
    grid, rng = TileGrid(nt * nb - 1, nb), np.random.default_rng(seed)
    dense = np.tril(rng.standard_normal((grid.n, grid.n)) + 2 * np.sqrt(grid.n) * np.eye(grid.n)) * np.sqrt(scale)
    a = dense @ dense.T
    rows, tiles = np.zeros((grid.n_tiles, len(NORM_COLUMNS))), np.zeros(grid.n_tiles)
    for i, j in grid.tiles():
        part = np.ix_(grid.span(i), grid.span(j))
        magnitudes, at = np.abs(dense[part]), grid.packed(i, j)
        rows[at, [FROBENIUS, LOST]] = np.linalg.norm(magnitudes), 1e-3 * rng.random() * np.linalg.norm(magnitudes) * (i != j)
        if i == j:
            rows[at, [ROW_SUM, COLUMN_SUM]] = magnitudes.sum(axis=1).max(), magnitudes.sum(axis=0).max()
        tiles[at] = np.linalg.norm(a[part])
    diagonals = [np.diagonal(a)[list(grid.span(k))] for k in range(nt)]
    figures = [np.array([f(diagonal) for diagonal in diagonals]) for f in (np.sum, np.min, np.max)]
    narrow = [products if i != j else FP64 for i, j in grid.tiles()]
    stored = tuple(FP16 if i != j else FP64 for i, j in grid.tiles())
    return PrecisionMap(grid, 1e-3, RULES[0], MatrixNorms(grid, tiles, *figures), stored, tuple(narrow), 8, 1e-3), rows


def test_one_tile_that_lost_something():
    """``sqrt(2) lost ||L_00||_2 / ||A||_F``, the norm of ``L_00`` by its sums."""
    grid = TileGrid(4, 2)
    norms = MatrixNorms(grid, np.array([2.0, 2.0, 2.0]), *np.ones((3, 2)))
    precision = PrecisionMap(grid, 0.1, RULES[0], norms, (FP64, FP16, FP64), (FP64,) * 3, moduli=8, within=0.1)
    rows = np.zeros((3, len(NORM_COLUMNS)))
    rows[:, FROBENIUS] = 5.0, 1.0, 5.0
    rows[1, LOST] = 0.125
    rows[[0, 2], ROW_SUM], rows[[0, 2], COLUMN_SUM] = 2.0, 8.0
    bound = estimated_error(precision, rows, None)
    assert bound.storage == pytest.approx(np.sqrt(2) * 0.125 * 4.0 / 4.0, rel=gamma(10))
    assert 0.0 < bound.arithmetic < 100 * FP64.unit_roundoff
    # Sums that are larger than the Frobenius norm say less than it does.
    rows[0, [ROW_SUM, COLUMN_SUM]] = 10.0
    assert estimated_error(precision, rows, None).storage == pytest.approx(np.sqrt(2) * 0.125 * 5.0 / 4.0, rel=gamma(10))


def test_nothing_lost_leaves_arithmetic():
    precision, rows = problem(0)
    rows[:, LOST] = 0.0
    bound = estimated_error(precision, rows, None)
    assert bound.storage == 0.0
    assert bound.total == bound.arithmetic > 0.0


@given(seed=seeds)
def test_it_covers_each_tile_that_rounding_could_have_changed(seed):
    """``||E_ij L_jj.T||`` of any E of the norms measured, here random ones, is in it."""
    precision, rows = problem(seed)
    grid, rng = precision.grid, np.random.default_rng(seed)
    dense = np.tril(rng.standard_normal((grid.n, grid.n)) + 2 * np.sqrt(grid.n) * np.eye(grid.n))  # that of the problem
    change = np.zeros_like(dense)
    for i, j in grid.tiles():
        part = np.ix_(grid.span(i), grid.span(j))
        e_ij = rng.standard_normal(grid.shape(i, j))
        e_ij *= rows[grid.packed(i, j), LOST] / np.linalg.norm(e_ij)
        change[part] = e_ij @ dense[np.ix_(grid.span(j), grid.span(j))].T
    change = np.tril(change, -1) + np.tril(change, -1).T
    assert np.linalg.norm(change) <= estimated_error(precision, rows, None).storage * precision.norms.total


@given(seed=seeds, moduli=st.sampled_from([None, 6, 10, 14]), power=st.sampled_from([-240, -60, 60, 240]))
def test_it_is_relative(seed, moduli, power):
    here, there = problem(seed), problem(seed, scale=4.0**power)
    first, second = estimated_error(*here, moduli), estimated_error(*there, moduli)
    assert second.storage == pytest.approx(first.storage, rel=gamma(1000))
    assert second.arithmetic == pytest.approx(first.arithmetic, rel=gamma(1000))


@given(seed=seeds, data=st.data())
def test_more_lost_is_a_larger_bound(seed, data):
    precision, rows = problem(seed)
    before = estimated_error(precision, rows, None)
    rows[precision.grid.packed(*data.draw(st.sampled_from(list(precision.grid.tiles())))), LOST] += 1.0
    after = estimated_error(precision, rows, None)
    assert after.storage > before.storage
    assert after.arithmetic == before.arithmetic


@given(seed=seeds)
def test_float32_counts_in_the_arithmetic(seed):
    precision, rows = problem(seed, products=FP32)
    single, double = (estimated_error(chosen, rows, None) for chosen in (precision, precision.without_float32()))
    assert single.storage == double.storage
    assert single.arithmetic > 0.1 * FP32.unit_roundoff
    assert double.arithmetic < 100 * FP64.unit_roundoff * precision.grid.nt


@given(seed=seeds)
def test_fewer_moduli_are_a_larger_bound(seed):
    precision, rows = problem(seed)
    bounds = [estimated_error(precision, rows, moduli) for moduli in range(4, 17)]
    assert all(fewer.arithmetic >= more.arithmetic for fewer, more in pairwise(bounds))
    assert bounds[0].arithmetic > 1e3 * bounds[-1].arithmetic
    assert len({bound.storage for bound in bounds}) == 1


@pytest.mark.parametrize("column", [FROBENIUS, LOST])
def test_norms_that_are_not_finite_certify_nothing(column):
    precision, rows = problem(1)
    rows[1, column] = np.nan
    assert not np.isfinite(estimated_error(precision, rows, None).total)


def test_its_text_names_both_parts():
    assert str(ErrorEstimate(1e-4, 2e-5)) == "1.20e-04 ||A||_F (1.0e-04 by storing, 2.0e-05 by arithmetic)"


def test_sums_in_fp16_of_larger_tiles_may_err_by_more():
    """A sum runs over so many tiles: its error grows with their order, beyond that for which it was measured."""
    bounds = []
    for nb in (2048, 4096):
        grid, ones = TileGrid(3 * nb, nb), np.ones(3)
        norms = MatrixNorms(grid, np.ones(6), ones, ones / nb, ones / nb)
        precision = choose_formats(norms, 1e-4)
        rows = np.tile([0.5, 0.0, 1.0, 1.0, 1e-30], (6, 1))  # tiny entries: next to nothing is lost by rounding them
        narrow = np.zeros((3, 3, 3), dtype=np.bool_)
        narrow[2, 1, 0] = True
        bounds.append(estimated_error(precision, rows, MOST_MODULI, narrow).arithmetic)
    assert bounds[1] == pytest.approx(2 * bounds[0], rel=1e-6)
    assert bounds[0] > 1e-6


@given(seed=seeds, data=st.data())
def test_only_products_that_ran_in_fp16_count_as_such(seed, data):
    """None of the map's products where all ran through residues; each that ran in FP16 adds to the arithmetic."""
    precision, rows = problem(seed)
    rows[:, NORM_COLUMNS.index("largest")] = rows[:, FROBENIUS]
    nt, narrow = precision.grid.nt, np.zeros((5, 5, 5), dtype=np.bool_)
    exact = estimated_error(precision, rows, 12)
    assert estimated_error(precision, rows, 12, narrow) == exact
    i = data.draw(st.integers(2, nt - 1))
    j = data.draw(st.integers(1, i - 1))
    narrow[i, j, data.draw(st.integers(0, j - 1))] = True
    one = estimated_error(precision, rows, 12, narrow)
    narrow[i, j, :j] = True
    assert exact.arithmetic < one.arithmetic <= estimated_error(precision, rows, 12, narrow).arithmetic
    assert one.storage == exact.storage
