"""A search ends at the maximum and says so: in units of the log-likelihood, in standard errors, and what is held at a bound."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ooc_chol.apps.geostat import Matern, fit, log_likelihood, make_observations, simulate
from tests.inside.geostat import LikelihoodOptions, Objective, SearchLimits, SilentProgress, _boxed, search_from, search_space

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: How near to the largest log-likelihood a fit comes with its default tolerance.
NEAR = 1e-4

#: As the sets of an outside review: variance, range, smoothness, nugget; columns of the mean.
SETS = {
    "no mean": (Matern(1.0, 0.1, 0.5, 0.1), "zero", False, 0.5),
    "linear mean": (Matern(2.0, 0.05, 1.5, 0.05), "constant", True, 1.5),
    "free smoothness": (Matern(1.0, 0.15, 0.8, 0.2), "constant", False, "free"),
}


def observations_of(name, n):
    truth, mean, is_linear, _ = SETS[name]
    sites = np.random.default_rng(11).uniform(size=(n, 2))
    values = simulate(truth, sites, seed=5, target="observation")[0] + (1 + sites.sum(axis=1)) * is_linear
    return make_observations(sites, values, mean=mean, covariates=sites if is_linear else None)


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_the_default_tolerance_reaches_the_largest_likelihood(name, reml):
    observations, smoothness = observations_of(name, 140), SETS[name][-1]
    found = fit(observations, smoothness=smoothness, reml=reml)
    best = max(
        fit(observations, smoothness=smoothness, reml=reml, method=method, tolerance=1e-12).loglik
        for method in (("fisher", "lbfgs") if reml else ("lbfgs", "cobyqa"))
    )
    assert found.converged and found.loglik > best - NEAR
    assert found.trials[0].gain <= 1e-5 and found.trials[0].errors < 0.01
    assert "the next step would gain" in found.end


def test_scikit_learn_finds_no_more():
    gaussian_process = pytest.importorskip("sklearn.gaussian_process")
    kernels = gaussian_process.kernels
    observations = observations_of("no mean", 150)
    kernel = kernels.ConstantKernel(1.0) * kernels.Matern(0.1, nu=0.5) + kernels.WhiteKernel(0.1)
    peer = gaussian_process.GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0)
    peer.fit(observations.coordinates, observations.values)
    found = fit(observations, smoothness=0.5)
    assert found.loglik > peer.log_marginal_likelihood_value_ - NEAR
    first, noise = peer.kernel_.k1, peer.kernel_.k2.noise_level
    same = Matern(first.k1.constant_value, first.k2.length_scale, 0.5, noise)
    assert log_likelihood(observations, same).loglik == pytest.approx(peer.log_marginal_likelihood_value_, abs=1e-6)


def test_a_nugget_at_its_floor_is_held_there_and_stops_nothing():
    sites = np.random.default_rng(2).uniform(size=(200, 2))
    observations = make_observations(sites, simulate(Matern(2.0, 0.1, 0.5), sites, seed=3)[0])
    found = fit(observations, smoothness=0.5, method="fisher")
    if found.model.nugget > 1e-6 * found.model.variance:
        pytest.fail("this field was chosen for having no nugget")
    assert found.converged and "held at a bound: nugget_ratio" in found.end
    ratios = [evaluation.nugget_ratio for evaluation in found.evaluations]
    there = ratios.index(1e-8)
    assert set(ratios[there:]) == {1e-8}, "it went to its floor at once, and did not wander"


def test_a_nugget_comes_back_from_its_floor_in_one_step():
    sites = np.random.default_rng(2).uniform(size=(150, 2))
    observations = make_observations(sites, simulate(Matern(1.0, 0.1, 0.5, 0.2), sites, seed=3, target="observation")[0])
    space = search_space(observations, "free", 0.5)
    objective = Objective(observations, space, LikelihoodOptions(), SilentProgress())
    end = search_from(objective, space.point(Matern(1.0, 0.1, 0.5, 0.0)), "fisher", SearchLimits(1e-5, 25))
    first, second, *_ = objective.evaluations
    assert first.nugget_ratio == pytest.approx(1e-8) and 0.01 < second.nugget_ratio < 1.0
    assert end.converged
    assert objective.best.loglik == pytest.approx(fit(observations, smoothness=0.5).loglik, abs=NEAR)


@pytest.mark.parametrize("ratio", [1e-8, 3e-6, 0.2])
def test_a_search_begins_exactly_at_its_template(ratio):
    observations = observations_of("free smoothness", 120)
    template = Matern(3.0, 0.07, 0.5, 3.0 * ratio)
    found = fit(observations, covariance=template, fixed=("smoothness",))
    first = found.evaluations[0]
    assert (first.range, first.nugget_ratio) == pytest.approx((0.07, ratio), rel=1e-12)


def test_a_search_that_is_cut_off_says_what_is_left():
    found = fit(observations_of("no mean", 200), smoothness=0.5, method="fisher", max_evaluations=1)
    assert not found.converged and found.trials[0].gain > 1e-5
    left = r"the evaluations allowed are used up; the next step would gain \S+ of log-likelihood and move no parameter"
    assert re.search(left, found.end) and any(re.search(left, text) for text in found.warnings)


def test_a_search_by_probes_says_what_they_hide():
    observations = observations_of("no mean", 200)
    found = fit(observations, smoothness=0.5, method="fisher", traces="probes")
    hidden = float(re.search(r"the error of the probes hides some (\S+) of log-likelihood", found.end)[1])
    assert found.converged and 1e-3 < hidden < 0.1
    assert fit(observations, smoothness=0.5).loglik - found.loglik < 10 * hidden


@pytest.mark.parametrize("tolerance", [0.0, -1.0, float("nan"), float("inf")])
def test_a_tolerance_is_a_positive_gain(tolerance):
    with pytest.raises(ValueError, match=r"tolerance \(--tolerance\) is .* positive gain of log-likelihood"):
        fit(observations_of("no mean", 50), smoothness=0.5, tolerance=tolerance)


@pytest.mark.parametrize("smoothness", [0.5, "free"])
def test_real_data_take_few_exact_evaluations_from_the_approximation(data_dir, smoothness):
    """Land-surface temperatures, half as curved along the range as expected, of whose nugget they tell next to nothing."""
    with np.load(data_dir / "modis.npz") as table:
        rows = np.sort(np.random.default_rng(0).permutation(len(table["train_dn"]))[:1250])
        sites = np.column_stack([table["lon_axis"][table["train_ix"][rows]], table["lat_axis"][table["train_iy"][rows]]])
        values = 0.02 * table["train_dn"][rows] - 273.15
    found = fit(make_observations(sites, values), smoothness=smoothness, starts="vecchia")
    assert found.converged and len(found.evaluations) <= 5


def test_data_half_as_curved_as_expected_are_not_approached_by_halves():
    """A field of another covariance than the one that is fitted, of which plain scoring halves the distance at each step."""
    rng = np.random.default_rng(7)
    sites = rng.uniform(size=(400, 2))
    values = 3 * np.sin(4 * sites[:, 0]) + simulate(Matern(1.0, 0.02, 0.5), sites, seed=1)[0] + 2 * (sites[:, 1] > 0.5)
    found = fit(make_observations(sites, values), smoothness=0.5, method="fisher")
    assert found.converged and len(found.evaluations) <= 8


def test_the_quadratic_model_is_maximised_between_its_bounds():
    rng = np.random.default_rng(3)
    for _ in range(50):
        root = rng.normal(size=(3, 3))
        information, gradient = root @ root.T + 0.1 * np.eye(3), 5 * rng.normal(size=3)
        down, up = -rng.uniform(0.1, 2.0, size=3), rng.uniform(0.1, 2.0, size=3)
        step = _boxed(information, gradient, down, up)
        slope = gradient - information @ step
        assert np.all((step >= down) & (step <= up))
        assert np.all(slope[step > down + 1e-9] > -1e-6) and np.all(slope[step < up - 1e-9] < 1e-6)
