"""Operations for JAX: values beside dense ones, derivatives of first and second order both ways, jit, vmap, and bad input."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from ooc_chol.diff import Pattern
from tests import tolerances
from tests.diff_jax_problems import OPERATIONS, arguments, lengths, poisson, random_matrix, solvable

pytestmark = [pytest.mark.host, pytest.mark.package("jax")]


@pytest.fixture(autouse=True)
def wide():
    """JAX with 64-bit types, which importing does not turn on."""
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture
def sparse():
    import ooc_chol.diff.jax

    return ooc_chol.diff.jax


def close(found, expected, bound=1e-12):
    """Whether two results are equal up to some roundings of float64, relative to the largest number."""
    import jax

    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return all(np.abs(np.asarray(f) - np.asarray(e)).max(initial=0) <= bound * (1 + np.abs(e).max(initial=0)) for f, e in pairs)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.commit
def test_derivatives_of_first_and_second_order_are_right_both_ways(sparse, name):
    from jax.test_util import check_grads

    function, names = OPERATIONS[name]
    check_grads(partial(function, sparse), arguments(sparse, names), order=2, modes=("fwd", "rev"), atol=1e-6)


@pytest.mark.parametrize("name", OPERATIONS)
def test_jit_and_grad_of_jit_give_what_is_computed_without(sparse, name):
    import jax

    function, names = OPERATIONS[name]
    given = arguments(sparse, names)

    def loss(*given):
        found = function(sparse, *given)
        return (found**2).sum(), found

    derivative = jax.grad(loss, tuple(range(len(given))), has_aux=True)
    first, found = jax.jit(derivative)(*given)
    assert close((first, found), derivative(*given))
    for gradient, argument in zip(first, given, strict=True):
        assert type(gradient) is type(argument) or not isinstance(argument, sparse.CSR)
        if isinstance(argument, sparse.CSR):
            assert gradient.pattern is argument.pattern and gradient.values.shape == (argument.nnz,)


def test_values_are_those_of_dense_matrices(sparse):
    A, B, S, x, g = random_matrix(), random_matrix(5, 4, seed=2), solvable(), np.arange(5.0), np.arange(7.0)
    a, s = sparse.CSR.of(A), sparse.CSR.of(S)
    dense = A.toarray()
    pairs = [
        (a @ x, dense @ x),
        (g @ a, g @ dense),
        ((a @ sparse.CSR.of(B)).to_dense(), dense @ B.toarray()),
        ((a.T.T - a * 3).to_dense(), -2 * dense),
        (sparse.scale(a, rows=g, columns=x).to_dense(), np.diag(g) @ dense @ np.diag(x)),
        (sparse.sampled(a.pattern, g, x).to_dense(), np.outer(g, x) * (dense != 0)),
        ((-a).tril(-1).to_dense(), np.tril(-dense, -1)),
        (s.diagonal(), S.toarray().diagonal()),
        (sparse.solve(s, np.arange(6.0)), np.linalg.solve(S.toarray(), np.arange(6.0))),
        (sparse.triangular_solve(s.tril(), np.arange(6.0)), np.linalg.solve(np.tril(S.toarray()), np.arange(6.0))),
        (sparse.triangular_solve(s.triu(), np.arange(6.0), lower=False), np.linalg.solve(np.triu(S.toarray()), np.arange(6.0))),
    ]
    for found, expected in pairs:
        assert close(found, expected)


@pytest.mark.parametrize(
    "matrix",
    [
        scipy.sparse.csr_array((4, 3)),
        scipy.sparse.csr_array((0, 3)),
        scipy.sparse.csr_array((3, 0)),
        scipy.sparse.csr_array([[2.0]]),
        scipy.sparse.csr_array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
    ],
    ids=["no entries", "no rows", "no columns", "1 x 1", "an empty row"],
)
def test_small_and_empty_patterns(sparse, matrix):
    import jax

    A, dense = sparse.CSR.of(matrix), matrix.toarray()
    x, X = np.arange(1.0, 1.0 + dense.shape[1]), np.ones((dense.shape[1], 2))
    assert close([A @ x, A @ X, A.T.to_dense(), A.row_sums()], [dense @ x, dense @ X, dense.T, dense.sum(axis=1)])
    assert close((A @ A.T).to_dense(), dense @ dense.T) and close((A + A).to_dense(), 2 * dense)
    gradient = jax.grad(lambda A: (A @ X).sum() + A.diagonal().sum())(A)
    assert gradient.values.shape == (matrix.nnz,)


def test_unsorted_rows_and_duplicates_are_sorted_and_merged_and_that_is_said(sparse):
    found = Pattern.canonical([0, 3, 4], [2, 0, 2, 1], (2, 3))
    A = sparse.CSR(found.values(np.array([1.0, 2.0, 3.0, 4.0])), found.pattern)
    assert (
        close(A.to_dense(), np.array([[2.0, 0.0, 4.0], [0.0, 4.0, 0.0]])) and "sorted" in repr(found) and "merged" in repr(found)
    )
    with pytest.raises(oc.errors.SparseInputError, match="row 0"):
        Pattern([0, 3, 4], [2, 0, 2, 1], (2, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_every_length_are_summed_within_the_bound(sparse, dtype):
    pattern = lengths([0, 1, 15, 16, 17, 31, 33, 500, 0, 1000], 1000)
    rng = np.random.default_rng(1)
    A = sparse.CSR(rng.standard_normal(pattern.nnz).astype(dtype), pattern)
    x = rng.standard_normal((1000, 2)).astype(dtype)
    whole = np.zeros(pattern.shape)
    whole[pattern.rows, pattern.indices] = A.values
    for row, found in enumerate(np.asarray(A @ x)):
        entries = np.flatnonzero(whole[row])
        bound = tolerances.product_bound(whole[row, entries], x[entries].astype(float), dtype)
        assert (np.abs(found - whole[row] @ x.astype(float)) <= bound).all()


def test_what_stands_in_another_row_does_not_come_in(sparse):
    pattern = lengths([40, 17, 20], 50)
    values = np.ones(pattern.nnz)
    values[40 + 16] = np.inf  # the last of the second row, which is padded
    found = np.asarray(sparse.CSR(values, pattern) @ np.ones(50))
    assert found[0] == 40 and np.isinf(found[1]) and found[2] == 20


def test_no_scatter_is_compiled_into_values_or_derivatives_and_bits_repeat(sparse):
    import jax

    pattern = lengths([3, 0, 60, 17, 5, 5], 60)
    A = sparse.CSR(np.random.default_rng(0).standard_normal(pattern.nnz).astype(np.float32), pattern)
    x = np.random.default_rng(1).standard_normal(60).astype(np.float32)

    def loss(A, x):
        scaled = sparse.scale(A, columns=x)
        return ((scaled @ A.T + A @ A.T).tril().row_sums() ** 2).sum() + ((A @ x) ** 3).sum() + A.diagonal().sum()

    function = jax.jit(jax.grad(lambda A, x: sum((g.values**2).sum() for g in jax.grad(loss, (0,))(A, x)), (0, 1)))
    compiled = function.lower(A, x).compile()
    operations = set(re.findall(r"= \S+ ([a-z-]+)\(", compiled.as_text()))
    assert "gather" in operations and "scatter" not in operations
    first, again = compiled(A, x), compiled(A, x)
    assert all(
        (np.asarray(p) == np.asarray(q)).all() for p, q in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True)
    )


@pytest.mark.parametrize("mapped", [(None, 0), (0, None), (0, 0)], ids=["vectors", "values", "both"])
@pytest.mark.parametrize("name", ["matmul", "solve", "triangular"])
def test_vmap_is_a_loop_and_differentiates(sparse, name, mapped):
    import jax
    import jax.numpy as jnp
    from jax.test_util import check_grads

    A, rng = sparse.CSR.of(solvable()).tril(), np.random.default_rng(0)
    operation = {"matmul": sparse.matmul, "solve": sparse.solve, "triangular": sparse.triangular_solve}[name]

    def function(values, b):
        return operation(sparse.CSR(values, A.pattern), b)

    values = jnp.stack([A.values, 2 * A.values, A.values + 1]) if mapped[0] == 0 else A.values
    b = jnp.asarray(rng.standard_normal((3, 6) if mapped[1] == 0 else 6))
    every = jax.vmap(function, mapped)
    alone = [function(values[i] if mapped[0] == 0 else values, b[i] if mapped[1] == 0 else b) for i in range(3)]
    assert close(every(values, b), np.stack(alone)) and close(jax.jit(every)(values, b), np.stack(alone))
    if mapped != (0, 0):
        check_grads(every, (values, b), order=2, modes=("rev",), atol=1e-6)
    twice = jax.vmap(every, mapped)(
        *(jnp.stack([a, 2 * a]) if axis == 0 else a for a, axis in zip((values, b), mapped, strict=True))
    )
    assert twice.shape == (2, 3, 6) and close(twice[0], np.stack(alone))


@pytest.mark.parametrize("batch", [(2, 3), (0, 3), (2, 0)])
@pytest.mark.parametrize("n", [0, 2])
def test_vmap_within_vmap_of_arrays_without_numbers(sparse, n, batch):
    import jax
    import jax.numpy as jnp

    def function(v, x):
        A = sparse.CSR(v, Pattern(np.arange(n + 1), np.arange(n), (n, n)))
        return sparse.logdet(A), sparse.solve(A, x), A @ x, (A @ A).values

    found = jax.vmap(jax.vmap(function))(jnp.ones((*batch, n)), jnp.ones((*batch, n, 0)))
    assert [each.shape for each in found] == [batch, (*batch, n, 0), (*batch, n, 0), (*batch, n)]


@pytest.mark.parametrize("name", ["logdet", "selected_inverse", "cholesky", "sample"])
def test_vmap_over_values_of_positive_definite_matrices(sparse, name):
    import jax
    import jax.numpy as jnp
    from jax.test_util import check_grads

    S = sparse.CSR.of(solvable())
    pattern = (S @ S.T).pattern

    def function(values):
        A = sparse.CSR(values, pattern)
        found = getattr(sparse, name)(*((A, jnp.arange(6.0)) if name == "sample" else (A,)))
        return found if isinstance(found, jax.Array) else found.values if name == "selected_inverse" else found[0].values

    def of_triangles(values):
        A = sparse.CSR(values, pattern)
        return function((A + A.T).values / 2)

    values = (S @ S.T).values
    batch = jnp.stack([values, 2 * values, values * 3])
    alone = np.stack([function(each) for each in batch])
    assert close(jax.vmap(function)(batch), alone) and close(jax.jit(jax.vmap(function))(batch), alone)
    assert close(jax.vmap(jax.vmap(function))(jnp.stack([batch, batch]))[1], alone)
    check_grads(jax.vmap(of_triangles), (batch,), order=2, modes=("fwd", "rev"), atol=1e-6)


def test_a_matrix_is_a_pytree_whose_pattern_is_static(sparse):
    import jax

    A = sparse.CSR.of(random_matrix())
    traces = []

    @jax.jit
    def double(A):
        traces.append(A.shape)
        return jax.tree.map(lambda values: 2 * values, A)

    other = sparse.CSR(np.asarray(A.values) + 1, Pattern(A.pattern.indptr, A.pattern.indices, A.shape))
    assert close(double(A).values, 2 * A.values) and close(double(other).values, 2 * other.values)
    assert len(traces) == 1 and double(A).pattern is A.pattern
    double(A.T)
    assert len(traces) == 2 and repr(A) == "CSR(7 x 5, 10 entries, float64)"


def test_gradient_of_a_large_product_needs_no_dense_matrix(sparse):
    import jax

    n = 200_000
    path = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    A, x = sparse.CSR.of(path), np.ones(n)
    compiled = jax.jit(jax.grad(lambda A, x: ((A @ x) ** 2).sum(), (0, 1))).lower(A, x).compile()
    gradient, _ = compiled(A, x)
    assert gradient.values.shape == (3 * n - 2,) and compiled.memory_analysis().temp_size_in_bytes < 50_000_000


def test_wide_sums_of_float32_are_rounded_once_in_derivatives_too(sparse):
    import jax

    n = 5000
    pattern = Pattern([0, n], np.arange(n), (1, n))
    values = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    x = np.random.default_rng(1).standard_normal((n, 1)).astype(np.float32)
    exact = float(values.astype(float) @ x[:, 0].astype(float))
    found = sparse.matmul(sparse.CSR(values, pattern), x, precision="FDF")
    assert found.dtype == np.float32 and float(found[0, 0]) == np.float32(exact)
    column = sparse.CSR(values, pattern).T
    product, pull = jax.vjp(lambda y: sparse.matmul(column, y, precision="FDF"), x[:1])
    (back,) = pull(x)
    assert product.dtype == np.float32 and float(back[0, 0]) == np.float32(exact)


def test_types_that_are_off_are_refused_and_importing_turns_nothing_on(sparse):
    import jax

    A = sparse.CSR.of(random_matrix().astype(np.float32))
    with jax.enable_x64(False):
        with pytest.raises(TypeError, match=r"values is of float64, but JAX's 64-bit types are off.*jax_enable_x64"):
            sparse.CSR.of(random_matrix())
        with pytest.raises(TypeError, match=r"precision='FDF' adds in float64"):
            sparse.matmul(A, np.ones(5, np.float32), precision="FDF")
        assert (A @ np.ones(5, np.float32)).dtype == np.float32


UNCHANGED = """
import jax
before = dict(jax.config.values)
import ooc_chol.diff.jax
assert dict(jax.config.values) == before
"""
ABSENT = """
import sys
sys.modules["jax"] = None
import ooc_chol.diff
try:
    import ooc_chol.diff.jax
