"""Folds ask for the prediction that is wanted: beyond a buffer, or as far from data as the sites to predict."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

from benchmarks.synth import synthesize
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    Matern,
    compare,
    cross_validate,
    cross_validate_locally,
    folds,
    leave_one_out,
    make_observations,
    predict,
)
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.inside.geostat import validation_module as module
from tests.inside.geostat import wasserstein

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.5, 0.25, 1.5, 0.05)


def example(n=90, seed=0):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    return make_observations(sites, np.cos(5 * sites[:, 0]) + 0.2 * rng.normal(size=n), covariates=sites[:, 1])


def disc(centre, radius, n=60, seed=1):
    """Sites inside a circle."""
    rng = np.random.default_rng(seed)
    angle, r = rng.uniform(0, 2 * np.pi, n), radius * np.sqrt(rng.uniform(size=n))
    return np.asarray(centre) + np.column_stack([r * np.cos(angle), r * np.sin(angle)])


@pytest.mark.parametrize("k", [None, 5])
@pytest.mark.parametrize("memory", [None, 30])
def test_a_buffer_leaves_out_what_is_near(monkeypatch, k, memory):
    observations = example()
    if memory is not None:
        monkeypatch.setattr(module, "BATCH_BYTES", 2 * 8 * observations.n * memory)
    chosen = folds(observations, k, how="distance", buffer=0.12)
    found = cross_validate(observations, MODEL, folds=chosen)
    assert chosen.n_folds == (observations.n if k is None else k) and np.array_equal(found.folds, chosen.labels)
    for fold in range(0, chosen.n_folds, 1 if k else 11):
        own = np.flatnonzero(chosen.labels == fold)
        distances = cKDTree(observations.coordinates[own]).query(observations.coordinates)[0]
        far = np.flatnonzero(distances >= 0.12)
        covariates = observations.design[own, 1:]
        expected = predict(observations.take(far), MODEL, observations.coordinates[own], covariates=covariates)
        np.testing.assert_allclose(found.prediction.mean[own], expected.mean, rtol=TWO_ROUTES)
        np.testing.assert_allclose(found.prediction.variance[own], expected.variance, rtol=TWO_ROUTES)
    assert chosen.distances.min() >= 0.12


def test_a_buffer_below_all_distances_leaves_out_one():
    observations = example()
    found = cross_validate(observations, MODEL, folds=folds(observations, how="distance", buffer=1e-9))
    alone = leave_one_out(observations, MODEL)
    np.testing.assert_allclose(found.prediction.mean, alone.prediction.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(found.prediction.variance, alone.prediction.variance, rtol=TWO_ROUTES)


def test_folds_are_as_far_from_data_as_the_sites_are():
    places = np.random.default_rng(2).uniform(size=(1200, 2))
    is_gap = np.hypot(*(places - 0.5).T) < 0.16
    observations = make_observations(places[~is_gap], places[~is_gap, 0])
    chosen = folds(observations, how="gaps", sites=places[is_gap])
    blind = folds(observations)
    nearest = cKDTree(places[~is_gap]).query(places[is_gap])[0]
    np.testing.assert_allclose(np.sort(chosen.site_distances), np.sort(nearest))
    for fold in range(chosen.n_folds):
        inside = chosen.labels == fold
        expected = cKDTree(observations.coordinates[~inside]).query(observations.coordinates[inside])[0]
        np.testing.assert_allclose(chosen.distances[inside], expected)
    # sites in a gap are 0.05 away in the mean, random folds 0.01: those of gaps come within a fifth of it
    assert chosen.mismatch < 0.2 < 0.6 < wasserstein(blind.distances, nearest) / nearest.mean()
    assert np.array_equal(chosen.labels, folds(observations, how="gaps", sites=places[is_gap]).labels)


def test_sites_among_the_data_get_folds_at_random():
    rng = np.random.default_rng(3)
    observations = make_observations(rng.uniform(size=(500, 2)), rng.normal(size=500))
    chosen = folds(observations, how="gaps", sites=rng.uniform(size=(2000, 2)))
    # near ones are in different folds, as at random
    assert chosen.mismatch < 0.1
    assert np.median(chosen.distances) < 1.3 * np.median(
        cKDTree(observations.coordinates).query(observations.coordinates, k=2)[0][:, 1]
    )


def test_sites_at_places_of_observations_do_not_count():
    observations, gap = example(), disc((1.2, 1.2), 0.05)
    both = np.concatenate([observations.coordinates[:50], gap])
    alone, together = (folds(observations, how="gaps", sites=sites) for sites in (gap, both))
    assert np.array_equal(alone.labels, together.labels) and len(together.site_distances) == len(gap)
    with pytest.raises(ValueError, match="all 50 sites are places of observations"):
        folds(observations, how="gaps", sites=observations.coordinates[:50])


def test_the_distance_of_distributions_is_wassersteins():
    from scipy.stats import wasserstein_distance

    rng = np.random.default_rng(4)
    for sizes in ((5, 5), (30, 7), (1, 12)):
        first, second = rng.gamma(2.0, size=sizes[0]), np.round(rng.gamma(1.0, size=sizes[1]), 1)
        assert wasserstein(first, second) == pytest.approx(wasserstein_distance(first, second))


def test_mistakes_are_named():
    observations = example()
    for wrong, words in (
        ({"how": "gaps"}, "needs the sites to predict"),
        ({"how": "stratified"}, "there are random, tiles, kmeans, distance, gaps"),
        ({"how": "random", "sites": [[0.0, 0.0]]}, "sites are for how='gaps'"),
        ({"how": "distance"}, "needs a buffer"),
        ({"how": "random", "buffer": 0.1}, "a buffer is for how='distance'"),
        ({"how": "distance", "buffer": 0.0}, "positive distance"),
        ({"how": "gaps", "sites": [[0.0]]}, "the sites have 1 coordinates"),
        ({"how": "gaps", "sites": [[0.0, 0.0]], "k": 91}, "91 folds of 90"),
    ):
        with pytest.raises(ValueError, match=words):
            folds(observations, **wrong)
    chosen = folds(observations, how="distance", buffer=2.0)
    with pytest.raises(ValueError, match="make folds smaller, a buffer shorter"):
        cross_validate(observations, MODEL, folds=chosen)
    with pytest.raises(ValueError, match="made of other observations"):
        cross_validate(observations.take(np.arange(90)[::-1]), MODEL, folds=chosen)


def test_models_are_compared_on_the_same_folds():
    sample = synthesize(Matern(2.0, 0.1, 0.5, 0.2), 400)
    observations = sample.observations()
    chosen = folds(observations, how="kmeans")
    models = {"wrong": Matern(2.0, 0.01, 0.5, 0.2), "right": sample.model, "smooth": Matern(2.0, 0.1, 2.5, 0.2)}
    validations = {name: cross_validate(observations, model, folds=chosen) for name, model in models.items()}
    found = compare(validations)
    assert found.best == "right" and [each.model for each in found.differences] == ["wrong", "smooth"]
    crps = {
        name: geostat.gaussian_crps(each.values, each.prediction.mean, each.prediction.standard_error)
        for name, each in validations.items()
    }
    for each in found.differences:
        paired = crps[each.model] - crps["right"]
        assert each.difference == pytest.approx(paired.mean()) and each.difference > 0
        means = np.array([paired[chosen.labels == fold].sum() for fold in range(10)])
        sizes = np.bincount(chosen.labels)
        expected = np.sqrt(10 / 9 * np.sum((means - paired.mean() * sizes) ** 2)) / 400
        assert each.standard_error == pytest.approx(expected)
        assert each.better_folds == np.sum(means < 0)
    for score, name in (
        ("squared_error", "mspe"),
        ("absolute_error", "mae"),
        ("interval", "interval_score"),
        ("log", "log_score"),
    ):
        one = compare(validations, score=score)
        values = {model: getattr(scores, name) for model, scores in one.scores.items()}
        assert one.best == min(values, key=values.get)
        for each in one.differences:
            assert each.difference == pytest.approx(values[each.model] - values[one.best])


def test_what_does_not_compare_is_refused():
    observations = example()
    first = leave_one_out(observations, MODEL)
    with pytest.raises(ValueError, match="1 cross-validation is no comparison"):
        compare({"a": first})
    with pytest.raises(ValueError, match="b has other folds than a"):
        compare({"a": first, "b": cross_validate(observations, MODEL)})
    with pytest.raises(ValueError, match="b is a cross-validation of other values than a"):
        compare({"a": first, "b": leave_one_out(example(seed=1), MODEL)})
    with pytest.raises(ValueError, match="there are crps, "):
        compare({"a": first, "b": first}, score="rmse")


@pytest.mark.parametrize("method", ["vecchia", "nearest"])
@pytest.mark.parametrize("how", ["kmeans", "distance"])
def test_neighbourhoods_of_all_data_are_exact(method, how):
    rng = np.random.default_rng(6)
    sites, errors = rng.uniform(size=(150, 2)), rng.uniform(0.01, 0.1, size=150)
    observations = make_observations(sites, np.sin(5 * sites[:, 0]), covariates=sites[:, 1], error_variances=errors)
    chosen = folds(observations, 4, how=how, buffer=0.1 if how == "distance" else None)
    # with known coefficients, which Vecchia's approximation would estimate a little otherwise
    known = [0.3, 0.1]
    near = cross_validate_locally(observations, MODEL, folds=chosen, method=method, neighbours=150, coefficients=known)
    exact = cross_validate(observations, MODEL, folds=chosen, coefficients=known)
    np.testing.assert_allclose(near.prediction.mean, exact.prediction.mean, rtol=1e-8)
    np.testing.assert_allclose(near.prediction.variance, exact.prediction.variance, rtol=1e-8)
    assert np.array_equal(near.folds, exact.folds)
    fewer = cross_validate_locally(observations, MODEL, folds=chosen, method=method, neighbours=40)
    shift = np.abs(fewer.prediction.mean - cross_validate(observations, MODEL, folds=chosen).prediction.mean)
    assert np.max(shift / exact.prediction.standard_error) < 0.5
    with pytest.raises(ValueError, match="neighbours are looked for anew"):
        cross_validate_locally(observations.take(np.arange(1001) % 150), MODEL, folds=np.arange(1001), method=method)
