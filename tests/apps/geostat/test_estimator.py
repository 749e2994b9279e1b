"""The estimator: scikit-learn's own checks, agreement with its Gaussian process, and what it promises beyond."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from pandas import DataFrame
from sklearn.base import clone, is_regressor
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peers
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import MaternGP, fit
from tests.apps.geostat.geostat_tolerances import OTHER_PACKAGE, TWO_ROUTES
from tests.apps.geostat.rows import FIXED, example
from tests.option_words import FLOAT64_WORDS, WORDS

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: A check that scikit-learn leaves out for want of an environment variable that SciPy reads when it is imported.
NOT_HERE = {"check_array_api_input"}


# scikit-learn's checks


@pytest.mark.commit
def test_passes_the_checks_of_scikit_learn():
    estimator = MaternGP(range=1.0, variance=1.0, nugget=0.01)
    results = estimator_checks.check_estimator(estimator, on_skip=None)
    passed = {result["check_name"] for result in results if result["status"] == "passed"}
    assert {result["check_name"] for result in results} - passed <= NOT_HERE
    assert {"check_regressors_train", "check_estimators_pickle", "check_regressors_no_decision_function"} <= passed


@pytest.mark.parametrize("name", ["check_regressors_int", "check_dict_unchanged", "check_fit_idempotent"])
def test_passes_them_with_parameters_estimated_too(name):
    getattr(estimator_checks, name)("MaternGP", MaternGP(max_evaluations=6))


def test_works_inside_scikit_learn():
    X, y = example()
    assert is_regressor(MaternGP())
    search = GridSearchCV(make_pipeline(StandardScaler(), MaternGP(**FIXED)), {"materngp__range": [0.01, 1.0]}, cv=3)
    search.fit(X, y)
    assert search.best_params_ == {"materngp__range": 1.0} and search.best_score_ > 0.8
    assert cross_val_score(MaternGP(**FIXED), X, y, cv=3).mean() > 0.8


def test_pickle_and_clone():
    X, y = example()
    fitted = MaternGP(**FIXED).fit(X, y)
    copied = pickle.loads(pickle.dumps(fitted))
    for ours, theirs in zip(fitted.predict(X[:9] + 0.01, return_std=True), copied.predict(X[:9] + 0.01, True), strict=True):
        assert np.array_equal(ours, theirs)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params() and not hasattr(fresh, "alpha_")
    assert repr(fresh) == "MaternGP(nugget=0.05, range=0.3, variance=2.0)"
    with pytest.raises(ValueError, match=r"Invalid parameter 'length_scale' .* Valid parameters are: \['alpha', 'covariance'"):
        fresh.set_params(length_scale=1.0)


# agreement


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.commit
def test_agrees_with_scikit_learn_at_fixed_parameters(nu, d):
    X, y = example(d=d)
    new = np.random.default_rng(1).uniform(-0.2, 1.2, size=(30, d))
    ours = MaternGP(smoothness=nu, range=0.3, variance=2.0, nugget=0.05, mean="zero").fit(X, y)
    covariance = peers.ConstantKernel(2.0) * peers.Matern(length_scale=0.3 * np.sqrt(2 * nu), nu=nu)
    theirs = GaussianProcessRegressor(covariance, alpha=0.05, optimizer=None).fit(X, y)
    np.testing.assert_allclose(ours.log_marginal_likelihood_value_, theirs.log_marginal_likelihood_value_, rtol=OTHER_PACKAGE)
    for words in ({"return_std": True}, {"return_cov": True}):
        (mean, spread), (their_mean, their_spread) = ours.predict(new, **words), theirs.predict(new, **words)
        np.testing.assert_allclose(mean, their_mean, rtol=OTHER_PACKAGE, atol=OTHER_PACKAGE)
        np.testing.assert_allclose(spread, their_spread, rtol=OTHER_PACKAGE, atol=OTHER_PACKAGE)
    np.testing.assert_allclose(ours.score(new, new[:, 0]), theirs.score(new, new[:, 0]), rtol=OTHER_PACKAGE)


def test_estimates_as_fit_and_predicts_as_kriging():
    X, y = example()
    observations = geostat.make_observations(X, y)
    result = geostat.fit(observations, smoothness=1.5)
    ours = MaternGP().fit(X, y)
    assert ours.model_ == result.model and ours.result_.converged == result.converged
    np.testing.assert_allclose(ours.log_marginal_likelihood_value_, result.loglik, rtol=TWO_ROUTES)
    np.testing.assert_allclose(ours.coef_, result.coefficients, rtol=TWO_ROUTES)
    assert ours.mean_columns_ == ("intercept",)
    for target in ("field", "observation"):
        expected = geostat.predict(observations, result.model, X[:7] + 0.05, target=target)
        mean, std = ours.set_params(target=target).predict(X[:7] + 0.05, return_std=True)
        np.testing.assert_allclose(mean, expected.mean, rtol=TWO_ROUTES)
        np.testing.assert_allclose(std, expected.standard_error, rtol=TWO_ROUTES)
        covariance = ours.predict(X[:7] + 0.05, return_cov=True)[1]
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=TWO_ROUTES)
    with ours.kriging() as kriged:
        np.testing.assert_allclose(kriged.predict(X[:3]).mean, ours.predict(X[:3]), rtol=TWO_ROUTES)


def test_smoothness_can_be_free():
    X, y = example()
    gp = MaternGP(smoothness="free").fit(X, y)
    assert gp.result_.estimated == ("range", "smoothness", "variance", "nugget")
    assert gp.model_ == fit(gp.observations_, smoothness="free").model


def test_memory_budget_changes_no_bit(tmp_path):
    X, y = example(n=130)
    options = {**FIXED, "tile_size": 16}
    roomy = MaternGP(**options).fit(X, y)
    tight = MaternGP(**options, memory_budget="40 kB", store=tmp_path / "factor.ooc").fit(X, y)
    assert np.array_equal(roomy.alpha_, tight.alpha_)
    assert np.array_equal(roomy.predict(X, return_std=True), tight.predict(X, return_std=True))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", FLOAT64_WORDS)
def test_settings_reach_every_factorization(option, monkeypatch):
    """Every option of a factorization, and what is given beside goes before it."""
    seen = []
    factored = oc.cholesky
    monkeypatch.setattr(oc, "cholesky", lambda a, *args, **words: seen.append(words) or factored(a))
    settings = geostat.FactorSettings(**{option: WORDS[option][1]})
    X, y = example(n=40)
    with MaternGP(**FIXED, settings=settings).fit(X, y).kriging() as kriged:
        kriged.predict(X[:3])
    assert len(seen) == 2 and all(words[option] == WORDS[option][1] for words in seen)


def test_what_is_given_beside_the_settings_goes_before_them(tmp_path):
    settings = geostat.FactorSettings(tile_size=32, fp64="residue", memory_budget="1 GiB")
    X, y = example(n=40)
    beside = MaternGP(**FIXED, settings=settings, tile_size=16, store=tmp_path / "factor.ooc")
    with beside.fit(X, y).kriging() as kriged:
        report = kriged.factor.report.to_dict()
    assert (report["tile_size"], report["engine"], report["budget_bytes"]) == (16, "residue", 1 << 30)
    assert not list(tmp_path.iterdir())
    assert settings == geostat.FactorSettings(tile_size=32, fp64="residue", memory_budget="1 GiB")


def test_settings_are_cloned_pickled_and_searched():
    X, y = example(n=40)
    gp = MaternGP(**FIXED, settings=geostat.FactorSettings(tile_size=16, fp64="native"))
    assert clone(gp).get_params() == gp.get_params()
    assert pickle.loads(pickle.dumps(gp.fit(X, y))).settings == gp.settings
    choices = [None, geostat.FactorSettings(tile_size=16), geostat.FactorSettings(tile_size=24)]
    search = GridSearchCV(MaternGP(**FIXED), {"settings": choices}, cv=2, error_score="raise").fit(X, y)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], search.best_score_, rtol=TWO_ROUTES)


def test_settings_of_another_kind_are_refused():
    with pytest.raises(TypeError, match=r"settings is a dict; give FactorSettings\(\.\.\.\)"):
        MaternGP(**FIXED, settings={"tile_size": 16}).fit(*example())
    with oc.HostMemory() as memory, pytest.raises(ValueError, match=r"cannot be cloned .* leave memory and kept out"):
        MaternGP(**FIXED, settings=geostat.FactorSettings(memory=memory)).fit(*example())


def test_draws_have_the_predictive_mean_and_covariance():
    X, y = example()
    fitted = MaternGP(**FIXED).fit(X, y)
    new = np.array([[0.2, 0.3], [0.22, 0.3], [1.3, 1.4]])
    draws = fitted.sample_y(new, 4000, random_state=3)
    assert draws.shape == (3, 4000) and np.array_equal(draws, fitted.sample_y(new, 4000, random_state=3))
    mean, covariance = fitted.predict(new, return_cov=True)
    spread = np.sqrt(np.diag(covariance))
    # five standard errors of a mean, and of a covariance: sqrt((c_ii c_jj + c_ij**2) / n) <= sqrt(2 / n) s_i s_j
    assert np.all(np.abs(draws.mean(axis=1) - mean) < 5 * spread / np.sqrt(4000))
    assert np.all(np.abs(np.cov(draws) - covariance) < 5 * np.sqrt(2 / 4000) * np.outer(spread, spread))


# columns


def test_covariates_by_name_and_by_position():
    X, y = example()
    depth = np.random.default_rng(2).normal(size=(len(X), 1))
    table = np.hstack([depth, X])
    named = MaternGP(**FIXED, covariates=("depth",)).fit(DataFrame(table, columns=["depth", "x", "y"]), y + 4 * depth[:, 0])
    placed = MaternGP(**FIXED, covariates=(0,)).fit(table, y + 4 * depth[:, 0])
    assert named.mean_columns_ == ("intercept", "depth") and placed.mean_columns_ == ("intercept", "covariate1")
    assert list(named.feature_names_in_) == ["depth", "x", "y"] and not hasattr(placed, "feature_names_in_")
    np.testing.assert_array_equal(named.coef_, placed.coef_)
    assert named.coef_[1] == pytest.approx(4.0, abs=0.2)
    without = MaternGP(**FIXED).fit(X, y).predict(X)
    np.testing.assert_allclose(placed.predict(table) - 4 * depth[:, 0], without, atol=0.2)


def test_degrees_become_chords():
    rng = np.random.default_rng(0)
    lonlat, y = rng.uniform([5, 50], [6, 51], size=(40, 2)), rng.normal(size=40)
    words = {"variance": 1.0, "range": 20.0, "nugget": 0.1}
    ours = MaternGP(**words, lonlat=True).fit(lonlat, y)
    chords = geostat.chordal_coordinates(*lonlat.T)
    np.testing.assert_array_equal(ours.predict(lonlat), MaternGP(**words).fit(chords, y).predict(chords))


def test_names_of_columns_are_compared():
    X, y = example()
    named = MaternGP(**FIXED).fit(DataFrame(X, columns=["x", "y"]), y)
    with pytest.raises(ValueError, match=r"should match.*\n.*same order"):
        named.predict(DataFrame(X, columns=["y", "x"]))
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- z\nFeature names seen at fit time, yet now missing:\n- y"):
        named.predict(DataFrame(X, columns=["x", "z"]))
    with pytest.warns(UserWarning, match="X does not have valid feature names, but MaternGP was fitted with"):
        named.predict(X)
    bare = named.fit(X, y)
    with pytest.warns(UserWarning, match="X has feature names, but MaternGP was fitted without"):
        bare.predict(DataFrame(X, columns=["x", "y"]))
    with pytest.raises(TypeError, match="only supported if all input features have string names"):
        bare.fit(DataFrame(X, columns=["x", 1]), y)


# mistakes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"range": 0.3}, "kept only together"),
        ({"range": 0.3, "variance": 1.0}, "kept only together"),
        ({"range": 0.3, "variance": 1.0, "nugget": 0.1, "smoothness": "best"}, "kept only together"),
        ({"range": 0.3, "variance": 1.0, "nugget": 0.1, "smoothness": "free"}, "kept only together"),
        ({**FIXED, "range": -1.0}, "range is -1.0"),
        ({**FIXED, "target": "truth"}, "'field' and 'observation'"),
        ({**FIXED, "covariates": ("depth",)}, "'depth' is no column of X; it has 2: unnamed"),
        ({**FIXED, "covariates": (2,)}, "2 is no column of X"),
        ({**FIXED, "covariates": (0, 1)}, "no coordinates"),
        ({**FIXED, "covariates": (0,), "lonlat": True}, "longitude and latitude, but X has 1"),
        ({**FIXED, "mean": "linear"}, "mean is 'linear'"),
    ],
)
def test_wrong_parameters_are_named_by_fit(words, message):
    with pytest.raises(ValueError, match=message):
        MaternGP(**words).fit(*example())


def test_wrong_arguments_are_named():
    X, y = example()
    fitted = MaternGP(**FIXED).fit(X, y)
    with pytest.raises(ValueError, match="both asked for"):
        fitted.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        fitted.fit(X, np.column_stack([y, y]))
    with pytest.warns(DataConversionWarning, match="column-vector"):
        fitted.fit(X, y[:, np.newaxis])
    for method in ("predict", "sample_y"):
        with pytest.raises(NotFittedError, match=r"not fitted yet\. Call 'fit'"):
            getattr(MaternGP(), method)(X)
    with pytest.raises(NotFittedError, match=r"not fitted yet\. Call 'fit'"):
        MaternGP().kriging()


def test_weighted_score():
    X, y = example()
    fitted, weights = MaternGP(**FIXED).fit(X[::2], y[::2]), np.arange(40.0)
    expected = fitted.score(np.repeat(X[1::2], np.arange(40), axis=0), np.repeat(y[1::2], np.arange(40)))
    assert fitted.score(X[1::2], y[1::2], weights) == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("processes")
def test_without_scikit_learn_only_the_estimator_is_missing():
    program = """
import sys
from ooc_chol.apps import geostat
assert "sklearn" not in sys.modules
sys.modules["sklearn"] = None  # importing it now fails
for use in (lambda: geostat.MaternGP(), lambda: __import__("ooc_chol.apps.geostat", fromlist=["MaternGP"]).MaternGP):
    try:
        use()
    except geostat.MissingExtraError as error:
        assert "pip install '.[sklearn]'" in str(error), error
    else:
        raise AssertionError("an estimator without scikit-learn")
assert not hasattr(geostat, "MaternGPs")
X = [[0.1, 0.2], [0.9, 0.1], [0.4, 0.8], [0.6, 0.5], [0.2, 0.9]]
observations = geostat.make_observations(X, [1.0, 2.0, 3.0, 4.0, 5.0])
assert geostat.predict(observations, geostat.Matern(1.0, 0.5, 1.5, 0.1), X).mean.shape == (5,)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
