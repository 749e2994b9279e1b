"""The options of ``ooc-chol geostat fit`` that say how to search and what to tell, and the fit that they ask for."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from ooc_chol.apps.geostat.cli.command_covariance import chosen_family, is_family
from ooc_chol.apps.geostat.data.dataset import Dataset
from ooc_chol.apps.geostat.estimation.fitting import FitResult, default_method, fit
from ooc_chol.apps.geostat.estimation.inference import Estimated, Inference, infer
from ooc_chol.apps.geostat.estimation.optimizers import METHODS
from ooc_chol.apps.geostat.estimation.precision import PrecisionCheck
from ooc_chol.apps.geostat.estimation.progress import progress_for
from ooc_chol.apps.geostat.estimation.search import SearchSpace
from ooc_chol.apps.geostat.estimation.spaces import family_space, search_space
from ooc_chol.apps.geostat.estimation.vecchia_check import VecchiaCheck
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import NEIGHBOURS
from ooc_chol.apps.geostat.estimation.vecchia_search import LARGE
from ooc_chol.apps.geostat.factorization import FactorSettings

#: Options that :func:`~ooc_chol.apps.geostat.fit` takes by the same names.
_FIT_OPTIONS = (
    "nugget",
    "method",
    "reml",
    "max_evaluations",
    "neighbours",
    "starts",
    "exact_check",
    "log",
    "resume",
)


def add_fit_options(parser: argparse.ArgumentParser) -> None:
    """Add them to the parser of ``fit``."""
    parser.add_argument(
        "--formula",
        metavar="'V ~ A + sqrt(B)'",
        help="value and mean by column names, in place of --value, --covariates and --mean",
    )
    parser.add_argument(
        "--method",
        choices=METHODS,
        help="without derivatives (cobyqa, the default, or NLopt's bobyqa), by the gradient (lbfgs), by Fisher scoring "
        "(default beyond range and nugget), or so on Vecchia's approximation",
    )
    add_vecchia_options(parser)
    parser.add_argument("--reml", action="store_true", help="maximise the restricted likelihood")
    parser.add_argument("--standard-errors", action="store_true", help="standard errors and 95 %% intervals of all parameters")
    parser.add_argument("--log", type=Path, metavar="LOG.jsonl", help="write a line for every evaluation to this new file")
    parser.add_argument("--resume", type=Path, metavar="LOG.jsonl", help="go on from such a file, and add to it")
    parser.add_argument("--dry-run", action="store_true", help="read the data, print the plan of a factorization, and stop")


def add_vecchia_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of Vecchia's approximation to the parser of ``fit``."""
    parser.add_argument(
        "--neighbours",
        type=int,
        default=NEIGHBOURS,
        metavar="M",
        help="earlier neighbours of each value in Vecchia's approximation (%(default)s)",
    )
    parser.add_argument(
        "--starts",
        choices=("auto", "template", "subset", "vecchia"),
        default="auto",
        help=f"start from the template of --covariance, a subset, Vecchia's approximation, or that for {LARGE} values or more "
        "(default)",
    )
    parser.add_argument(
        "--exact-check",
        choices=("value", "score", "skip"),
        default="value",
        help="with --method vecchia: one exact log-likelihood at the estimate (default), with its gradient, or none",
    )


def fit_from_options(dataset: Dataset, options: argparse.Namespace, settings: FactorSettings) -> FitResult[Any]:
    """Fit as the options say, with progress on standard error."""
    family = chosen_family(dataset, options)
    progress = progress_for(sys.stderr, dataset.spec.unit)
    same: dict[str, Any] = {
        **{name: getattr(options, name) for name in _FIT_OPTIONS},
        "replace_log": options.force,
        "settings": settings,
        "progress": progress,
    }
    try:
        if family is None:
            return fit(dataset.observations, smoothness=options.smoothness, **same)
        return fit(dataset.observations, covariance=family.start, fixed=family.fixed, **same)
    except KeyboardInterrupt:
        log = options.log or options.resume
        if log is not None:
            print(f"\nnote: all evaluations so far are in {log}; go on with --resume {log}", file=sys.stderr)
        raise
    finally:
        progress.close()


