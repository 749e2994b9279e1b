"""Small matrices, and large shares of a spectrum, by LAPACK: on the host, where no option of Lanczos is given."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

import ooc_chol as oc
from tests.host.eigen_matrices import adjacency, check_pairs, most_wanted, with_spectrum
from tests.inside.eigen import asked, planning, svds

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

HOST = {"devices": "host:0"}


def decaying(m: int, n: int, least: float):
    """An array whose singular values fall geometrically to the least, and these."""
    rng, s = np.random.default_rng(3), np.geomspace(1.0, least, n)
    return np.linalg.qr(rng.standard_normal((m, n)))[0] * s @ np.linalg.qr(rng.standard_normal((n, n)))[0].T, s


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize(("n", "k"), [(900, 90), (900, 600), (300, 4), (50, 50)])
def test_large_shares_and_small_matrices_are_lapacks(n, k, which):
    a = adjacency(n, 4 * n, 1)
    pairs = oc.eigsh(a, k, which=which, **HOST)
    assert oc.plan_eigsh(a.toarray(), k, which=which).method == "dense"
    assert pairs.report.method == pairs.report.plan.method == "dense" == oc.plan_eigsh(a, k, which=which, **HOST).method
    check_pairs(a, pairs, 1e-13)
    assert np.abs(pairs.eigenvalues - most_wanted(np.linalg.eigvalsh(a.toarray()), k, which)).max() <= 1e-11


@pytest.mark.parametrize(
    "options",
    [{"ncv": 60}, {"block": 1}, {"v0": np.ones(300)}, {"max_passes": 500}, {"method": "lanczos"}, {"checkpoint": "run.ooceig"}],
)
def test_options_of_lanczos_are_followed(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert oc.eigsh(adjacency(300, 1200, 1), 5, **options, **HOST).report.method == "lanczos"


def test_operators_and_larger_matrices_are_not_taken_for_few_pairs():
    a = adjacency(planning.MOST_SMALL + 1, 2000, 1)
    assert oc.plan_eigsh(a, 5, **HOST).method == "lanczos"
    assert oc.plan_eigsh(aslinearoperator(a[:300][:, :300]), 5).method == "lanczos"
    assert oc.plan_eigsh(((6000, 6000), 30_000, "fp64"), 3000, **HOST).method == "lanczos"
    assert oc.plan_eigsh(((800, 800), 3000, "fp64"), 6, devices="host:0", memory_budget="12 MiB").method == "lanczos"


def scaled(a):
    """An operator of a packed matrix with diagonals on all sides, and the same for SciPy."""
    d = np.linspace(0.5, 2.0, a.shape[0])
    packed = oc.Operator(oc.block_csr(a), left=d, right=d, shift=-d)
    return packed, scipy.sparse.diags_array(d) @ a @ scipy.sparse.diags_array(d) - scipy.sparse.diags_array(d)


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
@pytest.mark.parametrize("make", [lambda a: (a, a), lambda a: (oc.block_csr(a), a), scaled])
def test_scipy_multiplies_small_matrices_in_memory(make, dtype, which):
    given, a = make(adjacency(700, 2800, 1).astype(dtype))
    pairs, values = oc.eigsh(given, 6, which=which, **HOST), np.linalg.eigvalsh(a.toarray().astype(float))
    plan = pairs.report.plan
    assert plan.method == "lanczos" and plan.basis is plan.products is None and "all in host memory" in str(plan)
    assert plan.figures() == oc.plan_eigsh(given, 6, which=which, **HOST).figures()
    assert (plan.block, plan.ncv) == (2, 6 + planning.SMALL_COLUMNS)
    check_pairs(a, pairs, pairs.report.tol)
    assert np.abs(pairs.eigenvalues - most_wanted(values, 6, which)).max() <= pairs.report.tol * pairs.report.scale
    other = oc.eigsh(given, 6, which=which, block=2, ncv=plan.ncv, **HOST).report
    assert other.plan.basis is not None and other.key != pairs.report.key


def test_a_small_basis_that_falls_short_is_followed_by_a_larger_one(monkeypatch):
    monkeypatch.setattr(asked, "_DEFAULT_PASSES", 500)
    path = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000)).tocsr()
    pairs, exact = oc.eigsh(path, 2, which="LA", **HOST), 2 + 2 * np.cos(np.pi * np.array([2, 1]) / 1001)
    assert pairs.report.plan.basis is not None and pairs.report.block == 8 and pairs.report.passes > 500
    assert np.abs(pairs.eigenvalues - exact).max() <= pairs.report.bounds.max()


def test_a_small_basis_of_triplets_that_falls_short_is_followed_by_a_larger_one(monkeypatch):
    monkeypatch.setattr(svds, "_BRIEFLY", 100)
    differences = scipy.sparse.diags_array([1.0, -1.0], offsets=[0, 1], shape=(600, 601)).tocsr()
    triplets = oc.svds(differences, 2, **HOST)
    assert triplets.report.passes > 100 and triplets.report.plan.ncv == 98 and "basis of 98 columns" in str(triplets.report)
    exact = 2 * np.cos(np.pi * np.array([2, 1]) / 1202)
    assert np.abs(triplets.s - exact).max() <= triplets.report.tol * exact[-1]


def test_devices_multiply_what_is_larger_traced_or_in_a_file(tmp_path):
    a = adjacency(1500, 6000, 1)
    assert oc.plan_eigsh(a, 6, **HOST).basis is None
    assert oc.plan_eigsh(a, 6, trace=True, **HOST).basis is not None and oc.eigsh(a, 6, trace=True, **HOST).trace is not None
    assert oc.plan_eigsh(a, 6, precision="FFF", **HOST).basis is not None
    with oc.block_csr(a, store=tmp_path / "a.oocsr") as packed:
        assert oc.plan_eigsh(packed, 6, **HOST).basis is not None and oc.plan_svds(packed, 6, **HOST).sides is not None
    for n, entries in ((planning.SMALL_ROWS + 1, 50_000), (5000, planning.SMALL_ENTRIES + 1)):
        assert oc.plan_eigsh(((n, n), entries, "fp64"), 6, **HOST).basis is not None
        assert oc.plan_svds(((n, n), entries, "fp64"), 6, **HOST).sides is not None
    assert oc.plan_svds(a, 6, trace=True, **HOST).sides is not None and oc.svds(a, 6, trace=True, **HOST).trace is not None


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
@pytest.mark.parametrize("shape", [(1200, 700), (700, 1200)])
def test_scipy_multiplies_both_sides_of_small_matrices(shape, dtype):
    a = (20 * scipy.sparse.random_array(shape, density=0.01, rng=np.random.default_rng(0))).astype(dtype).tocsr()
    triplets = oc.svds(a, 5, **HOST)
    plan = triplets.report.plan
    assert plan.sides is None and plan.method == "lanczos" and (plan.block, plan.ncv) == (2, 6 + planning.SMALL_COLUMNS)
    assert plan.figures() == oc.plan_svds(a, 5, **HOST).figures() and plan.packed_bytes > 16 * a.nnz
    s = np.linalg.svd(a.toarray().astype(float), compute_uv=False)[:5]
    assert np.abs(triplets.s[::-1] - s).max() <= triplets.report.tol * s[0]
    assert triplets.residuals.max() <= triplets.report.tol
    with oc.block_csr(a) as packed:
        assert np.array_equal(oc.svds(packed, 5, plan=oc.plan_svds(packed, 5, **HOST)).s, triplets.s)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("zeros", [0, 2])
def test_graded_ends_that_lapack_loses_come_from_the_inverse(sign, zeros):
    values = np.r_[np.zeros(zeros), 10.0 ** np.linspace(-14, 4, 300)]
    pairs = oc.eigsh(scipy.sparse.diags_array(sign * values).tocsr(), 6, which="SA" if sign > 0 else "LA", **HOST)
    assert np.all(np.abs(np.sort(sign * pairs.eigenvalues) - values[:6]) <= 1e-10 * values[:6])


def test_small_values_that_are_roundoff_are_noted():
    values = np.r_[-1e-9, 10.0 ** np.linspace(-9, 8, 300)]
    pairs = oc.eigsh(with_spectrum(values), 3, which="SA", **HOST)
    assert "are roundoff beside the largest, 1e+08" in pairs.report.notes[0]
    assert pairs.eigenvalues.min() <= 0 and np.abs(pairs.eigenvalues).max() <= 1e-6


@pytest.mark.parametrize("shape", [(400, 300), (300, 400), (900, 500)])
def test_falling_singular_values_are_had_to_roundoff(shape):
    a, s = decaying(max(shape), min(shape), 1e-10)
    a = a if shape[0] >= shape[1] else np.ascontiguousarray(a.T)
    k = 2 * min(shape) // 3
    triplets = oc.svds(a, k, **HOST)
    assert triplets.report.squared == "none" and "LAPACK" in str(triplets.report)
    assert np.abs(triplets.s[::-1] - s[:k]).max() <= 1e-14
    u, _, vt = triplets
    assert max(np.abs(u.T @ u - np.eye(k)).max(), np.abs(vt @ vt.T - np.eye(k)).max()) <= 1e-13
    assert triplets.residuals.max() <= 1e-13


def test_values_that_squares_lose_are_lapacks_where_nothing_else_is_asked_for():
    a, s = decaying(700, 600, 1e-48)
    triplets = oc.svds(a, 110, devices="host:0")
    assert triplets.report.passes > 0 and triplets.report.squared == "none"
    assert np.abs(triplets.s[::-1] - s[:110]).max() <= 1e-14
    with pytest.raises(oc.errors.NoConvergenceError, match="roots of eigenvalues of a square"):
        oc.svds(a, 110, ncv=206, devices="host:0")


def test_few_triplets_of_larger_matrices_are_not_lapacks():
    a = scipy.sparse.random_array((2000, 900), density=0.01, rng=np.random.default_rng(0)).tocsr()
    assert oc.plan_svds(a, 5, **HOST).method == "lanczos"
    assert oc.plan_svds(a, 300, **HOST).method == "dense"
    assert oc.plan_svds(a[:150, :800], 5, **HOST).method == "dense"
    assert oc.plan_svds(a[:150, :800], 5, max_passes=900, **HOST).method == "lanczos"
