"""Data specifications, the built-in terrain and grids."""

from __future__ import annotations

import builtins
from dataclasses import replace

import numpy as np
import pytest

from ooc_chol.apps.geostat import DataSpec, MissingExtraError, chordal_coordinates, jacksboro, load_dataset, regular_grid
from tests.inside.geostat import example_spec, load_sites

pytestmark = pytest.mark.plan


@pytest.fixture(scope="module")
def terrain():
    return jacksboro()


def test_terrain_is_where_it_is(terrain):
    assert terrain.heights.shape == (344, 403)
    assert (terrain.heights.min(), terrain.heights.max()) == (236, 1076)
    # the metric of the sphere at 36.59 degrees north: 1/1200 degree is 92.66 m along the meridian and 74.40 m along the parallel
    assert np.diff(terrain.y) == pytest.approx(-0.09266, abs=1e-5)
    assert np.diff(terrain.x) == pytest.approx(0.07440, abs=1e-5)
    assert terrain.x.mean() == pytest.approx(0, abs=1e-9) and terrain.y.mean() == pytest.approx(0, abs=1e-9)


def test_local_kilometres_agree_with_the_sphere(terrain):
    corners = np.array([[terrain.x[i], terrain.y[j]] for i in (0, -1) for j in (0, -1)])
    longitude = -84.41375 + np.array([0, 402]) / 1200
    latitude = 36.73291666666667 - np.array([0, 343]) / 1200
    sphere = chordal_coordinates(np.repeat(longitude, 2), np.tile(latitude, 2))

    def distances(points):
        return np.linalg.norm(points[:, None] - points[None], axis=2)[np.triu_indices(4, 1)]

    assert np.abs(distances(corners) / distances(sphere) - 1).max() < 0.002


def test_random_subsample_is_seeded_and_without_repetition(terrain):
    sites, heights = terrain.sample(500, seed=3)
    again, _ = terrain.sample(500, seed=3)
    other, _ = terrain.sample(500, seed=4)
    assert np.array_equal(sites, again) and not np.array_equal(sites, other)
    assert len(np.unique(sites, axis=0)) == 500 == len(heights)
    assert len(terrain.sample(terrain.heights.size)[1]) == terrain.heights.size


def test_regular_subsample_is_a_lattice(terrain):
    sites, heights = terrain.sample(2000, how="regular")
    assert 1500 < len(heights) <= 2000
    assert np.unique(np.diff(np.unique(sites[:, 0])).round(9)).size == 1
    assert heights[0] == terrain.heights[0, 0]


@pytest.mark.parametrize(
    ("n", "how", "words"), [(0, "random", "0 heights"), (138_633, "random", "138632"), (5, "best", "'regular'")]
)
def test_wrong_samples_are_named(terrain, n, how, words):
    with pytest.raises(ValueError, match=words):
        terrain.sample(n, how=how)


