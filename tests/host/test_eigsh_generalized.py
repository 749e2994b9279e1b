"""``A v = w M v``: SciPy's answers, with vectors that are orthonormal in M."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg as sla

import ooc_chol as oc

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

HOST = {"devices": "host:0"}


def stiffness_and_mass(m: int, *, free: bool = False, seed: int = 0):
    """Bilinear elements on a square of uneven cells, held at its edge or free."""
    steps = np.random.default_rng(seed).uniform(0.5, 2.0, m + 1)
    inner = slice(None) if free else slice(1, -1)
    off = np.r_[-1 / steps]
    stiff = scipy.sparse.diags_array([off, np.r_[1 / steps, 0] + np.r_[0, 1 / steps], off], offsets=[-1, 0, 1]).tocsr()
    mass = scipy.sparse.diags_array([steps / 6, (np.r_[steps, 0] + np.r_[0, steps]) / 3, steps / 6], offsets=[-1, 0, 1]).tocsr()
    stiff, mass = stiff[inner, inner], mass[inner, inner]
    kron = scipy.sparse.kron
    return (kron(stiff, mass) + kron(mass, stiff)).tocsr(), kron(mass, mass).tocsr()


def check(a, m, pairs, exact, tol=1e-9):
    w, v = pairs
    a, m = (each.toarray() if scipy.sparse.issparse(each) else each for each in (a, m))
    scale = pairs.report.scale
    assert np.abs(w - exact).max() <= tol * scale
    assert np.abs(v.T @ m @ v - np.eye(len(w))).max() <= 1e-8
    lower = np.linalg.cholesky(m)
    norms = np.linalg.norm(scipy.linalg.solve_triangular(lower, a @ v - m @ v * w, lower=True), axis=0) / scale
    assert np.abs(norms - pairs.residuals).max() <= 1e-12 and norms.max() <= 1e-10
    assert "M" in pairs.report.notes[-1]


@pytest.mark.parametrize("form", ["sparse", "arrays", "an array and a sparse one", "an operator"])
@pytest.mark.parametrize(("which", "k"), [("LM", 5), ("LA", 4), ("SA", 3), ("LA", 60)])
def test_pairs_of_every_end_are_lapacks(form, which, k):
    a, m = stiffness_and_mass(16)
    exact = scipy.linalg.eigh(a.toarray(), m.toarray(), eigvals_only=True)
    exact = exact[:k] if which == "SA" else exact[-k:]
    given = {
        "sparse": (a, m),
        "arrays": (a.toarray(), m.toarray()),
        "an array and a sparse one": (a.toarray(), m.tocoo()),
        "an operator": (sla.aslinearoperator(a), m),
    }[form]
    check(a, m, oc.eigsh(given[0], k, M=given[1], which=which), exact)
    assert np.abs(oc.eigsh(given[0], k, M=given[1], which=which, return_eigenvectors=False) - exact).max() <= 1e-9 * exact.max()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
def test_pairs_near_a_shift_are_scipys(which, seed):
    a, m = stiffness_and_mass(18, seed=seed)
    values = scipy.linalg.eigh(a.toarray(), m.toarray(), eigvals_only=True)
    sigma = float(values[40] * 0.7 + values[41] * 0.3)
    exact = np.sort(sla.eigsh(a.tocsc(), 5, M=m.tocsc(), sigma=sigma, which=which)[0])
    pairs = oc.eigsh(a, 5, M=m, sigma=sigma, which=which, **HOST)
    check(a, m, pairs, exact)
    lu = sla.splu((a - sigma * m).tocsc())
    check(a, m, oc.eigsh(sla.aslinearoperator(a), 5, M=m, sigma=sigma, which=which, OPinv=lu), exact)


@pytest.mark.parametrize("options", [{"sigma": 0}, {"which": "SM"}])
def test_free_bodies_have_their_null_vector(options):
    a, m = stiffness_and_mass(14, free=True)
    exact = scipy.linalg.eigh(a.toarray(), m.toarray(), eigvals_only=True)[:6]
    pairs = oc.eigsh(a, 6, M=m, **options, **HOST)
    check(a, m, pairs, exact)
    assert abs(pairs.eigenvalues[0]) <= 1e-12 * pairs.report.scale
    assert np.abs(pairs.eigenvalues[1:] / exact[1:] - 1).max() <= 1e-10


def test_the_case_in_which_a_mass_matrix_was_taken_for_a_preconditioner():
    n = 400
    a = scipy.sparse.diags_array([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1]).tocsr() * n
    m = scipy.sparse.eye_array(n).tocsr() / n
    assert oc.eigsh(a, 3, M=m, which="SA", **HOST).eigenvalues == pytest.approx([9.820, 39.28, 88.38], rel=1e-3)


def test_starts_plans_and_sides_are_those_of_the_problem():
    a, m = stiffness_and_mass(16)
    values, vectors = scipy.linalg.eigh(a.toarray(), m.toarray())
    check(a, m, oc.eigsh(a, 3, M=m, which="LA", v0=vectors[:, -1], **HOST), values[-3:])
    plan = oc.plan_eigsh(a, 3, M=m, which="LA", **HOST)
    assert plan.method == "lanczos"
    check(a, m, oc.eigsh(a, 3, M=m, which="LA", plan=plan), values[-3:])
    assert oc.plan_eigsh(a, 3, M=m, sigma=0, **HOST).method == "shift-invert"
    with pytest.raises(ValueError, match=r"A has 0 at or below 0\.0"):
        oc.eigsh(a, 3, M=m, sigma=0, which="SA", **HOST)
    with pytest.raises(ValueError, match="OPinv"):
        oc.eigsh(sla.aslinearoperator(a), 3, M=m, sigma=0)
    with pytest.raises(ValueError, match="packed is the file"):
        oc.eigsh(a, 3, M=m, packed="a.oocsr", **HOST)


def test_a_factor_of_the_mass_that_does_not_fit_is_told():
    a, m = stiffness_and_mass(60)
    with pytest.raises(oc.BudgetError, match="factor of M"):
        oc.eigsh(a, 3, M=m, memory_budget="1 MiB", **HOST)


def drawn_problem(seed):
    """A and M of one of several kinds, and a sigma that is an eigenvalue, to roundoff, or 0."""
    random = np.random.default_rng(seed)
    n = int(random.integers(4, 60))
    half, few = random.standard_normal((n, n)), random.integers(0, 4, n).astype(float)
    basis, edges = np.linalg.qr(half)[0], np.triu(random.random((n, n)) < 0.2, 1)
    joined = (edges | edges.T).astype(float)
    a = [half + half.T, (basis * few) @ basis.T, np.diag(joined.sum(axis=0)) - joined][random.integers(3)]
    graded = np.diag(10.0 ** random.uniform(-3, 3, n))
    line = np.diag(np.full(n, 4.0)) + np.eye(n, k=1) + np.eye(n, k=-1)
    m = [graded, half @ half.T + 0.1 * np.eye(n), np.eye(n) * 10.0 ** random.uniform(-6, 6), line][random.integers(4)]
    a = (a + a.T) / 2 * 10.0 ** random.uniform(-8, 8)
    values = scipy.linalg.eigh(a, m, eigvals_only=True)
    return a, m, values, float(random.choice(values)) if random.random() < 0.7 else 0.0


@pytest.mark.parametrize("seeds", [range(first, first + 25) for first in range(0, 200, 25)], ids=lambda each: str(each[0]))
def test_a_shift_that_is_an_eigenvalue_is_answered_whatever_the_roundoff(seeds):
    for seed in seeds:
        a, m, values, sigma = drawn_problem(seed)
        k, sparse = 1 + seed % 3, seed % 2
        given = (scipy.sparse.csr_array(each) if sparse else each for each in (a, m))
        pairs = oc.eigsh(next(given), k, M=next(given), sigma=sigma, **HOST)
        exact = np.sort(np.abs(values - sigma))[:k]
        off = np.abs(np.sort(np.abs(pairs.eigenvalues - sigma)) - exact).max()
        assert off <= 1e-7 * np.abs(values).max(), seed


def test_no_stiffness_at_all_has_null_vectors():
    pairs = oc.eigsh(np.zeros((40, 40)), 2, M=np.diag(np.arange(1.0, 41.0)), sigma=0.0, **HOST)
    assert np.abs(pairs.eigenvalues).max() == 0


def graded_line(n=400):
    """Linear elements on a line, graded to 1e-5: eigenvalues from 10 to 1e14."""
    h = np.diff(np.r_[0, np.geomspace(1e-5, 1, n)])
    stiff, mass = ([-1 / h[1:-1], 1 / h[:-1] + 1 / h[1:], -1 / h[1:-1]], [h[1:-1] / 6, (h[:-1] + h[1:]) / 3, h[1:-1] / 6])
    return (scipy.sparse.diags_array(each, offsets=[-1, 0, 1]).tocsc() for each in (stiff, mass))


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize("sigma", [100.0, 1e3, 1e6])
def test_those_nearest_a_shift_are_found_in_a_wide_spectrum(sigma, which):
    a, m = graded_line()
    if which == "SA" and sigma == 100:
        with pytest.raises(ValueError, match=r"with sigma, which='SA' .* A has 3 at or below 100\.0, and 396 above it"):
            oc.eigsh(a, 4, M=m, sigma=sigma, which=which, **HOST)
        return
    pairs = oc.eigsh(a, 3, M=m, sigma=sigma, which=which, **HOST)
    assert pairs.eigenvalues == pytest.approx(np.sort(sla.eigsh(a, 3, M=m, sigma=sigma, which=which)[0]), rel=1e-9)
    assert pairs.report.sigma == sigma and not any("singular" in note for note in pairs.report.notes)


@pytest.mark.parametrize("seeds", [range(first, first + 10) for first in range(0, 40, 10)], ids=lambda each: str(each[0]))
def test_masses_of_many_sizes_leave_those_nearest_a_shift(seeds):
    for seed in seeds:
        random = np.random.default_rng(seed)
        n, k, which = int(random.integers(40, 100)), int(random.integers(1, 5)), str(random.choice(["LM", "LA", "SA", "SM"]))
        half, mass = random.standard_normal((n, n)), 10.0 ** random.uniform(-5, 5, n)
        a, root = half + half.T, 1 / np.sqrt(mass)
        values = np.linalg.eigvalsh(root[:, None] * a * root)
        at = int(random.integers(10, n - 10))
        sigma = 0.0 if which == "SM" else float(values[at] + values[at + 1]) / 2
        off = (values - sigma) * {"LA": 1, "SA": -1}.get(which, np.sign(values - sigma))
        exact = np.sort(off[off >= 0])[:k]
        shift = {} if which == "SM" else {"sigma": sigma}
        found = oc.eigsh(scipy.sparse.csr_array(a), k, M=scipy.sparse.diags_array(mass), which=which, **shift, **HOST).eigenvalues
        assert np.abs(np.sort(np.abs(found - sigma)) - exact).max() <= 1e-8 * exact.max() + 1e-13 * np.abs(values).max(), seed


def test_a_shift_that_had_to_be_moved_is_told_and_pairs_are_those_nearest_the_callers():
    a, m = scipy.sparse.diags_array([np.arange(100.0)], offsets=[0]).tocsc(), scipy.sparse.eye_array(100).tocsc()
    pairs = oc.eigsh(a, 3, M=m, sigma=7.0, **HOST)
    assert pairs.eigenvalues == pytest.approx([6, 7, 8])
    assert "A - 7.0 M is singular, or nearly so: the shift that was factored is 6.99" in pairs.report.notes[0]
    assert pairs.report.sigma == pytest.approx(7.0, rel=1e-10)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"sigma": "1"}, TypeError, "sigma is a str; give a real number"),
        ({"sigma": True}, TypeError, "sigma is a bool; give a real number"),
        ({"sigma": 1 + 0j}, TypeError, "sigma is a complex; give a real number"),
        ({"sigma": np.nan}, ValueError, "sigma is nan; give a finite number"),
        ({"sigma": 1.5, "k": 0}, ValueError, "k is 0"),
        ({"sigma": 1.5, "k": "3"}, TypeError, "k is a str"),
        ({"v0": np.ones(60) + 1j}, TypeError, "v0 holds complex128, but starting vectors are real numbers"),
        ({"v0": np.ones((60, 2, 2))}, ValueError, r"v0 has shape \(60, 2, 2\)"),
        ({"v0": np.full(60, np.inf)}, ValueError, "v0 holds inf in row 0"),
        (
            {"M": scipy.sparse.diags_array(np.r_[np.ones(59), np.nan]).tocsr()},
            oc.errors.NonFiniteError,
            r"^M\[59, 59\] is NaN or infinite",
        ),
        ({"M": np.diag(np.r_[np.ones(59), np.inf])}, oc.errors.NonFiniteError, r"^M\[59, 59\] is NaN or infinite"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_factored(options, kind, says):
    a = scipy.sparse.diags_array(np.arange(1.0, 61.0)).tocsr()
    with pytest.raises(kind, match=says):
        oc.eigsh(a, **{"k": 3, "M": scipy.sparse.eye_array(60).tocsr(), **options})
