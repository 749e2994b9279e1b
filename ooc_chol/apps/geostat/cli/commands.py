"""``ooc-chol geostat``: fit, predict and demo. Errors that a user can mend are left to the caller, who shows them on one line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

import ooc_chol as oc
from ooc_chol.apps.geostat.cli.command_covariance import add_covariance_options, check_columns
from ooc_chol.apps.geostat.cli.command_data import add_data_options, errors_at, fit_spec, say_data
from ooc_chol.apps.geostat.cli.command_files import add_force, check_files
from ooc_chol.apps.geostat.cli.command_options import (
    SpellingParser,
    add_at,
    add_settings,
    factor_settings,
    grid_size,
    note,
    tried,
)
from ooc_chol.apps.geostat.cli.commands_convert import add_convert
from ooc_chol.apps.geostat.cli.commands_fit import (
    add_fit_options,
    details_text,
    fit_from_options,
    inference_content,
    inference_from_options,
    inference_text,
    search_text,
)
from ooc_chol.apps.geostat.cli.commands_plot import add_plot, check_map, draw_prediction_map
from ooc_chol.apps.geostat.cli.commands_validation import add_validation_commands
from ooc_chol.apps.geostat.cli.demo import demo_outputs, run_demo
from ooc_chol.apps.geostat.cli.summary import fit_text, score_text
from ooc_chol.apps.geostat.data.dataset import (
    Dataset,
    DataSpec,
    dropped_note,
    example_spec,
    grid_table,
    load_dataset,
    load_sites,
    regular_grid,
)
from ooc_chol.apps.geostat.data.endings import LOG, RESULT, check_output_path
from ooc_chol.apps.geostat.data.io import Table, write_json
from ooc_chol.apps.geostat.estimation.evaluation_log import LOG_ADVICE, goes_on
from ooc_chol.apps.geostat.estimation.fitting import FitResult
from ooc_chol.apps.geostat.estimation.inference import Inference
from ooc_chol.apps.geostat.estimation.search import Nugget
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.checks import score
from ooc_chol.apps.geostat.kriging.outputs import Predicted, check_output, write_predictions
from ooc_chol.apps.geostat.kriging.prediction import Prediction, kriging
from ooc_chol.apps.geostat.pictures.plots import PICTURES, check_picture
from ooc_chol.apps.geostat.results import RESULTS, read_result, result_content


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``geostat`` with its own commands to a command line."""
    geostat = commands.add_parser("geostat", help="fit a covariance by exact maximum likelihood, and predict (kriging)")
    actions: argparse._SubParsersAction[argparse.ArgumentParser] = geostat.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=SpellingParser
    )
    _add_fit(actions)
    _add_predict(actions)
    _add_demo(actions)
    add_validation_commands(actions)
    add_convert(actions)
    add_plot(actions)


