"""Small matrices, and large shares of a spectrum, by LAPACK: on the host, where no option of Lanczos is given."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

import ooc_chol as oc
from tests.host.eigen_matrices import adjacency, check_pairs, most_wanted, with_spectrum
from tests.inside.eigen import planning

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
    assert oc.plan_svds(a[:200], 5, **HOST).method == "dense"
    assert oc.plan_svds(a[:200], 5, max_passes=900, **HOST).method == "lanczos"
