"""Kriging from neighbourhoods: equal to exact kriging where the neighbours are all data, near to it where they are few."""

from __future__ import annotations

import json
from argparse import Namespace

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    FactorSettings,
    Matern,
    check_local_kriging,
    kriging,
    local_kriging,
    make_observations,
    predict,
)
from tests.apps.geostat.cases import CASES
from tests.apps.geostat.cases import simulate as simulated
from tests.apps.geostat.fields import simulate
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.inside.cli import main
from tests.inside.geostat import LocalSystems, NeighbourSearch, io, local_module, site_groups
from tests.inside.geostat import local as command

pytestmark = [pytest.mark.usefixtures("one_blas_thread")]

MODEL = Matern(1.5, 0.25, 1.5, 0.05)
TRUTH = Matern(1.0, 0.1, 0.8, 0.05)
METHODS = ("vecchia", "nearest")


@pytest.fixture(scope="module")
def many():
    """2,000 values of a field with a nugget, and sites of which some are far from all of them."""
    observations = simulate(TRUTH, 2000, seed=3, mean=4.0)
    inside = np.linalg.norm(observations.coordinates - 0.6, axis=1) > 0.15
    return observations.take(np.flatnonzero(inside)), np.random.default_rng(4).uniform(size=(300, 2))


def example(n, q=0, mean="constant", errors=False):
    rng = np.random.default_rng(0)
    sites, covariates = rng.uniform(size=(n, 2)), rng.normal(size=(n, q))
    values = 7 + np.cos(5 * sites[:, 0]) + covariates.sum(axis=1) + 0.2 * rng.normal(size=n)
    known = rng.uniform(0.0, 0.3, size=n) if errors else None
    return make_observations(sites, values, covariates=covariates, mean=mean, error_variances=known)


def assert_same(ours, exact):
    np.testing.assert_allclose(ours.mean, exact.mean, rtol=TWO_ROUTES, atol=TWO_ROUTES)
    np.testing.assert_allclose(ours.variance, exact.variance, rtol=TWO_ROUTES, atol=TWO_ROUTES)
    assert ours.target == exact.target


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("q", "mean", "errors"), [(0, "zero", False), (0, "constant", True), (2, "constant", False)])
def test_from_all_data_it_is_exact_kriging(method, q, mean, errors):
    # 31 observations: Vecchia's approximation with 30 neighbours, which gives the mean's coefficients, is exact, too
    observations, rng = example(31, q, mean, errors), np.random.default_rng(1)
    sites, covariates = rng.uniform(-0.5, 1.5, size=(70, 2)), rng.normal(size=(70, q))
    local = local_kriging(observations, MODEL, method=method, neighbours=1000)
    with kriging(observations, MODEL) as exact:
        assert local.kind == exact.kind and local.neighbours == 31
        np.testing.assert_allclose(local.coefficients, exact.coefficients, rtol=TWO_ROUTES)
        for target, variances in (("observation", rng.uniform(0, 1, 70) if errors else None), ("field", None)):
            how = {"covariates": covariates, "target": target, "error_variances": variances}
            found, expected = local.predict(sites, **how), exact.predict(sites, **how)
            assert_same(found, expected)
            np.testing.assert_allclose(found.lagrange, expected.lagrange, rtol=TWO_ROUTES, atol=TWO_ROUTES)


