"""Gradients against differences of the value, dense formulas and identities; estimates against their own standard errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import FactorSettings, Matern, make_observations
from tests.apps.geostat.differences import close, dense, difference
from tests.apps.geostat.few_tiles import (
    log_likelihood,
    log_likelihood_gradient,
    profile_log_likelihood,
    profile_log_likelihood_gradient,
)
from tests.apps.geostat.geostat_tolerances import FIVE_POINTS, MONTE_CARLO_ERRORS, TWO_ROUTES
from tests.inside.geostat import random_signs, scores
from tests.inside.process import team

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def example(n=120, seed=0, **options):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    values = 3 + np.sin(4 * sites[:, 0]) + 0.1 * rng.normal(size=n)
    return make_observations(sites, values, covariates=sites[:, 1] ** 2, **options)


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("nu", [0.5, 0.8, 2.5])
def test_gradient_equals_differences_of_the_value(nu, reml):
    observations, model = example(), Matern(1.3, 0.25, nu, 0.05)
    found = log_likelihood_gradient(observations, model, reml=reml)
    assert found.names == ("range", "smoothness", "variance", "nugget") and not found.standard_error.any()
    for name, ours in zip(found.names, found.gradient, strict=True):

        def value(x, name=name):
            return log_likelihood(observations, replace(model, **{name: x}), reml=reml).loglik

        close(ours, difference(value, getattr(model, name)), 1 / getattr(model, name))


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("nugget", [None, 0.02])
def test_profile_gradient_equals_differences_of_the_profile(nugget, reml):
    observations, correlation = example(), Matern(1.0, 0.25, 1.5, 0.04)
    found = profile_log_likelihood_gradient(observations, correlation, nugget=nugget, reml=reml)
    assert found.names == ("range", "smoothness", "nugget_ratio")
    for field, ours in zip(("range", "smoothness", "nugget"), found.gradient, strict=True):

        def value(x, field=field):
            return profile_log_likelihood(observations, replace(correlation, **{field: x}), nugget=nugget, reml=reml).loglik

        close(ours, difference(value, getattr(correlation, field)), 1 / getattr(correlation, field))
    plain = profile_log_likelihood(observations, correlation, nugget=nugget, reml=reml)
    assert found.likelihood.loglik == plain.loglik


@pytest.mark.parametrize("reml", [False, True])
def test_score_along_the_profiled_variance_is_zero(reml):
    observations = example()
    model = profile_log_likelihood(observations, Matern(1.0, 0.25, 1.5, 0.04), reml=reml).model
    gradient = log_likelihood_gradient(observations, model, reml=reml).gradient
    along = model.variance * gradient[2] + model.nugget * gradient[3]
    assert abs(along) <= TWO_ROUTES * observations.n


def test_gradient_does_not_depend_on_order_tiles_or_store(tmp_path):
    observations, model = example(n=300), Matern(1.3, 0.25, 1.5, 0.05)
    expected = log_likelihood_gradient(observations, model).gradient
    shuffled = observations.take(np.random.default_rng(6).permutation(300))
    small = FactorSettings(tile_size=32, memory_budget=100_000, store=tmp_path / "factor")
    for found in (log_likelihood_gradient(shuffled, model), log_likelihood_gradient(observations, model, settings=small)):
        np.testing.assert_allclose(found.gradient, expected, rtol=TWO_ROUTES)


@pytest.mark.parametrize("mean", ["constant", "zero"])
def test_restricted_likelihood_is_the_density_of_contrasts(mean):
    observations, model = example(mean=mean), Matern(1.3, 0.25, 1.5, 0.05)
    contrasts = null_space(observations.design.T)
    covariance = contrasts.T @ dense(model, observations.coordinates) @ contrasts
    direct = multivariate_normal(cov=covariance).logpdf(contrasts.T @ observations.values)
    assert log_likelihood(observations, model, reml=True).loglik == pytest.approx(direct, rel=TWO_ROUTES)


def test_without_mean_the_two_likelihoods_are_one():
    sites = np.random.default_rng(1).uniform(size=(60, 2))
    observations = make_observations(sites, np.sin(5 * sites[:, 0]), mean="zero")
    model = Matern(1.0, 0.3, 1.5, 0.01)
    plain, restricted = (log_likelihood_gradient(observations, model, reml=reml) for reml in (False, True))
    assert restricted.likelihood.loglik == pytest.approx(plain.likelihood.loglik, rel=TWO_ROUTES)
    np.testing.assert_allclose(restricted.gradient, plain.gradient, rtol=TWO_ROUTES)


def dense_information(observations, model, reml):
    """``1/2 tr(P dS_i P dS_j)`` with derivatives of the dense matrix by five points."""
    covariance = dense(model, observations.coordinates)
    p = np.linalg.inv(covariance)
    if reml:
        x = observations.design
        p -= p @ x @ np.linalg.solve(x.T @ p @ x, x.T @ p)
    derivatives = [
        difference(lambda x, name=name: dense(replace(model, **{name: x}), observations.coordinates), getattr(model, name))
        for name in ("range", "smoothness", "variance", "nugget")
    ]
    return np.array([[0.5 * np.trace(p @ a @ p @ b) for a in derivatives] for b in derivatives])


@pytest.mark.parametrize("reml", [False, True])
def test_information_equals_the_dense_formula(reml):
    observations, model = example(), Matern(1.3, 0.25, 1.5, 0.05)
    found = log_likelihood_gradient(observations, model, reml=reml, information=True)
    np.testing.assert_allclose(found.information, dense_information(observations, model, reml), rtol=FIVE_POINTS)
    # the route by dense arrays gives the same gradient
    plain = log_likelihood_gradient(observations, model, reml=reml)
    np.testing.assert_allclose(found.gradient, plain.gradient, rtol=TWO_ROUTES)


@pytest.mark.parametrize("reml", [False, True])
def test_probes_agree_within_their_standard_errors(reml):
    observations, model = example(n=200), Matern(1.3, 0.25, 1.5, 0.05)
    exact = log_likelihood_gradient(observations, model, reml=reml, information=True)
    few, many = (
        log_likelihood_gradient(observations, model, reml=reml, traces="probes", information=True, probes=probes, seed=1)
        for probes in (50, 800)
    )
    for found in (few, many):
        assert np.all(np.abs(found.gradient - exact.gradient) <= MONTE_CARLO_ERRORS * found.standard_error)
        gap = np.abs(found.information - exact.information)
        assert np.all(gap <= MONTE_CARLO_ERRORS * found.information_error + TWO_ROUTES * np.abs(exact.information))
        assert np.all(np.linalg.eigvalsh(found.information) > 0)
    # sixteen times the probes: a quarter of the error
    assert np.all(many.standard_error < 0.4 * few.standard_error)
    assert np.all(few.standard_error > 0)


def test_probes_are_those_of_the_seed():
    observations, model = example(), Matern(1.3, 0.25, 1.5, 0.05)
    first, again, other = (
        log_likelihood_gradient(observations, model, traces="probes", probes=8, seed=seed).gradient for seed in (3, 3, 4)
    )
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize("reml", [False, True])
def test_threads_change_no_bit_of_estimates_by_probes(reml, monkeypatch):
    observations, model = example(n=200), Matern(1.3, 0.25, 1.5, 0.05)
    whole = log_likelihood_gradient(observations, model, reml=reml, traces="probes", probes=9).gradient
    monkeypatch.setattr(scores, "_SUMMED_ROWS", 64)
    answers = []
    for entries, shared, share in ((1 << 20, 1 << 24, 1 << 20), (0, 0, 64)):
        monkeypatch.setattr(scores, "_LEAST_SUMMED", entries)
        monkeypatch.setattr(team, "_LEAST_SHARED", shared)
        monkeypatch.setattr(team, "_LEAST_SHARE", share)
        answers.append(log_likelihood_gradient(observations, model, reml=reml, traces="probes", information=True, probes=9))
    for name in ("gradient", "standard_error", "information", "information_error"):
        assert np.array_equal(*(getattr(found, name) for found in answers))
    np.testing.assert_allclose(answers[0].gradient, whole, rtol=1e-12)


@pytest.mark.parametrize(("n", "probes"), [(1, 2), (7, 3), (1000, 64)])
def test_probes_are_those_that_numpy_chooses(n, probes):
    signs = random_signs(n, probes, seed=5)
    assert np.array_equal(signs, np.random.default_rng(5).choice([-1.0, 1.0], size=(n, probes)))
    assert signs.dtype == np.float64 and signs.flags.c_contiguous


@pytest.mark.parametrize(
    ("options", "words"),
    [({"traces": "some"}, "'auto', 'exact' and 'probes'"), ({"traces": "probes", "probes": 1}, "at least 2")],
)
def test_wrong_choices_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        log_likelihood_gradient(example(), Matern(1.3, 0.25, 1.5, 0.05), **options)


# T8: published maxima for the Meuse data, log(zinc), coordinates in kilometres


@pytest.mark.parametrize(
    ("with_distance", "variance", "length", "nugget"),
    [(False, 1.476355, 1.214162, 0.0), (False, 1.849918, 2.144918, 0.034656), (True, 0.143261, 0.169799, 0.045247)],
)
def test_gradient_vanishes_at_published_maxima(data_dir, with_distance, variance, length, nugget):
    table = geostat.read_table(data_dir / "meuse.csv", ("x", "y", "zinc", "dist"))
    covariates = np.sqrt(table.columns["dist"]) if with_distance else None
    observations = make_observations(table.stack(("x", "y")) / 1000, np.log(table.columns["zinc"]), covariates=covariates)
    found = log_likelihood_gradient(observations, Matern(variance, length, 0.5, nugget), information=True)
    # half a unit of the sixth decimal of every parameter that was estimated, seen through the information; and where an optimiser
    # stops, at a hundredth of a standard error from the top, 5e-5 below it
    estimated = [0, 2, 3] if nugget else [0, 2]
    information = found.information[np.ix_(estimated, estimated)]
    allowed = 0.5e-6 * np.abs(information).sum(axis=1) + 1e-2 * np.sqrt(np.diag(information))
    assert np.all(np.abs(found.gradient[estimated]) <= allowed)


def anisotropic():
    sites = np.random.default_rng(2).uniform(size=(60, 2))
    base = Matern(1.3, 0.3, 0.8, 0.05)
    return make_observations(sites, np.sin(5 * sites[:, 0])), geostat.GeometricAnisotropy(base, 0.5, 0.6)


def test_any_covariance_with_derivatives_has_a_gradient():
    observations, model = anisotropic()
    found = log_likelihood_gradient(observations, model)
    assert found.names == (*model.parameters, "variance", "nugget")
    values = {"angle": 0.5, "ratio": 0.6, "range": 0.3, "smoothness": 0.8, "variance": 1.3, "nugget": 0.05}
    for name, ours in zip(found.names, found.gradient, strict=True):

        def value(x, name=name):
            return log_likelihood(observations, model.with_values(**{name: x})).loglik

        close(ours, difference(value, values[name]), 1 / values[name])
