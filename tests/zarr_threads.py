"""Threads of Zarr and xarray, which nothing ends: a test module starts them all before its first test looks what it leaves."""

from __future__ import annotations

from pathlib import Path

import xarray
import zarr


def start_zarr_threads(folder: Path) -> None:
    """Read and write so many chunks at once that every thread is started that there will ever be."""
    place = str(folder / "many_chunks")
    group = zarr.create_group(place)
    group.create_array("a", shape=(200,), chunks=(1,), dtype="float64", dimension_names=("row",))[:] = 1.0
    group["a"][:]
    with xarray.open_zarr(place, consolidated=False) as data:
        data["a"].load()
