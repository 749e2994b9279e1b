"""Observations with known error variances: everything that is computed of them against dense formulas and brute force."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    GeometricAnisotropy,
    Matern,
    cross_validate,
    fit,
    infer,
    leave_one_out,
    log_likelihood,
    log_likelihood_gradient,
    make_observations,
    predict,
    prediction_efficiency,
    profile_likelihood,
    profile_log_likelihood,
    profile_log_likelihood_gradient,
    simulate,
    simulate_conditional,
    standardised_residuals,
)
from tests.apps.geostat.differences import FIVE, close, dense, difference
from tests.apps.geostat.geostat_tolerances import (
    ESTIMATE_ERRORS,
    FIVE_POINTS,
    MONTE_CARLO_DEVIATIONS,
    MONTE_CARLO_ERRORS,
    TWO_ROUTES,
)
from tests.inside.geostat import LikelihoodOptions, Objective, SilentProgress, independent_loglik, search_space

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.3, 0.25, 1.5, 0.05)


def example(n=60, seed=0, *, errors=None, **options):
    """Values with errors of variances between 0 and 0.4, one in ten without."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    variances = np.where(rng.uniform(size=n) < 0.1, 0.0, rng.uniform(0.01, 0.4, size=n)) if errors is None else errors
    values = 3 + np.sin(4 * sites[:, 0]) + np.sqrt(variances + 0.01) * rng.normal(size=n)
    return make_observations(sites, values, covariates=sites[:, 1] ** 2, error_variances=variances, **options)


def matrix(model, observations):
    return dense(model, observations.coordinates) + np.diag(observations.error_variances)


@pytest.mark.parametrize("reml", [False, True])
def test_likelihood_is_the_density(reml):
    observations = example()
    covariance, found = matrix(MODEL, observations), log_likelihood(observations, MODEL, reml=reml)
    if reml:
        contrasts = null_space(observations.design.T)
        expected = multivariate_normal(cov=contrasts.T @ covariance @ contrasts).logpdf(contrasts.T @ observations.values)
    else:
        expected = multivariate_normal(observations.design @ found.coefficients, covariance).logpdf(observations.values)
    assert found.loglik == pytest.approx(expected, rel=TWO_ROUTES)
    plain = replace(observations, error_variances=np.zeros(observations.n))
    assert log_likelihood(plain, MODEL).loglik == pytest.approx(
        log_likelihood(replace(observations, error_variances=None), MODEL).loglik, rel=TWO_ROUTES
    )


@pytest.mark.parametrize("reml", [False, True])
def test_gradient_and_information(reml):
    observations = example()
    found = log_likelihood_gradient(observations, MODEL, reml=reml, information=True)
    for name, ours in zip(found.names, found.gradient, strict=True):

        def value(x, name=name):
            return log_likelihood(observations, replace(MODEL, **{name: x}), reml=reml).loglik

        close(ours, difference(value, getattr(MODEL, name)), 1 / getattr(MODEL, name))
    p = np.linalg.inv(matrix(MODEL, observations))
    if reml:
        x = observations.design
        p -= p @ x @ np.linalg.solve(x.T @ p @ x, x.T @ p)

    def slope(name):
        x = getattr(MODEL, name)
        at = {offset: matrix(replace(MODEL, **{name: x * math.exp(2e-3 * offset)}), observations) for offset, _ in FIVE}
        return sum(weight * at[offset] for offset, weight in FIVE) / (2e-3 * x)

    products = [p @ slope(name) for name in found.names]
    expected = np.array([[0.5 * np.sum(a * b.T) for b in products] for a in products])
    np.testing.assert_allclose(found.information, expected, rtol=FIVE_POINTS)
    exact = log_likelihood_gradient(observations, MODEL, reml=reml, traces="exact").gradient
    np.testing.assert_allclose(exact, found.gradient, rtol=TWO_ROUTES, atol=TWO_ROUTES * observations.n)
    probed = log_likelihood_gradient(observations, MODEL, reml=reml, traces="probes", probes=400)
    assert np.all(np.abs(probed.gradient - found.gradient) < MONTE_CARLO_ERRORS * probed.standard_error)


