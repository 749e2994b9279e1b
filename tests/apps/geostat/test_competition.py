"""The comparison of Heaton et al. (2019): its file, its twin, and the case that runs it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.spatial import cKDTree

from benchmarks.competition.data import TWIN_MODEL, make_twin, read_competition
from benchmarks.running import main
from ooc_chol.apps import geostat

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A small twin as the authors' data frame in CSV, some pixels without any temperature."""
    path, twin = tmp_path_factory.mktemp("heaton") / "temperatures.csv", make_twin((20, 15), seed=3)
    rows = [f"{x},{y},{value},{value}" for (x, y), value in zip(twin.sites, twin.values, strict=True)]
    rows += [f"{x},{y},NA,{value}" for (x, y), value in zip(twin.test_sites, twin.test_values, strict=True)]
    path.write_text("\n".join(['"Lon","Lat","MaskTemp","TrueTemp"', *rows, "-80.0,30.0,NA,NA"]) + "\n")
    return path, twin


def test_the_authors_table_is_read(file):
    path, twin = file
    found = read_competition(path)
    for name in ("sites", "values", "test_sites", "test_values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(twin, name))
    full = path.with_name("full.csv")
    full.write_text("Lon,Lat,MaskTemp,TrueTemp\n0,0,1,1\n1,0,2,2\n")
    with pytest.raises(ValueError, match="nothing is held out"):
        read_competition(full)


def test_the_twin_is_a_draw_of_its_model_with_gaps_as_the_true_ones():
    twin = make_twin((250, 150), seed=1)
    assert len(twin.values) + len(twin.test_values) == 250 * 150
    assert len(twin.test_values) / (250 * 150) == pytest.approx(0.29, abs=0.001)
    again = make_twin((250, 150), seed=1)
    assert np.array_equal(twin.values, again.values) and not np.array_equal(twin.values, make_twin((250, 150), seed=2).values)
    # median and 90 % of the distances to the next pixel that was seen, 0.029 and 0.126 degrees in the comparison
    away = cKDTree(twin.sites).query(twin.test_sites)[0]
    assert 0.015 < np.median(away) < 0.06 and 0.05 < np.quantile(away, 0.9) < 0.25
    # semivariances of neighbours: 16 (1 - exp(-h / 0.3))
    places = cKDTree(twin.sites)
    pairs = places.query_pairs(0.0093, output_type="ndarray")
    half = 0.5 * np.mean((twin.values[pairs[:, 0]] - twin.values[pairs[:, 1]]) ** 2)
    assert half == pytest.approx(TWIN_MODEL.variance * (1 - np.exp(-0.0092739 / TWIN_MODEL.range)), rel=0.05)


def test_the_smallest_twin_has_ten_pixels_along_each_side():
    twin = make_twin((10, 10))
    assert len(twin.values) + len(twin.test_values) == 100 and 0 < len(twin.test_values) < 50
    for shape in ((9, 10), (10, 9)):
        with pytest.raises(ValueError, match=f"{shape[0]} by {shape[1]} pixels is too small: take 10 and more"):
            make_twin(shape)


def test_the_case_fits_predicts_and_scores(file, tmp_path, capsys):
    path, twin = file
    out, picture = tmp_path / "heaton.json", tmp_path / "heaton.png"
    words = ["heaton", str(path), "--models", "half-constant,half-linear", "--method", "exact"]
    assert main([*words, "--output", str(out), "--picture", str(picture)]) == 0
    told = capsys.readouterr().out
    content = json.loads(out.read_text())
    assert [model["model"] for model in content["models"]] == ["half-constant", "half-linear"]
    observations = geostat.make_observations(twin.sites, twin.values)
    model = geostat.model_from_content(content["models"][0]["fit"]["model"])
    expected = geostat.score(geostat.predict(observations, model, twin.test_sites), twin.test_values, twin.values)
    scores = content["models"][0]["scores"]
    assert scores["crps"] == pytest.approx(expected.crps) and scores["rmse"] == pytest.approx(expected.rmse)
    assert f"{scores['mae']:8.3f}{scores['rmse']:8.3f}{scores['crps']:8.3f}" in told
    assert picture.read_bytes()[:4] == b"\x89PNG" and content["machine"]["cores"] >= 1
    # a result is replaced, a file that is none is not
    assert main(["heaton", "--twin", "20,15", "--models", "half-constant", "--output", str(out)]) == 0
    (tmp_path / "mine.json").write_text("{}")
    assert main(["heaton", "--twin", "20,15", "--output", str(tmp_path / "mine.json")]) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give either DATA"),
        (["DATA", "--twin"], "give either DATA"),
        (["--twin", "--models", "smooth"], "'smooth', but there are half-constant"),
        (["--twin", "5,40"], "too small"),
        (["DATA", "--output", "DATA"], "temperatures.csv"),
    ],
)
def test_mistakes_are_named(file, capsys, words, told):
    words = [str(file[0]) if word == "DATA" else word for word in words]
    assert main(["heaton", *words]) == 2
    assert told in capsys.readouterr().err


def test_modis_is_read_from_its_arrays(data_dir):
    found = read_competition(data_dir / "modis.npz")
    assert (len(found.values), len(found.test_values)) == (105_569, 42_740)
