"""The options of ``fit``: methods, formula, logs, dry runs, standard errors and mixed precision, as a user types them."""

from __future__ import annotations

import inspect
import json
from dataclasses import MISSING, fields

import numpy as np
import pytest

from ooc_chol.apps import geostat
from tests.apps.geostat.geostat_tolerances import MONTE_CARLO_DEVIATIONS
from tests.inside.cli import main
from tests.inside.geostat import FitOptions, io, search

pytestmark = pytest.mark.usefixtures("one_blas_thread")

COLUMNS = ("--x", "east", "--y", "north")


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    sites = rng.uniform(0, 10, size=(80, 2))
    depth = rng.uniform(1, 4, size=80)
    log_zinc = 5 + np.sqrt(depth) + np.sin(sites[:, 0]) + np.cos(sites[:, 1]) + 0.1 * rng.normal(size=80)
    rows = [f"{x!r},{y!r},{d!r},{np.exp(v)!r}" for (x, y), d, v in zip(sites.tolist(), depth.tolist(), log_zinc, strict=True)]
    text = "\n".join(["east,north,depth,zinc", *rows]).replace("np.float64(", "").replace(")", "")
    (tmp_path / "data.csv").write_text(text + "\n")
    return tmp_path / "data.csv"


def fit(data, *words):
    return main(["geostat", "fit", str(data), *COLUMNS, "--smoothness", "1.5", *words])


