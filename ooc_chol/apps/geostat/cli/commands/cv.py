"""``ooc-chol geostat cv``: cross-validation of a fitted model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.cli.columns import load_saved, saved_spec
from ooc_chol.apps.geostat.cli.files import check_files, file_of
from ooc_chol.apps.geostat.cli.options import add_settings, factor_settings
from ooc_chol.apps.geostat.cli.summary import score_text
from ooc_chol.apps.geostat.data.endings import TABLE, check_output_path
from ooc_chol.apps.geostat.data.io import write_table
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
    parser.add_argument("--level", type=float, default=0.95, help="level of the intervals (default: 0.95)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="OUT.csv",
        help="write coordinates, value, prediction, standard_error and fold here",
    )
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Cross-validate the model, print its scores, write its predictions."""
    output = [oc.Output("--output", options.output)]
    check_files(options, [("MODEL.json", options.model), ("DATA.csv", options.data)], output)
    if options.output is not None:
        check_output_path(options.output, TABLE, "predictions of a cross-validation")
    saved = read_result(options.model)
    check_files(options, [("DATA.csv", file_of(saved_spec(saved.spec, options.data)))], output)
    dataset = load_saved(saved.spec, options.data)
    settings = factor_settings(options)
    if options.folds is None:
        found = leave_one_out(dataset.observations, saved.model, settings=settings)
    else:
        found = cross_validate(
            dataset.observations, saved.model, folds=options.folds, how=options.how, seed=options.seed, settings=settings
        )
    if options.output is not None:
        columns: dict[str, NDArray[Any]] = dict(zip(saved.spec.axes, dataset.positions.T, strict=True))
        columns |= {saved.spec.value_name: found.values, "prediction": found.prediction.mean}
        columns |= {"standard_error": found.prediction.standard_error, "fold": found.folds}
        write_table(options.output, columns, replace=options.force)
        print(f"predictions in {options.output}")
    print(_validation_text(found, options))
    options.answer = {"scores": vars(found.scores(options.level)), "folds": found.n_folds, "output": options.output}
    return 0


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