def test_without_matplotlib_the_example_says_how_to_install_it(monkeypatch):
    original = builtins.__import__

    def refuse(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[plots\]'"):
        jacksboro()


@pytest.mark.parametrize("text", ["jacksboro:2000", "jacksboro:150:regular"])
def test_example_spec_goes_through_plain_data(text):
    spec = example_spec(text)
    assert spec.source == text and spec.unit == "km"
    assert DataSpec.from_dict(spec.to_dict()) == spec
    dataset = load_dataset(spec)
    assert 100 < dataset.observations.n <= 2000


@pytest.mark.parametrize("text", ["everest", "jacksboro:many", "jacksboro:10:odd", "jacksboro:10:regular:1", ""])
def test_unknown_examples_are_named(text):
    with pytest.raises(ValueError, match="there is jacksboro"):
        example_spec(text)


def write(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_text(text)
    return str(path)


def test_dropped_rows_and_duplicates_are_said(tmp_path):
    path = write(tmp_path, "x,y,v\n0,0,1\n0,0,2\n1,0,\n1,1,3\n2,1,4\n")
    dataset = load_dataset(DataSpec("csv", path, ("x", "y"), "v"))
    assert dataset.observations.n == 4
    assert dataset.notes[0].startswith("1 rows of data.csv lack a value")
    assert dataset.notes[1].startswith("1 observations are at a place where another one is")


def test_degrees_become_chords(tmp_path):
    path = write(tmp_path, "lon,lat,v\n10,50,1\n11,50,2\n10,51,3\n12,51,4\n")
    dataset = load_dataset(DataSpec("csv", path, ("lon", "lat"), "v", lonlat=True))
    assert np.array_equal(dataset.observations.coordinates, chordal_coordinates([10, 11, 10, 12], [50, 50, 51, 51]))
    assert dataset.spec.unit == "km" and dataset.spec.axis_labels == ("lon (degrees)", "lat (degrees)")
    # a degree of longitude is shorter than one of latitude
    assert dataset.aspect == pytest.approx(1 / np.cos(np.radians(50.5)))


def test_sites_bring_values_where_they_have_them(tmp_path):
    path = write(tmp_path, "x,y,v\n0,0,\n1,1,3\n")
    table = load_sites(DataSpec("csv", "elsewhere.csv", ("x", "y"), "v"), path)
    assert np.array_equal(table.stack(("x", "y")), [[0, 0], [1, 1]])
    assert np.isnan(table.columns["v"][0]) and table.columns["v"][1] == 3


@pytest.mark.parametrize(
    ("line", "arguments", "words"),
    [
        ("0,1,-2,1", {"transform": "log"}, r"value -2 in line 4 of data.csv cannot"),
        ("0,1,-2,1", {"formula": "log(v) ~ 1"}, r"log\(v\) in the formula is nan in line 4 of data.csv"),
        ("0,1,2,-1", {"formula": "v ~ sqrt(u)", "covariates": ("u",)}, r"sqrt\(u\) in the formula is nan in line 4 of data.csv"),
        ("0,1,2,-1", {"formula": "v ~ poly(log(u), 2)", "covariates": ("u",)}, r"log\(u\) in the formula is nan in line 4 of"),
        ("0,1,2,-1", {"error_variance": "u"}, r"the known error 'u' of line 4 of data.csv is -1"),
        ("0,1e200,2,1", {}, r"a coordinate of line 4 of data.csv is 1e\+200"),
        ("0,1,1e200,1", {}, r"the value of line 4 of data.csv is 1e\+200"),
    ],
)
def test_rows_behind_gaps_have_the_number_of_their_line(tmp_path, line, arguments, words):
    path = write(tmp_path, f"x,y,v,u\n0,0,1,1\n1,NA,1,1\n{line}\n1,1,3,2\n2,1,3,3\n3,1,3,4\n")
    with pytest.raises(ValueError, match=words):
        load_dataset(DataSpec("csv", path, ("x", "y"), "v", **arguments))


def test_sites_behind_gaps_have_the_number_of_their_line(tmp_path):
    path, spec = write(tmp_path, "x,y,u\n0,NA,1\n1,1,-1\n"), DataSpec("csv", "a.csv", ("x", "y"), "v", formula="v ~ log(u)")
    with pytest.raises(ValueError, match=r"log\(u\) in the formula is nan in line 3 of data.csv"):
        spec.design(load_sites(replace(spec, covariates=("u",)), path))
    with pytest.raises(ValueError, match=r"a coordinate of line 3 of data.csv is 1e\+200"):
        load_sites(replace(spec, formula=None), write(tmp_path, "x,y\n0,NA\n1,1e200\n"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"coordinates": ("x", "y", "z", "t")}, "1 to 3 are possible"),
        ({"coordinates": ("x",), "lonlat": True}, "longitude and latitude"),
        ({"covariates": ("x",)}, "plays two parts"),
    ],
)
def test_wrong_specifications_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        DataSpec(**{"kind": "csv", "source": "a.csv", "coordinates": ("x", "y"), "value": "v", **arguments})


def test_unknown_keys_of_a_result_file_are_named():
    with pytest.raises(ValueError, match="not understood"):
        DataSpec.from_dict({"kind": "csv", "colour": "red"})


def test_grid_covers_the_bounding_box():
    x, y, points = regular_grid(np.array([[0.0, 5.0], [2.0, 1.0]]), 3, 2)
    assert x.tolist() == [0, 1, 2] and y.tolist() == [1, 5]
    assert points.tolist() == [[0, 1], [1, 1], [2, 1], [0, 5], [1, 5], [2, 5]]
    with pytest.raises(ValueError, match="two coordinates"):
        regular_grid(np.zeros((3, 1)), 2, 2)
    with pytest.raises(ValueError, match="0 x 2"):
        regular_grid(np.zeros((3, 2)), 0, 2)
