"""The torch adapter: operations differentiate twice, keep patterns, give the same bits again, and refuse what is wrong."""

from __future__ import annotations

import doctest
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from tests.host.torch_matrices import SHAPES, assert_differentiates_twice, bits, pattern_of, poisson, tensor

#: The warning is of torch about its own modules, when it first differentiates forward.
pytestmark = [
    pytest.mark.commit,
    pytest.mark.host,
    pytest.mark.package("torch"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is deprecated:DeprecationWarning"),
]

KINDS = tuple(SHAPES)


def dense(matrix):
    """A matrix as NumPy's."""
    return matrix.to_dense().detach().numpy()


# C1: derivatives of first and second order


@pytest.mark.parametrize("columns", [None, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_product_differentiates_twice(sparse, kind, columns):
    pattern = pattern_of(kind)
    x = tensor(pattern.n_columns if columns is None else (pattern.n_columns, columns), 1)
    assert_differentiates_twice(lambda v, x: sparse.CSR(v, pattern) @ x, tensor(pattern.nnz), x)


@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_product_from_the_left_differentiates_twice(sparse, kind, columns):
    pattern = pattern_of(kind)
    x = tensor(pattern.n_rows if columns is None else (columns, pattern.n_rows), 1)
    assert_differentiates_twice(lambda v, x: x @ sparse.CSR(v, pattern), tensor(pattern.nnz), x)


@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_product_differentiates_twice(sparse, kind, columns):
    pattern = pattern_of(kind)
    g, x = (tensor(n if columns is None else (n, columns), seed) for seed, n in enumerate(pattern.shape))
    assert_differentiates_twice(lambda g, x: sparse.sampled(pattern, g, x).values, g, x)


@pytest.mark.parametrize(
    ("kind", "other"), [("holes", "holes"), ("one", "one"), ("tall", "wide"), ("wide", "tall"), ("full", "none")]
)
def test_product_of_sparse_matrices_differentiates_twice(sparse, kind, other):
    p, q = pattern_of(kind), pattern_of(other, 1)
    assert_differentiates_twice(lambda a, b: (sparse.CSR(a, p) @ sparse.CSR(b, q)).values, tensor(p.nnz), tensor(q.nnz, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_sum_differentiates_twice(sparse, kind):
    p, q = pattern_of(kind), pattern_of(kind, 1)

    def combined(a, b, alpha):
        one, other = sparse.CSR(a, p), sparse.CSR(b, q)
        return sparse.add(one, other, alpha=alpha, beta=3.0).values + (one - other).values * (-(other + one)).values

    assert_differentiates_twice(combined, tensor(p.nnz), tensor(q.nnz, 1), tensor((), 2))


ONE_MATRIX = {
    "transpose": lambda sparse, a: sparse.transpose(a).values,
    "tril": lambda sparse, a: sparse.tril(a).values,
    "tril below": lambda sparse, a: a.tril(-1).values,
    "triu": lambda sparse, a: sparse.triu(a).values,
    "triu above": lambda sparse, a: a.triu(2).values,
    "diagonal": lambda sparse, a: sparse.diagonal(a),
    "row sums": lambda sparse, a: sparse.row_sums(a),
    "dense": lambda sparse, a: a.to_dense(),
    "number": lambda sparse, a: (2.0 * a / 3.0).values,
}


@pytest.mark.parametrize("name", ONE_MATRIX)
@pytest.mark.parametrize("kind", KINDS)
def test_operations_of_one_matrix_differentiate_twice(sparse, kind, name):
    pattern = pattern_of(kind)
    assert_differentiates_twice(lambda v: ONE_MATRIX[name](sparse, sparse.CSR(v, pattern)) ** 2, tensor(pattern.nnz))


@pytest.mark.parametrize("kind", KINDS)
def test_scaling_differentiates_twice(sparse, kind):
    pattern = pattern_of(kind)
    rows, columns = (tensor(n, seed) for seed, n in enumerate(pattern.shape))
    scaled = lambda v, r, c: sparse.scale(sparse.CSR(v, pattern), rows=r, columns=c).values  # noqa: E731
    assert_differentiates_twice(scaled, tensor(pattern.nnz, 2), rows, columns)


def test_product_of_two_matrices_and_a_vector_differentiates_twice(sparse):
    p, q = pattern_of("tall"), pattern_of("wide")
    function = lambda a, b, x: (sparse.CSR(a, p) @ sparse.CSR(b, q)) @ x  # noqa: E731
    assert_differentiates_twice(function, tensor(p.nnz), tensor(q.nnz, 1), tensor(6, 2))


def test_sorted_and_added_entries_differentiate_twice(sparse):
    def values(v):
        return sparse.CSR.from_entries([0, 3, 3, 5], [2, 0, 2, 1, 1], v, (3, 3)).values ** 2

    assert_differentiates_twice(values, tensor(5))


# what operations give


@pytest.mark.parametrize("kind", KINDS)
def test_operations_agree_with_dense_ones(sparse, torch, kind):
    p, q = pattern_of(kind), pattern_of(kind, 1)
    a, b = sparse.CSR(tensor(p.nnz), p), sparse.CSR(tensor(q.nnz, 1), q)
    x, left = tensor((p.n_columns, 2), 2), tensor((2, p.n_rows), 3)
    full, other = dense(a), dense(b)
    assert np.array_equal(full, a.to_scipy().toarray())
    for found, wanted in [
        (a @ x, full @ x.detach().numpy()),
        (a @ x[:, 0], full @ x.detach().numpy()[:, 0]),
        (left @ a, left.detach().numpy() @ full),
        (left[0] @ a, left.detach().numpy()[0] @ full),
        (a.row_sums(), full.sum(1)),
        (a.diagonal(), np.diagonal(full)),
        ((a @ b.T).to_dense(), full @ other.T),
        ((a - b).to_dense(), full - other),
        ((a + b).to_dense(), full + other),
        (a.tril(1).to_dense(), np.tril(full, 1)),
        (a.triu(-1).to_dense(), np.triu(full, -1)),
        (a.T.to_dense(), full.T),
        (sparse.scale(a, rows=left[0]).to_dense(), left.detach().numpy()[0][:, None] * full),
    ]:
        assert np.allclose(found.detach().numpy(), wanted, rtol=1e-14, atol=1e-14)


def test_rows_and_columns_of_panels_in_any_layout_are_taken(sparse, torch):
    a = sparse.CSR.of(poisson(4))
    x = tensor((3, 16)).detach()
    assert np.allclose((a @ x.mT).numpy(), dense(a) @ x.numpy().T)
    assert np.allclose((a @ torch.ones(()).double().expand(16)).numpy(), dense(a).sum(1))


# gradients keep the pattern


def test_gradient_of_a_matrix_is_a_matrix_on_its_pattern(sparse, torch):
    a = sparse.CSR.of(poisson(8)).requires_grad_()
    assert a.grad is None
    assert a.requires_grad
    x = tensor((64, 2))
    ((a @ x) ** 2).sum().backward()
    assert isinstance(a.grad, sparse.CSR)
    assert a.grad.pattern is a.pattern
    assert a.grad.values.shape == (a.nnz,)
    wanted = 2 * dense(a) @ x.detach().numpy() @ x.detach().numpy().T
    assert np.allclose(dense(a.grad), np.where(dense(a) != 0, wanted, 0))


def test_gradient_of_a_triangle_has_the_whole_pattern(sparse):
    a = sparse.CSR.of(poisson(3)).requires_grad_()
    a.tril().values.sum().backward()
    assert a.grad.nnz == a.nnz
    assert np.array_equal(dense(a.grad), np.tril(dense(a) != 0))


def test_gradient_of_a_product_of_sparse_matrices_stays_on_both_patterns(sparse):
    a, b = (sparse.CSR.of(poisson(4) * factor).requires_grad_() for factor in (1.0, 2.0))
    (a @ b).values.sum().backward()
    assert a.grad.pattern is a.pattern
    assert b.grad.pattern is b.pattern


WITHOUT_DENSE = """
import torch
from tests.inside.bench import memory_of_process
import ooc_chol as oc, ooc_chol.diff.torch as sparse
n = 200_000
before = memory_of_process("VmHWM")
pattern = oc.diff.Pattern(range(n + 1), range(n), (n, n))
a = sparse.CSR(torch.ones(n, dtype=torch.float64), pattern).requires_grad_()
x = torch.ones(n, dtype=torch.float64, requires_grad=True)
gradient, = torch.autograd.grad((a @ x).sum(), a.values, create_graph=True)
assert gradient.shape == (n,)
gradient.sum().backward()
assert x.grad.shape == (n,)
used = memory_of_process("VmHWM") - before
assert used < 150e6, f"{used} bytes"
"""


@pytest.mark.usefixtures("processes")
def test_no_dense_gradient_is_made():
    done = subprocess.run([sys.executable, "-c", WITHOUT_DENSE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# the same bits again


def test_two_backward_passes_have_the_same_bits(sparse, torch):
    base = scipy.sparse.random_array((300, 300), density=0.03, rng=np.random.default_rng(3), format="csr")

    def gradients():
        a = sparse.CSR.of(base.astype(np.float32)).requires_grad_()
        x = torch.linspace(-1, 1, 300 * 5).reshape(300, 5).requires_grad_()
        y = ((a @ a.T) @ (a @ x)) + (a + a.T).scale(rows=a.row_sums()) @ x
        first = torch.autograd.grad((y**2).sum(), (a.values, x), create_graph=True)
        return bits(*first, *torch.autograd.grad(sum((each**2).sum() for each in first), (a.values, x)))

    assert gradients() == gradients()


# torch.func


def test_func_transforms_agree_with_dense_ones(sparse, torch):
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp

    pattern = pattern_of("holes")
    v, x = tensor(pattern.nnz).detach(), tensor(5, 1).detach()
    rows, columns = torch.from_numpy(np.array(pattern.rows)), torch.from_numpy(np.array(pattern.indices))

    def ours(v, x):
        a = sparse.CSR(v, pattern)
        return ((a @ a.T) @ (a @ x)) ** 2

    def theirs(v, x):
        a = torch.zeros(5, 5, dtype=torch.float64).index_put((rows.long(), columns.long()), v)
        return ((a @ a.T) @ (a @ x)) ** 2

    given = (v, x)
    for transform in (
        lambda f: grad(lambda v: f(v, x).sum())(v),
        lambda f: vjp(f, v, x)[1](torch.ones(5, dtype=torch.float64))[0],
        lambda f: jvp(f, given, (v + 1, x - 1))[1],
        lambda f: jacrev(f)(v, x),
        lambda f: jacfwd(f)(v, x),
        lambda f: hessian(lambda v: f(v, x).sum())(v),
        lambda f: grad(lambda x: grad(lambda v: f(v, x).sum())(v).sum())(x),
    ):
        assert torch.allclose(transform(ours), transform(theirs), rtol=1e-12, atol=1e-12)


def test_vmap_over_right_hand_sides_makes_one_product(sparse, torch, monkeypatch):
    from tests.inside.diff import primitives

    a = sparse.CSR.of(poisson(4))
    x, calls = tensor((7, 16)).detach(), []
    product = primitives.matmul
    monkeypatch.setattr(primitives, "matmul", lambda *given, **options: calls.append(1) or product(*given, **options))
    found = torch.func.vmap(lambda x: a @ x)(x)
    assert len(calls) == 1
    assert torch.equal(found, (a @ x.mT).mT)
    panels = tensor((16, 2, 7)).detach()
    found = torch.func.vmap(lambda x: a @ x, in_dims=2, out_dims=2)(panels)
    assert len(calls) == 3
    assert torch.allclose(found, torch.stack([a @ panels[:, :, i] for i in range(7)], 2), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", ONE_MATRIX)
def test_vmap_over_values_goes_one_after_the_other(sparse, torch, name):
    pattern = pattern_of("full")
    values = tensor((4, pattern.nnz)).detach()
    function = lambda v: ONE_MATRIX[name](sparse, sparse.CSR(v, pattern))  # noqa: E731
    every = torch.func.vmap(function)
    alone = torch.stack([function(v) for v in values])
    assert torch.equal(every(values), alone)
    none = values[:0].requires_grad_()
    assert every(none).shape == alone[:0].shape
    assert torch.autograd.grad(every(none).sum(), none)[0].shape == none.shape


# precision


def test_fdf_adds_in_float64_forward_and_backward(sparse, torch):
    n = 4000
    rng = np.random.default_rng(5)
    p = oc.diff.Pattern([0, n], range(n), (1, n))
    v, x = (torch.from_numpy((rng.standard_normal(n) + 1000).astype(np.float32)) for _ in range(2))
    exact = float(v.double() @ x.double())
    by = {precision: float(sparse.matmul(sparse.CSR(v, p), x, precision=precision)[0]) for precision in (None, "FDF")}
    assert abs(by["FDF"] - exact) <= abs(exact) * 2.0**-24
    assert abs(by[None] - exact) > 10 * abs(by["FDF"] - exact)
    column = sparse.CSR(v, p.transposed).requires_grad_()
    y = torch.ones(1, requires_grad=True)
    product = sparse.matmul(column, y, precision="FDF")
    product.backward(x)
    assert product.dtype == y.grad.dtype == torch.float32
    assert abs(float(y.grad) - exact) <= abs(exact) * 2.0**-24
    with pytest.raises(TypeError, match="these are float64 already"):
        sparse.matmul(sparse.CSR(v.double(), p), x.double(), precision="FDF")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_types_stay(sparse, torch, dtype):
    a = sparse.CSR.of(poisson(3)).to(getattr(torch, dtype)).requires_grad_()
    x = torch.ones(9, dtype=a.dtype, requires_grad=True)
    ((a @ a + a) @ x).sum().backward()
    assert a.grad.dtype == x.grad.dtype == a.dtype


# where matrices come from


def uncoalesced(torch):
    places = torch.tensor([[0, 2, 0, 0], [2, 1, 2, 0]])
    return torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 3), check_invariants=True)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "dense"])
def test_tensors_of_torch_come_in_with_their_gradients(sparse, torch, layout):
    full = torch.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 0.0], [4.0, 0.0, 5.0]], dtype=torch.float64, requires_grad=True)
    given = full if layout == "dense" else getattr(full, f"to_sparse_{layout}" if layout != "coo" else "to_sparse")()
    a = sparse.CSR.of(given)
    assert np.array_equal(dense(a), full.detach().numpy())
    (a.values**2).sum().backward()
    assert torch.equal(full.grad, 2 * full.detach())


@pytest.mark.filterwarnings("ignore:Sparse")
def test_torch_gets_its_own_tensor_back_with_gradients(sparse, torch):
    a = sparse.CSR.of(poisson(3)).requires_grad_()
    theirs = a.to_sparse()
    assert theirs.layout == torch.sparse_csr
    assert np.array_equal(theirs.detach().to_dense().numpy(), dense(a))
    theirs.values().sum().backward()
    assert torch.equal(a.grad.values, torch.ones(a.nnz, dtype=torch.float64))


def test_unsorted_and_doubled_entries_are_said(sparse, torch):
    a = sparse.CSR.from_entries([0, 3, 3, 4], [2, 0, 2, 1], torch.tensor([1.0, 4.0, 3.0, 2.0]), (3, 3))
    wanted = [[4.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
    assert repr(a) == "CSR(3 x 3, 3 entries, float32, cpu; 1 row was sorted, 1 entry was added to another)"
    coo = scipy.sparse.coo_array(([1.0, 4.0, 3.0, 2.0], ([0, 0, 0, 2], [2, 0, 2, 1])), shape=(3, 3))
    for made in (a, sparse.CSR.of(uncoalesced(torch)), sparse.CSR.of(coo)):
        assert dense(made).tolist() == wanted
        assert "1 entry was added to another" in repr(made)


@pytest.mark.parametrize("make", ["csr_array", "csc_array", "coo_array", "csr_matrix", "bsr_array", "dia_array"])
def test_matrices_of_scipy_are_copied(sparse, make):
    given = getattr(scipy.sparse, make)(poisson(3))
    a = sparse.CSR.of(given)
    assert np.array_equal(dense(a), given.toarray())
    a.values.zero_()
    assert np.array_equal(given.toarray(), poisson(3).toarray())


def test_values_are_not_copied(sparse, torch):
    pattern = pattern_of("full")
    values = torch.ones(9)
    a = sparse.CSR(values, pattern)
    values.zero_()
    assert a.values is values
    assert torch.equal(a @ torch.ones(3), torch.zeros(3))


def test_a_result_never_shares_memory_with_what_it_is_made_of(sparse, torch):
    pattern = pattern_of("full")
    a = sparse.CSR(torch.ones(9), pattern)
    for made in (a.T.T, a.tril(3), a + sparse.CSR(torch.zeros(9), pattern), a.to_dense()):
        (made if isinstance(made, torch.Tensor) else made.values).zero_()
    assert torch.equal(a.values, torch.ones(9))


def test_prints(sparse, torch):
    a = sparse.CSR.of(poisson(3))
    assert repr(a) == "CSR(9 x 9, 33 entries, float64, cpu)"
    assert repr(a.requires_grad_()) == "CSR(9 x 9, 33 entries, float64, cpu, requires_grad)"
    assert repr(a.to(torch.float32).detach()) == "CSR(9 x 9, 33 entries, float32, cpu)"
    assert not a.clone().detach().requires_grad
    assert not a.requires_grad_(False).requires_grad


# what is refused


def refused(torch, sparse):
    """Calls that make no sense, with the error of each."""
    pattern = pattern_of("full")
    a = sparse.CSR(torch.ones(9), pattern)
    wide = sparse.CSR(torch.ones(pattern_of("wide").nnz), pattern_of("wide"))
    return {
        "length": (lambda: sparse.CSR(torch.ones(8), pattern), ValueError, r"shape \(8,\).*9 entries"),
        "dimensions": (lambda: sparse.CSR(torch.ones(9, 1), pattern), ValueError, r"shape \(9, 1\)"),
        "integers": (lambda: sparse.CSR(torch.ones(9, dtype=torch.int64), pattern), TypeError, "torch.int64.*float32 or"),
        "complex": (lambda: sparse.CSR(torch.ones(9, dtype=torch.complex64), pattern), TypeError, "torch.complex64"),
        "half": (lambda: sparse.CSR(torch.ones(9, dtype=torch.float16), pattern), TypeError, "torch.float16"),
        "array": (lambda: sparse.CSR(np.ones(9), pattern), TypeError, "values is a ndarray: give a tensor"),
        "pattern": (lambda: sparse.CSR(torch.ones(9), (3, 3)), TypeError, "pattern is a tuple"),
        "device": (lambda: sparse.CSR(torch.ones(9, device="meta"), pattern), ValueError, "lies on meta"),
        "to meta": (lambda: a.to("meta"), ValueError, "lies on meta"),
        "height": (lambda: a @ torch.ones(4), ValueError, r"shape \(4,\), but A is 3 x 3"),
        "left height": (lambda: torch.ones(2, 4) @ a, ValueError, r"shape \(2, 4\), but A in x @ A is 3 x 3"),
        "left vector": (lambda: torch.ones(4) @ a, ValueError, r"give \(3,\) or \(k, 3\)"),
        "batch": (lambda: a @ torch.ones(3, 1, 1), ValueError, "give"),
        "type of x": (lambda: a @ torch.ones(3).double(), TypeError, "A is of torch.float32, but x of torch.float64"),
        "integer x": (lambda: a @ torch.ones(3, dtype=torch.int32), TypeError, "x is of torch.int32"),
        "array x": (lambda: sparse.matmul(a, np.ones(3)), TypeError, "x is a ndarray"),
        "no matrix": (lambda: sparse.matmul(torch.ones(3, 3), torch.ones(3)), TypeError, "A is a Tensor"),
        "B": (lambda: sparse.spgemm(a, torch.ones(3, 3)), TypeError, "B is a Tensor"),
        "inner": (lambda: wide @ wide, ValueError, "6 columns.*3 rows"),
        "sum": (lambda: a + wide, ValueError, "one shape"),
        "types of a sum": (lambda: a + a.to(torch.float64), TypeError, "one type"),
        "types of a product": (lambda: a @ a.to(torch.float64), TypeError, "one type"),
        "scale": (lambda: sparse.scale(a, rows=torch.ones(4)), ValueError, r"rows has shape \(4,\)"),
        "factors of a sum": (lambda: sparse.add(a, a, alpha=torch.ones(9)), TypeError, "alpha is a Tensor: give one real number"),
        "complex factor": (lambda: sparse.add(a, a, beta=1j), TypeError, "beta is a complex"),
        "factor": (lambda: sparse.solve(a, torch.ones(3), factor="spd"), TypeError, "factor is a str"),
        "sampled": (lambda: sparse.sampled(pattern, torch.ones(4), torch.ones(3)), ValueError, r"g has shape \(4,\)"),
        "columns": (lambda: sparse.sampled(pattern, torch.ones(3, 2), torch.ones(3, 1)), ValueError, "as many columns"),
        "precision": (lambda: sparse.matmul(a, torch.ones(3), precision="DDD"), ValueError, "'DDD'"),
        "of no matrix": (lambda: sparse.CSR.of(object()), TypeError, "is no sparse matrix"),
        "of a vector": (lambda: sparse.CSR.of(torch.ones(3)), ValueError, r"shape \(3,\)"),
        "of integers": (lambda: sparse.CSR.of(torch.eye(3, dtype=torch.int64)), TypeError, "the matrix is of torch.int64"),
        "of complex": (lambda: sparse.CSR.of(np.ones((2, 2), complex)), TypeError, "the matrix is of complex128"),
        "column": (lambda: sparse.CSR.from_entries([0, 1], [3], torch.ones(1), (1, 3)), oc.errors.SparseInputError, "row 0"),
        "count": (lambda: sparse.CSR.from_entries([0, 1], [2], torch.ones(2), (1, 3)), ValueError, "1 entry was given"),
        "list": (lambda: a @ [1.0, 1.0, 1.0], TypeError, "unsupported operand"),
        "vector": (lambda: a * torch.ones(3), TypeError, "unsupported operand"),
    }


@pytest.fixture(scope="module")
def calls(torch, sparse):
    return refused(torch, sparse)


NAMES = (
    *(
        "length",
        "dimensions",
        "integers",
        "complex",
        "half",
        "array",
        "pattern",
        "device",
        "to meta",
        "height",
        "batch",
        "left height",
    ),
    *("type of x", "integer x", "array x", "no matrix", "B", "inner", "sum", "types of a sum", "types of a product", "scale"),
    *("sampled", "columns", "precision", "of no matrix", "of a vector", "of integers", "of complex", "column", "count", "list"),
    *("vector", "left vector", "factors of a sum", "complex factor", "factor"),
)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_wrong_is_refused_in_words(calls, name):
    call, error, text = calls[name]
    with pytest.raises(error, match=text):
        call()


def test_every_refusal_is_tested(calls):
    assert set(calls) == set(NAMES)


def test_values_that_change_before_backward_are_noticed(sparse, torch):
    a = sparse.CSR.of(poisson(3)).requires_grad_()
    x = tensor(9)
    y = a @ x
    with torch.no_grad():
        a.values.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", ["torch", "torch_csr", "torch_solves"])
def test_examples_run(name):
    found = doctest.testmod(import_module(f"ooc_chol.diff.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import ooc_chol as oc
oc.diff.Pattern([0], [], (0, 0))
for statement in ("import ooc_chol.diff.torch", "oc.diff.torch.CSR"):
    try:
        exec(statement)
    except ImportError as error:
        assert "needs PyTorch" in str(error) and "[torch]" in str(error), error
    else:
        raise AssertionError("imported without torch")
"""


@pytest.mark.usefixtures("processes")
def test_without_torch_the_extra_is_named():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
