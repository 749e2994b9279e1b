"""Solves of the torch adapter: derivatives of both orders, one factor for all of them, and values that change underneath."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from tests.host.torch_matrices import assert_differentiates_twice, bits, pattern_of, poisson, tensor

#: The warning is of torch about its own modules, when it first differentiates forward.
pytestmark = [
    pytest.mark.commit,
    pytest.mark.host,
    pytest.mark.package("torch"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is deprecated:DeprecationWarning"),
]

COLUMNS = [None, 1, 3]


def square(n, seed=0):
    """The pattern of a square matrix with a full diagonal, and values that are far from singular; neither is symmetric."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.4)
    np.fill_diagonal(a, rng.uniform(3.0, 4.0, n) * np.where(rng.random(n) < 0.5, -1, 1))
    return oc.diff.Pattern.of(scipy.sparse.csr_array(a))


def followed(torch, array):
    """A copy as a tensor that autograd follows."""
    return torch.from_numpy(np.array(array)).requires_grad_()


def right_hand_sides(n, columns):
    return tensor(n if columns is None else (n, columns), 1)


@pytest.fixture
def factored():
    """How many matrices have been factored since."""
    from tests.inside.diff import CACHE

    CACHE.clear()
    before = CACHE.factored
    return lambda: CACHE.factored - before


# C1: derivatives of first and second order


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("n", [1, 5])
def test_solve_differentiates_twice(sparse, torch, n, columns, trans):
    pattern, values = square(n)
    function = lambda v, b: sparse.solve(sparse.CSR(v, pattern), b, trans=trans)  # noqa: E731
    assert_differentiates_twice(function, followed(torch, values), right_hand_sides(n, columns))


def test_solve_of_no_rows_differentiates(sparse, torch):
    pattern = oc.diff.Pattern([0], [], (0, 0))
    v, b = tensor(0), tensor(0, 1)
    sparse.solve(sparse.CSR(v, pattern), b).sum().backward()
    assert v.grad.shape == b.grad.shape == (0,)


@pytest.mark.parametrize("assume", ["symmetric", "spd"])
def test_solve_of_what_is_told_to_be_symmetric_differentiates_twice(sparse, torch, assume):
    pattern, values = square(4)

    def solved(v, b):
        half = sparse.CSR(v, pattern)
        return sparse.solve(half @ half.T + (half + half.T) * 0.01, b, assume=assume)

    assert_differentiates_twice(solved, followed(torch, values), right_hand_sides(4, None))


@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("side", ["tril", "triu"])
@pytest.mark.parametrize("columns", [None, 2])
def test_triangular_solve_of_a_triangle_differentiates_twice(sparse, torch, columns, side, trans, unit_diagonal):
    pattern, values = square(5)

    def solved(v, b):
        part = getattr(sparse.CSR(v, pattern), side)()
        return sparse.triangular_solve(part, b, lower=side == "tril", trans=trans, unit_diagonal=unit_diagonal)

    assert_differentiates_twice(solved, followed(torch, values), right_hand_sides(5, columns))


def test_triangular_solve_without_a_diagonal_differentiates_twice(sparse, torch):
    pattern, values = square(5)
    part = pattern.tril(-1)
    solved = lambda v, b: sparse.triangular_solve(sparse.CSR(v, part.pattern), b, unit_diagonal=True)  # noqa: E731
    assert_differentiates_twice(solved, followed(torch, values[part.places.host]), right_hand_sides(5, None))


def test_solve_with_a_sum_differentiates_twice(sparse, torch):
    (p, a), q = square(5), pattern_of("holes")
    solved = lambda v, w, b: sparse.solve(sparse.CSR(v, p) + 0.1 * sparse.CSR(w, q), b)  # noqa: E731
    assert_differentiates_twice(solved, followed(torch, a), tensor(q.nnz), right_hand_sides(5, 2))


