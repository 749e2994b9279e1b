"""Cross-validation from one factor against leaving out and factoring again, the model held."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synth import synthesize
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import FactorSettings, Matern, cross_validate, fold_labels, leave_one_out, make_observations, predict
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.inside.geostat import validation_module as module

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.5, 0.25, 1.5, 0.05)


def example(n=70, seed=0, q=0, mean="constant"):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    covariates = rng.normal(size=(n, q))
    values = 7 + np.cos(5 * sites[:, 0]) + covariates.sum(axis=1) + 0.2 * rng.normal(size=n)
    return make_observations(sites, values, covariates=covariates, mean=mean)


def left_out(observations, rows, model, known=None):
    """Kriging of ``rows`` from all others."""
    others = observations.take(np.setdiff1d(np.arange(observations.n), rows))
    intercept = observations.mean == "constant"
    covariates = observations.design[rows, int(intercept) :]
    return predict(others, model, observations.coordinates[rows], covariates=covariates, coefficients=known)


CASES = [(0, "zero", None), (0, "constant", None), (2, "constant", None), (1, "zero", None), (1, "constant", [6.5, 0.8])]


@pytest.mark.parametrize(("q", "mean", "known"), CASES)
@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
def test_leave_one_out_is_leaving_out_one(nu, q, mean, known):
    observations, model = example(q=q, mean=mean), Matern(1.5, 0.25, nu, 0.05)
    found = leave_one_out(observations, model, coefficients=known)
    for i in range(0, observations.n, 17):
        expected = left_out(observations, np.array([i]), model, known)
        assert found.prediction.mean[i] == pytest.approx(expected.mean[0], rel=TWO_ROUTES)
        assert found.prediction.variance[i] == pytest.approx(expected.variance[0], rel=TWO_ROUTES)
    assert np.array_equal(found.values, observations.values)
    assert np.array_equal(found.folds, np.arange(observations.n))


@pytest.mark.parametrize(("q", "mean", "known"), CASES)
@pytest.mark.parametrize("how", ["random", "tiles", "kmeans"])
def test_folds_are_left_out_together(how, q, mean, known):
    observations = example(q=q, mean=mean)
    found = cross_validate(observations, MODEL, folds=4, how=how, seed=3, coefficients=known)
    assert found.n_folds == 4
    assert np.array_equal(found.folds, fold_labels(observations, 4, how=how, seed=3))
    for fold in range(4):
        rows = np.flatnonzero(found.folds == fold)
        expected = left_out(observations, rows, MODEL, known)
        np.testing.assert_allclose(found.prediction.mean[rows], expected.mean, rtol=TWO_ROUTES)
        np.testing.assert_allclose(found.prediction.variance[rows], expected.variance, rtol=TWO_ROUTES)
    np.testing.assert_allclose(found.residuals, observations.values - found.prediction.mean)


def test_leave_one_out_is_the_finest_cross_validation():
    observations = example(q=1)
    one, all_folds = leave_one_out(observations, MODEL), cross_validate(observations, MODEL, folds=np.arange(observations.n))
    np.testing.assert_allclose(one.prediction.mean, all_folds.prediction.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(one.prediction.variance, all_folds.prediction.variance, rtol=TWO_ROUTES)


@pytest.mark.parametrize("columns", [1, 9, 40])
def test_memory_does_not_change_results(monkeypatch, columns):
    observations = example()
    whole = leave_one_out(observations, MODEL), cross_validate(observations, MODEL, folds=5)
    monkeypatch.setattr(module, "BATCH_BYTES", 2 * 8 * observations.n * columns)
    settings = FactorSettings(tile_size=16, memory_budget=20_000)
    small = leave_one_out(observations, MODEL, settings=settings), cross_validate(observations, MODEL, settings=settings, folds=5)
    for a, b in zip(whole, small, strict=True):
        np.testing.assert_allclose(b.prediction.mean, a.prediction.mean, rtol=TWO_ROUTES)
        np.testing.assert_allclose(b.prediction.variance, a.prediction.variance, rtol=TWO_ROUTES)


def test_a_right_model_is_told_from_a_wrong_one():
    sample = synthesize(Matern(2.0, 0.1, 0.5, 0.2), 400)
    right = leave_one_out(sample.observations(), sample.model)
    # 400 residuals, nearly independent: their mean square has a standard error of 0.07
    assert abs(np.mean(right.standardized**2) - 1) < 0.25
    assert abs(right.scores(0.8).coverage - 0.8) < 0.07
    for wrong in (Matern(2.0, 0.01, 0.5, 0.2), Matern(2.0, 0.1, 0.5, 2.0), Matern(0.4, 0.1, 0.5, 0.04)):
        assert leave_one_out(sample.observations(), wrong).scores().log_score > right.scores().log_score + 0.02


def test_the_mean_log_score_is_not_the_likelihood_but_its_first_term():
    # log p(z) = sum of log p(z_i | z_1 .. z_{i-1}): the last term is the last observation's leave-one-out score
    sample = synthesize(Matern(2.0, 0.1, 0.5, 0.2), 60)
    whole = sample.observations()
    last = geostat.log_likelihood(whole, sample.model).loglik
    last -= geostat.log_likelihood(whole.take(np.arange(59)), sample.model).loglik
    found = leave_one_out(whole, sample.model)
    score = geostat.gaussian_log_score(found.values, found.prediction.mean, found.prediction.standard_error)
    assert -score[59] == pytest.approx(last, rel=TWO_ROUTES)


@pytest.mark.parametrize("how", ["random", "tiles", "kmeans"])
def test_folds(how):
    observations = example(n=103)
    labels = fold_labels(observations, 7, how=how, seed=1)
    sizes = np.bincount(labels)
    assert len(sizes) == 7 and sizes.min() > 0
    assert np.array_equal(labels, fold_labels(observations, 7, how=how, seed=1))
    if how != "kmeans":
        assert sizes.max() - sizes.min() <= 1
    spread = np.mean([np.ptp(observations.coordinates[labels == fold], axis=0).max() for fold in range(7)])
    # one of seven compact folds reaches over about half of the square, a random one over nearly all
    assert spread > 0.8 if how == "random" else spread < 0.75


def test_mistakes_are_named():
    observations = example(n=30)
    for folds, words in ((1, "1 folds of 30"), (31, "31 folds"), ([1, 2], "shape .2,"), (np.ones(30), "type float64")):
        with pytest.raises(ValueError, match=words):
            cross_validate(observations, MODEL, folds=folds)
    with pytest.raises(ValueError, match="all observations are in one fold"):
        cross_validate(observations, MODEL, folds=np.full(30, 4))
    with pytest.raises(ValueError, match="'random', 'tiles' and 'kmeans'"):
        cross_validate(observations, MODEL, how="stratified")
    with pytest.raises(ValueError, match="fewer than 3 clusters"):
        fold_labels(make_observations(np.repeat([[0.0, 0.0], [1.0, 1.0]], 5, axis=0), np.arange(10.0)), 3, how="kmeans")


def test_a_coefficient_that_one_fold_alone_determines_is_named():
    values, flag = np.random.default_rng(4).normal(size=20), np.zeros(20)
    flag[13] = 1.0
    observations = make_observations(np.random.default_rng(5).uniform(size=(20, 2)), values, covariates=flag)
    with pytest.raises(
        ValueError, match=r"with number 13, counted from zero\) the coefficients of the mean .*cannot be estimated"
    ):
        leave_one_out(observations, MODEL)
    with pytest.raises(ValueError, match=r"without fold 1 \(10 observations"):
        cross_validate(observations, MODEL, folds=np.arange(20) % 2)
    known = leave_one_out(observations, MODEL, coefficients=[0.0, 1.0])
    assert np.isfinite(known.prediction.mean).all()
