"""Nested structures: likelihood, derivatives, kriging and its parts against dense NumPy; fits that recover what was simulated."""

from __future__ import annotations

import json
import math
import re

import gstools
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.special import gamma, kv
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel
from sklearn.gaussian_process.kernels import Matern as PeerMatern

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    AxisRanges,
    BivariateMatern,
    GeometricAnisotropy,
    GreatCircle,
    Matern,
    Nested,
    PowerExponential,
    make_observations,
    model_content,
    model_from_content,
)
from tests.apps.geostat.cases import simulate
from tests.apps.geostat.differences import close, difference
from tests.apps.geostat.few_tiles import FEW_TILES, fit, infer, log_likelihood, log_likelihood_gradient, profile_likelihood
from tests.apps.geostat.geostat_tolerances import ESTIMATE_ERRORS, FIVE_POINTS, OTHER_PACKAGE, TWO_ROUTES
from tests.inside.geostat import effective_range, packages_for, structure_warnings

pytestmark = [pytest.mark.commit, pytest.mark.usefixtures("one_blas_thread")]

#: Relative difference of a likelihood from that of a dense matrix of Bessel functions.
DENSE_LIKELIHOOD = 1e-12

MODEL = Matern(0.6, 0.03, 1.2, 0.05) + Matern(1.4, 0.35, 0.5)


