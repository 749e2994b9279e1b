"""Variance and range that change with covariates: the formula entry by entry, derivatives, fits, predictions and the shell."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.special import gamma, kv
from scipy.stats import chi2

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    Matern,
    NonstationaryMatern,
    cross_covariance,
    make_observations,
    model_content,
    model_from_content,
)
from tests.apps.geostat.differences import close, difference
from tests.apps.geostat.few_tiles import fit, infer, log_likelihood, log_likelihood_gradient
from tests.apps.geostat.geostat_tolerances import ESTIMATE_ERRORS, TABLE, TWO_ROUTES
from tests.apps.geostat.shell import shell_told
from tests.inside.geostat import family_space

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: The variance has both covariates, the range the second alone.
MODEL = NonstationaryMatern(1.7, 0.4, 0.8, (0.3, -0.2), (0.5,), ("u", "v"), ("v",), (0.4, 0.6), 0.1)


def places(n, seed, d=2):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(size=(n, d)), rng.normal(size=(n, 2))])


def hills(n, seed):
    """Sites with a height."""
    sites = np.random.default_rng(seed).uniform(size=(n, 2))
    return np.column_stack([sites, 100.0 * (3.0 * sites[:, 0] + np.sin(6.0 * sites[:, 1]))])


def by_formula(model, s, t, d):
    """Paciorek and Schervish's covariance of two sites, with matrices of the local ranges as they have it."""

    def local(site):
        u, v = site[d:] - np.array(model.centres)
        (a, b), (c,) = model.variance_slopes, model.range_slopes
        return math.sqrt(model.variance) * math.exp(a * u + b * v), (model.range * math.exp(c * v)) ** 2 * np.eye(d)

    (deviation, one), (other_deviation, other), h = local(s), local(t), s[:d] - t[:d]
    middle = 0.5 * (one + other)
    factor = (np.linalg.det(one) * np.linalg.det(other)) ** 0.25 / math.sqrt(np.linalg.det(middle))
    z, nu = math.sqrt(h @ np.linalg.solve(middle, h)), model.smoothness
    return deviation * other_deviation * factor * 2.0 ** (1.0 - nu) / gamma(nu) * z**nu * kv(nu, z)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_covariance_is_the_formula(d):
    a, b = places(12, 0, d), places(9, 1, d)
    expected = np.array([[by_formula(MODEL, s, t, d) for t in b] for s in a])
    np.testing.assert_allclose(cross_covariance(MODEL, a, b), expected, rtol=1e-11, atol=TABLE * MODEL.variance)
    local = MODEL.site_variances(a), MODEL.local_ranges(a)
    np.testing.assert_allclose(local[0], 1.7 * np.exp(0.6 * (a[:, d] - 0.4) - 0.4 * (a[:, d + 1] - 0.6)), rtol=1e-14)
    np.testing.assert_allclose(local[1], 0.4 * np.exp(0.5 * (a[:, d + 1] - 0.6)), rtol=1e-14)


@pytest.mark.parametrize("nu", [0.3, 0.5, 1.5, 2.2, 2.5])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_without_slopes_it_is_the_matern_covariance(d, nu):
    model = NonstationaryMatern(1.7, 0.4, nu, (0.0, 0.0), (0.0,), ("u", "v"), ("v",), nugget=0.1)
    a, b = places(40, 2, d), places(30, 3, d)
    assert model.stationary == Matern(1.7, 0.4, nu, 0.1)
    plain = cross_covariance(model.stationary, a[:, :d], b[:, :d])
    np.testing.assert_allclose(cross_covariance(model, a, b), plain, rtol=0, atol=1e-13)
    assert np.array_equal(model.local_ranges(a), np.full(40, 0.4))


def test_positive_definite_where_ranges_differ_a_thousandfold():
    sites = places(300, 4)
    model = NonstationaryMatern(1.0, 0.1, 2.5, (1.0,), (1.5,), ("u",), ("v",), (0.0, 0.0))
    ranges = model.local_ranges(sites)
    assert ranges.max() / ranges.min() > 1000
    matrix = cross_covariance(model, sites, sites)
    scale = np.sqrt(np.diag(matrix))
    assert np.linalg.eigvalsh(matrix / np.outer(scale, scale)).min() > -300 * TABLE


