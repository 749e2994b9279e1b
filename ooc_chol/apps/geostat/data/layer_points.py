"""Layers as points: GeoPackages by GDAL, through pyogrio, and GeoParquet by pyarrow."""

from __future__ import annotations

import io
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.layer import Layer

#: Version of the GeoParquet specification that files follow (geoparquet.org/releases/v1.0.0).
_GEOPARQUET = "1.0.0"
#: Name of the column of points.
_GEOMETRY = "geometry"


def write_geopackage(path: str | os.PathLike[str], layer: Layer, replace: bool) -> None:
    """Write points with columns, and the reference system where it is known, into a GeoPackage of one layer."""
    raw = imported("pyogrio.raw", "GeoPackages are written")
    d = len(layer.spec.coordinates)
    columns = {name: values for name, values in layer.table.items() if name not in layer.spec.coordinates}
    written = io.BytesIO()  # GDAL wants a name of this ending, which a file that is not complete has not
    with tb.output_file(path, replace=replace) as part, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'crs' was not provided")  # where nobody knows it
        raw.write(
            written,
            _points(layer),
            list(columns.values()),
            list(columns),
            layer=Path(path).stem,
            driver="GPKG",
            geometry_type="Point" if d == 2 else "Point Z",
            crs=layer.crs_name,
            field_mask=[np.isnan(values) for values in columns.values()],
        )
        part.write_bytes(written.getbuffer())


def write_geoparquet(path: str | os.PathLike[str], layer: Layer, replace: bool) -> None:
    """Write columns with their units; of two or three coordinates also points with their reference system, as GeoParquet."""
    pyarrow, parquet = (imported(module, "Parquet files are written") for module in ("pyarrow", "pyarrow.parquet"))
    spec = layer.spec
    units = {name: spec.units.get(name, "") for name in spec.axes} | {name: c.unit for name, c in layer.columns.items()}
    arrays = {name: pyarrow.array(values, from_pandas=True) for name, values in layer.table.items()}
    fields = [pyarrow.field(name, pyarrow.float64(), metadata={"units": unit} if unit else None) for name, unit in units.items()]
    metadata = {"title": layer.title}
    if len(spec.coordinates) > 1:
        fields.append(pyarrow.field(_GEOMETRY, pyarrow.binary()))
        arrays[_GEOMETRY] = pyarrow.array(_points(layer), type=pyarrow.binary())
        metadata["geo"] = json.dumps(_geo(layer))
    table = pyarrow.Table.from_arrays(list(arrays.values()), schema=pyarrow.schema(fields, metadata=metadata))
    with tb.output_file(path, replace=replace) as part:
        parquet.write_table(table, part)


def _geo(layer: Layer) -> dict[str, Any]:
    """GeoParquet's metadata of the column of points; a system that is not known is null, since none at all means degrees."""
    pyproj = imported("pyproj", "reference systems are written")
    system = None if layer.crs_name is None else pyproj.CRS(layer.crs_name).to_json_dict()
    kind = "Point" if len(layer.spec.coordinates) == 2 else "Point Z"
    told = {"encoding": "WKB", "geometry_types": [kind], "crs": system}
    return {"version": _GEOPARQUET, "primary_column": _GEOMETRY, "columns": {_GEOMETRY: told}}


def _points(layer: Layer) -> NDArray[Any]:
    """The places as points in well-known binary."""
    shapely = imported("shapely", "points are written")
    binary = shapely.to_wkb(shapely.points(layer.positions[:, : len(layer.spec.coordinates)]))
    return np.asarray(binary, dtype=object)
