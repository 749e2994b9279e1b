"""Eigenvalues of the torch adapter: derivatives of both orders where they are simple, and a typed error where they are not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from tests.host.torch_matrices import bits, poisson

#: The warning is of torch about its own modules, when it first differentiates forward.
pytestmark = [
    pytest.mark.commit,
    pytest.mark.host,
    pytest.mark.package("torch"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def half(sparse):
    """An upper triangle with a diagonal far apart: with its transpose, a symmetric matrix of simple eigenvalues."""
    full = np.triu(np.random.default_rng(2).standard_normal((6, 6)) * 0.3) + np.diag([-9.0, -4.0, 1.0, 3.0, 7.0, 8.0])
    full[0, 3] = full[1, 4] = 0.0
    return sparse.CSR.of(scipy.sparse.csr_array(full)).requires_grad_()


def dense_eigenvalues(torch, values, pattern, which, k):
    """By torch's dense solver."""
    full = torch.zeros(pattern.shape, dtype=torch.float64)
    rows, columns = (torch.from_numpy(np.array(each, np.int64)) for each in (pattern.rows, pattern.indices))
    upper = full.index_put((rows, columns), values)
    w = torch.linalg.eigvalsh(upper + upper.T)
    order = {"LA": torch.argsort(-w), "SA": torch.argsort(w), "LM": torch.argsort(-w.abs())}[which][:k]
    return w[torch.sort(order).values]


@pytest.mark.parametrize(("which", "k"), [("LA", 1), ("SA", 2), ("LM", 3), ("LM", 6)])
def test_eigenvalues_and_both_derivatives_agree_with_dense_ones(sparse, torch, half, which, k):
    weights = torch.arange(1.0, k + 1, dtype=torch.float64)

    def ours(v):
        upper = sparse.CSR(v, half.pattern)
        return sparse.eigsh(upper + upper.T, k, which=which, devices="host:0")

    def theirs(v):
        return dense_eigenvalues(torch, v, half.pattern, which, k)

    found = []
    for function in (ours, theirs):
        w = function(half.values)
        (first,) = torch.autograd.grad(weights @ w, half.values, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), half.values)
        found.append((w, first, second))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-7, atol=1e-8)


def test_eigenvalues_pass_gradcheck(sparse, torch, half):
    def largest(v):
        upper = sparse.CSR(v, half.pattern)
        return sparse.eigsh(upper + upper.T, 2, which="LA", devices="host:0")

    assert torch.autograd.gradcheck(largest, (half.values,), atol=1e-6, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(largest, (half.values,), atol=1e-6)


def test_derivatives_of_all_orders_are_those_of_the_symmetric_part(sparse, torch):
    a = sparse.CSR.of(np.array([[2.0, 0.7, 0.0, 0.4], [0.7, 0.5, -0.3, 0], [0.0, -0.3, 3, 0.2], [0.4, 0, 0.2, -1]]))
    rows, columns = (torch.from_numpy(np.array(each, np.int64)) for each in (a.pattern.rows, a.pattern.indices))
    one, other = torch.from_numpy(np.random.default_rng(3).standard_normal((2, a.nnz)))

    def ours(v):
        return sparse.eigsh(sparse.CSR(v, a.pattern), 2, which="LA", devices="host:0").pow(2).sum()

    def theirs(v):
        full = torch.zeros(a.shape, dtype=torch.float64).index_put((rows, columns), v)
        return torch.linalg.eigvalsh((full + full.T) / 2)[-2:].pow(2).sum()

    found = []
    for function in (ours, theirs):
        v = a.values.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(v), v, create_graph=True)
        (second,) = torch.autograd.grad(first @ one, v, create_graph=True)
        (third,) = torch.autograd.grad(second @ other, v)
        found.append((first, second, third))
    for mine, dense in zip(*found, strict=True):
        assert torch.allclose(mine, dense, rtol=1e-7, atol=1e-8)


def test_func_transforms_are_backward(sparse, torch, half):
    def largest(v):
        upper = sparse.CSR(v, half.pattern)
        return sparse.eigsh(upper + upper.T, 1, which="LA", devices="host:0")[0]

    v = half.values.detach()
    wanted = torch.func.hessian(lambda v: dense_eigenvalues(torch, v, half.pattern, "LA", 1)[0])(v)
    assert torch.allclose(torch.func.jacrev(torch.func.jacrev(largest))(v), wanted, rtol=1e-6, atol=1e-7)
    with pytest.raises(NotImplementedError, match="jacrev"):
        torch.func.hessian(largest)(v)


def test_gradient_is_on_the_pattern_and_has_the_same_bits_again(sparse, torch):
    def gradient():
        a = (sparse.CSR.of(poisson(12)) + sparse.CSR.of(scipy.sparse.diags_array(np.linspace(0, 1, 144)))).requires_grad_()
        sparse.eigsh(a, 2, which="SA", devices="host:0").sum().backward()
        assert a.grad.pattern is a.pattern
        return bits(a.grad.values)

    assert gradient() == gradient()


def test_multiple_eigenvalues_have_no_derivative(sparse, torch):
    a = sparse.CSR.of(poisson(4)).requires_grad_()
    w = sparse.eigsh(a, 3, which="SA", devices="host:0")
    assert np.allclose(w.detach().numpy(), np.linalg.eigvalsh(poisson(4).toarray())[:3])
    with pytest.raises(ValueError, match="multiple eigenvalues have no derivatives"):
        w.sum().backward()


def test_what_is_wrong_is_refused_in_words(sparse, torch):
    for matrix, k, text in [
        (sparse.CSR.of(poisson(3)).tril(), 1, "symmetric"),
        (sparse.CSR.of(poisson(3)), 10, "k is 10"),
        (sparse.CSR(torch.ones(2), oc.diff.Pattern([0, 2], [0, 1], (1, 2))), 1, "only a square"),
    ]:
        with pytest.raises(ValueError, match=text):
            sparse.eigsh(matrix, k, devices="host:0")
