"""``ooc-chol geostat plot``: variogram, map and residuals of a fitted model."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.cli.command_options import note
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.data.dataset import Dataset, grid_table, load_dataset, regular_grid
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.prediction import kriging
from ooc_chol.apps.geostat.kriging.residuals import standardised_residuals
from ooc_chol.apps.geostat.pictures.plots import MapData, MapLabels, draw_maps, require_matplotlib, save_figure
from ooc_chol.apps.geostat.pictures.plots_checks import FigureWords, residuals_figure, variogram_figure
from ooc_chol.apps.geostat.pictures.variogram import MAX_SITES, Direction, empirical_variogram, variogram_envelope
from ooc_chol.apps.geostat.results import read_result

#: Points of a map, shared between the axes by their extents.
_MAP_POINTS = 6000


def add_plot(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``plot`` to the commands of ``geostat``.

    Parameters
    ----------
    actions : argparse's sub-parsers
        Where to add it.
    """
    parser = actions.add_parser("plot", help="draw a fitted model: variogram, map or residuals")
    parser.add_argument("what", choices=("variogram", "map", "residuals"), help="the picture")
    parser.add_argument("model", type=Path, metavar="MODEL.json", help="what fit wrote")
    parser.add_argument("data", nargs="?", metavar="DATA", help="the observations (default: the file or example that was fitted)")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE.png", help="write the picture here; .pdf and .svg too"
    )
    parser.add_argument("--estimator", choices=("matheron", "cressie"), default="matheron", help="of the variogram")
    parser.add_argument("--bins", type=int, metavar="N", help="bins of the variogram (default: 15, or 30 pairs a bin)")
    parser.add_argument("--longest", type=float, metavar="H", help="longest distance (default: a third of the diameter)")
    parser.add_argument("--azimuth", type=float, metavar="DEGREES", help="count pairs that point this way, clockwise from north")
    parser.add_argument("--simulations", type=int, default=99, metavar="N", help="of the envelope; 0 for none (default: 99)")
    parser.add_argument(
        "--max-sites",
        type=int,
        default=MAX_SITES,
        metavar="N",
        help=f"variogram of a subsample above this (default: {MAX_SITES})",
    )
    parser.add_argument("--seed", type=int, default=0, help="of subsample and simulations (default: 0)")
    parser.add_argument("--memory-budget", metavar="BYTES", help="memory per device, such as '256 MiB'")
    parser.set_defaults(run=_run)


def draw_prediction_map(path: Path, dataset: Dataset, model: AbstractCovariance, settings: FactorSettings) -> None:
    """Draw observed, predicted and standard error over the bounding box of the observations.

    Parameters
    ----------
    path : Path
        A PNG, or another format that Matplotlib tells from the ending.
    dataset : Dataset
        The observations, in two dimensions and without covariates other than terms in the coordinates.
    model : AbstractCovariance
        The covariance function.
    settings : FactorSettings
        How to factor.

    Raises
    ------
    MissingExtraError
        Matplotlib is not installed.
    NotPositiveDefiniteError
        The correlation matrix is not positive definite in floating point.
    """
    spec, positions = dataset.spec, dataset.positions
    x, y, points = regular_grid(positions, *_map_size(positions))
    with kriging(dataset.observations, model, settings=settings) as kriged:
        covariates = spec.design(grid_table(spec, points))
        grid = kriged.predict(spec.cartesian(points), covariates=covariates, target="field")
    shape = (len(y), len(x))
    drawn = MapData(positions, dataset.observations.values, x, y, grid.mean.reshape(shape), grid.standard_error.reshape(shape))
    x_label, y_label = spec.axis_labels
    name = f"a Matérn covariance, smoothness {model.smoothness:g}" if isinstance(model, Matern) else type(model).__name__
    title = f"{spec.value_name}: kriging with {name}"
    draw_maps(path, drawn, MapLabels(title, spec.value_label, x_label, y_label, dataset.aspect))


def check_map(dataset: Dataset) -> None:
    """Find out early whether a map can be drawn.

    Parameters
    ----------
    dataset : Dataset
        The observations.

    Raises
    ------
    ValueError
        There are not two coordinates, or the mean has columns that are not known between the observations.
    MissingExtraError
        Matplotlib is not installed.
    """
    require_matplotlib()
    if dataset.positions.shape[1] != 2 or dataset.spec.columns_off_grid:
        raise ValueError("a map needs two coordinates, and covariates are not known between the observations; leave out the map")


def _run(options: argparse.Namespace) -> int:
    require_matplotlib()
    if not options.output.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {options.output.parent} to write {options.output.name} into")
    saved = read_result(options.model)
    spec = saved.spec if options.data is None else replace(saved.spec, source=options.data)
    dataset = load_dataset(spec)
    for text in dataset.notes:
        note(text)
    if dataset.observations.n != saved.n:
        note(f"the model was fitted to {saved.n} observations, and {dataset.observations.n} are drawn now")
    settings = FactorSettings(memory_budget=options.memory_budget)
    if options.what == "variogram":
        _variogram(dataset, saved.model, options, settings)
    elif options.what == "map":
        check_map(dataset)
        draw_prediction_map(options.output, dataset, saved.model, settings)
    else:
        _residuals(dataset, saved.model, options.output, settings)
    print(f"{options.what} in {options.output}")
    return 0


def _variogram(dataset: Dataset, model: AbstractCovariance, options: argparse.Namespace, settings: FactorSettings) -> None:
    """Empirical variogram, model and envelope."""
    variogram = empirical_variogram(
        dataset.observations,
        estimator=options.estimator,
        bins=options.bins,
        longest=options.longest,
        direction=None if options.azimuth is None else Direction(options.azimuth),
        max_sites=options.max_sites,
        seed=options.seed,
    )
    for text in variogram.notes:
        note(text)
    envelope = None
    if options.simulations:
        envelope = variogram_envelope(
            dataset.observations, model, variogram, simulations=options.simulations, seed=options.seed, settings=settings
        )
        inside = int(np.sum((envelope.lower <= variogram.semivariance) & (variogram.semivariance <= envelope.upper)))
        print(f"{inside} of {len(variogram.pairs)} semivariances are inside the envelope of {envelope.simulations} simulations")
    spec = dataset.spec
    way = "" if options.azimuth is None else f", azimuth {options.azimuth:g} ± {Direction(0.0).tolerance:g} degrees"
    name = spec.value_name
    words = FigureWords(f"{name}: semivariogram of the residuals of the mean{way}", spec.unit, name, spec.value_unit)
    save_figure(variogram_figure(variogram, words, model=model, envelope=envelope), options.output)


def _residuals(dataset: Dataset, model: AbstractCovariance, path: Path, settings: FactorSettings) -> None:
    """Histogram, quantiles and map of standardised residuals."""
    residuals = standardised_residuals(dataset.observations, model, settings=settings)
    x_label, y_label, *_ = (*dataset.spec.axis_labels, "")
    title = f"{dataset.spec.value_name}: each value predicted from those before it in Morton order"
    save_figure(
        residuals_figure(
            residuals, dataset.positions, MapLabels(title, dataset.spec.value_label, x_label, y_label, dataset.aspect)
        ),
        path,
    )


def _map_size(positions: NDArray[np.float64]) -> tuple[int, int]:
    """Columns and rows of a map with about square cells."""
    extent = np.maximum(np.ptp(positions, axis=0), 1e-3 * np.ptp(positions, axis=0).max())
    columns = int(np.clip(round(math.sqrt(_MAP_POINTS * extent[0] / extent[1])), 2, _MAP_POINTS // 2))
    return columns, max(2, _MAP_POINTS // columns)
