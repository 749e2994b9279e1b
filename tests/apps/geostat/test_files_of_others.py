"""Files that pandas, pyarrow, netCDF4, xarray and GeoPandas write, and objects of theirs that are made here."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import geopandas
import netCDF4
import numpy as np
import pandas
import pyarrow
import pyproj
import pytest
import shapely
import xarray
from pyarrow import parquet

from ooc_chol.apps.geostat import (
    DataSpec,
    Predicted,
    Prediction,
    load_dataset,
    load_table,
    regular_grid,
    to_geodataframe,
    to_xarray,
    write_predictions,
)
from tests.inside.cli import main
from tests.inside.geostat import Crs, load_sites

pytestmark = pytest.mark.usefixtures("one_blas_thread")

RD, WGS = pyproj.CRS(28992), pyproj.CRS(4326)
FORMATS = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4_CLASSIC", "NETCDF4")
ONE_DUPLICATE = "1 observations are at a place where another one is; each counts, with a nugget of its own"


def one_missing(name):
    return f"1 rows of {name} lack a value in a column that is used and were left out"


@pytest.fixture
def frame():
    """Twenty places of which two are one, values of which one is missing, a whole number of which another is."""
    rng = np.random.default_rng(0)
    places = rng.uniform(size=(20, 2)) * 1000
    places[7] = places[6]
    zinc = rng.normal(size=20)
    zinc[3] = np.nan
    count = pandas.array([*range(19), None], dtype="Int64")
    return pandas.DataFrame({"x": places[:, 0], "y": places[:, 1], "zinc": zinc, "count": count, "note": ["a"] * 20})


# Parquet


@pytest.mark.parametrize("compression", ["snappy", "zstd", None])
def test_parquet_of_pandas(tmp_path, frame, compression):
    path = tmp_path / "a.parquet"
    frame.to_parquet(path, compression=compression)
    dataset = load_dataset(DataSpec("csv", str(path), ("x", "y"), "zinc"))
    there = frame[frame["zinc"].notna()]
    assert np.array_equal(dataset.positions, there[["x", "y"]]) and np.array_equal(dataset.observations.values, there["zinc"])
    assert dataset.spec.kind == "parquet" and dataset.notes == (one_missing("a.parquet"), ONE_DUPLICATE)
    both = load_table(path, ("count", "zinc"))
    assert both.dropped == 2 and both.columns["count"].tolist() == [0, 1, 2, *range(4, 19)]


def test_parquet_of_pyarrow_with_units_and_every_kind_of_number(tmp_path):
    kinds = {
        "float16": pyarrow.array(np.array([1.5, 2.5], dtype=np.float16)),
        "int8": pyarrow.array([1, None], pyarrow.int8()),
        "uint64": pyarrow.array([2**63, 1], pyarrow.uint64()),
        "decimal": pyarrow.array([Decimal("1.125"), Decimal("2")], pyarrow.decimal128(10, 3)),
        "dictionary": pyarrow.array([0.5, 0.75]).dictionary_encode(),
        "empty": pyarrow.nulls(2),
        "text": pyarrow.array(["1", "2"]),
        "flag": pyarrow.array([True, False]),
        "when": pyarrow.array([1, 2], pyarrow.timestamp("ms")),
    }
    told = {"float16": {"units": "m"}, "int8": {"unit": "ppm"}}
    fields = [pyarrow.field(name, column.type, metadata=told.get(name)) for name, column in kinds.items()]
    path = tmp_path / "a.pq"
    parquet.write_table(pyarrow.table(list(kinds.values()), schema=pyarrow.schema(fields)), path)
    table = load_table(path, ("float16", "uint64", "decimal", "dictionary"), optional=("int8", "empty"))
    expected = [[1.5, 2.0**63, 1.125, 0.5, 1.0, np.nan], [2.5, 1.0, 2.0, 0.75, np.nan, np.nan]]
    assert np.array_equal(table.stack(tuple(table.columns)), expected, equal_nan=True) and table.dropped == 0
    assert all(column.dtype == np.float64 for column in table.columns.values())
    assert table.units == {"float16": "m", "int8": "ppm"} and table.crs is None
    for name, kind in (("text", "string"), ("flag", "bool"), ("when", r"timestamp\[ms\]")):
        with pytest.raises(ValueError, match=rf"a\.pq, column '{name}' holds {kind}, not numbers"):
            load_table(path, (name,))
    with pytest.raises(ValueError, match=r"no row with a value in every column used \(empty\); 2 rows were dropped"):
        load_table(path, ("empty",))
    with pytest.raises(ValueError, match=r"a\.pq has no column 'zinc'; its columns are: float16, int8"):
        load_table(path, ("zinc",))


def test_what_is_no_parquet_is_said(tmp_path, frame):
    path = tmp_path / "a.parquet"
    frame.to_parquet(path)
    content = path.read_bytes()
    for wrong, words in (
        (b"", "is not a Parquet file"),
        (b"x,y\n1,2\n" * 20, "is not a Parquet file"),
        (content[: len(content) // 2], "is not a Parquet file"),
        (content[:4] + bytes(60) + content[64:], "is a damaged Parquet file: .*; copy it again"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=rf"a\.parquet {words}"):
            load_table(path, ("x",))
    with pytest.raises(FileNotFoundError, match=r"nothing\.parquet"):
        load_table(tmp_path / "nothing.parquet", ("x",))


# NetCDF

NONE = np.nan
UNWRITTEN = ("i2", "i4", "f4", "f8")

#: Type, stored numbers, attributes, and the numbers that are meant; every one leaves something out.
PACKED = {
    "filled": (
        "i2",
        [1, 2, -9, 4, 5, 6],
        {"_FillValue": np.int16(-9), "scale_factor": 0.5, "add_offset": 10.0},
        [10.5, 11, NONE, 12, 12.5, 13],
    ),
    "several": ("i4", [1, 2, 3, 4, 5, 6], {"missing_value": np.array([2, 5], "i4")}, [1, NONE, 3, 4, NONE, 6]),
    "both": ("f8", [1, 2, -9, -8, 5, 6], {"_FillValue": -9.0, "missing_value": -8.0}, [1, 2, NONE, NONE, 5, 6]),
    "ranged": ("f4", [1, 2, -1, 50, 5, 6], {"valid_range": np.array([0, 10], "f4")}, [1, 2, NONE, NONE, 5, 6]),
    "limited": (
        "i2",
        [1, 2, -1, 50, 5, 6],
        {"valid_min": np.int16(0), "valid_max": np.int16(10), "scale_factor": 0.1},
        [1 * 0.1, 2 * 0.1, NONE, NONE, 5 * 0.1, 6 * 0.1],
    ),
    "unsigned": (
        "i1",
        [1, 2, 3, -56, -1, 6],
        {"_Unsigned": "true", "_FillValue": np.int8(-1), "scale_factor": 2.0},
        [2, 4, 6, 400, NONE, 12],
    ),
}


def write_packed(path, version):
    with netCDF4.Dataset(path, "w", format=version) as content:
        content.createDimension("site", 6)
        for name, (kind, stored, attributes, _) in PACKED.items():
            fill = attributes.get("_FillValue")
            made = content.createVariable(name, kind, ("site",), fill_value=fill)
            made.set_auto_maskandscale(False)
            made.setncatts({key: value for key, value in attributes.items() if key != "_FillValue"} | {"units": "m"})
            made[:] = np.array(stored, dtype=kind)
        for kind in UNWRITTEN:
            content.createVariable(f"unwritten_{kind}", kind, ("site",))[:3] = [1, 2, 3]


@pytest.mark.parametrize("version", FORMATS)
def test_gaps_and_packing_mean_the_same_in_every_version(tmp_path, version):
    path = tmp_path / "a.nc"
    write_packed(path, version)
    expected = {name: numbers for name, (_, _, _, numbers) in PACKED.items()}
    expected |= {f"unwritten_{kind}": [1, 2, 3, NONE, NONE, NONE] for kind in UNWRITTEN}
    for name, numbers in expected.items():
        table, column = load_table(path, (name,)), np.array(numbers)
        assert np.array_equal(table.columns[name], column[np.isfinite(column)]), name
        assert table.dropped == np.count_nonzero(np.isnan(column))
        assert table.units == ({name: "m"} if name in PACKED else {})


@pytest.mark.parametrize("engine", ["netcdf4", "scipy"])
@pytest.mark.parametrize("crs", [None, RD, WGS])
def test_grid_of_xarray(tmp_path, engine, crs):
    path = tmp_path / "a.nc"
    values = np.random.default_rng(0).normal(size=(3, 4))
    values[1, 2] = np.nan
    x, y = np.linspace(5.0, 8.0, 4), np.linspace(50.0, 52.0, 3)
    mapping = {} if crs is None else {"grid_mapping": "spatial_ref"}
    variables = {"t": (("y", "x"), values, {"units": "K", **mapping})}
    if crs is not None:
        variables["spatial_ref"] = ((), 0, {k: v for k, v in crs.to_cf().items() if isinstance(v, (str, float))})
    axes = {"x": ("x", x, {"units": "km"}), "y": ("y", y, {"units": "km"})}
    encoding = {"t": {"dtype": "int16", "scale_factor": 0.001, "_FillValue": np.int16(-9999)}}
    xarray.Dataset(variables, coords=axes).to_netcdf(path, engine=engine, encoding=encoding)
    with xarray.open_dataset(path) as again:
        unpacked = again["t"].to_numpy()
    dataset = load_dataset(DataSpec("csv", str(path), ("x", "y"), "t"))
    there = np.isfinite(values.ravel())
    places = np.column_stack([np.tile(x, 3), np.repeat(y, 4)])
    assert np.array_equal(dataset.positions, places[there])
    assert np.array_equal(dataset.observations.values, unpacked.ravel()[there].astype(np.float64))
    assert dataset.spec.kind == "netcdf" and dataset.spec.units == {"x": "km", "y": "km", "t": "K"}
    name = None if crs is None else crs.to_string()
    assert dataset.spec.crs == name and dataset.spec.lonlat == (crs is WGS) and dataset.spec.value_label == "t (K)"
    note = (f"a.nc has geographic coordinates ({name}): distances are chords in kilometres, as with --lonlat",)
    assert dataset.notes == (*(note if crs is WGS else ()), one_missing("a.nc"))


@pytest.mark.parametrize("version", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4"])
@pytest.mark.parametrize("axis", [None, 500])
def test_what_was_cut_off_is_said(tmp_path, version, axis):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=version) as content:
        content.createDimension("site", axis)
        content.createVariable("x", "f8", ("site",))[:] = np.arange(1.0, 501.0)
    whole = path.read_bytes()
    assert load_table(path, ("x",)).columns["x"].tolist() == list(range(1, 501))
    for length in (8, 100, len(whole) // 2, len(whole) - 8):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"a\.nc(, variable 'x')? is (a )?damaged.*; copy (it|the file) again"):
            load_table(path, ("x",))


def test_what_is_damaged_inside_is_said(tmp_path):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as content:
        content.createDimension("site", 5000)
        content.createVariable("x", "f8", ("site",), fletcher32=True)[:] = np.arange(5000.0)
    content = bytearray(path.read_bytes())
    place = content.index(np.arange(1000.0, 1010.0).tobytes())
    content[place : place + 8] = bytes(8)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.nc, variable 'x' is damaged: NetCDF: HDF error; copy the file again"):
        load_table(path, ("x",))


def test_texts_and_dates_are_no_numbers_or_told(tmp_path):
    path = tmp_path / "a.nc4"
    days = pandas.date_range("2020-01-01", periods=3)
    xarray.Dataset({"name": ("i", ["a", "b", "c"]), "day": ("i", days)}).to_netcdf(path)
    with pytest.raises(ValueError, match=r"a\.nc4, variable 'name' holds object, not numbers"):
        load_table(path, ("name",))
    table = load_table(path, ("day",))
    assert table.columns["day"].tolist() == [0, 1, 2] and table.units["day"].startswith("days since 2020-01-01")


# GeoPackage


def points(frame, crs, scale=1.0, offset=(0.0, 0.0)):
    places = geopandas.points_from_xy(frame["x"] * scale + offset[0], frame["y"] * scale + offset[1])
    return geopandas.GeoDataFrame(frame[["zinc", "count"]], geometry=places, crs=crs)


def _with_sql(path, *statements):
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)


def test_a_layer_may_be_a_view_but_not_an_endless_one(tmp_path, frame):
    whole = frame.drop(index=[3])
    points(whole, RD).to_file(tmp_path / "good.gpkg", layer="soil")
    shutil.copy(tmp_path / "good.gpkg", tmp_path / "endless.gpkg")
    kept = "ALTER TABLE soil RENAME TO kept"
    _with_sql(tmp_path / "good.gpkg", kept, "CREATE VIEW soil AS SELECT * FROM kept WHERE fid > 2")
    table = load_table(tmp_path / "good.gpkg", ("x", "zinc"))
    assert np.array_equal(table.columns["zinc"], whole["zinc"].iloc[2:])
    endless = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i FROM c) SELECT k.* FROM kept k, c"
    _with_sql(tmp_path / "endless.gpkg", kept, f"CREATE VIEW soil AS {endless}")
    with pytest.raises(ValueError, match=r"endless\.gpkg: 'soil' is a view, .* takes longer than tables do"):
        load_table(tmp_path / "endless.gpkg", ("x", "zinc"))


def test_geopackage_of_geopandas(tmp_path, frame):
    path = tmp_path / "a.gpkg"
    sites = points(frame, RD)
    sites.loc[5, "geometry"], sites.loc[9, "geometry"] = None, shapely.Point()
    sites.to_file(path, layer="soil")
    dataset = load_dataset(DataSpec("csv", str(path), ("x", "y"), "zinc"))
    there = frame.drop(index=[3, 5, 9])
    assert np.array_equal(dataset.positions, there[["x", "y"]]) and np.array_equal(dataset.observations.values, there["zinc"])
    assert dataset.spec.crs == "EPSG:28992" and dataset.spec.units == {"x": "metre", "y": "metre"} and not dataset.spec.lonlat
    assert dataset.notes == ("3" + one_missing("a.gpkg")[1:], ONE_DUPLICATE)
    assert load_table(path, ("count",)).dropped == 1
    sites.to_file(path, layer="deep")
    assert len(load_table(f"{path}:deep", ("x", "y")).columns["x"]) == 18
    sites.set_geometry(sites.buffer(1.0)).to_file(tmp_path / "areas.gpkg")
    with pytest.raises(ValueError, match=r"areas feature 1: its geometry is no point but a Polygon; take centroids first"):
        load_table(tmp_path / "areas.gpkg", ("x", "zinc"))


@pytest.mark.parametrize(
    ("crs", "expected"),
    [
        (4326, Crs("EPSG:4326", True, "degrees")),
        (4979, Crs("EPSG:4979", True, "degrees")),
        ("OGC:CRS84", Crs("OGC:CRS84", True, "degrees")),
        (7415, Crs("EPSG:7415", False, "metre")),
        (2263, Crs("EPSG:2263", False, "US survey foot")),
        ("ESRI:54009", Crs("ESRI:54009", False, "metre")),
        (4978, Crs("EPSG:4978", False, "metre")),
    ],
)
def test_reference_systems_of_geopandas(tmp_path, frame, crs, expected):
    points(frame, crs, scale=1e-3, offset=(5.0, 50.0)).to_file(tmp_path / "a.gpkg")
    assert load_table(tmp_path / "a.gpkg", ("x", "y")).crs == expected
    assert load_dataset(DataSpec("csv", str(tmp_path / "a.gpkg"), ("x", "y"), "zinc")).spec.lonlat == expected.is_geographic


def test_a_system_without_a_number_is_known_by_its_text(tmp_path, frame):
    system = pyproj.CRS("+proj=utm +zone=32 +ellps=bessel +units=m")
    points(frame, system).to_file(tmp_path / "a.gpkg")
    crs = load_table(tmp_path / "a.gpkg", ("x", "y")).crs
    assert pyproj.CRS(crs.name) == system and (crs.label, crs.is_geographic, crs.unit) == ("unknown", False, "metre")


def test_points_without_a_reference_system_have_none(tmp_path, frame):
    with pytest.warns(UserWarning, match="'crs' was not provided"):
        points(frame, None).to_file(tmp_path / "a.gpkg")
    table = load_table(tmp_path / "a.gpkg", ("x", "y"))
    assert table.crs is None and table.units == {}


def test_one_system_in_files_of_different_kinds(tmp_path, frame):
    """A number in a GeoPackage and well-known text in a NetCDF file; degrees and metres are not mixed."""

    def netcdf(name, crs, **attributes):
        told = attributes or {"crs_wkt": crs.to_wkt()}
        parts = {"zinc": ("i", [1.0], {"grid_mapping": "crs"}), "x": ("i", [5.0]), "y": ("i", [50.0]), "crs": ((), 0, told)}
        xarray.Dataset(parts).to_netcdf(tmp_path / name)
        return tmp_path / name

    points(frame, RD).to_file(tmp_path / "metres.gpkg")
    points(frame, WGS, scale=1e-3).to_file(tmp_path / "degrees.gpkg")
    metres, degrees = (
        load_dataset(DataSpec("csv", str(tmp_path / name), ("x", "y"), "zinc")).spec for name in ("metres.gpkg", "degrees.gpkg")
    )
    assert load_sites(metres, netcdf("a.nc", RD)).crs == Crs("EPSG:28992", False, "metre")
    for told in ({}, {"grid_mapping_name": "latitude_longitude"}):
        assert load_sites(degrees, netcdf("b.nc", WGS, **told)).crs.is_geographic
        with pytest.raises(ValueError, match=r"b\.nc has coordinates in .*, but the fit has them in EPSG:28992; transform them"):
            load_sites(metres, tmp_path / "b.nc")
    with pytest.raises(ValueError, match=r"a\.nc has coordinates in EPSG:28992, but the fit has them in EPSG:4326"):
        load_sites(degrees, tmp_path / "a.nc")
    other = pyproj.CRS("+proj=utm +zone=32 +ellps=bessel").to_wkt().replace('"unknown"', '"my own"', 1)
    with pytest.raises(ValueError, match=r"c\.nc has coordinates in my own, but the fit"):
        load_sites(metres, netcdf("c.nc", None, crs_wkt=other))


#: Transverse Mercator as files without well-known text tell it: by its parameters, in any precision and order.
ZONE_32 = {
    "grid_mapping_name": "transverse_mercator",
    "latitude_of_projection_origin": 0.0,
    "longitude_of_central_meridian": 9.0,
    "scale_factor_at_central_meridian": 0.9996,
    "false_easting": 500000.0,
    "false_northing": 0.0,
}
ZONE_33 = {**ZONE_32, "longitude_of_central_meridian": 15.0}
TWO_PARALLELS = {"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": np.array([30.0, 60.0], dtype=np.float32)}
POLE = {"grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": 198.0}


def by_parameters(path, attributes):
    """What the file of a grid mapping without well-known text says of its reference system."""
    parts = {"v": ("i", [1.0], {"grid_mapping": "m"}), "x": ("i", [5.0], {"units": "km"}), "y": ("i", [50.0]), "m": ((), 0)}
    parts["m"] = (*parts["m"], attributes)
    xarray.Dataset(parts).to_netcdf(path)
    table = load_table(path, ("x", "v"))
    assert table.units == {"x": "km"}
    return table.crs


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ZONE_32, ZONE_33),
        (TWO_PARALLELS, {**TWO_PARALLELS, "standard_parallel": [30.0, 50.0]}),
        (POLE, {**POLE, "grid_north_pole_longitude": 180.0}),
        (ZONE_32, POLE),
    ],
)
def test_projections_differ_by_their_parameters(tmp_path, ours, theirs):
    """And are one where these are written otherwise."""
    one, other = (by_parameters(tmp_path / name, attributes) for name, attributes in (("a.nc", ours), ("b.nc", theirs)))
    again = dict(reversed([(key, value if isinstance(value, str) else np.float32(value)) for key, value in ours.items()]))
    same = by_parameters(tmp_path / "c.nc", {**again, "north_pole_grid_longitude": 0.0})
    assert one.contradicts(other) and other.contradicts(one) and one.label != other.label
    assert not one.contradicts(same) and not one.contradicts(Crs(ours["grid_mapping_name"], False))
    assert (one.is_geographic, one.unit) == (False, "")
    with pytest.raises(
        ValueError, match=re.escape(f"b.nc has coordinates in {other.label}, but the fit has them in {one.label};")
    ):
        load_sites(DataSpec("netcdf", "a.nc", ("x", "y"), "v", crs=one.name), tmp_path / "b.nc")


def test_a_projection_by_parameters_is_that_of_a_number(tmp_path):
    crs = by_parameters(tmp_path / "a.nc", ZONE_32)
    assert not crs.contradicts(Crs("EPSG:32632", False)) and crs.contradicts(Crs("EPSG:32633", False))
    told = "false_easting 500000, longitude_of_central_meridian 9, scale_factor_at_central_meridian 0.9996"
    assert crs.label == f"transverse_mercator ({told})"


@pytest.mark.parametrize(
    ("attributes", "label"),
    [
        (
            {"grid_mapping_name": "vertical_perspective", "latitude_of_projection_origin": 5.0},
            " (latitude_of_projection_origin 5)",
        ),
        ({"grid_mapping_name": "transverse_mercator"}, ""),
        ({"grid_mapping_name": "home_made", "earth_radius": 1.0, "_FillValue": 7}, " (earth_radius 1)"),
        ({"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": "30 60", "false_easting": 0.0}, ""),
    ],
)
def test_a_projection_that_lacks_parameters_is_known_by_its_words(tmp_path, attributes, label):
    crs = by_parameters(tmp_path / "a.nc", attributes)
    assert crs == Crs(attributes["grid_mapping_name"] + label, False)


def test_degrees_are_refused_where_the_observations_have_none(tmp_path):
    path = tmp_path / "sites.nc"
    axes = {"x": ("i", [5.0, 6.0], {"units": "degrees_east"}), "y": ("i", [50.0, 51.0], {"units": "degrees_north"})}
    xarray.Dataset(axes).to_netcdf(path)
    with pytest.raises(ValueError, match=r"sites\.nc has geographic coordinates, but the observations have not; transform them"):
        load_sites(DataSpec("csv", "a.csv", ("x", "y"), "v"), path)
    assert load_sites(DataSpec("csv", "a.csv", ("x", "y"), "v", lonlat=True), path).columns["x"].tolist() == [5.0, 6.0]


@pytest.mark.parametrize(
    ("column", "ours", "theirs", "is_one"),
    [
        ("x", "km", "m", False),
        ("t", "days since 2000-01-01", "hours since 2000-01-01", False),
        ("t", "days since 2000-01-01", "days since 2001-01-01", False),
        ("t", "days since 2000-01-01 00:00 +05:00", "days since 2000-01-01 00:00 -05:00", False),
        ("slope", "degrees", "percent", False),
        ("v", "mg", "g", False),
        ("sd", "mg", "g", False),
        ("y", "metres", "Meter", True),
        ("y", "us-ft", "US survey foot", True),
        ("t", "days since 2000-1-1", "d since 2000-01-01T00:00:00Z", True),
    ],
)
def test_units_that_differ_are_refused(tmp_path, column, ours, theirs, is_one):
    parts = dict(zip(("x", "y", "t", "slope", "v", "sd"), np.random.default_rng(0).uniform(size=(6, 9)), strict=True))

    def written(name, unit):
        told = {each: ("i", values, {"units": unit} if each == column else {}) for each, values in parts.items()}
        xarray.Dataset(told).to_netcdf(tmp_path / name)
        return tmp_path / name

    spec = DataSpec("csv", str(written("a.nc", ours)), ("x", "y"), "v", ("slope",), time="t", error_sd="sd")
    told, other = load_dataset(spec).spec, written("b.nc", theirs)
    for read in (lambda: load_sites(told, other), lambda: load_dataset(replace(told, source=str(other)))):
        if is_one:
            assert read()
            continue
        with pytest.raises(
            ValueError, match=rf"column '{column}' of b\.nc is in '{re.escape(theirs)}', but in '{re.escape(ours)}'"
        ):
            read()


# on the way out

IN_METRES = DataSpec(
    "geopackage", "a.gpkg", ("x", "y"), "zinc", units={"x": "metre", "y": "metre", "zinc": "ppm"}, crs="EPSG:28992"
)
IN_DEGREES = DataSpec("csv", "a.csv", ("lon", "lat"), "t", lonlat=True)
BY_TEXT = DataSpec("netcdf", "a.nc", ("x", "y"), "v", crs=pyproj.CRS("+proj=utm +zone=32 +ellps=bessel").to_wkt())


def predicted(spec, grid=(4, 3)):
    places = regular_grid(np.array([[5.0, 50.0], [8.0, 52.0]]), 4, 3)[2]
    values = np.random.default_rng(0).normal(size=12)
    return Predicted(spec, places, Prediction(values, values**2, "field"), grid)


@pytest.mark.parametrize("spec", [IN_METRES, IN_DEGREES, BY_TEXT])
def test_xarray_has_what_the_file_has(tmp_path, spec):
    out = predicted(spec)
    made = to_xarray(out)
    write_predictions(tmp_path / "ours.nc", out)
    made.to_netcdf(tmp_path / "theirs.nc", engine="netcdf4")
    with xarray.open_dataset(tmp_path / "ours.nc") as ours, xarray.open_dataset(tmp_path / "theirs.nc") as theirs:
        assert theirs.identical(made) and ours.drop_attrs(deep=False).identical(made.drop_attrs(deep=False))
        assert ours["prediction"].dims == tuple(reversed(spec.coordinates)) and ours.attrs["title"].startswith("kriging of")
        x, y = spec.coordinates
        nearest = ours["prediction"].sel({x: 6.1, y: 51.2}, method="nearest")
        assert float(nearest) == out.prediction.mean[1 * 4 + 1]
    table = load_table(tmp_path / "theirs.nc", (*spec.coordinates, "prediction", "standard_error"))
    assert all(np.array_equal(table.columns[name], column) for name, column in out.columns.items())
    assert table.crs == Crs(spec.crs or "latitude_longitude", spec.lonlat, "" if spec.lonlat else "metre")
    if "crs" in made and spec.crs:
        assert pyproj.CRS(made["crs"].attrs["spatial_ref"]) == pyproj.CRS(spec.crs)


@pytest.mark.parametrize("spec", [IN_METRES, IN_DEGREES, BY_TEXT])
def test_geodataframe_becomes_a_geopackage_that_reads_back(tmp_path, spec):
    out = predicted(spec, grid=None)
    made = to_geodataframe(out)
    assert made.crs == pyproj.CRS(spec.crs or 4326)
    made.to_file(tmp_path / "a.gpkg")
    table = load_table(tmp_path / "a.gpkg", ("x", "y", "prediction", "standard_error"))
    assert np.array_equal(table.stack(("x", "y")), out.positions)
    assert np.array_equal(table.columns["prediction"], out.prediction.mean)
    assert table.crs.is_geographic == spec.lonlat
    deep = Predicted(DataSpec("csv", "a.csv", ("x", "y", "z"), "v"), np.ones((12, 3)), out.prediction)
    assert to_geodataframe(deep).geometry.has_z.all() and to_geodataframe(deep).crs is None


@pytest.mark.parametrize("name", ["a.parquet", "a.nc"])
def test_the_same_fit_from_every_kind_of_file(tmp_path, capsys, name):
    rng = np.random.default_rng(0)
    columns = {"x": rng.uniform(size=40), "y": rng.uniform(size=40)}
    columns["v"] = np.sin(3 * columns["x"]) + columns["y"] ** 2
    frame = pandas.DataFrame(columns)
    frame.to_csv(tmp_path / "a.csv", index=False)
    gap = pandas.concat([frame, frame.tail(1).assign(v=np.nan)], ignore_index=True)
    if name == "a.nc":
        gap.to_xarray().to_netcdf(tmp_path / name, engine="netcdf4")
    else:
        gap.to_parquet(tmp_path / name)
    models = []
    for source in ("a.csv", name):
        words = ["--x", "x", "--y", "y", "--value", "v", "--smoothness", "1.5", "--output", str(tmp_path / "model.json")]
        assert main(["geostat", "fit", str(tmp_path / source), *words]) == 0
        models.append(json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))["fit"]["model"])
    assert models[0] == models[1] and one_missing(name) in capsys.readouterr().err
