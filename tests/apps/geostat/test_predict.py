"""Kriging against dense formulas, leave-one-out by two routes, and the promises about variance and order."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import FactorSettings, Matern, cross_covariance, kriging, make_observations, predict
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.5, 0.25, 1.5, 0.05)


def example(n=90, seed=0, q=0, mean="constant"):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    covariates = rng.normal(size=(n, q))
    values = 7 + np.cos(5 * sites[:, 0]) + covariates.sum(axis=1) + 0.2 * rng.normal(size=n)
    return make_observations(sites, values, covariates=covariates, mean=mean)


def universal_kriging(observations, model, sites, design):
    """Mean and variance of the smooth field by the textbook's block matrix."""
    n, p = observations.design.shape
    covariance = cross_covariance(model, observations.coordinates, observations.coordinates) + model.nugget * np.eye(n)
    left = np.block([[covariance, observations.design], [observations.design.T, np.zeros((p, p))]])
    right = np.vstack([cross_covariance(model, observations.coordinates, sites), design.T])
    weights = np.linalg.solve(left, right)
    return weights[:n].T @ observations.values, model.variance - np.sum(weights * right, axis=0)


@pytest.mark.parametrize(("q", "mean"), [(0, "zero"), (0, "constant"), (2, "constant"), (1, "zero")])
@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
def test_equals_universal_kriging_written_out(nu, q, mean):
    observations = example(q=q, mean=mean)
    rng = np.random.default_rng(1)
    sites, covariates = rng.uniform(-0.5, 1.5, size=(40, 2)), rng.normal(size=(40, q))
    model = Matern(1.5, 0.25, nu, 0.05)
    design = np.hstack([np.ones((40, 1)), covariates]) if mean == "constant" else covariates
    expected_mean, expected_variance = universal_kriging(observations, model, sites, design)
    field = predict(observations, model, sites, covariates=covariates, target="field")
    np.testing.assert_allclose(field.mean, expected_mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(field.variance, expected_variance, rtol=TWO_ROUTES, atol=TWO_ROUTES)
    new = predict(observations, model, sites, covariates=covariates)
    assert np.array_equal(new.mean, field.mean)
    np.testing.assert_allclose(new.variance - field.variance, model.nugget, rtol=1e-12)


def test_without_nugget_predictions_at_the_data_are_the_data():
    observations = example()
    there = predict(observations, Matern(1.5, 0.25, 0.5), observations.coordinates)
    np.testing.assert_allclose(there.mean, observations.values, rtol=TWO_ROUTES)
    assert np.all(there.variance <= 1.5 * TWO_ROUTES)


def test_with_nugget_the_field_is_smoothed_at_the_data():
    observations = example()
    there = predict(observations, MODEL, observations.coordinates, target="field")
    residuals = observations.values - there.mean
    assert 0.01 < np.std(residuals) < np.std(observations.values)
    assert np.all(there.variance < MODEL.nugget)


def test_leave_one_out_by_the_inverse_and_by_leaving_out():
    observations = example(q=1)
    n = observations.n
    covariance = cross_covariance(MODEL, observations.coordinates, observations.coordinates) + MODEL.nugget * np.eye(n)
    inverse, x = np.linalg.inv(covariance), observations.design
    # Q = S^-1 - S^-1 X (X' S^-1 X)^-1 X' S^-1; the error at i is (Q z)_i / Q_ii and its variance 1 / Q_ii
    q = inverse - inverse @ x @ np.linalg.solve(x.T @ inverse @ x, x.T @ inverse)
    for i in (0, 41, 89):
        others = observations.take(np.delete(np.arange(n), i))
        left_out = predict(others, MODEL, observations.coordinates[[i]], covariates=observations.design[[i], 1:])
        assert observations.values[i] - left_out.mean[0] == pytest.approx(q[i] @ observations.values / q[i, i], rel=TWO_ROUTES)
        assert left_out.variance[0] == pytest.approx(1 / q[i, i], rel=TWO_ROUTES)


def test_far_away_only_the_trend_is_left():
    observations = example()
    far = predict(observations, MODEL, [[1e3, 1e3]], target="field")
    likelihood = geostat.log_likelihood(observations, MODEL)
    assert far.mean[0] == pytest.approx(likelihood.coefficients[0], rel=TWO_ROUTES)
    assert far.variance[0] == pytest.approx(MODEL.variance + likelihood.coefficient_covariance[0, 0], rel=TWO_ROUTES)
    anywhere = predict(observations, MODEL, np.random.default_rng(2).uniform(-2, 3, size=(200, 2)))
    assert np.all(anywhere.variance <= MODEL.sill + likelihood.coefficient_covariance[0, 0] * (1 + TWO_ROUTES) + TWO_ROUTES)
    assert np.all(anywhere.variance >= MODEL.nugget)


def test_sites_keep_their_order_and_observations_may_have_any():
    observations = example()
    sites = np.random.default_rng(3).uniform(size=(30, 2))
    straight = predict(observations, MODEL, sites)
    backwards = predict(observations.take(np.arange(observations.n)[::-1]), MODEL, sites[::-1])
    np.testing.assert_allclose(backwards.mean[::-1], straight.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(backwards.variance[::-1], straight.variance, rtol=TWO_ROUTES)


def test_batches_and_budgets_do_not_change_predictions():
    observations = example(n=200)
    sites = np.random.default_rng(4).uniform(size=(50, 2))
    with kriging(observations, MODEL) as kriged:
        whole = kriged.predict(sites)
        pieces = kriged.predict(sites, batch_bytes=3 * 8 * observations.n * 7)
        single = kriged.predict(sites, batch_bytes=1)
    small = predict(observations, MODEL, sites, settings=FactorSettings(tile_size=32, memory_budget=60_000))
    for other in (pieces, single, small):
        np.testing.assert_allclose(other.mean, whole.mean, rtol=TWO_ROUTES)
        np.testing.assert_allclose(other.variance, whole.variance, rtol=TWO_ROUTES)


def test_intervals_hold_their_share_of_new_observations():
    rng = np.random.default_rng(5)
    sites = rng.uniform(size=(700, 2))
    covariance = cross_covariance(MODEL, sites, sites) + MODEL.nugget * np.eye(700)
    values = np.linalg.cholesky(covariance) @ rng.normal(size=700)
    prediction = predict(make_observations(sites[:300], values[:300]), MODEL, sites[300:])
    scores = geostat.score(prediction, values[300:], values[:300])
    # 400 values, binomial standard error 0.011
    assert abs(scores.coverage - 0.95) < 0.035
    assert scores.rmse < 0.6 * scores.rmse_of_mean


def test_mismatches_are_named():
    with kriging(example(q=1), MODEL) as kriged:
        with pytest.raises(ValueError, match="pass the same covariates"):
            kriged.predict([[0.5, 0.5]])
        with pytest.raises(ValueError, match="sites have 1 coordinates"):
            kriged.predict([0.5], covariates=[1.0])
        with pytest.raises(ValueError, match="'observation' and 'field'"):
            kriged.predict([[0.5, 0.5]], covariates=[1.0], target="mean")
        with pytest.raises(ValueError, match="covariates have shape"):
            kriged.predict([[0.5, 0.5]], covariates=[1.0, 2.0])
