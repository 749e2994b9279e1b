"""The column of points that a GeoParquet file tells of in its metadata (geoparquet.org/releases/v1.0.0)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.crs import Crs, described
from ooc_chol.apps.geostat.data.geometry_points import AXES, point_coordinates

#: The reference system of a file that says nothing of it.
_UNTOLD = "OGC:CRS84"


@dataclass(frozen=True)
class PointColumn:
    """A column of points."""

    name: str  #: Of the column
    axes: tuple[str, ...]  #: Names of its coordinates
    system: Any  #: PROJ's JSON; None where no system is known, a name where the file says nothing

    def coordinates(self, column: Any, source: str) -> dict[str, NDArray[np.float64]]:
        """Coordinates by name; NaN where there is no point."""
        shapes = np.array(column.to_pylist(), dtype=object)
        found = point_coordinates(shapes, f"{source} row", np.arange(1, len(shapes) + 1))
        return dict(zip(AXES, found, strict=True))

    def crs(self, source: str) -> Crs | None:
        """The reference system."""
        if self.system is None:
            return None
        return described(self.system if isinstance(self.system, str) else json.dumps(self.system), source)


def point_column(schema: Any) -> PointColumn | None:
    """The primary column of a schema of pyarrow, if it holds points in well-known binary; None where there is none."""
    text = (schema.metadata or {}).get(b"geo")
    if text is None:
        return None
    told = tb.parse_json(text.decode("utf-8", "replace"))
    try:
        name = told["primary_column"]
        column = told["columns"][name]
        kinds = column["geometry_types"]
        is_points = column["encoding"] == "WKB" and set(kinds) <= {"Point", "Point Z"} and name in schema.names
        system = column.get("crs", _UNTOLD)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"its metadata are no GeoParquet: {error!r:.100}") from error
    if not is_points:
        return None
    if not isinstance(system, str | dict | None):
        raise ValueError("its metadata are no GeoParquet: the reference system is no object")
    return PointColumn(name, AXES if "Point Z" in kinds else AXES[:2], system)