def _add_fit(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("fit", help="estimate covariance and mean")
    parser.add_argument("data", nargs="?", metavar="DATA.csv", help="CSV with names in its first line, .parquet, .nc or .gpkg")
    parser.add_argument(
        "--example", metavar="jacksboro[:N]", help="the built-in terrain, N of its heights at random, in place of DATA.csv"
    )
    parser.add_argument("--x", metavar="COLUMN", help="first coordinate; the longitude with --lonlat")
    parser.add_argument("--y", metavar="COLUMN", help="second coordinate; the latitude with --lonlat")
    parser.add_argument("--z", metavar="COLUMN", help="third coordinate, if there is one")
    parser.add_argument("--value", metavar="COLUMN", help="the observed values")
    add_data_options(parser)
    add_covariance_options(parser)
    parser.add_argument(
        "--smoothness",
        metavar="NU|best|free",
        type=_smoothness,
        default="best",
        help="nu, the best of 0.5, 1.5 and 2.5 (default), or estimated, as with every other --covariance, --start or --fix",
    )
    parser.add_argument(
        "--nugget", metavar="free|zero|VALUE", type=_nugget, default="free", help="variance of the error of an observation"
    )
    parser.add_argument(
        "--max-evaluations", type=int, default=200, metavar="N", help="factorizations per smoothness (default: 200)"
    )
    parser.add_argument("--output", type=Path, metavar="RESULT.json", help="write estimates here; predict reads them")
    parser.add_argument("--plot", type=Path, metavar="MAP.png", help="draw observed, predicted and standard error")
    add_fit_options(parser)
    add_settings(parser)
    parser.set_defaults(run=_fit)


def _add_predict(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "predict",
        help="kriging mean and standard error at new sites",
        usage="ooc-chol geostat predict MODEL.json [DATA.csv] [SITES.csv] [options]",
        description="A model of the built-in example needs no DATA.csv, a --grid no SITES.csv.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL.json", help="what fit wrote")
    parser.add_argument("first", nargs="?", metavar="DATA.csv", help="the observations, with the columns that fit used")
    parser.add_argument(
        "second", nargs="?", metavar="SITES.csv", help="where to predict; with a value column predictions are scored too"
    )
    parser.add_argument("--example", metavar="jacksboro[:N]", help="the built-in terrain in place of DATA.csv")
    parser.add_argument(
        "--grid", metavar="NX,NY", type=grid_size, help="predict on a grid over the observations, in place of SITES.csv"
    )
    add_at(parser)
    parser.add_argument(
        "--target",
        choices=("observation", "field"),
        default="observation",
        help="a new observation with its nugget, and its known error where the sites have that column (default), or the field",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="OUT.csv", help="write sites, prediction and standard_error here; or OUT.nc"
    )
    add_settings(parser)
    parser.set_defaults(run=_predict)


def _add_demo(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("demo", help="fit real terrain out of core, predict held-out heights, draw and trace")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), metavar="DIR", help="folder for the files (default: demo-output)"
    )
    parser.add_argument("--n", type=int, default=4000, help="heights drawn from the terrain (default: 4000)")
    parser.add_argument(
        "--memory-budget", metavar="BYTES", help="memory of each device (default: 0.45 of the factor's bytes, shared)"
    )
    add_force(parser)
    parser.set_defaults(run=_demo)


def _fit(options: argparse.Namespace) -> int:
    if options.covariance == "great-circle":
        options.distance = "great-circle"
    spec = fit_spec(options)
    check_columns(options, spec)
    _check_fit_files(options)
    dataset = load_dataset(spec)
    settings = factor_settings(options)
    settings.check_store()
    if options.plot is not None:
        _check_map(dataset)
    _say_beforehand(dataset, settings)
    if options.dry_run:
        print(search_text(dataset, options))
        return 0
    result = fit_from_options(dataset, options, settings)
    print(fit_text(result, dataset.spec.unit))
    print(details_text(result), flush=True)
    return _after_fit(dataset, result, options, settings)


def _after_fit(dataset: Dataset, result: FitResult[Any], options: argparse.Namespace, settings: FactorSettings) -> int:
    """Write the result, then what can still fail: each step alone, the result again once it has standard errors."""

    def write(found: Inference | None = None) -> None:
        content = {**result_content(dataset.spec, result), **inference_content(found)}
        write_json(options.output, content, kind=RESULTS, replace=options.force)

    def add_standard_errors() -> None:
        found = inference_from_options(dataset, result, settings)
        print(inference_text(found))
        if is_written:
            write(found)

    def draw() -> None:
        draw_prediction_map(options.plot, dataset, result.model, settings, replace=options.force)
        print(f"map in {options.plot}")

    is_written = options.output is not None and tried("result file", write)
    succeeded = [is_written or options.output is None]
    if options.standard_errors:
        succeeded.append(tried("standard errors", add_standard_errors))
    if is_written:
        print(f"result in {options.output}")
    if options.plot is not None:
        succeeded.append(tried("map", draw))
    return 0 if all(succeeded) else 2


def _predict(options: argparse.Namespace) -> int:
    output = [oc.Output("--output", options.output)]
    check_files(options, [("MODEL.json", options.model)], output)
    check_output(options.output)
    saved = read_result(options.model)
    spec, sites_path = _predict_inputs(saved.spec, options)
    data = spec.source if spec.kind != "example" else None
    inputs = [("MODEL.json", options.model), ("DATA.csv", data), ("SITES.csv", sites_path)]
    check_files(options, inputs, output)
    dataset = load_dataset(spec)
    sites = _sites(dataset, sites_path, options)
    settings = factor_settings(options)
    _say_beforehand(dataset, settings)
    if dataset.observations.n != saved.n:
        note(f"the model was fitted to {saved.n} observations, and predicts from {dataset.observations.n} now")
    positions = sites.stack(spec.axes)
    errors = errors_at(spec, sites, options.target)
    with kriging(dataset.observations, saved.model, settings=settings) as kriged:
        prediction = kriged.predict(
            spec.cartesian(positions), covariates=spec.design(sites), target=options.target, error_variances=errors
        )
    predicted = Predicted(dataset.spec, positions, prediction, options.grid if sites_path is None else None)
    write_predictions(options.output, predicted, replace=options.force)
    what = "a new observation" if options.target == "observation" else "the smooth field"
    print(f"{len(positions)} predictions of {what} with their standard errors in {options.output}")
    if options.target == "observation" and spec.value in sites.columns:
        _print_scores(prediction, sites, dataset)
    return 0


