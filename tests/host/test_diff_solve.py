"""Solves with sparse matrices: against dense algebra, with pivots, refused where singular, factored once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

import ooc_chol as oc
from ooc_chol import diff
from ooc_chol.diff import vjp
from tests.host.diff_solve_matrices import backward_error, closed_grid, conditioned, entries, poisson, random_square, regular
from tests.inside.diff import CACHE, FactorCache, Solve

pytestmark = pytest.mark.host

#: Three rows that no elimination without row exchanges survives.
SWAPPED = np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 0.0], [0.0, 3.0, 4.0]])


# against dense algebra


@pytest.mark.parametrize("assume", [None, "symmetric", "spd"])
def test_bits_do_not_depend_on_what_was_solved_before(assume: str | None) -> None:
    pattern, values = entries(csr_array(poisson(30) + np.diag(np.linspace(0, 1, 900))))
    b = np.random.default_rng(4).standard_normal(900)
    CACHE.clear()
    first = diff.solve(pattern, values, b, assume=assume)
    diff.solve(pattern, 3 * values, b, assume=assume)
    assert np.array_equal(diff.solve(pattern, values, b, assume=assume), first)


@settings(max_examples=300)
@given(n=st.integers(1, 30), density=st.floats(0.0, 0.5), seed=st.integers(0, 2**32 - 1), columns=st.integers(0, 3))
def test_random_matrices_against_dense(n: int, density: float, seed: int, columns: int) -> None:
    a = regular(n, density, seed)
    pattern, values = entries(a)
    dense = a.toarray()
    b = np.random.default_rng(seed).standard_normal((n, columns) if columns else n)
    singular = np.linalg.svd(dense, compute_uv=False)
    if singular[-1] <= 1e-13 * singular[0]:
        return
    for trans in (False, True):
        x = diff.solve(pattern, values, b, trans=trans)
        assert x.shape == b.shape
        assert backward_error(dense.T if trans else dense, x, b) <= 1e-14


@settings(max_examples=100)
@given(n=st.integers(1, 25), density=st.floats(0.0, 0.3), seed=st.integers(0, 2**32 - 1), spd=st.booleans())
def test_symmetric_matrices_against_dense(n: int, density: float, seed: int, spd: bool) -> None:
    half = random_square(n, density, seed).toarray()
    a = half @ half.T + np.eye(n) if spd else half + half.T + np.diag(np.random.default_rng(seed).permutation(n) - n / 2 + 0.25)
    if np.linalg.cond(a) > 1e13:
        return
    pattern, values = entries((a + a.T) / 2)
    b = np.random.default_rng(seed).standard_normal((n, 2))
    x = diff.solve(pattern, values, b, assume="spd" if spd else "symmetric")
    assert backward_error(a, x, b) <= 1e-14


@settings(max_examples=100)
@given(
    n=st.integers(1, 25),
    density=st.floats(0.0, 0.5),
    seed=st.integers(0, 2**32 - 1),
    lower=st.booleans(),
    trans=st.booleans(),
    unit=st.booleans(),
    stored=st.booleans(),
)
def test_triangles_against_dense(n: int, density: float, seed: int, lower: bool, trans: bool, unit: bool, stored: bool) -> None:
    a = random_square(n, density, seed).toarray() + 3 * np.eye(n)
    a = np.tril(a) if lower else np.triu(a)
    if unit and not stored:
        np.fill_diagonal(a, 0.0)
    pattern, values = entries(a)
    b = np.random.default_rng(seed).standard_normal(n)
    x = diff.triangular_solve(pattern, values, b, lower=lower, trans=trans, unit_diagonal=unit)
    if unit:
        np.fill_diagonal(a, 1.0)
    t = (a.T if trans else a).astype(np.longdouble)
    assert (np.abs(t @ x - b) <= 4 * n * 2.0**-53 * (np.abs(t) @ np.abs(x) + np.abs(b))).all()


def test_a_matrix_that_needs_a_row_exchange() -> None:
    pattern, values = entries(SWAPPED)
    b = np.array([1.0, 2.0, 3.0])
    assert np.abs(SWAPPED @ diff.solve(pattern, values, b) - b).max() <= 1e-12
    assert np.abs(SWAPPED.T @ diff.solve(pattern, values, b, trans=True) - b).max() <= 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_ill_conditioned_matrices_have_small_backward_errors(seed: int) -> None:
    a = conditioned(60, 1e12, seed)
    pattern, values = entries(a)
    b = np.random.default_rng(seed).standard_normal((60, 2))
    for trans in (False, True):
        assert backward_error(a.T if trans else a, diff.solve(pattern, values, b, trans=trans), b) <= 1e-14


def test_rows_and_columns_in_other_units() -> None:
    rng = np.random.default_rng(4)
    a = regular(40, 0.1, 4).toarray()
    rows, columns = 10.0 ** rng.integers(-30, 30, 40), 10.0 ** rng.integers(-30, 30, 40)
    pattern, values = entries(a * rows[:, None] * columns)
    x = rng.standard_normal(40)
    for trans in (False, True):
        before, after = (rows, columns) if not trans else (columns, rows)
        b = ((a.T if trans else a) @ x) * before
        found = diff.solve(pattern, values, b, trans=trans) * after
        assert np.abs(found - x).max() <= 1e-16 * 100 * np.linalg.cond(a) * np.abs(x).max()


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 1e300])
def test_very_large_and_very_small_numbers(size: float) -> None:
    pattern, values = entries(SWAPPED)
    b = np.array([1.0, 2.0, 3.0])
    for trans in (False, True):
        x = diff.solve(pattern, values, b, trans=trans)
        assert np.allclose(diff.solve(pattern, values * size, b * size, trans=trans), x, rtol=1e-14)


def test_a_right_hand_side_that_is_not_finite_gives_no_numbers() -> None:
    pattern, values = entries(SWAPPED)
    assert np.isnan(diff.solve(pattern, values, np.array([np.nan, 1.0, np.inf]))).any()


def test_pivots_off_the_diagonal_of_a_symmetric_matrix() -> None:
    """[[0, I], [I, 0]] has no pivot on its diagonal, and small numbers there are worse than none."""
    for small in (0.0, 1e-17):
        eye = np.eye(5)
        a = np.block([[small * eye, eye], [eye, small * eye]])
        pattern, values = entries(a)
        with diff.factorize(pattern, values, assume="symmetric") as factor:
            assert backward_error(a, factor.solve(np.arange(10.0)), np.arange(10.0)) <= 1e-15


def test_float32_is_factored_in_float64() -> None:
    a = conditioned(40, 1e6, 3)
    pattern, values = entries(a.astype(np.float32))
    narrow, b = values.astype(np.float32), np.ones(40, np.float32)
    x = diff.solve(pattern, narrow, b)
    assert x.dtype == np.float32
    assert np.array_equal(x, diff.solve(pattern, values, b.astype(np.float64)).astype(np.float32))


def test_empty_matrices_and_right_hand_sides() -> None:
    nothing = diff.Pattern([0], [], (0, 0))
    assert diff.solve(nothing, np.zeros(0), np.zeros((0, 3))).shape == (0, 3)
    assert diff.triangular_solve(nothing, np.zeros(0), np.zeros(0)).shape == (0,)
    pattern, values = entries(SWAPPED)
    assert diff.solve(pattern, values, np.zeros((3, 0))).shape == (3, 0)
    assert diff.solve(pattern, values, np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


# singular matrices


def _rank_without(a: NDArray[Any], column: int) -> int:
    return int(np.linalg.matrix_rank(np.delete(a, column, axis=1)))


@pytest.mark.parametrize(
    "a",
    [
        [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]],
        [[1.0, 1.0, 2.0], [1.0, -1.0, 0.0], [3.0, 1.0, 4.0]],
        [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 2.0]],
        [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [3.0, 0.0, 1.0]],
        [[0.0, 0.0, 0.0], [2.0, 1.0, 0.0], [3.0, 0.0, 1.0]],
    ],
)
@pytest.mark.parametrize("assume", [None, "symmetric"])
def test_singular_matrices_name_a_column_that_depends_on_others(a: list[list[float]], assume: Any) -> None:
    dense = np.array(a)
    dense = dense if assume is None else dense @ dense.T
    pattern, values = entries(dense)
    with pytest.raises(oc.errors.SingularMatrixError, match="the matrix of A is singular") as caught:
        diff.solve(pattern, values, np.ones(3), assume=assume)
    assert caught.value.column is not None
    assert str(caught.value.column) in str(caught.value)
    assert _rank_without(dense, caught.value.column) == np.linalg.matrix_rank(dense)


@settings(max_examples=60)
@given(n=st.integers(2, 25), seed=st.integers(0, 2**32 - 1), depends=st.booleans())
def test_random_singular_matrices(n: int, seed: int, depends: bool) -> None:
    rng = np.random.default_rng(seed)
    a = regular(n, 0.2, seed).toarray()
    spoiled, *others = rng.permutation(n)
    a[:, spoiled] = a[:, others[:3]] @ rng.standard_normal(len(others[:3])) if depends else 0.0
    pattern, values = entries(a)
    with pytest.raises(oc.errors.SingularMatrixError) as caught:
        diff.solve(pattern, values, np.ones(n))
    assert caught.value.column is not None
    assert _rank_without(a, caught.value.column) == np.linalg.matrix_rank(a)


def test_a_pattern_that_leaves_a_column_without_a_pivot() -> None:
    pattern, values = entries(np.array([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [3.0, 1.0, 1.0]]))
    with pytest.raises(oc.errors.SingularMatrixError, match=r"no pivot is left for column [12], whatever the values"):
        diff.solve(pattern, values, np.ones(3))


@pytest.mark.parametrize("assume", [None, "symmetric", "spd"])
def test_the_laplacian_of_a_closed_grid_is_singular_to_working_precision(assume: Any) -> None:
    pattern, values = entries(closed_grid(20))
    with pytest.raises(oc.errors.SingularMatrixError, match=r"condition number|its pivot is 0") as caught:
        diff.solve(pattern, values, np.ones(400), assume=assume)
    assert caught.value.column is not None


# bad input


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        (lambda p, v, b: (diff.Pattern([0, 1, 2], [0, 1], (2, 3)), v[:2], b[:2]), ValueError, r"is 2 x 3: only a square matrix"),
        (lambda p, v, b: (p, v, b[:2]), ValueError, r"b has shape \(2,\), but A has 3 rows"),
        (lambda p, v, b: (p, v, b[:, None, None]), ValueError, r"b has shape \(3, 1, 1\)"),
        (lambda p, v, b: (p, v[:-1], b), ValueError, r"5 entries"),
        (lambda p, v, b: (p, v, b.astype(np.float32)), TypeError, r"b is of float32, but the values of the matrix of float64"),
        (lambda p, v, b: (p, v.astype(int), b), TypeError, r"int64"),
        (lambda p, v, b: (p, v + 0j, b), TypeError, r"complex128"),
        (lambda p, v, b: (p, v, [1.0, 2.0, 3.0]), TypeError, r"b is a list"),
        (lambda p, v, b: (p, np.where(np.arange(5) == 1, np.nan, v), b), oc.errors.NonFiniteError, r"A\[0, 2\] is NaN"),
    ],
)
def test_bad_input(spoil: Callable[..., Any], error: type[Exception], text: str) -> None:
    pattern, values = entries(SWAPPED)
    with pytest.raises(error, match=text):
        diff.solve(*spoil(pattern, values, np.ones(3)))


@pytest.mark.parametrize(
    ("a", "options", "text"),
    [
        ([[1.0, 2.0], [0.0, 1.0]], {"assume": "spd"}, r"A is not symmetric: it has an entry \(0, 1\), but none \(1, 0\)"),
        ([[1.0, 2.0], [3.0, 1.0]], {"assume": "spd"}, r"A\[0, 1\] and A\[1, 0\] differ by 1"),
        ([[-1.0, 2.0], [2.0, 1.0]], {"assume": "spd"}, r"assume='spd', but A\[0, 0\] is not positive"),
        ([[0.0, 2.0], [2.0, 1.0]], {"assume": "spd"}, r"assume='spd', but A\[0, 0\] is not positive"),
        (SWAPPED, {"assume": "general"}, r"assume is 'general'; give None, 'symmetric' or 'spd'"),
        (SWAPPED, {"method": "lu"}, r"method is 'lu'; give 'auto', 'superlu' or 'cudss'"),
        (SWAPPED, {"method": "cudss"}, r"method='cudss' solves on a CUDA device, but the values lie in host memory"),
    ],
)
def test_bad_options(a: Any, options: Any, text: str) -> None:
    pattern, values = entries(np.array(a))
    with pytest.raises(ValueError, match=text):
        diff.factorize(pattern, values, **options)


def test_triangles_that_are_none() -> None:
    b = np.ones(3)
    pattern, values = entries(SWAPPED)
    with pytest.raises(ValueError, match=r"entry \(0, 2\).*lower=True.*lower triangle only: take tril"):
        diff.triangular_solve(pattern, values, b)
    with pytest.raises(ValueError, match=r"entry \(1, 0\).*lower=False.*upper triangle only: take triu"):
        diff.triangular_solve(pattern, values, b, lower=False)
    triangle, found = diff.tril(pattern, values)
    with pytest.raises(ValueError, match=r"no entry \(0, 0\) on the diagonal, so that row 0 cannot be solved for"):
        diff.triangular_solve(triangle, found, b)
    pattern, values = entries(np.tril(np.ones((3, 3))))
    values[pattern.diagonal_places[1]] = 0.0
    with pytest.raises(oc.errors.SingularMatrixError, match=r"entry \(1, 1\) is 0") as caught:
        diff.triangular_solve(pattern, values, b)
    assert caught.value.column == 1
    assert np.isfinite(diff.triangular_solve(pattern, values, b, unit_diagonal=True)).all()
    with pytest.raises(ValueError, match=r"b has shape \(4,\), but A has 3 rows"):
        diff.triangular_solve(pattern, values, np.ones(4))
    with pytest.raises(TypeError, match="b is of float32"):
        diff.triangular_solve(pattern, values, b.astype(np.float32))
    values[0] = np.inf
    with pytest.raises(oc.errors.NonFiniteError, match=r"A\[0, 0\]"):
        diff.triangular_solve(pattern, values, b)


# factors


def test_an_explicit_factor_is_used_and_belongs_to_its_values() -> None:
    pattern, values = entries(regular(20, 0.1, 5))
    b = np.ones(20)
    before = CACHE.factored
    with diff.factorize(pattern, values) as factor:
        x = diff.solve(pattern, values, b, factor=factor)
        op = Solve(pattern, given_factor=factor)
        vjp(op, (values, b), b)
        assert CACHE.factored == before + 1
        assert factor.method == "superlu"
        assert factor.copies == 0
        assert "SuperLU, COLAMD, partial pivoting" in repr(factor)
        values *= 2.0
        with pytest.raises(ValueError, match="the factor is of other values"):
            diff.solve(pattern, values, b, factor=factor)
        assert np.array_equal(factor.solve(b), x)  # the factor kept a copy of what it factored
    with pytest.raises(ValueError, match="the factor is closed"):
        factor.solve(b)
    assert "closed" in repr(factor)


def test_a_cache_compares_values_and_keeps_the_last_few_patterns() -> None:
    cache = FactorCache(keep=2)
    pattern, values = entries(regular(10, 0.2, 1))
    same, _ = entries(regular(10, 0.2, 1))
    first = cache.factor(pattern, values)
    assert cache.factor(same, values.copy()) is first
    assert cache.factor(pattern, values.astype(np.float32)) is not first
    assert (cache.factored, cache.found) == (2, 1)
    for seed in (2, 3):
        cache.factor(*entries(regular(10, 0.2, seed)))
    cache.factor(pattern, values)
    assert cache.factored == 5
    cache.clear()
    cache.factor(pattern, values)
    assert cache.factored == 6


def test_kept_factors_can_be_let_go() -> None:
    pattern, values = entries(np.array([[2.0, 1.0], [0.0, 4.0]]))
    diff.solve(pattern, values, np.ones(2))
    kept = diff.factorize(pattern, values)
    diff.forget_factors()
    before = CACHE.factored
    diff.solve(pattern, values, np.ones(2))
    assert CACHE.factored == before + 1 and kept.solve(np.ones(2)).shape == (2,)


def test_threads_share_a_cache() -> None:
    cache = FactorCache()
    problems = [entries(regular(60, 0.05, seed)) for seed in range(3)]
    expected = [np.linalg.solve(csr_array((v, p.indices, p.indptr), shape=p.shape).toarray(), np.ones(60)) for p, v in problems]
    wrong: list[float] = []

    def work(seed: int) -> None:
        for at in np.random.default_rng(seed).integers(0, 3, 30):
            pattern, values = problems[at]
            x = cache.factor(pattern, values).solve(np.ones(60))
            error = float(np.abs(x - expected[at]).max() / np.abs(expected[at]).max())
            if error > 1e-9:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert cache.factored == 3


def test_a_second_factor_of_a_pattern_takes_the_order_of_the_first() -> None:
    pattern, values = entries(regular(50, 0.1, 6))
    cache, b = FactorCache(), np.random.default_rng(0).standard_normal((50, 2))
    for assume in (None, "symmetric"):
        a = csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape).toarray()
        p, v = (pattern, values) if assume is None else entries(a + a.T)
        for factor_of in (1.0, 3.0):
            factor = cache.factor(p, v * factor_of, assume=assume)  # type: ignore[arg-type]
            whole = csr_array((v * factor_of, p.indices, p.indptr), shape=p.shape).toarray()
            for trans in (False, True):
                assert backward_error(whole.T if trans else whole, factor.solve(b, trans=trans), b) <= 1e-14


# time


def _least_seconds(call: Callable[[], object], repeats: int = 5) -> float:
    least = np.inf
    for _ in range(repeats):
        start = time.process_time()
        call()
        least = min(least, time.process_time() - start)
    return least


def test_a_solve_and_its_gradient_on_a_grid_of_64_take_50_ms() -> None:
    pattern, values = entries(poisson(64))
    b = np.ones(pattern.n_rows)

    def both() -> None:
        CACHE.clear()
        op = Solve(pattern)
        vjp(op, (values, b), op.forward(values, b))

    assert _least_seconds(both) <= 0.05


def test_a_second_solve_on_a_grid_of_256_takes_a_tenth_of_the_first() -> None:
    pattern, values = entries(poisson(256))
    b = np.ones(pattern.n_rows)

    def first() -> None:
        CACHE.clear()
        diff.solve(pattern, values, b)

    least = _least_seconds(first, 3)
    assert _least_seconds(lambda: diff.solve(pattern, values, b)) <= 0.1 * least
