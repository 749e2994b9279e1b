"""Maximum likelihood: published estimates, simulated truth, and what is said when data cannot carry a fit."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
from scipy.stats import chi2

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Evaluation, FactorSettings, Matern, make_observations
from ooc_chol.rates import measure_rates
from tests.apps.geostat.few_tiles import fit, log_likelihood, profile_log_likelihood
from tests.apps.geostat.fields import simulate
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES, printed
from tests.inside.geostat import LineProgress, TerminalProgress, bound_text, objective, progress_for, search_space

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture(scope="module")
def meuse(data_dir):
    table = geostat.read_table(data_dir / "meuse.csv", ("x", "y", "zinc", "dist"))
    return table.stack(("x", "y")) / 1000, np.log(table.columns["zinc"]), np.sqrt(table.columns["dist"])


@pytest.mark.parametrize(
    ("nugget", "with_distance", "expected", "loglik"),
    [
        ("zero", False, (1.476355, 1.214162, 0.0), -100.762859),
        ("free", False, (1.849918, 2.144918, 0.034656), -99.128778),
        ("free", True, (0.143261, 0.169799, 0.045247), -74.920466),
    ],
)
def test_meuse_estimates(meuse, nugget, with_distance, expected, loglik):
    sites, values, distance = meuse
    observations = make_observations(sites, values, covariates=distance if with_distance else None)
    result = fit(observations, smoothness=0.5, nugget=nugget, tolerance=1e-9)
    assert result.converged and result.warnings == ()
    assert result.loglik == pytest.approx(loglik, abs=2 * printed(6))
    # the likelihood is flat: an error e of the parameters moves it by order e**2
    np.testing.assert_allclose((result.model.variance, result.model.range, result.model.nugget), expected, rtol=2e-3)


def standard_errors(observations, correlation):
    """Of (log range, log nugget ratio), from a second difference of the profile log-likelihood."""
    step = 0.05

    def at(u):
        model = Matern(1.0, correlation.range * math.exp(u[0]), correlation.smoothness, correlation.nugget * math.exp(u[1]))
        return profile_log_likelihood(observations, model).loglik

    basis = step * np.eye(2)
    hessian = [[(at(a + b) - at(a - b) - at(b - a) + at(-a - b)) / (4 * step**2) for a in basis] for b in basis]
    return np.sqrt(np.diag(np.linalg.inv(-np.array(hessian))))


@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
def test_simulated_truth_is_recovered(nu):
    truth = Matern(2.0, 0.1, nu, 0.2)
    observations = simulate(truth, 150, seed=11, mean=5.0)
    result = fit(observations, smoothness=nu)
    estimate = Matern(1.0, result.model.range, nu, result.model.nugget / result.model.variance)
    errors = np.log([estimate.range / truth.range, estimate.nugget / 0.1])
    assert np.all(np.abs(errors) < 3 * standard_errors(observations, estimate))
    # twice the log-likelihood ratio of three parameters (the mean is profiled in both), one in a thousand
    assert 0 <= 2 * (result.loglik - log_likelihood(observations, truth).loglik) < chi2(3).ppf(0.999)
    assert result.coefficients[0] == pytest.approx(5.0, abs=3.5 * np.sqrt(result.coefficient_covariance[0, 0]))


@pytest.mark.parametrize("nu", [0.5, 2.5])
def test_best_smoothness_is_the_true_one(nu):
    result = fit(simulate(Matern(1.0, 0.2, nu, 1e-3), 200, seed=12), smoothness="best")
    assert result.model.smoothness == nu
    assert [trial.smoothness for trial in result.trials] == [0.5, 1.5, 2.5]
    assert result.loglik == max(trial.loglik for trial in result.trials)


def test_start_on_a_subset_leads_to_the_same_maximum():
    observations = simulate(Matern(1.0, 0.15, 0.5, 0.05), 550, seed=13)
    result = fit(observations, smoothness=0.5, tolerance=1e-6)
    around = [
        profile_log_likelihood(
            observations, Matern(1.0, result.model.range * f, 0.5, result.model.nugget / result.model.variance * g)
        )
        for f in (0.97, 1.03)
        for g in (0.95, 1.05)
    ]
    assert result.loglik > max(value.loglik for value in around)
    assert result.subset_evaluations > 0


def test_each_smoothness_starts_on_a_subset_of_its_own_order():
    observations = simulate(Matern(1.0, 0.2, 1.5, 0.05), 510, seed=3)
    result = fit(observations, smoothness="best", max_evaluations=3)
    assert [trial.smoothness for trial in result.trials] == [0.5, 1.5, 2.5]
    alone = fit(observations, smoothness=2.5, max_evaluations=3)
    assert result.trials[2].loglik == pytest.approx(alone.loglik, rel=TWO_ROUTES)


def test_a_matrix_that_is_not_positive_definite_counts_as_minus_infinity():
    # a smooth function on a fine line: without nugget and with a long range the matrix is singular to working accuracy
    sites = np.linspace(0.0, 1.0, 120)
    observations = make_observations(sites, np.sin(3 * sites))
    result = fit(observations, smoothness=2.5, nugget="zero")
    assert math.isfinite(result.loglik) and result.model.nugget == 0.0
    failed = [e for e in result.evaluations if e.loglik == -math.inf]
    assert len(failed) == result.trials[0].not_positive_definite > 0
    assert any("not positive definite" in text for text in result.warnings)


def test_a_start_that_is_not_positive_definite_anywhere_is_an_error(monkeypatch):
    def refuse(*arguments, **options):
        raise oc.NotPositiveDefiniteError(3, (0, 0))

    monkeypatch.setattr(objective, "evaluated", refuse)
    with pytest.raises(oc.NotPositiveDefiniteError, match="order 3"):
        fit(make_observations(np.arange(20.0), np.sin(np.arange(20.0))), smoothness=0.5)


def test_parameters_at_bounds_are_said():
    rng = np.random.default_rng(14)
    sites = rng.uniform(size=(150, 2))
    noise = fit(make_observations(sites, rng.normal(size=150)), smoothness=0.5)
    assert any("no spatial correlation" in text for text in noise.warnings)
    smooth = fit(make_observations(sites, np.exp(sites[:, 0]) + sites[:, 1] ** 2), smoothness=2.5)
    assert any("floor" in text for text in smooth.warnings)
    assert smooth.model.nugget >= 1e-8 * smooth.model.variance * (1 - 1e-9)


def test_fixed_nugget_is_kept():
    observations = simulate(Matern(1.0, 0.2, 1.5, 0.3), 200, seed=15)
    result = fit(observations, smoothness=1.5, nugget=0.3)
    assert result.model.nugget == pytest.approx(0.3)
    free = fit(observations, smoothness=1.5)
    assert free.loglik >= result.loglik - 0.01


@pytest.mark.parametrize("method", ["fisher", "cobyqa", "lbfgs", "vecchia"])
@pytest.mark.parametrize(
    ("variance", "smoothness", "nugget"), [(1.0, 2.5, 1e-9), (1e6, 0.5, 1e-5), (1e-12, 1.5, 1e-12), (1e-4, 1.5, 1.0)]
)
def test_a_nugget_that_is_kept_leaves_the_variance_free(variance, smoothness, nugget, method):
    """Whatever the ratio of the two: the largest likelihood is at least that of the truth."""
    truth = Matern(variance, 0.15, smoothness, nugget)
    observations = simulate(truth, 120, seed=15)
    least = log_likelihood(observations, truth).loglik
    result = fit(observations, smoothness=smoothness, nugget=nugget, method=method)
    assert result.converged and result.model.nugget == pytest.approx(nugget)
    assert result.loglik >= least - 1e-3
    assert not any("floor" in text or "upper bound" in text for text in result.warnings)
    if method == "fisher":
        profile = geostat.profile_likelihood(observations, truth, "range", [0.15], estimated=("range", "variance"))
        assert profile.loglik[0] >= least - 1e-3
        rough = fit(observations, covariance=Matern(1.0, 0.1, smoothness), fixed=("smoothness",), nugget=nugget)
        assert rough.loglik == pytest.approx(result.loglik, abs=1e-2)


def test_a_variance_at_a_bound_beside_a_nugget_that_is_kept_is_said():
    observations = make_observations(np.arange(40.0), np.random.default_rng(0).normal(size=40))
    space = search_space(observations, 2.0, 0.5)
    for side, end, words in (("lower", space.lower, "its upper bound"), ("upper", space.upper, "the nugget that is kept")):
        ((name, where, bound),) = [found for found in space.at_bounds(end) if found[0] == "nugget_ratio"]
        assert where == side and words in bound_text(space, name, where, bound)
    with pytest.raises(ValueError, match="say nugget='zero'"):
        fit(observations, smoothness=0.5, nugget=5e-324)


@pytest.mark.parametrize("smoothness", [None, "rough", [0.5]])
def test_a_smoothness_that_is_none_is_refused(smoothness):
    with pytest.raises(ValueError, match="must be a number, 'auto', 'best' or 'free'"):
        fit(make_observations(np.arange(20.0), np.sin(np.arange(20.0))), smoothness=smoothness)


def test_evaluations_used_up_are_said():
    result = fit(simulate(Matern(1.0, 0.2, 1.5, 0.3), 150, seed=16), smoothness=1.5, max_evaluations=2)
    assert not result.converged
    assert len(result.evaluations) <= 2
    assert any("did not converge in" in text for text in result.warnings)


def test_result_goes_through_json():
    result = fit(simulate(Matern(1.0, 0.2, 0.5, 0.1), 100, seed=17), smoothness=0.5)
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["model"]["range"] == result.model.range
    assert content["mean"]["columns"] == ["intercept"]
    assert len(content["evaluations"]) == content["trials"][0]["evaluations"] == len(result.evaluations)
    assert set(content) == {
        "model", "mean", "loglik", "aic", "bic", "n", "method", "reml", "estimated", "precision", "vecchia",
        "start", "vecchia_start", "comparison", "stationary", "converged", "end", "interval", "aic_interval", "bic_interval",
        "warnings", "report", "subset_evaluations", "trials", "evaluations",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"smoothness": 0.001}, "smoothness"),
        ({"nugget": -1.0}, "nugget"),
        ({"nugget": "some"}, "'free', 'zero'"),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        fit(make_observations(np.arange(10.0), np.sin(np.arange(10.0))), **options)


@pytest.mark.parametrize("nugget", [math.nan, math.inf, -1.0])
def test_a_nugget_that_is_none_is_refused(nugget):
    sites = np.random.default_rng(0).uniform(size=(9, 2))
    for unit in (1.0, 1e150):
        with pytest.raises(ValueError, match=f"nugget is {nugget!r}, but it must be 'free', 'zero' or a variance"):
            fit(make_observations(sites, unit * sites[:, 0]), nugget=nugget)


@pytest.mark.parametrize("nugget", [1e20, 1e300, 1e306])
def test_a_nugget_beside_which_nothing_is_left_is_refused(nugget):
    sites = np.random.default_rng(0).uniform(size=(9, 2))
    for options in ({"smoothness": 1.5}, {"covariance": Matern(1.0, 0.3, 0.5)}):
        with pytest.raises(ValueError, match=r"is \de\+\d+ times the largest variance of a search"):
            fit(make_observations(sites, sites[:, 0]), nugget=nugget, **options)


@pytest.mark.parametrize(
    "name", ["predict", "kriging", "plan_predict", "log_likelihood", "log_likelihood_gradient", "infer", "leave_one_out"]
)
def test_what_is_no_model_and_no_settings_is_refused(name):
    sites = np.random.default_rng(0).uniform(size=(9, 2))
    observations, model = make_observations(sites, sites[:, 0]), Matern(1.0, 0.3, 1.5, 0.1)
    function, more = getattr(geostat, name), [sites[:2]] if "predict" in name else []
    for wrong, words, told in (("m", {}, "model is a str"), (model, {"settings": {"tile_size": 3}}, "settings is a dict")):
        with pytest.raises(TypeError, match=f"{told}; give"):
            made = function(observations, wrong, *more, **words)
            made.__enter__()  # of what is open for a block


def test_data_that_cannot_carry_a_fit_are_refused():
    with pytest.raises(ValueError, match="one place"):
        fit(make_observations(np.ones((10, 2)), np.arange(10.0)))
    with pytest.raises(ValueError, match=r"observations 0 and 1 .* share a place"):
        fit(make_observations([0.0, 0.0, 1.0, 2.0, 3.0], np.arange(5.0)), nugget="zero")
    with pytest.raises(ValueError, match="are all values equal"):
        fit(make_observations(np.arange(10.0), np.full(10, 2.0)))


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_a_log_has_plain_lines_not_closer_than_asked_and_the_last_evaluation(seconds):
    stream = io.StringIO()
    progress = LineProgress(stream, "km", every_seconds=seconds)
    result = fit(simulate(Matern(1.0, 0.2, 0.5, 0.1), 80, seed=18), smoothness=0.5, progress=progress)
    progress.close()
    progress.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == (2 if seconds else len(result.evaluations))
    assert lines[-1].startswith(f"evaluation {len(result.evaluations)}: ") and isinstance(progress_for(stream), LineProgress)
    assert lines[0].startswith("evaluation 1: nu 0.5, range ") and " km, nugget ratio " in lines[0]
    assert lines[-1].split("best ")[1].startswith(f"{result.loglik:.3f}")


def test_a_long_fit_has_few_plain_lines():
    stream = io.StringIO()
    progress = LineProgress(stream, every_seconds=0.0)
    for at in range(6000):
        progress.evaluation_finished(Evaluation({"range": 1.0, "nugget_ratio": 0.1}, float(at), 0.1))
    counts = [int(line.split()[1].rstrip(":")) for line in stream.getvalue().splitlines()]
    assert counts == [*range(1, 61), *range(70, 601, 10), *range(700, 6001, 100)]


def test_the_live_line_says_where_the_search_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = progress_for(stream, "km")
    assert isinstance(progress, TerminalProgress)
    result = fit(simulate(Matern(1.0, 0.2, 0.5, 0.1), 80, seed=18), smoothness=0.5, progress=progress)
    progress.close()
    text = stream.getvalue()
    assert f"evaluation {len(result.evaluations)}: best {result.loglik:.2f}, now nu 0.5, range " in text


def test_a_plan_can_be_made_where_rates_are_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))
    measure_rates(32)
    plan = FactorSettings(tile_size=32, devices="host:0", memory_budget="1 MiB").plan(
        geostat.covariance_source(Matern(1.0, 0.1, 0.5), np.arange(200.0)[:, np.newaxis])
    )
    assert plan.grid.n == 200
    assert plan.seconds is not None
    assert plan.seconds > 0
