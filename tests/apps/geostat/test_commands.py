"""The commands as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ooc_chol.apps.geostat import FactorSettings
from tests.inside.cli import main
from tests.inside.geostat import commands, demo_settings, io

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture
def files(tmp_path):
    """A data file with a gap and a duplicate, a sites file with some values, and one with covariates."""
    rng = np.random.default_rng(0)
    sites = rng.uniform(0, 10, size=(130, 2))
    value = 5 + np.sin(sites[:, 0]) + np.cos(sites[:, 1]) + 0.1 * rng.normal(size=130)
    rows = [f"{x!r},{y!r},{v!r}" for (x, y), v in zip(sites.tolist(), value.tolist(), strict=True)]
    data, places = rows[:100], rows[100:]
    (tmp_path / "data.csv").write_text("\n".join(["east,north,zinc", *data, "3.0,4.0,", data[0]]) + "\n")
    (tmp_path / "sites.csv").write_text("\n".join(["east,north,zinc", *places, "1.0,2.0,NA"]) + "\n")
    (tmp_path / "bare.csv").write_text("north,east\n1.5,2.5\n,3\n0.5,0.25\n")
    return tmp_path


def fit(folder, *words):
    """Fit by the method of fewest evaluations."""
    columns = ("--x", "east", "--y", "north", "--value", "zinc")
    return main(["geostat", "fit", str(folder / "data.csv"), *columns, "--smoothness", "1.5", "--method", "fisher", *words])


def test_each_command_is_a_module_of_its_name():
    modules = {path.stem for path in Path(commands.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules == set(commands.COMMANDS)


def test_fit_then_predict(files, capsys):
    model, plot, out = files / "model.json", files / "map.png", files / "out.csv"
    assert fit(files, "--output", str(model), "--plot", str(plot), "--memory-budget", "80 kB", "--store", str(files)) == 0
    told = capsys.readouterr()
    assert "1 rows of data.csv lack a value" in told.err and "1 observations are at a place" in told.err
    assert "evaluation 1: nu 1.5" in told.err
    assert "101 observations of zinc" in told.out and "each factorization: of order 101, in " in told.out and "range " in told.out
    content = json.loads(model.read_text(encoding="utf-8"))
    assert content["fit"]["n"] == 101 and content["data"]["coordinates"] == ["east", "north"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert not (files / "geostat-factor.ooc").exists()

    assert main(["geostat", "predict", str(model), str(files / "data.csv"), str(files / "sites.csv"), "--output", str(out)]) == 0
    told = capsys.readouterr()
    predicted = io.read_table(out, ("east", "north", "prediction", "standard_error"))
    sites = io.read_table(files / "sites.csv", ("east", "north"), optional=("zinc",))
    assert np.array_equal(predicted.columns["east"], sites.columns["east"])
    known = np.isfinite(sites.columns["zinc"])
    errors = (predicted.columns["prediction"] - sites.columns["zinc"])[known]
    assert np.sqrt(np.mean(errors**2)) < 0.3
    assert "held out     30 values" in told.out and f"RMSE       {np.sqrt(np.mean(errors**2)):.4g} by kriging" in told.out


def test_predict_sites_without_values_and_on_a_grid(files, capsys):
    model, out = files / "model.json", files / "out.csv"
    assert fit(files, "--output", str(model)) == 0
    words = ["geostat", "predict", str(model), str(files / "data.csv")]
    assert main([*words, str(files / "bare.csv"), "--output", str(out), "--target", "field"]) == 0
    told = capsys.readouterr()
    assert "1 rows of bare.csv lack a value" in told.err and "held out" not in told.out
    assert io.read_table(out, ("east",)).columns["east"].tolist() == [2.5, 0.25]
    assert main([*words, "--grid", "4,3", "--output", str(out), "--force"]) == 0
    assert len(io.read_table(out, ("prediction",)).columns["prediction"]) == 12


def test_example_brings_its_data_along(tmp_path, capsys):
    model, out = tmp_path / "model.json", tmp_path / "out.csv"
    (tmp_path / "sites.csv").write_text("east,north\n0,0\n1,1\n")
    assert main(["geostat", "fit", "--example", "jacksboro:150", "--smoothness", "0.5", "--output", str(model)]) == 0
    assert " km; effective range" in capsys.readouterr().out
    assert main(["geostat", "predict", str(model), str(tmp_path / "sites.csv"), "--output", str(out)]) == 0
    heights = io.read_table(out, ("prediction",)).columns["prediction"]
    assert np.all((heights > 236) & (heights < 1076))
    words = ["geostat", "predict", str(model), "--example", "jacksboro:200", "--grid", "2,2", "--output", str(out), "--force"]
    assert main(words) == 0
    assert "fitted to 150 observations, and predicts from 200 now" in capsys.readouterr().err


def test_degrees_and_covariates(tmp_path, capsys):
    rng = np.random.default_rng(1)
    lon, lat, depth = rng.uniform(5, 6, 90), rng.uniform(50, 51, 90), rng.normal(size=90)
    rows = [
        f"{a},{b},{c},{2 * c + np.sin(6 * a) + 0.1 * d}" for a, b, c, d in zip(lon, lat, depth, rng.normal(size=90), strict=True)
    ]
    path, model, out = tmp_path / "data.csv", tmp_path / "model.json", tmp_path / "out.csv"
    path.write_text("\n".join(["lon,lat,depth,t", *rows]) + "\n")
    words = ["--x", "lon", "--y", "lat", "--value", "t", "--covariates", "depth", "--lonlat", "--smoothness", "2.5"]
    words += ["--method", "fisher"]
    assert main(["geostat", "fit", str(path), *words, "--output", str(model)]) == 0
    mean = json.loads(model.read_text(encoding="utf-8"))["fit"]["mean"]
    assert mean["columns"] == ["intercept", "depth"]
    assert mean["coefficients"][1] == pytest.approx(2.0, abs=4 * mean["standard_errors"][1])
    assert main(["geostat", "predict", str(model), str(path), str(path), "--output", str(out)]) == 0
    assert main(["geostat", "predict", str(model), str(path), "--grid", "2,2", "--output", str(out), "--force"]) == 2
    assert "the mean needs depth at every site" in capsys.readouterr().err


def one_line(told):
    """The error: one line, no traceback."""
    lines = [line for line in told.err.splitlines() if not line.startswith(("note:", "evaluation"))]
    assert len(lines) == 1 and "Traceback" not in told.err
    return lines[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit"], "give either DATA.csv or --example"),
        (["fit", "DATA"], "which columns? give --x, --y and --value (or --formula) with names of these: east, north, zinc"),
        (["fit", "DATA", "--example", "jacksboro"], "give either"),
        (["fit", "--example", "jacksboro", "--x", "east"], "columns of its own"),
        (["fit", "--example", "everest"], "there is jacksboro"),
        (["fit", "DATA", "--x", "east", "--y", "north", "--value", "gold"], "has no column 'gold'"),
        (["fit", "nothing.csv", "--x", "east", "--value", "zinc"], "nothing.csv"),
        (["fit", "DATA", "--x", "east", "--y", "north", "--value", "zinc", "--nugget", "zero"], "share a place"),
        (["fit", "DATA", "--x", "east", "--y", "north", "--value", "zinc", "--smoothness", "0.001"], "smoothness"),
        (["fit", "DATA", "--x", "east", "--y", "north", "--value", "zinc", "--output", "no/where.json"], "there is no folder"),
        (["fit", "DATA", "--x", "east", "--value", "zinc", "--plot", "map.png"], "a map needs two coordinates"),
        (
            ["fit", "DATA", "--x", "east", "--y", "north", "--value", "zinc", "--memory-budget", "1 kB"],
            "--memory-budget of host:0",
        ),
        (["predict", "DATA", "--output", "out.csv"], "is not JSON"),
        (["demo", "--n", "7", "--output", "OUT"], "too few"),
    ],
)
def test_mistakes_are_said_on_one_line(files, capsys, monkeypatch, words, message):
    monkeypatch.chdir(files)
    words = [{"DATA": str(files / "data.csv"), "OUT": str(files / "out")}.get(word, word) for word in words]
    assert main(["geostat", *words]) == 2
    assert message in one_line(capsys.readouterr())


def test_commands_find_the_data_that_were_fitted(files, capsys, monkeypatch):
    model, out = str(files / "model.json"), files / "out.csv"
    fit(files, "--output", model)
    capsys.readouterr()
    assert main(["geostat", "cv", model]) == 0
    assert main(["geostat", "loglik", "--model", model]) == 0
    assert "held out     101 values" in (told := capsys.readouterr().out) and "101 observations of zinc" in told
    given = {}
    for way, words in (("found", []), ("named", [str(files / "data.csv")])):
        assert main(["geostat", "predict", model, *words, "--grid", "3,2", "--output", str(out), "--force"]) == 0
        given[way] = out.read_bytes()
        assert main(["geostat", "predict", model, *words, str(files / "sites.csv"), "--output", str(out), "--force"]) == 0
        given[way] += out.read_bytes()
        conditional = ["--conditional", *words]
        assert main(["geostat", "simulate", model, "--grid", "3,2", *conditional, "--output", str(out), "--force"]) == 0
        given[way] += out.read_bytes()
    assert given["found"] == given["named"]
    assert main(["geostat", "simulate", model, "--grid", "3,2", "--output", str(out), "--force"]) == 0
    before = (files / "data.csv").read_bytes()
    for words in (["cv", model], ["predict", model, "--grid", "2,2"], ["simulate", model, "--grid", "2,2"]):
        assert main(["geostat", *words, "--output", str(files / "data.csv"), "--force"]) == 2  # an input, though no word names it
    assert (files / "data.csv").read_bytes() == before
    monkeypatch.chdir(files)
    (files / "data.csv").rename(files / "moved.csv")
    capsys.readouterr()
    assert main(["geostat", "cv", model]) == 2
    assert "data.csv, to which the model was fitted, is not there: give the observations as DATA.csv" in one_line(
        capsys.readouterr()
    )
    (files / "moved.csv").rename(files / "data.csv")


def test_places_of_observations_are_not_held_out(files, capsys):
    model, out = str(files / "model.json"), str(files / "out.csv")
    fit(files, "--output", model)
    assert main(["geostat", "predict", model, str(files / "data.csv"), "--output", out, "--force"]) == 0
    told = capsys.readouterr()
    assert "101 of 101 sites with a value are places of observations" in told.err and "held out" not in told.out
    some = files / "some.csv"
    some.write_text((files / "sites.csv").read_text() + "\n".join((files / "data.csv").read_text().splitlines()[1:6]) + "\n")
    assert main(["geostat", "predict", model, str(some), "--output", out, "--force"]) == 0
    told = capsys.readouterr()
    assert "5 of 35 sites with a value are places of observations" in told.err and "held out     30 values" in told.out


def test_predict_counts_its_files(files, capsys):
    model = files / "model.json"
    fit(files, "--output", str(model))
    capsys.readouterr()
    assert main(["geostat", "predict", str(model), "--output", "out.csv"]) == 2
    expected = "needs DATA.csv and SITES.csv after MODEL.json, or SITES.csv for the data that were fitted, but 0 files are given"
    assert expected in one_line(capsys.readouterr())
    assert main(["geostat", "predict", str(files / "data.csv"), "--output", "out.csv"]) == 2
    content = json.loads(model.read_text(encoding="utf-8"))
    del content["fit"]["model"]["range"]
    model.write_text(json.dumps(content))
    assert main(["geostat", "predict", str(model), str(files / "data.csv"), "--grid", "2,2", "--output", "out.csv"]) == 2
    assert "lacks a part of a result" in capsys.readouterr().err


def test_words_that_are_no_numbers_are_shown_with_the_usage(files, capsys):
    with pytest.raises(SystemExit) as ended:
        fit(files, "--nugget", "some")
    assert ended.value.code == 2
    assert "argument --nugget: 'some' is not free, zero or a variance" in capsys.readouterr().err


def test_demo_leaves_everything_in_its_folder(tmp_path, capsys):
    folder = tmp_path / "new" / "demo"
    assert main(["geostat", "demo", "--n", "150", "--output", str(folder)]) == 0
    told = capsys.readouterr()
    assert sorted(path.name for path in folder.iterdir()) == ["maps.png", "report.txt", "result.json", "trace.pftrace"]
    content = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    factorization, held_out = content["factorization"], content["held_out"]
    assert factorization["n"] == content["fit"]["n"] == 135 and held_out["n"] == 15
    # out of core: at most half of the factor's bytes, and some of L fetched again
    assert factorization["budget_bytes"] * len(factorization["devices"]) <= 8 * 135 * 136 / 2 / 2
    assert factorization["bytes"]["executed"] == factorization["bytes"]["planned"]
    assert factorization["bytes"]["executed"]["fetch"] > 0
    assert held_out["rmse"] < held_out["rmse_of_mean"]
    # the seconds are predicted, for which rates are measured first, and the smoothness is estimated
    assert factorization["seconds"]["predicted"] > 0 and "measuring the rates of host:0" in told.out
    assert " predicted" in (folder / "report.txt").read_text(encoding="utf-8").split("Executed")[1]
    assert content["fit"]["model"]["smoothness"] not in (0.5, 1.5, 2.5)
    # at most a line a second
    assert len(told.err.splitlines()) < 20
    for name in ("maps.png", "result.json", "report.txt", "trace.pftrace"):
        assert str(folder / name) in told.out


def test_the_demo_budget_is_less_than_half_of_the_factor():
    assert 0.44 < demo_settings(3600, FactorSettings()).memory_budget / (8 * 3600 * 3601 / 2) <= 0.45
    assert demo_settings(3600, FactorSettings(memory_budget="50 MB")).memory_budget == "50 MB"