def test_centres_change_no_covariance():
    sites = places(30, 5)
    moved = NonstationaryMatern(
        1.7 * math.exp(2 * (0.3 * -0.4 - 0.2 * -0.6)), 0.4 * math.exp(0.5 * -0.6), 0.8, (0.3, -0.2), (0.5,), ("u", "v"), ("v",)
    )
    assert moved.centres == (0.0, 0.0)
    np.testing.assert_allclose(cross_covariance(moved, sites, sites), cross_covariance(MODEL, sites, sites), atol=10 * TABLE)


def observed(model, sites, seed, **options):
    values = 5.0 + geostat.simulate(model, sites, seed=seed, target="observation")[0]
    return make_observations(sites, values, space=2, **options)


@pytest.mark.parametrize("reml", [False, True])
def test_gradient_of_the_likelihood(reml):
    observations = observed(MODEL, places(60, 6), 1)
    found = log_likelihood_gradient(observations, MODEL, reml=reml, traces="exact", information=True)
    assert found.names == ("range", "smoothness", "variance_u", "variance_v", "range_v", "variance", "nugget")
    values = {**MODEL.values, "variance": MODEL.variance, "nugget": MODEL.nugget}
    for name, ours in zip(found.names, found.gradient, strict=True):

        def value(x, name=name):
            return log_likelihood(observations, MODEL.with_values(**{name: x}), reml=reml).loglik

        close(ours, difference(value, values[name]), 60 / abs(values[name]))
    assert np.linalg.eigvalsh(found.information).min() > 0


def test_fit_recovers_slopes_and_tells_the_likelihood_ratio():
    """Of heights in metres, whose slopes are hundredths."""
    truth = NonstationaryMatern(2.0, 0.08, 1.0, (0.005,), (0.004,), ("height",), ("height",), (150.0,), 0.05)
    observations = observed(truth, hills(260, 7), 2)
    names = {"variance_covariates": ("height",), "range_covariates": ("height",)}
    start = geostat.starting_model("nonstationary", observations, values={"smoothness": 1.0}, **names)
    assert start.centres == (pytest.approx(observations.coordinates[:, 2].mean()),)
    result = fit(observations, covariance=start, fixed=("smoothness",))
    assert result.converged
    found = infer(observations, result.model, estimated=result.estimated)
    moved = truth.with_values(  # the truth about the centre of the estimate
        variance=truth.site_variances(np.array([[0.0, 0.0, *start.centres]]))[0],
        range=truth.local_ranges(np.array([[0.0, 0.0, *start.centres]]))[0],
    )
    for name in ("range", "variance_height", "range_height"):
        one = found.parameters[name]
        assert abs(one.value - moved.values[name]) < ESTIMATE_ERRORS * one.standard_error, name
    # the stationary fit is the one that a stationary template finds
    plain = fit(make_observations(observations.places, observations.values), covariance=start.stationary, fixed=("smoothness",))
    test = result.stationary
    assert test.loglik == pytest.approx(plain.loglik, abs=1e-3) and test.degrees == 2
    assert test.statistic == pytest.approx(2 * (result.loglik - plain.loglik), abs=5e-3) and test.statistic > 20
    assert test.p_value == pytest.approx(chi2.sf(test.statistic, 2), rel=1e-6)
    assert result.to_dict()["stationary"]["p_value"] == test.p_value
    # and what is kept is kept
    kept = fit(observations, covariance=start, fixed=("smoothness", "range_height"))
    assert kept.model.values["range_height"] == 0.0 and kept.stationary.degrees == 1
    assert test.loglik - 1e-3 < kept.loglik < result.loglik + 1e-3


