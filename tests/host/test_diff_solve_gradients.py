"""Derivatives of solves, first and second, against central differences; one factor for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import ooc_chol as oc
from ooc_chol import diff
from ooc_chol.diff import vjp
from tests.host.diff_solve_matrices import entries, poisson, regular
from tests.host.diff_tape import Var, apply, check_derivatives, gradients
from tests.inside.diff import CACHE, MatMul, Solve

pytestmark = pytest.mark.host

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("columns", [(), (1,), (3,)])
def test_derivatives_of_solve(trans: bool, columns: tuple[int, ...]) -> None:
    pattern, values = entries(regular(9, 0.3, 1))
    b = RNG.standard_normal((9, *columns))
    check_derivatives(lambda v, b: diff.solve(pattern, v, b, trans=trans, apply=apply), values, b)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_derivatives_of_triangular_solve(lower: bool, unit_diagonal: bool, trans: bool) -> None:
    pattern, values = entries(regular(8, 0.4, 2).toarray() + 3 * np.eye(8))
    cut = diff.tril if lower else diff.triu
    options: Any = {"lower": lower, "unit_diagonal": unit_diagonal, "trans": trans}

    def solved(v: Var, b: Var) -> Var:
        triangle, found = cut(pattern, v, apply=apply)
        return diff.triangular_solve(triangle, found, b, **options, apply=apply)

    check_derivatives(solved, values, RNG.standard_normal((8, 2)))


def test_derivatives_of_a_solve_with_a_sum() -> None:
    p, a = entries(regular(7, 0.3, 4))
    q, b = entries(regular(7, 0.2, 5))

    def solved(a: Var, b: Var, right: Var) -> Var:
        pattern, values = diff.add(p, a, q, b, apply=apply)
        return diff.solve(pattern, values, right, apply=apply)

    check_derivatives(solved, a, b, RNG.standard_normal(7))


def test_derivatives_of_two_solves_and_a_product_with_one_matrix() -> None:
    pattern, values = entries(regular(6, 0.4, 6))

    def twice(v: Var, b: Var) -> Var:
        x = diff.solve(pattern, v, b, apply=apply)
        return diff.solve(pattern, v, apply(MatMul(pattern), v * v, x), trans=True, apply=apply)

    check_derivatives(twice, values, RNG.standard_normal(6))


def test_derivatives_along_symmetric_directions_of_a_matrix_told_to_be_spd() -> None:
    a = poisson(4).toarray() + np.eye(16)
    pattern, values = entries(a)
    half = RNG.standard_normal(pattern.nnz)
    order = pattern.transposing
    move = half + half[order]

    def solved(v: Var, b: Var) -> Var:
        symmetric = (v + v[order]) * 0.5
        return diff.solve(pattern, symmetric, b, assume="spd", apply=apply)

    check_derivatives(solved, values, RNG.standard_normal(16), moves=[move, RNG.standard_normal(16)])


def test_gradient_of_values_is_on_the_pattern_and_that_of_a_unit_diagonal_is_zero() -> None:
    pattern, values = entries(np.tril(RNG.standard_normal((6, 6)) + 3 * np.eye(6)))
    v, b = Var(values), Var(np.ones(6))
    dv, _ = gradients(diff.triangular_solve(pattern, v, b, unit_diagonal=True, apply=apply).sum(), [v, b])
    assert dv.value.shape == (pattern.nnz,)
    assert (dv.value[pattern.diagonal_places] == 0).all()
    assert (dv.value != 0).any()


def test_solve_backward_and_double_backward_factor_once() -> None:
    pattern, values = entries(regular(30, 0.1, 7))
    CACHE.clear()
    before = CACHE.factored
    v, b = Var(values), Var(RNG.standard_normal(30))
    dv, db = gradients(diff.solve(pattern, v, b, apply=apply).sum(), [v, b])
    gradients((dv * dv).sum() + (db * db).sum(), [v, b])
    diff.solve(pattern, values.copy(), np.ones(30))
    assert CACHE.factored == before + 1


def test_backward_after_the_values_changed_uses_the_factor_of_the_forward_pass() -> None:
    pattern, values = entries(regular(12, 0.2, 8))
    b, g = np.ones(12), RNG.standard_normal(12)
    op = Solve(pattern)
    op.forward(values, b)
    expected = vjp(op, (values, b), g)
    diff.solve(pattern, 2 * values, b)  # the cache holds another factor now
    before = CACHE.factored
    found = vjp(op, (values, b), g)
    assert CACHE.factored == before
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_values_changed_in_place_between_two_solves_are_seen() -> None:
    pattern, values = entries(regular(12, 0.2, 9))
    b, op = np.ones(12), Solve(pattern)
    first = op.forward(values, b)
    values *= 4.0
    assert np.allclose(op.forward(values, b), first / 4, rtol=1e-13)
    b[:] = 2.0
    assert np.allclose(op.forward(values, b), first / 2, rtol=1e-13)
    first[:] = 0.0  # what was returned is the caller's
    assert np.allclose(op.forward(values, b), diff.solve(pattern, values, b), rtol=1e-13)


def test_derivatives_are_the_same_to_the_bit() -> None:
    pattern, values = entries(regular(200, 0.02, 10))
    b, g = np.random.default_rng(0).standard_normal((2, 200, 3))
    found = []
    for _ in range(2):
        CACHE.clear()
        found.append(vjp(Solve(pattern), (values, b), g))
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


def test_float32_derivatives_are_those_of_float64_rounded() -> None:
    pattern, values = entries(regular(20, 0.2, 11))
    b, g = np.random.default_rng(1).standard_normal((2, 20))
    narrow = [array.astype(np.float32) for array in (values, b, g)]
    found = vjp(Solve(pattern, precision="FDF"), narrow[:2], narrow[2])
    wide = [array.astype(np.float64) for array in narrow]
    expected = vjp(Solve(pattern), wide[:2], wide[2])
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.float32
        assert np.abs(one - other).max() <= 4e-7 * np.abs(other).max()


def test_eigenvalues_are_those_of_oc_eigsh_and_differentiate_twice() -> None:
    a = poisson(5).toarray() + np.diag(np.arange(25.0) / 7)
    pattern, values = entries(a)
    order = pattern.transposing

    for which, k in (("LA", 3), ("SA", 2), ("LM", 1)):
        w = diff.eigsh(pattern, values, k, which=which, devices="host:0")
        expected = oc.eigsh(csr_array(a), k, which=which, devices="host:0").eigenvalues
        assert np.allclose(w, expected, rtol=1e-12)

        def symmetric(v: Var, which: Any = which, k: int = k) -> Var:
            return diff.eigsh(pattern, (v + v[order]) * 0.5, k, which=which, devices="host:0", apply=apply)

        check_derivatives(symmetric, values, rtol=2e-5)


def test_gradient_of_an_eigenvalue_is_its_vector_on_the_pattern() -> None:
    pattern, values = entries(np.diag([1.0, 2.0, 5.0]) + 0.1 * (np.ones((3, 3)) - np.eye(3)))
    v = Var(values)
    (dv,) = gradients(diff.eigsh(pattern, v, 1, which="LA", devices="host:0", apply=apply).sum(), [v])
    x = np.linalg.eigh(np.diag([1.0, 2.0, 5.0]) + 0.1 * (np.ones((3, 3)) - np.eye(3)))[1][:, 2]
    assert np.allclose(dv.value, np.outer(x, x)[pattern.rows, pattern.indices], atol=1e-9)


def test_second_derivatives_of_an_eigenvalue_are_those_of_the_symmetric_part() -> None:
    """By perturbation: twice the sum of products of off-diagonal elements over differences of eigenvalues."""
    a = np.array([[2.0, 0.7, 0.0, 0.4], [0.7, 0.5, -0.3, 0], [0.0, -0.3, 3, 0.2], [0.4, 0, 0.2, -1]])
    pattern, values = entries(a)
    w, x = np.linalg.eigh(a)
    moved = [(np.outer(x[:, -1], each) + np.outer(each, x[:, -1]))[pattern.rows, pattern.indices] / 2 for each in x.T[:-1]]
    expected = 2 * sum(np.outer(each, each) / (w[-1] - at) for each, at in zip(moved, w, strict=False))

    v = Var(values)
    (first,) = gradients(diff.eigsh(pattern, v, 1, which="LA", devices="host:0", apply=apply).sum(), [v])
    found = np.array([gradients(first[at], [v])[0].value for at in range(pattern.nnz)])
    assert np.allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(("diagonal", "k"), [([1.0, 2.0, 3.0, 3.0], 2), ([1.0, 3.0, 3.0, 4.0], 2)])
def test_eigenvalues_that_are_not_simple_have_no_derivative(diagonal: list[float], k: int) -> None:
    pattern, values = entries(np.diag(diagonal))
    v = Var(values)
    w = diff.eigsh(pattern, v, k, which="LA", devices="host:0", apply=apply)
    assert np.allclose(w.value, sorted(diagonal)[-k:])
    with pytest.raises(ValueError, match=r"multiple eigenvalues have no derivatives.*gap"):
        gradients(w.sum(), [v])


@pytest.mark.parametrize(("diagonal", "k", "refused"), [([5, 5, -5, -5], 1, True), ([5, 3, -3], 2, True), ([5, 4, -3], 2, False)])
def test_eigenvalues_of_equal_magnitude_at_both_ends_have_no_derivative(diagonal: list[float], k: int, refused: bool) -> None:
    """Whether the one that is found is simple cannot be seen of the next in magnitude, which is at the other end."""
    pattern, values = entries(np.diag(np.array(diagonal, float)))
    v = Var(values)
    w = diff.eigsh(pattern, v, k, which="LM", devices="host:0", apply=apply).sum()
    if refused:
        with pytest.raises(ValueError, match=r"chance, and has no derivative|have no derivatives"):
            gradients(w, [v])
    else:
        assert np.allclose(gradients(w, [v])[0].value, [1, 1, 0])


def test_eigenvalues_are_counted_in_whole_numbers() -> None:
    pattern, values = entries(np.eye(3))
    with pytest.raises(TypeError):
        diff.eigsh(pattern, values, 1.5, devices="host:0")  # type: ignore[arg-type]


def test_eigenvalues_of_what_is_not_symmetric() -> None:
    pattern, values = entries(np.array([[1.0, 2.0], [3.0, 1.0]]))
    with pytest.raises(ValueError, match=r"A\[0, 1\] and A\[1, 0\] differ by 1"):
        diff.eigsh(pattern, values, 1, devices="host:0")
    pattern, values = entries(np.array([[1.0, 2.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"entry \(0, 1\), but none \(1, 0\)"):
        diff.eigsh(pattern, values, 1, devices="host:0")
    with pytest.raises(ValueError, match=r"k is 3, but A has 2 rows"):
        diff.eigsh(pattern, values, 3)
