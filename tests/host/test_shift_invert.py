"""Eigenvalues near a shift: SciPy's, certified in A, with a factor whose size is known beforehand."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh, minres, splu
from scipy.spatial import cKDTree

import ooc_chol as oc
from tests.host.eigen_matrices import adjacency, check_pairs, eight_components, with_spectrum
from tests.inside.eigen import ORDERING, factor_size
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

    with pytest.raises((ValueError, oc.errors.NoConvergenceError), match="OPinv"):
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


def geometric_graph(n: int, seed: int):
    """Laplacian of a random geometric graph: parts of it are not connected, so that 0 is multiple."""
    points = np.random.default_rng(seed).uniform(size=(n, 2))
    pairs = cKDTree(points).query_pairs(np.sqrt(8 / np.pi / n), output_type="ndarray")
    a = scipy.sparse.coo_array((np.ones(len(pairs)), pairs.T), shape=(n, n))
    return scipy.sparse.csgraph.laplacian((a + a.T).tocsr()).tocsr()


def grid(m: int):
    path = scipy.sparse.diags_array([-np.ones(m - 1), np.r_[1, 2 * np.ones(m - 2), 1], -np.ones(m - 1)], offsets=[-1, 0, 1])
    return scipy.sparse.kronsum(path, path, format="csr")


MATRICES = {
    "geometric graph": lambda: geometric_graph(400, 0),
    "grid": lambda: grid(16),
    "random": lambda: random_symmetric(300, 4),
}
OFFSETS = [0.0, *(sign * 10.0**power for power in (-12, -11, -10, -9, -8, -7, -6) for sign in (1, -1))]


def wanted_near(values, sigma: float, which: str, k: int):
    """Distances from sigma of the k eigenvalues of a side, or of both; one at sigma is of both."""
    off = values - sigma
    off[np.abs(off) <= 3e-14 * np.abs(values).max()] = 0.0
    side = {"LM": np.abs(off), "LA": off[off >= 0], "SA": -off[off <= 0]}[which]
    return np.sort(side)[:k]


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize("name", MATRICES)
def test_pairs_beside_an_eigenvalue_are_lapacks_however_near_it_is(name, which):
    a = MATRICES[name]()
    values = np.linalg.eigvalsh(a.toarray())
    scale = np.abs(values).max()
    for at in (len(values) // 3, len(values) // 2):
        for offset in OFFSETS:
            sigma = float(values[at] + offset)
            pairs = oc.eigsh(a, 5, sigma=sigma, which=which, **HOST)
            check_pairs(a, pairs, 1e-10)
            assert (
                np.abs(np.sort(np.abs(pairs.eigenvalues - sigma)) - wanted_near(values, sigma, which, 5)).max() <= 1e-13 * scale
            )
            assert abs(pairs.report.sigma - sigma) <= 1e-5 * scale


@pytest.mark.parametrize(("name", "sigma"), [("geometric graph", 0.0), ("grid", 0.0), ("grid", 4.0), ("grid", 2.0)])
@pytest.mark.parametrize("k", [1, 6, 20])
def test_eigenvalues_that_are_exact_numbers_are_no_obstacle(name, sigma, k):
    a = MATRICES[name]()
    values = np.linalg.eigvalsh(a.toarray())
    pairs = oc.eigsh(a, k, sigma=sigma, **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(np.sort(np.abs(pairs.eigenvalues - sigma)) - wanted_near(values, sigma, "LM", k)).max() <= 1e-12


@pytest.mark.parametrize("seed", [0, 3, *thorough(*range(5, 15))])
def test_pivots_that_nearly_cancel_are_not_taken(seed):
    """At whole numbers pivots of a graph are 0 but for roundoff, and a factor that takes them is one of another matrix."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(size=(150, 2))
    near = ((points[:, None] - points) ** 2).sum(-1) < 2.5 / 150
    a = scipy.sparse.csgraph.laplacian(scipy.sparse.csr_array(near - np.eye(150))).tocsr()
    values = np.linalg.eigvalsh(a.toarray())
    for sigma in (3.0, 4.0, 5.0):
        for beside in (0.0, 2**-50, -(2**-50)):
            pairs = oc.eigsh(a, 3, sigma=sigma + beside, which="SA", **HOST)
            check_pairs(a, pairs, 1e-10)
            assert np.abs(np.sort(sigma - pairs.eigenvalues) - wanted_near(values, sigma, "SA", 3)).max() <= 1e-12


SIDES = {  # values, sigma, how many are at or below it
    "graded": (10.0 ** np.linspace(-2, 3, 300), 0.0, 0),
    "far below": (np.arange(1.0, 301.0), -1e3, 0),
    "whole numbers": (np.arange(-2.0, 298.0), 0.0, 3),
    "graded, some below": (np.r_[-10.0, -1.0, -1e-3, 10.0 ** np.linspace(-2, 3, 297)], 0.0, 3),
    "copies": (np.r_[np.full(5, -1.0), np.linspace(1, 7, 295)], -1.0, 5),
    "few rows": (np.arange(-2.0, 18.0), 0.0, 3),
    "tiny": (2.0**-600 * np.arange(1.0, 301.0), 2.0**-600 * 2.5, 2),
}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", SIDES)
def test_a_side_of_sigma_with_fewer_eigenvalues_than_wanted_is_named(name, sign):
    values, sigma, count = SIDES[name]
    a, sigma = scipy.sparse.diags_array(sign * values).tocsr(), sign * sigma
    which, words = ("SA", "at or below") if sign > 0 else ("LA", "at or above")
    text = f"A has {count} {words} {sigma!r}, and {len(values) - count} "
    with pytest.raises(ValueError, match=re.escape(text)):
        oc.eigsh(a, count + 1, sigma=sigma, which=which, **HOST)
    if count:
        pairs = oc.eigsh(a, count, sigma=sigma, which=which, **HOST)
        assert np.abs(np.sort(sign * pairs.eigenvalues) - np.sort(values)[:count]).max() <= 1e-12 * np.abs(values[:count]).max()
        assert pairs.report.passes <= 1000


