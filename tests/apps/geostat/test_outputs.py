"""Predictions on the way out."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.io import netcdf_file

from ooc_chol.apps.geostat import (
    DataSpec,
    MissingExtraError,
    Predicted,
    Prediction,
    load_table,
    read_table,
    regular_grid,
    to_geodataframe,
    to_xarray,
    write_predictions,
)

pytestmark = pytest.mark.plan

RD = DataSpec("geopackage", "a.gpkg", ("x", "y"), "zinc", units={"x": "metre", "y": "metre", "zinc": "ppm"}, crs="EPSG:28992")
DEGREES = DataSpec("csv", "a.csv", ("lon", "lat"), "t", lonlat=True)


def predicted(spec, grid=True):
    points = regular_grid(np.array([[5.0, 50.0], [8.0, 52.0]]), 4, 3)[2]
    values = np.random.default_rng(0).normal(size=12)
    return Predicted(spec, points, Prediction(values, values**2, "field"), (4, 3) if grid else None)


@pytest.mark.parametrize("spec", [RD, DEGREES])
@pytest.mark.parametrize("grid", [True, False])
def test_netcdf_reads_back(tmp_path, spec, grid):
    path = tmp_path / "out.nc"
    out = predicted(spec, grid)
    write_predictions(path, out)
    table = load_table(path, (*spec.coordinates, "prediction", "standard_error"))
    assert all(np.array_equal(table.columns[name], column) for name, column in out.columns.items())
    assert table.crs.is_geographic == spec.lonlat
    assert spec.lonlat or table.crs.name == "EPSG:28992"


def test_netcdf_grid_follows_the_conventions(tmp_path):
    write_predictions(tmp_path / "a.nc", predicted(RD))
    write_predictions(tmp_path / "b.nc", predicted(DEGREES))
    with netcdf_file(tmp_path / "a.nc", "r", mmap=False) as content:
        assert content.dimensions == {"x": 4, "y": 3} and content.Conventions == b"CF-1.8"
        assert content.title == b"kriging of zinc: field"
        mean = content.variables["prediction"]
        assert mean.dimensions == ("y", "x") and mean.units == b"ppm" and mean.grid_mapping == b"crs"
        assert content.variables["x"].standard_name == b"projection_x_coordinate" and content.variables["x"].units == b"metre"
        assert content.variables["crs"].spatial_ref == b"EPSG:28992"
        assert np.array_equal(mean[:], predicted(RD).prediction.mean.reshape(3, 4))
    with netcdf_file(tmp_path / "b.nc", "r", mmap=False) as content:
        assert content.variables["lon"].units == b"degrees_east" and content.variables["lat"].standard_name == b"latitude"
        assert content.variables["crs"].grid_mapping_name == b"latitude_longitude"


def test_sites_have_one_dimension_and_csv_stays(tmp_path):
    out = predicted(RD, grid=False)
    write_predictions(tmp_path / "a.nc", out)
    with netcdf_file(tmp_path / "a.nc", "r", mmap=False) as content:
        assert content.dimensions == {"site": 12} and content.variables["prediction"].coordinates == b"y x"
    write_predictions(tmp_path / "a.csv", out)
    table = read_table(tmp_path / "a.csv", ("x", "y", "prediction", "standard_error"))
    assert all(np.array_equal(table.columns[name], column) for name, column in out.columns.items())


@pytest.mark.parametrize(
    ("name", "kind"), [("a.xlsx", ValueError), ("a.tif", ValueError), ("a.asc", ValueError), ("no/a.nc", FileNotFoundError)]
)
def test_what_cannot_be_written_is_named(tmp_path, name, kind):
    with pytest.raises(kind, match=r"written as \.csv, .*\.nc|there is no folder"):
        write_predictions(tmp_path / name, predicted(RD, grid=False))


def test_without_xarray_and_geopandas_it_is_said_what_to_install(monkeypatch):
    for convert, name, what in ((to_xarray, "xarray", "datasets"), (to_geodataframe, "geopandas", "frames")):
        monkeypatch.setitem(sys.modules, name, None)
        told = rf"{what} are made by {name}, which is not installed: .*pip install '\.\[io\]'"
        with pytest.raises(MissingExtraError, match=told):
            convert(predicted(RD))
    with pytest.raises(ValueError, match="not on a grid"):
        to_xarray(predicted(RD, grid=False))
    line = Predicted(DataSpec("csv", "a.csv", ("x",), "v"), np.zeros((2, 1)), Prediction(np.zeros(2), np.ones(2), "field"))
    with pytest.raises(ValueError, match="two coordinates or three"):
        to_geodataframe(line)
