"""How ``fit`` searches: its options, the fit that they ask for, and what a dry run says of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ooc_chol.apps.geostat.cli.covariance import chosen_family
from ooc_chol.apps.geostat.covariances.azimuth import read_name
from ooc_chol.apps.geostat.data.dataset import Dataset
from ooc_chol.apps.geostat.estimation.fit_options import FitOptions
from ooc_chol.apps.geostat.estimation.fitting import FitResult, fit
from ooc_chol.apps.geostat.estimation.optimizers import METHODS
from ooc_chol.apps.geostat.estimation.progress import SilentProgress, progress_for
from ooc_chol.apps.geostat.estimation.search_end import TOLERANCE
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import NEIGHBOURS
from ooc_chol.apps.geostat.estimation.vecchia_search import LARGE
from ooc_chol.apps.geostat.factorization import FactorSettings

_FoundT = TypeVar("_FoundT")

#: Options of :class:`FitOptions` that have the same names in the words of ``fit``.
_FIT_OPTIONS = (
    "nugget",
    "method",
    "reml",
    "max_evaluations",
    "tolerance",
    "neighbours",
    "starts",
    "exact_check",
)


def add_fit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of method, likelihood, logs and precision, and those of the approximation."""
    parser.add_argument(
        "--formula",
        metavar="'V ~ A + sqrt(B)'",
        help="value and mean by column names, in place of --value, --covariates and --mean",
    )
    parser.add_argument(
        "--method",
        choices=METHODS,
        help="without derivatives (cobyqa, or NLopt's bobyqa), by the gradient (lbfgs), by Fisher scoring (default), or so on "
        "Vecchia's approximation",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="GAIN",
        help="end the search when the next step would gain less log-likelihood than this (default: %(default)g)",
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
        choices=("auto", "template", "subset", "vecchia", "variogram"),
        default="auto",
        help="start from the template of --covariance, a subset, the semivariogram, Vecchia's approximation, or that for "
        f"{LARGE} values or more (default)",
    )
    parser.add_argument(
        "--exact-check",
        choices=("value", "score", "skip"),
        help="with --method vecchia or --precision-threshold: one log-likelihood in FP64 at the estimate, with its gradient too, "
        "or none (default: value with vecchia, skip with a threshold, where an interval tells)",
    )


def fit_from_options(
    dataset: Dataset,
    options: argparse.Namespace,
    settings: FactorSettings,
    on_estimate: Callable[[FitResult[Any]], None] | None = None,
) -> FitResult[Any]:
    """Fit as the options say, with progress on standard error; the estimate is handed over before anything judges it."""
    return searched(dataset, options, settings, partial(fit, on_estimate=on_estimate))


def searched(dataset: Dataset, options: argparse.Namespace, settings: FactorSettings, search: Callable[..., _FoundT]) -> _FoundT:
    """Run ``search``, which takes the options of :func:`~ooc_chol.apps.geostat.fit`, with progress on standard error."""
    asked = _asked(dataset, options, settings)
    progress = SilentProgress() if options.quiet else progress_for(sys.stderr, dataset.spec.unit)
    logs = {"log": options.log, "resume": options.resume, "replace_log": options.force}
    try:
        return search(dataset.observations, progress=progress, **logs, **asked)
    except KeyboardInterrupt:
        log = options.log or options.resume
        if log is not None:
            print(f"\nnote: all evaluations so far are in {log}; go on with --resume {log}", file=sys.stderr)
        raise
    finally:
        progress.close()


def search_text(dataset: Dataset, options: argparse.Namespace, settings: FactorSettings) -> str:
    """Text of a dry run about the search; refuses the same arguments as the fit."""
    asked = FitOptions(**_asked(dataset, options, settings, search=False))
    asked.check(dataset.observations)
    spaces = asked.spaces(dataset.observations)
    asked.start(spaces[0])
    variance = ["variance"] if spaces[0].is_profiled else []
    profiled = ", ".join([*variance, *(f"coefficient of {name}" for name in dataset.observations.mean_columns)]) or "nothing"
    names = ", ".join(map(read_name, spaces[0].names))
    more = ", and one that estimates the smoothness," if asked.estimates_smoothness_too(dataset.observations.n) else ""
    searches = f"{len(spaces)} search{'es' if len(spaces) > 1 else ''}{more}"
    refusal = asked.refusal(dataset.observations)
    unchecked = "" if refusal is None else f"\nno exact check of the estimate can run: {refusal}"
    return (
        f"dry run: {searches} by {asked.search_method(dataset.observations)} over "
        f"{names}; profiled out: {profiled}; at most {asked.max_evaluations} evaluations each{unchecked}"
    )


def _asked(dataset: Dataset, options: argparse.Namespace, settings: FactorSettings, *, search: bool = True) -> dict[str, Any]:
    """Arguments of :func:`~ooc_chol.apps.geostat.fit` from the options; of a family the best start, unless none is requested."""
    family = chosen_family(dataset, options, search=search)
    what = {"smoothness": options.smoothness} if family is None else {"covariance": family.start, "fixed": family.fixed}
    return {**{name: getattr(options, name) for name in _FIT_OPTIONS}, **what, "settings": settings}
