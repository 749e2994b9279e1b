"""The application against other people's numbers: ExaGeoStat's likelihoods and prediction error, and data of known truth."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synth import glibc_rand, synthesize
from ooc_chol.apps.geostat import (
    Matern,
    fit,
    infer,
    log_likelihood,
    log_likelihood_gradient,
    make_observations,
    predict,
)
from tests.apps.geostat.geostat_tolerances import ESTIMATE_ERRORS, FIVE_POINTS, TWO_ROUTES, printed

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Log-likelihoods of the 16 observations of seed 0 by (variance, range, smoothness); the last is a unit test of ExaGeoStatCPP.
LOG_LIKELIHOODS = {
    (1.0, 0.1, 0.5): -23.9130238932947,
    (0.9, 0.09, 0.4): -24.1282316052153,
    (0.1, 0.1, 0.1): -90.1269255314473,
    (1.325, 0.1, 0.1): -24.0259995648934,
}

#: What the 10,000 observations of ``XYZ_10K_15_0017526_23_1.csv`` were drawn from.
TRUTH = {"variance": 1.5, "range": 0.017526, "smoothness": 2.3}


@pytest.fixture(scope="module")
def sample():
    return synthesize(Matern(1.0, 0.1, 0.5), 16)


@pytest.mark.parametrize(("theta", "expected"), LOG_LIKELIHOODS.items())
def test_exageostats_likelihoods(sample, theta, expected):
    assert log_likelihood(sample.observations(), Matern(*theta)).loglik == pytest.approx(expected, rel=TWO_ROUTES)


@pytest.mark.parametrize("theta", LOG_LIKELIHOODS)
def test_gradients_there_are_those_of_five_point_differences(sample, theta):
    observations, model, step = sample.observations(), Matern(*theta, 0.01), 2e-3
    found = log_likelihood_gradient(observations, model)
    for name, slope in zip(found.names, found.gradient, strict=True):
        value = getattr(model, name)

        def at(k, name=name, value=value):
            return log_likelihood(observations, model.with_values(**{name: value * (1 + k * step)})).loglik

        difference = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
        assert value * slope == pytest.approx(difference, abs=FIVE_POINTS * np.max(np.abs(found.gradient)))


def test_exageostats_prediction_error(sample):
    """Four of the 16 are held out by its shuffle, a Fisher-Yates one with the C library's ``rand()``."""
    order = np.arange(16)
    for i, draw in enumerate(glibc_rand(15, seed=1)):
        j = i + draw // ((2**31 - 1) // (16 - i) + 1)
        order[[i, j]] = order[[j, i]]
    missing, others = order[:4], order[4:]
    observations = make_observations(sample.coordinates[others], sample.values[others], mean="zero")
    found = predict(observations, Matern(0.9, 0.09, 0.4), sample.coordinates[missing])
    assert np.mean((found.mean - sample.values[missing]) ** 2) == pytest.approx(0.552448, abs=printed(6))


def test_a_corner_of_the_ten_thousand_tells_what_they_were_drawn_from(data_dir):
    table = np.loadtxt(data_dir / "XYZ_10K_15_0017526_23_1.csv", delimiter=",", skiprows=1)
    corner = np.argsort(np.max(table[:, :2], axis=1), kind="stable")[:1200]
    observations = make_observations(table[corner, :2], table[corner, 2])
    result = fit(observations, smoothness="free", nugget="zero", method="fisher")
    assert result.converged and not result.warnings
    found = infer(observations, result.model, estimated=result.estimated)
    for name, value in TRUTH.items():
        estimate = found.parameters[name]
        assert abs(estimate.value - value) < ESTIMATE_ERRORS * estimate.standard_error
        # so that the interval says something
        assert estimate.standard_error < 0.2 * estimate.value