def test_kriging_cross_validation_and_draws():
    """Against dense formulas."""
    sites = places(60, 8)
    observations, new = observed(MODEL, sites, 3), places(7, 9)
    matrix = cross_covariance(MODEL, sites, sites) + MODEL.nugget * np.eye(60)
    cross, inverse, ones = cross_covariance(MODEL, sites, new), np.linalg.inv(matrix), np.ones(60)
    level = (ones @ inverse @ observations.values) / (ones @ inverse @ ones)
    gap = 1.0 - ones @ inverse @ cross
    variance = MODEL.site_variances(new) - np.sum(cross * (inverse @ cross), axis=0) + gap**2 / (ones @ inverse @ ones)
    found = geostat.predict(observations, MODEL, new, target="field")
    np.testing.assert_allclose(found.mean, level + cross.T @ inverse @ (observations.values - level), rtol=TWO_ROUTES)
    np.testing.assert_allclose(found.variance, variance, rtol=TWO_ROUTES)
    left_out = geostat.leave_one_out(observations, MODEL)
    rest = observations.take(np.arange(1, 60))
    alone = geostat.predict(rest, MODEL, sites[:1])
    assert rest.space == 2 and left_out.prediction.mean[0] == pytest.approx(alone.mean[0], rel=TWO_ROUTES)
    draws = geostat.simulate(MODEL, new, draws=4000, seed=1)
    np.testing.assert_allclose(draws.var(axis=0), MODEL.site_variances(new), rtol=0.12)
    white = geostat.standardised_residuals(observations, MODEL)
    assert white @ white == pytest.approx(log_likelihood(observations, MODEL).quadratic / MODEL.variance, rel=TWO_ROUTES)


def test_a_covariate_does_not_count_as_space():
    sites = hills(80, 10)
    plain, local = make_observations(sites[:, :2], sites[:, 0]), make_observations(sites, sites[:, 0], space=2)
    assert local.diameter == plain.diameter < 2.0
    assert np.array_equal(geostat.fold_labels(local, 5, how="tiles"), geostat.fold_labels(plain, 5, how="tiles"))
    variograms = [geostat.empirical_variogram(one) for one in (plain, local)]
    assert np.array_equal(variograms[0].distance, variograms[1].distance)
    with pytest.raises(ValueError, match="space is 4"):
        make_observations(sites, sites[:, 0], space=4)


def test_model_is_written_and_read():
    content = json.loads(json.dumps(model_content(MODEL)))
    assert content["covariance"] == "nonstationary" and content["variance_covariates"] == ["u", "v"]
    assert model_from_content(content) == MODEL
    with pytest.raises(TypeError, match="no list of names"):
        model_from_content({**content, "range_covariates": [1.0]})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NonstationaryMatern(1.0, 1.0, 0.5, (), (), (), ()), "no covariate"),
        (lambda: NonstationaryMatern(1.0, 1.0, 0.5, (1.0,), (), ("u", "v"), ()), "1 slopes"),
        (lambda: NonstationaryMatern(1.0, 1.0, 0.5, (1.0, 2.0), (), ("u", "u"), ()), "one each, once"),
        (lambda: NonstationaryMatern(1.0, 1.0, 0.5, (1.0,), (), ("u",), (), (0.0, 1.0)), "2 centres"),
        (lambda: NonstationaryMatern(1.0, 1.0, 0.5, (math.inf,), (), ("u",), ()), "must be finite"),
        (lambda: MODEL.site_variances(np.zeros((3, 2))), "those of space"),
        (lambda: family_space(constant(), MODEL, "free"), "all sites agree in what variance_v is about"),
        (lambda: geostat.starting_model("nonstationary", constant(), range_covariates=("u",)), "1 covariates"),
        (lambda: geostat.starting_model("matern", constant(), range_covariates=("u",)), "are for 'nonstationary'"),
        (lambda: geostat.model_variogram(MODEL, [0.1]), "no function of distance alone"),
    ],
)
def test_what_is_wrong_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def constant():
    """Observations whose second covariate is the same everywhere."""
    sites = places(20, 11)
    sites[:, 3] = 1.0
    return make_observations(sites, sites[:, 0], space=2)


