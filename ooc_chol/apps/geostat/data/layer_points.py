"""Layers as points: GeoPandas frames, GeoPackages and GeoParquet."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import Any

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.layer import Layer

#: Name of the column of points.
_GEOMETRY = "geometry"


def write_geopackage(path: str | os.PathLike[str], layer: Layer, replace: bool) -> None:
    """Write points with columns, and the reference system where it is known, into a GeoPackage of one layer."""
    frame = layer_frame(layer).drop(columns=list(layer.spec.coordinates))
    written = io.BytesIO()  # GDAL wants a name of this ending, which a file that is not complete has not
    with tb.output_file(path, replace=replace) as part, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'crs' was not provided")  # where nobody knows it
        frame.to_file(written, driver="GPKG", engine="pyogrio", layer=Path(path).stem)
        part.write_bytes(written.getbuffer())


def write_geoparquet(path: str | os.PathLike[str], layer: Layer, replace: bool) -> None:
    """Write columns with their units; of two or three coordinates also points with their reference system, as GeoParquet."""
    pandas, pyarrow, parquet = (imported(name, "Parquet files are written") for name in ("pandas", "pyarrow", "pyarrow.parquet"))
    frame = layer_frame(layer) if len(layer.spec.coordinates) > 1 else pandas.DataFrame(layer.table)
    units = {**layer.spec.units, **{name: column.unit for name, column in layer.columns.items()}}
    written = io.BytesIO()
    frame.to_parquet(written, index=False)
    table = parquet.read_table(written)  # GeoPandas writes no units
    fields = [one.with_metadata({"units": units[one.name]}) if units.get(one.name) else one for one in table.schema]
    schema = pyarrow.schema(fields, metadata={**table.schema.metadata, "title": layer.title})
    with tb.output_file(path, replace=replace) as part:
        parquet.write_table(table.cast(schema), part)


def layer_frame(layer: Layer) -> Any:
    """A GeoPandas frame of all columns and points, with the reference system where it is known."""
    geopandas = imported("geopandas", "frames are made")
    if _GEOMETRY in layer.table:
        raise ValueError(f"a column is named {_GEOMETRY!r}, as that of the points is; rename it or write CSV")
    points = geopandas.points_from_xy(*layer.positions[:, : len(layer.spec.coordinates)].T)
    return geopandas.GeoDataFrame(layer.table, geometry=points, crs=layer.crs_name)
