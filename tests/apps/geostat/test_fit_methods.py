"""Searches with derivatives, the restricted likelihood, logs that are gone on from, and fits in mixed precision."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import AbstractFitProgress, FactorSettings, Matern, make_observations
from tests.apps.geostat.few_tiles import FEW_TILES, fit, log_likelihood, log_likelihood_gradient
from tests.apps.geostat.fields import simulate
from tests.apps.geostat.geostat_tolerances import FIVE_POINTS, TWO_ROUTES, printed
from tests.host.escalation_cases import FP64
from tests.inside.dense import MemoryStore
from tests.inside.geostat import (
    LikelihoodOptions,
    Objective,
    SearchLimits,
    SilentProgress,
    _boxed,
    evaluated,
    graph_of,
    profiled,
    score,
    search_from,
    search_space,
)
from tests.inside.precision import Remedy

pytestmark = pytest.mark.usefixtures("one_blas_thread")

METHODS = ["cobyqa", "bobyqa", "lbfgs", "fisher"]

#: What a fit from automatic starts may take.
MOST_EVALUATIONS = 15


@pytest.fixture(scope="module")
def field():
    return simulate(Matern(2.0, 0.1, 1.5, 0.2), 90, seed=11, mean=5.0)


@pytest.fixture(scope="module")
def meuse(data_dir):
    table = geostat.read_table(data_dir / "meuse.csv", ("x", "y", "zinc", "dist"))
    return table.stack(("x", "y")) / 1000, np.log(table.columns["zinc"]), np.sqrt(table.columns["dist"])


# T8


@pytest.mark.parametrize(
    ("method", "nugget", "with_distance", "expected", "loglik"),
    [
        ("fisher", "zero", False, (1.476355, 1.214162, 0.0), -100.762859),
        ("fisher", "free", False, (1.849918, 2.144918, 0.034656), -99.128778),
        ("lbfgs", "free", False, (1.849918, 2.144918, 0.034656), -99.128778),
        ("lbfgs", "free", True, (0.143261, 0.169799, 0.045247), -74.920466),
    ],
)
def test_meuse_estimates_by_derivatives(meuse, method, nugget, with_distance, expected, loglik):
    sites, values, distance = meuse
    observations = make_observations(sites, values, covariates=distance if with_distance else None)
    result = fit(observations, smoothness=0.5, nugget=nugget, method=method, tolerance=1e-8)
    assert result.converged and result.warnings == () and result.method == method
    assert result.loglik == pytest.approx(loglik, abs=2 * printed(6))
    np.testing.assert_allclose((result.model.variance, result.model.range, result.model.nugget), expected, rtol=1e-3)
    assert len(result.evaluations) <= MOST_EVALUATIONS


def test_derivatives_take_few_evaluations_from_automatic_starts():
    observations = simulate(Matern(2.0, 0.1, 0.5, 0.2), 200, seed=12)
    results = {method: fit(observations, smoothness=0.5, method=method) for method in ("cobyqa", "lbfgs", "fisher")}
    best = max(result.loglik for result in results.values())
    for method, result in results.items():
        assert result.loglik > best - 0.05 and result.converged
        if method != "cobyqa":
            assert len(result.evaluations) <= MOST_EVALUATIONS


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_maximum_of_the_restricted_likelihood(field, method):
    result = fit(field, smoothness=1.5, method=method, reml=True, tolerance=1e-6)
    assert result.reml and result.loglik == pytest.approx(log_likelihood(field, result.model, reml=True).loglik, rel=TWO_ROUTES)
    found = log_likelihood_gradient(field, result.model, reml=True, information=True)
    estimated = [0, 2, 3]
    assert np.all(np.abs(found.gradient) < 0.05 * np.sqrt(np.diag(found.information)), where=np.isin(range(4), estimated))
    assert result.parameters == 3 and result.aic == 6 - 2 * result.loglik


@pytest.mark.parametrize("nugget", ["free", "zero"])
def test_bobyqa_finds_the_optimum_of_cobyqa(field, nugget):
    bobyqa, cobyqa = (fit(field, smoothness=1.5, method=m, nugget=nugget, tolerance=1e-6) for m in ("bobyqa", "cobyqa"))
    assert bobyqa.converged and bobyqa.method == "bobyqa"
    assert bobyqa.loglik == pytest.approx(cobyqa.loglik, abs=1e-3)
    assert bobyqa.model.range == pytest.approx(cobyqa.model.range, rel=1e-2)


def test_bobyqa_stops_when_it_is_told_to(field):
    result = fit(field, smoothness=1.5, method="bobyqa", max_evaluations=4)
    assert len(result.evaluations) <= 4 and not result.converged

    class Interrupted(SilentProgress):
        def evaluation_finished(self, evaluation):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(field, smoothness=1.5, method="bobyqa", progress=Interrupted())


def test_bobyqa_without_nlopt_is_refused_before_anything_is_computed(field, monkeypatch):
    monkeypatch.setitem(sys.modules, "nlopt", None)
    with pytest.raises(geostat.MissingExtraError, match=r"pip install '\.\[nlopt\]'"):
        fit(field, method="bobyqa", progress=None)


@pytest.mark.parametrize("method", ["lbfgs", "fisher"])
def test_probes_find_the_maximum_within_their_error(field, method):
    estimate = fit(field, smoothness=1.5, method=method, traces="probes")
    exact = fit(field, smoothness=1.5, method="fisher", tolerance=1e-6)
    # 64 probes move the maximum by a share 1/8 of a standard error in each of two directions, less of the likelihood
    assert exact.loglik - 0.1 < estimate.loglik <= exact.loglik + 1e-3
    assert estimate.converged and len(estimate.evaluations) <= MOST_EVALUATIONS


def test_free_smoothness_is_at_least_as_good_as_any_fixed_one():
    observations = simulate(Matern(2.0, 0.15, 0.9, 0.02), 100, seed=5)
    fixed = max(fit(observations, smoothness=nu, method="fisher").loglik for nu in (0.5, 1.5))
    for method in ("lbfgs", None):
        free = fit(observations, smoothness="free", method=method)
        assert free.method == (method or "fisher")
        assert free.converged and free.estimated == ("range", "smoothness", "variance", "nugget")
        assert len(free.evaluations) <= MOST_EVALUATIONS
        assert free.loglik > fixed - 0.02


def test_a_nugget_that_is_not_there_ends_at_the_floor():
    observations = simulate(Matern(2.0, 0.1, 0.5), 150, seed=3)
    reference = fit(observations, smoothness=0.5)
    for method in ("lbfgs", "fisher"):
        result = fit(observations, smoothness=0.5, method=method)
        assert result.loglik > reference.loglik - 0.01
        assert len(result.evaluations) <= MOST_EVALUATIONS


def test_matrices_that_are_not_positive_definite_are_stepped_back_from():
    sites = np.linspace(0.0, 1.0, 120)
    observations = make_observations(sites, np.sin(3 * sites))
    reference = fit(observations, smoothness=2.5, nugget="zero")
    for method in ("lbfgs", "fisher"):
        result = fit(observations, smoothness=2.5, nugget="zero", method=method)
        assert math.isfinite(result.loglik)
        assert result.loglik > reference.loglik - abs(reference.loglik) / 20


# the function that is searched


@pytest.mark.parametrize("nugget", ["free", "zero", 0.15])
def test_gradient_in_the_coordinates_of_the_search(field, nugget):
    space = search_space(field, nugget, 1.5)
    objective = Objective(field, space, LikelihoodOptions(FEW_TILES), SilentProgress())
    point = space.point(Matern(1.0, 0.15, 1.5, 0.0 if nugget == "zero" else 0.05))
    assert np.allclose(space.correlation(point).range, 0.15)
    gradient = objective.at(point, gradient=True).gradient
    step = 1e-3
    for k, ours in enumerate(gradient):
        unit = step * np.eye(len(point))[k]
        terms = [(-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12)]
        expected = sum(-weight * objective(point + offset * unit) for offset, weight in terms) / step
        assert ours == pytest.approx(expected, rel=FIVE_POINTS, abs=FIVE_POINTS)


def test_profiled_information_is_the_inverse_of_a_block_of_the_inverse(field):
    space = search_space(field, "free", 1.5)
    with evaluated(field, Matern(1.0, 0.1, 1.5, 0.1), variance=2.0) as found:
        full = score(found, space.shape, information=field.n)
    information = profiled(space, full)[1]
    jacobian = space.jacobian(Matern(2.0, 0.1, 1.5, 0.2))
    everything = jacobian @ full.information @ jacobian.T
    np.testing.assert_allclose(np.linalg.inv(information), np.linalg.inv(everything)[:2, :2], rtol=TWO_ROUTES)


@pytest.mark.parametrize("seed", [4, 9])
def test_a_gradient_by_probes_that_values_contradict_is_noise(seed):
    """Whole steps that lower the likelihood by what they promised: the search ends there, and does not halve them eight times."""
    sites = np.random.default_rng(seed).uniform(size=(300, 2))
    values = geostat.simulate(geostat.Matern(1.0, 0.1, 0.5, 1e-3), sites, seed=seed)[0]
    observations = geostat.make_observations(sites, values)
    options = {"smoothness": 0.5, "nugget": "zero" if seed % 2 else "free", "settings": geostat.FactorSettings(devices="host:0")}
    found = geostat.fit(observations, traces="probes", starts="vecchia", **options)
    exact = geostat.fit(observations, traces="exact", **options)
    assert found.converged and len(found.evaluations) <= 3
    assert exact.loglik - found.loglik < 5e-4


def test_fisher_scoring_raises_the_likelihood_at_every_step_it_takes(field):
    space = search_space(field, "free", 1.5)
    objective = Objective(field, space, LikelihoodOptions(FEW_TILES), SilentProgress())
    end = search_from(objective, space.point(Matern(1.0, 0.9, 1.5, 2.0)), "fisher", SearchLimits(1e-8, 50))
    assert end.converged
    taken = [evaluation.loglik for evaluation in objective.evaluations]
    assert max(taken) == taken[-1] or max(taken) - taken[-1] < 1e-6
    assert taken[-1] - taken[0] > 10


@pytest.mark.parametrize("seed", [5, 8])
def test_a_nugget_near_its_floor_does_not_stop_the_others(seed):
    """There the likelihood says nothing of its logarithm, and scoring would move it without end."""
    observations = simulate(Matern(2.0, 0.1, 0.2), 150, seed=seed)
    space = search_space(observations, "free", None)
    objective = Objective(observations, space, LikelihoodOptions(FEW_TILES), SilentProgress())
    above_floor = space.at_floor(space.point(Matern(1.0, 0.3, 0.4, 0.1))) + np.array([0.0, 0.0, 0.1])
    end = search_from(objective, above_floor, "fisher", SearchLimits(1e-5, 25))
    assert end.converged
    assert objective.best.loglik >= fit(observations, smoothness="free", method="lbfgs").loglik - 0.01


def test_wrong_choices_are_named_before_a_log_is_made(field, tmp_path):
    with pytest.raises(ValueError, match="cobyqa, bobyqa, lbfgs, fisher"):
        fit(field, smoothness=0.5, method="newton", checkpoint=tmp_path / "log")
    assert not (tmp_path / "log").exists()
    with pytest.raises(ValueError, match="'exact' and 'probes'"):
        fit(field, smoothness=0.5, traces="some")
    with pytest.raises(ValueError, match="'best' or 'free'"):
        fit(field, smoothness="some")


# logs


class Interrupt(AbstractFitProgress):
    """Presses Ctrl-C when an evaluation begins."""

    def __init__(self, before):
        self.left = before

    def evaluation_started(self, correlation):
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1

    def advanced(self, done, total, seconds):
        pass

    def evaluation_finished(self, evaluation):
        pass

    def close(self):
        pass


def evaluations_of(path):
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line.get("kind") == "evaluation"]


def same(a, b):
    assert (a.model, a.loglik, a.trials) == (b.model, b.loglik, b.trials)
    assert np.array_equal(a.coefficients, b.coefficients)
    assert np.array_equal(a.coefficient_covariance, b.coefficient_covariance)


@pytest.mark.parametrize("method", ["cobyqa", "fisher"])
def test_an_interrupted_fit_goes_on_where_it_was(field, method, tmp_path):
    log, options = tmp_path / "log", {"smoothness": 1.5, "method": method, "tolerance": 1e-7}
    whole = fit(field, **options)
    with pytest.raises(KeyboardInterrupt):
        fit(field, **options, checkpoint=log, progress=Interrupt(3))
    assert len(evaluations_of(log)) == 3
    with log.open("a", encoding="utf-8") as stream:
        stream.write('{"kind": "evaluation", "names": ["ran')  # a process that was killed while it wrote
    resumed = fit(field, **options, checkpoint=log)
    assert resumed.report.resumed == 3
    same(resumed, whole)
    points = [tuple(line["at"]) for line in evaluations_of(log)]
    assert len(points) == len(set(points)) == len({(e.range, e.nugget_ratio) for e in whole.evaluations})
    # a second time nothing is computed
    again = fit(field, **options, checkpoint=log)
    assert again.report.resumed == len(again.evaluations)
    same(again, whole)
    assert len(evaluations_of(log)) == len(points)


def test_a_log_of_best_smoothness_keeps_the_three_apart(field, tmp_path):
    first = fit(field, method="fisher", checkpoint=tmp_path / "log")
    again = fit(field, method="fisher", checkpoint=tmp_path / "log")
    assert again.report.resumed == len(again.evaluations)
    same(again, first)


def test_a_log_from_before_options_of_rounding_goes_on(field, tmp_path):
    log, options = tmp_path / "log", {"smoothness": 1.5, "method": "fisher"}
    fit(field, **options, checkpoint=log)
    header, *lines = log.read_text(encoding="utf-8").splitlines()
    named = {name: value for name, value in json.loads(header).items() if name not in ("moduli", "strict", "precision_rule")}
    log.write_text("\n".join([json.dumps(named), *lines]) + "\n", encoding="utf-8")
    again = fit(field, **options, checkpoint=log, settings=FactorSettings(tile_size=50, fp64="native"))
    assert again.report.resumed == len(again.evaluations)


def test_a_log_in_mixed_precision_is_that_of_one_arithmetic(field, tmp_path):
    log, options = tmp_path / "log", {"smoothness": 1.5, "method": "fisher", "max_evaluations": 3}
    mixed = FactorSettings(precision_threshold=1e-2, tile_size=32)
    first = fit(field, **options, checkpoint=log, settings=mixed)
    for other in ({"tile_size": 48}, {"tile_size": None}, {"fp64": "residue"}):
        with pytest.raises(oc.errors.CheckpointError, match=rf"these differ: {next(iter(other))} \("):
            fit(field, **options, checkpoint=log, settings=replace(mixed, **other))
    again = fit(field, **options, checkpoint=log, settings=replace(mixed, memory_budget="1 MB"))
    assert again.report.resumed == len(again.evaluations)
    same(again, first)


@pytest.mark.parametrize("method", ["fisher", "lbfgs"])
def test_a_log_in_mixed_precision_goes_on_from_any_line(method, tmp_path):
    observations, log = simulate(Matern(1.0, 0.2, 1.5, 0.1), 40, seed=3), tmp_path / "log"
    options = {"smoothness": 1.5, "method": method, "max_evaluations": 5}
    options["settings"] = FactorSettings(precision_threshold=1e-3, tile_size=8)
    whole = fit(observations, **options, checkpoint=log)
    lines = log.read_bytes().splitlines(keepends=True)
    assert whole.precision is not None and len(lines) > 4
    for kept in range(1, len(lines)):
        log.write_bytes(b"".join(lines[:kept]))
        same(fit(observations, **options, checkpoint=log), whole)


def test_a_log_in_mixed_precision_from_before_these_were_compared_goes_on(field, tmp_path):
    log, options = tmp_path / "log", {"smoothness": 1.5, "method": "fisher", "max_evaluations": 3}
    options["settings"] = FactorSettings(precision_threshold=1e-2)
    geostat.fit(field, **options, checkpoint=log)
    header, *lines = log.read_text(encoding="utf-8").splitlines()
    named = {name: value for name, value in json.loads(header).items() if name not in ("fp64", "tile_size")}
    log.write_text("\n".join([json.dumps(named), *lines]) + "\n", encoding="utf-8")
    again = geostat.fit(field, **options, checkpoint=log)
    assert again.report.resumed == len(again.evaluations)


def test_wrong_logs_are_refused(field, tmp_path):
    log = tmp_path / "log"
    fit(field, smoothness=1.5, method="fisher", checkpoint=log)
    kept = log.read_bytes()
    with pytest.raises(oc.errors.CheckpointError, match="observations"):
        fit(field.take(np.arange(60)), smoothness=1.5, checkpoint=log)
    with pytest.raises(oc.errors.CheckpointError, match=r"reml \(False there, True here\)"):
        fit(field, smoothness=1.5, reml=True, checkpoint=log)
    with pytest.raises(oc.errors.CheckpointError, match=r"moduli .*, strict "):
        fit(field, smoothness=1.5, settings=FactorSettings(moduli=8, strict=False), checkpoint=log)
    assert log.read_bytes() == kept
    (tmp_path / "other").write_text("thesis\n")
    with pytest.raises(oc.errors.OutputError, match=r"is no log of evaluations.*replace=True"):
        fit(field, smoothness=1.5, checkpoint=tmp_path / "other")
    (tmp_path / "other").write_bytes(kept.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(ValueError, match="is not a log of evaluations of version 1"):
        fit(field, smoothness=1.5, checkpoint=tmp_path / "other")


# mixed precision


def test_a_fit_in_mixed_precision_is_judged_in_fp64_where_that_is_asked_for():
    observations = simulate(Matern(2.0, 0.02, 0.5, 0.2), 400, seed=21)
    settings = FactorSettings(tile_size=50, precision_threshold=1e-4)
    mixed = fit(observations, smoothness=0.5, method="fisher", exact_check="score", settings=settings)
    plain = fit(observations, smoothness=0.5, method="fisher", tolerance=1e-4)
    check = mixed.precision
    assert check is not None and plain.precision is None
    # the value reported is FP64's at the reported model
    assert mixed.loglik == pytest.approx(log_likelihood(observations, mixed.model).loglik, rel=TWO_ROUTES)
    assert mixed.loglik == check.loglik
    assert check.loglik_error == check.loglik_mixed - check.loglik != 0.0
    assert abs(check.loglik_error) < 1.0
    # the step points to the estimate in FP64: from there, a tenth of the distance is left
    ratios = (
        plain.model.range / mixed.model.range,
        plain.model.nugget / plain.model.variance / (mixed.model.nugget / mixed.model.variance),
    )
    left = np.log(ratios) - np.log1p([check.shift["range"], check.shift["nugget_ratio"]])
    assert np.linalg.norm(left) <= 0.3 * np.linalg.norm(np.log(ratios)) + 1e-3
    assert json.loads(json.dumps(mixed.to_dict(), allow_nan=False))["precision"]["threshold"] == 1e-4


def test_a_start_is_computed_with_as_many_moduli_as_fp64_takes(field, monkeypatch):
    """Those that a threshold needs are too few for it."""
    factor, plain = oc.cholesky, []

    def noticed(source, **options):
        if not isinstance(source, np.ndarray) and "plan" not in options and options["precision_threshold"] is None:
            plain.append(options["moduli"])
        return factor(source, **options)

    monkeypatch.setattr(oc, "cholesky", noticed)
    settings = FactorSettings(tile_size=32, fp64="residue", moduli=5, precision_threshold=1e-2)
    result = fit(field, smoothness=1.5, method="fisher", max_evaluations=2, settings=settings)
    assert result.start == "subset" and plain and set(plain) == {None}


def test_mixed_precision_really_stores_narrow_tiles():
    settings = FactorSettings(tile_size=50, precision_threshold=1e-4)
    sites = simulate(Matern(2.0, 0.02, 0.5, 0.2), 400, seed=21).coordinates
    source = geostat.covariance_source(Matern(1.0, 0.02, 0.5, 0.1), sites[geostat.morton_order(sites)])
    with settings.factor(source, None, False) as factor:
        assert set(factor.formats) > {"fp64"}
    with replace(settings, precision_threshold=None).factor(source, None, False) as factor:
        assert set(factor.formats) == {"fp64"}


@pytest.mark.parametrize("is_handed_on", [True, False], ids=["plan handed on", "no plan"])
@pytest.mark.parametrize("threshold", [1e-5, 1e-8])
def test_a_fit_goes_on_after_escalations(threshold, is_handed_on, monkeypatch):
    """The plan of one serves the next evaluation; without plans each evaluation has its own. Both end with FP64's estimate."""
    factor, write, escalated = oc.cholesky, MemoryStore.write, []

    def lose(store, index, data):
        """Tiles in narrow formats come to nothing, so that no factor with any is certified."""
        write(store, index, data if store.format_of(index).name == "fp64" else 0 * data)

    def noticed(source, **options):
        found = factor(source, **options if is_handed_on else {name: options[name] for name in options.keys() - {"plan"}})
        if options.get("precision_threshold") is not None:
            escalated.append([step.remedy for step in found.report.escalations])
        return found

    observations = simulate(Matern(1.0, 0.02627, 0.5, 0.0), 200, seed=3)
    options = {"smoothness": 0.5, "nugget": "zero", "method": "fisher"}
    plain = fit(observations, **options)
    monkeypatch.setattr(oc, "cholesky", noticed)
    monkeypatch.setattr(MemoryStore, "write", lose)
    # Where there is no room for random vectors beside the run, L is read for its bound.
    settings = FactorSettings(precision_threshold=threshold, tile_size=32, memory_budget="2 MiB")
    mixed = fit(observations, **options, settings=settings)
    of_matrix = [steps for steps in escalated if steps]
    assert all(steps[-1] is Remedy.FP64 and len(steps) <= 2 for steps in of_matrix)
    assert len(of_matrix) == 1 if is_handed_on else len(of_matrix) > 3
    assert mixed.converged and mixed.loglik == pytest.approx(plain.loglik, rel=TWO_ROUTES)
    assert mixed.model.range == pytest.approx(plain.model.range, rel=1e-6)