# the shell


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A field whose roughness changes with height, and sites to predict."""
    folder = tmp_path_factory.mktemp("hills")
    truth = NonstationaryMatern(2.0, 0.1, 1.5, (0.006,), (0.004,), ("height",), ("height",), (150.0,), 0.05)
    sites, new = hills(160, 12), hills(6, 13)
    values = 5.0 + geostat.simulate(truth, sites, seed=4, target="observation")[0]
    for name, columns, head in (("data", [*sites.T, values], "x,y,height,v"), ("new", new.T, "x,y,height")):
        np.savetxt(folder / f"{name}.csv", np.column_stack(columns), delimiter=",", header=head, comments="")
    return folder


def test_from_fit_to_draws(folder, capsys):
    data, model = folder / "data.csv", folder / "model.json"
    words = ("fit", data, "--x", "x", "--y", "y", "--value", "v", "--covariance", "nonstationary", "--smoothness", "1.5")
    local = ("--variance-covariates", "height", "--range-covariates", "height")
    status, out, _ = shell_told(capsys, *words, *local, "--output", model, "--standard-errors")
    assert status == 0
    for part in ("nonstationary covariance", "variance_height", "range_height", "likelihood ratio", "on 2 degrees of freedom"):
        assert part in out
    content = json.loads(model.read_text())
    assert f"range and variance are those at height {content['fit']['model']['centres'][0]:.6g}" in out
    assert content["data"]["local_covariates"] == ["height"] and content["fit"]["stationary"]["degrees"] == 2
    # predictions are those of Python
    assert shell_told(capsys, "predict", model, folder / "new.csv", "--output", folder / "out.csv")[0] == 0
    table = geostat.read_table(folder / "data.csv", ("x", "y", "height", "v"))
    observations = make_observations(table.stack(("x", "y", "height")), table.columns["v"], space=2)
    new = geostat.read_table(folder / "new.csv", ("x", "y", "height")).stack(("x", "y", "height"))
    expected = geostat.predict(observations, model_from_content(content["fit"]["model"]), new)
    written = geostat.read_table(folder / "out.csv", ("prediction", "standard_error", "height"))
    np.testing.assert_allclose(written.columns["prediction"], expected.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(written.columns["standard_error"], expected.standard_error, rtol=TWO_ROUTES)
    for command in (
        ("cv", model),
        ("loglik", data, "--model", model),
        ("simulate", model, "--sites", folder / "new.csv", "--draws", "2", "--output", folder / "draws.csv"),
        ("simulate", model, "--conditional", data, "--sites", folder / "new.csv", "--output", folder / "given.csv"),
        ("plot", "residuals", model, "--output", folder / "residuals.png"),
    ):
        status, out, err = shell_told(capsys, *command)
        assert status == 0, err
    status, _, err = shell_told(capsys, "predict", model, "--grid", "4,4", "--output", folder / "grid.csv")
    assert status == 2 and "needs height at every site" in err


def test_coordinates_as_covariates_are_known_on_a_grid(folder, capsys):
    words = ("fit", folder / "data.csv", "--x", "x", "--y", "y", "--value", "v", "--covariance", "nonstationary")
    model, more = folder / "by_x.json", ("--range-covariates", "x", "--fix", "smoothness=1.5")
    assert shell_told(capsys, *words, *more, "--output", model)[0] == 0
    assert json.loads(model.read_text())["fit"]["model"]["range_covariates"] == ["x"]
    status, _, err = shell_told(capsys, "predict", model, "--grid", "5,4", "--output", folder / "grid.nc", "--target", "field")
    assert status == 0, err
    assert shell_told(capsys, "plot", "map", model, "--output", folder / "map.png")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--covariance", "nonstationary"), "go together"),
        (("--range-covariates", "height"), "go together"),
        (("--covariance", "nonstationary", "--range-covariates", "v"), "are no covariates of a covariance function"),
        (("--covariance", "nonstationary", "--range-covariates", "slope"), "slope"),
    ],
)
def test_mistakes_are_named(folder, capsys, words, message):
    status, _, err = shell_told(capsys, "fit", folder / "data.csv", "--x", "x", "--y", "y", "--value", "v", *words)
    assert status == 2 and message in err
