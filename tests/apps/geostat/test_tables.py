"""Columns from GeoPackages, NetCDF and Parquet: the same table as from CSV, with units and reference systems."""

from __future__ import annotations

import json
import sqlite3
import struct
import sys
from contextlib import closing

import numpy as np
import pyproj
import pytest
import xarray
from scipy.io import netcdf_file

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import DataSpec, MissingExtraError, chordal_coordinates, load_dataset, load_table
from tests.inside.cli import main
from tests.inside.geostat import Crs, described, file_kind, load_sites, read_netcdf

pytestmark = pytest.mark.usefixtures("one_blas_thread")

RD_NEW = 'PROJCS["Amersfoort / RD New",GEOGCS["Amersfoort",UNIT["degree",0.0174]],PROJECTION["x"],UNIT["metre",1]]'
SYSTEMS = {
    28992: ("RD New", "EPSG", 28992, RD_NEW),
    4326: ("WGS 84", "EPSG", 4326, 'GEOGCS["WGS 84",DATUM["WGS_1984"],UNIT["degree",0.0174]]'),
    -1: ("Undefined Cartesian", "NONE", -1, "undefined"),
    0: ("Undefined geographic", "NONE", 0, "undefined"),
}


def point(*coordinates, kind=1, order="<", envelope=0):
    """A geometry as the standard describes it: header, envelope, well-known binary."""
    boxes = {0: 0, 1: 4, 2: 6, 3: 6, 4: 8}
    flags = (envelope << 1) | (order == "<")
    header = (
        b"GP"
        + bytes([0, flags])
        + struct.pack(f"{order}i", 4326)
        + struct.pack(f"{order}{boxes[envelope]}d", *[0.0] * boxes[envelope])
    )
    return header + bytes([order == "<"]) + struct.pack(f"{order}I{len(coordinates)}d", kind, *coordinates)


def shape(kind, *rings):
    """A geometry of several rings or parts, in the binary of a GeoPackage without envelope."""
    return point()[:8] + struct.pack("<BII", 1, kind, len(rings)) + b"".join(rings)


