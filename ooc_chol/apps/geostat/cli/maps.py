"""Maps of observed values, predictions and standard errors, which ``fit`` and ``plot`` draw."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.cli.areas import box_corners
from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.cli.scale import Quantity, Scale
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.data.areas import Area, area_sites, masked
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec
from ooc_chol.apps.geostat.data.grids import grid_over
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.prediction import kriging
from ooc_chol.apps.geostat.pictures.plots import MapData, MapLabels, draw_maps, require_matplotlib

#: Points of a map, shared between the axes by their extents: at least and at most, between them four for each observation.
_LEAST_POINTS, _MOST_POINTS = 6_000, 16_000


def draw_prediction_map(
    path: Path,
    dataset: Dataset,
    model: AbstractCovariance,
    settings: FactorSettings,
    *,
    at: float | None = None,
    asked: Namespace | None = None,
    scale: Scale | None = None,
    quantity: Quantity | None = None,
    replace: bool = False,
) -> None:
    """Draw observed, predicted and standard error, or another quantity, over the observations' box or the one asked for."""
    spec = dataset.spec
    area = _map_area(dataset, asked)
    sites, area, notes = area_sites(spec, area, at)
    for text in notes:
        note(text)
    with kriging(dataset.observations, model, settings=settings) as kriged:
        fitted = kriged.predict(spec.cartesian(sites.stack(spec.axes)), covariates=spec.design(sites), target="field")
    shown, (x, y) = _shown(dataset, at), area.grid.axes
    chosen = scale or map_scale(spec)
    found, observed = chosen.of(fitted), chosen.values(dataset.observations.values[shown])
    if quantity is None and "standard_error" not in found.columns:
        quantity = Quantity("quantile", 0.95)
    third = found.standard_error if quantity is None else quantity.of(found)
    mean, error = (area.spread(values) for values in (found.mean, third))
    title = None if quantity is None else quantity.title(chosen.spec.value_name)
    is_share = quantity is not None and quantity.kind == "exceed"
    drawn = MapData(dataset.places[shown], observed, x, y, mean, error, quantity=title, is_share=is_share)
    x_label, y_label = spec.axis_labels
    name = f"a Matérn covariance, smoothness {model.smoothness:g}" if isinstance(model, Matern) else type(model).__name__
    when = "" if at is None else f" at {spec.axes[-1]} {at:g}"
    title = f"{chosen.spec.value_name}{when}: kriging{' of its transform' if chosen.transform else ''} with {name}"
    draw_maps(path, drawn, MapLabels(title, chosen.spec.value_label, x_label, y_label, dataset.aspect), replace=replace)


def map_scale(spec: DataSpec) -> Scale:
    """The scale of a map where none is asked for: as observed where ``fit`` transformed the values, by medians without a mean."""
    if spec.transform is None or spec.way_back is None:
        return Scale(spec, None)
    return Scale(spec.as_observed, spec.way_back, "mean" if spec.way_back.has_mean else "median")


def check_map(dataset: Dataset) -> None:
    """Find out early whether a map can be drawn."""
    require_matplotlib()
    if dataset.places.shape[1] != 2 or dataset.spec.columns_off_grid:
        raise ValueError(
            "a map needs two coordinates, and covariates other than these are not known between the observations; leave out the "
            "map, or fit with rasters (--raster NAME=FILE.tif)"
        )


def _map_area(dataset: Dataset, asked: Namespace | None) -> Area:
    """The box of the observations, or that of the options, within their mask."""
    corners = dataset.places
    if asked is not None and asked.box is not None:
        corners = np.array(box_corners(asked.box))
    area = Area(grid_over(corners.min(axis=0), corners.max(axis=0), _map_size(corners, len(dataset.places))))
    return area if asked is None or asked.mask is None else masked(area, asked.mask, dataset.spec)


def _shown(dataset: Dataset, at: float | None) -> NDArray[np.bool_]:
    """Observations on a map: all, or those of the time or variable nearest to the one that is drawn."""
    if at is None:
        return np.ones(dataset.observations.n, dtype=np.bool_)
    away = np.abs(dataset.positions[:, -1] - at)
    return np.asarray(away == away.min())


def _map_size(positions: NDArray[np.float64], n: int) -> tuple[int, int]:
    """Columns and rows of a map with about square cells, half as wide as observations are apart where these are not too many."""
    points = int(np.clip(4 * n, _LEAST_POINTS, _MOST_POINTS))
    extent = np.maximum(np.ptp(positions, axis=0), 1e-3 * np.ptp(positions, axis=0).max())
    columns = int(np.clip(round(math.sqrt(points * extent[0] / extent[1])), 2, points // 2))
    return columns, max(2, points // columns)
