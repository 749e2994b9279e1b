"""``ooc-chol geostat cv``: cross-validation of a fitted model."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

import ooc_chol as oc
from ooc_chol.apps.geostat.cli.areas import add_raster, raster_files, with_other_rasters
from ooc_chol.apps.geostat.cli.columns import load_saved, saved_spec
from ooc_chol.apps.geostat.cli.files import check_files, file_of
from ooc_chol.apps.geostat.cli.options import add_settings, factor_settings
from ooc_chol.apps.geostat.cli.scale import Scale, add_scale, chosen_scale
from ooc_chol.apps.geostat.cli.summary import score_text
from ooc_chol.apps.geostat.data.dataset import Dataset
from ooc_chol.apps.geostat.data.layers import Column, Layer, check_layer, write_layer
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.kriging.validation import CrossValidation, cross_validate, leave_one_out
from ooc_chol.apps.geostat.results import read_result

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat cv zinc.json",
    "ooc-chol geostat cv zinc.json --folds 10 --how kmeans --output cv.csv",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = "One factorization; the covariance function is kept, the mean is estimated without each fold."
    parser.add_argument("model", type=Path, metavar="MODEL.json", help="what fit wrote")
    parser.add_argument("data", nargs="?", metavar="DATA.csv", help="the observations (default: those that were fitted)")
    parser.add_argument("--folds", type=int, metavar="K", help="number of folds (default: every observation alone)")
    parser.add_argument(
        "--how",
        choices=("random", "tiles", "kmeans"),
        default="random",
        help="folds at random (default), as pieces of a Morton curve, or as clusters",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of folds (default: 0)")
    add_scale(parser)
    parser.add_argument("--level", type=float, default=0.95, help="level of the intervals (default: 0.95)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="OUT.csv",
        help="write coordinates, value, prediction, standard_error and fold here; .nc, .gpkg or .parquet too",
    )
    add_raster(parser)
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Cross-validate the model, print its scores, write its predictions."""
    output = [oc.Output("--output", options.output)]
    check_files(options, [("MODEL.json", options.model), ("DATA.csv", options.data), *raster_files(options)], output)
    if options.output is not None:
        check_layer(options.output, "predictions of a cross-validation")
    saved = with_other_rasters(read_result(options.model), options)
    if options.output is not None:
        check_layer(options.output, "predictions of a cross-validation", saved.spec)
    scale = chosen_scale(saved.spec, options)
    scale.check()
    if scale.point == "unbiased":
        raise ValueError("cross-validation scores means or medians: take one of these for --point")
    check_files(options, [("DATA.csv", file_of(saved_spec(saved.spec, options.data)))], output)
    dataset = load_saved(saved.spec, options.data)
    settings = factor_settings(options)
    if options.folds is None:
        found = leave_one_out(dataset.observations, saved.model, settings=settings)
    else:
        found = cross_validate(
            dataset.observations, saved.model, folds=options.folds, how=options.how, seed=options.seed, settings=settings
        )
    if scale.transform is not None:
        print(f"scores{scale.words}")
        assert isinstance(found.prediction, Prediction), "validation is on the fitted scale"
        found = replace(found, values=scale.values(found.values), prediction=scale.of(found.prediction))
    print(_validation_text(found, options))
    options.answer = {"scores": vars(found.scores(options.level)), "folds": found.n_folds, "output": options.output}
    if options.output is not None:
        write_layer(options.output, _layer(dataset, found, scale), replace=options.force)
        print(f"predictions in {options.output}")
    return 0


def _layer(dataset: Dataset, found: CrossValidation, scale: Scale) -> Layer:
    """Values and predictions at the observations' places."""
    spec = dataset.spec if scale.transform is None else dataset.spec.as_observed
    unit, words = spec.value_unit, {"prediction": "mean", "standard_error": "standard error"}
    columns = {spec.value_name: Column(found.values, "observed", unit)}
    for name, values in found.prediction.columns.items():
        columns[name] = Column(values, f"kriging {words[name]} of {spec.value_name} without its fold", unit)
    columns["fold"] = Column(found.folds.astype(np.float64), "number of the fold")
    return Layer(spec, dataset.positions, columns, f"cross-validation of {spec.value_name}")


def _validation_text(found: CrossValidation, options: argparse.Namespace) -> str:
    """Scores on a few lines."""
    scores = found.scores(options.level)
    how = "each observation left out" if options.folds is None else f"{found.n_folds} folds ({options.how})"
    return (
        f"{score_text(scores)}\n"
        f"  cross-validation  {how}\n"
        f"  errors     mean {scores.bias:.4g} (bias), mean absolute {scores.mae:.4g}, mean square {scores.mspe:.4g}\n"
        f"  standardized residuals have mean square {np.mean(found.standardized**2):.4g} (1 for a right model)\n"
        f"  scores     interval {scores.interval_score:.4g}, logarithmic {scores.log_score:.4g}: smaller is better"
    )
