"""Every public object of the geostatistics application is one line for ``repr``, a page for ``str``, and fits draw themselves."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ooc_chol.toolbox as tb
from ooc_chol.apps import geostat
from tests.apps.geostat.models import MODELS
from tests.documents import read
from tests.inside.geostat import Row, estimates_drawing, estimates_text, exact_text
from tests.prints import HOSTILE, LONGEST_LINE, check_html, check_prints, classes_of, parts_of

N = 60
THIRDS = 1 / 3, 2 / 3


def public_names():
    """What the package's module says is public: what it imports under its own name."""
    return re.findall(r"\bimport (\w+) as \1$", read(Path(geostat.__file__)), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def observations():
    rng = np.random.default_rng(0)
    sites = rng.uniform(size=(N, 2))
    values = np.sin(5 * sites[:, 0]) + 0.1 * rng.normal(size=N)
    return geostat.make_observations(sites, values, covariates=rng.normal(size=(N, 3)))


@pytest.fixture(scope="module")
def result(observations):
    return geostat.fit(observations, smoothness=1.5)


@pytest.fixture(scope="module")
def objects(observations, result, tmp_path_factory):
    """For each public class some objects, with long and hostile text where it holds text of a user."""
    model, sites = result.model, observations.coordinates[:5] + 0.01
    prediction = geostat.predict(observations, model, sites, covariates=np.ones((5, 3)))
    variogram = geostat.empirical_variogram(observations)
    spec = geostat.DataSpec("example", HOSTILE * 9, ("x" * 99, "y" * 99), HOSTILE, tuple(f"{at} {HOSTILE}" for at in range(99)))
    terrain, likelihood = geostat.jacksboro(), geostat.log_likelihood(observations, model)
    many = replace(
        result,
        mean_columns=tuple(f"{HOSTILE} {at}" for at in range(200)),
        coefficients=np.full(200, 1 / 3),
        coefficient_covariance=np.eye(200) / 3,
        warnings=(HOSTILE * 3,) * 99,
        evaluations=result.evaluations * 200,
    )
    one = np.array([1.0])
    with geostat.kriging(observations, model) as kriged:
        kept = geostat.KeptFactor()
        nested = geostat.Nested((geostat.Matern(1 / 3, 1 / 3, 1 / 3),) * 9, 1 / 3)
        geostat.leave_one_out(observations, nested, settings=geostat.FactorSettings(kept=kept))
        yield {
            "Area": [geostat.Area(geostat.grid_over((0, 0), (1, 1), (500, 400)), np.arange(99))],
            "AxisRanges": [geostat.AxisRanges(geostat.Matern(1 / 3, 1.0, 1.5, 1 / 3), (1 / 3,) * 9)],
            "BackTransformed": [geostat.back_transform(prediction, geostat.box_cox(0.0))],
            "BivariateMatern": [geostat.BivariateMatern(*THIRDS, *THIRDS, 1 / 3, 1 / 3, 1 / 3)],
            "Blocks": [geostat.rectangular_blocks(sites, (1 / 3, 1 / 3))],
            "BoxCoxFit": [geostat.BoxCoxFit(geostat.box_cox(1 / 3), result, 1 / 3, (1 / 3, 2 / 3), True, 2)],
            "Basis": [geostat.Basis({HOSTILE * 9: (HOSTILE,) * 99}, {"poly(x, 2)": THIRDS * 9})],
            "Column": [geostat.Column(np.zeros(10**5), HOSTILE * 9, HOSTILE)],
            "Conversion": [geostat.convert_parameters(model, package) for package in ("sklearn", "geoR")],
            "Comparison": [geostat.compare(dict.fromkeys(("a", HOSTILE * 9), geostat.leave_one_out(observations, model)))],
            "CrossValidation": [geostat.leave_one_out(observations, model)],
            "DataSpec": [spec],
            "Dataset": [geostat.Dataset(spec, observations, observations.coordinates, (HOSTILE,) * 99)],
            "Direction": [geostat.Direction(1 / 3)],
            "Efficiency": [geostat.Efficiency(one, one, np.zeros(10**5))],
            "Envelope": [geostat.Envelope(one, one, one, one, 0.95, 99)],
            "EmbeddingError": [geostat.EmbeddingError(1 / 3, 10**9)],
            "Estimated": [geostat.Estimated(*THIRDS, 0.1, float("inf"))],
            "Evaluation": [*result.evaluations[:2], geostat.Evaluation(dict.fromkeys("abcdefghij", 1 / 3), float("-inf"), 1 / 3)],
            "FactorSettings": [geostat.FactorSettings(), geostat.FactorSettings(store=HOSTILE.replace("\0", "") * 9)],
            "FigureWords": [geostat.FigureWords(*[HOSTILE * 9] * 4)],
            "FitPlan": [result.report.plan, many.report.plan],
            "FitReport": [result.report, many.report],
            "FitResult": [result, many, geostat.fit(observations, smoothness=0.5, nugget="zero", reml=True)],
            "FittedVariogram": [geostat.fit_variogram(variogram)],
            "Folds": [geostat.folds(observations), geostat.folds(observations, how="gaps", sites=sites)],
            "Formula": [geostat.parse_formula("zinc ~ " + " + ".join(f"column{at}" for at in range(99)))],
            "GeometricAnisotropy": [geostat.GeometricAnisotropy(model, *THIRDS)],
            "GneitingMatern": [geostat.GneitingMatern(*THIRDS, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3)],
            "GreatCircle": [geostat.GreatCircle(geostat.Matern(*THIRDS, 0.5))],
            "Grid": [geostat.grid_over((0, 0), (1, 1), (500, 400))],
            "HalfWidths": [kriged.predict(sites, covariates=np.ones((5, 3)), certified=True).half_width],
            "HeldOutScores": [geostat.score(prediction, np.zeros(5), observations.values)],
            "Inference": [geostat.infer(observations, model), geostat.infer(observations, model, probes=8)],
            "Kriging": [kriged],
            "Layer": [geostat.Layer(spec, sites, {HOSTILE * 9: geostat.Column(one)}, HOSTILE * 9)],
            "Likelihood": [likelihood],
            "LikelihoodGradient": [geostat.log_likelihood_gradient(observations, model)],
            "LikelihoodRatio": [geostat.LikelihoodRatio(*THIRDS, 1 / 3, 1 / 3)],
            "LocalCheck": [geostat.LocalCheck(256, 3000, False, *THIRDS, 1 / 3)],
            "LocalKriging": [geostat.local_kriging(observations, model)],
            "LocalPlan": [geostat.local_kriging(observations, model).plan(10**6)],
            "MapData": [geostat.MapData(*[np.zeros((50, 40))] * 6)],
            "MapLabels": [geostat.MapLabels(*[HOSTILE * 9] * 4)],
            "KeptFactor": [geostat.KeptFactor(), kept],
            "Matern": [model, geostat.Matern(1e-300 / 3, 1e300 / 3, 1 / 3, 1e-100 / 3)],
            "MissingExtraError": [geostat.MissingExtraError(HOSTILE * 9)],
            "Nested": [model + model, geostat.Nested((geostat.Matern(1e-300 / 3, 1e300 / 3, 1 / 3),) * 9, 1 / 3)],
            "NeighbourhoodError": [geostat.NeighbourhoodError(5, (1 / 3,) * 3, 7)],
            "SingularCovarianceError": [geostat.SingularCovarianceError((5, 7), 7, HOSTILE * 9)],
            "Observations": [observations],
            "PowerExponential": [geostat.PowerExponential(*THIRDS, 1 / 3)],
            "NonstationaryMatern": [
                geostat.NonstationaryMatern(*THIRDS, 0.5, (1 / 3,), (1 / 3,) * 9, ("a",), tuple("abcdefghi"))
            ],
            "PrecisionCheck": [geostat.PrecisionCheck(1e-6, 1 / 3, problem=HOSTILE * 9)],
            "Predicted": [geostat.Predicted(spec, sites, prediction)],
            "Prediction": [prediction],
            "PredictPlan": [geostat.plan_predict(observations, model, sites, covariates=np.ones((5, 3)))],
            "PredictReport": [geostat.predict(observations, model, sites, covariates=np.ones((5, 3))).report],
            "ProfileLikelihood": [geostat.ProfileLikelihood("range", np.zeros(99), np.zeros(99), (model,) * 99)],
            "Raster": [geostat.Raster(HOSTILE * 9, geostat.grid_over((0, 0), (1, 1), (500, 400)), np.zeros((400, 500)))],
            "Scale": [*model.scales(observations.coordinates).values()],
            "ScoreDifference": [geostat.ScoreDifference(HOSTILE * 9, "b", 1 / 3, 1 / 3, 4)],
            "SeparableSpaceTime": [geostat.SeparableSpaceTime(model, geostat.PowerExponential(1.0, *THIRDS))],
            "StationarityTest": [geostat.StationarityTest(1 / 3, 1 / 3, 1 / 3, 1 / 3, 2, 1 / 3)],
            "SmoothnessTrial": [*result.trials, replace(result.trials[0], message=HOSTILE * 9)],
            "SmoothnessComparison": [
                geostat.fit(geostat.make_observations(observations.coordinates, observations.values)).comparison,
                geostat.SmoothnessComparison(1 / 3, 1 / 3, 1e9 / 3, 0.0, "estimated", 1000),
            ],
            "Terrain": [terrain],
            "Transform": [geostat.box_cox(1 / 3)],
            "TransformError": [geostat.TransformError(HOSTILE * 9)],
            "UnknownLevelError": [geostat.UnknownLevelError(HOSTILE, [HOSTILE * 9], (HOSTILE,) * 99)],
            "Variogram": [variogram, replace(variogram, notes=(HOSTILE * 9,) * 9)],
            "VariogramMap": [geostat.variogram_map(observations)],
            "VecchiaCheck": [geostat.VecchiaCheck(30, 1 / 3, problem=HOSTILE * 9)],
            "VecchiaStart": [geostat.VecchiaStart(30, 20_000, 1 / 3, 1e-9 / 3)],
        }


@pytest.mark.commit
@pytest.mark.usefixtures("foreign")  # estimators are scikit-learn's
def test_every_public_object_keeps_the_promises(objects):
    for name, kind in classes_of({name: getattr(geostat, name) for name in public_names()}).items():
        if name == "MaternGP":  # scikit-learn's own, below
            continue
        assert objects.get(name), f"{name} is public: say here how to make one, so that what it prints is looked at"
        for one in objects[name]:
            assert type(one) is kind
            check_prints(one)
            for part in parts_of(one):
                check_prints(part)


def test_an_estimator_prints_as_those_of_scikit_learn():
    check_prints_of = geostat.MaternGP(range=1 / 3, nugget=0.05)
    assert len(repr(check_prints_of)) < LONGEST_LINE and "\n" not in repr(check_prints_of)


def test_every_covariance_function_is_a_line_and_named_to_the_last_digit():
    for model, _ in MODELS.values():
        check_prints(model)
        assert eval(exact_text(model), vars(geostat)) == model
        assert repr(model) == exact_text(model) or len(exact_text(model)) >= LONGEST_LINE
    first, second = geostat.Matern(1.0, 0.1, 0.5), geostat.Matern(1.0, 0.1 * (1 + 1e-15), 0.5)
    assert exact_text(first) != exact_text(second) and repr(first) != repr(second)


def test_models_that_are_too_long_for_a_line_show_their_parameters(objects):
    (model,) = objects["GneitingMatern"]
    assert len(exact_text(model)) > LONGEST_LINE > len(repr(model))
    assert "time_decay=0.333333" in repr(model)


def test_a_fit_shows_estimates_with_their_intervals(result):
    html, text = result._repr_html_(), str(result)
    for name, value in {
        **result.model.values,
        "variance": result.model.variance,
        **dict(zip(result.mean_columns, result.coefficients, strict=True)),
    }.items():
        assert f">{name}</text>" in html and re.search(rf"^  {name} +{value:.6g}\b", text, flags=re.MULTILINE)
    error = float(np.sqrt(result.coefficient_covariance[0, 0]))
    low, high = result.coefficients[0] - 1.96 * error, result.coefficients[0] + 1.96 * error
    found = re.search(r"intercept .* (-?[\d.]+) to (-?[\d.]+)$", text, flags=re.MULTILINE)
    assert float(found[1]) == pytest.approx(low, rel=1e-3) and float(found[2]) == pytest.approx(high, rel=1e-3)
    assert "1.5 (kept)" in text and f"{result.loglik:.3f}" in text


def test_inference_shows_every_estimate(objects):
    found = objects["Inference"][0]
    for name, one in found.parameters.items():
        assert re.search(
            rf"^  {name} +{one.value:.6g} ± {one.standard_error:.2g}, {one.lower:.6g} to {one.upper:.6g}$",
            str(found),
            flags=re.MULTILINE,
        )


def test_intervals_of_every_kind_are_drawn_inside_the_picture():
    rows = [
        Row("above zero", 2.0, 0.5, 1.0, 3.0),
        Row("below zero", -2.0, 0.5, -3.0, -1.0),
        Row("across zero", 0.1, 0.5, -1.0, 1.2),
        Row("a point", 0.0, 0.0, 0.0, 0.0),
        Row("tiny", 1e-300, 1e-301, 9e-301, 2e-300),
        Row("flat", 1.0, 9.0, 0.0, float("inf")),
        Row("no number", float("nan"), float("nan"), float("nan"), float("nan")),
        Row("kept", 1.5, note=" (kept)"),
    ]
    check_html(geostat_html("all kinds", rows))
    text = estimates_text("title", rows, ["careful"])
    assert text.count("not determined") == 2 and text.endswith("warning: careful")


def geostat_html(title, rows):
    return tb.notebook_html(estimates_text(title, rows), estimates_drawing(title, rows))


def test_long_tables_are_cut():
    rows = [Row(f"row {at}", float(at)) for at in range(500)]
    text = estimates_text("title", rows, ["careful"] * 500)
    assert len(text.splitlines()) < 50 and "... and 470 more" in text and "more warnings" in text
    check_html(geostat_html("title", rows))
