"""Known error variances in Vecchia's approximation: dense conditional densities, differences, and the exact fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from ooc_chol.apps.geostat import Matern, make_observations, simulate, vecchia_log_likelihood
from tests.apps.geostat.differences import FIVE, close, dense
from tests.apps.geostat.few_tiles import FEW_TILES, fit, log_likelihood_gradient
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.inside.geostat import (
    LARGE,
    LikelihoodOptions,
    Objective,
    SilentProgress,
    VecchiaOptions,
    approximated,
    assembled,
    conditioning,
    correlation_of,
    sampled_comparison,
    search_space,
)

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.3, 0.25, 1.5, 0.05)


def example(n=60, seed=0, truth=MODEL, **options):
    """Values with errors of variances between 0 and 0.9, one in ten without."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    errors = np.where(rng.uniform(size=n) < 0.1, 0.0, rng.uniform(0.01, 0.9, size=n))
    values = 3 + simulate(truth, sites, seed=seed, target="observation", error_variances=errors)[0]
    return make_observations(sites, values, error_variances=errors, **options)


def test_value_is_the_product_of_the_conditional_densities():
    observations = example(mean="zero")
    covariance = dense(MODEL, observations.coordinates) + np.diag(observations.error_variances)
    graph = conditioning(MODEL.comparable_sites(observations.coordinates), 6)
    expected = 0.0
    for place in range(observations.n):
        own = graph.order[place]
        before = graph.order[[other for other in graph.neighbours[place] if other >= 0]]
        weights = np.linalg.solve(covariance[np.ix_(before, before)], covariance[before, own])
        variance = covariance[own, own] - weights @ covariance[before, own]
        expected += norm(weights @ observations.values[before], np.sqrt(variance)).logpdf(observations.values[own])
    assert vecchia_log_likelihood(observations, MODEL, neighbours=6).loglik == pytest.approx(expected, rel=TWO_ROUTES)


@pytest.mark.parametrize("reml", [False, True])
def test_with_all_neighbours_it_is_exact(reml):
    """Value, mean, gradient and, unless restricted, information."""
    observations = example(40)
    exact = log_likelihood_gradient(observations, MODEL, reml=reml, traces="exact", information=True)
    graph = conditioning(observations.coordinates, observations.n - 1)
    found = approximated(observations, correlation_of(MODEL), graph, variance=MODEL.variance, reml=reml, shape=MODEL.parameters)
    ours = assembled(found.likelihood, MODEL.parameters, found.sums, found.sums)
    assert ours.likelihood.loglik == pytest.approx(exact.likelihood.loglik, rel=TWO_ROUTES)
    np.testing.assert_allclose(ours.likelihood.coefficients, exact.likelihood.coefficients, rtol=TWO_ROUTES)
    np.testing.assert_allclose(ours.gradient, exact.gradient, rtol=TWO_ROUTES, atol=np.abs(exact.gradient).max() * TWO_ROUTES)
    if not reml:
        scale = np.abs(exact.information).max()
        np.testing.assert_allclose(ours.information, exact.information, rtol=TWO_ROUTES, atol=scale * TWO_ROUTES)


@pytest.mark.parametrize("nugget", ["free", "zero", 0.03])
def test_gradient_by_the_coordinates_of_the_search(nugget):
    observations = example()
    space = search_space(observations, nugget, None)
    graph = conditioning(observations.coordinates, 7)
    objective = Objective(observations, space, LikelihoodOptions(FEW_TILES), SilentProgress(), graph=graph)
    point = space.point(replace(MODEL, nugget=0.0 if nugget == "zero" else 0.05))
    for k, ours in enumerate(objective.at(point, gradient=True).gradient):
        step = 2e-3 * np.eye(len(point))[k]
        close(ours, sum(-weight * objective(point + offset * step) for offset, weight in FIVE) / 2e-3, observations.n)


def test_a_fit_is_within_its_standard_errors_of_the_exact_one():
    observations = example(300, 3, Matern(2.0, 0.12, 1.5, 0.0))
    exact = fit(observations, smoothness=1.5, nugget="zero")
    found = fit(observations, smoothness=1.5, nugget="zero", method="vecchia", exact_check="score")
    assert found.converged and found.vecchia.shift_in_errors < 0.3
    assert found.loglik == pytest.approx(exact.loglik, abs=0.1)
    by_start = fit(observations, smoothness=1.5, nugget="zero", starts="vecchia")
    assert by_start.start == "vecchia" and by_start.loglik == pytest.approx(exact.loglik, abs=0.01)


def test_large_data_with_errors_start_from_the_approximation_too():
    sites = np.arange(float(LARGE))
    assert VecchiaOptions().improve(make_observations(sites, np.sin(sites), error_variances=np.ones(LARGE)))


def test_a_rejected_smoothness_is_told_of_data_with_errors():
    truth = Matern(2.0, 0.2, 0.5, 0.0)
    rng = np.random.default_rng(5)
    sites, errors = rng.uniform(size=(400, 2)), rng.uniform(0.001, 0.02, size=400)
    values = simulate(truth, sites, seed=2, target="observation", error_variances=errors)[0]
    observations = make_observations(sites, values, error_variances=errors)
    smooth = fit(observations, smoothness=2.5, nugget="zero").model
    found = sampled_comparison(observations, smooth, LikelihoodOptions(FEW_TILES), nugget="zero", neighbours=20)
    assert found.kept == 2.5 and found.is_rejected and found.estimated < 1.0
    with pytest.raises(ValueError, match="not profiled out"):
        graph = conditioning(observations.coordinates, 5)
        approximated(observations, correlation_of(smooth), graph, variance=None)
