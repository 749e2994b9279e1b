"""``cv`` of several models, and with folds for the sites to predict, as a user types it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ooc_chol.apps import geostat
from tests.inside.cli import main
from tests.inside.geostat import io, validation

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, sites in a gap, and two fits."""
    folder = tmp_path_factory.mktemp("cv")
    rng = np.random.default_rng(0)
    sites = rng.uniform(0, 10, size=(120, 2))
    value = 5 + np.sin(sites[:, 0]) + np.cos(sites[:, 1]) + 0.1 * rng.normal(size=120)
    is_gap = np.hypot(*(sites - 5).T) < 2
    io.write_table(folder / "data.csv", {"east": sites[~is_gap, 0], "north": sites[~is_gap, 1], "zinc": value[~is_gap]})
    io.write_table(folder / "gap.csv", {"east": sites[is_gap, 0], "north": sites[is_gap, 1]})
    columns = ["--x", "east", "--y", "north", "--nugget", "0.01"]
    for name, more in (("rough", ["--value", "zinc"]), ("trend", ["--formula", "zinc ~ east + north"])):
        nu = "0.5" if name == "rough" else "2.5"
        words = [str(folder / "data.csv"), *columns, *more, "--smoothness", nu, "--max-evaluations", "8"]
        assert main(["geostat", "fit", *words, "--output", str(folder / f"{name}.json"), "--quiet"]) == 0
    words = [str(folder / "data.csv"), *columns, "--formula", "log(zinc) ~ 1", "--smoothness", "1.5", "--max-evaluations", "5"]
    assert main(["geostat", "fit", *words, "--output", str(folder / "log.json"), "--quiet"]) == 0
    return folder


def cv(*words):
    return main(["geostat", "cv", *map(str, words)])


def data(folder):
    table = io.read_table(folder / "data.csv", ("east", "north", "zinc"))
    return geostat.make_observations(table.stack(("east", "north")), table.columns["zinc"])


def fitted(folder, name):
    return geostat.model_from_content(json.loads((folder / f"{name}.json").read_text())["fit"]["model"])


def test_folds_match_the_sites_to_predict(folder, capsys):
    assert cv(folder / "rough.json", "--how", "gaps", "--sites", folder / "gap.csv", "--folds", 6) == 0
    told = capsys.readouterr().out
    sites = io.read_table(folder / "gap.csv", ("east", "north")).stack(("east", "north"))
    chosen = geostat.folds(data(folder), 6, how="gaps", sites=sites)
    scores = geostat.cross_validate(data(folder), fitted(folder, "rough"), folds=chosen).scores()
    assert "6 folds (gaps)" in told and f"CRPS {scores.crps:.4g}" in told
    middle = ", ".join(f"{value:.3g}" for value in np.quantile(chosen.distances, [0.1, 0.5, 0.9]))
    assert f"held out {middle}; mismatch {chosen.mismatch:.2g}" in told


def test_a_buffer_is_told(folder, capsys):
    assert cv(folder / "rough.json", "--how", "distance", "--buffer", 1.5) == 0
    told = capsys.readouterr().out
    chosen = geostat.folds(data(folder), how="distance", buffer=1.5)
    scores = geostat.cross_validate(data(folder), fitted(folder, "rough"), folds=chosen).scores()
    assert "each observation left out with all nearer than 1.5" in told and f"CRPS {scores.crps:.4g}" in told


