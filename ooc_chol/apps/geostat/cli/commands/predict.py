"""``ooc-chol geostat predict``: kriging mean and standard error at new sites."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.cli.areas import (
    add_grid,
    add_grid_parts,
    add_raster,
    area_files,
    grid_sites,
    wants_grid,
    with_other_rasters,
)
from ooc_chol.apps.geostat.cli.columns import errors_at, load_named_sites, saved_spec
from ooc_chol.apps.geostat.cli.files import check_files, file_of, layer_outputs
from ooc_chol.apps.geostat.cli.messages import note, say_beforehand
from ooc_chol.apps.geostat.cli.options import add_at, add_settings, factor_settings
from ooc_chol.apps.geostat.cli.summary import score_text
from ooc_chol.apps.geostat.data.areas import Area
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec, example_spec, load_dataset
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.layers import check_layer
from ooc_chol.apps.geostat.kriging.checks import HeldOutScores, score
from ooc_chol.apps.geostat.kriging.outputs import Predicted, write_predictions
from ooc_chol.apps.geostat.kriging.prediction import Prediction, kriging
from ooc_chol.apps.geostat.results import read_result

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat predict zinc.json sites.csv --output predicted.csv",
    "ooc-chol geostat predict zinc.json --grid 100,80 --target field --output map.nc",
    "ooc-chol geostat predict zinc.json --cell 40 --mask area.gpkg --level 0.9 --output map.tif",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.usage = "ooc-chol geostat predict MODEL.json [DATA.csv] [SITES.csv] [options]"
    parser.description = (
        "Without DATA.csv the observations are those of the file or example that was fitted; one file alone is SITES.csv, and "
        "with --grid, which needs no SITES.csv, it is DATA.csv."
    )
    parser.add_argument("model", type=Path, metavar="MODEL.json", help="what fit wrote")
    parser.add_argument(
        "first",
        nargs="?",
        metavar="DATA.csv",
        help="the observations (default: those that were fitted)",
    )
    parser.add_argument(
        "second", nargs="?", metavar="SITES.csv", help="where to predict; with a value column predictions are scored too"
    )
    parser.add_argument("--example", metavar="jacksboro[:N]", help="the built-in terrain in place of DATA.csv")
    add_grid(parser)
    add_grid_parts(parser)
    add_raster(parser)
    add_at(parser)
    parser.add_argument(
        "--target",
        choices=("observation", "field"),
        default="observation",
        help="a new observation with its nugget, and its known error where the sites have that column (default), or the field",
    )
    parser.add_argument("--level", type=float, metavar="P", help="also lower and upper, the ends of the interval of this level")
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="OUT.csv",
        help="write sites, prediction and standard_error here; .nc, .gpkg or .parquet too, and .tif or .asc of a grid",
    )
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Predict at the sites, write the predictions, and score them where the sites have values."""
    is_grid = wants_grid(options)
    output = layer_outputs(options.output, _columns(options))
    check_files(options, [("MODEL.json", options.model), *area_files(options)], output)
    check_layer(options.output, "predictions", is_grid=is_grid)
    saved = with_other_rasters(read_result(options.model), options)
    check_layer(options.output, "predictions", saved.spec, is_grid=is_grid)
    spec, sites_path = _predict_inputs(saved.spec, options)
    inputs = [("MODEL.json", options.model), ("DATA.csv", file_of(spec)), ("SITES.csv", sites_path), *area_files(options)]
    check_files(options, inputs, output)
    dataset = load_dataset(spec)
    sites, area = _sites(dataset, sites_path, options)
    settings = factor_settings(options)
    say_beforehand(dataset, settings, in_full=options.verbose)
    if dataset.observations.n != saved.n:
        note(f"the model was fitted to {saved.n} observations, and predicts from {dataset.observations.n} now")
    positions = sites.stack(spec.axes)
    errors = errors_at(spec, sites, options.target)
    with kriging(dataset.observations, saved.model, settings=settings) as kriged:
        prediction = kriged.predict(
            spec.cartesian(positions), covariates=spec.design(sites), target=options.target, error_variances=errors
        )
    grid, cells = (None, None) if area is None else (area.grid, area.cells)
    predicted = Predicted(dataset.spec, positions, prediction, grid, cells, options.level)
    write_predictions(options.output, predicted, replace=options.force)
    what = "a new observation" if options.target == "observation" else "the smooth field"
    options.answer = {"output": options.output, "n": len(positions), "target": options.target, "held_out": None}
    print(f"{len(positions)} predictions of {what} with their standard errors in {options.output}")
    if options.target == "observation" and spec.value in sites.columns:
        scores = _scores(prediction, sites, dataset)
        if scores is not None:
            options.answer["held_out"] = vars(scores)
            print(score_text(scores))
    return 0


def _predict_inputs(spec: DataSpec, options: argparse.Namespace) -> tuple[DataSpec, str | None]:
    """Observations and sites from the words of ``predict``: DATA.csv may be left out, and a grid needs no SITES.csv."""
    words = [word for word in (options.first, options.second) if word is not None]
    if options.example is not None:
        spec = example_spec(options.example)
    needed = [] if wants_grid(options) else ["SITES.csv"]
    allowed = needed if spec.kind == "example" else ["DATA.csv", *needed]
    if not len(needed) <= len(words) <= len(allowed):
        expected = " and ".join(allowed) or "no file"
        more = "" if allowed == needed else f", or {' and '.join(needed) or 'no file'} for the data that were fitted"
        raise ValueError(f"predict needs {expected} after MODEL.json{more}, but {len(words)} files are given")
    sites_path = words.pop() if needed else None
    return saved_spec(spec, words[0] if words else None), sites_path


def _columns(options: argparse.Namespace) -> tuple[str, ...]:
    """Names of the columns that are written besides the coordinates; ``ValueError`` for a level that is none."""
    if options.level is not None and not 0 < options.level < 1:
        raise ValueError(f"--level is {options.level}, but a probability between 0 and 1 is needed")
    return ("prediction", "standard_error", *(("lower", "upper") if options.level is not None else ()))


def _sites(dataset: Dataset, path: str | None, options: argparse.Namespace) -> tuple[Table, Area | None]:
    """Positions and covariates where predictions are wanted, and the area that they are, unless they are sites of a file."""
    if path is not None:
        return load_named_sites(dataset.spec, path, options.at), None
    sites, area = grid_sites(dataset.spec, options, lambda: dataset.places)
    check_layer(options.output, "predictions", dataset.spec, is_grid=True, grid=area.grid)
    return sites, area


def _scores(prediction: Prediction, sites: Table, dataset: Dataset) -> HeldOutScores | None:
    """Score where the sites file has a value, and no observation is: that would be no prediction."""
    is_known = np.isfinite(sites.columns[dataset.spec.value])
    is_observed = _observed(dataset, sites.stack(dataset.spec.axes))
    if count := int(np.sum(is_known & is_observed)):
        note(f"{count} of {int(np.sum(is_known))} sites with a value are places of observations: not held out, and not scored")
    known = np.flatnonzero(is_known & ~is_observed)
    if not len(known):
        return None
    values = dataset.spec.observed({name: column[known] for name, column in sites.columns.items()})
    return score(prediction.take(known), values, dataset.observations.values)


def _observed(dataset: Dataset, positions: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of some positions are those of observations."""
    places = set(map(tuple, dataset.positions.tolist()))
    return np.array([tuple(position) in places for position in positions.tolist()], dtype=np.bool_)