def test_solve_with_a_product_differentiates_twice(sparse, torch):
    (p, a), (q, b) = square(4), square(4, 1)
    solved = lambda v, w, b: sparse.solve(sparse.CSR(v, p) @ sparse.CSR(w, q).T, b)  # noqa: E731
    assert_differentiates_twice(solved, followed(torch, a), followed(torch, b), right_hand_sides(4, None))


def test_a_factorization_differentiates_twice(sparse, torch):
    pattern, values = square(5)

    v, b = followed(torch, values), right_hand_sides(5, None)
    factor = sparse.factorize(sparse.CSR(v, pattern))
    twice = factor.solve(factor.solve(b), trans=True)
    full = sparse.CSR(v, pattern).to_dense()
    wanted = torch.linalg.solve(full.T, torch.linalg.solve(full, b))
    found = torch.autograd.grad(twice.sum(), (v, b), create_graph=True)
    again = torch.autograd.grad(sum((each**2).sum() for each in found), (v, b))
    theirs = torch.autograd.grad(wanted.sum(), (v, b), create_graph=True)
    others = torch.autograd.grad(sum((each**2).sum() for each in theirs), (v, b))
    for one, other in zip((twice, *found, *again), (wanted, *theirs, *others), strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-12)


# one factor, and the right one


def test_one_factor_serves_the_solve_and_both_derivatives(sparse, torch, factored):
    a = sparse.CSR.of(poisson(8)).requires_grad_()
    b = tensor((64, 2), 1)
    x = sparse.solve(a, b)
    first = torch.autograd.grad((x**2).sum(), (a.values, b), create_graph=True)
    torch.autograd.grad(sum((each**2).sum() for each in first), (a.values, b))
    sparse.solve(a.detach().clone(), b)
    assert factored() == 1


def test_each_of_several_matrices_of_one_pattern_is_factored_once(sparse, torch, factored):
    matrices = [sparse.CSR.of(poisson(4) * (1.0 + k)).requires_grad_() for k in range(6)]
    b = tensor(16)
    loss = sum((sparse.solve(a, b) ** 2).sum() for a in matrices)
    loss.backward()
    assert factored() == 6


def test_values_changed_in_place_between_two_solves_are_seen(sparse, torch, factored):
    a = sparse.CSR.of(poisson(4)).requires_grad_()
    b = tensor(16)
    for change in (lambda: None, lambda: a.values.data.mul_(2), lambda: a.values.detach().numpy().__imul__(0.25)):
        change()
        a.values.grad = None
        x = sparse.solve(a, b)
        x.sum().backward()
        full = a.detach().to_dense().requires_grad_()
        wanted = torch.linalg.solve(full, b)
        wanted.sum().backward()
        assert torch.allclose(x, wanted, rtol=1e-12)
        assert torch.allclose(a.grad.to_dense(), torch.where(full != 0, full.grad, 0), rtol=1e-11)
    assert factored() == 3


def test_a_factor_of_other_values_is_refused(sparse, torch):
    a = sparse.CSR.of(poisson(3))
    b = tensor(9)
    with sparse.factorize(a) as factor:
        assert torch.equal(sparse.solve(a, b, factor=factor), factor.solve(b))
        assert "Factorization(CSR(9 x 9, 33 entries, float64, cpu), Factor(" in repr(factor)
        a.values.mul_(2)
        with pytest.raises(ValueError, match="other values"):
            factor.solve(b)
    with pytest.raises(ValueError, match="closed"):
        factor.solve(b)


def test_two_backward_passes_have_the_same_bits(sparse, torch):
    def gradients():
        a = sparse.CSR.of(poisson(12)).requires_grad_()
        b = tensor((144, 3))
        x = sparse.solve(a, sparse.triangular_solve(a.tril(), b))
        first = torch.autograd.grad((x**2).sum(), (a.values, b), create_graph=True)
        return bits(x, *first, *torch.autograd.grad(sum((each**2).sum() for each in first), (a.values, b)))

    assert gradients() == gradients()


