"""Draws: their linear map has exactly the covariance asked for, and many of them show it."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps.geostat import (
    FactorSettings,
    Matern,
    cross_covariance,
    kriging,
    make_observations,
    simulate,
    simulate_conditional,
)
from tests.apps.geostat.geostat_tolerances import MONTE_CARLO_DEVIATIONS, TWO_ROUTES
from tests.inside.geostat import simulation as module

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.5, 0.25, 1.5, 0.05)


def example(n=40, q=0, mean="constant"):
    rng = np.random.default_rng(0)
    sites, covariates = rng.uniform(size=(n, 2)), rng.normal(size=(n, q))
    values = 7 + np.cos(5 * sites[:, 0]) + covariates.sum(axis=1) + 0.2 * rng.normal(size=n)
    observations = make_observations(sites, values, covariates=covariates, mean=mean)
    return observations, rng.uniform(-0.2, 1.2, size=(12, 2)), rng.normal(size=(12, q))


def unit_normals(monkeypatch, sizes):
    """In place of random numbers: each draw takes one normal of one stream as 1 and all others as 0; the last draw takes none."""
    draws = sum(sizes) + 1

    def normals(seed, stream):
        rows = np.eye(draws)[:, sum(sizes[:stream]) : sum(sizes[: stream + 1])]
        position = 0

        def take(count, n):
            nonlocal position
            assert n == sizes[stream]
            position += count
            return rows[position - count : position]

        return take

    monkeypatch.setattr(module, "normals", normals)
    return draws


@pytest.mark.parametrize(("target", "nugget"), [("field", 0.0), ("observation", 0.05)])
def test_the_map_of_normals_to_draws_has_the_models_covariance(monkeypatch, target, nugget):
    sites = example()[1]
    draws = unit_normals(monkeypatch, [12])
    found = simulate(MODEL, sites, draws=draws, target=target, mean=3.0, jitter=0.0)
    assert np.all(found[-1] == 3.0)
    columns = found[:-1] - 3.0
    expected = cross_covariance(MODEL, sites, sites) + nugget * np.eye(12)
    np.testing.assert_allclose(columns.T @ columns, expected, rtol=0, atol=TWO_ROUTES * MODEL.sill)


@pytest.mark.parametrize(
    ("q", "mean", "known"), [(0, "zero", None), (0, "constant", None), (1, "constant", None), (0, "constant", [6])]
)
@pytest.mark.parametrize(("target", "nugget"), [("field", 0.05), ("observation", 0.05), ("field", 0.0)])
def test_the_map_of_normals_to_conditional_draws_is_kriging(monkeypatch, target, nugget, q, mean, known):
    observations, sites, covariates = example(q=q, mean=mean)
    model = Matern(1.5, 0.25, 0.5, nugget)
    draws = unit_normals(monkeypatch, [52, 40] if target == "field" and nugget else [52])
    found = simulate_conditional(
        observations, model, sites, covariates=covariates, draws=draws, target=target, coefficients=known, jitter=0.0
    )
    with kriging(observations, model, coefficients=known) as kriged:
        prediction = kriged.predict(sites, covariates=covariates, target=target)
    # without any noise the draw is the kriging mean, and noise adds the covariance of kriging errors
    np.testing.assert_allclose(found[-1], prediction.mean, rtol=TWO_ROUTES)
    columns = found[:-1] - found[-1]
    covariance = columns.T @ columns
    np.testing.assert_allclose(np.diagonal(covariance), prediction.variance, rtol=TWO_ROUTES)
    expected = kriging_covariance(observations, model, sites, covariates, known) + model.nugget * (
        target == "observation"
    ) * np.eye(12)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=TWO_ROUTES * model.sill)


def kriging_covariance(observations, model, sites, covariates, known):
    """Covariance of the errors of the smooth field, by the textbook's formula."""
    own = cross_covariance(model, observations.coordinates, observations.coordinates) + model.nugget * np.eye(observations.n)
    cross, x = cross_covariance(model, observations.coordinates, sites), observations.design
    x0 = np.hstack([np.ones((len(sites), int(observations.mean == "constant"))), covariates])
    covariance = cross_covariance(model, sites, sites) - cross.T @ np.linalg.solve(own, cross)
    if known is None and x.shape[1]:
        gap = x0 - cross.T @ np.linalg.solve(own, x)
        covariance += gap @ np.linalg.solve(x.T @ np.linalg.solve(own, x), gap.T)
    return covariance


