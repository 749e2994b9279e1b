"""Searches at sites of several scales: a distant site or several clusters change no estimate, and are named."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.apps.geostat import Matern, empirical_variogram, fit, log_likelihood, make_observations, simulate, starting_model
from tests.inside.geostat import length_scale, search_extent

pytestmark = pytest.mark.usefixtures("one_blas_thread")

TRUTH = Matern(5.0, 20.0, 1.5, 0.01)
SITES = np.random.default_rng(0).uniform(size=(90, 2)) * 100
VALUES = simulate(TRUTH, SITES, seed=5, target="observation")[0]


def named(result):
    return [text for text in result.warnings if "is the place right?" in text]


@pytest.fixture(scope="module")
def plain():
    result = fit(make_observations(SITES, VALUES), smoothness=1.5)
    assert result.converged and not named(result)
    return result


@pytest.mark.parametrize("distance", [3e2, 1e4, 5e6, 1e9, 1e12])
@pytest.mark.parametrize("method", ["fisher", "vecchia", "cobyqa"])
def test_a_distant_site_changes_no_estimate(plain, distance, method):
    """A site that nothing is correlated with, at the mean of the others, tells of the variance alone."""
    mean = float(plain.coefficients[0])
    o = make_observations(np.vstack([SITES[:40], [[distance, -distance]], SITES[40:]]), np.r_[VALUES[:40], mean, VALUES[40:]])
    result = fit(o, smoothness=1.5, method=method)
    assert result.converged
    # no worse than the estimate without it, and near that
    assert result.loglik >= log_likelihood(o, plain.model).loglik - 1e-3
    assert result.model.range == pytest.approx(plain.model.range, rel=0.15)
    texts = named(result)
    assert len(texts) == (distance > 1e3)
    assert all(text.startswith("observation 40 (counted from zero), at ") for text in texts)


@pytest.mark.parametrize("gap", [1e3, 1e8, 1e11])
def test_two_clusters_are_fitted_as_one_would_be(plain, gap):
    other = simulate(TRUTH, SITES, seed=6, target="observation")[0]
    o = make_observations(np.vstack([SITES, SITES + np.array([gap, 0.0])]), np.r_[VALUES, other])
    result = fit(o, smoothness=1.5)
    assert result.converged and not named(result)
    assert result.loglik >= log_likelihood(o, TRUTH).loglik
    assert 8.0 < result.model.range < 50.0
    assert not any("bound" in text for text in result.warnings)


def test_other_ways_to_a_start_see_the_scale_of_most_sites(plain):
    o = make_observations(np.vstack([SITES, [[5e6, 5e6]]]), np.r_[VALUES, VALUES.mean()])
    for result in (
        fit(o, smoothness=1.5, starts="variogram"),
        fit(o, covariance=starting_model("matern", o, values={"smoothness": 1.5}), fixed=("smoothness",)),
    ):
        assert result.converged and result.model.range == pytest.approx(plain.model.range, rel=0.15)
    assert empirical_variogram(o).edges[-1] < 200.0


@pytest.mark.parametrize("count", [10, 300, 3000])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_lower_bound_is_far_below_the_distances_of_neighbours_as_its_warning_says(count, d):
    sites = np.random.default_rng(count).uniform(size=(count, d))
    clusters = np.vstack([sites, sites + 1e7, [[1e9] * d]])
    for where in (sites, clusters, np.vstack([sites, sites])):
        distances = np.sort(np.linalg.norm(where[:200, None] - where[None], axis=2), axis=1)
        nearest = np.median([row[row > 0][0] for row in distances])
        assert length_scale(where).lower < 0.2 * nearest
    assert search_extent(sites) == np.linalg.norm(np.ptp(sites, axis=0))
    assert search_extent(clusters) < 100.0


def test_a_range_at_its_lower_bound_is_below_the_distances(plain):
    rng = np.random.default_rng(1)
    o = make_observations(np.vstack([SITES, [[1e7, 0.0]]]), rng.normal(size=91))
    result = fit(o, smoothness=1.5, nugget="zero")
    if any("range is at its lower bound" in text for text in result.warnings):
        assert result.model.range < 1.0
    assert result.loglik >= log_likelihood(o, Matern(1.0, 2.0, 1.5)).loglik