def test_the_variance_cannot_be_profiled_unless_a_nugget_ties_it():
    observations, correlation = example(), Matern(1.0, 0.25, 1.5, 0.04)
    for of in (profile_log_likelihood, profile_log_likelihood_gradient):
        with pytest.raises(ValueError, match="is therefore not profiled out"):
            of(observations, correlation)
    model = Matern(0.5, 0.25, 1.5, 0.02)
    tied = profile_log_likelihood_gradient(observations, correlation, nugget=0.02)
    assert tied.likelihood.loglik == pytest.approx(log_likelihood(observations, model).loglik, rel=TWO_ROUTES)

    def value(x):
        return profile_log_likelihood(observations, replace(correlation, nugget=x), nugget=0.02).loglik

    close(tied.gradient[-1], difference(value, 0.04), 1 / 0.04)


@pytest.mark.parametrize("nugget", ["free", "zero", 0.03])
def test_search_has_gradients_by_its_own_coordinates(nugget):
    observations = example()
    space = search_space(observations, nugget, None)
    assert ("variance" in space.names) == (nugget != 0.03)
    objective = Objective(observations, space, LikelihoodOptions(), SilentProgress())
    point = space.point(replace(MODEL, nugget=0.0 if nugget == "zero" else 0.05))
    known = objective.at(point, gradient=True, information=True)
    if nugget == "free":
        assert known.loglik == pytest.approx(log_likelihood(observations, MODEL).loglik, rel=TWO_ROUTES)
    for k, ours in enumerate(known.gradient):
        step = 2e-3 * np.eye(len(point))[k]
        close(ours, sum(-weight * objective(point + offset * step) for offset, weight in FIVE) / 2e-3, observations.n)
    assert np.all(np.linalg.eigvalsh(known.information) > 0)


def test_equal_error_variances_are_a_nugget():
    errors = np.full(50, 0.05)
    known = example(50, 3, errors=errors)
    plain = replace(known, error_variances=None)
    options = {"smoothness": 1.5, "method": "fisher", "tolerance": 1e-8, "reml": True}
    with_errors, kept = fit(known, nugget="zero", **options), fit(plain, nugget=0.05, **options)
    assert with_errors.loglik == pytest.approx(kept.loglik, abs=1e-6)
    assert with_errors.model.range == pytest.approx(kept.model.range, rel=1e-3)
    assert with_errors.model.variance == pytest.approx(kept.model.variance, rel=1e-3)
    assert with_errors.estimated == kept.estimated == ("range", "variance")


def test_fits_by_every_method_agree_and_find_the_truth():
    truth = Matern(2.0, 0.12, 1.5, 0.0)
    rng = np.random.default_rng(7)
    sites, errors = rng.uniform(size=(110, 2)), rng.uniform(0.05, 3.0, size=110)
    values = simulate(truth, sites, seed=3, target="observation", error_variances=errors)[0]
    observations = make_observations(sites, values, error_variances=errors)
    results = [fit(observations, smoothness=1.5, nugget="zero", method=method) for method in (None, "cobyqa", "lbfgs")]
    first = results[0]
    assert first.method == "fisher" and all(result.converged for result in results)
    assert max(result.loglik for result in results) - min(result.loglik for result in results) < 0.01
    assert set(first.evaluations[0].values) == {"range", "smoothness", "nugget_ratio", "variance"}
    found = infer(observations, first.model, estimated=first.estimated)
    for name in ("range", "variance"):
        deviation = math.log(getattr(first.model, name) / getattr(truth, name))
        assert abs(deviation) < ESTIMATE_ERRORS * found.parameters[name].standard_error / getattr(first.model, name)
    # who takes the errors for equal ones fits worse, and a family from a start of another size ends at the same place
    assert fit(make_observations(sites, values), smoothness=1.5).loglik < first.loglik - 2
    start = GeometricAnisotropy(Matern(1e-3, 0.3, 1.5), angle=0.0, ratio=1.0)
    family = fit(observations, covariance=start, fixed=("smoothness", "angle", "ratio"), nugget="zero")
    assert family.loglik == pytest.approx(first.loglik, abs=0.01)