def test_a_side_that_only_the_callers_inverse_tells_of_is_named():
    a = scipy.sparse.diags_array(np.arange(-2.0, 298.0)).tocsr()
    inverse = solver(a, 0.5)
    assert np.abs(oc.eigsh(a, 3, sigma=0.5, which="SA", OPinv=inverse).eigenvalues - [-2, -1, 0]).max() <= 1e-12
    with pytest.raises(ValueError, match=r"A has 3 at or below 0\.5"):
        oc.eigsh(a, 5, sigma=0.5, which="SA", OPinv=inverse)


def test_a_side_is_named_where_pivots_left_the_diagonal():
    values = np.repeat(np.random.default_rng(0).standard_normal(60), 5)
    sigma = float(np.sort(values)[100] + 1e-9)
    count = int(np.count_nonzero(values < sigma))
    with pytest.raises(ValueError, match=f"A has {count} at or below"):
        oc.eigsh(with_spectrum(values, seed=3), count + 40, sigma=sigma, which="SA", **HOST)


def test_many_copies_beside_sigma_are_passed_over_where_they_are_on_the_other_side():
    values = np.r_[np.full(40, 1.0), np.linspace(2, 3, 200), np.linspace(-2, -1, 60)]
    a = with_spectrum(values, seed=1)
    for sigma in (1 + 1e-9, 1 + 1e-12):
        assert np.abs(oc.eigsh(a, 3, sigma=sigma, which="LA", **HOST).eigenvalues - values[40:43]).max() <= 1e-12
        assert np.abs(oc.eigsh(a, 3, sigma=sigma, which="SA", **HOST).eigenvalues - 1).max() <= 1e-12
        assert np.abs(oc.eigsh(a, 3, sigma=2 - sigma, which="SA", **HOST).eigenvalues - np.sort(values)[57:60]).max() <= 1e-12


@pytest.mark.parametrize("top", [4, 8, 12])
@pytest.mark.parametrize("lowest", [(), (0.0,), (0.0, 0.0, 0.0)])
def test_small_eigenvalues_beside_large_ones_have_all_their_digits(top, lowest):
    for n in (20, 300):
        values = np.r_[lowest, 10.0 ** np.linspace(-6, top, n)]
        a = scipy.sparse.diags_array(values).tocsr()
        for sigma in (0.0, values[7], values[7] * (1 + 1e-9)):
            pairs = oc.eigsh(a, 6, sigma=sigma, **HOST)
            exact = np.sort(values[np.argsort(np.abs(values - sigma), kind="stable")[:6]])
            assert np.abs(pairs.eigenvalues - exact).max() <= 1e-13 * exact.max()
            assert np.all(np.abs(pairs.eigenvalues - exact)[exact > 0] <= 1e-12 * exact[exact > 0])


@pytest.mark.parametrize("tiny", [1e-140, 1e-200, 1e-310, 5e-324])
@pytest.mark.parametrize("options", [{"which": "SM"}, {"sigma": 0.0}, {"sigma": 0.0, "which": "LA"}])
def test_tiny_numbers_beside_a_null_space_are_no_obstacle(tiny, options):
    weights = np.ones(59)
    weights[30] = tiny
    path = scipy.sparse.diags_array([weights, weights], offsets=[-1, 1])
    laplacian = scipy.sparse.diags_array(path.sum(axis=1)) - path
    a = scipy.sparse.block_diag([laplacian, scipy.sparse.coo_array((1, 1))], format="csr")
    exact = [0, 0, 0, 4 * np.sin(np.pi / 62) ** 2]
    assert np.abs(oc.eigsh(a, 4, **options, **HOST).eigenvalues - exact).max() <= 1e-12
    diagonal = scipy.sparse.diags_array(np.r_[0.0, tiny, np.arange(2.0, 80.0)]).tocsr()
    assert np.allclose(oc.eigsh(diagonal, 3, ncv=20, **options, **HOST).eigenvalues, [0, tiny, 2], rtol=0, atol=1e-12)


def test_a_sigma_far_beyond_the_matrix_is_refused():
    for ncv in (None, 300):
        with pytest.raises(ValueError, match="all equally near"):
            oc.eigsh(random_symmetric(300, 7), 3, sigma=1e40, ncv=ncv, **HOST)


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


@pytest.mark.parametrize("n", [12, 300])
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"which": "SM"}, "(nearest to sigma = 0.0)"),
        ({"sigma": 0}, "(nearest to sigma = 0.0)"),
        ({"sigma": 3.2, "which": "LA"}, "(at or above sigma = 3.2)"),
        ({"sigma": 3.2, "which": "SA"}, "(at or below sigma = 3.2)"),
        ({"which": "SA"}, "(SA)"),
    ],
)
def test_plans_and_reports_say_where_pairs_were_looked_for(n, asked, words):
    a = scipy.sparse.diags_array(np.arange(1.0, n + 1)).tocsr()
    plan, report = oc.plan_eigsh(a, 2, **asked), oc.eigsh(a, 2, **asked).report
    assert words in str(plan) and words in str(report)
    sigma = None if words == "(SA)" else 0.0 if "0.0" in words else 3.2
    assert plan.to_dict().get("sigma") == report.to_dict()["sigma"] == sigma
    assert words in str(oc.eigsh(a, 2, **asked, plan=oc.plan_eigsh(a, 2, **{**asked, "sigma": 5.0}) if sigma else plan).report)
