"""Which endings the names of files that are written may have: a file holds what its name promises, or is refused at the start."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import ooc_chol.toolbox as tb

#: Endings of text in columns with commas between; the empty one stands for a name without an ending.
TABLE = (".csv", ".txt", ".dat", "")
#: Endings of columns at places: text, NetCDF of version 3, GeoPackage, Parquet; and of rasters, which columns on a grid may be.
NETCDF, GEOPACKAGE, PARQUET = (".nc", ".nc3", ".cdf"), (".gpkg",), (".parquet", ".pq")
GEOTIFF, ASCII_GRID = (".tif", ".tiff"), (".asc",)
LAYERS = (*TABLE, *NETCDF, *GEOPACKAGE, *PARQUET)
GRIDS = (*LAYERS, *GEOTIFF, *ASCII_GRID)
#: Endings of a fit's result.
RESULT = (".json", "")


def check_ending(path: str | os.PathLike[str], endings: Sequence[str], what: str) -> None:
    """Raise ``ValueError`` unless ``what`` is written under such a name."""
    suffix = Path(path).suffix.lower()
    if suffix in endings:
        return
    named = [ending for ending in endings if ending]
    listed = f"{', '.join(named[:-1])} or {named[-1]}" if len(named) > 1 else named[0]
    without = ", or without an ending" if "" in endings else ""
    raise ValueError(f"{path}: {what} are written as {listed}{without}, not {f'as {suffix}' if suffix else 'without an ending'}")


def check_output_path(path: str | os.PathLike[str], endings: Sequence[str], what: str) -> None:
    """Find out before the work whether ``what`` can be written there: :func:`check_ending`, and that there is a folder."""
    check_ending(path, endings, what)
    tb.check_outputs([tb.Output("", path)], replace=True)