def _demo(options: argparse.Namespace) -> int:
    options.output.mkdir(parents=True, exist_ok=True)
    check_files(options, [], demo_outputs(options.output))
    run_demo(
        options.output,
        options.n,
        memory_budget=options.memory_budget,
        out=sys.stdout,
        err=sys.stderr,
        replace=options.force,
    )
    return 0


def _predict_inputs(spec: DataSpec, options: argparse.Namespace) -> tuple[DataSpec, str | None]:
    """Observations and sites from the words of ``predict``: an example needs no DATA.csv, a grid no SITES.csv."""
    words = [word for word in (options.first, options.second) if word is not None]
    if options.example is not None:
        spec = example_spec(options.example)
    expected = [name for name, needed in (("DATA.csv", spec.kind != "example"), ("SITES.csv", options.grid is None)) if needed]
    if len(words) != len(expected):
        raise ValueError(
            f"predict needs {' and '.join(expected) or 'no file'} after MODEL.json, but {len(words)} files are given"
        )
    if spec.kind != "example":
        spec = DataSpec(**{**vars(spec), "source": words.pop(0)})
    return spec, words[0] if words else None


def _sites(dataset: Dataset, path: str | None, options: argparse.Namespace) -> Table:
    """Positions and covariates where predictions are wanted."""
    spec = dataset.spec
    if path is not None:
        if options.at is not None:
            raise ValueError("--at is for a --grid: a file of sites has a column of its own")
        table = load_sites(spec, path)
        for text in dropped_note(table):
            note(text)
        return table
    assert options.grid is not None, "_predict_inputs asks for a file without --grid"
    return grid_table(spec, regular_grid(dataset.places, *options.grid)[2], options.at)


def _print_scores(prediction: Prediction, sites: Table, dataset: Dataset) -> None:
    """Score where the sites file has a value."""
    known = np.flatnonzero(np.isfinite(sites.columns[dataset.spec.value]))
    if len(known):
        values = dataset.spec.observed({name: column[known] for name, column in sites.columns.items()})
        print(score_text(score(prediction.take(known), values, dataset.observations.values)))


def _check_fit_files(options: argparse.Namespace) -> None:
    """Find out before a long fit that its results could not be written, or would take the place of something."""
    log = None if goes_on(options.log, options.resume) else options.log
    outputs = [
        oc.Output("--output", options.output, RESULTS),
        oc.Output("--plot", options.plot, PICTURES),
        oc.Output("--log", log, advice=LOG_ADVICE),
    ]
    check_files(options, [("DATA.csv", options.data), ("--resume", options.resume)], outputs)
    if options.output is not None:
        check_output_path(options.output, RESULT, "results")
    if options.log is not None:
        check_output_path(options.log, LOG, "logs of evaluations")
    if options.plot is not None:
        check_picture(options.plot)


def _check_map(dataset: Dataset) -> None:
    """Find out before a long fit that its map could not be drawn."""
    if dataset.spec.axes != dataset.spec.coordinates:
        raise ValueError(f"a map needs to know at which {dataset.spec.axes[-1]}: draw it with `plot map MODEL.json --at VALUE`")
    check_map(dataset)


def _say_beforehand(dataset: Dataset, settings: FactorSettings) -> None:
    """What was read, and the plan of a factorization."""
    say_data(dataset)
    print(settings.plan(dataset.observations.n), flush=True)


def _smoothness(text: str) -> float | Literal["best", "free"]:
    words: dict[str, Literal["best", "free"]] = {"best": "best", "free": "free"}
    return words[text] if text in words else _real(text, "a number, best or free")


def _nugget(text: str) -> Nugget:
    words: dict[str, Nugget] = {"free": "free", "zero": "zero"}
    return words[text] if text in words else _real(text, "free, zero or a variance")


def _real(text: str, expected: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}") from None
