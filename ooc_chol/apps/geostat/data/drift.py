"""External drift: covariates that rasters have at every place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ooc_chol.apps.geostat.data.crs import Crs
from ooc_chol.apps.geostat.data.formula import parse_formula
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.rasters import Raster, Sampling, read_raster
from ooc_chol.apps.geostat.data.spec import DataSpec


def drifted(spec: DataSpec, table: Table) -> tuple[DataSpec, Table, tuple[str, ...]]:
    """A table with the rasters' values at its places, without rows where one has none; what the rasters tell, and notes of it."""
    if not spec.rasters:
        return spec, table, ()
    rasters = {name: read_raster(path) for name, path in spec.rasters.items()}
    told, notes = _told_by_rasters(spec, table, rasters)
    whole = _sampled(spec, table, rasters)
    is_known = np.logical_and.reduce([np.isfinite(whole.columns[name]) for name in rasters])
    if not is_known.any():
        raise ValueError(
            f"no place of {table.source} has a value of {', '.join(rasters)}: are their coordinates those of the rasters?"
        )
    if dropped := int(np.sum(~is_known)):
        notes += (f"{dropped} places of {table.source} have no value of {', '.join(rasters)} and were left out",)
    kept = {name: column[is_known] for name, column in whole.columns.items()}
    texts = {name: text[is_known] for name, text in whole.texts.items()}
    rows = None if whole.rows is None else whole.rows.take(np.flatnonzero(is_known))
    return told, replace(whole, columns=kept, texts=texts, rows=rows), notes


def with_rasters(spec: DataSpec, table: Table) -> Table:
    """A table with the rasters' values at its places, NaN where one has none."""
    return _sampled(spec, table, {name: read_raster(path) for name, path in spec.rasters.items()})


def _sampled(spec: DataSpec, table: Table, rasters: dict[str, Raster]) -> Table:
    """Values between the centres of cells are interpolated; those of factors, which nothing lies between, are not."""
    places = table.stack(spec.coordinates)
    codes = () if spec.formula is None else parse_formula(spec.formula).factor_columns
    how: dict[str, Sampling] = {name: "nearest" if name in codes else "bilinear" for name in rasters}
    return replace(table, columns={**table.columns, **{name: one.at(places, how[name]) for name, one in rasters.items()}})


def _told_by_rasters(spec: DataSpec, table: Table, rasters: dict[str, Raster]) -> tuple[DataSpec, tuple[str, ...]]:
    """The specification with the reference system of the rasters, where the data tell none; an error where they contradict."""
    ours = None if spec.crs is None else Crs(spec.crs, spec.lonlat)
    for raster in rasters.values():
        if raster.crs is None:
            continue
        if ours is None and raster.crs.is_geographic != spec.lonlat:
            hint = (
                "give --lonlat if these are degrees, too"
                if raster.crs.is_geographic
                else "leave out --lonlat if these are lengths"
            )
            raise ValueError(
                f"{raster.source} has coordinates in {raster.crs.label}, but {table.source} says nothing of its own: {hint}"
            )
        if ours is not None and raster.crs.contradicts(ours):
            there = f"{raster.source} has coordinates in {raster.crs.label}, but {table.source} has them in {ours.label}"
            raise ValueError(f"{there}; transform one first")
        ours = ours or raster.crs
    if ours is None or spec.crs is not None:
        return spec, ()
    units = {**dict.fromkeys(spec.coordinates, ours.unit), **spec.units} if ours.unit else spec.units
    return replace(spec, crs=ours.name, units=units), (
        f"coordinates of {table.source} are taken to be in {ours.label}, as its rasters are",
    )
