"""``oc.svds`` on the host: LAPACK's values, residuals of both sides, low ranks, and what squares lose of small values."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import ooc_chol as oc
from tests.inside.sparse import transposed_rows
from tests.sparse_matrices import many_chunks

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "no_lapack")]

ROWS, COLUMNS = 500, 380


@pytest.fixture(scope="module")
def tall():
    return sp.random_array((ROWS, COLUMNS), density=0.03, rng=np.random.default_rng(1)).tocsr()


def check(a, triplets, k, tol):
    """That these are the k largest triplets of A, and that what is said of them is so."""
    dense = a.toarray().astype(np.float64)
    u, s, vt = triplets
    expected = np.linalg.svd(dense, compute_uv=False)[:k][::-1]
    scale = expected[-1]
    assert s.shape == (k,)
    assert np.all(np.diff(s) >= 0)
    assert np.abs(s - expected).max() <= tol * scale
    left = np.linalg.norm(dense @ vt.T - u * s, axis=0)
    right = np.linalg.norm(dense.T @ u - vt.T * s, axis=0)
    assert max(left.max(), right.max()) <= tol * scale
    roundoff = 1e-13 * scale
    np.testing.assert_allclose(triplets.left_residuals * (scale or 1), left, rtol=1e-3, atol=roundoff)
    np.testing.assert_allclose(triplets.right_residuals * (scale or 1), right, rtol=1e-3, atol=roundoff)
    for vectors in (u, vt.T):
        assert np.abs(vectors.T @ vectors - np.eye(k)).max() < 1e-12


@pytest.mark.parametrize(("precision", "tol"), [("DDD", 1e-10), ("FDF", 1e-6), ("FFF", 1e-5)])
@pytest.mark.parametrize(
    "block", [1, pytest.param(2, marks=pytest.mark.thorough), 4, pytest.param(8, marks=pytest.mark.thorough)]
)
def test_the_largest_triplets(tall, precision, tol, block):
    check(tall, oc.svds(tall, 7, precision=precision, block=block, devices="host:0"), 7, tol)


def test_a_wide_matrix_is_solved_by_its_other_square(tall):
    triplets = oc.svds(tall.T.tocsr(), 5, devices="host:0")
    check(tall.T.tocsr(), triplets, 5, 1e-10)
    assert triplets.report.squared == "A A.T"
    assert oc.svds(tall, 5, devices="host:0").report.squared == "A.T A"


def test_the_same_bits_on_two_devices_from_a_file_and_with_a_small_budget(tmp_path):
    a = many_chunks()
    with oc.block_csr(a, block_bytes="512 KiB", store=tmp_path / "a.oocsr") as stored:
        options = {"k": 2, "ncv": 14, "block": 2, "tol": 1e-3, "max_passes": 60}
        with pytest.raises(oc.BudgetError) as least:
            oc.svds(stored, **options, devices="host:0", memory_budget=2)
        budget = 3 * least.value.needed_bytes  # half of it for each side
        whole = oc.svds(stored, **options, devices="host:0")
        for given in ({"devices": ["host:0", "host:1"]}, {"devices": "host:0", "memory_budget": budget}):
            again = oc.svds(stored, **options, **given)
            assert all(np.array_equal(one, other) for one, other in zip(whole, again, strict=True))
            assert sum(again.report.bytes.executed.values()) >= stored.nbytes


@pytest.mark.parametrize("precision", ["DDD", "FDF", "FFF"])
def test_ranks_below_k_give_zeros_with_vectors_of_the_null_spaces(precision):
    generator = np.random.default_rng(2)
    a = sp.csr_array(generator.standard_normal((300, 3)) @ generator.standard_normal((3, 240)))
    triplets = oc.svds(a, 6, precision=precision, devices="host:0")
    check(a, triplets, 6, oc.svds(a, 1, devices="host:0").residuals.max() + {"DDD": 1e-10, "FDF": 1e-6, "FFF": 1e-5}[precision])
    assert triplets.s[:3].max() < 1e-12 * triplets.s[-1]


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (30, 7), (7, 30)])
def test_all_triplets_of_small_matrices(shape):
    a = sp.csr_array(np.random.default_rng(3).standard_normal(shape))
    check(a, oc.svds(a, min(shape), devices="host:0"), min(shape), 1e-12)


def test_a_zero_matrix():
    triplets = oc.svds(sp.csr_array((300, 200)), 3, devices="host:0")
    assert not triplets.s.any()
    assert not triplets.residuals.any()


def decaying(n_decades, shape=(300, 200)):
    """A matrix whose singular values fall evenly, on a logarithmic scale."""
    generator = np.random.default_rng(4)
    u, v = (np.linalg.qr(generator.standard_normal((side, min(shape)))).Q for side in shape)
    return sp.csr_array(u * np.logspace(0, -n_decades, min(shape)) @ v.T)


def test_small_values_are_as_exact_as_large_ones_while_the_floor_allows():
    a = decaying(5)
    triplets = oc.svds(a, 80, ncv=140, devices="host:0")
    check(a, triplets, 80, 1e-10)
    assert triplets.s[0] < 1.1e-2
    assert triplets.report.floor < 1e-10


def test_values_that_squares_lose_are_told_with_the_floor():
    with pytest.raises(
        oc.errors.NoConvergenceError, match="roots of eigenvalues of a square, in which FDF loses those below"
    ) as told:
        oc.svds(decaying(10), 100, ncv=130, precision="FDF", devices="host:0")
    assert 50 < len(told.value.eigenvalues) < 100
    assert np.all(told.value.residuals <= 1e-6)


def test_passes_that_are_used_up_are_told(tall):
    with pytest.raises(oc.errors.NoConvergenceError, match="max_passes=12 is used up"):
        oc.svds(tall, 6, block=1, ncv=20, max_passes=12, devices="host:0")


def test_a_linear_operator_and_an_array(tall):
    expected = oc.svds(tall, 4, devices="host:0").s
    for a in (aslinearoperator(tall), tall.toarray()):
        triplets = oc.svds(a, 4)
        np.testing.assert_allclose(triplets.s, expected, rtol=1e-12)
        assert triplets.residuals.max() <= 1e-10


@pytest.mark.parametrize("options", [{}, {"ncv": 40}], ids=["LAPACK", "Lanczos"])
@pytest.mark.parametrize("shape", [(400, 250), (250, 400), (400, 400)], ids=["tall", "wide", "square"])
@pytest.mark.parametrize(
    ("adjoint", "kind", "says"),
    [
        (lambda a: lambda y: 2 * (a.T @ y), ValueError, "rmatvec is not the adjoint of matvec: of a random x"),
        (lambda a: lambda y: a.T @ y + 1e-6 * np.roll(a.T @ y, 1), ValueError, "rmatvec is not the adjoint of matvec"),
        (lambda _: None, TypeError, "whose product with its transpose fails .*: give it a rmatvec"),
    ],
    ids=["twice", "almost", "none"],
)
def test_an_operator_without_its_adjoint_is_refused(shape, options, adjoint, kind, says):
    a = sp.random_array(shape, density=0.02, rng=np.random.default_rng(2)).tocsr()
    given = LinearOperator(shape, matvec=a.__matmul__, rmatvec=adjoint(a), dtype=float)
    if says.endswith("of matvec") and "ncv" not in options:
        kind, says = (ValueError, oc.errors.NoConvergenceError), "rmatvec|LAPACK's vectors are no better"
    with pytest.raises(kind, match=says):
        oc.svds(given, 2, **options)


def test_single_values_are_solved_in_fdf_and_vectors_are_left_out_where_not_wanted(tall):
    u, s, vt = triplets = oc.svds(tall.astype(np.float32), 3, devices="host:0", return_singular_vectors="u")
    assert u.shape == (ROWS, 3)
    assert vt is None
    assert triplets.report.precision == "FDF"
    assert s.shape == triplets.residuals.shape == (3,)


def test_a_start_orthogonal_to_the_wanted_vectors(tall):
    expected = oc.svds(tall, 3, devices="host:0")
    v0 = expected.vt.T @ (expected.vt @ np.ones(COLUMNS))
    found = oc.svds(tall, 3, v0=np.ones(COLUMNS) - v0, block=1, devices="host:0")
    np.testing.assert_allclose(found.s, expected.s, rtol=1e-12)


def test_trace_progress_and_report(tall):
    told = []
    triplets = oc.svds(tall, 3, devices="host:0", trace=True, progress=lambda *numbers: told.append(numbers[:2]))
    report = triplets.report
    assert told[-1] == (report.passes, 10000)
    assert triplets.trace.records
    assert report.to_dict()["scans"] == report.scans >= 2 * report.passes
    assert f"{report.passes}, {report.restarts} restarts" in str(report)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"k": 0}, "k is 0"),
        ({"k": COLUMNS + 1}, f"ask for at most {COLUMNS}"),
        ({"which": "SM"}, "sigma=0"),
        ({"which": "LR"}, "'LM'"),
        ({"tol": 1e-9, "precision": "FDF"}, "residuals reach 1e-07"),
        ({"tol": float("nan")}, "tol is nan"),
        ({"block": 3}, "1, 2, 4 or 8"),
        ({"ncv": 9}, "at least 10"),
        ({"v0": np.ones(3)}, f"vector \\({COLUMNS},\\)"),
        ({"v0": np.full(COLUMNS, np.nan)}, "must be finite"),
        ({"max_passes": 0}, "at least one"),
        ({"precision": "DFD"}, "give one of"),
    ],
)
def test_wrong_arguments_are_refused(tall, options, text):
    with pytest.raises(ValueError, match=text):
        oc.svds(tall, **options, devices="host:0")


def test_complex_matrices_nan_and_operators_are_refused(tall):
    with pytest.raises(TypeError):
        oc.svds(tall.astype(complex), 2)
    with pytest.raises(TypeError):
        oc.svds(aslinearoperator(tall.astype(complex)), 2)
    bad = tall.copy()
    bad.data[3] = np.nan
    with pytest.raises(oc.errors.NonFiniteError):
        oc.svds(bad, 2)
    with oc.block_csr(tall) as packed, pytest.raises(TypeError, match="Operator"):
        oc.svds(oc.Operator(packed), 2)


@pytest.mark.parametrize(("name", "packed"), [("a.transposed.oocsr", "a.oocsr"), ("a.oocsr", "a.oocsr")])
@pytest.mark.parametrize("replace", [False, True])
def test_neither_of_the_packed_files_takes_the_place_of_the_matrix(tmp_path, tall, name, packed, replace):
    oc.block_csr(tall, store=tmp_path / name).close()
    good = (tmp_path / name).read_bytes()
    with pytest.raises(oc.errors.OutputError, match=r"packed.* is the same file as A"):
        oc.svds(tmp_path / name, 3, packed=tmp_path / packed, replace=replace)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {name: good}


def test_the_transpose_is_the_transpose_to_the_bit(tmp_path):
    a = sp.random_array((70_000, 3_000), density=2e-4, rng=np.random.default_rng(5)).tocsr()
    with oc.block_csr(a, block_bytes="64 KiB") as packed, oc.block_csr(transposed_rows(packed), block_bytes="32 KiB") as other:
        found, expected = other.tocsr(), a.T.tocsr()
        expected.sort_indices()
        assert np.array_equal(found.indptr, expected.indptr)
        assert np.array_equal(found.indices, expected.indices)
        assert np.array_equal(found.data, expected.data)


@pytest.mark.parametrize("dtype", ["?", "i1", ">i4", "u8", "f2", ">f2", "f4", ">f4", "f8", ">f8", "g"])
@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[::-1, ::-1], np.asfortranarray, lambda a: a[::2]])
def test_dense_arrays_of_every_real_type(tall, dtype, view):
    a = view(np.rint(8 * tall.toarray()[:90, :60]).astype(dtype))
    _, s, _ = oc.svds(a, 3, devices="host:0")
    exact = np.linalg.svd(a.astype(float), compute_uv=False)[2::-1]
    assert np.abs(s - exact).max() <= 1e-6 * exact[-1]


@pytest.mark.parametrize(
    ("dtype", "advice"), [("O", r"astype\(float\)"), ("c16", "A.real"), ("U8", "convert"), ("M8[s]", "convert")]
)
def test_arrays_of_no_real_numbers_are_refused_with_what_to_do(tall, dtype, advice):
    with pytest.raises(oc.errors.UnsupportedTypeError, match=advice):
        oc.svds(np.rint(8 * tall.toarray()[:90, :60]).astype(int).astype(dtype), 3, devices="host:0")
