"""``ooc-chol geostat fit``: estimate covariance and mean, write the result, draw a map."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.cli.areas import raster_files
from ooc_chol.apps.geostat.cli.columns import add_data_options, fit_spec
from ooc_chol.apps.geostat.cli.covariance import add_covariance_options, check_columns
from ooc_chol.apps.geostat.cli.files import check_files
from ooc_chol.apps.geostat.cli.maps import check_map, draw_prediction_map
from ooc_chol.apps.geostat.cli.messages import note, say_data, say_plan, tried
from ooc_chol.apps.geostat.cli.options import add_settings, factor_settings
from ooc_chol.apps.geostat.cli.search import add_fit_options, planned
from ooc_chol.apps.geostat.cli.summary import details_text, fit_text
from ooc_chol.apps.geostat.cli.transform import (
    ESTIMATED,
    add_transform,
    check_estimated,
    power_content,
    transform_lines,
    transformed_fit,
)
from ooc_chol.apps.geostat.cli.units import parameter_units
from ooc_chol.apps.geostat.data.dataset import Dataset, load_dataset
from ooc_chol.apps.geostat.data.endings import RESULT, check_output_path
from ooc_chol.apps.geostat.data.io import write_json
from ooc_chol.apps.geostat.estimation.evaluation_log import LOGS
from ooc_chol.apps.geostat.estimation.fit_plan import FitPlan
from ooc_chol.apps.geostat.estimation.fitting import FitResult
from ooc_chol.apps.geostat.estimation.inference import Inference, infer
from ooc_chol.apps.geostat.estimation.search import Nugget
from ooc_chol.apps.geostat.estimation.smoothness_comparison import COMPARED_LIMIT
from ooc_chol.apps.geostat.estimation.templates import PLUS
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kept_factor import KeptFactor
from ooc_chol.apps.geostat.pictures.plots import PICTURES, check_picture
from ooc_chol.apps.geostat.results import RESULTS, result_content

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat fit soil.csv --x east --y north --value zinc --output zinc.json --plot zinc.png",
    "ooc-chol geostat fit soil.csv --x lon --y lat --lonlat --value zinc --covariates depth --smoothness free --standard-errors",
    "ooc-chol geostat fit --example jacksboro:2000 --smoothness free --output terrain.json",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    data = parser.add_argument_group("data")
    data.add_argument("data", nargs="?", metavar="DATA.csv", help="CSV with names in its first line, .parquet, .nc or .gpkg")
    data.add_argument(
        "--example", metavar="jacksboro[:N]", help="the built-in terrain, N of its heights at random, in place of DATA.csv"
    )
    data.add_argument("--x", metavar="COLUMN", help="first coordinate; the longitude with --lonlat (of points: x)")
    data.add_argument("--y", metavar="COLUMN", help="second coordinate; the latitude with --lonlat (of points: y)")
    data.add_argument("--z", metavar="COLUMN", help="third coordinate, if there is one")
    data.add_argument("--value", metavar="COLUMN", help="the observed values")
    add_transform(data)
    add_data_options(data)
    model = parser.add_argument_group("covariance")
    add_covariance_options(model)
    model.add_argument(
        "--smoothness",
        metavar="NU|auto|best|free",
        type=_smoothness,
        default="auto",
        help="nu; the best of 0.5, 1.5 and 2.5; estimated (free), as with every other --covariance, --start or --fix; or that "
        f"where its likelihood ratio rejects the best (auto, default; up to {COMPARED_LIMIT} observations)",
    )
    model.add_argument(
        "--nugget", metavar="free|zero|VALUE", type=_nugget, default="free", help="variance of the error of an observation"
    )
    search = parser.add_argument_group("search")
    search.add_argument(
        "--max-evaluations", type=int, default=200, metavar="N", help="factorizations per smoothness (default: 200)"
    )
    add_fit_options(search)
    results = parser.add_argument_group("results")
    results.add_argument("--output", type=Path, metavar="RESULT.json", help="write estimates here; predict reads them")
    results.add_argument("--plot", type=Path, metavar="MAP.png", help="draw observed, predicted and standard error")
    add_settings(parser.add_argument_group("factorization"), judged="the log-likelihood is certified")


def run(options: argparse.Namespace) -> int:
    """Read the data, fit, print the estimate, and write what was asked for; status 2 if a part of that failed."""
    if "great-circle" in options.covariance.split(PLUS):
        options.distance = "great-circle"
    spec = fit_spec(options)
    check_columns(options, spec)
    _check_fit_files(options)
    dataset = load_dataset(spec)
    settings = factor_settings(options)
    settings.check_store()
    if options.transform == ESTIMATED:
        check_estimated(dataset, options)
    if options.plot is not None:
        _check_map(dataset)
    plan = _said_plan(dataset, options, settings)
    if options.dry_run:
        options.answer = {"plan": plan.to_dict()}
        return 0

    def keep(found: FitResult[Any]) -> None:
        """Write the estimate before anything that judges it can fail or be interrupted."""
        if options.output is not None:
            content = result_content(dataset.spec, found)
            tried("result file", lambda: write_json(options.output, content, kind=RESULTS, replace=options.force))

    with _keeping(settings, options.standard_errors or options.plot is not None) as settings:
        dataset, result, power = transformed_fit(dataset, options, settings, plan, keep)
        print(fit_text(result, parameter_units(dataset, result.model)))
        print(details_text(result), flush=True)
        print(transform_lines(dataset, result, power), end="", flush=True)
        options.power = power
        used = () if result.precision is None else result.precision.thresholds
        return _after_fit(dataset, result, options, settings.at_threshold(used[-1]) if used else settings)


@contextmanager
def _keeping(settings: FactorSettings, is_needed: bool) -> Iterator[FactorSettings]:
    """Settings that keep the fit's last factor in memory for what comes behind it, if anything does."""
    if not is_needed or settings.store is not None:
        yield settings
        return
    with KeptFactor() as kept:
        yield replace(settings, kept=kept)