@pytest.mark.parametrize("name", CASES)
def test_every_covariance_function_predicts_from_neighbourhoods(name):
    model, _, places, n, seed, _ = CASES[name]
    observations, sites = simulated(model, places, n, seed), places(np.random.default_rng(9), 48)
    known = [5.0]
    exact = predict(observations, model, sites, coefficients=known)
    assert_same(local_kriging(observations, model, neighbours=n, coefficients=known).predict(sites), exact)
    few = local_kriging(observations, model, neighbours=n // 2, coefficients=known).predict(sites)
    # fewer data leave more uncertainty, and here little more
    assert np.all(few.variance >= exact.variance * (1 - TWO_ROUTES))
    assert np.sqrt(np.mean((few.mean - exact.mean) ** 2 / exact.variance)) < 0.15


def test_neighbourhoods_that_groups_share_are_near_to_exact_and_nearer_than_the_nearest(many):
    observations, sites = many
    exact = predict(observations, TRUTH, sites, target="field")
    off = {}
    for method, count in (("vecchia", 200), ("nearest", 30)):
        found = local_kriging(observations, TRUTH, method=method, neighbours=count).predict(sites, target="field")
        off[method] = np.sqrt(np.mean(((found.mean - exact.mean) / exact.standard_error) ** 2))
        assert 0.999 < np.mean(found.standard_error / exact.standard_error) < 1.05
    assert off["vecchia"] < 0.03 and off["vecchia"] < off["nearest"] < 0.2


def test_the_error_of_the_mean_is_in_the_variance():
    # far from all data the prediction is the mean, and its variance that of the field and of the mean
    observations = simulate(MODEL, 300, seed=1, mean=3.0)
    far = [[50.0, 50.0]]
    estimated, known = local_kriging(observations, MODEL), local_kriging(observations, MODEL, coefficients=[3.0])
    assert (estimated.kind, known.kind) == ("ordinary", "simple")
    found, simple = estimated.predict(far, target="field"), known.predict(far, target="field")
    exact = predict(observations, MODEL, far, target="field")
    np.testing.assert_allclose(simple.variance, MODEL.variance, rtol=TWO_ROUTES)
    np.testing.assert_allclose(found.variance, exact.variance, rtol=0.02)
    assert found.variance[0] > 1.2 * MODEL.variance
    np.testing.assert_allclose(found.mean, estimated.coefficients, rtol=TWO_ROUTES)


@pytest.mark.parametrize("method", METHODS)
def test_order_and_number_of_sites_do_not_matter(many, method):
    observations, sites = many
    local = local_kriging(observations, MODEL, method=method, neighbours=40)
    whole = local.predict(sites)
    turned = local.predict(sites[::-1])
    np.testing.assert_allclose(turned.mean[::-1], whole.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(turned.variance[::-1], whole.variance, rtol=TWO_ROUTES)
    one = local.predict(sites[7:8])
    assert abs(one.mean[0] - whole.mean[7]) < 0.2 * whole.standard_error[7]
    twice = local.predict(np.repeat(sites[:1], 50, axis=0))
    np.testing.assert_allclose(twice.mean, twice.mean[0], rtol=TWO_ROUTES)


@pytest.mark.parametrize("method", METHODS)
def test_means_alone_are_the_means_and_have_no_intervals(many, method):
    observations, sites = many
    local = local_kriging(observations, MODEL, method=method, neighbours=80)
    whole, alone = local.predict(sites), local.predict(sites, variance=False)
    np.testing.assert_allclose(alone.mean, whole.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(local.predict_mean(sites), whole.mean, rtol=TWO_ROUTES)
    assert whole.has_variance and not alone.has_variance and np.isnan(alone.standard_error).all()
    for ask in (alone.interval, lambda: alone.quantile(0.5), lambda: alone.exceedance(7.0)):
        with pytest.raises(ValueError, match="only means were predicted"):
            ask()
    with kriging(observations, MODEL) as exact:
        means = exact.predict(sites, variance=False)
        np.testing.assert_allclose(means.mean, exact.predict(sites).mean, rtol=TWO_ROUTES)
        assert not means.has_variance


def test_memory_is_bounded_by_stacks_and_progress_is_told(many, monkeypatch):
    observations, sites = many
    local, told = local_kriging(observations, MODEL, neighbours=60), []
    whole = local.predict(sites)
    made = []
    monkeypatch.setattr(local_module, "STACK_BYTES", 300_000)
    monkeypatch.setattr(oc, "cholesky", lambda a, *args, __f=oc.cholesky, **how: made.append(a.nbytes) or __f(a, *args, **how))
    pieces = local.predict(sites, progress=lambda *words: told.append(words))
    assert_same(pieces, whole)
    assert len(made) > 1 and max(made) <= 300_000
    assert [each[0] for each in told] == sorted({each[0] for each in told})
    assert told[-1][:2] == (300, 300) and told[0][0] < 300


def test_groups_cover_all_sites_once_and_are_small():
    sites = np.random.default_rng(0).uniform(size=(1000, 2)) * [10, 1]
    for size in (1, 7, 32, 1000, 5000):
        groups = site_groups(sites, size)
        assert sorted(np.concatenate(groups).tolist()) == list(range(1000))
        assert max(map(len, groups)) <= size and len(groups) == -(-1000 // size)
    widths = [np.ptp(sites[group], axis=0).max() for group in site_groups(sites, 10)]
    assert np.median(widths) < 1.0


def test_neighbours_are_the_nearest_and_never_twice():
    rng = np.random.default_rng(2)
    data, sites = rng.uniform(size=(3000, 2)), rng.uniform(size=(20, 2))
    near = np.sort(np.argsort(np.linalg.norm(sites[:, None] - data, axis=2), axis=1)[:, :25], axis=1)
    search = NeighbourSearch(data, 25, spread=False)
    assert np.array_equal(search.of_single_sites(sites), near)
    assert all(np.array_equal(search(sites[i : i + 1]), near[i]) for i in range(20))
    spread = NeighbourSearch(data, 40, spread=True)
    for found in (*spread.of_single_sites(sites), spread(sites[:5])):
        assert len(np.unique(found)) == 40
    # of a group: of each of its sites the nearest before the second nearest of any
    assert set(np.argmin(np.linalg.norm(sites[:, None] - data, axis=2), axis=1)) <= set(search(sites))


def test_sites_of_a_singular_neighbourhood_are_refused():
    observations = example(60)
    again = np.concatenate([np.arange(60), [5]])
    twice = make_observations(observations.coordinates[again], observations.values[again])
    for method in METHODS:
        with pytest.raises(geostat.SingularCovarianceError, match=r"observations 5 and 60 \(counted from zero\) share a place"):
            local_kriging(twice, Matern(1.0, 0.3, 1.5, 0.0), method=method, coefficients=[7.0])


def test_data_of_too_smooth_a_field_are_refused():
    """No two are at one place, but no third value on a line has any variance left."""
    sites = np.linspace(0.0, 1e-4, 40)
    observations = make_observations(sites, np.sin(sites), mean="zero")
    for method in METHODS:
        local = local_kriging(observations, Matern(1.0, 1.0, 2.5, 0.0), method=method)
        with pytest.raises(geostat.NeighbourhoodError, match=r"observation \d+ \(counted from zero\), at") as caught:
            local.predict([[5e-5]])
        error = caught.value
        assert error.place == tuple(observations.coordinates[error.datum])
        assert isinstance(error, oc.NotPositiveDefiniteError) and error.minor > 2


def test_wrong_arguments_are_named():
    observations = example(40, q=1)
    for how, words in (
        ({"method": "kd"}, "method is 'kd', but there are 'vecchia' and 'nearest'"),
        ({"neighbours": 0}, "0 neighbours are asked for"),
        ({"coefficients": [1.0]}, "coefficients have shape .1,., but the mean has 2 columns"),
    ):
        with pytest.raises(ValueError, match=words):
            local_kriging(observations, MODEL, **how)
    local = local_kriging(observations, MODEL)
    for sites, how, words in (
        ([[0.5, 0.5]], {}, "pass the same covariates"),
        ([[0.5]], {"covariates": [1.0]}, "sites have 1 coordinates"),
        ([[0.5, 0.5]], {"covariates": [1.0], "target": "mean"}, "'observation' and 'field'"),
        ([[0.5, 0.5]], {"covariates": [1.0], "target": "field", "error_variances": [1.0]}, "leave them out"),
    ):
        with pytest.raises(ValueError, match=words):
            local.predict(sites, **how)


def test_the_check_compares_with_exact_kriging_where_that_is_affordable(many):
    observations, sites = many
    local = local_kriging(observations, TRUTH, neighbours=60)
    check = check_local_kriging(local, sites, target="field")
    assert check.is_exact and check.data == observations.n and check.sites == 300
    assert 0 < check.mean_difference <= check.largest_difference < 1 and 1 <= check.error_ratio < 1.2
    assert "against exact kriging" in str(check)
    around = check_local_kriging(local, sites, target="field", data=600)
    assert not around.is_exact and "kriging from the 600 data around" in str(around)
    assert around.mean_difference == pytest.approx(check.mean_difference, rel=0.3)
    nearest = check_local_kriging(local_kriging(observations, TRUTH, method="nearest", neighbours=10), sites)
    assert nearest.mean_difference > check.mean_difference
    # with no more data than neighbours it would compare the predictions with themselves
    doubled = check_local_kriging(local, sites, data=10)
    assert doubled.data == 120 and doubled.mean_difference > 0
    with pytest.raises(ValueError, match="data is 0"):
        check_local_kriging(local, sites, data=0)


def test_the_plan_counts_systems_and_flops():
    plan = local_kriging(example(100), MODEL, neighbours=50).plan(640)
    assert plan.groups == 20 and plan.flops == pytest.approx(20 * 50**3 / 3 + 640 * 50**2)
    assert "each group of up to 32 sites from 50 of 100 observations, at least 20 systems" in str(plan)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A file of 400 observations, one of 50 sites with values, and a model fitted by Vecchia's approximation."""
    folder = tmp_path_factory.mktemp("local")
    observations = simulate(Matern(1.0, 0.1, 0.5, 0.1), 450, seed=2, mean=1.0)
    rows = [f"{x!r},{y!r},{v!r}" for (x, y), v in zip(observations.coordinates.tolist(), observations.values, strict=True)]
    rows = [row.replace("np.float64(", "").replace(")", "") for row in rows]
    (folder / "data.csv").write_text("\n".join(["x,y,value", *rows[:400]]) + "\n")
    (folder / "sites.csv").write_text("\n".join(["x,y,value", *rows[400:]]) + "\n")
    words = ["--x", "x", "--y", "y", "--value", "value", "--smoothness", "0.5", "--method", "vecchia", "--exact-check", "skip"]
    assert main(["geostat", "fit", str(folder / "data.csv"), *words, "--output", str(folder / "model.json"), "--quiet"]) == 0
    return folder


def predicted(folder, capsys, *words):
    out = folder / "out.csv"
    capsys.readouterr()
    code = main(["geostat", "predict", str(folder / "model.json"), str(folder / "sites.csv"), "--output", str(out), *words])
    told = capsys.readouterr()
    columns = io.read_table(out, ("prediction",), optional=("standard_error",)).columns if code == 0 else {}
    out.unlink(missing_ok=True)
    return code, told, columns


def test_predict_from_neighbours(fitted, capsys):
    _, told, exact = predicted(fitted, capsys, "--json")
    answer = json.loads(told.out)
    assert answer["method"] == "exact" and answer["neighbours"] is None and answer["check"] is None
    code, told, shared = predicted(fitted, capsys, "--neighbours", "120")
    assert code == 0 and "from 120 of 400 observations" in told.out and "against exact kriging, at 50 of the sites" in told.out
    assert "held out     50 values" in told.out
    np.testing.assert_allclose(shared["prediction"], exact["prediction"], atol=0.1)
    _, told, _ = predicted(fitted, capsys, "--method", "nearest", "--neighbours", "20", "--json")
    answer = json.loads(told.out)
    assert (answer["method"], answer["neighbours"]) == ("nearest", 20)
    assert answer["check"]["mean_difference"] > 0 and answer["held_out"]["n"] == 50


@pytest.mark.parametrize("words", [(), ("--neighbours", "50", "--no-check")])
def test_means_alone_leave_the_column_of_errors_out(fitted, capsys, words):
    _, told, columns = predicted(fitted, capsys, "--no-variance", *words)
    assert "standard_error" not in columns and "standard errors" not in told.out and "held out" not in told.out
    assert "not scored" in told.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--method exact --neighbours 50", "leave out --neighbours"),
        ("--neighbours 50 --block 0.1,0.1", "blocks are predicted exactly only"),
        ("--no-variance --quantiles 0.5", "leave out --no-variance"),
    ],
)
def test_options_that_contradict_each_other_are_refused(fitted, capsys, words, told):
    code, found, _ = predicted(fitted, capsys, *words.split())
    assert code != 0 and told in found.err


def test_the_command_says_why_it_predicts_from_neighbours(fitted, capsys, monkeypatch):
    monkeypatch.setattr(command, "_EXACT_AFTER_VECCHIA", 399)
    _, told, _ = predicted(fitted, capsys)
    assert "the model was fitted by vecchia, so sites are predicted from neighbours; --method exact" in told.err
    assert "Vecchia's approximation of the prediction" in told.out
    _, told, _ = predicted(fitted, capsys, "--method", "exact")
    assert "Vecchia's approximation of the prediction" not in told.out


def test_a_factor_that_fits_no_memory_is_said_beforehand(tmp_path):
    saved, options = Namespace(by_vecchia=False, model=None), Namespace(method=None, neighbours=None, certified=False)
    many, few = Namespace(n=1_700_000), Namespace(n=9_000)  # 11.6 TB of factor
    method, reason = command._method(options, many, saved, FactorSettings(devices="host:0"))
    assert method == "vecchia" and "the exact factor takes 1.16e+04 GB" in reason and "--store FILE" in reason
    assert command._method(options, many, saved, FactorSettings(store=tmp_path / "factor.ooc")) == ("exact", None)
    assert command._method(options, few, saved, FactorSettings()) == ("exact", None)
    options.certified = True
    assert command._method(options, many, saved, FactorSettings(devices="host:0")) == ("exact", None)


@pytest.mark.thorough
def test_modis_from_neighbours_predicts_as_well_as_the_best_of_the_comparison(data_dir):
    held = np.load(data_dir / "modis.npz")
    sites, values = (
        {
            part: np.column_stack([held["lon_axis"][held[f"{part}_ix"]], held["lat_axis"][held[f"{part}_iy"]]])
            for part in ("train", "test")
        },
        {part: held[f"{part}_dn"] * 0.02 - 273.15 for part in ("train", "test")},
    )
    local = local_kriging(make_observations(sites["train"], values["train"]), Matern(16.90, 0.3170, 0.5, 1.7e-7), neighbours=200)
    scores = geostat.score(local.predict(sites["test"]), values["test"], values["train"])
    assert scores.rmse < 1.55 and scores.crps < 0.80 and abs(scores.coverage - 0.95) < 0.005


def test_solves_of_a_stack_are_those_of_each_matrix():
    observations, rng = example(500), np.random.default_rng(3)
    systems = LocalSystems(
        MODEL, observations.coordinates, np.full(500, 0.05), np.ones((500, 2)), rows=observations.named_rows, device=None
    )
    neighbours = np.stack([rng.permutation(500)[:150] for _ in range(3)])
    with systems.factors(neighbours) as factors:
        for i, index in enumerate(neighbours):
            places = observations.coordinates[index]
            whole = geostat.cross_covariance(MODEL, places, places) + 0.05 * np.eye(150)
            np.testing.assert_allclose(factors[i] @ factors[i].T, whole, rtol=TWO_ROUTES, atol=TWO_ROUTES)


@pytest.mark.cuda
@pytest.mark.parametrize("method", METHODS)
def test_a_gpu_factors_neighbourhoods_to_the_same_predictions(many, method):
    observations, sites = many
    host, device = (local_kriging(observations, TRUTH, method=method, neighbours=150, device=at) for at in (None, "cuda:0"))
    assert_same(device.predict(sites), host.predict(sites))
    np.testing.assert_allclose(device.predict_mean(sites), host.predict_mean(sites), rtol=TWO_ROUTES)


@pytest.mark.cuda
def test_the_command_takes_the_gpu_that_is_named(fitted, capsys):
    _, _, host = predicted(fitted, capsys, "--neighbours", "100")
    _, told, device = predicted(fitted, capsys, "--neighbours", "100", "--devices", "cuda:0")
    assert "on cuda:0" in told.out
    np.testing.assert_allclose(device["prediction"], host["prediction"], rtol=TWO_ROUTES)
