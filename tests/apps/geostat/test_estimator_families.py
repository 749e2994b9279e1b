"""The estimator with known errors of its rows, with every kind of covariance, and on the sphere."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peers
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.utils import estimator_checks

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    AxisRanges,
    GeometricAnisotropy,
    GreatCircle,
    Matern,
    MaternGP,
    NonstationaryMatern,
    PowerExponential,
    make_observations,
)
from tests.apps.geostat.geostat_tolerances import MONTE_CARLO_DEVIATIONS, OTHER_PACKAGE, TWO_ROUTES
from tests.apps.geostat.rows import FIXED, example

pytestmark = pytest.mark.usefixtures("one_blas_thread")


# known errors


def test_alpha_is_that_of_scikit_learn():
    X, y = example()
    alpha = np.random.default_rng(1).uniform(0.0, 0.5, size=80)
    new = np.random.default_rng(2).uniform(-0.2, 1.2, size=(30, 2))
    ours = MaternGP(**{**FIXED, "nugget": 0.0}, mean="zero", alpha=alpha).fit(X, y)
    covariance = peers.ConstantKernel(2.0) * peers.Matern(length_scale=0.3 * np.sqrt(3), nu=1.5)
    theirs = GaussianProcessRegressor(covariance, alpha=alpha, optimizer=None).fit(X, y)
    np.testing.assert_allclose(ours.log_marginal_likelihood_value_, theirs.log_marginal_likelihood_value_, rtol=OTHER_PACKAGE)
    for words in ({"return_std": True}, {"return_cov": True}):
        for one, other in zip(ours.predict(new, **words), theirs.predict(new, **words), strict=True):
            np.testing.assert_allclose(one, other, rtol=OTHER_PACKAGE, atol=OTHER_PACKAGE)
    # by fit, and one number for all
    by_fit = MaternGP(**{**FIXED, "nugget": 0.0}, mean="zero").fit(X, y, error_variances=alpha)
    assert np.array_equal(by_fit.predict(new), ours.predict(new))
    same = MaternGP(**{**FIXED, "nugget": 0.02}, alpha=0.03).fit(X, y).predict(new)
    np.testing.assert_allclose(same, MaternGP(**FIXED).fit(X, y).predict(new), rtol=TWO_ROUTES)
    with pytest.raises(ValueError, match="leave one of them out"):
        MaternGP(**FIXED, alpha=0.1).fit(X, y, error_variances=alpha)
    with pytest.raises(ValueError, match="error variances have shape"):
        MaternGP(**FIXED, alpha=alpha[:7]).fit(X, y)


def test_errors_are_in_the_fit_and_in_everything_after_it():
    """Against dense formulas of the covariance of the errors."""
    X, y = example()
    errors = np.random.default_rng(3).uniform(0.01, 0.4, size=80)
    gp = MaternGP(smoothness=1.5, nugget="zero").fit(X, y, error_variances=errors)
    observations = make_observations(X, y, error_variances=errors)
    assert gp.model_ == geostat.fit(observations, smoothness=1.5, nugget="zero").model
    new = np.array([[0.2, 0.3], [0.22, 0.3], [1.2, 1.1]])
    expected = geostat.predict(observations, gp.model_, new, target="field")
    mean, covariance = gp.predict(new, return_cov=True)
    np.testing.assert_allclose(mean, expected.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(np.diag(covariance), expected.variance, rtol=TWO_ROUTES)
    s = geostat.cross_covariance(gp.model_, X, X) + np.diag(errors)
    c, inverse, one = geostat.cross_covariance(gp.model_, X, new), np.linalg.inv(s), np.ones(80)
    gap = 1 - one @ inverse @ c
    dense = geostat.cross_covariance(gp.model_, new, new) - c.T @ inverse @ c + np.outer(gap, gap) / (one @ inverse @ one)
    np.testing.assert_allclose(covariance, dense, rtol=TWO_ROUTES, atol=TWO_ROUTES * gp.model_.variance)
    draws = gp.sample_y(new, 4000, random_state=3)
    spread = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(draws.mean(axis=1) - mean) < MONTE_CARLO_DEVIATIONS * spread / np.sqrt(4000))


def test_folds_take_their_rows_of_the_errors():
    X, y = example()
    errors = np.where(X[:, 0] < 0.5, 1e-3, 4.0)
    noisy = y + np.sqrt(errors) * np.random.default_rng(4).normal(size=80)
    folds = KFold(4)
    found = cross_val_predict(MaternGP(**{**FIXED, "nugget": 0.0}), X, noisy, cv=folds, params={"error_variances": errors})
    for train, test in folds.split(X):
        rest = make_observations(X[train], noisy[train], error_variances=errors[train])
        expected = geostat.predict(rest, Matern(2.0, 0.3, 1.5), X[test]).mean
        np.testing.assert_allclose(found[test], expected, rtol=TWO_ROUTES, atol=TWO_ROUTES)


# covariance functions


@pytest.mark.parametrize(
    ("covariance", "fixed", "estimated"),
    [
        ("anisotropic", (), ("range", "angle", "ratio", "variance", "nugget")),
        ("axis-ranges", (), ("range_1", "range_2", "variance", "nugget")),
        ("power-exponential", ("power",), ("range", "variance", "nugget")),
        (PowerExponential(1.0, 0.3, 1.2, 0.1), (), ("range", "power", "variance", "nugget")),
        (
            GeometricAnisotropy(Matern(1.0, 0.3, 1.5, 0.1), 0.3, 0.5),
            ("smoothness", "angle"),
            ("range", "ratio", "variance", "nugget"),
        ),
    ],
)
def test_families_are_fitted_as_fit_does(covariance, fixed, estimated):
    X, y = example(60)
    gp = MaternGP(covariance=covariance, fixed=fixed).fit(X, y)
    assert gp.result_.estimated == estimated
    observations, start = make_observations(X, y), covariance
    kept = fixed
    if isinstance(covariance, str):
        values = {} if covariance == "power-exponential" else {"smoothness": 1.5}
        kept = (*fixed, *values)
        start = geostat.starting_model(covariance, observations, values=values, fixed=kept)
    assert gp.model_ == geostat.fit(observations, covariance=start, fixed=kept).model
    expected = geostat.predict(observations, gp.model_, X[:5] + 0.01, target="field")
    mean, std = gp.predict(X[:5] + 0.01, return_std=True)
    np.testing.assert_allclose(mean, expected.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(std, expected.standard_error, rtol=TWO_ROUTES)
    fresh = clone(gp)
    assert fresh.get_params()["covariance"] == covariance and not hasattr(fresh, "model_")
    assert gp.score(X, y) > 0.5


def test_a_range_for_each_column_is_scikit_learn_s():
    X, y = example(d=3)
    model = AxisRanges(Matern(2.0, 1.0, 1.5, 0.05), (0.3, 0.6, 2.0))
    ours = MaternGP(covariance=model, fixed="all", mean="zero").fit(X, y)
    assert ours.result_ is None and ours.model_ == model
    covariance = peers.ConstantKernel(2.0) * peers.Matern(length_scale=np.sqrt(3) * np.array(model.ranges), nu=1.5)
    theirs = GaussianProcessRegressor(covariance, alpha=0.05, optimizer=None).fit(X, y)
    for one, other in zip(ours.predict(X + 0.01, return_std=True), theirs.predict(X + 0.01, return_std=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=OTHER_PACKAGE, atol=OTHER_PACKAGE)


def test_nested_and_nonstationary_covariances():
    X, y = example(60)
    nested = Matern(1.0, 0.1, 0.5, 0.05) + Matern(1.0, 0.6, 1.5)
    gp = MaternGP(covariance=nested, fixed="all").fit(X, y)
    expected = geostat.predict(make_observations(X, y), nested, X[:4] + 0.02, target="field")
    np.testing.assert_allclose(gp.predict(X[:4] + 0.02), expected.mean, rtol=TWO_ROUTES)
    local = NonstationaryMatern(1.0, 0.3, 1.5, (0.0,), (), ("h",), (), (0.5,), 0.05)
    table = np.column_stack([X, X[:, 0] ** 2])
    gp = MaternGP(covariance=local, fixed=("smoothness",), max_evaluations=6).fit(table, y)
    assert gp.observations_.space == 2 and gp.result_.stationary.degrees == 1
    assert gp.predict(table[:3]).shape == (3,)


def test_searches_over_covariances():
    X, y = example(60)
    choices = [Matern(1.0, 0.001, 0.5, 0.05), Matern(1.0, 0.5, 1.5, 0.05)]
    search = GridSearchCV(MaternGP(fixed="all"), {"covariance": choices}, cv=3).fit(X, y)
    assert search.best_params_ == {"covariance": choices[1]}
    assert cross_val_score(MaternGP(covariance=choices[1], fixed="all"), X, y, cv=3).mean() > 0.8


def test_passes_a_check_of_scikit_learn_with_another_covariance():
    for name in ("check_regressors_int", "check_fit_idempotent", "check_estimators_pickle"):
        getattr(estimator_checks, name)("MaternGP", MaternGP(covariance="axis-ranges", max_evaluations=4))


# the sphere


def test_great_circles():
    rng = np.random.default_rng(0)
    X, y = rng.uniform([5, 45], [15, 55], size=(50, 2)), rng.normal(size=50)
    words = {"variance": 1.0, "range": 300.0, "nugget": 0.1, "smoothness": 0.5}
    kept = MaternGP(**words, lonlat=True, distance="great-circle").fit(X, y)
    assert kept.model_ == GreatCircle(Matern(1.0, 300.0, 0.5, 0.1))
    expected = geostat.predict(make_observations(X, y), kept.model_, X + 0.1, target="field")
    np.testing.assert_allclose(kept.predict(X + 0.1), expected.mean, rtol=TWO_ROUTES, atol=TWO_ROUTES)
    values = geostat.simulate(kept.model_, X, seed=1, target="observation")[0]
    free = MaternGP(0.5, lonlat=True, distance="great-circle", max_evaluations=8).fit(X, values)
    assert isinstance(free.model_, GreatCircle) and free.result_.estimated == ("range", "variance", "nugget")
    chords = MaternGP(covariance=Matern(1.0, 300.0, 0.5, 0.1), fixed="all", lonlat=True).fit(X, y)
    np.testing.assert_allclose(chords.predict(X + 0.1), kept.predict(X + 0.1), atol=1e-2)
    with pytest.raises(ValueError, match="positive definite on the sphere only"):
        MaternGP(**{**words, "smoothness": 1.5}, lonlat=True, distance="great-circle").fit(X, y)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"covariance": "cubic"}, "covariance is 'cubic', but there are matern"),
        ({"covariance": "nonstationary"}, "and covariance functions such as"),
        ({"covariance": "anisotropic", "fixed": "all"}, "has no values yet"),
        ({"covariance": "anisotropic", "smoothness": "rough"}, "smoothness is 'rough'"),
        ({**FIXED, "nugget": "none"}, "nugget is 'none', but it must be"),
        ({"covariance": "anisotropic", "range": 1.0}, "give those of covariance in it"),
        ({"covariance": "anisotropic", "fixed": ("turn",)}, "fixed names 'turn'"),
        ({"fixed": ("range",)}, "covariance, which is not given"),
        ({"distance": "great-circle"}, "with lonlat=True"),
        ({"distance": "arc", "lonlat": True}, "distance is 'arc'"),
        ({**FIXED, "alpha": -1.0}, "zero or positive"),
    ],
)
def test_wrong_parameters_are_named_by_fit(words, message):
    with pytest.raises(ValueError, match=message):
        MaternGP(**words).fit(*example(20))