def search_text(dataset: Dataset, options: argparse.Namespace) -> str:
    """What a dry run says of the search."""
    space, searches = _searched(dataset, options)
    names = [name for name in space.names if name != "smoothness" or searches == 1]
    variance = ["variance"] if space.is_profiled else []
    profiled = ", ".join([*variance, *(f"coefficient of {name}" for name in dataset.observations.mean_columns)]) or "nothing"
    is_harder = is_family(options) or dataset.observations.error_variances is not None
    method = default_method(options.method, "free" if is_harder else options.smoothness)
    return (
        f"dry run: {searches} search{'es' if searches > 1 else ''} by {method} over {', '.join(names)}; profiled out: "
        f"{profiled}; at most {options.max_evaluations} evaluations each"
    )


def _searched(dataset: Dataset, options: argparse.Namespace) -> tuple[SearchSpace[Any], int]:
    """The space of a fit, and how many searches there are in such spaces."""
    family = chosen_family(dataset, options, search=False)
    if family is not None:
        return family_space(dataset.observations, family.start, options.nugget, fixed=family.fixed), 1
    is_kept = isinstance(options.smoothness, float)
    space = search_space(dataset.observations, options.nugget, options.smoothness if is_kept else None)
    return space, 3 if options.smoothness == "best" else 1


def details_text(result: FitResult[Any]) -> str:
    """What :func:`~ooc_chol.apps.geostat.cli.summary.fit_text` leaves out: method, criteria, precision."""
    kind = "restricted likelihood" if result.reml else "likelihood"
    reused = f", {result.reused} evaluations from the log" if result.reused else ""
    lines = [f"  method       {kind} by {result.method}{reused}; AIC {result.aic:.3f}, BIC {result.bic:.3f}"]
    if result.precision is not None:
        lines += precision_lines(result.precision)
    if result.vecchia is not None:
        lines += vecchia_lines(result.vecchia)
    return "\n".join(lines)


def precision_lines(check: PrecisionCheck) -> list[str]:
    """What mixed precision changed of an estimate."""
    if check.loglik_error is None:
        return [f"  precision    loglik in mixed precision, not judged in FP64: {check.problem}"]
    lines = [f"  precision    loglik in mixed precision less that in FP64: {check.loglik_error:+.3g}"]
    if check.shift is None or check.shift_in_errors is None:
        return [*lines, f"               how far the estimate in FP64 is was not judged: {check.problem}"]
    shifts = ", ".join(f"{name} {100 * shift:+.2g} %" for name, shift in check.shift.items())
    away = f"the estimate in FP64 is {check.shift_in_errors:.2g} standard errors away"
    return [*lines, f"               {away}: {shifts or 'nothing to shift'}"]


def vecchia_lines(check: VecchiaCheck) -> list[str]:
    """How far an estimate by Vecchia's approximation is from exact."""
    approximate = f"  vecchia      loglik {check.loglik:.6f} with {check.neighbours} neighbours"
    if check.gap is None:
        return [f"{approximate}; not compared with the exact one" + ("" if check.problem is None else f": {check.problem}")]
    lines = [f"{approximate}, less the exact one: {check.gap:+.4f} ({check.seconds:.1f} s)"]
    if check.shift is not None and check.shift_in_errors is not None:
        shifts = ", ".join(f"{name} {shift:+.2g}" for name, shift in check.shift.items())
        lines.append(f"               the exact estimate is about {check.shift_in_errors:.2g} standard errors away: {shifts}")
    return lines


def inference_from_options(dataset: Dataset, result: FitResult[Any], settings: FactorSettings) -> Inference:
    """Standard errors at the estimate of a fit."""
    return infer(dataset.observations, result.model, estimated=result.estimated, reml=result.reml, settings=settings)


def inference_text(found: Inference) -> str:
    """Standard errors and intervals as a table."""
    more = {"effective range": found.effective_range, "variance / range**(2 nu)": found.microergodic}
    rows: dict[str, Estimated] = {**found.parameters, **{name: value for name, value in more.items() if value is not None}}
    how = f"{found.probes} probes, relative error {found.relative_error:.1g}" if found.probes else "exact"
    lines = [f"standard errors and {100 * found.level:g} % intervals (expected information, {how})"]
    for name, value in rows.items():
        interval = f"{value.lower:.6g} to {value.upper:.6g}" if math.isfinite(value.upper) else "not determined"
        lines.append(f"  {name:26s}{value.value:.6g} ± {value.standard_error:.2g}, {interval}")
    return "\n".join([*lines, *(f"  warning: {text}" for text in found.warnings)])


def inference_content(found: Inference | None) -> dict[str, Any]:
    """The part of a result file with it; empty when it was not asked for."""
    return {} if found is None else {"inference": found.to_dict()}