def test_a_fit_of_a_matrix_near_to_singular_is_as_far_from_fp64_as_its_check_says():
    observations = simulate(Matern(1.0, 0.1, 2.5, 1e-9), 200, seed=3)
    options = {"smoothness": 2.5, "nugget": 1e-9, "method": "fisher"}
    settings = FactorSettings(precision_threshold=1e-2, tile_size=32)
    mixed = fit(observations, **options, exact_check="score", settings=settings)
    plain, check = fit(observations, **options), mixed.precision
    assert mixed.converged and check.shift_in_errors < 1.0
    assert plain.loglik - mixed.loglik == pytest.approx(0.5 * check.shift_in_errors**2, rel=0.2, abs=1e-2)
    assert mixed.model.range * (1.0 + check.shift["range"]) == pytest.approx(plain.model.range, rel=1e-2)


def test_settings_hand_on_the_plan_of_whatever_a_factorization_came_to():
    matrix, settings = FP64.matrix(), FactorSettings(precision_threshold=1e-2, tile_size=FP64.nb, memory_budget=FP64.budget)
    with settings.factor(matrix, None, False) as first:
        assert first.report.plan.precision is None
        with settings.reusing(first.report.plan).factor(matrix, None, False) as second:
            assert first.report.escalations and not second.report.escalations
            assert np.array_equal(np.asarray(first), np.asarray(second))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("gradient", [[math.nan, 1.0], [1e308, -1e308], [math.inf, 0.0]])
