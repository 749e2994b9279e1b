"""Masked arrays: no function takes what lies beneath a mask for a value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.host.window_blocks import dense, made_blocks, run_of
from tests.masked import Door, array_parameters, check_real, check_refused, masked
from tests.public import public_names

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N = 12
RNG = np.random.default_rng(0)
A = np.exp(-np.abs(np.subtract.outer(np.arange(N), np.arange(N)))) + np.eye(N)
L, TILED = oc.cholesky(A), oc.cholesky(A, tile_size=5)
BATCH = oc.cholesky(np.stack([A, 2.0 * A]))
B, C, BOTH = RNG.normal(size=N), RNG.normal(size=(N, 3)), RNG.normal(size=(2, N))
PATH = sp.csr_array(np.diag(np.ones(N - 1), 1) + np.diag(np.ones(N - 1), -1))
HOST = {"devices": "host:0"}
FUNCTION = oc.from_function(N, lambda rows, cols, out, stream: np.copyto(out, A[rows.start : rows.stop, cols.start : cols.stop]))
FOURIER = oc.GraphFourier(PATH, devices="host:0")
PATTERN, VALUES = oc.diff.Pattern.of(PATH)
SYMMETRIC, ENTRIES = oc.diff.Pattern.of(sp.csr_array(A))
LOWER, TRIANGLE = oc.diff.Pattern.of(sp.csr_array(np.tril(A)))


def updated(v, name="update"):
    with oc.cholesky(A) as factor:
        getattr(factor, name)(v)
        return factor.diagonal()


def applied(x, name="apply"):
    with oc.multiplier(PATH, **HOST) as multiplier:
        return getattr(multiplier, name)(x)


def inverse_sums(vectors):
    return L.inverse_traces([FUNCTION], vectors).forms


def sums(vectors):
    return L.half_solve_sums(FUNCTION, range(2), vectors).products


def operator(product):
    return LinearOperator((N, N), matvec=product, matmat=product, dtype=np.float64)


def largest(a, **options):
    return oc.eigsh(a, 2, which="LA", **HOST, **options).eigenvalues


def lobpcg(**options):
    return oc.eigsh(oc.laplacian(PATH), 2, which="SA", method="lobpcg", tol=1e-3, **HOST, **options).eigenvalues


def by_user(product, **options):
    return oc.eigsh(operator(product), 2, which="LA", **options).eigenvalues


#: Every argument that takes an array.
DOORS = {
    "cholesky.A": Door(lambda a: oc.cholesky(a, lower=True), A),
    "cholesky.A of tiles": Door(lambda a: oc.cholesky(a, tile_size=5, lower=True), A),
    "cholesky.A of a batch": Door(lambda a: oc.cholesky(a, lower=True), np.stack([A, A])),
    "solve.A": Door(lambda a: oc.solve(a, B, lower=True), A),
    "solve.b": Door(lambda b: oc.solve(A, b), B),
    "logdet.A": Door(lambda a: oc.logdet(a, lower=True), A),
    "symm.b": Door(lambda b: oc.symm(FUNCTION, b, **HOST), C),
    "CholeskyFactor.solve.b": Door(L.solve, B),
    "CholeskyFactor.solve.b of tiles": Door(TILED.solve, C),
    "CholeskyFactor.solve.b refined": Door(lambda b: L.solve(b, refine=True), B),
    "CholeskyFactor.solve.a": Door(lambda a: L.solve(B, refine=True, a=a), A),
    "CholeskyFactor.certify.b": Door(lambda b: L.certify(b).solution.x, B),
    "CholeskyFactor.quadratic.b": Door(L.quadratic, B),
    "CholeskyFactor.half_solve.b": Door(L.half_solve, B),
    "CholeskyFactor.half_solves.b": Door(lambda b: L.half_solves(b, C)[0], C),
    "CholeskyFactor.half_solves.c": Door(lambda c: L.half_solves(C, c)[1], C),
    "CholeskyFactor.half_solve_sums.vectors": Door(sums, C),
    "CholeskyFactor.inverse_traces.vectors": Door(inverse_sums, C),
    "CholeskyFactor.solve_triangular.b": Door(L.solve_triangular, B),
    "CholeskyFactor.matmul.z": Door(L.matmul, B),
    "CholeskyFactor.matvec.x": Door(L.matvec, B),
    "CholeskyFactor.matmat.x": Door(L.matmat, C),
    "CholeskyFactor.rmatvec.x": Door(L.rmatvec, B),
    "CholeskyFactor.rmatmat.x": Door(L.rmatmat, C),
    "CholeskyFactor @": Door(lambda x: L @ x, C),
    "@ CholeskyFactor": Door(L.__rmatmul__, C.T.copy()),
    "toolbox.TransposedFactor.matvec.x": Door(L.T.matvec, B),
    "toolbox.TransposedFactor.matmat.x": Door(L.T.matmat, C),
    "toolbox.TransposedFactor.rmatvec.x": Door(L.T.rmatvec, B),
    "toolbox.TransposedFactor.rmatmat.x": Door(L.T.rmatmat, C),
    "toolbox.TransposedFactor @": Door(lambda x: L.T @ x, C),
    "@ toolbox.TransposedFactor": Door(L.T.__rmatmul__, C.T.copy()),
    "CholeskyFactor.residual.a": Door(lambda a: TILED.residual(a), A),
    "CholeskyFactor.sample.mean": Door(lambda mean: L.sample(2, rng=0, mean=mean), B),
    "CholeskyFactor.update.v": Door(updated, 0.1 * C),
    "CholeskyFactor.downdate.v": Door(lambda v: updated(v, "downdate"), 0.1 * C),
    "BatchFactor.solve.b": Door(BATCH.solve, BOTH),
    "BatchFactor.half_solve.b": Door(BATCH.half_solve, BOTH),
    "BatchFactor.matmul.z": Door(BATCH.matmul, BOTH),
    "multiply.A": Door(lambda a: oc.multiply(sp.csr_array(PATH), a, **HOST), C),
    "multiply.X": Door(lambda x: oc.multiply(PATH, x, **HOST), C),
    "Multiplier.apply.x": Door(applied, B),
    "Multiplier.__call__.x": Door(lambda x: applied(x, "__call__"), B),
    "Operator.left": Door(lambda d: oc.multiply(oc.Operator(oc.block_csr(PATH), left=d), B, **HOST), 1.0 + B**2),
    "Operator.right": Door(lambda d: oc.multiply(oc.Operator(oc.block_csr(PATH), right=d), B, **HOST), 1.0 + B**2),
    "Operator.shift": Door(lambda d: oc.multiply(oc.Operator(oc.block_csr(PATH), shift=d), B, **HOST), 1.0 + B**2),
    "eigsh.A": Door(lambda a: largest(a), A),
    "eigsh.A of a product": Door(lambda d: by_user(lambda x: (d * x.T).T), np.arange(1.0, N + 1), False),
    "eigsh.v0": Door(lambda v: largest(PATH, v0=v), np.abs(B) + 1.0),
    "eigsh.null": Door(lambda v: lobpcg(null=v), np.ones(N)),
    "eigsh.preconditioner": Door(lambda m: lobpcg(preconditioner=m), np.ones(N)),
    "eigsh.preconditioner as a matrix": Door(lambda m: lobpcg(preconditioner=m), np.eye(N)),
    "svds.A": Door(lambda a: oc.svds(a, 2, **HOST).s, A + np.triu(A)),
    "plan_multiply.X": Door(lambda x: oc.plan_multiply(PATH, x, **HOST).columns, B),
    "plan_eigsh.v0": Door(lambda v: oc.plan_eigsh(PATH, 2, v0=v, **HOST).ncv, np.abs(B) + 1.0),
    "plan_eigsh.null": Door(lambda v: oc.plan_eigsh(PATH, 2, which="SA", null=v, **HOST).ncv, np.ones(N)),
    "plan_svds.v0": Door(lambda v: oc.plan_svds(PATH[:, :8], 2, v0=v, **HOST).ncv, np.abs(B[:8]) + 1.0),
    "svds.v0": Door(lambda v: oc.svds(PATH[:, :8], 2, v0=v, **HOST).s, np.abs(B[:8]) + 1.0),
    "GraphFourier.forward.X": Door(FOURIER.forward, C),
    "GraphFourier.inverse.Xh": Door(FOURIER.inverse, C),
    "impute.mask": Door(lambda m: oc.impute(RNG.normal(size=(N, 2, 2)), m, FOURIER, **HOST).tensor.shape, np.arange(N) % 3 > 0),
    "diff.Pattern.indptr": Door(lambda p: oc.diff.Pattern(p, PATH.indices, PATH.shape).indptr, PATH.indptr),
    "diff.Pattern.indices": Door(lambda c: oc.diff.Pattern(PATH.indptr, c, PATH.shape).indices, PATH.indices),
    "diff.Pattern.canonical.indptr": Door(
        lambda p: oc.diff.Pattern.canonical(p, PATH.indices, PATH.shape).pattern.indptr, PATH.indptr
    ),
    "diff.Pattern.canonical.indices": Door(
        lambda c: oc.diff.Pattern.canonical(PATH.indptr, c, PATH.shape).pattern.indices, PATH.indices
    ),
    "diff.matmul.v": Door(lambda v: oc.diff.matmul(PATTERN, v, C), VALUES, False),
    "diff.matmul.x": Door(lambda x: oc.diff.matmul(PATTERN, VALUES, x), C, False),
    "diff.sampled.g": Door(lambda g: oc.diff.sampled(PATTERN, g, B), B, False),
    "diff.sampled.x": Door(lambda x: oc.diff.sampled(PATTERN, B, x), B, False),
    "diff.spgemm.a": Door(lambda a: oc.diff.spgemm(PATTERN, a, PATTERN, VALUES)[1], VALUES, False),
    "diff.spgemm.b": Door(lambda b: oc.diff.spgemm(PATTERN, VALUES, PATTERN, b)[1], VALUES, False),
    "diff.add.a": Door(lambda a: oc.diff.add(PATTERN, a, PATTERN, VALUES)[1], VALUES, False),
    "diff.scale.rows": Door(lambda r: oc.diff.scale(PATTERN, VALUES, rows=r), B, False),
    "diff.scale.columns": Door(lambda c: oc.diff.scale(PATTERN, VALUES, columns=c), B, False),
    "diff.diagonal.a": Door(lambda a: oc.diff.diagonal(PATTERN, a), VALUES, False),
    "diff.row_sums.a": Door(lambda a: oc.diff.row_sums(PATTERN, a), VALUES, False),
    "diff.transpose.a": Door(lambda a: oc.diff.transpose(PATTERN, a)[1], VALUES, False),
    "diff.tril.a": Door(lambda a: oc.diff.tril(PATTERN, a)[1], VALUES, False),
    "diff.permute.v": Door(lambda v: oc.diff.permute(v, np.arange(N)[::-1].copy()), B, False),
    "diff.permute.order": Door(lambda order: oc.diff.permute(B, order), np.arange(N)[::-1].copy(), False),
    "diff.solve.values": Door(lambda v: oc.diff.solve(SYMMETRIC, v, B), ENTRIES, False),
    "diff.solve.b": Door(lambda b: oc.diff.solve(SYMMETRIC, ENTRIES, b), B, False),
    "diff.factorize.values": Door(lambda v: oc.diff.factorize(SYMMETRIC, v).solve(B), ENTRIES, False),
    "diff.triangular_solve.values": Door(lambda v: oc.diff.triangular_solve(LOWER, v, B), TRIANGLE, False),
    "diff.triangular_solve.b": Door(
        lambda b: oc.diff.triangular_solve(LOWER, TRIANGLE, b), B, False
    ),
    "diff.logdet.values": Door(lambda v: oc.diff.logdet(SYMMETRIC, v), ENTRIES, False),
    "diff.selected_inverse.values": Door(lambda v: oc.diff.selected_inverse(SYMMETRIC, v), ENTRIES, False),
    "diff.cholesky.values": Door(lambda v: oc.diff.cholesky(SYMMETRIC, v)[1], ENTRIES, False),
    "diff.sample.values": Door(lambda v: oc.diff.sample(SYMMETRIC, v, B), ENTRIES, False),
    "diff.sample.z": Door(lambda z: oc.diff.sample(SYMMETRIC, ENTRIES, z), B, False),
    "diff.eigsh.values": Door(lambda v: oc.diff.eigsh(SYMMETRIC, v, 2, which="LA", **HOST), ENTRIES, False),
    "diff.bilinear.a": Door(lambda a: oc.diff.bilinear(np.array([0, 2]), np.array([0, 1]), np.array([0, 1]), a, B), B, False),
}  # fmt: skip
#: Arrays that no caller gives: they are what a function has found.
FOUND = {"HalfSolveSums", "InverseTraces"}


@pytest.mark.parametrize("name", DOORS)
def test_no_door_takes_what_lies_beneath_a_mask(name, tmp_path):
    check_refused(DOORS[name], tmp_path)


#: What may be complex.
COMPLEX = {"eigsh.A", "cholesky.A", "cholesky.A of tiles", "solve.A", "logdet.A"}


@pytest.mark.parametrize("name", [name for name in DOORS if name not in COMPLEX])
def test_no_door_drops_imaginary_parts(name):
    check_real(DOORS[name])


def test_every_array_that_is_taken_is_in_the_table():
    doors = {name.partition(" ")[0] for name in DOORS}
    named = public_names() | {f"diff.{name}": getattr(oc.diff, name) for name in oc.diff.__all__}
    there = {name for name in array_parameters(named) if FOUND.isdisjoint(name.split("."))}
    assert there <= doors, sorted(there - doors)


def test_a_plan_for_a_masked_matrix_is_that_for_nan():
    how = {"precision_threshold": 1e-4, "tile_size": 5, "lower": True}
    there = masked(A)
    assert oc.plan(there, **how).to_dict() == oc.plan(np.ma.filled(there, np.nan), **how).to_dict()
    assert oc.plan(there, **how).stored_bytes != oc.plan(A, **how).stored_bytes


def test_the_solutions_of_the_reports_are_refused_with_the_place():
    b = np.ma.masked_array([1.0, 9e36, 1.0], mask=[0, 1, 0])
    factor = oc.cholesky(2.0 * np.eye(3))
    for call in (lambda: oc.solve(2.0 * np.eye(3), b), lambda: factor.solve(b), lambda: factor.half_solve(b)):
        with pytest.raises(oc.errors.MissingValueError, match=r"entry \[1\] of the right-hand side is masked") as caught:
            call()
        assert caught.value.place == (1,) and isinstance(caught.value, TypeError) and isinstance(caught.value, ValueError)


def test_where_missing_has_a_meaning_a_mask_is_what_is_missing():
    x = oc.testing.low_rank_tensor(PATH, 3, 3, 1)
    gaps = np.zeros(x.shape, dtype=bool)
    gaps[::3] = True
    given = np.ma.masked_array(np.where(gaps, 1e30, x), gaps)
    wanted = oc.impute(x, ~gaps, FOURIER, **HOST).tensor
    np.testing.assert_array_equal(oc.impute(given, ~gaps, FOURIER, **HOST).tensor, wanted)
    np.testing.assert_array_equal(oc.impute(np.ma.masked_array(x, False), ~gaps, FOURIER, **HOST).tensor, wanted)
    with pytest.raises(ValueError, match=r"X\[0, 0, 0\] is nan"):
        oc.impute(given, np.ones(N, dtype=bool), FOURIER, **HOST)
    with pytest.raises(ValueError, match=r"start\[0, 0, 0\] is nan"):
        oc.impute(x, ~gaps, FOURIER, start=given, first_lambda=1.0, **HOST)


@pytest.mark.parametrize(
    ("given", "place", "held"),
    [
        (np.ma.masked, (), "masked"),
        ([1.0, np.ma.masked], (1,), "masked"),
        ([[1.0, 2.0], (3.0, np.ma.masked)], (1, 1), "masked"),
        ([np.ma.masked_array([1.0, 2.0], [0, 1])], (0, 1), "masked"),
        ([1.0, pd.NA], (1,), "NA"),
        (np.array([[1.0, pd.NA]], dtype=object), (0, 1), "NA"),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [1.0, 2.0]}), (1, 0), "NA"),
    ],
    ids=["scalar", "in a list", "nested", "list of masked arrays", "NA in a list", "NA in an array", "NA in a table"],
)  # fmt: skip
def test_gaps_are_told_with_their_places(given, place, held):
    with pytest.raises(oc.errors.MissingValueError, match="x") as caught:
        tb.plain_array("x", given, np.float64)
    assert (caught.value.name, caught.value.place, caught.value.held) == ("x", place, held)
    found = tb.plain_array("x", given, np.float64, gaps_as_nan=True)
    assert np.isnan(found[place]) and np.isnan(found).sum() == 1


@pytest.mark.parametrize(
    "given", [3, [1, 2], [[1.0, 2.0], [3.0, 4.0]], np.arange(3), np.ma.arange(3), pd.Series([1, 2], dtype="Int64")]
)
def test_what_has_no_gaps_becomes_an_array(given):
    found = tb.plain_array("x", given, np.float64)
    assert type(found) is np.ndarray and found.dtype == np.float64
    np.testing.assert_array_equal(found, np.asarray(given, dtype=np.float64))


def test_float32_stays_and_whole_numbers_become_floats_where_gaps_are_nan():
    for dtype, wanted in ((np.float32, np.float32), (np.int16, np.float64)):
        assert tb.plain_array("x", masked(np.ones(4, dtype)), gaps_as_nan=True).dtype == wanted


def test_masked_blocks_are_refused_where_they_are_factored():
    """As those of a Dask array of masked chunks, each on its worker."""
    there = masked(A)
    run = run_of(N, 2, tile_size=3)
    with pytest.raises(oc.errors.NonFiniteError):
        made_blocks(run, there, 2)
    np.testing.assert_array_equal(
        dense(run, made_blocks(run, np.ma.masked_array(A, False), 2)), dense(run, made_blocks(run, A, 2))
    )


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_no_sparse_matrix_with_masked_entries_is_taken(form):
    """SciPy's conversions take what lies beneath."""
    there = PATH.asformat(form, copy=True)
    there.data = masked(there.data)
    preconditioner = sp.csr_array(sp.eye_array(N)).asformat(form)
    preconditioner.data = masked(preconditioner.data)
    for call in (
        lambda: oc.multiply(there, B, **HOST),
        lambda: oc.block_csr(there),
        lambda: oc.laplacian(there),
        lambda: largest(there),
        lambda: lobpcg(preconditioner=preconditioner),
        lambda: oc.svds(there, 2, **HOST),
        lambda: oc.GraphFourier(there, devices="host:0"),
        lambda: oc.diff.Pattern.of(there),
    ):
        with pytest.raises(oc.errors.MissingValueError, match=r"data.* is masked"):
            call()


