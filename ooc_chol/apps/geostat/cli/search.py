"""How ``fit`` searches: its options, the fit that they ask for, and what a dry run says of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.cli.covariance import chosen_family
from ooc_chol.apps.geostat.data.dataset import Dataset
from ooc_chol.apps.geostat.estimation.fit_plan import FitPlan
from ooc_chol.apps.geostat.estimation.fitting import FitResult, fit, plan_fit
from ooc_chol.apps.geostat.estimation.optimizers import METHODS
from ooc_chol.apps.geostat.estimation.progress import SilentProgress, progress_for
from ooc_chol.apps.geostat.estimation.search_end import TOLERANCE
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import NEIGHBOURS
from ooc_chol.apps.geostat.estimation.vecchia_search import LARGE
from ooc_chol.apps.geostat.factorization import FactorSettings

_FoundT = TypeVar("_FoundT")

#: Options of :func:`~ooc_chol.apps.geostat.fit` that have the same names in the words of ``fit``.
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


def add_fit_options(parser: argparse._ActionsContainer) -> None:
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
    tb.add_words(parser, ["checkpoint"], more={"checkpoint": "a line of JSON for each evaluation"})
    parser.add_argument("--dry-run", action="store_true", help="read the data, print the plan of the fit, and stop")


def add_vecchia_options(parser: argparse._ActionsContainer) -> None:
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
    plan: FitPlan,
    on_estimate: Callable[[FitResult[Any]], None] | None = None,
) -> FitResult[Any]:
    """Fit as the options say, with progress on standard error; the estimate is handed over before anything judges it."""
    return searched(dataset, options, settings, partial(fit, plan=plan, on_estimate=on_estimate))


def searched(dataset: Dataset, options: argparse.Namespace, settings: FactorSettings, search: Callable[..., _FoundT]) -> _FoundT:
    """Run ``search``, which takes the options of :func:`~ooc_chol.apps.geostat.fit`, with progress on standard error."""
    asked = _asked(dataset, options, settings)
    progress = SilentProgress() if options.quiet else progress_for(sys.stderr, dataset.spec.unit)
    files = {} if options.checkpoint is None else {"checkpoint": options.checkpoint, "replace": options.force}
    try:
        return search(dataset.observations, progress=progress, **files, **asked)
    except KeyboardInterrupt:
        if options.checkpoint is not None:
            without = " without --force" if options.force else ""
            print(f"\nnote: the same command{without} goes on from {options.checkpoint}", file=sys.stderr)
        raise
    finally:
        progress.close()


def planned(dataset: Dataset, options: argparse.Namespace, settings: FactorSettings) -> FitPlan:
    """Plan the fit that the options ask for; refuses the same arguments."""
    return plan_fit(dataset.observations, **_asked(dataset, options, settings, search=False))


def _asked(dataset: Dataset, options: argparse.Namespace, settings: FactorSettings, *, search: bool = True) -> dict[str, Any]:
    """Arguments of :func:`~ooc_chol.apps.geostat.fit` from the options; of a family the best start, unless none is requested."""
    family = chosen_family(dataset, options, search=search)
    what = {"smoothness": options.smoothness} if family is None else {"covariance": family.start, "fixed": family.fixed}
    return {**{name: getattr(options, name) for name in _FIT_OPTIONS}, **what, "settings": settings}