def test_lengths_have_their_unit_in_every_block(capsys):
    """Of the example, which is in kilometres."""
    words = ["fit", "--example", "jacksboro:120", "--standard-errors"]
    assert main(["geostat", *words, "--smoothness", "0.5"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith(("range", "effective range"))]
    assert len(rows) == 3 and " km; effective range" in rows[0] and all(row.endswith(" km") for row in rows)
    assert main(["geostat", *words, "--covariance", "anisotropic", "--smoothness", "0.5"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith(("range", "effective range"))]
    assert len(rows) == 5 and all(row.endswith(" km") for row in rows)


def test_formula_method_and_standard_errors(data, tmp_path, capsys):
    model, out = tmp_path / "model.json", tmp_path / "out.csv"
    words = ["--formula", "log(zinc) ~ 1 + sqrt(depth) + east", "--method", "fisher", "--reml", "--standard-errors"]
    assert fit(data, *words, "--output", str(model)) == 0
    told = capsys.readouterr().out
    assert "restricted likelihood by fisher; AIC " in told and "sqrt(depth) " in told
    assert "standard errors and 95 % intervals (expected information, exact)" in told
    content = json.loads(model.read_text(encoding="utf-8"))
    mean = content["fit"]["mean"]
    assert mean["columns"] == ["intercept", "sqrt(depth)", "east"]
    assert mean["coefficients"][1] == pytest.approx(1.0, abs=4 * mean["standard_errors"][1])
    assert content["fit"]["method"] == "fisher" and content["fit"]["reml"] is True
    estimates = content["inference"]["estimates"]
    assert set(estimates) == {"range", "variance", "nugget", "effective_range", "microergodic"}
    length = estimates["range"]
    assert length["lower"] < length["value"] == content["fit"]["model"]["range"] < length["upper"]
    # prediction computes the same terms at new sites, and scores on the scale of the formula
    sites = tmp_path / "beside.csv"
    head, *rows = data.read_text().splitlines()
    assert head.startswith("east")
    sites.write_text("\n".join([head, *(f"{float(row.partition(',')[0]) + 1e-7},{row.partition(',')[2]}" for row in rows)]))
    assert main(["geostat", "predict", str(model), str(data), str(sites), "--output", str(out), "--target", "observation"]) == 0
    told = capsys.readouterr()
    predicted = io.read_table(out, ("prediction",)).columns["prediction"]
    observed = np.log(io.read_table(data, ("zinc",)).columns["zinc"])
    rmse = np.sqrt(np.mean((predicted - observed) ** 2))
    assert rmse < 0.2 and f"RMSE       {rmse:.4g} by kriging" in told.out


def test_a_formula_of_the_coordinates_predicts_on_a_grid(data, tmp_path, capsys):
    model, out = tmp_path / "model.json", tmp_path / "out.csv"
    assert fit(data, "--formula", "zinc ~ east", "--method", "lbfgs", "--output", str(model)) == 0
    assert main(["geostat", "predict", str(model), str(data), "--grid", "3,2", "--output", str(out)]) == 0
    assert np.isfinite(io.read_table(out, ("prediction",)).columns["prediction"]).all()
    assert fit(data, "--formula", "zinc ~ depth", "--method", "lbfgs", "--output", str(model)) == 0
    assert main(["geostat", "predict", str(model), str(data), "--grid", "3,2", "--output", str(out), "--force"]) == 2
    assert "the mean needs depth at every site" in capsys.readouterr().err


def test_a_formula_goes_on_to_every_other_command(data, tmp_path, capsys):
    """Draws about the formula's mean, cross-validation on its scale, and pictures that name what they show."""
    model, out, formula = tmp_path / "model.json", tmp_path / "out.csv", "log(zinc) ~ 1 + sqrt(depth)"
    assert fit(data, "--formula", formula, "--method", "fisher", "--output", str(model)) == 0
    words = ["geostat", "simulate", str(model), "--sites", str(data), "--draws", "400", "--output", str(out)]
    assert main(words) == 0
    names = tuple(f"draw{k + 1}" for k in range(400))
    draws = io.read_table(out, names).stack(names)
    content = json.loads(model.read_text(encoding="utf-8"))["fit"]
    intercept, slope = content["mean"]["coefficients"]
    mean = intercept + slope * np.sqrt(io.read_table(data, ("depth",)).columns["depth"])
    error = np.sqrt(content["model"]["variance"] / 400)
    assert np.all(np.abs(draws.mean(axis=1) - mean) < MONTE_CARLO_DEVIATIONS * error)
    assert main(["geostat", "cv", str(model), str(data), "--output", str(out), "--force"]) == 0
    table = io.read_table(out, ("log(zinc)", "prediction"))
    assert np.array_equal(table.columns["log(zinc)"], np.log(io.read_table(data, ("zinc",)).columns["zinc"]))
    assert np.std(table.columns["log(zinc)"] - table.columns["prediction"]) < np.std(table.columns["log(zinc)"])
    picture = tmp_path / "picture.svg"
    for what in ("variogram", "residuals"):
        assert main(["geostat", "plot", what, str(model), "--simulations", "0", "--output", str(picture)]) == 0
    capsys.readouterr()
    assert main(["geostat", "plot", "map", str(model), "--output", str(picture)]) == 2
    assert "leave out the map" in capsys.readouterr().err


def test_a_formula_of_the_coordinates_draws_a_map_and_simulates_on_a_grid(data, tmp_path):
    model, picture, out = tmp_path / "model.json", tmp_path / "map.png", tmp_path / "out.csv"
    assert fit(data, "--formula", "log(zinc) ~ east", "--method", "fisher", "--output", str(model), "--plot", str(picture)) == 0
    assert picture.stat().st_size > 1000
    assert main(["geostat", "simulate", str(model), "--grid", "3,2", "--box", "0,0,1,1", "--output", str(out)]) == 0
    assert np.isfinite(io.read_table(out, ("draw1",)).columns["draw1"]).all()


def test_a_checkpoint_is_gone_on_from(data, tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    words = ["--value", "zinc", "--method", "fisher"]
    assert fit(data, *words, "--checkpoint", str(log)) == 0
    first = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  range ")]
    lines = log.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join(lines[:-2]) + "\n", encoding="utf-8")
    assert fit(data, *words, "--checkpoint", str(log)) == 0
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if line.startswith("  range ")] == first
    assert f", {len(lines) - 4} evaluations from the checkpoint" in told
    assert len(log.read_text(encoding="utf-8").splitlines()) == len(lines)
    assert fit(data, *words, "--checkpoint", str(log), "--force") == 0
    assert "from the checkpoint" not in capsys.readouterr().out


def test_ctrl_c_says_how_to_go_on(data, tmp_path, capsys, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "fit", interrupted)
    assert fit(data, "--value", "zinc", "--checkpoint", str(tmp_path / "log.jsonl")) != 0
    assert f"the same command goes on from {tmp_path / 'log.jsonl'}" in capsys.readouterr().err


def test_dry_run_factors_nothing(data, tmp_path, capsys, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a dry run must not factor")

    monkeypatch.setattr("ooc_chol.cholesky", refuse)
    assert fit(data, "--value", "zinc", "--dry-run", "--output", str(tmp_path / "model.json")) == 0
    told = capsys.readouterr().out
    assert "Plan: Cholesky of n = 80" in told
    assert "1 search by fisher over range, nugget_ratio; profiled out: variance, coefficient of intercept" in told
    assert not (tmp_path / "model.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--method vecchia --precision-threshold 1e-4", "leave --precision-threshold out"),
        ("--exact-check score", "exact_check is 'score', but fisher is exact"),
        ("--starts template", "no covariance is given to start from"),
        ("--method vecchia --neighbours 0", "neighbours"),
        ("--covariance matern --start range=1e9", "range is 1e+09 at the start"),
        ("--covariance anisotropic --starts subset", "which is for fits without covariance"),
    ],
)
def test_dry_run_refuses_what_the_fit_does(data, capsys, words, message):
    for dry in (["--dry-run"], []):
        assert fit(data, "--value", "zinc", *words.split(), *dry) == 2
        assert message in capsys.readouterr().err