except ImportError as error:
    assert "needs JAX" in str(error) and "'.[jax]'" in str(error), error
else:
    raise AssertionError("imported")
"""


@pytest.mark.parametrize("program", [UNCHANGED, ABSENT], ids=["configuration", "without JAX"])
@pytest.mark.usefixtures("processes")
def test_importing(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


BAD = {
    "length of values": (lambda m, A, S: m.CSR(np.ones(3), A.pattern), ValueError, "10 entries"),
    "whole numbers": (lambda m, A, S: m.CSR(np.ones(10, int), A.pattern), TypeError, "int64.*float32 or float64"),
    "complex": (lambda m, A, S: m.CSR(np.ones(10, complex), A.pattern), TypeError, "complex128"),
    "no pattern": (lambda m, A, S: m.CSR(np.ones(10), A.shape), TypeError, "Pattern"),
    "a list": (lambda m, A, S: A @ [1.0] * 5, TypeError, "x is a list"),
    "height": (lambda m, A, S: A @ np.ones(6), ValueError, r"x has shape \(6,\): give \(5,\)"),
    "type": (lambda m, A, S: A @ np.ones(5, np.float32), TypeError, "A is of float64, but x of float32"),
    "shapes of a product": (lambda m, A, S: A @ S, ValueError, "columns"),
    "shapes of a sum": (lambda m, A, S: A + S, ValueError, "one shape"),
    "columns": (lambda m, A, S: m.sampled(A.pattern, np.ones((7, 2)), np.ones((5, 3))), ValueError, "2 columns, but x 3"),
    "precision": (lambda m, A, S: m.matmul(A, np.ones(5), precision="FFF"), ValueError, "FFF"),
    "precision of float64": (lambda m, A, S: m.matmul(A, np.ones(5), precision="FDF"), TypeError, "float64"),
    "vector of a scale": (lambda m, A, S: m.scale(A, rows=np.ones(5)), ValueError, r"rows has shape \(5,\): give \(7,\)"),
    "factor": (lambda m, A, S: A * np.ones(10), TypeError, "scale"),
    "no matrix": (lambda m, A, S: m.solve(np.eye(2), np.ones(2)), TypeError, "CSR"),
    "not square": (lambda m, A, S: m.solve(A, np.ones(7)), ValueError, "7 x 5"),
    "height of b": (lambda m, A, S: m.solve(S, np.ones(5)), ValueError, r"b has shape \(5,\)"),
    "method": (lambda m, A, S: m.solve(S, np.ones(6), method="cudss"), ValueError, "cudss.*superlu"),
    "assume": (lambda m, A, S: m.solve(S, np.ones(6), assume="general"), ValueError, "symmetric"),
    "not symmetric": (lambda m, A, S: m.solve(S, np.ones(6), assume="symmetric"), ValueError, "symmetric"),
    "no triangle": (lambda m, A, S: m.triangular_solve(S, np.ones(6)), ValueError, "tril"),
    "log-determinant of what is not symmetric": (lambda m, A, S: m.logdet(S), ValueError, "not symmetric"),
    "not definite": (lambda m, A, S: m.selected_inverse(-(S @ S.T)), oc.errors.NotPositiveDefiniteError, "pivot"),
    "no samples": (lambda m, A, S: m.sample(S, np.ones(5)), ValueError, "z has shape"),
    "no diagonal": (lambda m, A, S: m.triangular_solve(S.tril(-1), np.ones(6)), ValueError, "row 0"),
    "eigenvalues": (lambda m, A, S: m.eigsh(S, 7), ValueError, "1 to 6"),
    "which": (lambda m, A, S: m.eigsh(S, 1, which="SM"), ValueError, "'SM'"),
    "eigenvalues of what is not symmetric": (lambda m, A, S: m.eigsh(S, 2), ValueError, "symmetric"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_what_and_where(sparse, case):
    function, error, text = BAD[case]
    with pytest.raises(error, match=text):
        function(sparse, sparse.CSR.of(random_matrix()), sparse.CSR.of(solvable()))


def test_a_matrix_that_needs_a_row_swap_is_solved(sparse):
    swap = np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 3.0], [4.0, 1.0, 0.0]])
    b = np.array([1.0, 2.0, 3.0])
    found = sparse.solve(sparse.CSR.of(scipy.sparse.csr_array(swap)), b)
    assert np.abs(np.asarray(found) - np.linalg.solve(swap, b)).max() <= 1e-12


def test_a_singular_matrix_names_its_column_within_jit_too(sparse, caplog):
    import jax

    A = sparse.CSR(np.array([1.0, 1.0, 0.0]), Pattern([0, 1, 2, 3], [0, 1, 2], (3, 3)))
    with pytest.raises(oc.errors.SingularMatrixError, match="column 2") as caught:
        sparse.solve(A, np.ones(3))
    assert caught.value.column == 2
    with pytest.raises(oc.errors.SingularMatrixError, match=r"\(2, 2\) is 0") as caught:
        sparse.triangular_solve(A, np.ones(3))
    assert caught.value.column == 2
    with pytest.raises(jax.errors.JaxRuntimeError, match="column 2"):
        jax.jit(sparse.solve)(A, np.ones(3)).block_until_ready()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_derivatives_and_equal_values_use_one_factor(sparse, compiled):
    import jax

    from tests.inside.diff import CACHE

    A, b = sparse.CSR.of(poisson(8) * (1.5 if compiled else 1.25)), np.ones((64, 3))

    def loss(A, b):
        return (sparse.solve(A, b) ** 2).sum()

    function = jax.grad(lambda A, b: (jax.grad(loss)(A, b).values ** 2).sum())
    function = jax.jit(function) if compiled else function
    before = CACHE.factored
    jax.block_until_ready(function(A, b))
    jax.block_until_ready(function(sparse.CSR(np.array(A.values), A.pattern), b + 1))
    every = jax.vmap(lambda b: sparse.solve(A, b))(b.T)
    assert CACHE.factored == before + 1 and every.shape == (3, 64)
    jax.block_until_ready(function(A * 2, b))
    assert CACHE.factored == before + 2


@pytest.mark.parametrize("which", ["LA", "SA", "LM"])
def test_eigenvalues_and_their_derivatives(sparse, which):
    import jax
    from jax.test_util import check_grads

    diagonal = scipy.sparse.diags_array(np.array([0.3, -2.0, 1.1, 0.7, -3.5, 2.2, 4.1, 0.1]))
    E = sparse.CSR.of(
        scipy.sparse.csr_array(scipy.sparse.diags_array([-1.0, 1.0, -1.0], offsets=[-1, 0, 1], shape=(8, 8)) + diagonal)
    )

    def function(values):
        half = sparse.CSR(values, E.pattern).tril()
        return sparse.eigsh(half + half.T, 2, which=which)

    half = np.asarray(E.tril().to_dense())
    every = np.linalg.eigvalsh(half + half.T)
    kept = {"LA": every[-2:], "SA": every[:2], "LM": np.sort(every[np.argsort(np.abs(every))[-2:]])}[which]
    assert close(function(E.values), kept, 1e-9) and close(jax.jit(function)(E.values), kept, 1e-9)
    check_grads(
        function, (E.values,), order=2 if which == "LA" else 1, modes=("fwd", "rev") if which == "SA" else ("rev",), rtol=1e-4
    )
    assert close(jax.jit(jax.grad(lambda v: function(v).sum()))(E.values), jax.grad(lambda v: function(v).sum())(E.values), 1e-9)


def test_second_derivatives_of_eigenvalues_are_those_of_the_symmetric_part(sparse):
    import jax
    import jax.numpy as jnp

    E = sparse.CSR.of(scipy.sparse.csr_array(np.array([[2.0, 0.7, 0.0], [0.7, 0.5, -0.3], [0.0, -0.3, 3.0]])))
    direction = np.random.default_rng(3).standard_normal(E.nnz)

    def ours(v):
        return (sparse.eigsh(sparse.CSR(v, E.pattern), 1, which="LA") ** 2).sum()

    def theirs(v):
        full = jnp.zeros(E.shape).at[E.pattern.rows, E.pattern.indices].set(v)
        return (jnp.linalg.eigvalsh((full + full.T) / 2)[-1:] ** 2).sum()

    def second(function):
        return jax.grad(lambda v: jax.grad(function)(v) @ direction)(E.values)

    assert close(second(ours), second(theirs), 1e-9)


def test_eigenvalues_that_are_not_simple_have_no_derivatives(sparse):
    import jax

    E = sparse.CSR.of(poisson(4))  # eigenvalues of a square: symmetric in its two directions
    assert sparse.eigsh(E, 2, which="LA").shape == (2,)
    assert jax.grad(lambda E: sparse.eigsh(E, 1, which="LA")[0])(E).values.shape == (E.nnz,)
    with pytest.raises(ValueError, match="have no derivatives"):
        jax.grad(lambda E: sparse.eigsh(E, 2, which="LA").sum())(E)


@pytest.mark.parametrize("degree", [2, 40])
def test_vectors_without_columns(sparse, degree):
    import jax

    pattern = scipy.sparse.random_array((60, 60), density=degree / 60, rng=1) + scipy.sparse.eye_array(60) * 60
    a, nothing = sparse.CSR.of(pattern.tocsr()), np.zeros((60, 0))
    for function in (sparse.matmul, sparse.solve, lambda a, x: jax.jit(sparse.matmul)(a, x)):
        assert function(a, nothing).shape == (60, 0)
        assert jax.grad(lambda x, f=function: f(a, x).sum())(nothing).shape == (60, 0)
    assert not np.asarray(sparse.sampled(a.pattern, nothing, nothing).values).any()


@pytest.mark.parametrize("kind", ["BCOO", "BCSR"])
def test_gradients_reach_the_data_of_jaxs_own_matrices(kind):
    """Entries of one place are added, in any order, and those that fill arrays up beyond the matrix count for nothing."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import sparse

    from ooc_chol.diff.jax import CSR

    data = jnp.asarray([2.0, 5.0, 7.0, 11.0])
    if kind == "BCOO":
        indices = jnp.asarray([[2, 1], [0, 2], [2, 1], [3, 3]])  # the last is beyond 3 x 3

        def made(x):
            return sparse.BCOO((x, indices), shape=(3, 3))

        expected = np.array([[0, 0, 5.0], [0, 0, 0], [0, 9.0, 0]])
        weights = [8.0, 3.0, 8.0, 0.0]
    else:
        columns, starts = jnp.asarray([2, 0, 1, 1]), jnp.asarray([0, 2, 2, 4])

        def made(x):
            return sparse.BCSR((x, columns, starts), shape=(3, 3))

        expected = np.array([[5.0, 0, 2.0], [0, 0, 0], [0, 18.0, 0]])
        weights = [3.0, 1.0, 8.0, 8.0]
    np.testing.assert_array_equal(CSR.of(made(data)).to_dense(), expected)
    places = jnp.arange(1.0, 10.0).reshape(3, 3)
    gradient = jax.grad(lambda x: (CSR.of(made(x)).to_dense() * places).sum())(data)
    np.testing.assert_array_equal(gradient, weights)
