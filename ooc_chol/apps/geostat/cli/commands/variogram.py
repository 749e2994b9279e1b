"""``ooc-chol geostat variogram``: look at data before any model is fitted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.cli.columns import add_data_options, fit_spec
from ooc_chol.apps.geostat.cli.files import add_force, check_files
from ooc_chol.apps.geostat.cli.messages import note, say_data
from ooc_chol.apps.geostat.cli.options import numbers, seed
from ooc_chol.apps.geostat.data.dataset import Dataset, load_dataset
from ooc_chol.apps.geostat.data.endings import TABLE, check_ending, check_output_path
from ooc_chol.apps.geostat.data.io import write_table
from ooc_chol.apps.geostat.pictures.labels import FigureWords
from ooc_chol.apps.geostat.pictures.plots import PICTURES, picture_endings, save_figure
from ooc_chol.apps.geostat.pictures.plots_checks import variogram_figure
from ooc_chol.apps.geostat.pictures.variogram_pictures import directions_figure, variogram_map_figure
from ooc_chol.apps.geostat.variography.empirical import MAX_PAIRS, Variogram, directional_variograms, empirical_variogram
from ooc_chol.apps.geostat.variography.least_squares import FittedVariogram, fit_variogram
from ooc_chol.apps.geostat.variography.maps import VariogramMap, variogram_map

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat variogram soil.csv --x east --y north --value zinc --output variogram.png",
    "ooc-chol geostat variogram soil.csv --x east --y north --formula 'log(zinc) ~ 1' --azimuth 0,45,90,135 --output ways.png",
    "ooc-chol geostat variogram soil.csv --x east --y north --value zinc --map --output map.png --output map.csv",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = "No model is needed: semivariances of the values, or of what least squares on the mean leave of them."
    parser.add_argument("data", nargs="?", metavar="DATA.csv", help="file with named columns, .parquet, .nc or .gpkg")
    parser.add_argument("--example", metavar="jacksboro[:N]", help="the built-in terrain in place of DATA.csv")
    parser.add_argument("--x", metavar="COLUMN", help="first coordinate; the longitude with --lonlat")
    parser.add_argument("--y", metavar="COLUMN", help="second coordinate; the latitude with --lonlat")
    parser.add_argument("--z", metavar="COLUMN", help="third coordinate, if there is one")
    parser.add_argument("--value", metavar="COLUMN", help="the observed values")
    parser.add_argument("--formula", metavar="'V ~ A + sqrt(B)'", help="value and mean by column names, in place of --value")
    add_data_options(parser)
    parser.add_argument("--estimator", choices=("matheron", "cressie"), default="matheron", help="cressie is the robust one")
    parser.add_argument("--cutoff", type=float, metavar="H", help="longest distance (default: a third of the diameter)")
    parser.add_argument("--width", type=float, metavar="W", help="width of the bins (default: a fifteenth of the cutoff)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--azimuth", type=numbers, metavar="0,45,...", help="a curve for each direction, clockwise from north")
    what.add_argument("--map", action="store_true", help="semivariances by lag vector")
    what.add_argument(
        "--fit", metavar="NU|best", type=_smoothness, help="fit a Matérn model by least squares, as a start: of this smoothness"
    )
    parser.add_argument("--tolerance", type=float, default=22.5, metavar="DEGREES", help="of --azimuth, to either side (22.5)")
    parser.add_argument(
        "--max-pairs",
        type=int,
        default=MAX_PAIRS,
        metavar="N",
        help=f"draw about so many pairs where there are more ({MAX_PAIRS})",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the draw (default: 0)")
    parser.add_argument(
        "--output",
        type=Path,
        action="append",
        metavar="TABLE.csv|PICTURE.png",
        default=[],
        help="write a table, or draw; may be given twice",
    )
    add_force(parser)


def run(options: argparse.Namespace) -> int:
    """Print the semivariogram, and write or draw it."""
    _check_outputs(options)
    spec = fit_spec(options)
    if spec.axes != spec.coordinates or spec.distance == "great-circle":
        raise ValueError(
            "semivariograms are of space with straight distances, of longitude and latitude chords in kilometres: leave out "
            "--time, --variable and --distance great-circle"
        )
    dataset = load_dataset(spec)
    say_data(dataset)
    same = {"longest": options.cutoff, "width": options.width, "max_pairs": options.max_pairs, "seed": options.seed}
    if options.map:
        found = variogram_map(dataset.observations, **same)
        _finish(dataset, options, _map_table(found), found.notes, _map_figure(dataset, found) if _pictures(options) else None)
        return 0
    same |= {"estimator": options.estimator, "max_sites": None}
    if options.azimuth is not None:
        curves = directional_variograms(dataset.observations, options.azimuth, tolerance=options.tolerance, **same)
    else:
        curves = (empirical_variogram(dataset.observations, **same),)
    fitted = None if options.fit is None else fit_variogram(curves[0], smoothness=options.fit)
    figure = _figure(dataset, curves, fitted) if _pictures(options) else None
    _finish(dataset, options, _table(curves), curves[0].notes, figure)
    if fitted is not None:
        _say_fit(fitted, dataset, options)
    return 0


def _finish(dataset: Dataset, options: argparse.Namespace, table: dict[str, Any], notes: Sequence[str], figure: Any) -> None:
    """Print the table unless it is long, say what was drawn, and write what was asked for."""
    for text in notes:
        note(text)
    options.answer = {"n": dataset.observations.n, "output": list(map(str, options.output))}
    options.answer |= {name: [None if np.isnan(v) else v for v in np.asarray(column, float)] for name, column in table.items()}
    if not options.map:
        print("  ".join(f"{name:>12s}" for name in table))
        for row in zip(*table.values(), strict=True):
            print("  ".join(f"{value:12.6g}" for value in row))
    for path in options.output:
        if path in _pictures(options):
            save_figure(figure, path, replace=options.force)
            print(f"variogram drawn in {path}")
        else:
            write_table(path, table, replace=options.force)
            print(f"variogram in {path}")


def _say_fit(fitted: FittedVariogram, dataset: Dataset, options: argparse.Namespace) -> None:
    """The model of least squares on a line; where it has no sill or no slope, that is said."""
    model, unit = fitted.model, f" {dataset.spec.unit}" if dataset.spec.unit else ""
    print(
        f"least squares: Matérn, smoothness {model.smoothness:g}, range {model.range:.6g}{unit} (effective "
        f"{model.effective_range:.6g}{unit}), variance {model.variance:.6g}, nugget {model.nugget:.6g}"
    )
    if fitted.at_bound:
        note("this semivariogram determines no range: it has no slope, or no sill, within its distances")
    content = {"smoothness": model.smoothness, "range": model.range, "variance": model.variance, "nugget": model.nugget}
    options.answer["fit"] = {**content, "loss": fitted.loss, "at_bound": fitted.at_bound}


def _table(curves: Sequence[Variogram]) -> dict[str, Any]:
    """Columns of the semivariograms, one below the other, with the azimuth where there are directions."""
    columns: dict[str, Any] = {}
    if curves[0].direction is not None:
        azimuths = [np.full(len(one.pairs), one.direction.azimuth) for one in curves if one.direction is not None]
        columns["azimuth"] = np.concatenate(azimuths)
    for name in ("distance", "semivariance", "pairs"):
        columns[name] = np.concatenate([getattr(one, name) for one in curves])
    return columns


def _map_table(found: VariogramMap) -> dict[str, Any]:
    """Columns of the cells that have pairs."""
    some = found.pairs > 0
    y, x = np.meshgrid(found.lags, found.lags, indexing="ij")
    return {"lag_x": x[some], "lag_y": y[some], "semivariance": found.semivariance[some], "pairs": found.pairs[some]}


def _figure(dataset: Dataset, curves: Sequence[Variogram], fitted: FittedVariogram | None) -> Any:
    """Curves of directions, or one semivariogram with the model of least squares."""
    words = _words(dataset, "semivariogram")
    if curves[0].direction is not None:
        return directions_figure(curves, words)
    return variogram_figure(curves[0], words, model=None if fitted is None else fitted.model)


def _map_figure(dataset: Dataset, found: VariogramMap) -> Any:
    """The picture of lag vectors."""
    x, y = dataset.spec.coordinates[:2]
    return variogram_map_figure(found, _words(dataset, "semivariances by lag"), axes=(x, y))


def _words(dataset: Dataset, what: str) -> FigureWords:
    """Title and units."""
    spec = dataset.spec
    of = "of the residuals of the mean" if spec.terms else f"of {dataset.observations.n:,} values"
    return FigureWords(f"{spec.value_name}: {what} {of}", spec.unit, spec.value_name, spec.value_unit)


def _pictures(options: argparse.Namespace) -> list[Path]:
    """The outputs that are pictures."""
    return [path for path in options.output if path.suffix.lower() not in TABLE]


def _check_outputs(options: argparse.Namespace) -> None:
    """Find out early that an output could not be written."""
    pictures = _pictures(options)
    files = [tb.Output("--output", path, PICTURES if path in pictures else None) for path in options.output]
    check_files(options, [("DATA.csv", options.data)], files)
    for path in options.output:
        endings = (*TABLE, *picture_endings()) if path in pictures else TABLE
        check_ending(path, endings, "semivariograms")
        check_output_path(path, endings, "semivariograms")


def _smoothness(text: str) -> float | Literal["best"]:
    if text == "best":
        return "best"
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number or best") from None
