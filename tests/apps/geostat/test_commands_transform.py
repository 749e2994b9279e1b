"""Transformed values from the shell: what is fitted, on which scale it is predicted, drawn, scored and simulated."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Matern, back_transform, box_cox, make_observations
from tests.inside.cli import main

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Values, sites with values, and fits by --transform and by a formula."""
    path = tmp_path_factory.mktemp("transform")
    sites = np.random.default_rng(0).uniform(size=(90, 2))
    logs = geostat.simulate(Matern(0.5, 0.2, 1.5, 0.05), sites, seed=1, target="observation", mean=2.0)[0]
    rows = [f"{x},{y},{z}" for (x, y), z in zip(sites, np.exp(logs), strict=True)]
    (path / "data.csv").write_text("\n".join(["x,y,z", *rows[:70]]) + "\n")
    (path / "sites.csv").write_text("\n".join(["x,y,z", *rows[70:]]) + "\n")
    words = ["geostat", "fit", str(path / "data.csv"), "--x", "x", "--y", "y", "--smoothness", "1.5", "--quiet"]
    assert main([*words, "--value", "z", "--transform", "log", "--output", str(path / "log.json")]) == 0
    assert main([*words, "--formula", "log(z) ~ 1", "--output", str(path / "formula.json")]) == 0
    assert main([*words, "--value", "z", "--transform", "boxcox=-0.4", "--output", str(path / "negative.json")]) == 0
    return path


def table(path):
    names = path.read_text().splitlines()[0].split(",")
    return dict(zip(names, np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2).T, strict=True))


def predicted(folder, model, out, *words):
    return main(["geostat", "predict", str(folder / model), str(folder / "sites.csv"), "--output", str(out), *words])


def test_transform_predicts_on_the_original_scale_and_scores_there(folder, tmp_path, capsys):
    out = tmp_path / "out.csv"
    assert predicted(folder, "log.json", out, "--quantiles", "0.05,0.5", "--exceed", "10") == 0
    said = capsys.readouterr().out
    assert "on the original scale of z (means) with their standard errors" in said and "held out     20 values" in said
    data, sites = table(folder / "data.csv"), table(folder / "sites.csv")
    observations = make_observations(np.column_stack([data["x"], data["y"]]), np.log(data["z"]))
    content = json.loads((folder / "log.json").read_text())["fit"]["model"]
    model = Matern(*(content[name] for name in ("variance", "range", "smoothness", "nugget")))
    places = np.column_stack([sites["x"], sites["y"]])
    expected = back_transform(geostat.predict(observations, model, places), box_cox(0.0))
    found = table(out)
    assert list(found) == ["x", "y", "prediction", "standard_error", "quantile_0_05", "quantile_0_5", "exceed_10"]
    for name, values in (("prediction", expected.mean), ("standard_error", expected.standard_error)):
        assert found[name] == pytest.approx(values, rel=1e-10)
    assert found["quantile_0_5"] == pytest.approx(expected.median, rel=1e-10)
    assert found["exceed_10"] == pytest.approx(expected.exceedance(10.0), rel=1e-10)
    assert f"CRPS {geostat.score(expected, sites['z'], data['z']).crps:.4g}" in said


def test_a_formula_predicts_what_it_says_unless_the_original_scale_is_asked_for(folder, tmp_path, capsys):
    paths = [tmp_path / name for name in ("as_is.csv", "original.csv", "same.csv")]
    assert predicted(folder, "formula.json", paths[0]) == 0
    assert "values are log(z), as in the formula; --scale original gives z" in capsys.readouterr().err
    assert predicted(folder, "formula.json", paths[1], "--scale", "original") == 0
    assert predicted(folder, "log.json", paths[2]) == 0
    tables = list(map(table, paths))
    assert tables[1]["prediction"] == pytest.approx(tables[2]["prediction"], rel=1e-9)
    median = np.exp(tables[0]["prediction"])
    assert np.all(tables[1]["prediction"] > median)


def test_each_point_is_another_prediction(folder, tmp_path):
    found = {}
    for point in ("mean", "median", "unbiased"):
        assert predicted(folder, "log.json", tmp_path / f"{point}.csv", "--point", point) == 0
        found[point] = table(tmp_path / f"{point}.csv")["prediction"]
    assert np.all(found["median"] < found["unbiased"]) and np.all(found["median"] < found["mean"])
    assert np.any(found["unbiased"] < found["mean"])