def test_no_dense_graph_that_is_masked_is_taken():
    with pytest.raises(oc.errors.MissingValueError, match=r"\[6, 0\] of the graph is masked"):
        oc.GraphFourier(masked(PATH.toarray()), devices="host:0")


@pytest.mark.package("torch")
@pytest.mark.commit
def test_torch_takes_no_masked_array_for_its_tensor():
    import ooc_chol.diff.torch as sparse

    with pytest.raises(oc.errors.MissingValueError, match=r"entry \[6, 0\] of the matrix is masked"):
        sparse.CSR.of(masked(A))
    assert sparse.CSR.of(np.ma.masked_array(A, False)).shape == A.shape


@pytest.mark.package("jax")
@pytest.mark.commit
def test_jax_takes_no_masked_array_for_its_own():
    import jax

    import ooc_chol.diff.jax as sparse

    with jax.enable_x64(True):
        with pytest.raises((TypeError, ValueError)):
            sparse.CSR.of(masked(A))
        matrix = sparse.CSR.of(PATH)
        with pytest.raises(oc.errors.MissingValueError, match=r"\[6\] is masked"):
            sparse.matmul(matrix, masked(B))
        np.testing.assert_array_equal(sparse.matmul(matrix, np.ma.masked_array(B, False)), sparse.matmul(matrix, B))