def test_several_models_are_compared(folder, tmp_path, capsys):
    out = tmp_path / "cv.csv"
    models = [folder / "rough.json", folder / "trend.json"]
    assert cv(*models, folder / "data.csv", "--folds", 5, "--how", "kmeans", "--output", out, "--json") == 0
    told = capsys.readouterr()
    answer = json.loads(told.out)
    table = io.read_table(out, ("zinc", "prediction_rough", "prediction_trend", "standard_error_trend", "fold"))
    for name, scores in answer["models"].items():
        errors = table.columns["zinc"] - table.columns[f"prediction_{name}"]
        assert scores["scores"]["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    # the field is smooth: the model with a smoothness of 2.5 is better
    (difference,) = answer["differences"]
    assert answer["best"] == "trend" and difference["model"] == "rough" and difference["difference"] > 0
    assert len(np.unique(table.columns["fold"])) == 5 == answer["folds"]
    line = (
        f"{difference['difference']:.3g} ± {difference['standard_error']:.2g}, better in {difference['better_folds']} of 5 folds"
    )
    assert line in told.err and "crps decides" in told.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rough.json", "--how", "gaps"], "--how gaps needs --sites"),
        (["rough.json", "--sites", "gap.csv"], "no other --how takes them"),
        (["rough.json", "--how", "distance"], "--how distance needs --buffer"),
        (["rough.json", "--how", "kmeans"], "--how kmeans needs --folds"),
        (["rough.json", "--method", "nearest"], "neighbours are looked for anew without each fold"),
        (["rough.json", "--method", "exact", "--neighbours", "9", "--folds", "3"], "--neighbours is for predictions from"),
        (["rough.json", "rough.json"], "a result is given twice"),
        (["rough.json", "data.csv", "data.csv"], "does not end in .json"),
        (["rough.json", "log.json"], "log has other observations than rough"),
        (["rough.json", "--how", "gaps", "--sites", "data.csv"], "sites are places of observations"),
        (["rough.json", "--output", "gap.csv", "--how", "gaps", "--sites", "gap.csv", "--force"], "gap.csv"),
    ],
)
def test_mistakes_are_named(folder, monkeypatch, capsys, words, told):
    monkeypatch.chdir(folder)
    before = (folder / "gap.csv").read_bytes()
    assert cv(*words) == 2
    assert told in capsys.readouterr().err
    assert (folder / "gap.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("command", "column", "name"),
    [
        ("cv", "value", "prediction"),
        ("cv", "value", "fold"),
        ("cv", "coordinates", "standard_error"),
        ("predict --grid 2,2", "coordinates", "prediction"),
        ("predict --grid 2,2 --level 0.9", "coordinates", "lower"),
        ("predict --grid 2,2 --exceed 5", "coordinates", "exceed_5"),
        ("simulate --grid 2,2 --draws 2", "coordinates", "draw2"),
    ],
)
def test_columns_of_one_name_are_refused_before_the_work(folder, tmp_path, capsys, command, column, name):
    model = json.loads((folder / "rough.json").read_text())
    model["data"][column] = [name, "north"] if column == "coordinates" else name
    (tmp_path / "m.json").write_text(json.dumps(model))
    word, *more = command.split()
    assert main(["geostat", word, str(tmp_path / "m.json"), *more, "--output", str(tmp_path / "o.csv")]) == 2
    assert f"two columns would have the name '{name}': rename that of the data" in capsys.readouterr().err


def test_numbers_in_names_of_columns_read_back(folder, tmp_path, capsys):
    words = ["--exceed", "1000000,1000001,-2.5,1e-7", "--quantiles", "0.12345671,0.12345672,0.5,0.5"]
    assert (
        main(["geostat", "predict", str(folder / "rough.json"), "--grid", "2,2", *words, "--output", str(tmp_path / "o.csv")])
        == 0
    )
    names = (tmp_path / "o.csv").read_text().splitlines()[0].split(",")[4:]
    quantiles = ["quantile_0_12345671", "quantile_0_12345672", "quantile_0_5"]
    assert names == [*quantiles, "exceed_1e06", "exceed_1000001", "exceed_minus_2_5", "exceed_1eminus_07"]


def test_folds_that_match_badly_are_noted(folder, tmp_path, capsys):
    io.write_table(tmp_path / "far.csv", {"east": np.linspace(40, 60, 20), "north": np.full(20, 30.0)})
    assert cv(folder / "rough.json", "--how", "gaps", "--sites", tmp_path / "far.csv") == 0
    assert "no folds are as far from the other observations" in capsys.readouterr().err


def test_neighbours_predict_what_no_factor_holds(folder, monkeypatch, capsys):
    words = [folder / "rough.json", "--folds", 4, "--how", "kmeans"]
    assert cv(*words, "--method", "nearest", "--neighbours", 30) == 0
    told = capsys.readouterr()
    chosen = geostat.folds(data(folder), 4, how="kmeans")
    near = geostat.cross_validate_locally(data(folder), fitted(folder, "rough"), folds=chosen, method="nearest", neighbours=30)
    assert f"CRPS {near.scores().crps:.4g}" in told.out and "note" not in told.err
    monkeypatch.setattr(validation, "EXACT_LIMIT", 50)
    assert cv(*words) == 0
    told = capsys.readouterr()
    assert "are cross-validated from neighbours (--method vecchia); --method exact takes all" in told.err
    near = geostat.cross_validate_locally(data(folder), fitted(folder, "rough"), folds=chosen)
    assert f"CRPS {near.scores().crps:.4g}" in told.out


def test_logarithms_are_compared_on_the_original_scale(folder, capsys):
    words = [folder / "rough.json", folder / "log.json", "--folds", 4, "--scale", "original", "--json"]
    assert cv(*words) == 0
    told = capsys.readouterr()
    answer = json.loads(told.out)
    chosen = geostat.folds(data(folder), 4)
    plain = geostat.cross_validate(data(folder), fitted(folder, "rough"), folds=chosen).scores()
    assert answer["models"]["rough"]["scores"]["crps"] == pytest.approx(plain.crps)
    difference = answer["models"]["log"]["scores"]["crps"] - plain.crps
    assert abs(answer["differences"][0]["difference"]) == pytest.approx(abs(difference)) and abs(difference) < 0.5