def test_a_step_ends_whatever_a_log_says(gradient):
    """It was looked for for ever among steps that are no numbers."""
    step = _boxed(np.array([[1e-300, 0.0], [0.0, 1e-300]]), np.array(gradient), np.full(2, -1.0), np.full(2, 1.0))
    assert step.shape == (2,)


def test_the_information_beside_probes_is_exact_with_all_neighbours(field):
    space = search_space(field, "free", None)
    point = space.point(Matern(2.0, 0.12, 1.2, 0.3))
    graph = graph_of(field, space.template, field.n - 1)
    options = LikelihoodOptions(FEW_TILES, trace_sums="probes", probes=8)
    told = Objective(field, space, options, SilentProgress(), expected=graph).at(point, gradient=True, information=True)
    probed = Objective(field, space, options, SilentProgress()).at(point, gradient=True, information=True)
    exact = Objective(field, space, replace(options, trace_sums="exact"), SilentProgress()).at(
        point, gradient=True, information=True
    )
    np.testing.assert_allclose(told.information, exact.information, rtol=1e-7, atol=1e-7 * np.abs(exact.information).max())
    assert np.array_equal(told.gradient, probed.gradient)
    assert np.abs(probed.information - exact.information).max() > 1e-3 * np.abs(exact.information).max()
