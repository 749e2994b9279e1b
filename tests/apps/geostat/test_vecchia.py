"""Vecchia's approximation: exact with all neighbours, its derivatives, fits and what they say of exact ones, starts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import GeometricAnisotropy, Matern, make_observations, vecchia_log_likelihood
from tests.apps.geostat.cases import CASES, simulate
from tests.apps.geostat.few_tiles import FEW_TILES, fit, infer, log_likelihood, log_likelihood_gradient
from tests.apps.geostat.geostat_tolerances import FIVE_POINTS, TWO_ROUTES
from tests.inside.cli import main
from tests.inside.geostat import (
    LARGE,
    Conditioning,
    LikelihoodOptions,
    Objective,
    SilentProgress,
    VecchiaOptions,
    approximated,
    assembled,
    coarse_to_fine_order,
    compare_otherwise,
    conditioning,
    correlation_of,
    family_space,
    nearest_earlier,
    vecchia_neighbours,
)

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Evaluations of an exact fit from a start by the approximation.
MOST_EVALUATIONS = 8


def case_with_trend(case, n):
    """Data of a covariance function, with a large mean and a covariate."""
    truth, _, sites, _, seed, _ = CASES[case]
    data = simulate(truth, sites, n, seed)
    return truth, make_observations(data.coordinates, data.values + 1e4, covariates=data.coordinates[:, 0])


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_with_all_neighbours_it_is_exact(case, reml):
    """Value, mean, gradient and, unless restricted, information."""
    truth, observations = case_with_trend(case, 40)
    exact = log_likelihood_gradient(observations, truth, reml=reml, traces="exact", information=True)
    graph = conditioning(truth.comparable_sites(observations.coordinates), observations.n - 1)
    found = approximated(observations, correlation_of(truth), graph, variance=truth.variance, reml=reml, shape=truth.parameters)
    ours = assembled(found.likelihood, truth.parameters, found.sums, found.sums)
    assert ours.likelihood.loglik == pytest.approx(exact.likelihood.loglik, rel=TWO_ROUTES)
    np.testing.assert_allclose(
        ours.likelihood.coefficients, exact.likelihood.coefficients, rtol=TWO_ROUTES, atol=1e4 * TWO_ROUTES
    )
    scale = np.abs(exact.gradient).max()
    np.testing.assert_allclose(ours.gradient, exact.gradient, rtol=TWO_ROUTES, atol=scale * TWO_ROUTES)
    if not reml:
        scale = np.abs(exact.information).max()
        np.testing.assert_allclose(ours.information, exact.information, rtol=TWO_ROUTES, atol=scale * TWO_ROUTES)
    value = vecchia_log_likelihood(observations, truth, neighbours=10**6, reml=reml)
    assert value.loglik == pytest.approx(exact.likelihood.loglik, rel=TWO_ROUTES) and value.reml == reml


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("case", ["matern", "anisotropic", "Gneiting", "bivariate"])
def test_gradient_with_few_neighbours(case, reml):
    truth, observations = case_with_trend(case, 40)
    space = family_space(observations, truth, "free")
    graph = conditioning(truth.comparable_sites(observations.coordinates), 7)
    objective = Objective(observations, space, LikelihoodOptions(FEW_TILES, reml=reml), SilentProgress(), graph=graph)
    point = space.start(truth)
    gradient, step = objective.at(point, gradient=True).gradient, 1e-3
    for k, ours in enumerate(gradient):
        unit = step * np.eye(len(point))[k]
        terms = [(-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12)]
        expected = sum(-weight * objective(point + offset * unit) for offset, weight in terms) / step
        assert ours == pytest.approx(expected, rel=FIVE_POINTS, abs=FIVE_POINTS * max(1.0, np.max(np.abs(gradient))))


def test_sums_over_samples_of_the_densities_add_up():
    truth, _, sites, _, seed, _ = CASES["matern"]
    observations = simulate(truth, sites, 120, seed)
    graph = conditioning(observations.coordinates, 6)
    halves = [Conditioning(graph.order, graph.neighbours, graph.targets[part::2]) for part in (0, 1)]
    parts = [
        approximated(observations, correlation_of(truth), some, variance=2.0, shape=truth.parameters) for some in (graph, *halves)
    ]
    # the estimated mean differs, but neither the traces nor the information depend on the values
    for name in ("trace_sums", "crossed"):
        whole, one, other = (getattr(part.sums, name) for part in parts)
        np.testing.assert_allclose(whole, one + other, rtol=TWO_ROUTES)


@pytest.mark.parametrize("sites", ["plane", "line", "duplicates"])
def test_neighbours_are_the_nearest_earlier_ones(sites):
    rng = np.random.default_rng(3)
    places = {
        "plane": rng.uniform(size=(300, 2)),
        "line": rng.uniform(size=(300, 1)),
        "duplicates": rng.integers(0, 9, size=(300, 2)).astype(float),
    }[sites]
    order = coarse_to_fine_order(places)
    assert np.array_equal(np.sort(order), np.arange(300))
    ordered, m = places[order], 12
    found = nearest_earlier(ordered, m)
    for i in range(300):
        earlier = np.linalg.norm(ordered[:i] - ordered[i], axis=1)
        row = found[i, : min(i, m)]
        assert len(set(row)) == len(row) and np.all(row < i) and np.all(found[i, min(i, m) :] == -1)
        # of ties any will do
        np.testing.assert_allclose(np.sort(earlier[row]), np.sort(earlier)[:m])


def test_the_first_sites_are_spread_over_all():
    places = np.random.default_rng(4).uniform(size=(1024, 2))
    order = coarse_to_fine_order(places)
    for first in (16, 64, 256):
        cells = np.unique(np.floor(places[order[:first]] * math.isqrt(first) / 2), axis=0)
        assert len(cells) == first // 4


def test_a_stretched_field_has_its_neighbours_along_the_stretch():
    """The divergence from exact, half of the difference of the log-determinants, is smaller than with the nearest on the map."""
    truth = GeometricAnisotropy(Matern(1.0, 0.5, 1.0, 0.01), angle=0.4, ratio=0.1)
    observations = simulate(truth, CASES["anisotropic"][2], 400, 0)
    exact = log_likelihood(observations, truth).logdet
    sites = observations.coordinates
    divergences = [
        0.5 * (approximated(observations, correlation_of(truth), conditioning(by, 10), variance=1.0).likelihood.logdet - exact)
        for by in (truth.comparable_sites(sites), sites)
    ]
    assert 0 < divergences[0] < divergences[1] / 3
    assert compare_otherwise(sites, truth.comparable_sites(sites))
    turned = sites @ np.array([[0.6, -0.8], [0.8, 0.6]]) * 7.0
    assert not compare_otherwise(sites, turned)


def test_duplicates_need_a_nugget():
    sites = np.vstack([np.arange(20.0), np.arange(20.0)]).reshape(-1, 1)
    observations = make_observations(sites, np.sin(np.arange(40.0)))
    assert math.isfinite(vecchia_log_likelihood(observations, Matern(1.0, 2.0, 1.5, 0.1), neighbours=5).loglik)
    with pytest.raises(oc.NotPositiveDefiniteError, match=r"observations 0 and 20 .* share a place"):
        vecchia_log_likelihood(observations, Matern(1.0, 2.0, 1.5), neighbours=5)


@pytest.mark.parametrize("case", ["matern", "axis ranges", "great circle"])
def test_a_fit_is_within_its_standard_errors_of_the_exact_one(case):
    truth, start, sites, _, seed, fixed = CASES[case]
    observations = simulate(truth, sites, 140, seed)
    exact = fit(observations, covariance=start, fixed=fixed, tolerance=1e-6)
    result = fit(observations, covariance=start, fixed=fixed, method="vecchia", exact_check="score", tolerance=1e-6)
    assert result.converged and result.method == "vecchia" and result.estimated == exact.estimated
    errors = infer(observations, exact.model, estimated=exact.estimated).parameters
    for name in set(exact.estimated) - {"variance", "nugget"}:
        assert abs(result.model.values[name] - exact.model.values[name]) < 0.5 * errors[name].standard_error
    # the gap is what two likelihoods give, and the step to the exact estimate is about as long as it is far
    check = result.vecchia
    direct = log_likelihood(observations, result.model).loglik
    assert result.loglik == check.loglik_exact == pytest.approx(direct, rel=TWO_ROUTES)
    assert check.loglik == vecchia_log_likelihood(observations, result.model).loglik
    assert check.gap == pytest.approx(check.loglik - direct, abs=abs(direct) * TWO_ROUTES)
    assert 0.0 < exact.loglik - direct < check.shift_in_errors**2 < 0.25
    assert result.aic == 2 * result.parameters - 2 * result.loglik


def test_neighbours_follow_the_estimate(tmp_path):
    """From an isotropic start, the neighbours of the last round are those of an anisotropic model."""
    truth = GeometricAnisotropy(Matern(1.0, 0.5, 0.5, 0.05), angle=0.4, ratio=0.1)
    observations = simulate(truth, CASES["anisotropic"][2], 300, 1)
    start = GeometricAnisotropy(Matern(1.0, 0.2, 0.5, 0.1), angle=0.0, ratio=1.0)
    options = {"fixed": ("smoothness",), "method": "vecchia", "neighbours": 10}
    result = fit(observations, covariance=start, checkpoint=tmp_path / "log", **options)
    assert result.converged and result.model.ratio < 0.3
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()[1:]]
    rounds = list(
        dict.fromkeys(line["kind"] for line in lines if line["kind"].startswith("vecchia, 10 neighbours of whole places"))
    )
    assert 2 <= len(rounds) <= 3 and "ratio=1.0" in rounds[0] and "ratio=1.0" not in rounds[-1]
    # where the neighbours are already those of the estimate, there is one round
    again = fit(observations, covariance=result.model, checkpoint=tmp_path / "again", **options)
    kinds = {json.loads(line).get("kind") for line in (tmp_path / "again").read_text().splitlines()[1:]}
    assert len(kinds) == 2 and again.loglik == pytest.approx(result.loglik, abs=0.1)


def test_an_exact_check_may_be_skipped_and_then_it_is_said():
    truth, start, sites, _, seed, _ = CASES["power"]
    observations = simulate(truth, sites, 100, seed)
    result = fit(observations, covariance=start, method="vecchia", neighbours=10, exact_check="skip")
    assert result.vecchia.gap is None and result.vecchia.neighbours == 10
    assert result.loglik == result.vecchia.loglik
    assert any("Vecchia's approximation with 10 neighbours: the exact one was not computed" in text for text in result.warnings)
    assert json.loads(json.dumps(result.to_dict()))["vecchia"]["loglik_exact"] is None


def test_starts_by_the_approximation_are_near_the_exact_maximum():
    truth = Matern(2.0, 0.05, 0.8, 0.1)
    observations = simulate(truth, CASES["matern"][2], 200, 2)
    plain = fit(observations, smoothness="free", starts="subset")
    result = fit(observations, smoothness="free", starts="vecchia")
    assert (plain.start, result.start) == ("subset", "vecchia")
    assert result.loglik == pytest.approx(plain.loglik, abs=1e-3)
    assert result.evaluations[0].loglik > result.loglik - 1.0
    assert len(result.evaluations) <= MOST_EVALUATIONS


@pytest.mark.parametrize("case", ["anisotropic", "bivariate"])
def test_a_template_is_improved_by_the_approximation(case):
    truth, start, sites, _, seed, fixed = CASES[case]
    observations = simulate(truth, sites, 140, seed)
    result = fit(observations, covariance=start, fixed=fixed, starts="vecchia")
    given = fit(observations, covariance=start, fixed=fixed)
    assert (given.start, result.start) == ("template", "vecchia")
    assert result.loglik == pytest.approx(given.loglik, abs=1e-3)
    assert result.evaluations[0].loglik > max(given.evaluations[0].loglik, result.loglik - 1.0)
    assert len(result.evaluations) <= MOST_EVALUATIONS


def test_large_data_start_from_the_approximation_by_themselves():
    sites = np.arange(float(LARGE))
    large = make_observations(sites, np.sin(sites))
    assert VecchiaOptions().improve(large)
    assert not VecchiaOptions().improve(large.take(np.arange(LARGE - 1)))
    assert not VecchiaOptions(starts="template").improve(large)


@pytest.mark.parametrize("method", ["fisher", "lbfgs"])
def test_an_exact_fit_tells_how_far_its_approximate_start_was(method):
    truth, start, sites, _, seed, _ = CASES["power"]
    observations = simulate(truth, sites, 120, seed)
    options = {"covariance": start, "starts": "vecchia", "neighbours": 5, "method": method}
    result = fit(observations, **options)
    found = result.vecchia_start
    assert (found.neighbours, found.densities) == (5, 120) and found.errors > 0.0
    assert found.gain == pytest.approx(result.loglik - result.evaluations[0].loglik, abs=1e-9)
    # half of the square where the likelihood is quadratic and as curved as expected; data may be twice as curved
    assert found.gain < 2 * found.errors**2
    assert json.loads(json.dumps(result.to_dict()))["vecchia_start"]["errors"] == found.errors
    exactly = fit(observations, **{**options, "neighbours": 119})
    assert exactly.vecchia_start.errors < 0.2 and "of log-likelihood below" in str(found)
    assert fit(observations, covariance=start, method=method).vecchia_start is None


@pytest.mark.parametrize("smoothness", ["best", 0.5])
def test_neighbours_are_looked_for_once_in_an_isotropic_fit(smoothness, monkeypatch):
    looked, search = [], vecchia_neighbours.nearest_earlier
    monkeypatch.setattr(vecchia_neighbours, "nearest_earlier", lambda *words: looked.append(words) or search(*words))
    observations = simulate(CASES["power"][0], CASES["power"][2], 120, 3)
    fit(observations, smoothness=smoothness, starts="vecchia")
    assert len(looked) == 1
    fit(observations, smoothness=smoothness, method="vecchia")
    assert len(looked) == 5  # the mirror images of the map, too


def test_a_sample_of_the_densities_has_all_scales():
    sites = np.random.default_rng(0).uniform(size=(500, 2))
    graph = conditioning(sites, 5).sampled(50)
    assert len(graph.targets) == 50 and graph.targets[0] == 0 and graph.targets[-1] == 499
    blocks = graph.blocks(10 * 36)
    last = np.concatenate([graph.leading[0][graph.leading[1]], *(block[:, -1] for block in blocks)])
    np.testing.assert_array_equal(last, graph.order[graph.targets])


@pytest.mark.parametrize("options", [{"method": "vecchia"}, {"method": "vecchia", "starts": "vecchia"}, {"starts": "vecchia"}])
def test_a_log_is_gone_on_from(tmp_path, options):
    truth, _, sites, _, seed, _ = CASES["matern"]
    observations = simulate(truth, sites, 80, seed)
    first = fit(observations, smoothness=1.5, neighbours=10, checkpoint=tmp_path / "log", **options)
    again = fit(observations, smoothness=1.5, neighbours=10, checkpoint=tmp_path / "log", **options)
    assert again.start == "log" and again.model == first.model and again.loglik == first.loglik
    assert again.report.resumed == len(again.evaluations) == len(first.evaluations)
    # the approximation with other neighbours is another function
    other = fit(observations, smoothness=1.5, neighbours=9, checkpoint=tmp_path / "log", max_evaluations=1, **options)
    assert other.report.resumed == 0


def test_the_command_line_tells_the_gap(tmp_path, capsys):
    truth, _, sites, _, seed, _ = CASES["matern"]
    data = simulate(truth, sites, 90, seed)
    table = np.column_stack([data.coordinates, data.values])
    np.savetxt(tmp_path / "data.csv", table, delimiter=",", header="x,y,value", comments="")
    words = ["geostat", "fit", str(tmp_path / "data.csv"), "--x", "x", "--y", "y", "--value", "value", "--smoothness", "1.5"]
    words += ["--method", "vecchia", "--neighbours", "12"]
    assert main([*words, "--exact-check", "score", "--output", str(tmp_path / "fit.json")]) == 0
    printed = capsys.readouterr().out
    check = json.loads((tmp_path / "fit.json").read_text())["fit"]["vecchia"]
    assert check["gap"] == check["loglik"] - check["loglik_exact"]
    assert f"with 12 neighbours, less the exact one: {check['gap']:+.4f}" in printed
    assert f"mirror images of the map differ by {check['spread']:.3g}: differences of AIC below" in printed
    assert f"about {check['shift_in_errors']:.2g} standard errors away" in printed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"neighbours": 0}, "at least 1"),
        ({"starts": "near"}, "auto, template, subset, vecchia"),
        ({"exact_check": "some"}, "value, score, skip"),
        ({"starts": "template"}, "no covariance is given"),
        ({"starts": "subset", "covariance": Matern(1.0, 0.2, 1.5)}, "for fits without covariance"),
        ({"exact_check": "skip", "method": "fisher"}, "fisher is exact"),
        ({"method": "vecchia", "settings": geostat.FactorSettings(precision_threshold=1e-6)}, "leave precision_threshold out"),
    ],
)
def test_choices_that_do_not_go_together_are_named(options, words):
    observations = make_observations(np.arange(20.0), np.sin(np.arange(20.0)))
    with pytest.raises(ValueError, match=words):
        fit(observations, **options)
