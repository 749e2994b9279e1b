"""Log-determinants, selected inverses, Cholesky factors and samples of sparse matrices: against dense algebra, and refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array

from ooc_chol import diff
from ooc_chol.diff import vjp
from ooc_chol.errors import NonFiniteError, NotPositiveDefiniteError
from tests.host.diff_solve_matrices import closed_grid, entries, poisson, random_square
from tests.host.diff_tape import Var, apply, check_derivatives
from tests.inside.diff import CACHE, LogDet, fronts, fronts_of

pytestmark = pytest.mark.host


def definite(n: int, density: float, seed: int) -> csr_array:
    """A matrix with a sparse factor, of condition number some 100 at most."""
    half = random_square(n, density, seed)
    return csr_array(half @ half.T + diags_array(1.0 + np.random.default_rng(seed).random(n)))


def dense(pattern: Any, values: Any) -> NDArray[np.float64]:
    return np.asarray(csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape).toarray())


def check_against_dense(a: csr_array) -> None:
    """Hold every operation against NumPy's; the matrix is well conditioned."""
    pattern, values = entries(a)
    n, whole = a.shape[0], a.toarray()
    inverse = np.linalg.inv(whole)
    assert abs(diff.logdet(pattern, values) - np.linalg.slogdet(whole)[1]) <= 1e-13 * n * (
        1 + np.abs(np.log(np.diag(whole))).max(initial=0)
    )
    found = diff.selected_inverse(pattern, values)
    assert np.abs(found - inverse[pattern.rows, pattern.indices]).max(initial=0) <= 1e-13 * np.abs(inverse).max(initial=1)
    of_l, numbers, order = diff.cholesky(pattern, values)
    assert sorted(order) == list(range(n)) and (of_l.rows >= of_l.indices).all()
    lower = dense(of_l, numbers)
    assert np.abs(lower @ lower.T - whole[order][:, order]).max(initial=0) <= 1e-14 * np.abs(whole).max(initial=1) * n
    x = diff.sample(pattern, values, np.eye(n))
    assert np.abs(x @ x.T - inverse).max(initial=0) <= 1e-13 * np.abs(inverse).max(initial=1) * n


@settings(max_examples=150)
@given(n=st.integers(0, 90), density=st.floats(0.0, 0.06), seed=st.integers(0, 2**32 - 1))
def test_random_matrices_against_dense(n: int, density: float, seed: int) -> None:
    check_against_dense(definite(n, density, seed))


@pytest.mark.parametrize("side", [1, 6, 23, 40])
def test_grids_against_dense(side: int) -> None:
    check_against_dense(csr_array(poisson(side) + 0.1 * eye_array(side**2)))


def test_a_row_that_all_others_meet_and_blocks_that_do_not_meet() -> None:
    arrow = np.eye(120) * 3.0
    arrow[0], arrow[:, 0], arrow[0, 0] = 0.1, 0.1, 5.0
    check_against_dense(csr_array(arrow))
    check_against_dense(csr_array(np.kron(np.eye(30), [[2.0, 1.0], [1.0, 2.0]])))
    check_against_dense(csr_array(np.eye(50) + 0.01))


def test_long_chains_are_few_batches() -> None:
    pattern, values = entries(diags_array([-1.0, 0.1, 4.0, 0.1, -1.0], offsets=[-2, -1, 0, 1, 2], shape=(20_000, 20_000)))
    assert len(fronts_of(pattern).batches) <= 400
    assert np.sum(values * diff.selected_inverse(pattern, values)) == pytest.approx(20_000, rel=1e-12)  # the trace of A A^-1


@pytest.mark.parametrize("a", [poisson(12), poisson(40), diags_array([1.0, 5.0, 1.0], offsets=[-3, 0, 3], shape=(500, 500))])
def test_l_has_the_entries_that_elimination_makes_and_no_others(a: Any) -> None:
    pattern, values = entries(a + eye_array(a.shape[0]))
    of_l, _, order = diff.cholesky(pattern, values)
    filled = dense(pattern, np.ones(pattern.nnz))[order][:, order] != 0
    for column in range(len(filled)):
        below = np.flatnonzero(filled[column + 1 :, column]) + column + 1
        filled[np.ix_(below, below)] = True
    assert np.array_equal(dense(of_l, np.ones(of_l.nnz)) != 0, np.tril(filled))


@pytest.mark.parametrize("n", [5, 60])
@pytest.mark.parametrize("name", ["logdet", "selected_inverse", "cholesky", "sample"])
def test_derivatives_of_first_and_second_order(n: int, name: str) -> None:
    half = random_square(n, 1.5 / n, 3) + diags_array(np.linspace(1.0, 2.0, n))
    p, a = entries(half)
    z = np.random.default_rng(1).standard_normal((n, 2))

    def function(a: Var, z: Var) -> Var:
        q, transposed = diff.transpose(p, a, apply=apply)
        pattern, values = diff.spgemm(p, a, q, transposed, apply=apply)
        operation = getattr(diff, name)
        if name == "sample":
            return operation(pattern, values, z, apply=apply)  # type: ignore[no-any-return]
        found = operation(pattern, values, apply=apply)
        return (found[1] if name == "cholesky" else found) + 0 * z.sum()  # type: ignore[no-any-return]

    check_derivatives(function, a, z)


def test_the_gradient_of_the_log_determinant_is_the_inverse_on_the_pattern() -> None:
    from tests.inside.diff import LogDet

    pattern, values = entries(poisson(9) + eye_array(81))
    (gradient,) = diff.vjp(LogDet(pattern), (values,), np.asarray(2.0))
    assert gradient.shape == values.shape
    assert np.array_equal(gradient, 2 * diff.selected_inverse(pattern, values))