def test_gradient_has_the_pattern(sparse, torch):
    a = sparse.CSR.of(poisson(6)).requires_grad_()
    sparse.solve(a, tensor(36)).sum().backward()
    assert a.grad.pattern is a.pattern
    a.values.grad = None
    sparse.triangular_solve(a.triu(), tensor(36), lower=False).sum().backward()
    assert a.grad.pattern is a.pattern
    assert np.array_equal(a.grad.to_dense().numpy() != 0, np.triu(a.detach().to_dense().numpy()) != 0)


def test_poisson_solve_and_gradient_take_less_than_50_ms(sparse, torch, one_blas_thread):
    from tests.inside.diff import CACHE

    a, b = sparse.CSR.of(poisson(64)).requires_grad_(), torch.ones(64 * 64, dtype=torch.float64)
    seconds = []
    for _ in range(5):
        CACHE.clear()
        before = time.process_time()
        (gradient,) = torch.autograd.grad(sparse.solve(a, b).sum(), a.values)
        seconds.append(time.process_time() - before)
    assert gradient.shape == (a.nnz,)
    assert min(seconds) <= 0.050


# torch.func


def test_func_transforms_agree_with_dense_ones(sparse, torch):
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp

    pattern, values = square(4)
    v, b = torch.from_numpy(values), tensor(4, 1).detach()
    rows, columns = (torch.from_numpy(np.array(each, np.int64)) for each in (pattern.rows, pattern.indices))

    def ours(v, b):
        a = sparse.CSR(v, pattern)
        return sparse.solve(a, sparse.triangular_solve(a.triu(), b, lower=False), trans=True)

    def theirs(v, b):
        a = torch.zeros(4, 4, dtype=torch.float64).index_put((rows, columns), v)
        return torch.linalg.solve(a.T, torch.linalg.solve_triangular(a.triu(), b[:, None], upper=True)[:, 0])

    for transform in (
        lambda f: grad(lambda v: f(v, b).sum())(v),
        lambda f: vjp(f, v, b)[1](torch.ones(4, dtype=torch.float64))[0],
        lambda f: jvp(f, (v, b), (v + 1, b - 1))[1],
        lambda f: jacrev(f)(v, b),
        lambda f: jacfwd(f)(v, b),
        lambda f: hessian(lambda v: f(v, b).sum())(v),
    ):
        assert torch.allclose(transform(ours), transform(theirs), rtol=1e-9, atol=1e-10)


def test_vmap_over_right_hand_sides_is_one_solve(sparse, torch, monkeypatch, factored):
    from tests.inside.diff import Factor

    a, b, calls = sparse.CSR.of(poisson(4)), tensor((7, 16)).detach(), []
    solve = Factor.solve
    monkeypatch.setattr(Factor, "solve", lambda *given, **options: calls.append(1) or solve(*given, **options))
    found = torch.func.vmap(lambda b: sparse.solve(a, b))(b)
    assert len(calls) == factored() == 1
    assert torch.equal(found, sparse.solve(a, b.mT).mT)
    gradients = torch.func.vmap(torch.func.grad(lambda v, b: sparse.solve(sparse.CSR(v, a.pattern), b).sum()), (None, 0))
    wanted = torch.func.jacrev(lambda v: sparse.solve(sparse.CSR(v, a.pattern), b.mT).sum(0))(a.values)
    assert torch.allclose(gradients(a.values, b), wanted, rtol=1e-10)
    triangle = a.tril()
    found = torch.func.vmap(lambda b: sparse.triangular_solve(triangle, b))(b)
    assert torch.allclose(found, sparse.triangular_solve(triangle, b.mT).mT, rtol=1e-14)


# pivots, types and what is refused


def test_rows_are_exchanged_for_pivots(sparse, torch):
    full = np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 3.0], [4.0, 1.0, 0.0]])
    a = sparse.CSR.of(full)
    b = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert np.allclose(sparse.solve(a, b).numpy(), np.linalg.solve(full, b.numpy()), rtol=1e-12)


