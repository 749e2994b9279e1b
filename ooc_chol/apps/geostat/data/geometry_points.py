"""Points and words of files that have geometries: GeoPackages and GeoParquet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.io import MISSING

#: The coordinates of a point, as columns.
AXES = ("x", "y", "z")


def point_coordinates(shapes: NDArray[Any], where: str, features: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """Coordinates of points in well-known binary; NaN where one is null or empty, or has no ``z``."""
    shapely = imported("shapely", "points are read")
    points = shapely.from_wkb(shapes, on_invalid="ignore")
    for k in (k for k in np.flatnonzero(shapely.is_missing(points)) if shapes[k] is not None):
        raise ValueError(f"{where} {features[k]}: its geometry is no point, and GEOS cannot read it; take centroids first")
    for k in np.flatnonzero(shapely.get_type_id(points) > 0):
        raise ValueError(f"{where} {features[k]}: its geometry is no point but a {points[k].geom_type}; take centroids first")
    points[shapely.is_empty(points)] = None
    return [shapely.get_x(points), shapely.get_y(points), shapely.get_z(points)]


def text_column(column: NDArray[Any]) -> NDArray[np.str_]:
    """Words of a column, empty where there is none."""
    texts = ["" if value is None else str(value).strip() for value in column]
    return np.array(["" if text.lower() in MISSING else text for text in texts], dtype=np.str_)
