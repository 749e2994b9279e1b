"""Scores of predictions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from ooc_chol.apps.geostat import (
    Matern,
    Prediction,
    coverage,
    cross_covariance,
    gaussian_crps,
    gaussian_log_score,
    interval_score,
    make_observations,
    prediction_efficiency,
    score,
)
from tests.apps.geostat.geostat_tolerances import ELEMENTARY, TWO_ROUTES
from tests.inside.geostat import efficiency as efficiency_module

pytestmark = pytest.mark.plan


@pytest.mark.parametrize(("value", "mean", "deviation"), [(0.3, 0.0, 1.0), (-2.0, 1.0, 0.5), (4.0, 4.0, 3.0)])
def test_crps_is_the_integral_of_the_squared_distribution_error(value, mean, deviation):
    def error(t):
        return (ndtr((t - mean) / deviation) - (t >= value)) ** 2

    integral = quad(error, mean - 40, value)[0] + quad(error, value, mean + 40)[0]
    assert gaussian_crps(np.array([value]), np.array([mean]), np.array([deviation]))[0] == pytest.approx(integral, abs=1e-7)


def test_crps_of_a_certain_prediction_is_the_absolute_error():
    assert gaussian_crps(np.array([3.0]), np.array([1.0]), np.array([0.0]))[0] == 2.0


def test_scores_by_hand():
    prediction = Prediction(np.array([0.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0, 1.0]), "observation")
    scores = score(prediction, [1.0, -1.0, 1.9, 3.0], [2.0, 4.0])
    assert scores.rmse == pytest.approx(np.sqrt((1 + 1 + 3.61 + 9) / 4))
    assert scores.rmse_of_mean == pytest.approx(np.sqrt((4 + 16 + 1.21 + 0) / 4))
    assert (scores.coverage, scores.n, scores.level) == (0.75, 4, 0.95)
    assert scores.mae == pytest.approx((1 + 1 + 1.9 + 3) / 4) and scores.bias == pytest.approx(-(1 - 1 + 1.9 + 3) / 4)
    assert scores.mspe == pytest.approx(scores.rmse**2)
    half = norm.ppf(0.975)
    assert scores.interval_score == pytest.approx(2 * half + 2 / 0.05 * (3 - half) / 4)
    assert scores.log_score == pytest.approx(-np.mean(norm.logpdf([1.0, -1.0, 1.9, 3.0])))


def test_interval_score_is_a_pair_of_quantile_scores():
    rng = np.random.default_rng(0)
    values, lower = rng.normal(size=200), rng.normal(size=200) - 1
    upper = lower + rng.uniform(0, 3, size=200)
    alpha = 0.3
    # Gneiting and Raftery (2007): 2/alpha times the sum of the check losses at the levels alpha/2 and 1 - alpha/2
    loss = sum(np.where(values < q, 1 - p, -p) * (q - values) for q, p in ((lower, alpha / 2), (upper, 1 - alpha / 2)))
    np.testing.assert_allclose(interval_score(values, lower, upper, level=1 - alpha), 2 / alpha * loss, atol=ELEMENTARY)


@pytest.mark.parametrize(
    "other",
    [
        Prediction(np.full(4000, 0.2), np.ones(4000), "observation"),
        *[Prediction(np.zeros(4000), np.full(4000, v), "observation") for v in (0.5, 2.0)],
    ],
)
def test_proper_scores_prefer_the_truth(other):
    values = np.random.default_rng(1).normal(size=4000)
    truth = score(Prediction(np.zeros(4000), np.ones(4000), "observation"), values, values)
    wrong = score(other, values, values)
    for name in ("crps", "interval_score", "log_score"):
        assert getattr(truth, name) < getattr(wrong, name)


def test_log_score_of_a_certain_prediction():
    scores = gaussian_log_score(np.array([1.0, 2.0]), np.array([1.0, 1.0]), np.zeros(2))
    assert scores.tolist() == [-np.inf, np.inf]


def test_coverage_at_any_level():
    quantiles = norm.ppf((np.arange(1000) + 0.5) / 1000)
    prediction = Prediction(np.zeros(1000), np.ones(1000), "observation")
    assert coverage(prediction, quantiles, [0.1, 0.5, 0.9]).tolist() == [0.1, 0.5, 0.9]
    with pytest.raises(ValueError, match="level is 1"):
        coverage(prediction, quantiles, [0.5, 1.0])
    with pytest.raises(ValueError, match="level is 0"):
        interval_score(quantiles, quantiles, quantiles, level=0.0)


def test_the_smooth_field_is_not_what_was_held_out():
    with pytest.raises(ValueError, match="target='observation'"):
        score(Prediction(np.zeros(2), np.ones(2), "field"), [0.0, 1.0], [0.0])


def test_wrong_lengths_and_levels_are_named():
    prediction = Prediction(np.zeros(2), np.ones(2), "observation")
    with pytest.raises(ValueError, match="2 predictions"):
        score(prediction, [0.0], [0.0])
    with pytest.raises(ValueError, match=r"held-out value 1 .* is nan"):
        score(prediction, [0.0, np.nan], [0.0])
    for level in (95, 1.0, 0.0, -0.5, np.nan):
        with pytest.raises(ValueError, match=f"level is {level}, but a probability between 0 and 1"):
            prediction.interval(level)


def example(n=60, q=0, mean="constant"):
    rng = np.random.default_rng(2)
    sites, covariates = rng.uniform(size=(n, 2)), rng.normal(size=(n, q))
    observations = make_observations(sites, rng.normal(size=n), covariates=covariates, mean=mean)
    targets, columns = rng.uniform(size=(25, 2)), rng.normal(size=(25, q))
    return observations, targets, columns


def mean_square_errors(observations, targets, columns, truth, other):
    """E_t, E_ta and E_a of the smooth field from their definitions: weights of a dense system, variances of linear forms."""

    def covariances(model):
        own = cross_covariance(model, observations.coordinates, observations.coordinates)
        return own + model.nugget * np.eye(observations.n), cross_covariance(model, observations.coordinates, targets)

    def weights(model):
        x = observations.design
        x0 = np.hstack([np.ones((len(targets), 1)), columns]) if observations.mean == "constant" else columns
        own, cross = covariances(model)
        left = np.block([[own, x], [x.T, np.zeros((x.shape[1], x.shape[1]))]])
        return np.linalg.solve(left, np.vstack([cross, x0.T]))[: observations.n]

    def error(model, w):
        own, cross = covariances(model)
        return model.variance - 2 * np.sum(w * cross, axis=0) + np.sum(w * (own @ w), axis=0)

    return error(truth, weights(truth)), error(truth, weights(other)), error(other, weights(other))


@pytest.mark.parametrize(("q", "mean"), [(0, "zero"), (0, "constant"), (2, "constant")])
@pytest.mark.parametrize("other", [Matern(0.9, 0.09, 0.5, 0.02), Matern(2.0, 0.4, 1.5, 0.3), Matern(1.0, 0.2, 2.5, 0.01)])
@pytest.mark.usefixtures("one_blas_thread")
def test_efficiency_is_that_of_its_definition(monkeypatch, other, q, mean):
    truth = Matern(1.2, 0.15, 0.5, 0.05)
    observations, targets, columns = example(q=q, mean=mean)
    expected = mean_square_errors(observations, targets, columns, truth, other)
    monkeypatch.setattr(efficiency_module, "_CHUNK_BYTES", 8 * 60 * 7)
    found = prediction_efficiency(observations, targets, truth=truth, other=other, covariates=columns, target="field")
    for ours, theirs in zip((found.true_error, found.actual_error, found.claimed_error), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=TWO_ROUTES)
    e_t, e_ta, e_a = expected
    assert found.mloe == pytest.approx(np.mean(e_ta / e_t - 1), rel=1e-6) and found.mloe > 0
    assert found.mmom == pytest.approx(np.mean(e_a / e_ta - 1), rel=1e-6)
    assert found.rmom == pytest.approx(np.sqrt(np.mean((e_a / e_ta - 1) ** 2)), rel=1e-6)
    assert found.rmom >= abs(found.mmom)


@pytest.mark.usefixtures("one_blas_thread")
def test_no_efficiency_is_lost_with_the_truth_or_a_multiple_of_it():
    observations, targets, _ = example()
    truth = Matern(1.2, 0.15, 1.5, 0.05)
    same = prediction_efficiency(observations, targets, truth=truth, other=truth)
    assert 0 <= same.mloe < TWO_ROUTES and abs(same.mmom) < TWO_ROUTES
    # weights do not depend on the scale of the covariance, claimed errors are proportional to it
    double = prediction_efficiency(observations, targets, truth=truth, other=Matern(2.4, 0.15, 1.5, 0.1))
    assert 0 <= double.mloe < TWO_ROUTES and double.mmom == pytest.approx(1.0, rel=TWO_ROUTES)
    without_nugget = Matern(1.0, 0.15, 0.5)
    with pytest.raises(ValueError, match=r"site 1 .* is known without error"):
        places = [[0.5, 0.5], observations.coordinates[3]]
        prediction_efficiency(observations, places, truth=without_nugget, other=truth)
