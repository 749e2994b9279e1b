"""Complex Hermitian matrices: each pair once, orthonormal vectors of eigenvalues of any multiplicity."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as sla

import ooc_chol as oc
from tests.few_eigenvalues import hypercube
from tests.host.eigen_matrices import most_wanted

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

HOST = {"devices": "host:0"}


def hermitian(values, seed: int = 0):
    """A Hermitian array with these eigenvalues."""
    n, rng = len(values), np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)))[0]
    a = q * np.asarray(values, dtype=float) @ q.conj().T
    return (a + a.conj().T) / 2


def sparse_hermitian(n: int, seed: int = 0):
    """A magnetic Laplacian: phases on the edges of a random graph."""
    rng = np.random.default_rng(seed)
    upper = scipy.sparse.triu(scipy.sparse.random_array((n, n), density=6 / n, rng=rng), k=1).tocsr()
    phases = upper.astype(complex)
    phases.data *= np.exp(2j * np.pi * rng.uniform(size=upper.nnz))
    degrees = np.asarray((upper + upper.T).sum(axis=1))
    return (scipy.sparse.diags_array(degrees + 0.1) - phases - phases.conj().T).tocsr()


def check(a, pairs, exact, tol=1e-10):
    w, v = pairs
    scale = np.abs(exact).max()
    assert v.shape == (a.shape[0], len(exact)) and np.iscomplexobj(v)
    assert np.abs(w - exact).max() <= tol * scale
    assert np.abs(v.conj().T @ v - np.eye(len(w))).max() <= 1e-8 if v.dtype == np.complex128 else 1e-4
    norms = np.linalg.norm(a @ v - v * w, axis=0)
    assert norms.max() <= 2 * tol * pairs.report.scale and pairs.residuals.max() <= 2 * tol
    assert np.array_equal(pairs.report.eigenvalues, w) and "A is complex" in pairs.report.notes[-1]


@pytest.mark.parametrize("which", ["LM", "LA", "SA", "SM"])
@pytest.mark.parametrize("form", [lambda a: a, lambda a: a.tocoo(), lambda a: a.toarray(), sla.aslinearoperator])
def test_every_end_and_form_is_lapacks(which, form):
    a = sparse_hermitian(450)
    given, values = form(a), np.linalg.eigvalsh(a.toarray())
    if which == "SM" and isinstance(given, sla.LinearOperator):
        with pytest.raises(ValueError, match="OPinv"):
            oc.eigsh(given, 5, which=which)
        return
    check(a, oc.eigsh(given, 5, which=which), np.sort(most_wanted(values, 5, "SA" if which == "SM" else which)))


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("options", [{"block": 1}, {"block": 2}, {"block": 4}, {}, {"sigma": 4.3}])
def test_multiple_eigenvalues_have_orthonormal_vectors_wherever_k_cuts_them(k, options):
    a = hermitian(np.r_[np.full(3, 5.0), np.full(4, -5.0), np.full(2, 4.0), np.linspace(-1, 1, 191)])
    values = np.linalg.eigvalsh(a)
    which = "LM" if "sigma" in options else "LA"
    exact = values[np.argsort(np.abs(values - 4.3), kind="stable")[:k]] if "sigma" in options else most_wanted(values, k, "LA")
    check(a, oc.eigsh(a, k, which=which, ncv=None if not options else k + 60, **options), np.sort(exact))


@pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning")
@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize("d", [4, 5, 6, 7])
def test_all_copies_at_the_shift_are_found(d, which):
    a, values = hypercube(d)
    phases = scipy.sparse.diags_array(np.exp(2j * np.pi * np.random.default_rng(d).random(2**d)))
    turned = (phases @ a @ phases.conj()).tocsr()
    for sigma in (0.0, 1.0):
        sides = {"LM": values, "LA": values[values >= sigma], "SA": values[values <= sigma]}
        off = np.sort(np.abs(sides[which] - sigma))
        for k in (1, 4, min(8, len(off))):
            for each in (a, turned):
                found = oc.eigsh(each, k, sigma=sigma, which=which, **HOST).eigenvalues
                assert np.abs(np.sort(np.abs(found - sigma)) - off[:k]).max() <= 1e-12


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("seed", range(4))
def test_pairs_near_a_shift_are_scipys(k, seed):
    a = sparse_hermitian(400, seed)
    for sigma, which in ((2.5, "LM"), (2.5, "LA"), (2.5, "SA"), (0.0, "LM")):
        values = np.linalg.eigvalsh(a.toarray())
        off = values - sigma
        nearness = {"LM": np.abs(off), "LA": np.where(off >= 0, off, np.inf), "SA": np.where(off <= 0, -off, np.inf)}[which]
        check(a, oc.eigsh(a, k, sigma=sigma, which=which, **HOST), np.sort(values[np.argsort(nearness, kind="stable")[:k]]))


def test_small_eigenvalues_beside_large_ones_keep_their_digits():
    values = 10.0 ** np.linspace(-6, 8, 300)
    phases = np.exp(1j * np.arange(300.0))
    a = scipy.sparse.diags_array(values).astype(complex).tocsr()
    a = (scipy.sparse.diags_array(phases) @ a @ scipy.sparse.diags_array(phases.conj())).tocsr()
    assert np.abs(oc.eigsh(a, 5, sigma=0, **HOST).eigenvalues / values[:5] - 1).max() <= 1e-12


def test_options_are_of_complex_vectors_too():
    a = sparse_hermitian(400, 2)
    values, vectors = np.linalg.eigh(a.toarray())
    lu = sla.splu((a - 2.5 * scipy.sparse.eye_array(400)).tocsc())
    exact = np.sort(values[np.argsort(np.abs(values - 2.5))[:4]])
    for inverse in (lu, lu.solve, sla.LinearOperator(a.shape, matvec=lu.solve, dtype=complex)):
        check(a, oc.eigsh(sla.aslinearoperator(a), 4, sigma=2.5, OPinv=inverse), exact)
    check(a, oc.eigsh(a, 4, which="SA", v0=vectors[:, :2] @ [1, 1j], **HOST), values[:4])
    check(a, oc.eigsh(a, 4, which="SA", preconditioner=1 / a.diagonal().real, **HOST), values[:4])
    check(a, oc.eigsh(a, 4, which="SA", preconditioner=lambda x: x / a.diagonal().real[:, None], **HOST), values[:4])
    singular = a - values[0] * scipy.sparse.eye_array(400)
    check(singular, oc.eigsh(singular, 3, which="SA", null=vectors[:, 0], **HOST), values[1:4] - values[0])
    plan = oc.plan_eigsh(a, 4, which="SA", **HOST)
    assert plan.problem.n == 800 and np.array_equal(
        oc.eigsh(a, 4, which="SA", plan=plan).eigenvalues, oc.eigsh(a, 4, which="SA", **HOST)[0]
    )
    assert isinstance(oc.eigsh(a, 4, return_eigenvectors=False, **HOST), np.ndarray)


def test_single_precision_has_vectors_of_complex64():
    a = sparse_hermitian(500, 3)
    pairs = oc.eigsh(a.astype(np.complex64), 4, which="LA", **HOST)
    assert pairs.eigenvectors.dtype == np.complex64 and pairs.report.precision.value == "FDF"
    check(a, pairs, np.linalg.eigvalsh(a.toarray())[-4:], 1e-6)


def test_all_pairs_are_there():
    a = hermitian(np.repeat([1.0, 2.0, 3.0], 4))
    check(a, oc.eigsh(a, 12), np.repeat([1.0, 2.0, 3.0], 4))
    with pytest.raises(ValueError, match="k is 13, but A is 12 x 12"):
        oc.eigsh(a, 13)


def test_what_is_not_hermitian_is_refused():
    a = sparse_hermitian(300)
    symmetric = a + 1j * scipy.sparse.eye_array(300)
    for given in (symmetric, symmetric.toarray(), a.real + 1j * a.real):
        with pytest.raises(ValueError, match="A is not Hermitian"):
            oc.eigsh(given, 3)
    with pytest.raises(ValueError, match="not symmetric"):
        oc.eigsh(sla.aslinearoperator(symmetric), 3)
    with pytest.raises(ValueError, match="3 x 4"):
        oc.eigsh(np.zeros((3, 4), complex))
    with pytest.raises(oc.errors.NonFiniteError):
        oc.eigsh(np.diag([1.0, np.nan]).astype(complex), 1)


@pytest.mark.parametrize("size", [1.0, 1e200, 1e-200, 1e-300, 1e300])
@pytest.mark.parametrize("form", [lambda a: a, scipy.sparse.csr_array, sla.aslinearoperator])
def test_residuals_and_bounds_are_of_any_scale(form, size):
    pairs = oc.eigsh(form(hermitian(np.arange(1.0, 61.0)) * size), 2)
    assert pairs.eigenvalues / size == pytest.approx([59, 60])
    assert (pairs.residuals > 0).all() and (pairs.residuals <= 1e-13).all()
    assert pairs.report.bounds == pytest.approx(pairs.residuals * pairs.report.scale, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sigma": 24.9, "which": "LA"}, r"k is 5, but A has 3 at or above 24\.9, and 57 below it; .* or a k up to 3"),
        ({"v0": np.ones(7)}, r"v0 has shape \(7,\); give a vector \(60,\)"),
        ({"v0": np.ones((60, 3)), "block": 2}, r"up to 2 of them as columns \(60, m\)"),
        ({"v0": np.full(60, 1j * np.nan)}, "v0 holds NaN or infinite numbers in row 0"),
        ({"null": np.ones((61, 2)), "which": "SA"}, r"null has shape \(61, 2\); give a vector \(60,\)"),
        ({"null": np.eye(60)[:, :57], "which": "SA"}, "k is 5, but beside 57 null vectors A has 3 eigenpairs"),
        ({"ncv": 6}, "ncv is 6, but 5 eigenpairs need a basis of at least 7 columns"),
        ({"ncv": 6, "block": 4}, "ncv is 6, but 5 eigenpairs with block=4 need a basis of at least 14 columns"),
        ({"preconditioner": np.ones(61), "which": "SA"}, "has shape 61, but A is 60 x 60"),
        ({"preconditioner": scipy.sparse.eye_array(61), "which": "SA"}, "has shape 61 x 61, but A is 60 x 60"),
        (
            {"preconditioner": lambda x: x[:5], "which": "SA"},
            r"preconditioner @ x has shape \(5, \d\) for an x of shape \(60, \d\)",
        ),
        ({"sigma": 0.5, "OPinv": lambda x: x[:5]}, r"OPinv @ x has shape \(5, \d\) for an x of shape \(60, \d\)"),
    ],
)
def test_messages_count_in_the_sizes_of_the_caller(options, says):
    a = hermitian(np.r_[np.linspace(-1, 1, 57), 25.0, 26.0, 27.0])
    with pytest.raises((ValueError, oc.errors.PreconditionerError), match=says):
        oc.eigsh(sla.aslinearoperator(a) if "preconditioner" in options or "OPinv" in options else a, 5, **options, **HOST)


def test_what_lies_beneath_a_mask_is_not_taken():
    a = hermitian(np.arange(9.0))
    assert oc.eigsh(np.ma.array(a), 2).eigenvalues == pytest.approx([7, 8])
    a = np.ma.array(hermitian(np.arange(9.0)), mask=np.eye(9, dtype=bool))
    with pytest.raises(oc.errors.MissingValueError):
        oc.eigsh(a, 2)
    with pytest.raises((ValueError, TypeError)):
        oc.eigsh(hermitian(np.arange(300.0)), 2, v0=np.ma.array(np.ones(300), mask=np.arange(300) < 9))


def test_an_error_holds_complex_pairs():
    a = hermitian(np.r_[50.0, 40.0, np.linspace(0.999, 1, 600)])
    with pytest.raises(oc.errors.NoConvergenceError, match="2 of 4 eigenpairs") as told:
        oc.eigsh(a, 4, which="LA", block=2, ncv=30, max_passes=40)
    error = told.value
    assert error.eigenvalues == pytest.approx([40, 50], abs=1e-8)
    assert np.linalg.norm(a @ error.eigenvectors - error.eigenvectors * error.eigenvalues, axis=0).max() <= 1e-8
