"""The torch adapter takes tensors and arrays however they lie in memory, and says what it cannot take."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc

pytestmark = [
    pytest.mark.commit,
    pytest.mark.host,
    pytest.mark.package("torch"),
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is deprecated:DeprecationWarning"),
]


def square(n):
    """A dense matrix that is well solved with, and so are its triangles."""
    return np.random.default_rng(n).standard_normal((n, n)) + 4 * np.eye(n)


def as_laid_out(torch, b, layout):
    """The same numbers in another layout of torch."""
    return {
        "rows": lambda: torch.from_numpy(b.copy()),
        "columns": lambda: torch.from_numpy(np.asfortranarray(b)),
        "every second": lambda: torch.from_numpy(np.repeat(b, 2, axis=-1))[..., ::2],
        "sign apart": lambda: torch.conj(torch.complex(torch.zeros(b.shape, dtype=torch.float64), torch.from_numpy(-b))).imag,
    }[layout]()


LAYOUTS = ("rows", "columns", "every second", "sign apart")
COLUMNS = (None, 0, 1, 2)


def panel(n, columns):
    """Right-hand sides, or one."""
    return np.random.default_rng(7).standard_normal(n if columns is None else (n, columns))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_operations_take_any_layout(sparse, torch, n, columns, layout):
    full, given = square(n), panel(n, columns)
    a, b = sparse.CSR.of(scipy.sparse.csr_array(full)), as_laid_out(torch, given, layout)
    found = [(a @ b, full @ given), ((b if columns is None else b.mT) @ a, given.T @ full)]
    for trans in (False, True):
        wanted = np.linalg.solve(full.T if trans else full, given)
        found += [(sparse.solve(a, b, trans=trans), wanted), (sparse.factorize(a).solve(b, trans=trans), wanted)]
    if columns is None:
        found += [(a.scale(b, b).to_dense(), given[:, None] * full * given)]
        found += [(sparse.sampled(a.pattern, b, b).to_dense(), np.outer(given, given))]
    for one, wanted in found:
        assert tuple(one.shape) == wanted.shape
        assert np.allclose(one.numpy(), wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_triangles_of_any_size_solve_and_differentiate(sparse, torch, n, columns, lower, trans, unit):
    full = np.tril(square(n)) if lower else np.triu(square(n))
    triangle = full - np.diag(np.diag(full)) + np.eye(n) if unit else full
    matrix = triangle.T if trans else triangle
    given = panel(n, columns)
    a, b = sparse.CSR.of(full).requires_grad_(), torch.from_numpy(given.copy()).requires_grad_()
    x = sparse.triangular_solve(a, b, lower=lower, trans=trans, unit_diagonal=unit)
    wanted = np.linalg.solve(matrix, given)
    assert tuple(x.shape) == wanted.shape
    assert np.allclose(x.detach().numpy(), wanted, rtol=1e-12, atol=1e-13)
    (x**2).sum().backward()
    w = np.linalg.solve(matrix.T, 2 * wanted)
    assert np.allclose(b.grad.numpy(), w, rtol=1e-12, atol=1e-13)
    by_matrix = -np.outer(w, wanted) if columns is None else -w @ wanted.T
    by_matrix = np.where(full != 0, by_matrix.T if trans else by_matrix, 0)
    if unit:
        np.fill_diagonal(by_matrix, 0)
    assert np.allclose(a.grad.to_dense().numpy(), by_matrix, rtol=1e-11, atol=1e-12)


ARRAYS = {
    "reversed": lambda a: a[::-1],
    "columns reversed": lambda a: a[:, ::-1],
    "by columns": np.asfortranarray,
    "read only": lambda a: np.broadcast_to(a[0], a.shape),
    "big endian": lambda a: a.astype(">f8"),
    "no rows": lambda a: a[:0],
    "nothing": lambda a: a[:0, :0],
    "one number from behind": lambda a: a[:1, :1][::-1, ::-1],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_numpy_come_in_however_they_lie(sparse, name):
    array = ARRAYS[name](square(3))
    assert np.array_equal(sparse.CSR.of(array).to_dense().numpy(), array)
    native = np.array(array, np.float64)
    for format in ("csr", "csc", "coo"):
        matrix = scipy.sparse.csr_array(native).asformat(format)
        matrix.data = matrix.data.astype(array.dtype)
        matrix.data.flags.writeable = False
        assert np.array_equal(sparse.CSR.of(matrix).to_dense().numpy(), native)


@pytest.mark.parametrize(
    "given",
    [
        np.ma.masked_array(np.eye(2), np.eye(2) > 0),
        np.eye(2, dtype=np.longdouble),
        np.eye(2, dtype=object),
        np.eye(2, dtype=np.float16),
        scipy.sparse.eye_array(2, dtype=np.longdouble),
    ],
    ids=["masked", "longdouble", "object", "float16", "sparse longdouble"],
)
def test_arrays_of_other_numbers_are_refused_in_words(sparse, given):
    with pytest.raises(TypeError, match=r"the matrix is (masked|of \w+: only real floating-point numbers)"):
        sparse.CSR.of(given)


# sparse tensors of torch, and its transforms


#: Sparse tensors of torch of values v at the entries of a full 3 x 3 matrix, row by row.
SOURCES = {
    "coo": lambda torch, ij, v: torch.sparse_coo_tensor(ij, v, (3, 3)),
    "coo, coalesced": lambda torch, ij, v: torch.sparse_coo_tensor(ij, v, (3, 3)).coalesce(),
    "coo, doubled": lambda torch, ij, v: torch.sparse_coo_tensor(torch.cat([ij, ij], 1), torch.cat([0.25 * v, 0.75 * v]), (3, 3)),
    "csr": lambda torch, ij, v: torch.sparse_csr_tensor(torch.arange(0, 10, 3), ij[1], v, (3, 3)),
    "csc": lambda torch, ij, v: torch.sparse_csc_tensor(torch.arange(0, 10, 3), ij[1], v.reshape(3, 3).mT.reshape(-1), (3, 3)),
    "bsr": lambda torch, ij, v: v.reshape(3, 3).to_sparse_bsr((1, 1)),
    "bsc": lambda torch, ij, v: v.reshape(3, 3).to_sparse_bsc((3, 3)),
    "coo of dense": lambda torch, ij, v: v.reshape(3, 3).to_sparse(),
}


def loss_of(sparse, torch, make):
    """A function of the nine numbers of a matrix, which are not its values themselves."""
    b = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    ij = torch.cartesian_prod(torch.arange(3), torch.arange(3)).mT
    return lambda t: (sparse.solve(make(ij, torch.exp(0.2 * t) + t**3), b) ** 2).sum()


@pytest.mark.parametrize("name", SOURCES)
def test_sparse_tensors_differentiate_once_and_refuse_twice(sparse, torch, name):
    t = torch.from_numpy(square(3).ravel()).requires_grad_()
    wanted = loss_of(sparse, torch, lambda ij, v: sparse.CSR.of(v.reshape(3, 3)))
    loss = loss_of(sparse, torch, lambda ij, v: sparse.CSR.of(SOURCES[name](torch, ij, v)))
    assert torch.allclose(loss(t), wanted(t), rtol=1e-13)
    (found,), (right,) = torch.autograd.grad(loss(t), t), torch.autograd.grad(wanted(t), t)
    assert torch.allclose(found, right, rtol=1e-11)
    with pytest.raises(NotImplementedError, match=r"second derivatives through a sparse tensor .*CSR\.from_entries"):
        torch.autograd.functional.hessian(loss, t.detach())


def test_what_goes_out_as_a_sparse_tensor_refuses_second_derivatives(sparse, torch):
    t = torch.from_numpy(square(3).ravel())
    with pytest.raises(NotImplementedError, match=r"second derivatives through a sparse tensor .*to_dense\(\)"):
        torch.autograd.functional.hessian(lambda t: (sparse.CSR.of(t.reshape(3, 3)).to_sparse().values() ** 3).sum(), t)


TWICE = {
    "entries": lambda sparse, ij, v: sparse.CSR.from_entries([0, 3, 6, 9], ij[1], v, (3, 3)),
    "dense": lambda sparse, ij, v: sparse.CSR.of(v.reshape(3, 3)),
}


@pytest.mark.parametrize("name", TWICE)
def test_what_the_refusal_names_differentiates_twice_in_torch_func_too(sparse, torch, name):
    t = torch.from_numpy(square(3).ravel())
    loss = loss_of(sparse, torch, lambda ij, v: TWICE[name](sparse, ij, v))
    b = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    dense = lambda t: (torch.linalg.solve((torch.exp(0.2 * t) + t**3).reshape(3, 3), b) ** 2).sum()  # noqa: E731
    wanted = torch.autograd.functional.hessian(dense, t)
    scale = wanted.abs().max()
    for found in (
        torch.autograd.functional.hessian(loss, t),
        torch.func.jacrev(torch.func.grad(loss))(t),
        torch.func.hessian(loss)(t),
    ):
        assert (found - wanted).abs().max() <= 1e-10 * scale


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 2)])
def test_sparse_tensors_need_not_be_square(sparse, torch, shape, layout):
    full = np.where(np.arange(6).reshape(shape) % 4 == 1, 0.0, np.random.default_rng(1).standard_normal(shape))
    blocks = {"blocksize": (1, 1)} if layout in ("sparse_bsr", "sparse_bsc") else {}
    dense = torch.from_numpy(full).requires_grad_()
    a = sparse.CSR.of(dense.to_sparse(layout=getattr(torch, layout), **blocks))
    assert tuple(a.shape) == shape and np.array_equal(a.to_dense().detach().numpy(), full)
    (a.to_dense() ** 2).sum().backward()
    assert np.array_equal(dense.grad.numpy(), 2 * full)


def test_a_tensor_with_dense_dimensions_is_refused(sparse, torch):
    hybrid = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 4, dtype=torch.float64), (3, 4))
    with pytest.raises(ValueError, match="1 sparse dimension and 1 dense"):
        sparse.CSR.of(hybrid)


def test_an_array_of_numpy_as_an_operand_is_refused_in_words(sparse, torch):
    a = sparse.CSR.of(np.eye(3))
    for product in (
        lambda: a @ np.ones(3),
        lambda: np.ones(3) @ a,
        lambda: np.ones((2, 3)) @ a,
        lambda: sparse.solve(a, np.ones(3)),
    ):
        with pytest.raises(TypeError, match=r"[xb] is a ndarray: give a tensor of torch, such as torch.from_numpy\([xb]\)"):
            product()


@pytest.mark.parametrize("solve", ["solve", "triangular_solve"])
def test_a_singular_matrix_is_named_once(sparse, torch, solve):
    a = sparse.CSR(torch.tensor([1.0, 0.0], dtype=torch.float64), sparse.CSR.of(np.eye(2)).pattern)
    with pytest.raises(oc.errors.SingularMatrixError, match=r"^the matrix is singular to working precision"):
        getattr(sparse, solve)(a, torch.ones(2, dtype=torch.float64))