def test_float32_is_computed_in_float64_and_rounded_once() -> None:
    pattern, values = entries(poisson(20) + 0.01 * eye_array(400))
    narrow = values.astype(np.float32)
    for operation in (diff.logdet, diff.selected_inverse):
        found = operation(pattern, narrow)
        assert found.dtype == np.float32
        assert np.array_equal(found, operation(pattern, narrow.astype(np.float64)).astype(np.float32))


def test_one_factor_serves_value_and_gradient_until_values_change() -> None:
    pattern, values = entries(poisson(8) + eye_array(64))
    CACHE.clear()
    before = CACHE.factored
    first = diff.logdet(pattern, values)
    diff.selected_inverse(pattern, values.copy())
    assert CACHE.factored == before + 1
    values *= 2  # behind everybody's back
    assert diff.logdet(pattern, values) == pytest.approx(first + 64 * np.log(2), rel=1e-14)
    assert CACHE.factored == before + 2
    diff.forget_factors()
    diff.logdet(pattern, values)
    assert CACHE.factored == before + 3


@pytest.mark.parametrize("row", [0, 37, 99])
@pytest.mark.parametrize("operation", [diff.logdet, diff.selected_inverse, diff.cholesky])
def test_a_matrix_that_is_not_positive_definite_is_refused_by_its_row(operation: Any, row: int) -> None:
    a = (poisson(10) + eye_array(100)).tolil()
    a[row, row] = -0.5
    pattern, values = entries(csr_array(a))
    with pytest.raises(NotPositiveDefiniteError, match="is left as the pivot") as caught:
        operation(pattern, values)
    error: Any = caught.value
    assert error.pivot < 0 and f"A[{error.row}, {error.row}]" in str(error)
    minor = fronts_of(pattern).order[: error.minor]
    assert error.row == minor[-1] and row in minor
    whole = a.toarray()
    assert np.linalg.eigvalsh(whole[np.ix_(minor, minor)])[0] < 0
    assert len(minor) == 1 or np.linalg.eigvalsh(whole[np.ix_(minor[:-1], minor[:-1])])[0] > 0
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.row, again.pivot) == (str(error), error.row, error.pivot)


@pytest.mark.parametrize("side", [3, 20, 45])
def test_a_singular_matrix_is_refused_though_rounding_leaves_a_positive_pivot(side: int) -> None:
    pattern, values = entries(closed_grid(side))
    half = diff.add(pattern, values, *diff.transpose(pattern, values), alpha=0.5, beta=0.5)
    with pytest.raises(NotPositiveDefiniteError):
        diff.logdet(*half)


@pytest.mark.parametrize("operation", [diff.logdet, diff.selected_inverse])
def test_values_next_to_the_largest_number_are_computed_with(operation: Any) -> None:
    pattern, values = entries(csr_array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 3.9]]))
    found, alone = operation(pattern, values * 2.0**1021), operation(pattern, values)
    expected = alone + 3 * 1021 * np.log(2) if operation is diff.logdet else alone * 2.0**-1021
    assert np.allclose(found, expected, rtol=1e-14, atol=0)
    values[1] = -values[1]
    with pytest.raises(ValueError, match=r"A\[0, 1\] and A\[1, 0\] differ by inf"):
        operation(pattern, np.where(abs(values) == 1, values, values / 4) * 2.0**1023)


def test_what_is_no_symmetric_matrix_of_numbers_is_refused() -> None:
    a = (poisson(3) + eye_array(9)).tolil()
    good = entries(csr_array(a))
    with pytest.raises(ValueError, match="2 x 3"):
        diff.logdet(*entries(csr_array(np.ones((2, 3)))))
    a[0, 5] = 0.5
    for operation in (diff.logdet, diff.selected_inverse, diff.cholesky):
        with pytest.raises(ValueError, match=r"entry \(0, 5\), but none \(5, 0\)"):
            operation(*entries(csr_array(a)))
    a[5, 0] = 0.25
    with pytest.raises(ValueError, match=r"A\[0, 5\] and A\[5, 0\] differ by 0.25"):
        diff.logdet(*entries(csr_array(a)))
    missing = csr_array([[1.0, 0.5], [0.5, 0.0]])
    missing.eliminate_zeros()
    with pytest.raises(NotPositiveDefiniteError, match=r"A\[[01], [01]\]"):
        diff.logdet(*entries(missing))
    pattern, values = good
    values[3] = np.nan
    with pytest.raises(NonFiniteError):
        diff.logdet(pattern, values)
    with pytest.raises(ValueError, match="one value for each entry"):
        diff.logdet(pattern, values[1:])
    with pytest.raises(ValueError, match="has 9 rows"):
        diff.sample(pattern, entries(csr_array(poisson(3) + eye_array(9)))[1], np.ones(8))


def test_fronts_are_those_of_an_equal_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call from an array of SciPy or torch has a pattern of its own, which is ordered once."""
    a, made = csr_array(poisson(9) + eye_array(81)), []
    CACHE.clear()
    monkeypatch.setattr(fronts, "Fronts", lambda pattern, whole=fronts.Fronts: made.append(pattern) or whole(pattern))
    for _ in range(3):
        pattern, values = entries(a.copy())
        assert np.isfinite(vjp(LogDet(pattern), (values,), np.float64(1.0))[0]).all()
        a.data *= 1.5
    assert len(made) == 1
