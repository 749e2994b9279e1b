"""What a long fit has found is kept, whatever fails after it: exact checks, standard errors, pictures, logs."""

from __future__ import annotations

import io as io_module
import json
import os
import re

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps.geostat import FactorSettings, Matern, covariance_source, fit, log_likelihood, make_observations, simulate
from tests.apps.geostat.empty_pictures import draw_nothing
from tests.apps.geostat.shell import shell
from tests.inside.geostat import (
    SilentProgress,
    check_vecchia,
    demo,
    factorization,
    fitting,
    io,
    maps,
    precision,
    progress_for,
    read_result,
    vecchia_check,
)
from tests.inside.geostat import fit as fit_module

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N = 160
SITES = np.random.default_rng(3).uniform(size=(N, 2))
VALUES = simulate(Matern(2.0, 0.2, 1.5, 0.1), SITES, seed=4, target="observation")[0]
OBSERVATIONS = make_observations(SITES, VALUES)
#: Less than L takes in FP64, and more than in the narrow formats of a threshold.
TOO_LITTLE, ENOUGH_FOR_MIXED = "10 kB", 100_000


@pytest.fixture
def data(tmp_path, monkeypatch):
    draw_nothing(monkeypatch)
    io.write_table(tmp_path / "data.csv", {"x": SITES[:, 0], "y": SITES[:, 1], "value": VALUES})
    return tmp_path / "data.csv"


def fit_words(data, *words) -> int:
    """Fit by the method of fewest evaluations, unless the words name another."""
    columns = ("--x", "x", "--y", "y", "--value", "value")
    return shell("fit", data, *columns, "--smoothness", "1.5", "--method", "fisher", *words)


def without_memory_after_the_search(monkeypatch) -> None:
    """As on a machine where others have taken the memory meanwhile."""

    def check(*words, **options):
        monkeypatch.setattr(oc.HostMemory, "take", refuse)
        return check_vecchia(*words, **options)

    monkeypatch.setattr(fitting, "check_vecchia", check)


def refuse(memory, user, nbytes):
    raise oc.BudgetError("host memory for L", nbytes, 1000, "free some")


def fail(*_, **__):
    raise oc.BudgetError("host memory for L", 2000, 1000, "buy some")


# the exact check of Vecchia's approximation


@pytest.mark.parametrize("exact_check", ["value", "score"])
def test_an_exact_check_that_has_no_memory_leaves_the_estimate(exact_check):
    options = {"smoothness": 1.5, "method": "vecchia", "neighbours": 10}
    settings = FactorSettings(host_budget=TOO_LITTLE)
    result = fit(OBSERVATIONS, exact_check=exact_check, settings=settings, **options)
    expected = fit(OBSERVATIONS, exact_check="skip", **options)
    assert result.model == expected.model and result.loglik == expected.loglik == result.vecchia.loglik
    assert result.vecchia.loglik_exact is None and "host_budget for L: 10000 bytes are too few" in result.vecchia.problem
    assert any("could not be computed: host_budget for L" in text for text in result.warnings)
    assert json.loads(json.dumps(result.to_dict()))["vecchia"]["problem"] == result.vecchia.problem


def test_an_exact_score_that_fails_leaves_the_exact_value(monkeypatch):
    monkeypatch.setattr(vecchia_check, "scoring_step", fail)
    result = fit(OBSERVATIONS, smoothness=1.5, method="vecchia", neighbours=10, exact_check="score")
    assert result.loglik == result.vecchia.loglik_exact != result.vecchia.loglik
    assert result.vecchia.shift is None and "buy some" in result.vecchia.problem
    assert any("buy some" in text for text in result.warnings)


def test_the_command_writes_the_result_without_its_exact_check(data, tmp_path, capsys, monkeypatch):
    without_memory_after_the_search(monkeypatch)
    model = tmp_path / "model.json"
    assert fit_words(data, "--method", "vecchia", "--neighbours", 10, "--output", model) == 0
    told = capsys.readouterr().out
    assert re.search(r"not compared with the exact one: host memory for L: \d+ bytes are too few", told)
    content = json.loads(model.read_text())["fit"]
    assert content["vecchia"]["loglik_exact"] is None and "host memory" in content["vecchia"]["problem"]
    assert read_result(model).loglik == content["vecchia"]["loglik"]


