"""Options shared by the commands: the schedule, how it is computed, and files."""

from __future__ import annotations

import argparse
from typing import Any

import ooc_chol as oc
import ooc_chol.toolbox as tb

#: How a user asks for files to be replaced.
FORCE = "--force"
#: Arguments of ``oc.impute`` that have an option of their name, and are passed on where that is given.
_GIVEN = ("n_lambdas", "decay", "max_inner", "tol", "svt", "precision", "momentum", "shrinkage")
#: Words for what ``center`` may be.
_CENTERS = {"auto": "auto", "yes": True, "no": False}
#: The same of common ones.
_COMMON = ("devices", "memory_budget", "host_budget")


def add_impute_options(parser: argparse.ArgumentParser) -> None:
    """Add the schedule, and how it is computed."""
    schedule = parser.add_argument_group("how lambda falls")
    count = "values of lambda (default: 20); auto, of fit: up to where the held-out error is smallest, for data with noise"
    schedule.add_argument("--n-lambdas", type=_count_or_auto, metavar="L", help=count)
    schedule.add_argument("--decay", type=float, help="each value is this share of the last one (default: 0.5)")
    schedule.add_argument("--max-inner", type=int, metavar="STEPS", help="most steps for each value (default: 10)")
    schedule.add_argument(
        "--tol", type=float, help="mean square of changes, of that of the tensor, that is enough (default: 1e-8)"
    )
    schedule.add_argument("--momentum", type=float, help="how far steps go beyond estimates (default: 0.7; 0: they do not)")
    rule = "what a singular value s becomes: s - lambda**2 / s, or soft, s - lambda, the convex model (default: garrote)"
    schedule.add_argument("--shrinkage", choices=("garrote", "soft"), help=rule)
    mean = "whether the mean of what is observed is taken off before (default: auto, where it is more than chance)"
    schedule.add_argument("--center", choices=_CENTERS, help=mean)
    how = parser.add_argument_group("how it is computed")
    routes = ("auto", "gram64", "subspace", "svd")
    route = "how singular values are lowered: Gram matrices, subspaces, SVD (default: auto, by the size of slices)"
    how.add_argument("--svt", choices=routes, help=route)
    precision = "types of the tensor, transforms and sums: D is float64, F float32 (default: FDF for float32, else DDD)"
    how.add_argument("--precision", choices=[each.value for each in oc.Precision], help=precision)
    tb.add_words(how, _COMMON)


def _count_or_auto(text: str) -> int | str:
    """A number of values, or the word."""
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor auto") from None


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add the word for replacing files."""
    parser.add_argument(
        FORCE, action="store_true", help="replace files that exist already; files that the command reads are never replaced"
    )


def impute_options(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of ``oc.impute`` that the user gave."""
    found = {name: getattr(options, name) for name in (*_GIVEN, *_COMMON)}
    if options.center is not None:
        found["center"] = _CENTERS[options.center]
    return {name: value for name, value in found.items() if value is not None}
