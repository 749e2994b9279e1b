"""Positive definite matrices of the torch adapter: derivatives of both orders on many patterns, and batches."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from tests.host.torch_matrices import assert_differentiates_twice, poisson, tensor

#: The warning is of torch about its own modules, when it first differentiates forward.
pytestmark = [
    pytest.mark.host,
    pytest.mark.package("torch"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is deprecated:DeprecationWarning"),
]


def definite(seed):
    """A random positive definite matrix of up to 7 rows, and how its lower triangle makes both."""
    rng = np.random.default_rng(seed)
    n = 1 + seed % 7
    half = scipy.sparse.random_array((n, n), density=min(1.0, 2 / n), rng=rng)
    a = scipy.sparse.csr_array(half @ half.T + scipy.sparse.diags_array(rng.uniform(0.5, 2.0, n)))
    return oc.diff.Pattern.of(a)


def from_triangle(torch, sparse, pattern, values):
    """The triangle's values as a tensor that is followed, and the function that makes the matrix of them."""
    part = pattern.tril()
    lower = torch.from_numpy(values[part.places.host].copy()).requires_grad_()

    def matrix(lower):
        triangle = sparse.CSR(lower, part.pattern)
        return triangle + triangle.tril(-1).T

    return lower, matrix


@pytest.mark.parametrize("seed", range(50))
def test_log_determinants_differentiate_twice_on_random_patterns(sparse, torch, seed):
    pattern, values = definite(seed)
    lower, matrix = from_triangle(torch, sparse, pattern, values)
    assert_differentiates_twice(lambda lower: sparse.logdet(matrix(lower)), lower)


@pytest.mark.parametrize("seed", range(1, 50, 6))
@pytest.mark.parametrize("name", ["selected_inverse", "cholesky", "sample"])
def test_the_others_differentiate_twice(sparse, torch, name, seed):
    pattern, values = definite(seed)
    lower, matrix = from_triangle(torch, sparse, pattern, values)
    z = tensor((pattern.n_rows, 2))
    functions = {
        "selected_inverse": lambda lower, z: sparse.selected_inverse(matrix(lower)).values,
        "cholesky": lambda lower, z: sparse.cholesky(matrix(lower))[0].values,
        "sample": lambda lower, z: sparse.sample(matrix(lower), z),
    }
    assert_differentiates_twice(functions[name], lower, z)


def test_hessians_are_those_of_dense_algebra_and_symmetric_entry_by_entry(sparse, torch):
    pattern, values = definite(5)
    inverse = np.linalg.inv(sparse.CSR(torch.from_numpy(values), pattern).to_dense().numpy())
    i, j = pattern.rows, pattern.indices
    expected = -(inverse[i][:, i] * inverse[j][:, j] + inverse[i][:, j] * inverse[j][:, i]) / 2
    function = lambda v: sparse.logdet(sparse.CSR(v, pattern))  # noqa: E731
    given = torch.from_numpy(values)
    for hessian in (torch.func.hessian(function), torch.func.jacrev(torch.func.jacrev(function))):
        assert np.allclose(hessian(given).numpy(), expected, rtol=1e-12, atol=1e-13)


def test_vmap_over_values_is_a_loop_and_differentiates(sparse, torch):
    pattern, values = definite(6)
    every = torch.stack([torch.from_numpy(values) * factor for factor in (1.0, 1.5, 4.0)])
    z = torch.from_numpy(np.random.default_rng(0).standard_normal((3, pattern.n_rows)))
    function = lambda v, z: sparse.logdet(sparse.CSR(v, pattern)) + sparse.sample(sparse.CSR(v, pattern), z).sum()  # noqa: E731
    for of in (function, torch.func.grad(function)):
        found = torch.func.vmap(of)(every, z)
        assert torch.equal(found, torch.stack([of(v, each) for v, each in zip(every, z, strict=True)]))


@pytest.mark.parametrize(
    "function",
    [
        lambda sparse, a: sparse.logdet(a),
        lambda sparse, a: sparse.selected_inverse(a).values,
        lambda sparse, a: sparse.cholesky(a)[0].values,
        lambda sparse, a: sparse.sample(a, a.row_sums()),
        lambda sparse, a: sparse.solve(a, a.to_dense()),
        lambda sparse, a: sparse.triangular_solve(a.tril(), a.row_sums()),
        lambda sparse, a: sparse.eigsh(a, k=2),
        lambda sparse, a: (a @ a).values,
    ],
    ids=["logdet", "selected inverse", "cholesky", "sample", "solve", "triangular", "eigsh", "product"],
)
def test_vmap_over_no_values_gives_nothing_and_differentiates(sparse, torch, function):
    pattern, values = definite(3)
    of = lambda v: function(sparse, sparse.CSR(v, pattern))  # noqa: E731
    none = torch.zeros((0, pattern.nnz), dtype=torch.float64, requires_grad=True)
    found = torch.func.vmap(of)(none)
    assert found.shape == (0, *of(torch.from_numpy(values)).shape)
    assert torch.autograd.grad(found.sum(), none)[0].shape == none.shape


def test_the_gradient_in_a_parameter_of_a_field_is_that_of_its_dense_likelihood(sparse, torch):
    grid = sparse.CSR.of(poisson(12))
    eye = sparse.CSR.of(scipy.sparse.eye_array(144))
    x = tensor(144)
    log_kappa = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)

    def loss(precision, logdet):
        return (x * (precision @ x)).sum() - logdet(precision)

    found = loss(sparse.add(grid, eye, beta=torch.exp(log_kappa)), sparse.logdet)
    expected = loss(grid.to_dense() + torch.exp(log_kappa) * eye.to_dense(), torch.logdet)
    gradients = [torch.autograd.grad(each, (log_kappa, x)) for each in (found, expected)]
    assert all(torch.allclose(one, other, rtol=1e-12) for one, other in zip(*gradients, strict=True))


def test_what_is_no_matrix_is_refused(sparse, torch):
    with pytest.raises(TypeError, match="give an ooc_chol"):
        sparse.logdet(torch.eye(2))
    with pytest.raises(ValueError, match=r"z has shape \(3,\), but A has 2 rows"):
        sparse.sample(sparse.CSR.of(torch.eye(2)), torch.ones(3))
