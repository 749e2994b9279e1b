"""What commands say beside their results: plans on a line, systems that are named, maps without a clipped or silent part."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.apps.geostat import MapData, MapLabels, maps_figure
from tests.inside.cli import main
from tests.inside.geostat import read_result, write_table

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LABELS = MapLabels("t", "v", "x", "y")


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sites = np.random.default_rng(1).uniform(size=(120, 2))
    write_table("data.csv", {"x": sites[:, 0], "y": sites[:, 1], "v": np.sin(5 * sites[:, 0]) + sites[:, 1]})


FIT = ["geostat", "fit", "data.csv", "--x", "x", "--y", "y", "--value", "v", "--smoothness", "0.5", "--max-evaluations", "4"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "each factorization: of order 120, as one tile of 0.115 MB on host:0"),
        (["--precision-threshold", "1e-6"], "each factorization: of order 120, at most 0.115 MB on host:0, at threshold 1e-06"),
        (["--tile-size", "40"], "each factorization: of order 120, in 6 tiles of order 40, 0.0768 MB on host:0"),
    ],
)
def test_the_plan_is_a_line_unless_it_is_asked_for(data, capsys, words, told):
    assert main([*FIT, *words]) == 0
    out = capsys.readouterr().out
    assert told in out and "POTRF" not in out and out.splitlines()[2].startswith("Matérn")
    for more in (["--verbose"], ["--dry-run"]):
        assert main([*FIT, *words, *more]) == 0
        assert "POTRF" in capsys.readouterr().out or not words


def test_a_reference_system_can_be_named(data, capsys):
    assert main([*FIT, "--crs", "EPSG:28992", "--output", "m.json", "--standard-errors"]) == 0
    out = capsys.readouterr().out
    spec = read_result("m.json").spec
    assert (spec.crs, spec.units, spec.lonlat) == ("EPSG:28992", {"x": "metre", "y": "metre"}, False)
    errors = out[out.index("standard errors and 95 %") :].splitlines()
    assert errors[1].startswith("  range ") and errors[1].endswith(" metre") and not errors[2].endswith("metre")
    assert main([*FIT, "--crs", "EPSG:4326", "--output", "d.json"]) == 0
    assert read_result("d.json").spec.lonlat and read_result("d.json").spec.crs == "EPSG:4326"
    capsys.readouterr()
    for words, told in (
        (["--crs", "Atlantis"], "not known to PROJ"),
        (["--crs", "EPSG:28992", "--lonlat"], "leave out --lonlat"),
    ):
        assert main([*FIT, *words]) == 2
        assert told in capsys.readouterr().err


def test_numbers_that_are_none_are_refused_by_their_options(data, capsys):
    variogram = ["geostat", "variogram", *FIT[2:9]]
    for words, told in (
        ([*FIT, "--max-evaluations", "0"], "--max-evaluations is 0"),
        ([*variogram, "--max-pairs", "0"], "--max-pairs is 0"),
    ):
        assert main(words) == 2
        assert told in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*variogram, "--seed", "-1"])
    assert "'-1' is not a whole number from 0 on" in capsys.readouterr().err


def map_data(sites: np.ndarray, mean: np.ndarray) -> MapData:
    axis = np.linspace(0.0, 1.0, 11)
    return MapData(sites, np.linspace(0.0, 1.0, len(sites)), axis, axis, mean, np.ones((11, 11)))


def test_colours_reach_as_far_as_what_is_shown():
    mean = np.full((11, 11), 0.5)
    mean[0], mean[1, 0] = np.nan, 3.0
    figure = maps_figure(map_data(np.random.default_rng(0).uniform(size=(9, 2)), mean), LABELS)
    observed, predicted = figure.axes[:2]
    assert observed.collections[0].get_clim() == predicted.collections[0].get_clim() == (0.0, 3.0)


@pytest.mark.parametrize(
    ("sites", "is_hatched"),
    [
        (np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), True),
        (np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), False),
        (np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]]), False),
    ],
)
def test_what_is_extrapolated_is_hatched(sites, is_hatched):
    figure = maps_figure(map_data(sites, np.ones((11, 11))), LABELS)
    _, predicted, error = figure.axes
    assert ("hatched: extrapolated" in predicted.get_title()) == is_hatched
    for axis in (predicted, error):
        assert len(axis.patches) == is_hatched
    if is_hatched:
        rings = predicted.patches[0].get_path().to_polygons(closed_only=False)
        assert sorted(map(_area, rings)) == pytest.approx([-0.5, 1.0]), "the box, and the hull as a hole in it"


def _area(ring: np.ndarray) -> float:
    """Area of a ring, negative where it is walked clockwise."""
    x, y = ring.T
    return 0.5 * float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))
