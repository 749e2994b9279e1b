"""Rasters are read, sampled at points, and are covariates between the observations: external drift."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ooc_chol.apps.geostat import (
    Area,
    Column,
    DataSpec,
    Layer,
    Raster,
    grid_of_cells,
    grid_over,
    kriging,
    load_dataset,
    load_table,
    make_observations,
    masked,
    read_raster,
    write_layer,
)
from tests.apps.geostat.shell import shell
from tests.inside.geostat import Crs, raster_part, read_result, write_table

pytestmark = pytest.mark.usefixtures("one_blas_thread")

RD = DataSpec("csv", "a.csv", ("x", "y"), "v", crs="EPSG:28992")
ASC = "NCOLS 3\nnrows 2\nxllcorner 0\nyllcorner 10\ncellsize 2\nNODATA_value -1\n1 2 3\n4 -1 6\n"


def plane(points: np.ndarray) -> np.ndarray:
    return 3.0 + 2.0 * points[:, 0] - points[:, 1]


def write_plane(path: Path, spec: DataSpec = RD, *, counts: tuple[int, int] = (11, 11)) -> Path:
    """A raster of a plane over the unit square."""
    grid = grid_over([0.0, 0.0], [1.0, 1.0], counts)
    points = grid.points(0, grid.size)
    write_layer(path, Layer(spec, points, {"height": Column(plane(points))}, "a plane", grid))
    return path


def test_an_ascii_grid_is_read_from_north_to_south(tmp_path):
    (tmp_path / "a.asc").write_text(ASC)
    found = read_raster(tmp_path / "a.asc")
    assert [axis.tolist() for axis in found.grid.axes] == [[1.0, 3.0, 5.0], [11.0, 13.0]]
    np.testing.assert_array_equal(found.values, [[4.0, np.nan, 6.0], [1.0, 2.0, 3.0]])
    (tmp_path / "b.asc").write_text(ASC.replace("xllcorner 0", "xllcenter 1").replace("yllcorner 10", "yllcenter 11"))
    assert all(np.array_equal(a, b) for a, b in zip(found.grid.axes, read_raster(tmp_path / "b.asc").grid.axes, strict=True))


def test_rows_of_an_ascii_grid_may_be_long(tmp_path):
    values = np.random.default_rng(0).normal(size=(2, 3000))
    rows = "\n".join(" ".join(map(repr, row)) for row in values.tolist())
    (tmp_path / "a.asc").write_text(f"ncols 3000\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 1\n{rows}\n")
    np.testing.assert_array_equal(read_raster(tmp_path / "a.asc").values, values[::-1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("NCOLS 3", "NCOLS 4"), "6 values, but 4 by 2"),
        (("NCOLS 3", "NCOLS 3000000"), "6 values, but 3000000 by 2"),
        (("NCOLS 3", "NCOLS 2.5"), "no ncols"),
        (("cellsize 2", "cellsize -2"), "lacks cellsize"),
        (("1 2 3", "1 two 3"), "no ASCII grid"),
        (("1 2 3", "1 inf 3"), "infinity"),
        (("1 2 3", "1 \N{MINUS SIGN}2 3"), "no ASCII grid"),
        ((ASC, ""), "no ncols"),
    ],
)
def test_what_is_wrong_in_an_ascii_grid_is_named(tmp_path, change, words):
    (tmp_path / "a.asc").write_text(ASC.replace(*change), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"a\.asc.*{words}"):
        read_raster(tmp_path / "a.asc")


FORMATS = ["a.asc", "a.nc", pytest.param("a.tif", marks=pytest.mark.package("rasterio"))]


@pytest.mark.parametrize("name", FORMATS)
def test_bilinear_values_of_a_plane_are_exact(tmp_path, name):
    raster = read_raster(write_plane(tmp_path / name))
    points = np.random.default_rng(1).uniform(size=(200, 2))
    np.testing.assert_allclose(raster.at(points), plane(points), rtol=1e-14)
    nearest = np.round(points * 10) / 10
    np.testing.assert_allclose(raster.at(points, "nearest"), plane(nearest), rtol=1e-12)
    outside = np.array([[-0.049, 0.5], [-0.051, 0.5], [0.5, 1.049], [0.5, 1.051], [np.nan, 0.5]])
    assert np.isfinite(raster.at(outside)).tolist() == [True, False, True, False, False], "half a cell beyond the last centres"
    assert raster.crs == (None if name == "a.asc" else Crs("EPSG:28992", False, "metre"))


def test_gaps_stay_gaps_and_are_no_neighbours():
    raster = Raster("r", grid_over([0.0, 0.0], [2.0, 0.5], (3, 2)), np.array([[1.0, np.nan, 3.0], [1.0, 5.0, 3.0]]))
    points = np.array([[0.4, 0.0], [0.6, 0.0], [1.0, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(raster.at(points), [1.0, np.nan, 5.0, 1.0])
    with pytest.raises(ValueError, match="bilinear or nearest"):
        raster.at(points, "cubic")


def test_a_netcdf_grid_may_be_upside_down_and_turned(tmp_path):
    netcdf4 = pytest.importorskip("netCDF4")
    values = np.arange(6.0).reshape(3, 2)
    with netcdf4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, axis in (("lon", [1.0, 2.0, 3.0]), ("lat", [5.0, 4.0])):
            file.createDimension(name, len(axis))
            file.createVariable(name, "f8", (name,))[...] = axis
        file["lon"].units, file["lat"].units = "degrees_east", "degrees_north"
        for name in ("height", "depth"):
            file.createVariable(name, "f4", ("lon", "lat"))[...] = values
    found = read_raster(f"{tmp_path / 'a.nc'}:height")
    assert [axis.tolist() for axis in found.grid.axes] == [[1.0, 2.0, 3.0], [4.0, 5.0]] and found.crs.is_geographic
    np.testing.assert_array_equal(found.values, values.T[::-1])
    with pytest.raises(ValueError, match=r"a\.nc:VARIABLE with one of: height, depth"):
        read_raster(tmp_path / "a.nc")


@pytest.mark.package("rasterio")
def test_what_is_no_geotiff_is_said(tmp_path):
    import rasterio

    (tmp_path / "a.tif").write_bytes(b"II*\0 and nothing else")
    (tmp_path / "b.tif").write_text('<VRTDataset rasterXSize="1" rasterYSize="1"></VRTDataset>')
    for name in ("a.tif", "b.tif"):
        with pytest.raises(ValueError, match=f"{name} is not a GeoTIFF"):
            read_raster(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_raster(tmp_path / "c.tif")
    profile = {"driver": "GTiff", "width": 2, "height": 2, "count": 1, "dtype": "int16", "nodata": -1}
    turned = rasterio.Affine(1.0, 0.5, 0.0, 0.5, -1.0, 0.0)
    with rasterio.open(tmp_path / "d.tif", "w", transform=turned, **profile) as file:
        file.write(np.array([[1, 2], [3, -1]], dtype=np.int16), 1)
    with pytest.raises(ValueError, match="turned against its axes"):
        read_raster(tmp_path / "d.tif")
    with rasterio.open(tmp_path / "e.tif", "w", transform=rasterio.Affine(1.0, 0, 0, 0, -1.0, 2.0), **profile) as file:
        file.write(np.array([[1, 2], [3, -1]], dtype=np.int16), 1)
        file.scales, file.offsets = (0.5,), (10.0,)
    np.testing.assert_array_equal(read_raster(tmp_path / "e.tif").values, [[11.5, np.nan], [10.5, 11.0]])
    with pytest.raises(ValueError, match="a number from 1 to 1"):
        read_raster(f"{tmp_path / 'e.tif'}:2")


def test_names_of_parts():
    assert raster_part("c:/a.tif:2") == ("c:/a.tif", "2") and raster_part("a.tif") == ("a.tif", None)
    with pytest.raises(ValueError, match=r"a\.png: rasters are read from \.tif"):
        read_raster("a.png")


# drift


@pytest.fixture
def drift(tmp_path) -> Path:
    """Values that follow a plane, which only a raster knows, with a field upon it."""
    rng = np.random.default_rng(2)
    sites = rng.uniform(size=(60, 2))
    values = 2.0 * plane(sites) + np.sin(5 * sites[:, 0]) * np.cos(4 * sites[:, 1]) + 0.05 * rng.normal(size=60)
    write_table(tmp_path / "data.csv", {"x": sites[:, 0], "y": sites[:, 1], "v": values})
    write_plane(tmp_path / "plane.asc")
    write_plane(tmp_path / "plane.nc")
    return tmp_path


def fit(folder: Path, *words: object) -> int:
    columns = ["--x", "x", "--y", "y", "--smoothness", "0.5", "--max-evaluations", "12", "--output", folder / "model.json"]
    return shell("fit", folder / "data.csv", *columns, *words)


def test_external_drift_is_kriging_with_the_raster_as_a_covariate(drift, capsys):
    assert fit(drift, "--formula", "v ~ height", "--raster", f"height={drift / 'plane.asc'}") == 0
    saved = read_result(drift / "model.json")
    assert saved.spec.rasters == {"height": str(drift / "plane.asc")} and saved.spec.crs is None
    for target in ("a.csv", "b.asc"):
        assert shell("predict", drift / "model.json", "--grid", "11,11", "--box", "0,0,1,1", "--output", drift / target) == 0
    found = load_table(drift / "a.csv", ("x", "y", "prediction", "standard_error"))
    table = load_table(drift / "data.csv", ("x", "y", "v"))
    places, sites = table.stack("xy"), found.stack("xy")
    observations = make_observations(places, table.columns["v"], covariates=plane(places))
    with kriging(observations, saved.model) as kriged:
        expected = kriged.predict(sites, covariates=plane(sites))
    np.testing.assert_allclose(found.columns["prediction"], expected.mean, rtol=1e-8)
    np.testing.assert_allclose(found.columns["standard_error"], expected.standard_error, rtol=1e-8)
    np.testing.assert_array_equal(read_raster(drift / "b.asc").values.ravel(), found.columns["prediction"])
    words = ["--grid", "3,3", "--box", "0.2,0.2,0.8,0.8", "--block", "0.1,0.1"]
    assert shell("predict", drift / "model.json", *words, "--output", drift / "blocks.csv") == 0
    assert load_table(drift / "blocks.csv", ("prediction",)).n == 9
    assert shell("plot", "map", drift / "model.json", "--output", drift / "map.png") == 0
    assert shell("cv", drift / "model.json", "--output", drift / "cv.csv") == 0
    assert shell("simulate", drift / "model.json", "--cell", 0.25, "--conditional", "--output", drift / "draws.csv") == 0


def test_a_raster_tells_the_reference_system_of_a_table(drift, capsys):
    assert fit(drift, "--value", "v", "--covariates", "height", "--raster", f"height={drift / 'plane.nc'}") == 0
    assert "are taken to be in EPSG:28992, as its rasters are" in capsys.readouterr().err
    assert read_result(drift / "model.json").spec.crs == "EPSG:28992"
    assert shell("predict", drift / "model.json", "--cell", 0.2, "--output", drift / "a.gpkg") == 0
    assert load_table(drift / "a.gpkg", ("x", "y")).crs.name == "EPSG:28992"


def test_places_without_a_value_of_the_raster_are_left_out_and_counted(drift, capsys):
    grid = grid_over([0.0, 0.0], [0.5, 1.0], (6, 11))
    points = grid.points(0, grid.size)
    write_layer(drift / "half.asc", Layer(RD, points, {"height": Column(plane(points))}, "half a plane", grid))
    assert fit(drift, "--formula", "v ~ height", "--raster", f"height={drift / 'half.asc'}") == 0
    told = capsys.readouterr()
    n = read_result(drift / "model.json").n
    assert 20 < n < 40 and f"{60 - n} places of data.csv have no value of height and were left out" in told.err
    assert shell("predict", drift / "model.json", "--grid", "11,11", "--box", "0,0,1,1", "--output", drift / "a.asc") == 0
    assert "55 of 121 points of the grid have no value of height" in capsys.readouterr().err
    values = read_raster(drift / "a.asc").values
    assert np.isfinite(values[:, :6]).all() and np.isnan(values[:, 6:]).all()
    (drift / "sites.csv").write_text("x,y\n0.25,0.5\n0.75,0.5\n")
    assert shell("predict", drift / "model.json", drift / "sites.csv", "--output", drift / "sites-out.csv") == 0
    assert "1 places of sites.csv have no value of height and were left out" in capsys.readouterr().err
    assert load_table(drift / "sites-out.csv", ("prediction",)).n == 1
    other = ["--raster", f"height={drift / 'plane.asc'}"]
    assert shell("predict", drift / "model.json", "--grid", "11,11", "--box", "0,0,1,1", *other, "--output", drift / "b.asc") == 0
    assert np.isfinite(read_raster(drift / "b.asc").values).all()


def test_a_factor_of_a_raster_takes_the_nearest_cell(drift):
    grid = grid_over([0.0, 0.0], [1.0, 1.0], (2, 2))
    write_layer(drift / "soil.asc", Layer(RD, grid.points(0, 4), {"soil": Column(np.array([1.0, 3.0, 3.0, 1.0]))}, "soils", grid))
    spec = DataSpec("csv", str(drift / "data.csv"), ("x", "y"), "v", ("soil",), formula="v ~ factor(soil)")
    dataset = load_dataset(DataSpec(**{**vars(spec), "rasters": {"soil": str(drift / "soil.asc")}}))
    assert dataset.spec.levels == {"factor(soil)": ("1", "3")} and dataset.observations.mean_columns == (
        "intercept",
        "factor(soil)[3]",
    )
    x, y = dataset.positions.T
    np.testing.assert_array_equal(dataset.observations.design[:, 1], (x >= 0.5) != (y >= 0.5))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--value", "v", "--raster", "height=plane.asc"], "raster 'height' is no covariate"),
        (["--formula", "v ~ y", "--raster", "y=plane.asc"], "raster 'y' has the name of a column that plays another part"),
        (["--formula", "v ~ h", "--raster", "h=no.asc"], "no.asc"),
        (["--formula", "v ~ h", "--raster", "h=plane.asc", "--raster", "h=plane.nc"], "--raster h is given twice"),
        (["--formula", "v ~ h", "--lonlat", "--raster", "h=plane.nc"], "leave out --lonlat"),
        (["--formula", "v ~ h", "--raster", "h=far.asc"], "no place of data.csv has a value of h"),
    ],
)
def test_rasters_that_do_not_fit_are_said(drift, monkeypatch, capsys, words, told):
    monkeypatch.chdir(drift)
    (drift / "far.asc").write_text(ASC)
    assert fit(drift, *words) == 2
    assert told in capsys.readouterr().err


# areas


def test_cells_of_a_size_and_a_raster_as_the_grid(drift, capsys):
    grid = grid_of_cells(np.array([0.0, 0.0]), np.array([1.0, 0.35]), (0.1, 0.1))
    assert grid.shape == (4, 11) and np.allclose(np.diff(grid.axes[1]), 0.1)
    with pytest.raises(ValueError, match="both must be positive"):
        grid_of_cells(np.zeros(2), np.ones(2), (0.1, 0.0))
    assert fit(drift, "--value", "v") == 0
    (drift / "some.asc").write_text("ncols 2\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 0.5\nNODATA_value -9\n1 2\n-9 4\n")
    assert shell("predict", drift / "model.json", "--grid", drift / "some.asc", "--output", drift / "a.csv") == 0
    found = load_table(drift / "a.csv", ("x", "y")).stack("xy")
    np.testing.assert_array_equal(found, [[0.75, 0.25], [0.25, 0.75], [0.75, 0.75]])
    capsys.readouterr()
    for words, told in (
        (["--grid", "3,3", "--cell", "1"], "two grids"),
        (["--grid", drift / "some.asc", "--box", "0,0,1,1"], "leave out --box"),
        ([drift / "data.csv", "--box", "0,0,1,1"], "--box is of a grid"),
        (["--grid", "3,3", "--raster", "h=a.asc"], "fitted without such a raster"),
    ):
        assert shell("predict", drift / "model.json", *words, "--output", drift / "b.csv") == 2
        assert told in capsys.readouterr().err


def write_polygon(path: Path, crs: str | None) -> Path:
    geopandas, shapely = (pytest.importorskip(name) for name in ("geopandas", "shapely"))
    triangle = shapely.Polygon([(0.0, 0.0), (1.001, 0.0), (0.0, 1.001)])
    frame = geopandas.GeoDataFrame(geometry=[triangle, shapely.box(0.9, 0.9, 1.0, 1.0)], crs=crs)
    frame.to_file(path)
    return path


@pytest.mark.parametrize("name", ["area.gpkg", "area.geojson"])
def test_a_mask_of_polygons(drift, name, capsys):
    mask = write_polygon(drift / name, "EPSG:28992")
    area = masked(Area(grid_over([0.0, 0.0], [1.0, 1.0], (11, 11))), mask, RD)
    x, y = area.points.T
    assert len(x) == 66 + 4 and ((x + y <= 1.001) | ((x > 0.85) & (y > 0.85))).all()
    with pytest.raises(ValueError, match="has coordinates in EPSG:28992, but the fit has them in EPSG:32631"):
        masked(area, mask, DataSpec("csv", "a.csv", ("x", "y"), "v", crs="EPSG:32631"))
    assert fit(drift, "--value", "v") == 0
    assert (
        shell("predict", drift / "model.json", "--grid", "11,11", "--box", "0,0,1,1", "--mask", mask, "--output", drift / "a.asc")
        == 0
    )
    assert np.isfinite(read_raster(drift / "a.asc").values).sum() == 70
    assert shell("plot", "map", drift / "model.json", "--mask", mask, "--output", drift / "map.png") == 0


def test_a_mask_may_be_a_raster(tmp_path):
    whole = Area(grid_over([0.0, 0.0], [4.0, 2.0], (5, 3)))
    flags = "ncols 2\nnrows 1\nxllcorner 0\nyllcorner 0\ncellsize 2\n{} {}\n"
    for values, count in ((("0", "1"), 6), (("0", "7"), 15), (("-9999", "0"), 6)):
        (tmp_path / "m.asc").write_text(flags.format(*values).replace("cellsize 2", "cellsize 2.0"))
        grid = Area(grid_over([0.5, 0.5], [3.5, 1.5], (4, 2)))
        expected = {6: 4, 15: 8}[count]
        assert len(masked(grid, tmp_path / "m.asc", RD).points) == expected
    with pytest.raises(ValueError, match="no point of the grid is inside"):
        masked(Area(grid_over([9.0, 9.0], [10.0, 10.0], (2, 2))), tmp_path / "m.asc", RD)
    with pytest.raises(ValueError, match="a mask is a file of polygons"):
        masked(whole, tmp_path / "m.csv", RD)


def test_a_mask_of_points_is_none(tmp_path):
    write_layer(tmp_path / "a.gpkg", Layer(RD, np.zeros((1, 2)), {"v": Column(np.ones(1))}, "t"))
    with pytest.raises(ValueError, match="other geometries than polygons"):
        masked(Area(grid_over([0.0, 0.0], [1.0, 1.0], (2, 2))), tmp_path / "a.gpkg", RD)


def test_the_rasters_of_a_result_file_are_plain_data(drift):
    assert fit(drift, "--formula", "v ~ h", "--raster", f"h={drift / 'plane.asc'}") == 0
    assert json.loads((drift / "model.json").read_text())["data"]["rasters"] == {"h": str(drift / "plane.asc")}