def test_float32_stays_float32(sparse, torch):
    a = sparse.CSR.of(poisson(6).astype(np.float32)).requires_grad_()
    b = torch.ones(36, requires_grad=True)
    for precision in (None, "FDF"):
        x = sparse.solve(a, b, precision=precision)
        v, w = torch.autograd.grad((x + sparse.triangular_solve(a.tril(), b, precision=precision)).sum(), (a.values, b))
        assert x.dtype == v.dtype == w.dtype == torch.float32
        assert torch.allclose(a.detach().to(torch.float64) @ x.detach().double(), torch.ones(36).double(), atol=1e-5)


def refused(torch, sparse):
    """Calls that make no sense, with the error of each."""
    a = sparse.CSR.of(poisson(2).astype(np.float32))
    wide = sparse.CSR(torch.ones(pattern_of("wide").nnz), pattern_of("wide"))
    ones = torch.ones(4)
    singular = sparse.CSR.of(torch.tensor([[1.0, 2.0], [2.0, 4.0]]))
    hole = sparse.CSR(torch.ones(2), oc.diff.Pattern([0, 1, 2], [0, 0], (2, 2)))
    nan = sparse.CSR.of(torch.tensor([[1.0, float("nan")], [0.0, 1.0]]))
    return {
        "height": (lambda: sparse.solve(a, torch.ones(5)), ValueError, r"b has shape \(5,\), but A has 4 rows"),
        "dimensions": (lambda: sparse.solve(a, torch.ones(4, 1, 1)), ValueError, "give"),
        "square": (lambda: sparse.solve(wide, ones[:3]), ValueError, "A is 3 x 6: only a square"),
        "square triangle": (lambda: sparse.triangular_solve(wide, ones[:3]), ValueError, "A is 3 x 6: only a square"),
        "square factor": (lambda: sparse.factorize(wide), ValueError, "3 x 6"),
        "type": (lambda: sparse.solve(a, ones.double()), TypeError, "A is of torch.float32, but b of torch.float64"),
        "array": (lambda: sparse.solve(a, np.ones(4)), TypeError, "b is a ndarray"),
        "integers": (lambda: sparse.triangular_solve(a, ones.int()), TypeError, "torch.int32"),
        "no matrix": (lambda: sparse.solve(torch.eye(4), ones), TypeError, "A is a Tensor"),
        "singular": (lambda: sparse.solve(singular, ones[:2]), oc.errors.SingularMatrixError, "column 1"),
        "nan": (lambda: sparse.solve(nan, ones[:2]), oc.errors.NonFiniteError, "0, 1"),
        "diagonal": (lambda: sparse.triangular_solve(hole, ones[:2]), ValueError, r"no entry \(1, 1\)"),
        "triangle": (lambda: sparse.triangular_solve(a, ones), ValueError, "take tril"),
        "assume": (lambda: sparse.solve(a, ones, assume="upper"), ValueError, "'upper'"),
        "not symmetric": (lambda: sparse.solve(a.tril(), ones, assume="spd"), ValueError, "not symmetric"),
        "method": (lambda: sparse.solve(a, ones, method="lu"), ValueError, "'lu'"),
        "cudss": (lambda: sparse.solve(a, ones, method="cudss"), ValueError, "host memory"),
    }


NAMES = (
    *("height", "dimensions", "square", "square triangle", "square factor", "type", "array", "integers", "no matrix", "singular"),
    *("nan", "diagonal", "triangle", "assume", "not symmetric", "method", "cudss"),
)


@pytest.fixture(scope="module")
def calls(torch, sparse):
    return refused(torch, sparse)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_wrong_is_refused_in_words(calls, name):
    call, error, text = calls[name]
    with pytest.raises(error, match=text):
        call()


def test_every_refusal_is_tested(calls):
    assert set(calls) == set(NAMES)
