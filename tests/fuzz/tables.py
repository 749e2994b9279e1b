"""Tables, results and logs of the geostatistics commands."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ooc_chol.apps.geostat import (
    Area,
    Column,
    DataSpec,
    FactorSettings,
    Layer,
    fit,
    grid_over,
    load_dataset,
    log_likelihood,
    make_observations,
    masked,
    write_layer,
)
from tests.fuzz import attacks
from tests.fuzz.mutations import BLIND, TEXT, Mutator
from tests.inside.geostat import (
    columns_of,
    geometry_axes,
    read_result,
    result_content,
    write_json,
    write_table,
)
from tests.inside.geostat import fit as fit_command  # noqa: F401 - the parts of a fit are imported before a case

_N = 14
_RNG = np.random.default_rng(5)
COLUMNS = {
    "x": _RNG.uniform(size=_N),
    "y": _RNG.uniform(size=_N),
    "z": _RNG.normal(size=_N),
    "dist": _RNG.uniform(1.0, 2.0, size=_N),
}
_FIT = {"smoothness": 0.5, "method": "fisher", "max_evaluations": 3, "settings": FactorSettings(tile_size=8)}


def _read_dataset(path: Path | str) -> None:
    """What every command does with a table."""
    names = columns_of(path)
    assert len(names) >= 0
    spec = DataSpec("csv", str(path), ("x", "y"), "z", covariates=("dist",))
    load_dataset(spec)


def _write_csv(path: Path) -> None:
    write_table(path, COLUMNS)


def _write_parquet(path: Path) -> None:
    import pandas as pd

    pd.DataFrame(COLUMNS).to_parquet(path)


def _write_netcdf3(path: Path) -> None:
    import xarray

    units = {"x": {"units": "m", "grid_mapping": "crs"}, "y": {"units": "m"}}
    variables = {name: ("site", column, units.get(name, {})) for name, column in COLUMNS.items()}
    mapping = {"grid_mapping_name": "transverse_mercator", "crs_wkt": "EPSG:28992"}
    xarray.Dataset({**variables, "crs": ((), 0.0, mapping)}).to_netcdf(path, format="NETCDF3_64BIT", engine="scipy")


def _write_netcdf4(path: Path) -> None:
    import netCDF4

    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("site", _N)
        for name, column in COLUMNS.items():
            made = file.createVariable(name, "f8", ("site",), zlib=True)
            made[:] = column
            made.units = "m"


def _write_netcdf5(path: Path) -> None:
    import netCDF4

    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as file:
        file.createDimension("site", _N)
        for name, column in COLUMNS.items():
            file.createVariable(name, "f8", ("site",))[:] = column


def _write_geopackage(path: Path) -> None:
    import geopandas

    places = geopandas.points_from_xy(COLUMNS["x"], COLUMNS["y"])
    attributes = {name: COLUMNS[name] for name in ("z", "dist")}
    geopandas.GeoDataFrame(attributes, geometry=places, crs="EPSG:28992").to_file(path, layer="soil")


_GRID = grid_over([0.0, 0.0], [1.0, 1.0], (5, 5))


def _layer() -> Layer:
    """Values on a grid that covers the sites."""
    spec = DataSpec("csv", "", ("x", "y"), "dist", crs="EPSG:28992")
    return Layer(spec, _GRID.points(0, _GRID.size), {"dist": Column(np.linspace(1.0, 2.0, 25))}, "a raster", _GRID)


def _write_layer(path: Path) -> None:
    write_layer(path, _layer(), replace=True)


def _write_points(path: Path) -> None:
    """GeoParquet with words in a column."""
    import geopandas

    places = geopandas.points_from_xy(COLUMNS["x"], COLUMNS["y"])
    attributes = {"z": COLUMNS["z"], "dist": ["near", "far"] * (_N // 2)}
    geopandas.GeoDataFrame(attributes, geometry=places, crs="EPSG:28992").to_parquet(path)


def _read_points(path: Path) -> None:
    """What a fit does with points that tell their own coordinates, and a factor."""
    geometry_axes(path)
    load_dataset(DataSpec("csv", str(path), ("x", "y"), "z", covariates=("dist",), formula="z ~ dist"))


def _read_drift(path: Path) -> None:
    """What a fit with external drift does with a raster, and a mask."""
    table = path.with_name("sites-of-a-raster.csv")
    if not table.exists():
        write_table(table, COLUMNS)
    load_dataset(DataSpec("csv", str(table), ("x", "y"), "z", covariates=("dist",), rasters={"dist": str(path)}))
    masked(Area(_GRID), path, _layer().spec)


def _observations() -> Any:
    sites = np.column_stack([COLUMNS["x"], COLUMNS["y"]])
    return make_observations(sites, COLUMNS["z"])


def _write_result(path: Path) -> None:
    table = path.with_name("table.csv")
    if not table.exists():
        write_table(table, COLUMNS)
    spec = DataSpec("csv", str(table), ("x", "y"), "z", covariates=("dist",))
    write_json(path, result_content(spec, fit(load_dataset(spec).observations, **_FIT)), replace=True)


def _use_result(path: Path) -> None:
    """What prediction does first."""
    saved = read_result(path)
    assert all(len(saved.spec.names) >= 1 for _ in saved.estimated)
    dataset = load_dataset(saved.spec)
    log_likelihood(dataset.observations, saved.model, settings=FactorSettings(tile_size=8))


def _write_log(path: Path) -> None:
    fit(_observations(), **_FIT, checkpoint=path)


def _go_on(path: Path) -> None:
    fit(_observations(), **_FIT, checkpoint=path)


def readers(json_changed: Mutator, json_lines_changed: Mutator) -> Iterator[tuple[Any, ...]]:
    """Words of each ``Reader``, in its order."""
    yield "csv", "a.csv", _write_csv, _read_dataset, (*BLIND, *TEXT, *TEXT), attacks.of_csv
    yield "asc", "a.asc", _write_layer, _read_drift, (*BLIND, *TEXT), attacks.of_asc
    yield "raster-netcdf", "a.nc", _write_layer, _read_drift, BLIND
    yield "geoparquet", "a.parquet", _write_points, _read_points, BLIND
    if importlib.util.find_spec("rasterio") is not None:
        yield "tif", "a.tif", _write_layer, _read_drift, BLIND
    yield "parquet", "a.parquet", _write_parquet, _read_dataset, BLIND, attacks.of_parquet
    yield "netcdf3", "a.nc", _write_netcdf3, _read_dataset, BLIND
    yield "netcdf4", "a.nc", _write_netcdf4, _read_dataset, BLIND, attacks.of_netcdf4
    yield "netcdf5", "a.nc", _write_netcdf5, _read_dataset, BLIND, attacks.of_netcdf5
    geopackage = (*BLIND, *[attacks.geopackage_changed] * 10)
    yield "geopackage", "a.gpkg", _write_geopackage, _read_dataset, geopackage, attacks.of_geopackage
    yield "result", "a.json", _write_result, _use_result, (*BLIND, *TEXT, *[json_changed] * 16), attacks.of_json
    yield "log", "a.jsonl", _write_log, _go_on, (*BLIND, *TEXT, *[json_lines_changed] * 16), attacks.of_json_lines
