"""``ooc-chol geostat cv``: cross-validation of a fitted model, or of several on the same folds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.cli.areas import add_raster, raster_files, with_other_rasters
from ooc_chol.apps.geostat.cli.columns import saved_spec
from ooc_chol.apps.geostat.cli.files import check_files, file_of
from ooc_chol.apps.geostat.cli.options import add_settings, factor_settings, seed
from ooc_chol.apps.geostat.cli.scale import Scale, add_scale
from ooc_chol.apps.geostat.cli.validation import (
    EXACT_LIMIT,
    check_fold_options,
    checked_scale,
    chosen_folds,
    chosen_method,
    comparison_text,
    distance_lines,
    folds_text,
    load_all,
    models_and_data,
    names_of,
    on_scale,
    validated_as_asked,
    validation_text,
)
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec
from ooc_chol.apps.geostat.data.layers import Column, Layer, check_layer, write_layer
from ooc_chol.apps.geostat.kriging.comparison import SCORES, compare
from ooc_chol.apps.geostat.kriging.folds import FOLD_WAYS, FOLDS, Folds
from ooc_chol.apps.geostat.kriging.local import DEFAULT_NEIGHBOURS
from ooc_chol.apps.geostat.kriging.validation import CrossValidation
from ooc_chol.apps.geostat.results import read_result

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat cv zinc.json",
    "ooc-chol geostat cv zinc.json --folds 10 --how kmeans --output cv.csv",
    "ooc-chol geostat cv half.json free.json zinc.csv --how gaps --sites sites.csv",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.usage = "ooc-chol geostat cv MODEL.json [MODEL.json ...] [DATA.csv] [options]"
    parser.description = (
        "One factorization a model; the covariance function is kept, the mean is estimated without each fold. Several models are "
        "compared on the same folds."
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="MODEL.json",
        help="what fit wrote, once or more; then the observations, DATA.csv (default: those that were fitted)",
    )
    parser.add_argument(
        "--folds", type=int, metavar="K", help=f"number of folds (default: every observation alone; with --how gaps {FOLDS})"
    )
    parser.add_argument(
        "--how",
        choices=FOLD_WAYS,
        default="random",
        help="folds at random (default), as pieces of a Morton curve, as clusters, with all nearer than --buffer, or as far from "
        "the others as --sites are from all",
    )
    parser.add_argument("--sites", metavar="SITES.csv", help="with --how gaps: the sites to predict")
    parser.add_argument("--buffer", type=float, metavar="D", help="with --how distance: in the unit of distances")
    parser.add_argument(
        "--method",
        choices=("exact", *DEFAULT_NEIGHBOURS),
        help="predict folds with the factor of all data (exact), or from neighbours that groups share (vecchia) or that each "
        f"value has alone (nearest); default: exact, and vecchia for more than {EXACT_LIMIT:,} observations or with --neighbours",
    )
    parser.add_argument("--neighbours", type=int, metavar="M", help="observations from which each value is predicted")
    parser.add_argument("--seed", type=seed, default=0, help="seed of folds (default: 0)")
    add_scale(parser)
    parser.add_argument("--level", type=float, default=0.95, help="level of the intervals (default: 0.95)")
    parser.add_argument(
        "--score", choices=SCORES, default="crps", help="by which several models are compared (default: crps); smaller is better"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="OUT.csv",
        help="write coordinates, value, prediction, standard_error and fold here (.nc, .gpkg or .parquet too); of several models "
        "predictions by their names",
    )
    add_raster(parser)
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Cross-validate the models, print scores or a comparison, write predictions."""
    models, data = models_and_data(options.words)
    check_fold_options(options)
    output = [tb.Output("--output", options.output)]
    inputs = [*(("MODEL.json", path) for path in models), ("DATA.csv", data), ("--sites", options.sites), *raster_files(options)]
    check_files(options, inputs, output)
    if options.output is not None:
        check_layer(options.output, "predictions of a cross-validation")
    saved, names = [with_other_rasters(read_result(path), options) for path in models], names_of(models)
    scales = [checked_scale(each, options) for each in saved]
    if options.output is not None:
        written = _column_names(_written_spec(saved[0].spec, scales[0]), names)
        check_layer(options.output, "predictions of a cross-validation", saved[0].spec, names=written)
    check_files(options, [("DATA.csv", file_of(saved_spec(each.spec, data))) for each in saved], output)
    datasets, settings = load_all(saved, data, names, scales), factor_settings(options)
    chosen, method = chosen_folds(datasets[0], options), chosen_method(datasets[0], options)
    validated = {
        name: on_scale(validated_as_asked(dataset, each, chosen, method, options, settings), scale)
        for name, dataset, each, scale in zip(names, datasets, saved, scales, strict=True)
    }
    if scales[0].words:
        print(f"scores{scales[0].words}")
    unit = datasets[0].spec.unit
    if options.output is not None:  # before anything is scored, which can fail
        write_layer(options.output, _layer(datasets[0], scales[0], validated), replace=options.force)
        print(f"predictions in {options.output}")
    for line in distance_lines(chosen, unit):
        print(line)
    options.answer = _said(validated, chosen, folds_text(chosen, options, unit), options)
    return 0


def _said(validated: dict[str, CrossValidation], chosen: Folds | None, how: str, options: argparse.Namespace) -> dict[str, Any]:
    """Print what was found, and put it as plain data."""
    found = next(iter(validated.values()))
    answer: dict[str, Any] = {"folds": found.n_folds, "output": options.output}
    if chosen is not None and chosen.mismatch is not None:
        answer["mismatch"] = chosen.mismatch
    if len(validated) == 1:
        print(validation_text(found, how, options))
        return {"scores": vars(found.scores(options.level)), **answer}
    comparison = compare(validated, score=options.score, level=options.level)
    print(comparison_text(comparison, how))
    differences = [vars(each) for each in comparison.differences]
    models = {name: {"scores": vars(scores)} for name, scores in comparison.scores.items()}
    return {"models": models, "score": comparison.score, "best": comparison.best, "differences": differences, **answer}


def _layer(dataset: Dataset, scale: Scale, validated: dict[str, CrossValidation]) -> Layer:
    """Values and predictions at the observations' places, of several models by their names."""
    found, spec = next(iter(validated.values())), _written_spec(dataset.spec, scale)
    unit, words = spec.value_unit, {"prediction": "mean", "standard_error": "standard error"}
    columns = {spec.value_name: Column(found.values, "observed", unit)}
    for name, each in validated.items():
        suffix, of = ("", "") if len(validated) == 1 else (f"_{name}", f" by {name}")
        for column, values in each.prediction.columns.items():
            text = f"kriging {words[column]} of {spec.value_name} without its fold{of}"
            columns[f"{column}{suffix}"] = Column(values, text, unit)
    columns["fold"] = Column(found.folds.astype(np.float64), "number of the fold")
    return Layer(spec, dataset.positions, columns, f"cross-validation of {spec.value_name}")


def _written_spec(spec: DataSpec, scale: Scale) -> DataSpec:
    """The specification with the names and units of the scale that is written."""
    return spec if scale.transform is None else spec.as_observed


def _column_names(spec: DataSpec, models: list[str]) -> tuple[str, ...]:
    """Names of the columns of :func:`_layer`, besides the coordinates."""
    suffixes = [""] if len(models) == 1 else [f"_{name}" for name in models]
    predicted = (f"{column}{suffix}" for suffix in suffixes for column in ("prediction", "standard_error"))
    return (spec.value_name, *predicted, "fold")