def places(n, seed=0):
    """Sites, half of them in clusters, where a short structure shows."""
    rng = np.random.default_rng(seed)
    middles = rng.uniform(size=(max(1, n // 12), 2))
    near = middles[rng.integers(0, len(middles), n // 2)] + 0.015 * rng.normal(size=(n // 2, 2))
    return np.concatenate([near, rng.uniform(size=(n - n // 2, 2))])


def bessel(h, nu):
    """The Matérn correlation from SciPy's Bessel function."""
    return np.where(h > 0, 2 ** (1 - nu) / gamma(nu) * h**nu * kv(nu, np.where(h > 0, h, 1.0)), 1.0)


def by_scipy(model, a, b):
    """The covariance of a sum of Matérn functions between sites, without nugget."""
    h = np.linalg.norm(a[:, None] - b[None], axis=2)
    return sum(part.variance * bessel(h / part.range, part.smoothness) for part in model.components)


@pytest.fixture(scope="module")
def observations():
    sites = places(150)
    return make_observations(
        sites, 3 + np.sin(4 * sites[:, 0]) + np.random.default_rng(1).normal(size=150), covariates=sites[:, 1]
    )


@pytest.fixture(scope="module")
def simulated():
    """Two structures that the data can tell apart, and their truth."""
    truth = Matern(1.0, 0.01, 1.5, 0.02) + Matern(2.0, 0.3, 0.5)
    return truth, simulate(truth, lambda rng, n: places(n, 8), 240, 3)


@pytest.fixture(scope="module")
def best(simulated):
    """The fit of two structures of known smoothness, by scoring."""
    truth, observations = simulated
    start = truth.with_values(range_1=0.02, range_2=0.15, variance_ratio_2=1.0)
    return start, fit(observations, covariance=start, fixed=("smoothness_1", "smoothness_2"))


def test_a_sum_is_written_with_plus():
    three = MODEL + PowerExponential(0.3, 1.0, 1.5, 0.01)
    assert isinstance(three, Nested) and [type(part) for part in three.components] == [Matern, Matern, PowerExponential]
    assert (three.variance, three.nugget) == (pytest.approx(2.3, rel=1e-15), pytest.approx(0.06))
    assert three.parameters == (
        *("range_1", "smoothness_1", "range_2", "smoothness_2", "variance_ratio_2", "range_3", "power_3", "variance_ratio_3"),
    )
    assert eval(repr(MODEL), vars(geostat)) == MODEL
    with pytest.raises(TypeError):
        MODEL + 1.0


def test_the_likelihood_is_that_of_the_sum_of_two_bessel_functions(observations):
    sites = observations.coordinates
    matrix = by_scipy(MODEL, sites, sites) + MODEL.nugget * np.eye(len(sites))
    factor, x, z = cho_factor(matrix, lower=True), observations.design, observations.values
    b = np.linalg.solve(x.T @ cho_solve(factor, x), x.T @ cho_solve(factor, z))
    expected = multivariate_normal.logpdf(z, x @ b, matrix)
    assert log_likelihood(observations, MODEL).loglik == pytest.approx(expected, rel=DENSE_LIKELIHOOD)


@pytest.mark.parametrize("reml", [False, True])
def test_the_gradient_equals_differences_of_the_likelihood(observations, reml):
    found = log_likelihood_gradient(observations, MODEL, reml=reml)
    values = {**MODEL.values, "variance": MODEL.variance, "nugget": MODEL.nugget}
    assert set(found.names) == set(values)
    for name, ours in zip(found.names, found.gradient, strict=True):

        def value(x, name=name):
            return log_likelihood(observations, MODEL.with_values(**{name: x}), reml=reml).loglik

        close(ours, difference(value, values[name]), 1 / values[name])


def test_components_of_one_family_are_sorted_by_effective_range_and_others_stay():
    short, long, other = Matern(1.0, 0.2, 0.5), Matern(3.0, 0.1, 5.0), PowerExponential(1.0, 0.01, 1.0)
    assert short.effective_range < long.effective_range
    assert Nested((long, other, short), 0.1).canonical() == Nested((short, other, long), 0.1)
    turned = GeometricAnisotropy(Matern(1.0, 0.2, 0.5), 0.3 + math.pi, 0.5)
    assert Nested((turned, short)).canonical().components[0].angle == pytest.approx(0.3)


def test_values_keep_what_is_not_named_and_the_parts_add_up():
    changed = MODEL.with_values(variance=3.0, smoothness_1=2.0)
    assert changed.variance == 3.0 and changed.nugget == MODEL.nugget
    assert changed.values["variance_ratio_2"] == pytest.approx(MODEL.values["variance_ratio_2"], rel=1e-15)
    ratio = MODEL.with_values(variance_ratio_2=9.0)
    assert ratio.variance == MODEL.variance
    assert [component.variance for component in ratio.components] == pytest.approx([0.2, 1.8])


@pytest.mark.parametrize(
    "model",
    [MODEL, Nested((AxisRanges(Matern(1.0, 1.0, 0.5), (0.1, 0.3)), GeometricAnisotropy(Matern(1.0, 0.2, 0.5), 0.3, 0.5)))],
)
def test_a_model_survives_json(model):
    content = json.loads(json.dumps(model_content(model)))
    assert content["covariance"] == "nested" and model_from_content(content) == model
    assert content.get("effective_range") == effective_range(model)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Nested((Matern(1.0, 1.0, 0.5),)), "two components or more, but there are 1"),
        (lambda: Nested((MODEL, Matern(1.0, 1.0, 0.5))), "component 1 is a sum itself"),
        (lambda: Nested((Matern(1.0, 1.0, 0.5), Matern(1.0, 1.0, 0.5, 0.1))), "component 2 has nugget 0.1"),
        (lambda: Matern(1.0, 1.0, 0.5) + BivariateMatern(1.0, 0.2, 0.5, 0.5, 1.0, 0.1), "BivariateMatern, of which there are no"),
        (lambda: Matern(1.0, 1.0, 0.5) + GreatCircle(Matern(1.0, 1.0, 0.5)), "some components take longitude and latitude"),
        (lambda: MODEL.with_values(range=1.0), "no parameter range; it has variance, nugget, range_1"),
        (lambda: geostat.convert_parameters(MODEL, "gpgp"), "gpgp has no sums"),
        (lambda: geostat.predict_component(make_observations(places(9), np.ones(9)), MODEL, 3, [[0.0]]), "from 1 to 2"),
        (
            lambda: geostat.predict_component(make_observations(places(9), np.ones(9)), Matern(1, 1, 1), 1, [[0]]),
            "no nested struct",
        ),
    ],
)
def test_what_is_wrong_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_the_effective_range_of_a_sum_is_where_its_correlation_is_a_twentieth():
    length = effective_range(MODEL)
    assert by_scipy(MODEL, np.zeros((1, 1)), np.array([[length]]))[0, 0] == pytest.approx(0.05 * MODEL.variance, rel=1e-10)
    assert effective_range(MODEL.components[0]) == MODEL.components[0].effective_range
    assert effective_range(GeometricAnisotropy(Matern(1.0, 1.0, 0.5), 0.0, 0.5) + Matern(1.0, 1.0, 0.5)) is None


def test_the_semivariogram_of_a_sum_is_that_of_its_covariance():
    h = np.array([0.0, 0.01, 0.2, 3.0])
    expected = MODEL.sill - by_scipy(MODEL, np.zeros((1, 1)), h[:, None])[0]
    np.testing.assert_allclose(geostat.model_variogram(MODEL, h)[1:], expected[1:], rtol=1e-12)
    assert geostat.model_variogram(MODEL, 0.0) == 0.0


def test_parts_of_a_prediction_are_those_of_dense_algebra_and_add_up(observations):
    sites, x, z = observations.coordinates, observations.design, observations.values
    new = np.random.default_rng(5).uniform(size=(30, 2))
    matrix = by_scipy(MODEL, sites, sites) + MODEL.nugget * np.eye(len(sites))
    inverse = np.linalg.inv(matrix)
    b = np.linalg.solve(x.T @ inverse @ x, x.T @ inverse @ z)
    total = np.column_stack([np.ones(30), new[:, 1]]) @ b
    for number, part in enumerate(MODEL.components, 1):
        cross = part.variance * bessel(np.linalg.norm(sites[:, None] - new[None], axis=2) / part.range, part.smoothness)
        trend = x.T @ inverse @ cross
        variance = part.variance - np.sum(cross * (inverse @ cross), axis=0)
        variance += np.sum(trend * np.linalg.solve(x.T @ inverse @ x, trend), axis=0)
        found = geostat.predict_component(observations, MODEL, number, new, settings=FEW_TILES)
        np.testing.assert_allclose(found.mean, cross.T @ inverse @ (z - x @ b), atol=TWO_ROUTES * np.ptp(z))
        np.testing.assert_allclose(found.variance, variance, rtol=TWO_ROUTES)
        total += found.mean
    whole = geostat.predict(observations, MODEL, new, covariates=new[:, 1], settings=FEW_TILES)
    np.testing.assert_allclose(total, whole.mean, atol=TWO_ROUTES * np.ptp(z))


def test_leaving_one_out_and_simulating_take_the_sum(observations):
    sites, z = observations.coordinates, observations.values
    plain = make_observations(sites, z, mean="zero")
    inverse = np.linalg.inv(by_scipy(MODEL, sites, sites) + MODEL.nugget * np.eye(len(sites)))
    found = geostat.leave_one_out(plain, MODEL, settings=FEW_TILES).prediction
    np.testing.assert_allclose(found.mean, z - inverse @ z / np.diag(inverse), atol=TWO_ROUTES * np.ptp(z))
    draws = geostat.simulate(MODEL, [[0.0, 0.0], [0.02, 0.0]], draws=4000, seed=3)
    expected = by_scipy(MODEL, np.zeros((1, 2)), np.array([[0.02, 0.0]]))[0, 0]
    assert np.cov(draws.T)[0, 1] == pytest.approx(expected, abs=4 * MODEL.variance * math.sqrt(2 / 4000))


def test_both_structures_are_recovered_and_beat_one(simulated):
    truth, observations = simulated
    start = geostat.starting_model("matern+matern", observations, values={"smoothness_1": 1.5, "smoothness_2": 0.5})
    assert (start.values["smoothness_1"], start.values["smoothness_2"]) == (1.5, 0.5)
    result = fit(observations, covariance=start, fixed=("smoothness_1", "smoothness_2"))
    assert result.converged and isinstance(result.model, Nested)
    assert result.estimated == ("range_1", "range_2", "variance_ratio_2", "variance", "nugget")
    found = infer(observations, result.model, estimated=result.estimated)
    true = {**truth.values, "variance": truth.variance, "nugget": truth.nugget}
    for name, estimate in found.parameters.items():
        error = math.log(estimate.value / true[name]) * estimate.value / estimate.standard_error
        assert abs(error) < ESTIMATE_ERRORS, name
    assert result.loglik >= log_likelihood(observations, truth).loglik
    single = fit(observations, smoothness="free")
    assert result.aic < single.aic - 10 and not result.warnings


@pytest.mark.parametrize("method", ["cobyqa", "lbfgs", "vecchia"])
def test_every_method_finds_the_same_sum(simulated, best, method):
    start, by_scoring = best
    other = fit(simulated[1], covariance=start, fixed=("smoothness_1", "smoothness_2"), method=method)
    assert other.loglik == pytest.approx(by_scoring.loglik, abs=1.0 if method == "vecchia" else 0.1)


def test_uncertainty_of_what_follows_from_the_parameters(simulated):
    truth, observations = simulated
    found = infer(observations, truth, estimated=(*truth.parameters, "variance", "nugget"))
    assert tuple(found.structures) == ("variance_1", "effective_range_1", "variance_2", "effective_range_2")
    # the delta method by hand: the logarithm of variance_2 is that of variance * ratio / (1 + ratio)
    names, ratio = list(found.parameters), truth.values["variance_ratio_2"]
    slope = np.zeros(len(names))
    slope[names.index("variance")], slope[names.index("variance_ratio_2")] = 1.0, 1 / (1 + ratio)
    deviations = np.array([one.standard_error / one.value for one in found.parameters.values()])
    expected = math.sqrt(slope @ (found.correlation * np.outer(deviations, deviations)) @ slope)
    second = found.structures["variance_2"]
    assert second.value == pytest.approx(2.0)
    assert second.standard_error / second.value == pytest.approx(expected, rel=FIVE_POINTS)
    assert found.effective_range.value == effective_range(truth) and found.microergodic is None
    assert {"variance_2", "effective_range_1", "range_2"} <= set(found.to_dict()["estimates"])
    assert "effective_range_2" in str(found)


def test_the_profile_of_a_range_of_one_structure(simulated, best):
    truth, observations = simulated
    kept = ("range_1", "range_2", "variance_ratio_2", "variance", "nugget")
    model = best[1].model
    found = profile_likelihood(observations, model, "range_2", [0.05, model.values["range_2"]], estimated=kept)
    assert found.loglik[1] == pytest.approx(best[1].loglik, abs=0.01) and found.loglik[0] < found.loglik[1] - 1.0
    with pytest.raises(
        ValueError, match=r"name is 'range', but there are 'range_1', 'range_2', 'variance_ratio_2', 'nugget_ratio'"
    ):
        profile_likelihood(observations, truth, "range", [0.15], estimated=kept)


def test_structures_that_cannot_be_told_apart_are_named():
    sites = np.random.default_rng(0).uniform(size=(200, 2))
    assert not structure_warnings(MODEL, sites) and not structure_warnings(Matern(1.0, 0.1, 0.5), sites)
    (same,) = structure_warnings(Matern(1.0, 0.1, 0.5) + Matern(3.0, 0.11, 0.5), sites)
    assert same.startswith("structures 1 and 2 are as good as one")
    (nugget,) = structure_warnings(Matern(1.0, 1e-4, 0.5) + Matern(3.0, 0.11, 0.5), sites)
    assert nugget.startswith("structure 1 is as good as a nugget")
    # two measurements at each place tell a short structure from the nugget
    assert not structure_warnings(Matern(1.0, 1e-4, 0.5) + Matern(3.0, 0.11, 0.5), np.repeat(sites, 2, axis=0))


def test_a_fit_of_two_structures_to_data_of_one_warns():
    truth = Matern(1.0, 0.1, 0.5, 0.1)
    observations = simulate(truth, lambda rng, n: rng.uniform(size=(n, 2)), 150, 2)
    start = Matern(0.5, 0.05, 0.5) + Matern(0.5, 0.2, 0.5, 0.1)
    result = fit(observations, covariance=start, fixed=("smoothness_1", "smoothness_2"))
    assert any("one structure with 1 parameter less has the better AIC" in text for text in result.warnings), result.warnings


def test_the_warning_of_one_structure_is_there_for_known_errors():
    truth = Matern(1.0, 0.1, 0.5)
    rng = np.random.default_rng(2)
    sites, errors = rng.uniform(size=(150, 2)), rng.uniform(0.01, 0.1, 150)
    values = geostat.simulate(truth, sites, seed=2, target="observation", error_variances=errors)[0]
    observations = make_observations(sites, 30.0 * values, error_variances=900.0 * errors)
    start = Matern(0.5, 0.05, 0.5) + Matern(0.5, 0.2, 0.5)
    result = fit(observations, covariance=start, fixed=("smoothness_1", "smoothness_2"), nugget="zero")
    (text,) = (text for text in result.warnings if "one structure" in text)
    assert text.startswith("one structure with 1 parameter less has the better AIC: the sum gains")
    # thirty neighbours of 150 tell nearly what exact fits do
    alone = fit(observations, smoothness="free", nugget="zero")
    gain = float(re.search(r"gains (\S+) in", text)[1])
    assert gain == pytest.approx(result.loglik - alone.loglik, abs=0.1)


def test_peers_have_the_sum_that_is_printed_for_them():
    assert packages_for(MODEL) == ("sklearn", "gstools", "fields", "gstat")
    h = np.geomspace(1e-3, 3.0, 50)
    expected = by_scipy(MODEL, np.zeros((1, 1)), h[:, None])[0]
    made = eval(geostat.convert_parameters(MODEL, "gstools").code, {"gstools": gstools})
    np.testing.assert_allclose(made.covariance(h), expected, rtol=OTHER_PACKAGE)
    assert made.nugget == pytest.approx(MODEL.nugget)
    names = {"GaussianProcessRegressor": GaussianProcessRegressor, "ConstantKernel": ConstantKernel, "Matern": PeerMatern}
    peer = eval(geostat.convert_parameters(MODEL, "sklearn").code, names)
    np.testing.assert_allclose(peer.kernel(np.zeros((1, 1)), h[:, None])[0], expected, rtol=OTHER_PACKAGE)
    assert peer.alpha == MODEL.nugget
    for package in ("gstat", "fields"):
        found = geostat.convert_parameters(MODEL, package)
        numbers = {float(text) for text in re.findall(r"\d+\.\d+", found.code)}
        assert numbers == {0.6, 0.03, 1.2, 1.4, 0.35, 0.5, 0.05}
    assert geostat.convert_parameters(MODEL, "gstat").code == (
        'vgm(0.6, "Mat", 0.03, kappa = 1.2, add.to = vgm(1.4, "Mat", 0.35, kappa = 0.5, nugget = 0.05))'
    )


@pytest.mark.thorough
def test_two_structures_beat_one_on_land_surface_temperatures(data_dir):
    data = np.load(data_dir / "modis.npz", allow_pickle=False)
    ix, iy = data["train_ix"].astype(int), data["train_iy"].astype(int)
    rng = np.random.default_rng(1)
    chosen = rng.permutation(len(ix))[:500]
    windows = [(ix >= x) & (ix < x + 22) & (iy >= y) & (iy < y + 22) for x, y in rng.integers(0, (478, 278), size=(40, 2))]
    dense = [np.flatnonzero(inside) for inside in windows if inside.sum() == 22 * 22]
    rows = np.unique(np.concatenate([chosen, *dense[:2]]))
    sites = np.column_stack([data["lon_axis"][ix[rows]], data["lat_axis"][iy[rows]]])
    observations = make_observations(sites, 0.02 * data["train_dn"][rows] - 273.15)
    singles = [geostat.fit(observations, smoothness=nu, nugget="zero", method="fisher") for nu in (0.5, "free")]
    given = {"smoothness_2": 0.5}
    start = geostat.starting_model("matern+matern", observations, values=given, nugget="zero", fixed=tuple(given))
    double = geostat.fit(observations, covariance=start, fixed=tuple(given), nugget="zero")
    assert double.converged
    assert double.loglik > max(single.loglik for single in singles) + 20
    assert double.aic < min(single.aic for single in singles) - 40
