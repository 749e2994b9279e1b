"""Standardised residuals: definition, and distribution under a true model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Matern, make_observations, standardised_residuals
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.5, 0.2, 1.5, 0.1)


def simulated(n, seed):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    covariance = geostat.cross_covariance(MODEL, sites, sites) + MODEL.nugget * np.eye(n)
    return make_observations(sites, 3 + np.linalg.cholesky(covariance) @ rng.normal(size=n))


def test_each_is_the_error_of_predicting_from_those_before():
    observations = simulated(40, 0)
    mean = geostat.log_likelihood(observations, MODEL).coefficients[0]
    order = geostat.morton_order(observations.coordinates)
    k = 25
    before, this = order[:k], order[k]
    known = make_observations(observations.coordinates[before], observations.values[before] - mean, mean="zero")
    there = geostat.predict(known, MODEL, observations.coordinates[[this]])
    expected = (observations.values[this] - mean - there.mean[0]) / there.standard_error[0]
    assert standardised_residuals(observations, MODEL)[this] == pytest.approx(expected, rel=TWO_ROUTES)


def test_they_are_standard_normal_where_the_model_is_true():
    residuals = standardised_residuals(simulated(600, 1), MODEL)
    assert kstest(residuals, "norm").pvalue > 0.01
    assert kstest(standardised_residuals(simulated(600, 1), Matern(0.7, 0.2, 1.5, 0.05)), "norm").pvalue < 0.01


def test_their_mean_square_is_one_after_a_fit():
    observations = simulated(80, 2)
    model = geostat.fit(observations, smoothness=1.5).model
    assert np.mean(standardised_residuals(observations, model) ** 2) == pytest.approx(1.0, rel=TWO_ROUTES)


def test_they_follow_the_order_of_the_observations():
    observations = simulated(50, 3)
    turn = np.random.default_rng(0).permutation(50)
    np.testing.assert_allclose(
        standardised_residuals(observations.take(turn), MODEL), standardised_residuals(observations, MODEL)[turn], rtol=TWO_ROUTES
    )
