"""Kriging against dense formulas, leave-one-out by two routes, and the promises about variance and order."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    FactorSettings,
    Matern,
    cross_covariance,
    grid_over,
    kriging,
    make_observations,
    predict,
    write_grid_prediction,
)
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES

pytestmark = [pytest.mark.commit, pytest.mark.usefixtures("one_blas_thread")]

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


@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
@pytest.mark.parametrize("q", [0, 2])
def test_a_known_mean_is_simple_kriging_written_out(nu, q):
    observations, model = example(q=q), Matern(1.5, 0.25, nu, 0.05)
    rng = np.random.default_rng(6)
    sites, covariates, known = rng.uniform(-0.5, 1.5, size=(30, 2)), rng.normal(size=(30, q)), rng.normal(size=1 + q)
    field = predict(observations, model, sites, covariates=covariates, coefficients=known, target="field")
    # c' inv(S) (z - X b) + x0' b, and sigma2 - c' inv(S) c
    covariance = cross_covariance(model, observations.coordinates, observations.coordinates) + model.nugget * np.eye(
        observations.n
    )
    cross = cross_covariance(model, observations.coordinates, sites)
    weights = np.linalg.solve(covariance, cross)
    mean = weights.T @ (observations.values - observations.design @ known) + np.column_stack([np.ones(30), covariates]) @ known
    np.testing.assert_allclose(field.mean, mean, rtol=TWO_ROUTES, atol=TWO_ROUTES)
    np.testing.assert_allclose(field.variance, 1.5 - np.sum(weights * cross, axis=0), rtol=TWO_ROUTES, atol=TWO_ROUTES)
    assert np.all(field.variance <= model.variance)


@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
def test_simple_kriging_is_scikit_learns(nu):
    observations, sites = example(mean="zero"), np.random.default_rng(12).uniform(-0.2, 1.2, size=(20, 2))
    kernel = 1.5 * kernels.Matern(0.25 * np.sqrt(2 * nu), nu=nu) + kernels.WhiteKernel(0.05)
    theirs = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(observations.coordinates, observations.values)
    mean, deviation = theirs.predict(sites, return_std=True)
    ours = predict(observations, Matern(1.5, 0.25, nu, 0.05), sites)
    np.testing.assert_allclose(ours.mean, mean, rtol=TWO_ROUTES, atol=TWO_ROUTES)
    np.testing.assert_allclose(ours.variance, deviation**2, rtol=TWO_ROUTES)


def test_a_mean_known_to_be_the_estimate_gives_its_mean_with_less_variance():
    observations, sites = example(), np.random.default_rng(7).uniform(size=(25, 2))
    with kriging(observations, MODEL) as ordinary, kriging(observations, MODEL, coefficients=ordinary.coefficients) as simple:
        a, b = ordinary.predict(sites), simple.predict(sites)
        kinds = ordinary.kind, simple.kind
    np.testing.assert_allclose(b.mean, a.mean, rtol=TWO_ROUTES)
    assert np.all(b.variance < a.variance)
    assert kinds == ("ordinary", "simple")
    for options, kind in (({"mean": "zero"}, "simple"), ({"q": 1}, "universal"), ({"q": 1, "mean": "zero"}, "universal")):
        with kriging(example(**options), MODEL) as kriged:
            assert kriged.kind == kind


@pytest.mark.parametrize(("q", "known"), [(0, None), (2, None), (1, [6.0, 1.0])])
def test_weights_and_the_mean_alone_are_the_prediction(q, known):
    observations, rng = example(q=q), np.random.default_rng(8)
    sites, covariates = rng.uniform(size=(20, 2)), rng.normal(size=(20, q))
    design = np.column_stack([np.ones(20), covariates])
    with kriging(observations, MODEL, coefficients=known) as kriged:
        prediction = kriged.predict(sites, covariates=covariates)
        alone = kriged.predict_mean(sites, covariates=covariates)
        weights = kriged.weights(sites, covariates=covariates, batch_bytes=3 * 8 * observations.n * 7)
    np.testing.assert_allclose(alone, prediction.mean, rtol=TWO_ROUTES)
    if known is None:
        np.testing.assert_allclose(weights.T @ observations.values, prediction.mean, rtol=TWO_ROUTES)
        np.testing.assert_allclose(observations.design.T @ weights, design.T, rtol=TWO_ROUTES, atol=TWO_ROUTES)
    else:
        residual = observations.values - observations.design @ known
        np.testing.assert_allclose(weights.T @ residual + design @ known, prediction.mean, rtol=TWO_ROUTES)


def test_blocks_are_the_whole():
    observations, rng = example(q=1), np.random.default_rng(9)
    sites, covariates = rng.uniform(size=(50, 2)), rng.normal(size=(50, 1))
    cuts = [0, 1, 20, 50]
    pieces = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    with kriging(observations, MODEL) as kriged:
        whole = kriged.predict(sites, covariates=covariates)
        blocks = list(kriged.predict_batches((sites[p] for p in pieces), covariates=(covariates[p] for p in pieces)))
        # nothing is computed before it is asked for, so that sites may be more than memory holds
        endless = kriged.predict_batches(itertools.repeat(sites[:2]), covariates=itertools.repeat(covariates[:2]))
        assert next(endless).mean.shape == (2,)
        with pytest.raises(ValueError, match="shorter"):
            list(kriged.predict_batches([sites[:2], sites[:2]], covariates=[covariates[:2]]))
        with pytest.raises(ValueError, match="'observation' and 'field'"):
            kriged.predict_batches([], target="mean")
    assert [len(block.mean) for block in blocks] == [1, 19, 30]
    np.testing.assert_allclose(np.concatenate([block.mean for block in blocks]), whole.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(np.concatenate([block.variance for block in blocks]), whole.variance, rtol=TWO_ROUTES)


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=3), points=st.integers(1, 70))
def test_the_blocks_of_a_grid_are_its_points_in_order(counts, points):
    grid = grid_over(np.zeros(len(counts)), np.arange(1.0, len(counts) + 1), counts)
    blocks = list(grid.blocks(points))
    expected = np.stack([part.ravel() for part in np.meshgrid(*reversed(grid.axes), indexing="ij")][::-1], axis=1)
    assert np.array_equal(np.concatenate(blocks), expected)
    assert grid.size == len(expected) and grid.shape == tuple(reversed(counts))
    assert all(len(block) == points for block in blocks[:-1]) and len(blocks[-1]) <= points


def test_predictions_on_a_grid_are_streamed_to_a_file(tmp_path):
    observations, grid = example(), grid_over([0, 0], [1, 2], (7, 5))
    path, alone = tmp_path / "grid.csv", tmp_path / "mean.csv"
    with kriging(observations, MODEL) as kriged:
        whole = kriged.predict(grid.points(0, 35), target="field")
        assert write_grid_prediction(path, kriged, grid, names=("x", "y"), target="field", block_points=4) == 35
        write_grid_prediction(alone, kriged, grid, names=("e", "n"), standard_error=False, cartesian=lambda points: points)
        with pytest.raises(ValueError, match="2 axes has coordinate columns x"):
            write_grid_prediction(path, kriged, grid, names=("x",))
        with pytest.raises(RuntimeError, match="halfway"):
            write_grid_prediction(path, kriged, grid, names=("x", "y"), block_points=20, cartesian=fails_second, replace=True)
    table = geostat.read_table(path, ("x", "y", "prediction", "standard_error"))
    assert np.array_equal(table.stack(("x", "y")), grid.points(0, 35))
    np.testing.assert_allclose(table.columns["prediction"], whole.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(table.columns["standard_error"], whole.standard_error, rtol=TWO_ROUTES)
    assert alone.read_text().splitlines()[0] == "e,n,prediction"
    np.testing.assert_allclose(geostat.read_table(alone, ("prediction",)).columns["prediction"], whole.mean, rtol=TWO_ROUTES)
    assert sorted(os.listdir(tmp_path)) == ["grid.csv", "mean.csv"]


def fails_second(points):
    """Cartesian coordinates of the first block only."""
    if points[0, 1] > 0:
        raise RuntimeError("halfway")
    return points


def test_grids_that_are_none_are_named():
    with pytest.raises(ValueError, match="3 x 0 points has none"):
        grid_over([0, 0], [1, 1], (3, 0))
    with pytest.raises(ValueError, match="must be finite"):
        grid_over([0, 0], [1, np.nan], (3, 3))
    with pytest.raises(ValueError, match="as many counts"):
        grid_over([0, 0], [1, 1], (3, 3, 3))
    with pytest.raises(ValueError, match="at least one"):
        next(grid_over([0], [1], (3,)).blocks(0))


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
    for coefficients, words in (([1.0], "coefficients have shape .1,., but the mean has 2 columns"), ([1.0, np.nan], "a NaN")):
        with pytest.raises(ValueError, match=words), kriging(example(q=1), MODEL, coefficients=coefficients):
            pass
    with kriging(example(q=1), MODEL) as kriged:
        with pytest.raises(ValueError, match="pass the same covariates"):
            kriged.predict([[0.5, 0.5]])
        with pytest.raises(ValueError, match="sites have 1 coordinates"):
            kriged.predict([0.5], covariates=[1.0])
        with pytest.raises(ValueError, match="'observation' and 'field'"):
            kriged.predict([[0.5, 0.5]], covariates=[1.0], target="mean")
        with pytest.raises(ValueError, match="covariates have shape"):
            kriged.predict([[0.5, 0.5]], covariates=[1.0, 2.0])
