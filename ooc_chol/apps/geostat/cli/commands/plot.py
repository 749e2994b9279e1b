"""``ooc-chol geostat plot``: variogram, map, residuals and profile likelihood of a fitted model."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.cli.anisotropy import check_anisotropy, draw_anisotropy
from ooc_chol.apps.geostat.cli.areas import add_grid_parts, add_raster, area_files, with_other_rasters
from ooc_chol.apps.geostat.cli.columns import load_saved, saved_spec
from ooc_chol.apps.geostat.cli.files import add_force, check_files, file_of
from ooc_chol.apps.geostat.cli.maps import check_map, draw_prediction_map, map_scale
from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.cli.options import add_at, seed
from ooc_chol.apps.geostat.cli.profile import add_profile_options, draw_profile
from ooc_chol.apps.geostat.cli.scale import add_quantity, add_scale, chosen_scale
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.nested import covariance_by_distance
from ooc_chol.apps.geostat.covariances.planar import is_directional
from ooc_chol.apps.geostat.data.dataset import Dataset
from ooc_chol.apps.geostat.data.endings import TABLE, check_output_path
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.residuals import standardised_residuals
from ooc_chol.apps.geostat.pictures.labels import FigureWords
from ooc_chol.apps.geostat.pictures.plots import PICTURES, MapLabels, check_picture, save_figure
from ooc_chol.apps.geostat.pictures.plots_checks import residuals_figure, variogram_figure
from ooc_chol.apps.geostat.pictures.variogram import variogram_envelope
from ooc_chol.apps.geostat.results import read_result
from ooc_chol.apps.geostat.variography.empirical import MAX_SITES, Direction, empirical_variogram

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat plot variogram zinc.json --output variogram.png",
    "ooc-chol geostat plot anisotropy zinc.json --output anisotropy.png",
    "ooc-chol geostat plot map zinc.json --output map.png",
    "ooc-chol geostat plot profile zinc.json --parameter range --output profile.pdf",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("what", choices=("variogram", "anisotropy", "map", "residuals", "profile"), help="the picture")
    parser.add_argument("model", type=Path, metavar="MODEL.json", help="what fit wrote")
    parser.add_argument("data", nargs="?", metavar="DATA", help="the observations (default: the file or example that was fitted)")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE.png", help="write the picture here; .pdf and .svg too"
    )
    _add_variogram_options(parser.add_argument_group("plot variogram"))
    maps = parser.add_argument_group("plot map")
    add_at(maps)
    add_scale(maps)
    add_quantity(maps)
    add_grid_parts(maps)
    add_raster(parser)
    add_profile_options(parser.add_argument_group("plot profile"))
    add_force(parser)
    oc.FactorOptions.add_arguments(parser.add_argument_group("factorizations"), without=["dtype"])


def _add_variogram_options(group: argparse._ArgumentGroup) -> None:
    """Add the options of ``plot variogram``."""
    group.add_argument("--estimator", choices=("matheron", "cressie"), default="matheron", help="of the variogram")
    group.add_argument("--bins", type=int, metavar="N", help="bins of the variogram (default: 15, or 30 pairs a bin)")
    group.add_argument("--longest", type=float, metavar="H", help="longest distance (default: a third of the diameter)")
    group.add_argument("--azimuth", type=float, metavar="DEGREES", help="count pairs that point this way, clockwise from north")
    group.add_argument("--simulations", type=int, default=99, metavar="N", help="of the envelope; 0 for none (default: 99)")
    group.add_argument(
        "--max-sites",
        type=int,
        default=MAX_SITES,
        metavar="N",
        help=f"variogram of a subsample above this (default: {MAX_SITES})",
    )
    group.add_argument("--seed", type=seed, default=0, help="of subsample and simulations (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Draw the picture that was asked for: variogram, map, residuals or profile."""
    _check_files(options, options.data)
    check_picture(options.output)
    if options.values is not None:
        check_output_path(options.values, TABLE, "profiles")
    saved = with_other_rasters(read_result(options.model), options)
    if options.what == "variogram":
        check_variogram(saved.model, options.azimuth)
    elif options.what == "anisotropy":
        check_anisotropy(saved.model)
    _check_files(options, file_of(saved_spec(saved.spec, options.data)))
    dataset = load_saved(saved.spec, options.data)
    if dataset.observations.n != saved.n:
        note(f"the model was fitted to {saved.n} observations, and {dataset.observations.n} are drawn now")
    settings = FactorSettings.from_arguments(options)
    if options.what == "variogram":
        _variogram(dataset, saved.model, options, settings)
    elif options.what == "anisotropy":
        draw_anisotropy(dataset, saved.model, options)
    elif options.what == "map":
        check_map(dataset)
        scale = chosen_scale(saved.spec, options) if options.scale or options.point else map_scale(saved.spec)
        scale.check()
        draw_prediction_map(
            options.output,
            dataset,
            saved.model,
            settings,
            at=options.at,
            asked=options,
            scale=scale,
            quantity=options.quantity,
            replace=options.force,
        )
    elif options.what == "profile":
        draw_profile(dataset, saved, options, settings)
    else:
        _residuals(dataset, saved.model, options, settings)
    options.answer |= {"picture": options.what, "output": options.output}
    print(f"{options.what} in {options.output}")
    return 0


def _check_files(options: argparse.Namespace, data: str | None) -> None:
    """Refuse outputs that are inputs; values of a profile are read if they are there, else written."""
    is_read = options.values is not None and options.values.exists()
    inputs = [
        ("MODEL.json", options.model),
        ("DATA", data),
        ("--values", options.values if is_read else None),
        *area_files(options),
    ]
    values = tb.Output("--values", None if is_read else options.values)
    check_files(options, inputs, [tb.Output("--output", options.output, PICTURES), values])


def check_variogram(model: AbstractCovariance, azimuth: float | None) -> None:
    """Find out early whether a model has a semivariogram."""
    if is_directional(model):
        if azimuth is None:
            raise ValueError(
                f"a {type(model).__name__} has a semivariogram for each direction: give --azimuth DEGREES, clockwise from north; "
                "`plot anisotropy` draws those along its axes"
            )
        return
    if covariance_by_distance(model) is None:
        raise ValueError(
            f"a {type(model).__name__} is no function of distance alone, so it has no one semivariogram to draw; "
            "`plot residuals` and `cv` check any model, and `plot variogram --azimuth` of an isotropic fit shows directions"
        )


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
    if dataset.observations.error_variances is not None:
        note("the line of the model leaves out the known errors of the observations; the points and the envelope have them")
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
    save_figure(variogram_figure(variogram, words, model=model, envelope=envelope), options.output, replace=options.force)


def _residuals(dataset: Dataset, model: AbstractCovariance, options: argparse.Namespace, settings: FactorSettings) -> None:
    """Histogram, quantiles and map of standardised residuals."""
    residuals = standardised_residuals(dataset.observations, model, settings=settings)
    x_label, y_label, *_ = (*dataset.spec.axis_labels, "")
    title = f"{dataset.spec.value_name}: each value predicted from those before it in Morton order"
    save_figure(
        residuals_figure(residuals, dataset.places, MapLabels(title, dataset.spec.value_label, x_label, y_label, dataset.aspect)),
        options.output,
        replace=options.force,
    )
