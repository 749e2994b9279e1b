"""Polygons of vector files, as masks of areas."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.crs import Crs, described
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.geopackage import layer_of
from ooc_chol.apps.geostat.data.geopackage_views import check_views

#: Endings of files whose polygons are read.
POLYGONS = (".gpkg", ".geojson", ".json")
#: Numbers of Shapely for what has an inside: polygons and collections of them.
_AREAS = (3, 6)


def inside_polygons(path: str | os.PathLike[str], points: NDArray[np.float64]) -> tuple[NDArray[np.bool_], Crs | None]:
    """Which points lie in a polygon of a file, borders included, and the file's reference system."""
    text, layer = layer_of(path)
    file = Path(text).absolute()
    if file.suffix.lower() not in POLYGONS:
        raise ValueError(f"{os.fspath(path)}: a mask is a file of polygons ({', '.join(POLYGONS)}) or a raster (.tif, .asc, .nc)")
    tb.input_file(file).close()  # a file that is not there is an OSError with its name
    pyogrio, raw, shapely = (imported(module, "polygons are read") for module in ("pyogrio", "pyogrio.raw", "shapely"))
    try:
        if file.suffix.lower() == ".gpkg":
            check_views(file)
        told, _, shapes, _ = raw.read(file, layer=layer, columns=[])
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise ValueError(f"{file.name} is no file of polygons: {error!s:.300}") from error
    found = shapely.from_wkb(shapes, on_invalid="ignore")
    found = found[~shapely.is_missing(found)]
    if not len(found) or not np.isin(shapely.get_type_id(found), _AREAS).all():
        raise ValueError(f"{file.name} has {'no' if not len(found) else 'other geometries than'} polygons: a mask needs areas")
    whole = shapely.union_all(shapely.make_valid(found))
    shapely.prepare(whole)
    inside = shapely.intersects_xy(whole, points[:, 0], points[:, 1])
    crs = described(told["crs"], file.name) if told["crs"] else None
    return np.asarray(inside), crs
