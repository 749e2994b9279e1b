"""Maps of observed values, predictions and standard errors, which ``fit`` and ``plot`` draw."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.cli.scale import Quantity, Scale
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec, grid_table, regular_grid
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
    scale: Scale | None = None,
    quantity: Quantity | None = None,
    replace: bool = False,
) -> None:
    """Draw observed, predicted and standard error, or another quantity, over the bounding box of the observations."""
    spec, positions = dataset.spec, dataset.places
    x, y, points = regular_grid(positions, *_map_size(positions))
    sites = grid_table(spec, points, at)
    with kriging(dataset.observations, model, settings=settings) as kriged:
        fitted = kriged.predict(spec.cartesian(sites.stack(spec.axes)), covariates=spec.design(sites), target="field")
    shown, shape = _shown(dataset, at), (len(y), len(x))
    chosen = scale or map_scale(spec)
    grid, values = chosen.of(fitted), chosen.values(dataset.observations.values[shown])
    if quantity is None and "standard_error" not in grid.columns:
        quantity = Quantity("quantile", 0.95)
    third = grid.standard_error if quantity is None else quantity.of(grid)
    drawn = MapData(
        positions[shown],
        values,
        x,
        y,
        grid.mean.reshape(shape),
        third.reshape(shape),
        quantity=None if quantity is None else quantity.title(chosen.spec.value_name),
        is_share=quantity is not None and quantity.kind == "exceed",
    )
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
        raise ValueError("a map needs two coordinates, and covariates are not known between the observations; leave out the map")


def _shown(dataset: Dataset, at: float | None) -> NDArray[np.bool_]:
    """Observations on a map: all, or those of the time or variable nearest to the one that is drawn."""
    if at is None:
        return np.ones(dataset.observations.n, dtype=np.bool_)
    away = np.abs(dataset.positions[:, -1] - at)
    return np.asarray(away == away.min())


def _map_size(positions: NDArray[np.float64]) -> tuple[int, int]:
    """Columns and rows of a map with about square cells, half as wide as observations are apart where these are not too many."""
    points = int(np.clip(4 * len(positions), _LEAST_POINTS, _MOST_POINTS))
    extent = np.maximum(np.ptp(positions, axis=0), 1e-3 * np.ptp(positions, axis=0).max())
    columns = int(np.clip(round(math.sqrt(points * extent[0] / extent[1])), 2, points // 2))
    return columns, max(2, points // columns)