def test_a_checkpoint_knows_the_errors(tmp_path):
    observations, log = example(), tmp_path / "log.jsonl"
    options = {"smoothness": 1.5, "nugget": "zero"}
    first = fit(observations, checkpoint=log, **options)
    again = fit(observations, checkpoint=log, **options)
    assert again.report.resumed == len(first.evaluations) and again.loglik == first.loglik and again.model == first.model
    other = replace(observations, error_variances=2 * observations.error_variances)
    with pytest.raises(oc.errors.CheckpointError, match="observations"):
        fit(other, checkpoint=log, **options)


@pytest.mark.parametrize("nugget", [0.0, 0.02])
def test_profile_is_the_maximum_at_each_value(nugget):
    observations = example(40)
    result = fit(observations, smoothness=1.5, nugget=nugget, tolerance=1e-6)
    assert "nugget" not in result.estimated and result.model.nugget == nugget
    profile = profile_likelihood(observations, result.model, "range", [0.2, 0.4], estimated=result.estimated)
    for value, loglik in zip(profile.values, profile.loglik, strict=True):

        def minus(t, value=value):
            return -log_likelihood(observations, Matern(math.exp(t), float(value), 1.5, nugget)).loglik

        assert loglik == pytest.approx(-minimize_scalar(minus, bounds=(-5, 5), method="bounded").fun, abs=1e-4)


@pytest.mark.parametrize("reml", [False, True])
def test_independent_values_with_errors(reml):
    observations = example()
    field = Matern(0.3, 1e-9, 0.5)
    expected = minimize_scalar(
        lambda t: -log_likelihood(observations, replace(field, variance=math.exp(t)), reml=reml).loglik,
        bounds=(-6, 1),
        method="bounded",
    )
    assert independent_loglik(observations, reml) == pytest.approx(-expected.fun, abs=1e-4)


def dense_kriging(observations, model, sites, design):
    """Universal kriging of the field by formulas."""
    s = matrix(model, observations)
    c = model.covariance(np.linalg.norm(observations.coordinates[:, None] - sites[None], axis=2))
    x = observations.design
    inverse = np.linalg.inv(s)
    gap = design.T - x.T @ inverse @ c
    coefficients = np.linalg.inv(x.T @ inverse @ x)
    weights = inverse @ (c + x @ coefficients @ gap)
    variance = model.variance - np.sum(c * (inverse @ c), axis=0) + np.sum(gap * (coefficients @ gap), axis=0)
    return weights.T @ observations.values, variance