def test_a_check_that_has_no_room_is_not_begun_and_the_dry_run_says_so(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(factorization, "_SURELY_FITS", 0)
    monkeypatch.setattr(factorization, "_room_of", lambda *_: (1000, "host memory for L", "buy some"))
    assert fit_words(data, "--method", "vecchia", "--neighbours", 10, "--dry-run") == 0
    assert "no exact check of the estimate can run: host memory for L: 1000 bytes are too few" in capsys.readouterr().out
    model = tmp_path / "model.json"
    assert fit_words(data, "--method", "vecchia", "--neighbours", 10, "--output", model) == 0
    told = capsys.readouterr()
    assert "note: no exact check of the estimate can run" in told.err
    content = json.loads(model.read_text())["fit"]
    assert "1000 bytes are too few" in content["vecchia"]["problem"] and content["vecchia"]["loglik_exact"] is None
    assert any("could not be computed" in text for text in content["warnings"])


def test_an_exact_search_that_has_no_room_is_refused_before_its_start(data, capsys, monkeypatch):
    monkeypatch.setattr(factorization, "_SURELY_FITS", 0)
    monkeypatch.setattr(factorization, "_room_of", lambda *_: (1000, "host memory for L", "buy some"))
    monkeypatch.setattr(fitting, "Search", lambda *_: pytest.fail("searched for nothing"))
    assert fit_words(data, "--starts", "vecchia") == 2
    assert "host memory for L: 1000 bytes are too few" in capsys.readouterr().err


def of_order(n):
    return covariance_source(Matern(1.0, 0.1, 0.5), np.arange(float(n))[:, np.newaxis])


def test_a_factor_larger_than_the_disk_or_the_memory_is_refused_by_its_plan(tmp_path):
    for settings, place in ((FactorSettings(tile_size=65536), "host memory"), (FactorSettings(store=tmp_path / "L"), "disk of")):
        refusal = settings.refusal(of_order(4_000_000))
        assert isinstance(refusal, oc.BudgetError), place
    assert all(FactorSettings(store=place).refusal(of_order(3_000)) is None for place in (None, tmp_path / "L"))


@pytest.mark.parametrize("method", ["vecchia", "fisher"])
def test_an_estimate_is_written_before_anything_judges_it(data, tmp_path, monkeypatch, method):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    for name in ("choose_smoothness", "structure_warning", "check_vecchia"):
        monkeypatch.setattr(fitting, name, interrupt)
    model = tmp_path / "model.json"
    words = ("--x", "x", "--y", "y", "--value", "value", "--method", method, "--neighbours", 10, "--output", model)
    assert shell("fit", data, *words) == 130
    assert read_result(model).n == N


# the check in FP64 of a fit in mixed precision


def test_a_check_in_fp64_that_has_no_memory_leaves_the_estimate():
    settings = FactorSettings(tile_size=32, precision_threshold=1e-2, host_budget=ENOUGH_FOR_MIXED)
    with pytest.raises(oc.BudgetError):
        fit(OBSERVATIONS, smoothness=0.5, settings=FactorSettings(tile_size=32, host_budget=ENOUGH_FOR_MIXED))
    result = fit(OBSERVATIONS, smoothness=0.5, method="cobyqa", exact_check="score", settings=settings)
    assert result.loglik == result.precision.loglik_mixed and result.precision.loglik is None
    assert "host_budget for L" in result.precision.problem
    assert any("are those in mixed precision" in text and "host_budget for L" in text for text in result.warnings)
    assert json.loads(json.dumps(result.to_dict()))["precision"]["loglik_error"] is None
    exact = log_likelihood(OBSERVATIONS, result.model).loglik
    check = result.precision
    assert check.lower <= exact <= check.upper and check.lower <= result.loglik <= check.upper
    assert any("off by at most" in text for text in result.warnings)


def test_the_command_tells_of_a_check_in_fp64_that_was_not_made(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(precision, "scoring_step", fail)
    model = tmp_path / "model.json"
    assert fit_words(data, "--precision-threshold", "1e-4", "--tile-size", 16, "--exact-check", "score", "--output", model) == 0
    assert "how far the estimate in FP64 is could not be computed: host memory for L" in capsys.readouterr().out
    assert read_result(model).n == N


# what the command does after the fit


def test_standard_errors_that_fail_leave_the_result_and_the_map(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fit_module, "inference_from_options", fail)
    model, picture = tmp_path / "model.json", tmp_path / "map.png"
    assert fit_words(data, "--standard-errors", "--output", model, "--plot", picture) == 2
    told = capsys.readouterr()
    assert "no standard errors: host memory for L" in told.err and "Traceback" not in told.err
    assert f"result in {model}" in told.out and read_result(model).n == N and picture.stat().st_size > 0


def test_a_map_that_fails_leaves_the_result_with_its_standard_errors(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(maps, "kriging", fail)
    model, picture = tmp_path / "model.json", tmp_path / "map.png"
    assert fit_words(data, "--standard-errors", "--output", model, "--plot", picture) == 2
    told = capsys.readouterr()
    assert "no map: host memory for L" in told.err
    assert "inference" in json.loads(model.read_text()) and not picture.exists()


def test_a_result_that_cannot_be_written_does_not_keep_the_rest_from_coming(data, tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fit_module, "write_json", full)
    picture = tmp_path / "map.png"
    assert fit_words(data, "--standard-errors", "--output", tmp_path / "model.json", "--plot", picture) == 2
    told = capsys.readouterr()
    assert "no result file: " in told.err and "No space left" in told.err
    assert "standard errors and 95 % intervals" in told.out and picture.stat().st_size > 0


def test_an_interrupt_after_the_fit_finds_the_result_written(data, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit_module, "inference_from_options", interrupt)
    assert fit_words(data, "--standard-errors", "--output", tmp_path / "model.json") == 130
    assert read_result(tmp_path / "model.json").n == N


def test_the_demonstration_keeps_its_fit(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "save_figure", fail)
    assert shell("demo", "--n", 60, "--memory-budget", "1 MB", "--output", tmp_path / "demo") == 2
    content = json.loads((tmp_path / "demo" / "result.json").read_text())
    assert content["fit"]["n"] == 54 and content["held_out"] is None


# the log


@pytest.mark.parametrize("method", ["cobyqa", "fisher"])
def test_a_fit_goes_on_without_its_log(tmp_path, method):
    """The disk of the log is full from some evaluation on."""
    log = tmp_path / "log.jsonl"

    class FillingUp(SilentProgress):
        def evaluation_finished(self, evaluation):
            full = os.open("/dev/full", os.O_WRONLY)
            for name in os.listdir("/proc/self/fd"):
                if os.path.exists(f"/proc/self/fd/{name}") and os.path.samefile(f"/proc/self/fd/{name}", log):
                    os.dup2(full, int(name))
            os.close(full)

    result = fit(OBSERVATIONS, smoothness=1.5, method=method, checkpoint=log, progress=FillingUp())
    expected = fit(OBSERVATIONS, smoothness=1.5, method=method)
    assert result.model == expected.model
    assert any(re.search(r"log\.jsonl.*No space left on device", text) for text in result.warnings)
    resumed = fit(OBSERVATIONS, smoothness=1.5, method=method, checkpoint=log)
    assert resumed.model == expected.model and resumed.report.resumed > 0


def test_a_fit_goes_on_when_nobody_reads_its_progress():
    class Pipe(io_module.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    result = fit(OBSERVATIONS, smoothness=1.5, method="fisher", progress=progress_for(Pipe()))
    assert result.model == fit(OBSERVATIONS, smoothness=1.5, method="fisher").model


# found out before the work


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--store", "no/where.ooc"], "there is no folder no"),
        (["--store", "data.csv"], "data.csv"),
    ],
)
def test_settings_of_the_last_step_are_looked_at_before_the_first(data, words, message, capsys, monkeypatch):
    monkeypatch.chdir(data.parent)
    monkeypatch.setattr(fit_module, "transformed_fit", lambda *_: pytest.fail("fitted for nothing"))
    assert fit_words(data, *words) == 2
    assert message in capsys.readouterr().err


def test_settings_of_the_exact_check_are_looked_at_before_the_search(monkeypatch):
    monkeypatch.setattr(fitting, "Search", lambda *_: pytest.fail("searched for nothing"))
    for settings in ({"devices": "cuda:7"}, {"memory_budget": "much"}, {"policy": "best"}, {"host_budget": "much"}):
        with pytest.raises(ValueError, match=r"cuda:7|much|best"):
            fit(OBSERVATIONS, smoothness=1.5, method="vecchia", settings=FactorSettings(**settings))
