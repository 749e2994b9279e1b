"""Eigenvalues that are small beside the largest: found, or said not to be, and never off by more than is told."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

import ooc_chol as oc
from tests.host.eigen_matrices import most_wanted, with_spectrum
from tests.inside.eigen import lanczos, methods
from tests.products import thorough
from tests.tolerances import unit_roundoff

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "no_lapack", "one_blas_thread")]

HOST = {"devices": "host:0"}


def graded(low: int, high: int, n: int = 300):
    return 10.0 ** np.linspace(low, high, n)


def diagonal(values):
    return scipy.sparse.diags_array(np.asarray(values, dtype=float)).tocsr()


def path(n: int):
    """Laplacian of a path, whose eigenvalues are known."""
    degrees = np.r_[1, 2 * np.ones(n - 2), 1]
    return scipy.sparse.diags_array([-np.ones(n - 1), degrees, -np.ones(n - 1)], offsets=[-1, 0, 1]).tocsr()


# Products do not lead to them: max_passes makes of 800 what 3,000 are of 10,000.


@pytest.mark.parametrize(
    "case",
    [(-3, 3, 6, None), (-12, 4, 3, 2), *thorough((-6, 4, 6, None), (-6, 4, 1, 8), (-2, 4, 4, 4), (-8, 8, 20, 1))],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_graded_ends_come_from_the_inverse_at_zero(case, sign):
    low, high, k, block = case
    values = graded(low, high)
    a, which = diagonal(sign * values), "SA" if sign > 0 else "LA"
    pairs = oc.eigsh(a, k, which=which, block=block, ncv=40, max_passes=1500, **HOST)
    assert np.abs(np.sort(sign * pairs.eigenvalues) / values[:k] - 1).max() <= 1e-10
    report = pairs.report
    assert report.method == "shift-invert" and 800 <= report.passes < 1500 and abs(report.sigma) < values[0]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (aslinearoperator(diagonal(graded(-3, 3))), {}),
        (diagonal(graded(-3, 3)), {"method": "lanczos"}),
        (diagonal(np.r_[-1e-3, graded(-3, 3)]), {}),
    ],
)
def test_a_run_that_leads_nowhere_ends_soon_and_names_sigma(given, options):
    with pytest.raises(oc.errors.NoConvergenceError, match="no digit of these eigenvalues is known") as told:
        oc.eigsh(given, 6, which="SA", block=2, ncv=40, max_passes=1500, **options)
    text = str(told.value)
    assert "give sigma=0" in text and "which='LA'" in text and "values below 2e-13 are roundoff" in text
    assert len(told.value.eigenvalues) == 0


def test_slow_runs_that_get_there_are_let(monkeypatch):
    """A path of 1,000 vertices and 600 products is what one of 5,000 and 10,000 is, in a tenth of the time."""
    monkeypatch.setattr(lanczos, "_UNRESOLVED", 80)
    pairs = oc.eigsh(path(1000), 6, which="SA", max_passes=600, **HOST)
    assert pairs.report.method == "lanczos" and pairs.report.passes > 300
    assert np.abs(pairs.eigenvalues - 2 + 2 * np.cos(np.pi * np.arange(6) / 1000)).max() <= 1e-12


@pytest.mark.thorough
@pytest.mark.parametrize("n", [2000, 3000, 5000])
def test_longer_paths_get_there(n):
    pairs = oc.eigsh(path(n), 6, which="SA", block=8, ncv=102, **HOST)
    assert pairs.report.method == "lanczos" and pairs.report.passes > 800
    assert np.abs(pairs.eigenvalues - 2 + 2 * np.cos(np.pi * np.arange(6) / n)).max() <= 1e-12


# small beside the largest: bounds hold

MIXED = {
    "one large": np.r_[np.linspace(1, 2, 400), 1e12],
    "one large, smaller": np.r_[np.linspace(1, 2, 400), 1e6],
    "some large": np.r_[np.linspace(-2, 2, 300), 1e9 * np.arange(1, 9)],
    "both signs": np.r_[np.linspace(1, 2, 300), -1e8, 1e9],
    "three sizes": np.r_[np.linspace(1, 2, 100) * 1e-3, np.linspace(1, 2, 100), 1e7 * np.linspace(1, 2, 100)],
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("form", [lambda a: a, aslinearoperator])
@pytest.mark.parametrize("options", [{}, {"degree": None}, *thorough({"tol": 1e-12}, {"block": 1})])
def test_no_value_is_off_by_more_than_its_bound(name, turned, form, options):
    values = MIXED[name]
    a = with_spectrum(values) if turned else diagonal(values)
    for which in ("SA", "LA"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", oc.errors.PrecisionWarning)
            try:
                pairs = oc.eigsh(form(a), 3, which=which, max_passes=300, **options)
                found, bounds = pairs.eigenvalues, pairs.report.bounds
                assert np.abs(found - most_wanted(values, 3, which)).max() <= 1e-10 * np.abs(values).max()
            except oc.errors.NoConvergenceError as told:
                found, bounds = told.eigenvalues, told.residuals * np.abs(values).max()
        roundoff = 64 * unit_roundoff(np.float64) * np.abs(values).max()  # which the entries of a turned matrix have, too
        assert np.all(np.abs(values[:, None] - found).min(axis=0) <= bounds + roundoff)


@pytest.mark.parametrize("size", [1e9, 1e12])
def test_values_of_which_few_digits_are_known_warn_and_sigma_has_all(size):
    values = np.r_[np.linspace(1, 2, 400), size]
    with pytest.warns(oc.errors.PrecisionWarning, match=r"few of their digits are known.*sigma=0"):
        pairs = oc.eigsh(diagonal(values), 2, which="SA", **HOST)
    shown = np.array(re.findall(r"(\d\S*) \+- (\S+)", str(pairs.report)), dtype=float)
    np.testing.assert_allclose(np.sort(shown[:, 0]), np.sort(pairs.eigenvalues), rtol=1e-9)
    np.testing.assert_allclose(np.sort(shown[:, 1]), np.sort(pairs.report.bounds), rtol=0.06)  # two digits
    assert np.all(np.abs(values[:, None] - shown[:, 0]).min(axis=0) <= shown[:, 1])
    assert np.abs(oc.eigsh(diagonal(values), 2, sigma=0.0, **HOST).eigenvalues / values[:2] - 1).max() <= 1e-12


def test_zeros_and_what_has_its_digits_do_not_warn():
    for a, k in (
        (path(300), 4),
        (diagonal(MIXED["one large, smaller"]), 2),
        (diagonal(np.r_[np.zeros(5), np.linspace(1, 2, 300), 1e6]), 5),
    ):
        oc.eigsh(a, k, which="SA", **HOST)


LOW = {  # values that are small beside the largest, on both sides of 0 or on one
    "both sides, many": np.r_[np.linspace(-2, 2, 300), 1e9 * np.arange(1, 9)],
    "both sides, one": np.r_[np.linspace(-2, 2, 400), 8e9],
    "both sides, tiny": np.r_[np.linspace(-1e-3, 1e-3, 40), graded(-1, 9, 100)],
    "one side": np.r_[np.linspace(1, 2, 400), 1e12],
    "one side, graded": graded(-6, 8),
}


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize(("n", "size", "seed"), [(60, 1e12, 1), (60, 1e13, 3), (60, 1e14, 3), (60, 1e15, 3)])
def test_a_symmetric_matrix_is_not_refused_for_what_roundoff_makes_of_its_inverse(which, n, size, seed, monkeypatch):
    values = np.r_[np.linspace(1, 2, n), size]
    a, sigma = with_spectrum(values, seed), float(values[n // 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oc.errors.PrecisionWarning)
        pairs = oc.eigsh(a, 5, sigma=sigma, which=which, **HOST)
    roundoff = 64 * unit_roundoff(np.float64) * size
    assert np.all(np.abs(values[:, None] - pairs.eigenvalues).min(axis=0) <= pairs.report.bounds + roundoff)
    assert pairs.report.method == "dense"
    monkeypatch.setattr(methods, "MOST_DENSE", 0)
    with pytest.raises(oc.errors.SingularMatrixError, match="what SuperLU makes of the inverse differs from its transpose"):
        oc.eigsh(a, 5, sigma=sigma, which=which, **HOST)


def test_a_cluster_beside_another_shift_is_found_by_looking_for_all_of_it():
    values = LOW["both sides, tiny"]
    pairs = oc.eigsh(with_spectrum(values), 3, sigma=0.0, which="LA", **HOST)
    cluster = int(np.count_nonzero(np.abs(values) < 0.1))
    assert abs(pairs.report.sigma) > 1 and cluster == 40 and pairs.report.passes < 600
    wanted = np.sort(values[values > 0])[:3]
    assert np.abs(pairs.eigenvalues - wanted).max() <= pairs.report.bounds.max()


SMALLEST = {"which": "SA", "block": 2, "ncv": 40, "max_passes": 1500}


@pytest.mark.parametrize(
    ("name", "turned", "options"),
    [
        *((name, turned, {"sigma": 0.0}) for name in LOW for turned in (False, True)),
        *((name, True, {"sigma": 0.0, "which": "LA"}) for name in LOW),
        ("both sides, tiny", True, SMALLEST),
        ("one side, graded", True, SMALLEST),
    ],
)
def test_low_values_beside_huge_ones_are_right_or_said_not_to_be_known(name, turned, options):
    a = with_spectrum(LOW[name]) if turned else diagonal(LOW[name])
    scale, values = np.abs(LOW[name]).max(), np.sort(LOW[name])
    if "sigma" in options:
        values = values[values > 0] if "which" in options else values[np.argsort(np.abs(values), kind="stable")]
    exact = np.sort(values[:3])
    roundoff = 64 * unit_roundoff(np.float64) * scale
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", oc.errors.PrecisionWarning)
        try:
            pairs = oc.eigsh(a, 3, **options, **HOST)
        except oc.errors.NoConvergenceError as error:
            assert "sigma" not in options and "are roundoff" in str(error)
            return
    sizes = [np.abs(np.abs(pairs.eigenvalues) - each).min() for each in np.abs(exact)]
    if told:
        assert "few of their digits" in str(told[0].message) and max(sizes) <= pairs.report.bounds.max() + roundoff
    else:
        assert np.all(sizes <= 5e-3 * np.abs(exact) + (roundoff if turned else 0.0))
