"""Eigenvalues near a shift: SciPy's, certified in A, with a factor whose size is known beforehand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh, minres, splu

import ooc_chol as oc
from ooc_chol.eigen.factor_size import ORDERING, factor_size
from tests.host.eigen_matrices import adjacency, check_pairs, eight_components, with_spectrum
from tests.products import thorough

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

HOST = {"devices": "host:0"}


def random_symmetric(n: int, seed: int):
    rng = np.random.default_rng(seed)
    a = scipy.sparse.random_array((n, n), density=4 / n, rng=rng)
    return (a + a.T + scipy.sparse.diags_array(rng.uniform(-2, 2, n))).tocsr()


def solver(a, sigma: float):
    return splu((a - sigma * scipy.sparse.eye_array(a.shape[0])).tocsc()).solve


# right


@pytest.mark.parametrize("seed", [*range(8), *thorough(*range(8, 30))])
def test_pairs_near_a_shift_are_scipys(seed):
    a = random_symmetric(300 + 10 * seed, seed)
    sigma = np.random.default_rng(seed).uniform(-1.5, 1.5)  # indefinite
    for which in ("LM", "LA", "SA"):
        pairs = oc.eigsh(a, 5, sigma=sigma, which=which, **HOST)
        check_pairs(a, pairs, 1e-10)
        assert pairs.report.counts.checks, "checked too, whatever the errors of solutions"
        assert np.abs(pairs.eigenvalues - np.sort(eigsh(a, 5, sigma=sigma, which=which)[0])).max() <= 1e-9


def test_definite_shifts_find_the_lowest_of_a_grid_and_none_is_missed():
    path = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(40, 40))
    a = scipy.sparse.kronsum(path, path, format="csr")
    each = 2 - 2 * np.cos(np.pi * np.arange(1, 41) / 41)
    values = np.sort(np.add.outer(each, each).reshape(-1))  # nearly all of them double
    pairs = oc.eigsh(a, 10, sigma=0.0, **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(pairs.eigenvalues - values[:10]).max() <= 1e-11


def test_all_copies_at_the_edge_of_the_shift_are_found():
    a = eight_components()
    pairs = oc.eigsh(a, 9, sigma=1.001, **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(pairs.eigenvalues[1:] - 1).max() <= 1e-10 < 1 - pairs.eigenvalues[0]


def test_clustered_eigenvalues_inside_a_spectrum_are_found():
    values = np.concatenate([np.linspace(-5, -1, 300), 1e-9 * np.arange(4), np.linspace(1, 7, 296)])
    a = with_spectrum(values, seed=2)
    pairs = oc.eigsh(a, 4, sigma=0.01, **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(pairs.eigenvalues).max() <= 1e-8


def test_operators_are_factored_with_their_diagonals():
    a = adjacency(400, 1600, 1)
    a.setdiag(0.0)
    a.eliminate_zeros()
    with oc.block_csr(a) as packed:
        for normalized in (False, True):
            dense = scipy.sparse.csgraph.laplacian(a, normed=normalized).toarray()
            pairs = oc.eigsh(oc.laplacian(packed, normalized=normalized), 4, sigma=0.3, **HOST)
            values = np.linalg.eigvalsh(dense)
            nearest = np.sort(values[np.argsort(np.abs(values - 0.3))[:4]])
            assert np.abs(pairs.eigenvalues - nearest).max() <= 1e-10
            check_pairs(dense, pairs, 1e-10)


def test_arrays_and_small_matrices_are_taken():
    a = random_symmetric(40, 3)
    for given in (a, a.toarray()):
        pairs = oc.eigsh(given, 3, sigma=0.1, which="LA")
        check_pairs(a, pairs, 1e-12)
        assert np.abs(pairs.eigenvalues - np.sort(eigsh(a.toarray(), 3, sigma=0.1, which="LA")[0])).max() <= 1e-12
    a = random_symmetric(250, 4)
    check_pairs(a, oc.eigsh(a.toarray(), 3, sigma=0.1), 1e-10)


# what is wanted of the caller


def test_the_callers_inverse_serves_where_nothing_can_be_factored():
    a = random_symmetric(300, 5)
    operator = aslinearoperator(a)
    with pytest.raises(ValueError, match="OPinv"):
        oc.eigsh(operator, 4, sigma=0.2)
    expected = np.sort(eigsh(a, 4, sigma=0.2)[0])
    inverse = solver(a, 0.2)
    for op_inv in (inverse, LinearOperator(a.shape, matvec=inverse, dtype=float)):
        pairs = oc.eigsh(operator, 4, sigma=0.2, OPinv=op_inv)
        check_pairs(a, pairs, 1e-10)
        assert np.abs(pairs.eigenvalues - expected).max() <= 1e-10


def test_an_inverse_that_is_none_is_refused():
    a = random_symmetric(300, 6)
    inverse = solver(a, 0.2)
    cases = [
        (lambda x: -inverse(x), ValueError, "does not solve"),
        (solver(a, 0.3), ValueError, "does not solve"),
        (lambda x: x[:10], ValueError, "shape"),
        (aslinearoperator(np.eye(299)), ValueError, "299"),
        ("superlu", TypeError, "OPinv is a str"),
    ]
    for op_inv, error, words in cases:
        with pytest.raises(error, match=words):
            oc.eigsh(a, 4, sigma=0.2, OPinv=op_inv, **HOST)
    with pytest.raises(ValueError, match="which sigma"):
        oc.eigsh(a, 4, OPinv=inverse, **HOST)


def test_a_coarse_inverse_is_blamed_and_not_the_matrix():
    a = random_symmetric(300, 6)
    shifted = (a - 0.2 * scipy.sparse.eye_array(300)).tocsr()

    def coarse(x):
        return np.stack([minres(shifted, column, rtol=1e-5)[0] for column in x.T], axis=1)

    with pytest.raises((ValueError, oc.NoConvergenceError), match="OPinv"):
        oc.eigsh(a, 4, sigma=0.2, OPinv=coarse, **HOST)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sigma": "near"}, TypeError, "sigma is a str"),
        ({"sigma": np.nan}, ValueError, "finite"),
        ({"sigma": 1j}, TypeError, "complex"),
        ({"sigma": 0.5, "precision": "FDF"}, ValueError, "float64"),
        ({"sigma": 0.5, "which": "SM"}, ValueError, "which"),
        ({"sigma": 0.5, "method": "lobpcg"}, ValueError, "sigma"),
        ({"sigma": 0.5, "ncv": 5}, ValueError, "ncv"),
    ],
)
def test_what_makes_no_sense_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        oc.eigsh(random_symmetric(300, 7), 4, **options, **HOST)


def test_a_matrix_that_is_not_symmetric_is_refused():
    a = scipy.sparse.random_array((300, 300), density=0.02, rng=np.random.default_rng(1)).tocsr()
    with pytest.raises(ValueError, match="not symmetric"):
        oc.eigsh(a + 3 * scipy.sparse.eye_array(300), 4, sigma=0.1, **HOST)


# singular shifts, and factors that do not fit


def test_a_shift_that_is_an_eigenvalue_is_refused_with_another():
    singular = scipy.sparse.csgraph.laplacian(adjacency(400, 1200, 1)).tocsr().astype(float)
    diagonal = scipy.sparse.diags_array(np.arange(400.0)).tocsr()
    for a, sigma in ((singular, 0.0), (diagonal, 7.0), (diagonal, 7.0 + 1e-14)):
        with pytest.raises(oc.SingularMatrixError, match="take a sigma beside it") as caught:
            oc.eigsh(a, 3, sigma=sigma, **HOST)
        beside = float(caught.value.advice.split("such as ")[1].split(",")[0])
        pairs = oc.eigsh(a, 3, sigma=beside, **HOST)  # what is advised helps
        check_pairs(a, pairs, 1e-10)
        assert np.abs(pairs.eigenvalues - sigma).min() <= 1e-9


def test_a_factor_that_does_not_fit_is_told_before_it_is_made():
    path = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(100, 100))
    a = scipy.sparse.kronsum(path, path, format="csr")
    with pytest.raises(oc.BudgetError, match="factor of A - sigma I") as caught:
        oc.eigsh(a, 3, sigma=-0.1, memory_budget="8 MiB", ncv=12, **HOST)
    assert "OPinv" in caught.value.advice
    lower = splu((a + 0.1 * scipy.sparse.eye_array(10_000)).tocsc(), diag_pivot_thresh=0.0, **ORDERING).L
    assert lower.nnz * 2 * 12 <= caught.value.needed_bytes <= lower.nnz * 2 * 12 * 3


@pytest.mark.parametrize("seed", range(4))
def test_the_size_of_a_factor_is_superlus_to_the_entry(seed):
    a = adjacency(300 + 50 * seed, 500 * (seed + 1), seed)
    dominant = (scipy.sparse.diags_array(a.sum(axis=1) + 1) - a).tocsc()
    assert factor_size(dominant).entries == 2 * splu(dominant, diag_pivot_thresh=0.0, **ORDERING).L.nnz
