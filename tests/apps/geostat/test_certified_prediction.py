"""Half-widths of kriging means and variances hold those of long double, whatever the precision of the factor."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import FactorSettings, Kriging, Matern, kriging, make_observations, predict
from tests.apps.geostat.models import MODELS
from tests.inside.cli import main
from tests.long_double import half_solved, lower_of

pytestmark = [
    pytest.mark.usefixtures("one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]

MODEL = Matern(1.3, 0.1, 0.5, 0.02)
#: One of each kind: in the plane, of space and time, on the sphere, of two variables, with covariates of its own.
FAMILIES = {name: MODELS[name] for name in ("anisotropic", "nested", "separable", "great circle", "bivariate", "nonstationary")}
FAMILIES |= {"exponential": (MODEL, lambda n, seed: np.random.default_rng(seed).uniform(size=(n, 2)))}
N, M = 80, 12
ON_HOST = {"tile_size": 16, "devices": "host:0"}


def dense(model, sites, noise):
    """The matrix that is factored, entry by entry."""
    out = np.empty((len(sites), len(sites)))
    geostat.covariance_tiles(model, sites, noise)(range(len(sites)), range(len(sites)), out, None)
    return out.astype(np.longdouble)


def exact(observations, model, sites, design, *, target="field", coefficients=None, errors=0.0):
    """Kriging mean and variance in long double."""
    noise = None if observations.error_variances is None else observations.error_variances / model.variance
    lower = lower_of(
        dense(model.with_values(variance=1.0, nugget=model.nugget / model.variance), observations.coordinates, noise)
    )
    border = geostat.cross_covariance(model.with_values(variance=1.0, nugget=0.0), observations.coordinates, sites)
    x, x0, p = observations.design.astype(np.longdouble), design.astype(np.longdouble), observations.design.shape[1]
    known = np.zeros(p) if coefficients is None else coefficients
    solved = half_solved(lower, np.column_stack([observations.values - x @ known, x, border.astype(np.longdouble)]))
    y, w, u = solved[:, 0], solved[:, 1 : 1 + p], solved[:, 1 + p :]
    mean, variance = x0 @ known + u.T @ y, model.site_variances(sites) / np.longdouble(model.variance) - np.square(u).sum(axis=0)
    if p and coefficients is None:
        root = lower_of(w.T @ w)
        trend = half_solved(root, x0.T - w.T @ u)
        mean, variance = mean + trend.T @ half_solved(root, w.T @ y), variance + np.square(trend).sum(axis=0)
    variance = np.maximum(variance, 0.0) * model.variance
    return mean, variance + (model.nugget + errors if target == "observation" else 0.0)


def check(prediction, truth, room=0.0):
    """Every half-width covers the error."""
    found, (mean, variance) = prediction.half_width, truth
    assert (np.abs(prediction.mean - mean) <= found.mean + room).all(), (np.abs(prediction.mean - mean).max(), str(found))
    if prediction.has_variance:
        assert (np.abs(prediction.variance - variance) <= found.variance + room).all(), (
            prediction.variance - variance,
            str(found),
        )
        off = np.abs(prediction.standard_error - np.sqrt(variance))
        assert (off <= prediction.standard_error_half_width * (1 + 1e-9) + room).all()


def example(seed, sites=None, *, mean="constant", q=0, **options):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(N, 2)) if sites is None else sites
    covariates = rng.normal(size=(len(sites), q))
    values = np.sin(4 * sites[:, 0]) + covariates.sum(axis=1) + 0.3 * rng.normal(size=len(sites))
    return make_observations(sites, values, covariates=covariates, mean=mean, **options)


def designs(mean, q, m=M):
    covariates = np.random.default_rng(9).normal(size=(m, q))
    return covariates, covariates if mean == "zero" else np.column_stack([np.ones(m), covariates])


@pytest.mark.parametrize("threshold", [None, 1e-8, 1e-5, 1e-3])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_kriging_of_long_double_is_in_every_interval(family, threshold):
    model, make = FAMILIES[family]
    places = make(N + M, 3)
    settings = FactorSettings(precision_threshold=threshold, objective="bytes", **ON_HOST)
    with geostat.KeptFactor() as kept:
        settings = replace(settings, kept=kept)
        for mean, q, coefficients in (("zero", 0, None), ("constant", 0, None), ("constant", 2, None), ("constant", 0, [0.7])):
            space = 2 if family == "nonstationary" else None
            observations = example(4, places[:N], mean=mean, q=q, space=space)
            covariates, design = designs(mean, q)
            with kriging(observations, model, coefficients=coefficients, settings=settings) as kriged:
                for target in ("observation", "field"):
                    found = kriged.predict(places[N:], covariates=covariates, target=target, certified=True)
                    how = {"target": target, "coefficients": coefficients}
                    check(found, exact(observations, model, places[N:], design, **how))
                    means = kriged.predict(places[N:], covariates=covariates, target=target, variance=False, certified=True)
                    check(means, exact(observations, model, places[N:], design, **how))
            width, g = found.half_width, found.half_width.gap
            size = np.sqrt(found.variance.max()) * np.linalg.norm(kriged.whitened.residual) + np.abs(found.mean).max()
            assert width.mean.max() <= 20.0 * g**2 * size + 1e-8
            assert width.variance.max() <= 4.0 * g * (model.variance + found.variance.max()) + 1e-7
        assert kept.reused == 3


def test_the_mean_is_refined_and_the_variance_stays():
    observations, sites = example(5), np.random.default_rng(6).uniform(size=(M, 2))
    truth = exact(observations, MODEL, sites, np.ones((M, 1)))
    with kriging(observations, MODEL, settings=FactorSettings(precision_threshold=1e-3, objective="bytes", **ON_HOST)) as kriged:
        plain, found = (kriged.predict(sites, target="field", certified=asked) for asked in (False, True))
        parts = list(kriged.predict_batches([sites[:5], sites[5:]], target="field", certified=True))
    assert plain.half_width is None and np.array_equal(plain.variance, found.variance)
    assert np.abs(found.mean - truth[0]).max() < 0.1 * np.abs(plain.mean - truth[0]).max()
    assert (found.half_width.mean < np.abs(plain.mean - truth[0]).max()).all()
    np.testing.assert_allclose(np.concatenate([part.half_width.mean for part in parts]), found.half_width.mean, rtol=1e-6)
    taken = found.take(np.array([3, 1]))
    assert np.array_equal(taken.half_width.variance, found.half_width.variance[[3, 1]])
    assert list(found.columns) == ["prediction", "standard_error", "prediction_half_width", "standard_error_half_width"]
    assert list(plain.columns) == ["prediction", "standard_error"]
    with pytest.raises(ValueError, match="certified=True"):
        _ = plain.standard_error_half_width


@pytest.mark.parametrize("seed", range(2))
def test_a_factor_of_another_model_is_seen(seed):
    """The intervals are of the model that predicts, wherever the factor is from; and no wider than due."""
    rng, largest = np.random.default_rng(seed), np.zeros(2)
    for off in (*10.0 ** rng.uniform(-6, -1, size=20), 0.02):
        q, n = int(rng.integers(0, 3)), int(rng.integers(12, 40))
        observations = example(int(rng.integers(99)), rng.uniform(size=(n, 2)), mean=rng.choice(["zero", "constant"]), q=q)
        sites, covariates = rng.uniform(-0.5, 1.5, size=(M, 2)), 10.0 * rng.normal(size=(M, q))
        design = covariates if observations.mean == "zero" else np.column_stack([np.ones(M), covariates])
        model = Matern(1.3, float(rng.choice([0.05, 0.3])), 0.5, 1.3 * 10.0 ** rng.uniform(-4, -1))
        near = replace(model, range=model.range * (1 + off), nugget=model.nugget * (1 - off))
        with kriging(observations, near, settings=FactorSettings(**ON_HOST)) as other:
            kriged = Kriging(other.factor, other.observations, model)
            found, means = (
                kriged.predict(sites, covariates=covariates, target="field", certified=True, variance=asked)
                for asked in (True, False)
            )
        truth = exact(observations, model, sites, design)
        check(found, truth)
        check(means, truth)
        if found.half_width.is_certified:
            shares = (
                np.abs(found.mean - truth[0]) / found.half_width.mean,
                np.abs(found.variance - truth[1]) / found.half_width.variance,
            )
            largest = np.maximum(largest, [float(each.max()) for each in shares])
    assert (largest > (0.03, 0.1)).all(), largest


def test_a_loaded_factor_predicts_and_certifies(tmp_path):
    observations, sites = example(7), np.random.default_rng(8).uniform(size=(M, 2))
    with kriging(observations, MODEL, settings=FactorSettings(precision_threshold=1e-4, **ON_HOST)) as kriged:
        expected = kriged.predict(sites, certified=True)
        kriged.factor.save(tmp_path / "factor.ooc")
        with oc.load(tmp_path / "factor.ooc") as factor:
            found = Kriging(factor, kriged.observations, MODEL).predict(sites, certified=True)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.half_width.variance, expected.half_width.variance, rtol=1e-6)


def test_a_kept_factor_of_the_same_model_to_rounding_is_certified_for_this_one():
    observations, sites = example(7), np.random.default_rng(8).uniform(size=(M, 2))
    other = replace(MODEL, range=MODEL.range * (1 + 5e-14))
    with geostat.KeptFactor() as kept:
        settings = FactorSettings(kept=kept, **ON_HOST)
        for model in (other, MODEL):
            check(
                predict(observations, model, sites, target="field", settings=settings, certified=True),
                exact(observations, model, sites, np.ones((M, 1))),
            )
        assert kept.reused == 1


@pytest.mark.parametrize("threshold", [None, 1e-4])
@pytest.mark.parametrize("mean", ["zero", "constant"])
def test_at_the_data_of_a_field_without_nugget_nothing_is_left(mean, threshold):
    """Sites that coincide with data, and with each other."""
    model, observations = Matern(1.3, 0.1, 0.5), example(10, mean=mean)
    sites = observations.coordinates[[0, 7, 7, 30]]
    settings = FactorSettings(precision_threshold=threshold, objective="bytes", **ON_HOST)
    found = predict(observations, model, sites, settings=settings, certified=True)
    assert (np.abs(found.mean - observations.values[[0, 7, 7, 30]]) <= found.half_width.mean).all()
    assert (
        found.variance <= found.half_width.variance
    ).all() and found.half_width.variance.max() < 4 * found.half_width.gap + 1e-8


@pytest.mark.parametrize("mean", ["zero", "constant"])
@pytest.mark.parametrize("scale", [1e-144, 1e-60, 1e60, 1e150])
def test_the_unit_of_values_is_the_half_widths(scale, mean):
    observations, sites = example(11, mean=mean), np.random.default_rng(12).uniform(size=(M, 2))
    settings = FactorSettings(precision_threshold=1e-4, **ON_HOST)
    plain = predict(observations, MODEL, sites, settings=settings, certified=True)
    scaled = make_observations(observations.coordinates, observations.values * scale, mean=mean)
    model = Matern(MODEL.variance * scale**2, 0.1, 0.5, MODEL.nugget * scale**2)
    found = predict(scaled, model, sites, settings=settings, certified=True)
    np.testing.assert_allclose(found.half_width.mean, plain.half_width.mean * scale, rtol=0.5)
    np.testing.assert_allclose(found.half_width.variance / scale**2, plain.half_width.variance, rtol=1e-6)
    mean_of, variance_of = exact(scaled, model, sites, designs(mean, 0)[1], target="observation")
    check(found, (mean_of, variance_of))


def test_values_far_from_zero_lose_what_rounding_takes_of_them():
    observations, sites = example(13), np.random.default_rng(14).uniform(size=(M, 2))
    far = make_observations(observations.coordinates, observations.values + 1e7)
    for coefficients in (None, [1e7]):
        found = predict(
            far, MODEL, sites, coefficients=coefficients, target="field", settings=FactorSettings(**ON_HOST), certified=True
        )
        check(found, exact(far, MODEL, sites, np.ones((M, 1)), coefficients=coefficients))
        assert found.half_width.mean.max() < (1e-6 if coefficients is None else 1e-4)


def test_known_errors_of_observations_are_in_the_matrix():
    rng = np.random.default_rng(15)
    observations, sites, errors = (
        example(15, error_variances=rng.uniform(0.0, 0.2, N)),
        rng.uniform(size=(M, 2)),
        rng.uniform(size=M),
    )
    settings = FactorSettings(precision_threshold=1e-4, **ON_HOST)
    found = predict(observations, MODEL, sites, error_variances=errors, settings=settings, certified=True)
    check(found, exact(observations, MODEL, sites, np.ones((M, 1)), target="observation", errors=errors))


def test_columns_of_any_unit_and_nearly_dependent_ones():
    rng = np.random.default_rng(16)
    sites, base = rng.uniform(size=(M, 2)), example(16)
    x, new = base.coordinates[:, :1], sites[:, :1]
    for factor in (2.0**-300, 2.0**300):
        observations = make_observations(base.coordinates, base.values, covariates=x * factor)
        found = predict(observations, MODEL, sites, covariates=new * factor, target="field", certified=True)
        check(
            found,
            exact(
                make_observations(base.coordinates, base.values, covariates=x), MODEL, sites, np.column_stack([np.ones(M), new])
            ),
            1e-12,
        )
    alike = make_observations(base.coordinates, base.values, covariates=1.0 + 1e-11 * x)
    found = predict(alike, MODEL, sites, covariates=1.0 + 1e-11 * new, certified=True)
    assert not found.half_width.is_certified and "less alike" in str(found.half_width)


@pytest.mark.parametrize("values", [np.zeros(N), np.full(N, 3.0)])
@pytest.mark.parametrize("mean", ["zero", "constant"])
def test_values_that_are_all_the_same(values, mean):
    observations, sites = (
        make_observations(example(17).coordinates, values, mean=mean),
        np.random.default_rng(18).uniform(size=(M, 2)),
    )
    found = predict(
        observations, MODEL, sites, target="field", settings=FactorSettings(precision_threshold=1e-3, **ON_HOST), certified=True
    )
    check(found, exact(observations, MODEL, sites, designs(mean, 0)[1]))
    known = predict(
        observations, MODEL, sites, target="field", coefficients=values[:1] if mean == "constant" else [], certified=True
    )
    assert found.half_width.is_certified and known.half_width.is_certified


def test_nothing_is_certified_of_a_matrix_that_is_nearly_singular():
    rng = np.random.default_rng(6)
    observations, model = make_observations(rng.uniform(size=(120, 2)), rng.normal(size=120)), Matern(1.0, 2.0, 2.5, 1e-13)
    sites = rng.uniform(size=(M, 2))
    plain, found = (predict(observations, model, sites, certified=asked) for asked in (False, True))
    assert found.half_width.gap >= 0.5 and np.isinf(found.half_width.mean).all() and np.isinf(found.half_width.variance).all()
    assert "nothing is certified" in str(found.half_width) and np.isinf(found.standard_error_half_width).all()
    assert np.array_equal(plain.mean, found.mean) and np.array_equal(plain.variance, found.variance)


def test_a_threshold_that_would_do_is_named():
    far = geostat.HalfWidths(np.full(2, np.inf), np.full(2, np.inf), 3.0, 1e-6, 1.0 - 1e-9)
    assert not far.is_certified and "(gap 3.0e+00); try a precision threshold of 1e-06" in str(far)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, observations = tmp_path_factory.mktemp("certified"), example(21)
    rows = np.column_stack([observations.coordinates, np.exp(observations.values)])
    for name, part in (("data", rows[: N - M]), ("sites", rows[N - M :])):
        lines = ["x,y,value", *(",".join(map(repr, map(float, row))) for row in part)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    words = ["--value", "value", "--smoothness", "0.5", "--quiet", "--x", "x", "--y", "y"]
    for name, more in (("model", []), ("logs", ["--transform", "log"])):
        assert main(["geostat", "fit", str(folder / "data.csv"), *words, *more, "--output", str(folder / f"{name}.json")]) == 0
    return folder


def asked(folder, capsys, *words, model="model"):
    capsys.readouterr()
    command = [
        "geostat",
        "predict",
        str(folder / f"{model}.json"),
        str(folder / "sites.csv"),
        "--output",
        str(folder / "out.csv"),
    ]
    code = main([*command, "--force", *words])
    return code, capsys.readouterr()


def test_the_command_adds_columns_and_a_line(folder, capsys):
    code, told = asked(folder, capsys, "--certified", "--precision-threshold", "1e-4", "--tile-size", "32")
    assert code == 0 and "means are off by at most" in told.out
    with (folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    widths = np.array([[float(row[f"{name}_half_width"]) for name in ("prediction", "standard_error")] for row in rows])
    assert (widths > 0.0).all() and widths.max() < 1e-2
    assert asked(folder, capsys, "--certified", "--json")[0] == 0
    code, told = asked(folder, capsys, "--certified", "--no-variance", "--json")
    answer = json.loads(told.out)
    assert list(answer["half_widths"]) == ["prediction_half_width"] and 0.0 < answer["gap"] < 1e-6
    assert "standard_error_half_width" not in answer["columns"]
    answer = json.loads(asked(folder, capsys, "--json")[1].out)
    assert answer["gap"] is None and answer["half_widths"] is None


@pytest.mark.parametrize(
    ("words", "model", "told"),
    [
        ("--neighbours 20", "model", "leave out --certified"),
        ("--method vecchia", "model", "leave out --certified"),
        ("--block 0.1,0.1", "model", "leave out --certified"),
        ("", "logs", "ask for --scale fitted"),
    ],
)
def test_what_is_not_certified_is_refused(folder, capsys, words, model, told):
    code, found = asked(folder, capsys, "--certified", *words.split(), model=model)
    assert code != 0 and told in found.err


def test_on_the_fitted_scale_logarithms_are_certified(folder, capsys):
    code, told = asked(folder, capsys, "--certified", "--scale", "fitted", model="logs")
    assert code == 0 and "means are off by at most" in told.out
