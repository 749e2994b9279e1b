"""Fits of every covariance function from a wrong start: the truth is found, and the maximum is one."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    AxisRanges,
    BivariateMatern,
    DataSpec,
    GeometricAnisotropy,
    Matern,
    SeparableSpaceTime,
    leave_one_out,
    make_observations,
    model_content,
    model_from_content,
    predict,
    simulate_conditional,
    standardised_residuals,
)
from tests.apps.geostat.cases import CASES, plane, simulate
from tests.apps.geostat.few_tiles import FEW_TILES, fit, infer, log_likelihood, log_likelihood_gradient
from tests.apps.geostat.geostat_tolerances import ESTIMATE_ERRORS, FIVE_POINTS, MONTE_CARLO_DEVIATIONS, TWO_ROUTES
from tests.inside.cli import main
from tests.inside.geostat import LikelihoodOptions, Objective, SilentProgress, family_space, io, read_result, result_content

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def known(model):
    return {**model.values, "variance": model.variance, "nugget": model.nugget}


#: Parameters whose intervals are of the parameter itself, not of its logarithm.
LINEAR = {"angle", "interaction", "correlation"}


#: Observations that are enough where each evaluation is dear.
FEWER = {"anisotropic": 160, "bivariate": 160, "separable": 160, "Gneiting": 200, "nonstationary": 160}


@pytest.mark.parametrize("case", CASES)
def test_the_truth_is_found_from_a_wrong_start(case):
    truth, start, sites, n, seed, fixed = CASES[case]
    observations = simulate(truth, sites, FEWER.get(case, n), seed)
    result = fit(observations, covariance=start, fixed=fixed)
    assert result.converged and not result.warnings and type(result.model) is type(truth)
    assert set(result.estimated) == (set(truth.parameters) - set(fixed)) | {"variance", "nugget"}
    assert all(result.model.values[name] == start.values[name] for name in fixed)
    assert result.loglik == pytest.approx(log_likelihood(observations, result.model).loglik, rel=TWO_ROUTES)
    assert result.loglik > log_likelihood(observations, truth).loglik
    found, values = infer(observations, result.model, estimated=result.estimated), known(truth)
    for name in result.estimated:
        estimate = found.parameters[name]
        assert estimate.value == known(result.model)[name]
        if name in LINEAR:
            errors = (estimate.value - values[name]) / estimate.standard_error
        else:
            errors = math.log(estimate.value / values[name]) / (estimate.standard_error / estimate.value)
        assert abs(errors) < ESTIMATE_ERRORS, name


@pytest.mark.parametrize(("case", "n"), [("axis ranges", 100), ("bivariate", 120)])
def test_searches_end_at_one_maximum(case, n):
    truth, start, sites, _, seed, fixed = CASES[case]
    observations = simulate(truth, sites, n, seed)
    fisher, lbfgs = (
        fit(observations, covariance=start, fixed=fixed, method=method, tolerance=1e-6) for method in ("fisher", "lbfgs")
    )
    assert lbfgs.loglik == pytest.approx(fisher.loglik, abs=1e-4)
    # plain scoring zigzags in the bivariate case, more curved than expected: 155 evaluations
    assert len(fisher.evaluations) <= 25
    # the score is zero there, in units of one over a standard error
    full = log_likelihood_gradient(observations, fisher.model, information=True)
    kept = [full.names.index(name) for name in fisher.estimated]
    information = full.information[np.ix_(kept, kept)]
    assert full.gradient[kept] @ np.linalg.solve(information, full.gradient[kept]) < 1e-4


@pytest.mark.parametrize(("case", "nugget"), [*((case, "free") for case in CASES), ("bivariate", "zero"), ("bivariate", 0.15)])
def test_gradient_in_the_coordinates_of_the_search(case, nugget):
    """Of every parameter, those that bound others included."""
    truth, start, sites, _, seed, _ = CASES[case]
    observations = simulate(truth, sites, 24, seed)
    space = family_space(observations, start, nugget)
    objective = Objective(observations, space, LikelihoodOptions(FEW_TILES), SilentProgress())
    point = space.start(truth)
    model = space.correlation(point)
    assert model.values == pytest.approx(truth.values, rel=TWO_ROUTES) and model.variance == 1.0
    gradient = objective.at(point, gradient=True).gradient
    step = 1e-3
    for k, ours in enumerate(gradient):
        unit = step * np.eye(len(point))[k]
        terms = [(-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12)]
        expected = sum(-weight * objective(point + offset * unit) for offset, weight in terms) / step
        assert ours == pytest.approx(expected, rel=FIVE_POINTS, abs=FIVE_POINTS * max(1.0, np.max(np.abs(gradient))))


def test_an_angle_is_given_by_the_longer_axis():
    model = GeometricAnisotropy(Matern(1.0, 0.2, 1.5), angle=-2.0, ratio=4.0)
    same = model.canonical()
    assert same.ratio == 0.25 and same.base.range == 0.8 and 0 <= same.angle < math.pi
    sites = np.random.default_rng(0).uniform(size=(20, 2))
    expected = geostat.cross_covariance(model, sites, sites)
    np.testing.assert_allclose(geostat.cross_covariance(same, sites, sites), expected, rtol=TWO_ROUTES)
    # nothing that is kept changes its value
    observations = simulate(GeometricAnisotropy(Matern(1.0, 0.1, 0.5, 0.1), angle=math.pi / 2, ratio=0.3), plane, 150, 0)
    result = fit(
        observations, covariance=GeometricAnisotropy(Matern(1.0, 0.1, 0.5, 0.1), 0.0, 1.0), fixed=("angle", "smoothness")
    )
    assert result.model.angle == 0.0 and result.model.ratio > 1.5


def test_a_fit_can_be_gone_on_from_its_log(tmp_path):
    truth, start, sites, _, seed, _ = CASES["separable"]
    observations = simulate(truth, sites, 80, seed)
    first = fit(observations, covariance=start, checkpoint=tmp_path / "log")
    again = fit(observations, covariance=start, checkpoint=tmp_path / "log")
    assert again.report.resumed == len(again.evaluations) and again.model == first.model
    other = fit(observations, covariance=truth, checkpoint=tmp_path / "log", max_evaluations=1)
    assert other.report.resumed == 0


@pytest.mark.parametrize("case", CASES)
def test_models_are_written_and_read(case):
    truth = CASES[case][0]
    assert model_from_content(json.loads(json.dumps(model_content(truth)))) == truth
    assert truth.with_values(**truth.values) == truth and tuple(truth.values) == truth.parameters


@pytest.mark.parametrize("case", CASES)
def test_kriging_with_every_covariance_function(case):
    """Prediction, leave-one-out and conditional draws against dense matrices."""
    truth, _, sites, _, seed, _ = CASES[case]
    everything = simulate(truth, sites, 48, seed)
    order = np.random.default_rng(0).permutation(48)
    new, observations = everything.coordinates[order[:8]], everything.take(order[8:])
    covariance = geostat.cross_covariance(truth, observations.coordinates, observations.coordinates) + truth.nugget * np.eye(40)
    cross = geostat.cross_covariance(truth, observations.coordinates, new)
    inverse, ones = np.linalg.inv(covariance), np.ones(40)
    gls = (ones @ inverse @ observations.values) / (ones @ inverse @ ones)
    mean = gls + cross.T @ inverse @ (observations.values - gls)
    gap = 1.0 - cross.T @ inverse @ ones
    own = np.diag(geostat.cross_covariance(truth, new, new))
    variance = own - np.einsum("ij,ik,kj->j", cross, inverse, cross) + gap**2 / (ones @ inverse @ ones)
    found = predict(observations, truth, new, target="field")
    np.testing.assert_allclose(found.mean, mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(found.variance, variance, rtol=TWO_ROUTES, atol=TWO_ROUTES * truth.variance)
    q = inverse - np.outer(inverse @ ones, inverse @ ones) / (ones @ inverse @ ones)
    left = leave_one_out(observations, truth)
    np.testing.assert_allclose(left.residuals, q @ observations.values / np.diag(q), rtol=TWO_ROUTES, atol=TWO_ROUTES)
    np.testing.assert_allclose(left.prediction.variance, 1.0 / np.diag(q), rtol=TWO_ROUTES)
    draws = simulate_conditional(observations, truth, new, draws=400, seed=1)
    errors = np.sqrt(variance / 400)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < MONTE_CARLO_DEVIATIONS * errors)
    assert standardised_residuals(observations, truth).shape == (40,)


ISOTROPIC = Matern(1.0, 0.2, 1.5, 0.1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda o: fit(o, fixed=("smoothness",)), "covariance, which is not given"),
        (lambda o: fit(o, covariance=ISOTROPIC, fixed="range"), "fixed is 'range', but it must be a sequence"),
        (lambda o: fit(o, max_evaluations=0), "max_evaluations is 0"),
        (lambda o: fit(o, covariance=ISOTROPIC, smoothness=1.5), "smoothness is for fits without covariance"),
        (lambda o: fit(o, covariance=ISOTROPIC, fixed=("nugget",)), "nugget='zero'"),
        (lambda o: fit(o, covariance=ISOTROPIC, fixed=("power",)), "there are range, smoothness to keep"),
        (lambda o: fit(o, covariance=Matern(1.0, 200.0, 1.5)), "in one unit"),
        (lambda o: fit(o, covariance=AxisRanges(Matern(1.0, 1.0, 1.5), (1.0,) * 3)), "needs sites of 3 coordinates"),
        (
            lambda o: fit(
                make_observations(np.column_stack([o.coordinates, o.values > 0]), o.values),
                covariance=BivariateMatern(1.0, 0.1, 0.5, 1.5, 1.0, 0.3),
                fixed=("correlation",),
            ),
            "depend on smoothness_1, smoothness_2",
        ),
        (
            lambda o: fit(
                make_observations(np.column_stack([o.coordinates, np.ones(o.n)]), o.values),
                covariance=SeparableSpaceTime(ISOTROPIC, Matern(1.0, 1.0, 0.5)),
            ),
            r"what time_range is about.*fixed=\('time_range',\)",
        ),
    ],
)
def test_what_cannot_be_fitted_is_named(call, words):
    observations = simulate(ISOTROPIC, plane, 30, 0)
    with pytest.raises(ValueError, match=words):
        call(observations)


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("matern", "power")])
def test_what_only_isotropic_models_have_is_refused(case):
    truth, _, sites, _, seed, _ = CASES[case]
    observations = simulate(truth, sites, 24, seed)
    has_directions = case in ("anisotropic", "axis ranges")
    with pytest.raises(ValueError, match="for each direction" if has_directions else "no function of distance alone"):
        geostat.model_variogram(truth, [0.1])
    calls = [
        lambda: geostat.likelihood_ratios(observations, truth),
    ]
    if case != "anisotropic":  # which other packages have
        calls.append(lambda: geostat.convert_parameters(truth, "gstools"))
    for call in calls:
        with pytest.raises(ValueError, match=f"isotropic Matérn models.*{type(truth).__name__}"):
            call()


def test_a_nugget_that_the_data_do_not_show_hides_no_standard_error():
    observations = simulate(Matern(2.0, 0.3, 0.5), plane, 120, 0)
    floor, none = Matern(2.0, 0.3, 0.5, 2e-8), Matern(2.0, 0.3, 0.5)
    found, expected = infer(observations, floor), infer(observations, none, estimated=("range", "variance"))
    for name in ("range", "variance"):
        # that the nugget is estimated costs a little
        ratio = found.parameters[name].standard_error / expected.parameters[name].standard_error
        assert 1.0 <= ratio < 1.5
    assert found.parameters["nugget"].standard_error > floor.nugget * 1e3
    assert "nearly flat along nugget**1" in found.warnings[0]


def test_the_result_of_any_fit_goes_through_the_commands(tmp_path, capsys):
    truth, start, sites, _, seed, _ = CASES["anisotropic"]
    observations = simulate(truth, sites, 60, seed)
    columns = dict(zip(("x", "y"), observations.coordinates.T, strict=True))
    io.write_table(tmp_path / "data.csv", {**columns, "value": observations.values})
    result = fit(observations, covariance=start, fixed=("smoothness",), max_evaluations=8)
    spec = DataSpec("csv", str(tmp_path / "data.csv"), ("x", "y"), "value")
    io.write_json(tmp_path / "model.json", result_content(spec, result))
    assert read_result(tmp_path / "model.json").model == result.model
    words = [str(tmp_path / "model.json"), str(tmp_path / "data.csv")]
    out = ["--output", str(tmp_path / "out.csv")]
    assert main(["geostat", "predict", *words, "--grid", "4,3", *out]) == 0
    table = io.read_table(tmp_path / "out.csv", ("x", "y", "prediction", "standard_error"))
    expected = predict(observations, result.model, table.stack(("x", "y")))
    np.testing.assert_allclose(table.columns["prediction"], expected.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(table.columns["standard_error"], expected.standard_error, rtol=TWO_ROUTES)
    assert main(["geostat", "cv", *words]) == 0
    assert main(["geostat", "simulate", words[0], "--grid", "3,2", "--conditional", words[1], *out, "--force"]) == 0
    assert main(["geostat", "plot", "map", *words, "--output", str(tmp_path / "map.png")]) == 0
    capsys.readouterr()
    assert main(["geostat", "plot", "variogram", *words, "--output", str(tmp_path / "map.png")]) == 2
    assert "give --azimuth DEGREES" in capsys.readouterr().err
    assert main(["geostat", "convert", words[0], "--convert-to", "fields"]) == 2
    assert "has no geometric anisotropy" in capsys.readouterr().err


def test_a_result_of_an_unknown_covariance_function_is_refused(tmp_path):
    content = {"format": "ooc-chol geostat fit", "version": 1, "data": {}, "fit": {"model": {"covariance": "cubic"}, "n": 3}}
    io.write_json(tmp_path / "model.json", content)
    with pytest.raises(ValueError, match="no covariance function 'cubic'; there are matern, "):
        read_result(tmp_path / "model.json")
    with pytest.raises(TypeError, match="cannot be written"):
        model_content(object())


def test_an_angle_of_nearly_round_ellipses_is_said_to_be_open():
    observations = simulate(ISOTROPIC, plane, 60, 0)
    model = GeometricAnisotropy(ISOTROPIC, angle=0.3, ratio=0.98)
    names = (*model.parameters, "variance", "nugget")
    found = infer(observations, model, estimated=names)
    (text,) = found.warnings
    assert "nearly flat along exp(1 angle)" in text
    angle = found.parameters["angle"]
    assert angle.upper - angle.value == pytest.approx(angle.value - angle.lower) and angle.standard_error > 1.5
    assert found.effective_range is None and found.microergodic is None
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    ellipse = {"range_across", "effective_range_along", "effective_range_across"}
    assert set(content["estimates"]) == (set(names) - {"angle"}) | {"angle_radians"} | ellipse