def test_kriging_and_what_an_observation_is():
    observations, sites = example(), np.random.default_rng(1).uniform(size=(7, 2))
    columns, design = sites[:, 1] ** 2, np.column_stack([np.ones(7), sites[:, 1] ** 2])
    mean, variance = dense_kriging(observations, MODEL, sites, design)
    field = predict(observations, MODEL, sites, covariates=columns, target="field")
    np.testing.assert_allclose(field.mean, mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(field.variance, variance, rtol=TWO_ROUTES)
    plain = predict(observations, MODEL, sites, covariates=columns)
    np.testing.assert_allclose(plain.variance, variance + MODEL.nugget, rtol=TWO_ROUTES)
    errors = np.linspace(0.0, 0.6, 7)
    measured = predict(observations, MODEL, sites, covariates=columns, error_variances=errors)
    np.testing.assert_allclose(measured.variance, variance + MODEL.nugget + errors, rtol=TWO_ROUTES)
    with pytest.raises(ValueError, match="target='observation'"):
        predict(observations, MODEL, sites, covariates=columns, target="field", error_variances=errors)
    assert prediction_efficiency(observations, sites, truth=MODEL, other=MODEL, covariates=columns).mloe < TWO_ROUTES
    white = standardised_residuals(observations, MODEL)
    assert white @ white == pytest.approx(log_likelihood(observations, MODEL).quadratic / MODEL.variance, rel=TWO_ROUTES)


def test_cross_validation_is_kriging_of_an_observation_with_its_error():
    observations = example(24)
    labels = np.arange(24) % 4
    alone, folds = leave_one_out(observations, MODEL), cross_validate(observations, MODEL, folds=labels)
    for found, groups in ((alone, [np.array([k]) for k in range(24)]), (folds, [np.flatnonzero(labels == k) for k in range(4)])):
        for group in groups:
            rest = observations.take(np.setdiff1d(np.arange(24), group))
            places, columns = observations.coordinates[group], observations.design[group, 1]
            errors = observations.error_variances[group]
            expected = predict(rest, MODEL, places, covariates=columns, error_variances=errors)
            np.testing.assert_allclose(found.prediction.mean[group], expected.mean, rtol=TWO_ROUTES)
            np.testing.assert_allclose(found.prediction.variance[group], expected.variance, rtol=TWO_ROUTES)


@pytest.mark.parametrize("target", ["field", "observation"])
def test_conditional_draws_have_the_moments_of_kriging(target):
    observations, sites = example(40), np.random.default_rng(2).uniform(size=(6, 2))
    errors = np.linspace(0.1, 2.0, 6) if target == "observation" else None
    options = {"covariates": sites[:, 1] ** 2, "target": target, "error_variances": errors}
    draws = simulate_conditional(observations, MODEL, sites, draws=4000, seed=5, **options)
    expected = predict(observations, MODEL, sites, **options)
    assert np.all(np.abs(draws.mean(axis=0) - expected.mean) < MONTE_CARLO_DEVIATIONS * expected.standard_error / np.sqrt(4000))
    assert np.all(np.abs(draws.var(axis=0) / expected.variance - 1) < MONTE_CARLO_DEVIATIONS * np.sqrt(2 / 4000))


def test_variogram_envelope_has_the_errors():
    """Of values that are nothing but errors the envelope is about their mean variance."""
    sites = np.random.default_rng(4).uniform(size=(60, 2))
    observations = make_observations(sites, np.arange(60.0), mean="zero", error_variances=np.linspace(1.0, 3.0, 60))
    variogram = geostat.empirical_variogram(observations)
    envelope = geostat.variogram_envelope(observations, Matern(1e-6, 0.1, 0.5), variogram, simulations=99)
    assert np.all((envelope.lower < 2.0) & (envelope.upper > 2.0))


def test_duplicates_need_an_error_or_a_nugget():
    sites = np.random.default_rng(0).uniform(size=(20, 2))
    sites[1] = sites[0]
    values, errors = np.sin(5 * sites[:, 0]), np.full(20, 0.1)
    errors[0] = 0.0
    one = make_observations(sites, values, error_variances=errors)
    assert one.duplicates == 1
    assert math.isfinite(fit(one, smoothness=0.5, nugget="zero").loglik)
    errors[1] = 0.0
    with pytest.raises(ValueError, match=r"observations 0 and 1 .* share a place"):
        fit(make_observations(sites, values, error_variances=errors), smoothness=0.5, nugget="zero")


@pytest.mark.parametrize(
    ("errors", "message"),
    [([0.1] * 9, "shape"), ([0.1] * 9 + [-1.0], "observation 9"), ([float("nan")] + [0.1] * 9, "observation 0")],
)
def test_error_variances_are_checked(errors, message):
    sites = np.random.default_rng(0).uniform(size=(10, 2))
    with pytest.raises(ValueError, match=message):
        make_observations(sites, sites[:, 0], error_variances=errors)


def test_result_is_plain_data():
    result = fit(example(), smoothness=1.5)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["estimated"] == ["range", "variance", "nugget"]