def ring(*coordinates):
    """A ring of points in two dimensions."""
    return struct.pack(f"<I{len(coordinates)}d", len(coordinates) // 2, *coordinates)


#: What GDAL reads and GEOS does not: a surface of triangles, one triangle, a ring that does not end where it begins.
TRIANGLE = ring(0, 0, 1, 0, 0, 1, 0, 0)
NOT_OF_GEOS = (shape(16, shape(17, TRIANGLE)[8:]), shape(17, TRIANGLE), shape(3, ring(0, 0, 1, 0, 0, 1)))


def write_geopackage(path, rows, *, srs=28992, layers=("soil",), z=0, columns="zinc REAL, note TEXT"):
    """A GeoPackage of points with the tables that the standard asks for."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            """
            PRAGMA application_id = 1196444487;
            PRAGMA user_version = 10300;
            CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT, srs_id INTEGER PRIMARY KEY, organization TEXT,
                organization_coordsys_id INTEGER, definition TEXT, description TEXT);
            CREATE TABLE gpkg_contents (table_name TEXT PRIMARY KEY, data_type TEXT, identifier TEXT,
                description TEXT, last_change DATETIME, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER);
            CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT, geometry_type_name TEXT, srs_id INTEGER,
                z TINYINT, m TINYINT);
            """
        )
        for code, (name, organization, number, definition) in SYSTEMS.items():
            database.execute(
                "INSERT INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, ?, '')", (name, code, organization, number, definition)
            )
        for layer in layers:
            database.execute(
                "INSERT INTO gpkg_contents (table_name, data_type, identifier, last_change, srs_id) "
                "VALUES (?, 'features', ?, '2026-01-01T00:00:00.000Z', ?)",
                (layer, layer, srs),
            )
            database.execute("INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', 'POINT', ?, ?, 0)", (layer, srs, z))
            quoted = '"' + layer.replace('"', '""') + '"'
            database.execute(f"CREATE TABLE {quoted} (fid INTEGER PRIMARY KEY, geom BLOB, {columns})")
            marks = ", ".join("?" * (2 + columns.count(",")))
            names = ", ".join(column.split()[0] for column in columns.split(", "))
            database.executemany(f"INSERT INTO {quoted} (geom, {names}) VALUES ({marks})", rows)
    return path


# endings


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", "csv"),
        ("a.txt", "csv"),
        ("a", "csv"),
        ("a.PQ", "parquet"),
        ("a.b/c.parquet", "parquet"),
        ("a.nc", "netcdf"),
        ("a.gpkg", "geopackage"),
        ("C/a.GPKG:top layer", "geopackage"),
        ("a.gpkg:b/c.csv", "csv"),
    ],
)
def test_kind_is_told_by_the_ending(name, kind):
    assert file_kind(name) == kind


# GeoPackage


def test_points_are_read_in_every_encoding(tmp_path):
    rows = [
        (point(1.0, 2.0), 3.0, "a"),
        (point(4.0, 5.0, order=">"), 6, "b"),
        (point(7.0, 8.0, envelope=1), 9.0, None),
        (point(1.5, 2.5, 0.5, kind=1001, envelope=2), 3.5, ""),
        (point(4.5, 5.5, 9.0, kind=2001, envelope=3), 6.5, ""),
        (point(7.5, 8.5, 1.0, 2.0, kind=3001, envelope=4, order=">"), 9.5, ""),
    ]
    table = load_table(write_geopackage(tmp_path / "a.gpkg", rows), ("x", "y", "zinc"))
    expected = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1.5, 2.5, 3.5], [4.5, 5.5, 6.5], [7.5, 8.5, 9.5]]
    assert np.array_equal(table.stack(("x", "y", "zinc")), expected) and table.dropped == 0
    assert table.crs == Crs("EPSG:28992", False, "metre") and table.units == {"x": "metre", "y": "metre"}
    assert table.notes == ()


def test_rows_without_value_or_point_are_dropped_and_counted(tmp_path):
    rows = [
        (point(1.0, 2.0), 3.0, "1"),
        (point(1.0, 2.0), None, "2"),
        (point(np.nan, np.nan), 3.0, "3"),
        (None, 3.0, "4"),
        (point(4.0, 5.0), 6.0, "NA"),
    ]
    path = write_geopackage(tmp_path / "a.gpkg", rows)
    assert load_table(path, ("x", "y", "zinc")).dropped == 3
    both = load_table(path, ("x", "y", "zinc", "note"))
    assert both.dropped == 4 and both.stack(("x", "note")).tolist() == [[1.0, 1.0]]
    table = load_table(path, ("x", "y"), optional=("zinc", "gold"))
    assert table.dropped == 2 and set(table.columns) == {"x", "y", "zinc"}
    assert np.array_equal(table.columns["zinc"], [3.0, np.nan, 6.0], equal_nan=True)


def test_attributes_alone_have_no_reference_system(tmp_path):
    path = write_geopackage(tmp_path / "a.gpkg", [(b"no geometry at all", 1.0, "2.5")])
    table = load_table(path, ("zinc", "note"))
    assert table.crs is None and table.stack(("zinc", "note")).tolist() == [[1.0, 2.5]]


def test_third_coordinates_and_attributes_of_their_names(tmp_path):
    rows = [(point(1.0, 2.0, 3.0, kind=1001), 70.0, 80.0, 90.0), (point(1.0, 2.0), 71.0, 81.0, 91.0)]
    columns = "zinc REAL, z REAL, x REAL"
    deep = load_table(write_geopackage(tmp_path / "a.gpkg", rows, z=2, columns=columns), ("x", "y", "z"))
    assert deep.stack(("x", "y", "z")).tolist() == [[1.0, 2.0, 3.0]] and deep.dropped == 1
    assert deep.notes == ("column x, z of a.gpkg is that of its points, not the attribute of this name",)
    flat = load_table(write_geopackage(tmp_path / "b.gpkg", rows, columns=columns), ("x", "y", "z"))
    assert flat.stack(("x", "y", "z")).tolist() == [[1.0, 2.0, 80.0], [1.0, 2.0, 81.0]]
    with pytest.raises(ValueError, match=r"c\.gpkg has no column 'z'; its columns are: x, y, zinc, note"):
        load_table(write_geopackage(tmp_path / "c.gpkg", [(point(0.0, 0.0), 1.0, "")]), ("z",))


def test_layers_are_named(tmp_path):
    path = write_geopackage(tmp_path / "a.gpkg", [(point(1.0, 2.0), 3.0, "")], layers=("deep soil", 'top "soil"'))
    with pytest.raises(ValueError, match=r'several layers; write a\.gpkg:LAYER with one of its layers: deep soil, top "soil"'):
        load_table(path, ("x",))
    assert load_table(f'{path}:top "soil"', ("x",)).columns["x"].tolist() == [1.0]
    with pytest.raises(ValueError, match=r"has no layer 'gravel'"):
        load_table(f"{path}:gravel", ("x",))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((point(1.0, 2.0), "many", ""), r"a\.gpkg:soil feature 1, column 'zinc': 'many' is not a number"),
        ((point(1.0, 2.0), np.inf, ""), r"a\.gpkg row 1, column 'zinc': inf is not finite"),
        ((point(1.0, 2.0), b"blob", ""), r"column 'zinc': b'blob' is not a number"),
        ((point(1.0, 2.0, kind=2), 3.0, ""), r"soil feature 1: its geometry is no point but a LineString; take centroids"),
        *(
            ((other, 3.0, ""), r"soil feature 1: its geometry is no point, and GEOS cannot read it; take")
            for other in NOT_OF_GEOS
        ),
        ((b"\x01\x02", 3.0, ""), r"soil feature 1: its geometry is damaged; mend or delete it"),
        ((point(1.0, 2.0)[:-3], 3.0, ""), r"soil feature 1: its geometry is damaged; mend or delete it"),
        ((None, None, ""), r"no row with a value in every column used \(x, y, zinc\); 1 rows were dropped"),
    ],
)
def test_what_is_wrong_in_a_geopackage_is_named(tmp_path, row, words):
    with pytest.raises(ValueError, match=words):
        load_table(write_geopackage(tmp_path / "a.gpkg", [row]), ("x", "y", "zinc"))


@pytest.mark.parametrize("package", ["pyogrio", "shapely", "pyproj"])
def test_what_reads_a_geopackage_is_named_where_it_is_missing(tmp_path, monkeypatch, package):
    path = write_geopackage(tmp_path / "a.gpkg", [(point(1.0, 2.0), 3.0, "")])
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"by {package}, which is not installed: .*pip install '\.\[io\]'"):
        load_table(path, ("x", "zinc"))


def test_what_is_no_geopackage_is_said(tmp_path):
    (tmp_path / "a.gpkg").write_text("x,y\n1,2\n" * 200)
    sqlite3.connect(tmp_path / "b.gpkg").close()
    for name in ("a.gpkg", "b.gpkg"):
        with pytest.raises(ValueError, match=f"{name} is not a GeoPackage"):
            load_table(tmp_path / name, ("x",))
    with pytest.raises(FileNotFoundError, match=r"nothing\.gpkg"):
        load_table(tmp_path / "nothing.gpkg", ("x",))
    assert not (tmp_path / "nothing.gpkg").exists()


# NetCDF


def test_grid_becomes_rows_with_scale_mask_and_units(tmp_path):
    path = tmp_path / "a.nc"
    with netcdf_file(path, "w") as content:
        content.createDimension("lat", 2)
        content.createDimension("lon", 3)
        content.createDimension("time", 1)
        for name, values, unit in (("lat", [50, 51], b"degrees_north"), ("lon", [5, 6, 7], b"degrees_east")):
            made = content.createVariable(name, "f", (name,))
            made[:] = values
            made.units = unit
        packed = content.createVariable("t", "h", ("time", "lat", "lon"))
        packed.scale_factor, packed.add_offset, packed._FillValue, packed.units = 0.5, 10.0, np.int16(-9), b"K"
        packed[:] = [[[0, 2, 4], [-9, 8, 10]]]
    table = load_table(path, ("lon", "lat", "t"))
    expected = [[5, 50, 10], [6, 50, 11], [7, 50, 12], [6, 51, 14], [7, 51, 15]]
    assert np.array_equal(table.stack(("lon", "lat", "t")), expected) and table.dropped == 1
    assert table.units == {"lat": "degrees_north", "lon": "degrees_east", "t": "K"}
    assert table.columns["t"].dtype == np.float64 and table.columns["t"].dtype.isnative
    dataset = load_dataset(DataSpec("csv", str(path), ("lon", "lat"), "t"))
    assert dataset.spec.lonlat and dataset.spec.kind == "netcdf" and dataset.spec.value_label == "t (K)"
    assert (
        dataset.notes[0]
        == "a.nc has geographic coordinates (degrees east and north): distances are chords in kilometres, as with --lonlat"
    )
    with pytest.raises(ValueError, match=r"column 'lat' of a\.nc is the latitude: give the longitude first"):
        load_dataset(DataSpec("csv", str(path), ("lat", "lon"), "t"))


def test_values_along_one_dimension(tmp_path):
    path = tmp_path / "a.nc"
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=7) for name in ("x", "y", "zinc")}
    xarray.Dataset({name: ("site", column, {"units": "m"}) for name, column in columns.items()}).to_netcdf(path)
    table = load_table(path, ("x", "y"), optional=("zinc", "gold"))
    assert all(np.array_equal(table.columns[name], column) for name, column in columns.items())
    assert table.crs is None and table.units == dict.fromkeys(columns, "m")


def test_grid_mapping_is_the_reference_system(tmp_path):
    path = tmp_path / "a.nc"
    variables = {
        "x": ("site", np.arange(3.0)),
        "v": ("site", np.arange(3.0), {"grid_mapping": "crs"}),
        "crs": ((), 0.0, {"spatial_ref": "EPSG:28992"}),
    }
    xarray.Dataset(variables).to_netcdf(path)
    assert load_table(path, ("x", "v")).crs == Crs("EPSG:28992", False, "metre")
    assert load_table(path, ("x",)).crs is None
    variables["crs"] = ((), 0.0, {"grid_mapping_name": "latitude_longitude"})
    xarray.Dataset(variables).to_netcdf(path)
    assert load_table(path, ("v",)).crs == Crs("latitude_longitude", True)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("x", "gold"), r"a\.nc has no column 'gold'; its columns are: x, other, name"),
        (("x", "other"), r"is along (station|site), another along (site|station); one variable must span"),
        (("name",), r"variable 'name' holds \|S1, not numbers"),
    ],
)
def test_what_is_wrong_in_a_netcdf_file_is_named(tmp_path, names, words):
    with netcdf_file(tmp_path / "a.nc", "w") as content:
        for name, dimension, kind in (("x", "site", "d"), ("other", "station", "d"), ("name", "letter", "c")):
            content.createDimension(dimension, 3)
            content.createVariable(name, kind, (dimension,))[:] = b"abc" if kind == "c" else 1.0
    with pytest.raises(ValueError, match=words):
        load_table(tmp_path / "a.nc", names)


def test_what_is_no_netcdf_is_said(tmp_path, monkeypatch):
    (tmp_path / "a.nc").write_text("x,y")
    with pytest.raises(ValueError, match=r"a\.nc is not a NetCDF file: it begins with b'x,y'"):
        read_netcdf(tmp_path / "a.nc", ("x",))
    (tmp_path / "b.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setitem(sys.modules, "netCDF4", None)
    with pytest.raises(
        MissingExtraError, match=r"NetCDF files are read by netCDF4, which is not installed: .*pip install '\.\[io\]'"
    ):
        read_netcdf(tmp_path / "b.nc", ("x",))


# Parquet


def test_without_pyarrow_parquet_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r"Parquet files are read by pyarrow, which is not installed: .*pip install '\.\[io\]'"
    ):
        load_table(tmp_path / "a.parquet", ("x",))


# reference systems, from file to result

#: As GDAL 2 wrote it, with a transformation to another datum inside.
RD_WITH_SHIFT = """PROJCS["Amersfoort / RD New",GEOGCS["Amersfoort",DATUM["Amersfoort",
SPHEROID["Bessel 1841",6377397.155,299.1528128],
TOWGS84[565.2369,50.0087,465.658,-0.406857,0.350733,-1.870347,4.0812]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433],
AUTHORITY["EPSG","4289"]],PROJECTION["Oblique_Stereographic"],PARAMETER["latitude_of_origin",52.15616055555555],
PARAMETER["central_meridian",5.38763888888889],PARAMETER["scale_factor",0.9999079],PARAMETER["false_easting",155000],
PARAMETER["false_northing",463000],UNIT["metre",1],AUTHORITY["EPSG","28992"]]"""
UTM_IN_FEET = pyproj.CRS("+proj=utm +zone=32 +ellps=bessel +units=us-ft").to_wkt()
DEGREES_AND_HEIGHT = pyproj.CRS("EPSG:4326+5773").to_wkt()


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (RD_WITH_SHIFT, Crs("EPSG:28992", False, "metre")),
        (UTM_IN_FEET, Crs(UTM_IN_FEET, False, "US survey foot")),
        (DEGREES_AND_HEIGHT, Crs(DEGREES_AND_HEIGHT, True, "degrees")),
        (pyproj.CRS(4979).to_wkt(), Crs("EPSG:4979", True, "degrees")),
        (pyproj.CRS(4978).to_wkt(), Crs("EPSG:4978", False, "metre")),
        (pyproj.CRS(7415).to_wkt("WKT1_GDAL"), Crs("EPSG:7415", False, "metre")),
        ("undefined", Crs("undefined", False)),
    ],
)
def test_well_known_text_tells_number_degrees_and_unit(definition, expected):
    assert described(definition, "a.nc") == expected


def test_well_known_text_that_is_not_understood_is_no_name():
    with pytest.raises(ValueError, match=r"a\.nc has a reference system that PROJ does not understand: GEOGCS"):
        described('GEOGCS["WGS 84",UNIT["degree",0.0174]]', "a.nc")


@pytest.mark.parametrize(
    ("one", "other", "contradicts"),
    [
        (Crs("EPSG:28992", False), Crs(pyproj.CRS(28992).to_wkt("WKT1_ESRI"), False), False),
        (Crs("EPSG:4326", True), Crs("OGC:CRS84", True), False),
        (Crs("EPSG:4326", True), Crs("latitude_longitude", True), False),
        (Crs("EPSG:4326", True), Crs("EPSG:4258", True), True),
        (Crs("EPSG:28992", False), Crs(UTM_IN_FEET, False), True),
        (Crs("EPSG:28992", False), Crs("transverse_mercator", False), True),
        (Crs(UTM_IN_FEET, False), Crs("unknown", False), False),
    ],
)
def test_one_system_may_have_several_names(one, other, contradicts):
    assert one.contradicts(other) == other.contradicts(one) == contradicts


def example_rows(n=60, scale=1.0, offset=(0.0, 0.0)):
    rng = np.random.default_rng(0)
    sites = rng.uniform(size=(n, 2)) * scale + offset
    return [(point(x, y), float(np.sin(3 * x / scale) + y / scale), "") for x, y in sites]


def test_geographic_systems_mean_chords(tmp_path):
    path = write_geopackage(tmp_path / "a.gpkg", example_rows(offset=(5.0, 50.0)), srs=4326)
    dataset = load_dataset(DataSpec("csv", str(path), ("x", "y"), "zinc"))
    assert dataset.spec.lonlat and dataset.spec.crs == "EPSG:4326" and dataset.spec.unit == "km"
    assert dataset.notes == (
        "a.gpkg has geographic coordinates (EPSG:4326): distances are chords in kilometres, as with --lonlat",
    )
    assert np.array_equal(dataset.observations.coordinates, chordal_coordinates(*dataset.positions.T))
    # asked for, it needs no note
    assert load_dataset(DataSpec("csv", str(path), ("x", "y"), "zinc", lonlat=True)).notes == ()


def test_systems_that_contradict_are_refused(tmp_path):
    path = write_geopackage(tmp_path / "a.gpkg", example_rows(scale=1000.0))
    spec = DataSpec("csv", str(path), ("x", "y"), "zinc")
    told = load_dataset(spec).spec
    assert (
        not told.lonlat and told.crs == "EPSG:28992" and told.unit == "metre" and told.axis_labels == ("x (metre)", "y (metre)")
    )
    with pytest.raises(ValueError, match="in EPSG:28992, which are no longitude and latitude; leave out --lonlat"):
        load_dataset(DataSpec("csv", str(path), ("x", "y"), "zinc", lonlat=True))
    other = write_geopackage(tmp_path / "b.gpkg", example_rows(offset=(5.0, 50.0)), srs=4326)
    with pytest.raises(ValueError, match="in EPSG:4326, but the fit has them in EPSG:28992; transform them first"):
        load_sites(told, other)
    # files that tell none are taken at their word
    plain = write_geopackage(tmp_path / "c.gpkg", example_rows(scale=1000.0), srs=-1)
    assert load_sites(told, plain).crs is None
    unknown = write_geopackage(tmp_path / "d.gpkg", example_rows(), srs=0)
    assert load_dataset(DataSpec("csv", str(unknown), ("x", "y"), "zinc")).spec.crs.startswith('GEOGCS["Undefined geographic')


def test_fit_keeps_units_and_system_and_predicts_to_netcdf(tmp_path, capsys):
    data = str(write_geopackage(tmp_path / "a.gpkg", [*example_rows(scale=1000.0), (None, 1.0, "")]))
    model, grid, sites = (tmp_path / name for name in ("model.json", "grid.nc", "sites.nc"))
    words = ["--x", "x", "--y", "y", "--value", "zinc", "--smoothness", "1.5", "--output", str(model)]
    assert main(["geostat", "fit", data, *words]) == 0
    told = capsys.readouterr()
    assert "range " in told.out and " metre; effective range" in told.out and "1 rows of a.gpkg lack a value" in told.err
    saved = json.loads(model.read_text(encoding="utf-8"))["data"]
    assert saved["kind"] == "geopackage" and saved["crs"] == "EPSG:28992" and saved["units"] == {"x": "metre", "y": "metre"}
    assert main(["geostat", "predict", str(model), data, "--grid", "4,3", "--output", str(grid)]) == 0
    beside = str(write_geopackage(tmp_path / "b.gpkg", example_rows(scale=1000.001)))
    assert main(["geostat", "predict", str(model), data, beside, "--output", str(sites)]) == 0
    assert "held out     60 values" in capsys.readouterr().out
    table = load_table(grid, ("x", "y", "prediction", "standard_error"))
    assert len(table.columns["x"]) == 12 and table.crs == Crs("EPSG:28992", False, "metre")
    there = load_table(sites, ("x", "y", "prediction"))
    assert np.array_equal(there.columns["x"], load_table(beside, ("x",), optional=("zinc",)).columns["x"])
    assert main(["geostat", "predict", str(model), data, "--grid", "4,3", "--output", str(tmp_path / "out.xlsx")]) == 2
    assert "predictions are written as .csv, " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.gpkg", "a.parquet", "A.NC", "a.nc4", "a.pq"])
def test_names_of_other_kinds_are_no_text(tmp_path, name):
    """Files that would be read as columns that are not there, or as no UTF-8, are sent to the function that reads them."""
    (tmp_path / name).write_bytes(b"x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"is no text by its ending; load_table reads it"):
        geostat.read_table(tmp_path / name, ["x"])
