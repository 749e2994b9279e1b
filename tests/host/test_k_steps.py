"""K Lanczos steps for K pairs: what comes out is said not to be certified, with what is wrong with it; and Jacobi's method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import ooc_chol as oc
from benchmarks.jacobi import jacobi
from benchmarks.k_steps import k_step_pairs, paper_pairs
from tests.inside.eigen import OperatorSpace

pytestmark = pytest.mark.host

K = 24


def space_of(a, precision, k=K, seed=0):
    """A space with a random first vector in W."""
    exact = a.astype(np.float64)
    typed = a.astype(oc.Precision(precision).compute)
    space = OperatorSpace(
        lambda x: typed @ x, a.shape[0], block=1, capacity=k, precision=oc.Precision(precision), exact=lambda x: exact @ x
    )
    space.fill(seed)
    return space


@pytest.fixture(scope="module")
def facebook(data_dir: Path):
    with oc.block_csr(data_dir / "facebook_combined.txt") as packed:
        return packed.tocsr()


@pytest.mark.parametrize("seed", range(3))
def test_fff_loses_orthogonality_without_reorthogonalization_and_says_so(facebook, seed):
    lost = paper_pairs(space_of(facebook, "FFF", seed=seed), K, reorthogonalize="none")
    assert lost.deviation > 0.5
    assert lost.basis_deviation > 0.1
    assert not lost.certified
    # The largest eigenvalue is simple: a second Ritz value at it is a copy.
    assert lost.values[-1] - lost.values[-2] < 1e-3
    kept = paper_pairs(space_of(facebook, "FFF", seed=seed), K, reorthogonalize="full")
    assert kept.basis_deviation < 1e-6
    assert kept.deviation < 1e-6
    assert kept.values[-1] - kept.values[-2] > 10
    assert not kept.certified


def test_residuals_are_those_of_the_pairs(facebook):
    space = space_of(facebook, "DDD")
    found = paper_pairs(space, K)
    v = space.take(range(K))
    expected = np.linalg.norm(facebook @ v - v * found.values, axis=0) / np.linalg.norm(v, axis=0)
    np.testing.assert_allclose(found.residuals, expected, rtol=1e-6, atol=1e-10)
    assert found.residuals.min() < 1e-9 < 1 < found.residuals.max()  # K steps do not bring K pairs
    np.testing.assert_allclose(found.values[-3:], [105.94010586, 125.49320196, 162.37394234], atol=1e-8)


def test_alternating_reorthogonalization_is_between_the_two(facebook):
    deviations = [
        paper_pairs(space_of(facebook, "DDD"), K, reorthogonalize=how).basis_deviation for how in ("full", "alternate", "none")
    ]
    assert deviations[0] < 1e-12 < deviations[1] < deviations[2]


@pytest.mark.parametrize("precision", ["FFF", "DDD"])
def test_steps_go_on_where_the_krylov_space_ends(precision):
    identity = paper_pairs(space_of(sp.eye_array(40).tocsr(), precision, 5), 5)
    np.testing.assert_allclose(identity.values, 1, rtol=1e-5)
    assert identity.deviation < 1e-5
    two = sp.diags_array(np.r_[np.full(20, 3.0), np.full(20, -1.0)]).tocsr()
    found = paper_pairs(space_of(two, precision, 6), 6)
    np.testing.assert_allclose(np.abs(found.values - 1), 2, rtol=1e-5)


def test_one_step_and_all_steps():
    a = sp.diags_array(np.arange(1.0, 9.0)).tocsr()
    assert paper_pairs(space_of(a, "DDD", 1), 1).mean_angle_degrees == 90
    np.testing.assert_allclose(paper_pairs(space_of(a, "DDD", 8), 8).values, np.arange(1, 9), atol=1e-12)


def test_what_cannot_be_asked():
    a = sp.eye_array(9).tocsr()
    with pytest.raises(ValueError, match="full, alternate, none"):
        paper_pairs(space_of(a, "DDD", 3), 3, reorthogonalize="half")
    with pytest.raises(ValueError, match="4 single Lanczos steps need 4 panels"):
        paper_pairs(space_of(a, "DDD", 3), 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 24, 61])
def test_jacobi_is_backward_stable(n, dtype):
    a = np.random.default_rng(n).standard_normal((n, n))
    t = (a + a.T).astype(dtype)
    w, v = jacobi(t)
    assert w.dtype == v.dtype == dtype
    unit = 40 * np.sqrt(n) * np.finfo(dtype).eps
    exact = v.astype(np.float64)
    assert np.abs(exact.T @ exact - np.eye(n)).max() <= unit
    assert np.abs(t @ exact - exact * w).max() <= unit * np.linalg.norm(t, 2)
    assert np.all(np.diff(w) >= 0)


def test_jacobi_of_what_is_diagonal_repeated_or_not_finite():
    w, v = jacobi(np.diag([3.0, 1.0, 1.0]))
    assert w.tolist() == [1.0, 1.0, 3.0]
    np.testing.assert_allclose(v.T @ v, np.eye(3))
    assert jacobi(np.zeros((4, 4)))[0].tolist() == [0.0] * 4
    with pytest.raises(np.linalg.LinAlgError, match="NaN"):
        jacobi(np.array([[1.0, np.nan], [np.nan, 1.0]]))


@pytest.mark.parametrize("how", ["full", "alternate", "none"])
def test_k_steps_on_devices(facebook, how):
    with oc.block_csr(facebook) as packed:
        found = k_step_pairs(packed, K, reorthogonalize=how, precision="FDF", devices="host:0")
    w, v = found.eigenvalues, found.eigenvectors
    np.testing.assert_allclose(np.linalg.norm(v.astype(np.float64), axis=0), 1, rtol=1e-6)
    exact = v.astype(np.float64)
    expected = np.linalg.norm(facebook @ exact - exact * w, axis=0) / np.abs(w).max()
    np.testing.assert_allclose(found.residuals, expected, atol=2e-7)
    cosines = np.abs(exact.T @ exact - np.eye(K)).max()
    assert found.report.deviation == pytest.approx(cosines, rel=1e-2, abs=1e-6)
    assert found.report.to_dict()["certified"] is False