def test_a_negative_power_has_medians_and_no_mean(folder, tmp_path, capsys):
    out = tmp_path / "out.csv"
    assert predicted(folder, "negative.json", out) == 2
    assert "no mean" in capsys.readouterr().err and not out.exists()
    assert predicted(folder, "negative.json", out, "--point", "median", "--quantiles", "0.9") == 0
    assert list(table(out)) == ["x", "y", "prediction", "quantile_0_9"]
    assert main(["geostat", "plot", "map", str(folder / "negative.json"), "--output", str(tmp_path / "map.png")]) == 0


def test_cross_validation_and_draws_go_back_too(folder, tmp_path, capsys):
    assert main(["geostat", "cv", str(folder / "log.json"), "--output", str(tmp_path / "cv.csv")]) == 0
    original = capsys.readouterr().out
    assert main(["geostat", "cv", str(folder / "log.json"), "--scale", "fitted"]) == 0
    fitted = capsys.readouterr().out
    assert "scores on the original scale of z (means)" in original and "original" not in fitted
    same = [line for line in original.splitlines() if "standardized" in line or "intervals" in line]
    assert [line.split(";")[0] for line in same] == [
        line.split(";")[0] for line in fitted.splitlines() if "standardized" in line or "intervals" in line
    ]
    assert table(tmp_path / "cv.csv")["z"] == pytest.approx(table(folder / "data.csv")["z"], rel=1e-12)
    words = ["geostat", "simulate", str(folder / "log.json"), "--grid", "4,4", "--output"]
    assert main([*words, str(tmp_path / "a.csv")]) == 0 and main([*words, str(tmp_path / "b.csv"), "--scale", "fitted"]) == 0
    assert np.log(table(tmp_path / "a.csv")["draw1"]) == pytest.approx(table(tmp_path / "b.csv")["draw1"], abs=1e-10)


def test_a_map_shows_the_quantity_that_is_asked_for(folder, tmp_path):
    for k, words in enumerate((["--quantity", "exceed:12"], ["--quantity", "quantile:0.9"], ["--scale", "fitted"])):
        out = tmp_path / f"{k}.svg"
        assert main(["geostat", "plot", "map", str(folder / "log.json"), "--output", str(out), *words]) == 0
    assert "P(z &gt; 12)" in (tmp_path / "0.svg").read_text() or (tmp_path / "0.svg").stat().st_size > 10_000


def test_the_power_is_estimated_told_and_kept(folder, tmp_path, capsys):
    out = tmp_path / "fit.json"
    words = ["geostat", "fit", str(folder / "data.csv"), "--x", "x", "--y", "y", "--value", "z", "--smoothness", "1.5"]
    assert main([*words, "--transform", "boxcox", "--output", str(out)]) == 0
    said = capsys.readouterr().out
    content = json.loads(out.read_text())
    power = content["transform"]["power"]
    assert f"Box-Cox, lambda {power:g} (estimated; 95 %:" in said
    assert content["data"]["transform"] == f"boxcox={power!r}" and content["transform"]["converged"]
    assert content["transform"]["interval"][0] < 0 < content["transform"]["interval"][1]
    assert main(["geostat", "loglik", "--model", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loglik"] == pytest.approx(content["fit"]["loglik"], rel=1e-9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--formula", "log(z) ~ 1", "--transform", "log"], "transforms values already"),
        (["--value", "z", "--transform", "boxcox", "--checkpoint", "l.jsonl"], "values of one power"),
        (["--value", "z", "--transform", "boxcox", "--nugget", "0.1"], "need a power"),
    ],
)
def test_contradictions_are_refused(words, message, folder, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["geostat", "fit", str(folder / "data.csv"), "--x", "x", "--y", "y", *words]) == 2
    assert message in capsys.readouterr().err


def test_options_of_the_original_scale_need_one(folder, tmp_path, capsys):
    assert predicted(folder, "log.json", tmp_path / "o.csv", "--scale", "fitted", "--point", "median") == 2
    assert "--point is for the original scale" in capsys.readouterr().err
    assert predicted(folder, "log.json", tmp_path / "o.csv", "--quantiles", "1.5") == 2
    assert "--quantiles has 1.5" in capsys.readouterr().err
    assert predicted(folder, "log.json", tmp_path / "o.csv", "--exceed", "10,nan") == 2
    assert "--exceed has nan" in capsys.readouterr().err
