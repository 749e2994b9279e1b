"""The log-likelihood by other routes: a dense normal density, scikit-learn, published numbers, and identities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Matern, log_likelihood, make_observations, profile_log_likelihood
from tests.apps.geostat.geostat_tolerances import CENTRAL_DIFFERENCE, TWO_ROUTES, printed

pytestmark = [pytest.mark.commit, pytest.mark.usefixtures("one_blas_thread")]


def dense(model, sites):
    distance = np.linalg.norm(sites[:, None] - sites[None], axis=2)
    return model.covariance(distance) + model.nugget * np.eye(len(sites))


def example(n=120, d=2, seed=0, **options):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, d))
    values = 3 + np.sin(4 * sites[:, 0]) + 0.1 * rng.normal(size=n)
    return make_observations(sites, values, **options)


@pytest.fixture(scope="module")
def meuse(data_dir):
    table = geostat.read_table(data_dir / "meuse.csv", ("x", "y", "zinc", "dist"))
    return table.stack(("x", "y")) / 1000, np.log(table.columns["zinc"]), np.sqrt(table.columns["dist"])


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
def test_zero_mean_equals_the_normal_density(nu, d):
    observations = example(d=d, mean="zero")
    model = Matern(1.3, 0.2, nu, 0.05)
    direct = multivariate_normal(cov=dense(model, observations.coordinates)).logpdf(observations.values)
    assert log_likelihood(observations, model).loglik == pytest.approx(direct, rel=TWO_ROUTES)


@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
def test_equals_scikit_learn_through_the_parameter_map(nu):
    observations = example(mean="zero")
    kernel = 1.3 * kernels.Matern(0.2 * np.sqrt(2 * nu), nu=nu) + kernels.WhiteKernel(0.05)
    theirs = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(observations.coordinates, observations.values)
    ours = log_likelihood(observations, Matern(1.3, 0.2, nu, 0.05))
    assert ours.loglik == pytest.approx(theirs.log_marginal_likelihood_value_, rel=TWO_ROUTES)


def test_mean_is_generalised_least_squares():
    covariate = np.random.default_rng(5).normal(size=(120, 2))
    observations = example(covariates=covariate, covariate_names=("a", "b"))
    model = Matern(1.3, 0.2, 1.5, 0.05)
    found = log_likelihood(observations, model)
    inverse = np.linalg.inv(dense(model, observations.coordinates))
    covariance = np.linalg.inv(observations.design.T @ inverse @ observations.design)
    np.testing.assert_allclose(
        found.coefficients, covariance @ observations.design.T @ inverse @ observations.values, rtol=TWO_ROUTES
    )
    np.testing.assert_allclose(found.coefficient_covariance, covariance, rtol=TWO_ROUTES)
    assert observations.mean_columns == ("intercept", "a", "b")


def test_profiled_variance_is_where_the_score_vanishes():
    observations = example()
    found = profile_log_likelihood(observations, Matern(1.0, 0.2, 1.5, 0.01))
    assert found.model.variance == pytest.approx(found.quadratic / observations.n)
    assert log_likelihood(observations, found.model).loglik == pytest.approx(found.loglik, rel=TWO_ROUTES)

    def at(factor):
        model = found.model
        return log_likelihood(observations, Matern(model.variance * factor, model.range, 1.5, model.nugget * factor)).loglik

    assert abs(at(np.exp(1e-4)) - at(np.exp(-1e-4))) / 2e-4 < CENTRAL_DIFFERENCE
    assert max(at(1.05), at(0.95)) < found.loglik


def test_fixed_nugget_is_kept_and_the_variance_follows():
    found = profile_log_likelihood(example(), Matern(1.0, 0.2, 0.5, 0.25), nugget=0.01)
    assert (found.model.nugget, found.model.variance) == pytest.approx((0.01, 0.04))


def test_order_and_origin_do_not_matter():
    observations, correlation = example(), Matern(1.0, 0.2, 2.5, 0.01)
    value = profile_log_likelihood(observations, correlation).loglik
    shuffled = observations.take(np.random.default_rng(6).permutation(observations.n))
    assert profile_log_likelihood(shuffled, correlation).loglik == pytest.approx(value, rel=TWO_ROUTES)
    moved = make_observations(observations.coordinates + np.array([300.0, -70.0]), observations.values)
    assert profile_log_likelihood(moved, correlation).loglik == pytest.approx(value, rel=TWO_ROUTES)


def test_out_of_core_changes_no_bit(tmp_path):
    observations, correlation = example(n=300), Matern(1.0, 0.2, 1.5, 0.01)
    inside = profile_log_likelihood(observations, correlation, settings=geostat.FactorSettings(tile_size=32))
    store = tmp_path / "factor"
    small = geostat.FactorSettings(tile_size=32, memory_budget=100_000, store=store)
    outside = profile_log_likelihood(observations, correlation, settings=small)
    assert (outside.loglik, outside.quadratic) == (inside.loglik, inside.quadratic)
    assert not store.exists()


def test_store_is_never_somebody_elses_file(tmp_path):
    store = tmp_path / "precious"
    store.write_text("thesis")
    with pytest.raises(FileExistsError, match="precious exists already"):
        log_likelihood(example(), Matern(1, 1, 0.5, 0.1), settings=geostat.FactorSettings(store=store))
    assert store.read_text() == "thesis"


def test_duplicates_need_a_nugget():
    sites = np.repeat(np.random.default_rng(7).uniform(size=(20, 2)), 2, axis=0)
    observations = make_observations(sites, np.random.default_rng(8).normal(size=40))
    assert np.isfinite(log_likelihood(observations, Matern(1.0, 0.3, 0.5, 0.1)).loglik)
    with pytest.raises(oc.NotPositiveDefiniteError):
        log_likelihood(observations, Matern(1.0, 0.3, 0.5))


def test_dependent_columns_of_the_mean_are_named():
    with pytest.raises(ValueError, match="column 'twice' of the mean"):
        observations = example(covariates=np.full(120, 2.0), covariate_names=("twice",))
        log_likelihood(observations, Matern(1.0, 0.3, 0.5, 0.1))


def test_equal_values_leave_no_variance():
    observations = make_observations(np.arange(10.0), np.full(10, 4.0))
    with pytest.raises(ValueError, match="are all values equal"):
        profile_log_likelihood(observations, Matern(1.0, 0.3, 0.5, 0.1))


@pytest.mark.parametrize(
    ("coordinates", "values", "words"),
    [
        (np.zeros((4, 0)), np.zeros(4), "d >= 1"),
        (np.zeros((5, 2)), np.zeros(4), "one value per site"),
        ([[0.0, np.nan]] * 5, np.zeros(5), "coordinates hold a NaN"),
        (np.zeros((5, 2)), [0, 1, np.inf, 2, 3], "first in row 2"),
        (np.zeros((3, 2)), np.zeros(3), "too few"),
    ],
)
def test_wrong_observations_are_named(coordinates, values, words):
    with pytest.raises(ValueError, match=words):
        make_observations(coordinates, values)


# T8: published for the Meuse data, log(zinc), coordinates in kilometres; equal to scikit-learn to 1e-11


@pytest.mark.parametrize(("nu", "loglik"), [(0.5, -110.037199497), (1.5, -111.706745313)])
def test_meuse_at_fixed_parameters(meuse, nu, loglik):
    sites, values, _ = meuse
    observations = make_observations(sites, values - values.mean(), mean="zero")
    assert log_likelihood(observations, Matern(0.5, 0.3, nu, 0.05)).loglik == pytest.approx(loglik, abs=printed(9))


@pytest.mark.parametrize(
    ("with_distance", "variance", "length", "nugget", "coefficients", "loglik"),
    [
        (False, 1.476355, 1.214162, 0.0, (6.480526,), -100.762859),
        (False, 1.849918, 2.144918, 0.034656, (6.636396,), -99.128778),
        (True, 0.143261, 0.169799, 0.045247, (6.984811, -2.568726), -74.920466),
    ],
)
def test_meuse_at_its_maximum(meuse, with_distance, variance, length, nugget, coefficients, loglik):
    sites, values, distance = meuse
    observations = make_observations(sites, values, covariates=distance if with_distance else None)
    found = log_likelihood(observations, Matern(variance, length, 0.5, nugget))
    # flat there: six digits of the parameters give all digits of the value
    assert found.loglik == pytest.approx(loglik, abs=2 * printed(6))
    np.testing.assert_allclose(found.coefficients, coefficients, atol=5 * printed(6))
    profiled = profile_log_likelihood(observations, Matern(1.0, length, 0.5, nugget / variance))
    assert profiled.model.variance == pytest.approx(variance, rel=1e-5)