def test_options_of_the_command_have_the_defaults_of_the_function():
    told = inspect.signature(geostat.fit).parameters
    defaults = {field.name: field.default for field in fields(FitOptions) if field.default is not MISSING}
    assert defaults == {name: told[name].default for name in defaults}


def test_mixed_precision_is_judged(data, capsys):
    words = ["--value", "zinc", "--method", "fisher", "--precision-threshold", "1e-4", "--tile-size", "16"]
    assert fit(data, *words) == 0
    told = capsys.readouterr().out
    assert "FP64 would give the same log-likelihood to " in told and "that of exact arithmetic is between -" in told
    assert "less that in FP64" not in told
    assert fit(data, *words, "--exact-check", "score") == 0
    told = capsys.readouterr().out
    assert "loglik in mixed precision less that in FP64: " in told and "standard errors away: range " in told


def test_smoothness_can_be_free(data, tmp_path, capsys):
    model = tmp_path / "model.json"
    words = ["--value", "zinc", "--smoothness", "free", "--method", "fisher", "--output", str(model)]
    assert main(["geostat", "fit", str(data), *COLUMNS, *words]) == 0
    content = json.loads(model.read_text(encoding="utf-8"))["fit"]
    assert content["estimated"] == ["range", "smoothness", "variance", "nugget"]
    assert content["model"]["smoothness"] not in (0.5, 1.5, 2.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--formula", "zinc ~ depth", "--value", "zinc"], "leave these out"),
        (["--formula", "zinc + depth ~ 1"], "2 columns, but one is observed"),
        (["--formula", "zinc ~ __import__('os')"], "is not understood"),
        (["--formula", "zinc ~ log(depth - 9)"], "is nan in line 2 of "),
        (["--value", "zinc", "--checkpoint", "no/where.jsonl"], "there is no folder"),
        (["--value", "zinc", "--precision-threshold", "-1"], "--precision-threshold is -1.0"),
    ],
)
def test_mistakes_are_said_on_one_line(data, capsys, monkeypatch, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    assert fit(data, *words) == 2
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told