def test_many_draws_show_the_mean_and_the_variance_of_kriging():
    observations, sites, _ = example()
    draws = 4000
    found = simulate_conditional(observations, MODEL, sites, draws=draws, seed=1)
    with kriging(observations, MODEL) as kriged:
        prediction = kriged.predict(sites, target="field")
    # the mean of N draws has the variance v / N, their mean square about a known mean 2 v**2 / N
    mean_z = (found.mean(axis=0) - prediction.mean) / np.sqrt(prediction.variance / draws)
    square = np.mean((found - prediction.mean) ** 2, axis=0)
    variance_z = (square - prediction.variance) / (prediction.variance * np.sqrt(2 / draws))
    assert np.max(np.abs(mean_z)) < MONTE_CARLO_DEVIATIONS
    assert np.max(np.abs(variance_z)) < MONTE_CARLO_DEVIATIONS


def test_many_draws_show_the_covariance_of_the_model():
    sites, draws = example()[1], 4000
    found = simulate(MODEL, sites, draws=draws, target="observation", seed=2)
    expected = cross_covariance(MODEL, sites, sites) + MODEL.nugget * np.eye(12)
    z = (found.T @ found / draws - expected) / np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / draws)
    assert np.max(np.abs(z)) < MONTE_CARLO_DEVIATIONS
    assert np.max(np.abs(found.mean(axis=0) / np.sqrt(MODEL.sill / draws))) < MONTE_CARLO_DEVIATIONS


def test_without_nugget_conditional_draws_go_through_the_data():
    observations = example()[0]
    model = Matern(1.5, 0.25, 0.5)
    there = simulate_conditional(observations, model, observations.coordinates, draws=5)
    # both the draw at the site and the one at the observation there have an error of the jitter's variance
    assert 0 < np.max(np.abs(there - observations.values)) < 5 * np.sqrt(2 * module.JITTER * model.variance)


def test_draws_are_repeatable_and_do_not_depend_on_how_many_or_on_memory(monkeypatch):
    observations, sites, _ = example()
    many = simulate(MODEL, sites, draws=7, seed=5), simulate_conditional(observations, MODEL, sites, draws=7, seed=5)
    few = simulate(MODEL, sites, draws=2, seed=5), simulate_conditional(observations, MODEL, sites, draws=2, seed=5)
    monkeypatch.setattr(module, "BATCH_BYTES", 3000)
    settings = FactorSettings(tile_size=16, memory_budget=20_000)
    small = (
        simulate(MODEL, sites, draws=7, seed=5, settings=settings),
        simulate_conditional(observations, MODEL, sites, draws=7, seed=5, settings=settings),
    )
    other = simulate(MODEL, sites, draws=7, seed=6), simulate_conditional(observations, MODEL, sites, draws=7, seed=6)
    for a, b, c, d in zip(many, few, small, other, strict=True):
        np.testing.assert_allclose(b, a[:2], rtol=TWO_ROUTES)
        np.testing.assert_allclose(c, a, rtol=TWO_ROUTES)
        assert np.min(np.abs(d - a)) > 0


def test_the_field_and_the_errors_of_its_observations_have_numbers_of_their_own():
    drawn = [module.normals(seed, stream)(200, 50).ravel() for seed in (0, 1) for stream in (0, 1)]
    correlations = np.corrcoef(drawn)[np.triu_indices(4, k=1)]
    assert np.max(np.abs(correlations)) < MONTE_CARLO_DEVIATIONS / 100


def test_a_fine_grid_of_a_smooth_field_needs_its_jitter():
    x = np.linspace(0, 1, 12)
    grid = np.column_stack([axis.ravel() for axis in np.meshgrid(x, x)])
    smooth = Matern(1.0, 1.0, 2.5)
    assert simulate(smooth, grid).shape == (1, 144)
    with pytest.raises(oc.NotPositiveDefiniteError):
        simulate(smooth, np.vstack([grid, grid]), jitter=0.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draws": 0}, "0 draws"),
        ({"jitter": -1.0}, "jitter is -1"),
        ({"target": "mean"}, "'observation' and 'field'"),
    ],
)
def test_mistakes_are_named(options, words):
    observations, sites, _ = example()
    with pytest.raises(ValueError, match=words):
        simulate(MODEL, sites, **options)
    with pytest.raises(ValueError, match=words):
        simulate_conditional(observations, MODEL, sites, **options)
    with pytest.raises(ValueError, match="mean has shape"):
        simulate(MODEL, sites, mean=[1.0, 2.0])
    with pytest.raises(ValueError, match="sites have 1 coordinates"):
        simulate_conditional(observations, MODEL, [0.5])
    with pytest.raises(ValueError, match="pass the same covariates"):
        simulate_conditional(observations, MODEL, sites, covariates=np.ones(12))
