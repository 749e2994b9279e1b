"""Columns at places are written in the format that the ending promises, and read back with their reference system and units."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from benchmarks.running import main as bench
from ooc_chol.apps.geostat import (
    Column,
    DataSpec,
    Grid,
    Layer,
    MissingExtraError,
    grid_over,
    load_table,
    read_raster,
    write_layer,
)
from tests.apps.geostat.shell import shell
from tests.inside.cli import main
from tests.inside.geostat import geometry_axes, layer_files

RD = DataSpec("csv", "a.csv", ("x", "y"), "zinc", units={"x": "metre", "y": "metre", "zinc": "ppm"}, crs="EPSG:28992")
DEGREES = DataSpec("csv", "a.csv", ("lon", "lat"), "zinc", lonlat=True)
NOWHERE = DataSpec("csv", "a.csv", ("x", "y"), "zinc")


def layer(spec: DataSpec = RD, grid: Grid | None = None, cells: np.ndarray | None = None) -> Layer:
    """Two columns, the second with a gap, at six points of a grid or at some of them."""
    whole = grid or grid_over([10.0, 50.0], [30.0, 60.0], (3, 2))
    points = whole.points(0, whole.size)
    points = points if cells is None else points[cells]
    values = np.arange(1.0, len(points) + 1) / 3
    gaps = np.where(np.arange(len(points)) == 1, np.nan, -values)
    columns = {"prediction": Column(values, "kriging mean", "ppm"), "error": Column(gaps, "", "ppm")}
    return Layer(spec, points, columns, "a title", None if grid is None else grid, cells)


GRID = grid_over([10.0, 50.0], [30.0, 60.0], (3, 2))


@pytest.mark.parametrize("name", ["a.gpkg", "a.parquet", "a.pq"])
@pytest.mark.parametrize(("spec", "crs"), [(RD, "EPSG:28992"), (DEGREES, "EPSG:4326"), (NOWHERE, None)])
def test_points_read_back(tmp_path, name, spec, crs):
    made = layer(spec)
    write_layer(tmp_path / name, made)
    assert geometry_axes(tmp_path / name) == ("x", "y")
    found = load_table(tmp_path / name, ("x", "y", "prediction"), optional=("error",))
    assert np.array_equal(found.stack(("x", "y")), made.positions)
    assert np.array_equal(found.columns["prediction"], made.columns["prediction"].values)
    assert np.array_equal(found.columns["error"], made.columns["error"].values, equal_nan=True)
    assert (found.crs.name if found.crs else None) == crs
    assert found.units.get("prediction") == ("ppm" if name != "a.gpkg" else None)


def test_other_programs_read_the_points(tmp_path):
    geopandas = pytest.importorskip("geopandas")
    for name, read in (("a.gpkg", geopandas.read_file), ("a.parquet", geopandas.read_parquet)):
        write_layer(tmp_path / name, layer())
        frame = read(tmp_path / name)
        assert frame.crs.to_epsg() == 28992 and np.array_equal(frame.geometry.x, layer().positions[:, 0])
        assert frame["prediction"].tolist() == layer().columns["prediction"].values.tolist()


def test_points_of_three_coordinates(tmp_path):
    spec = DataSpec("csv", "a.csv", ("x", "y", "z"), "v")
    made = Layer(spec, np.arange(12.0).reshape(4, 3), {"v": Column(np.ones(4))}, "t")
    for name in ("a.gpkg", "a.parquet"):
        write_layer(tmp_path / name, made)
        assert np.array_equal(load_table(tmp_path / name, ("x", "y", "z")).stack("xyz"), made.positions)
        assert geometry_axes(tmp_path / name) == ("x", "y", "z")


def test_one_coordinate_makes_no_points(tmp_path):
    line = Layer(DataSpec("csv", "a.csv", ("depth",), "v"), np.ones((2, 1)), {"v": Column(np.ones(2))}, "t")
    with pytest.raises(ValueError, match="two coordinates or three"):
        write_layer(tmp_path / "a.gpkg", line)
    write_layer(tmp_path / "a.parquet", line)
    assert geometry_axes(tmp_path / "a.parquet") == () and load_table(tmp_path / "a.parquet", ("depth", "v")).n == 2


@pytest.mark.parametrize("cells", [None, np.array([0, 2, 5])])
def test_ascii_grids_read_back_one_for_each_column(tmp_path, cells):
    grid = grid_over([10.0, 50.0], [30.0, 60.0], (3, 2))
    made = layer(grid=grid, cells=cells)
    write_layer(tmp_path / "a.asc", made)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-error.asc", "a.asc"]
    for file, name in zip(layer_files(tmp_path / "a.asc", tuple(made.columns)), made.columns, strict=True):
        found = read_raster(file)
        assert all(np.allclose(a, b, rtol=1e-15) for a, b in zip(found.grid.axes, grid.axes, strict=True))
        assert np.array_equal(found.values, made.spread(made.columns[name].values), equal_nan=True)


@pytest.mark.package("rasterio")
@pytest.mark.parametrize("cells", [None, np.array([0, 2, 5])])
@pytest.mark.parametrize(("spec", "code"), [(RD, 28992), (DEGREES, 4326), (NOWHERE, None)])
def test_geotiffs_read_back_band_by_band(tmp_path, cells, spec, code):
    import rasterio

    grid = grid_over([10.0, 50.0], [30.0, 70.0], (3, 2))
    made = layer(spec, grid, cells)
    write_layer(tmp_path / "a.tif", made)
    for band, name in enumerate(made.columns, 1):
        found = read_raster(f"{tmp_path / 'a.tif'}:{band}")
        assert all(np.allclose(a, b, rtol=1e-15) for a, b in zip(found.grid.axes, grid.axes, strict=True))
        assert np.array_equal(found.values, made.spread(made.columns[name].values), equal_nan=True)
        assert (found.crs.name if found.crs else None) == (f"EPSG:{code}" if code else None)
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.descriptions == ("prediction", "error") and file.units == ("ppm", "ppm")
        assert file.bounds == (5.0, 40.0, 35.0, 80.0) and file.index(30.0, 70.0) == (0, 2)


@pytest.mark.parametrize(
    ("name", "grid", "words"),
    [
        ("a.asc", grid_over([0.0, 0.0], [4.0, 2.0], (3, 3)), "square cells, but these are 2 by 1"),
        ("a.asc", grid_over([0.0, 0.0], [4.0, 0.0], (3, 1)), "two columns and two rows"),
        ("a.asc", Grid((np.array([0.0, 1.0, 3.0]), np.array([0.0, 1.0]))), "steps of one length"),
        ("a.asc", None, "written as .*, not as .asc"),
        ("a.tif", None, "written as .*, not as .tif"),
    ],
)
def test_what_is_no_raster_is_refused(tmp_path, name, grid, words):
    with pytest.raises(ValueError, match=words):
        write_layer(tmp_path / name, layer(grid=grid))
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_for_a_format_is_named_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name, extra in (("a.nc", "io"), ("a.gpkg", "io"), ("a.parquet", "io"), ("a.tif", "raster")):
        with pytest.raises(MissingExtraError, match=rf"pip install '\.\[{extra}\]'"):
            write_layer(tmp_path / name, layer(grid=GRID))
    assert list(tmp_path.iterdir()) == []


def test_names_in_netcdf_files_have_no_slash(tmp_path):
    columns = {"zinc/lead": Column(np.zeros(6), "", "")}
    with pytest.raises(ValueError, match="cannot hold a slash, as 'zinc/lead' does"):
        write_layer(tmp_path / "a.nc", Layer(RD, GRID.points(0, 6), columns, "a title", GRID))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.gpkg", "a.parquet"])
def test_no_column_takes_the_place_of_the_points(tmp_path, name):
    made = Layer(RD, GRID.points(0, 6), {"geometry": Column(np.zeros(6))}, "a title", GRID)
    with pytest.raises(ValueError, match="a column is named 'geometry'"):
        write_layer(tmp_path / name, made)
    assert list(tmp_path.iterdir()) == []


def test_a_layer_is_not_written_over_its_data(tmp_path):
    spec = DataSpec("geopackage", str(tmp_path / "a.gpkg:zinc"), ("x", "y"), "zinc")
    (tmp_path / "a.gpkg").write_text("data")
    with pytest.raises(oc.errors.OutputError, match="the observations"):
        write_layer(tmp_path / "a.gpkg", layer(spec), replace=True)


# from the shell


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """A folder with data and a fitted model."""
    folder = tmp_path_factory.mktemp("fitted")
    words = ["--theta", "1,0.2,0.5,0.1", "--seed", "3"]
    assert bench(["synth", "--n", "60", *words, "--output", str(folder / "data.gpkg")]) == 0
    fit = ["fit", str(folder / "data.gpkg"), "--value", "value", "--smoothness", "0.5", "--max-evaluations", "9"]
    assert main(["geostat", *fit, "--output", str(folder / "model.json")]) == 0
    return folder


def test_points_need_no_names_of_coordinates(fitted):
    told = json.loads((fitted / "model.json").read_text())["data"]
    assert told["coordinates"] == ["x", "y"] and told["kind"] == "geopackage"


@pytest.mark.parametrize(
    "name",
    ["out.csv", "out.nc", "out.gpkg", "out.parquet", "out.asc", pytest.param("out.tif", marks=pytest.mark.package("rasterio"))],
)
def test_predictions_and_draws_on_a_grid_in_every_format(fitted, tmp_path, name):
    model, out = fitted / "model.json", tmp_path / name
    assert shell("predict", model, "--cell", 0.1, "--level", 0.9, "--output", out) == 0
    first = sorted(path.name for path in tmp_path.iterdir())
    if name.endswith((".asc", ".tif")):
        mean = read_raster(out).values
        lower = read_raster(tmp_path / "out-lower.asc" if name.endswith(".asc") else f"{out}:3").values
    else:
        table = load_table(out, ("x", "y", "prediction", "standard_error", "lower", "upper"))
        mean, lower = table.columns["prediction"], table.columns["lower"]
        half = 1.6448536269514722 * table.columns["standard_error"]
        np.testing.assert_allclose(table.columns["upper"], mean + half, rtol=1e-12)
    assert mean.size == 100 and (lower < mean).all()
    assert shell("predict", model, "--cell", 0.1, "--level", 0.9, "--output", out) == 2, "it is there"
    assert sorted(path.name for path in tmp_path.iterdir()) == first
    draws = tmp_path / f"draws{out.suffix}"
    assert shell("simulate", model, "--grid", "6,6", "--box", "0,0,1,1", "--draws", 2, "--output", draws) == 0
    if not name.endswith((".asc", ".tif")):
        table = load_table(draws, ("x", "draw1", "draw2"))
        assert table.n == 36 and not np.array_equal(table.columns["draw1"], table.columns["draw2"])


@pytest.mark.parametrize("name", ["cv.gpkg", "cv.parquet", "cv.nc", "cv.csv"])
def test_cross_validation_in_every_format(fitted, tmp_path, name):
    assert shell("cv", fitted / "model.json", "--output", tmp_path / name) == 0
    found = load_table(tmp_path / name, ("x", "y", "value", "prediction", "standard_error", "fold"))
    assert found.n == 60 and len(set(found.columns["fold"].tolist())) == 60


def test_a_level_that_is_none_is_refused(fitted, tmp_path, capsys):
    assert shell("predict", fitted / "model.json", "--grid", "3,3", "--level", 95, "--output", tmp_path / "a.csv") == 2
    assert "--level is 95.0" in capsys.readouterr().err
