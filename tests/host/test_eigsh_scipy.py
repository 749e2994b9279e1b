"""``oc.eigsh`` and ``oc.svds`` called as SciPy's users call theirs."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as sla

import ooc_chol as oc
from tests.host.eigen_matrices import check_pairs, with_spectrum
from tests.inside.eigen import OF_EIGSH, OF_SVDS

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

HOST = {"devices": "host:0"}


def grids(m: int, copies: int = 1):
    """Laplacian of square grids that are not connected: 0 has as many null vectors as there are grids."""
    path = scipy.sparse.diags_array([-np.ones(m - 1), np.r_[1, 2 * np.ones(m - 2), 1], -np.ones(m - 1)], offsets=[-1, 0, 1])
    return scipy.sparse.block_diag([scipy.sparse.kronsum(path, path)] * copies, format="csr")


# which and tol


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("options", [{"which": "SM"}, {"sigma": 0}, {"sigma": 1e-9}, {"sigma": -1e-13}])
def test_smallest_pairs_of_laplacians_are_found_with_their_null_vectors(copies, options):
    a = grids(12, copies)
    pairs = oc.eigsh(a, 7, **options, **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(pairs.eigenvalues - np.linalg.eigvalsh(a.toarray())[:7]).max() <= 1e-12
    if not options.get("sigma"):
        assert f"{copies} of these pairs {'is' if copies == 1 else 'are'}, to roundoff, null vectors" in pairs.report.notes[-1]
    assert all(note in str(pairs.report) for note in pairs.report.notes)


def test_a_shift_that_was_taken_in_place_of_sigma_is_noted():
    a = grids(16)
    pairs = oc.eigsh(a, 6, sigma=4.0, **HOST)
    assert pairs.report.sigma != 4.0
    assert pairs.report.notes[0].endswith(f"factored is {pairs.report.sigma!r}") and "A - 4.0 I" in pairs.report.notes[0]
    assert oc.eigsh(a, 6, sigma=-1.0, **HOST).report.notes == ()


def test_smallest_in_magnitude_are_on_both_sides_and_scipys():
    a = with_spectrum(np.r_[np.linspace(-3, -0.1, 150), np.linspace(0.15, 5, 160)])
    pairs = oc.eigsh(a, 6, which="SM", **HOST)
    assert np.abs(pairs.eigenvalues - np.sort(sla.eigsh(a, 6, which="SM", sigma=None, tol=1e-12, ncv=150)[0])).max() <= 1e-10
    assert oc.plan_eigsh(a, 6, which="SM", **HOST).method == "shift-invert"
    with pytest.raises(ValueError, match="OPinv"):
        oc.eigsh(sla.aslinearoperator(a), 6, which="SM")
    for others in ({"preconditioner": np.ones(310)}, {"sigma": 0.5}, {"method": "lobpcg"}):
        with pytest.raises(ValueError, match="SM"):
            oc.eigsh(a, 6, which="SM", **others, **HOST)


@pytest.mark.parametrize(("precision", "least"), [("DDD", 1e-12), ("FDF", 1e-7), ("FFF", 1e-6)])
def test_a_tol_of_0_is_the_least_that_a_precision_reaches(precision, least):
    a = with_spectrum(np.linspace(1, 2, 300) ** 3)
    pairs = oc.eigsh(a, 4, tol=0, precision=precision, **HOST)
    assert pairs.report.tol == least and pairs.residuals.max() <= least
    triplets = oc.svds(a, 4, tol=0, precision=precision, **HOST)
    assert triplets.report.tol == least and triplets.residuals.max() <= least


def test_an_inverse_may_be_a_factor_of_scipys():
    a = grids(16)
    lu = sla.splu((a - 0.5 * scipy.sparse.eye_array(a.shape[0])).tocsc())
    for given in (a, sla.aslinearoperator(a)):
        pairs = oc.eigsh(given, 5, sigma=0.5, OPinv=lu)
        assert np.abs(pairs.eigenvalues - np.sort(sla.eigsh(a, 5, sigma=0.5)[0])).max() <= 1e-12


# words


@pytest.mark.parametrize("call", [oc.eigsh, oc.plan_eigsh, oc.svds, oc.plan_svds], ids=lambda call: call.__name__)
def test_words_of_others_are_answered_with_ours(call):
    for name, advice in (OF_SVDS if "svds" in call.__name__ else OF_EIGSH).items():
        with pytest.raises(TypeError) as told:
            call(np.eye(9), 2, **{name: None})
        assert str(told.value) == f"{call.__name__} has no argument {name}: {advice}"
    with pytest.raises(TypeError, match="has no argument max_passs; did you mean max_passes"):
        call(np.eye(9), 2, max_passs=3)


def test_warnings_are_those_of_the_callers_line():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        oc.eigsh(scipy.sparse.diags_array(np.r_[np.linspace(1, 2, 400), 1e12]).tocsr(), 2, which="SA", method="lanczos", **HOST)
    assert [Path(each.filename) for each in told] == [Path(__file__)]


# results of svds


@pytest.mark.parametrize("shape", [(120, 60), (60, 120), (9, 5)])
def test_singular_triplets_come_back_as_scipys_do(shape):
    a = scipy.sparse.random_array(shape, density=0.2, rng=np.random.default_rng(0)).tocsr()
    triplets = oc.svds(a, 3, **HOST)
    u, s, vt = triplets
    assert len(triplets) == 3 and triplets[0] is u and triplets[1] is s and triplets[-1] is vt
    exact = np.linalg.svd(a.toarray(), compute_uv=False)[2::-1]
    alone = oc.svds(a, 3, return_singular_vectors=False, **HOST)
    assert isinstance(alone, np.ndarray) and np.abs(alone - exact).max() <= 1e-12 * exact[-1]
    for word in ("u", "vh"):
        theirs, found = sla.svds(a, 3, return_singular_vectors=word), oc.svds(a, 3, return_singular_vectors=word, **HOST)
        assert [each is None for each in found] == [each is None for each in theirs]
        assert np.array_equal(found.s, s)
        assert found.residuals.max() <= 1e-10
    assert np.array_equal(oc.svds(a, 3, return_singular_vectors="u", **HOST).u, u)
    assert np.array_equal(oc.svds(a, 3, return_singular_vectors="vh", **HOST).vt, vt)
    for wrong in ("v", 2, None):
        with pytest.raises(ValueError, match="True, False, 'u' or 'vh'"):
            oc.svds(a, 3, return_singular_vectors=wrong, **HOST)