def _said_plan(dataset: Dataset, options: argparse.Namespace, settings: FactorSettings) -> FitPlan:
    """Print what was read, and the plan of the fit, which by the approximation goes on where no exact check of it can run."""
    say_data(dataset)
    plan = planned(dataset, options, settings)
    in_full = options.dry_run or options.verbose
    say_plan(plan, in_full=in_full)
    if plan.refusal is not None and not in_full:
        note(f"no exact check of the estimate can run: {plan.refusal}")
    return plan


def _after_fit(dataset: Dataset, result: FitResult[Any], options: argparse.Namespace, settings: FactorSettings) -> int:
    """Write the result, then what can still fail: each step alone, the result again once it has standard errors."""

    def write(found: Inference | None = None) -> None:
        content = {**result_content(dataset.spec, result), **inference_content(found), **power_content(options.power)}
        write_json(options.output, content, kind=RESULTS, replace=options.force)

    def add_standard_errors() -> None:
        found = inference_from_options(dataset, result, settings)
        options.answer |= inference_content(found)
        print(found.text(parameter_units(dataset, result.model)))
        if is_written:
            write(found)

    def draw() -> None:
        draw_prediction_map(options.plot, dataset, result.model, settings, replace=options.force)
        print(f"map in {options.plot}")

    options.answer = {**result_content(dataset.spec, result), **power_content(options.power)}
    is_written = options.output is not None and tried("result file", write)
    succeeded = [is_written or options.output is None]
    if options.standard_errors:
        succeeded.append(tried("standard errors", add_standard_errors))
    if is_written:
        print(f"result in {options.output}")
    if options.plot is not None:
        succeeded.append(tried("map", draw))
    return 0 if all(succeeded) else 2


def _check_fit_files(options: argparse.Namespace) -> None:
    """Find out before a long fit that its results could not be written, or would take the place of something."""
    outputs = [
        tb.Output("--output", options.output, RESULTS),
        tb.Output("--plot", options.plot, PICTURES),
        tb.Output("--checkpoint", options.checkpoint, LOGS),
    ]
    inputs = [("DATA.csv", options.data), *raster_files(options)]
    check_files(options, inputs, outputs)
    if options.output is not None:
        check_output_path(options.output, RESULT, "results")
    if options.plot is not None:
        check_picture(options.plot)


def _check_map(dataset: Dataset) -> None:
    """Find out before a long fit that its map could not be drawn."""
    if dataset.spec.time is not None or dataset.spec.variable is not None:
        raise ValueError(f"a map needs to know at which {dataset.spec.axes[-1]}: draw it with `plot map MODEL.json --at VALUE`")
    check_map(dataset)


def _smoothness(text: str) -> float | Literal["auto", "best", "free"]:
    words: dict[str, Literal["auto", "best", "free"]] = {"auto": "auto", "best": "best", "free": "free"}
    return words[text] if text in words else _real(text, "a number, auto, best or free")


def _nugget(text: str) -> Nugget:
    words: dict[str, Nugget] = {"free": "free", "zero": "zero"}
    return words[text] if text in words else _real(text, "free, zero or a variance")


def _real(text: str, expected: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}") from None


def inference_from_options(dataset: Dataset, result: FitResult[Any], settings: FactorSettings) -> Inference:
    """Standard errors at the estimate of a fit."""
    return infer(dataset.observations, result.model, estimated=result.estimated, reml=result.reml, settings=settings)


def inference_content(found: Inference | None) -> dict[str, Any]:
    """The part of a result file with it; empty when it was not asked for."""
    return {} if found is None else {"inference": found.to_dict()}
