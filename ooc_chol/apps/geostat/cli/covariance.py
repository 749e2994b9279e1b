"""Options of ``fit`` that choose a covariance function, where its search starts, and what it keeps."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from ooc_chol.apps.geostat.cli.options import column_names
from ooc_chol.apps.geostat.covariances.azimuth import typed_values
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec
from ooc_chol.apps.geostat.estimation.templates import BASES, FAMILIES, PLUS, candidate_models, starting_model

#: Families made of any radial function.
_WITH_BASE = ("anisotropic", "axis-ranges", "great-circle", "separable")

#: Families whose axes are those of the coordinates.
_IN_PLANE = ("anisotropic", "axis-ranges")

#: Families of space and time (per-axis ranges take the time as one more axis), and of two variables.
_WITH_TIME = ("separable", "gneiting", "axis-ranges")
_NEED_TIME = ("separable", "gneiting")
_WITH_VARIABLE = ("bivariate",)

#: The family whose variance and range change from place to place.
_LOCAL = "nonstationary"


@dataclass(frozen=True)
class Family:
    """Options of a covariance function other than a Matérn one with a start of its own."""

    start: AbstractCovariance  #: Class and values to start from
    fixed: tuple[str, ...]  #: Parameters that are kept


def add_covariance_options(parser: argparse._ActionsContainer) -> None:
    """Add ``--covariance`` with base, start and kept parameters."""
    parser.add_argument(
        "--covariance",
        metavar="NAME[+NAME...]",
        type=_families,
        default="matern",
        help=f"the covariance function, one of {', '.join(FAMILIES)} (default: matern, isotropic); with plus signs between, a "
        "sum of several (nested structures)",
    )
    parser.add_argument(
        "--base", choices=BASES, help=f"radial function of {', '.join(_WITH_BASE)}, for time too (default: matern)"
    )
    for what in ("variance", "range"):
        parser.add_argument(
            f"--{what}-covariates",
            metavar="A,B",
            type=column_names,
            default=(),
            help=f"columns by which the {what} changes from place to place, with --covariance {_LOCAL}",
        )
    parser.add_argument(
        "--start",
        metavar="range=0.1,azimuth=30",
        type=_values,
        action=_Merged,
        default={},
        help="where the search starts (default: lengths from the extent of the sites); azimuths in degrees clockwise from north",
    )
    parser.add_argument(
        "--fix",
        metavar="smoothness=1.5,...",
        type=_kept,
        action=_Merged,
        default={},
        help="parameters that are kept, at a value or at their start",
    )


class _Merged(argparse.Action):
    """Names and values of an option that is given once or more, each name once."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        """Add the values to those before them."""
        there = getattr(namespace, self.dest)
        if twice := [name for name in values if name in there]:
            raise argparse.ArgumentError(self, f"{twice[0]!r} is given twice")
        setattr(namespace, self.dest, {**there, **values})


def is_family(options: argparse.Namespace) -> bool:
    """Tell whether the options ask for more than a Matérn covariance of Euclidean distance with a start of its own."""
    return options.covariance != "matern" or bool(options.start or options.fix) or options.distance == "great-circle"


def check_columns(options: argparse.Namespace, spec: DataSpec) -> None:
    """Raise ``ValueError`` unless the columns are those that the covariance function needs."""
    if "nugget" in options.fix:
        raise ValueError("the nugget is kept by --nugget zero or --nugget VALUE, not by --fix")
    if PLUS in options.covariance and isinstance(options.smoothness, float):
        raise ValueError("--smoothness is for one structure: keep those of several by --fix smoothness_1=NU,smoothness_2=NU")
    if options.base is not None and not set(options.covariance.split(PLUS)) & set(_WITH_BASE):
        raise ValueError(f"--base is for --covariance {', '.join(_WITH_BASE)}, not for {options.covariance}")
    for name in options.covariance.split(PLUS):
        _check_family(name, options, spec)


def _check_family(name: str, options: argparse.Namespace, spec: DataSpec) -> None:
    """The same for one family."""
    if name in _NEED_TIME and spec.time is None:
        raise ValueError(f"--covariance {name} is one of space and time: say which column has the time (--time COLUMN)")
    if spec.time is not None and name not in _WITH_TIME:
        raise ValueError(f"--time is for --covariance {', '.join(_WITH_TIME)}; {name} would take the time for one more distance")
    if (spec.variable is not None) != (name in _WITH_VARIABLE):
        raise ValueError("--covariance bivariate and --variable COLUMN go together")
    if bool(spec.local_covariates) != (name == _LOCAL):
        raise ValueError(f"--covariance {_LOCAL} and --variance-covariates or --range-covariates go together")
    if spec.lonlat and name in _IN_PLANE:
        raise ValueError(
            f"--covariance {name} has directions in the plane, which --lonlat does not: project the coordinates first, or take "
            "degrees for lengths and leave out --lonlat"
        )


def chosen_family(dataset: Dataset, options: argparse.Namespace, *, search: bool = True) -> Family | None:
    """The covariance function that the options ask for, with its start."""
    if not is_family(options):
        return None
    fixed, begun = typed_values(options.fix), typed_values(options.start)
    if isinstance(options.smoothness, float):
        fixed["smoothness"] = options.smoothness
    given = {name: value for name, value in fixed.items() if value is not None}
    make: dict[str, Any] = {
        "base": options.base or "matern",
        "great_circle": dataset.spec.distance == "great-circle",
        "values": {**begun, **given},
        "variance_covariates": options.variance_covariates,
        "range_covariates": options.range_covariates,
    }
    if not search:
        return Family(candidate_models(options.covariance, dataset.observations, **make)[0], tuple(fixed))
    start = starting_model(options.covariance, dataset.observations, nugget=options.nugget, fixed=tuple(fixed), **make)
    return Family(start, tuple(fixed))


def _families(text: str) -> str:
    """Names of families with plus signs between."""
    names = [name.strip() for name in text.split(PLUS)]
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"invalid choice: {unknown[0]!r} (choose from {', '.join(FAMILIES)}, or sums of them)")
    return PLUS.join(names)


def _values(text: str) -> dict[str, float]:
    """``NAME=NUMBER`` with commas between."""
    found = _kept(text)
    without = [name for name, value in found.items() if value is None]
    if without:
        raise argparse.ArgumentTypeError(f"{without[0]!r} has no value; write {without[0]}=NUMBER")
    return {name: value for name, value in found.items() if value is not None}


def _kept(text: str) -> dict[str, float | None]:
    """``NAME=NUMBER`` or ``NAME`` with commas between."""
    found: dict[str, float | None] = {}
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if name in found:
            raise argparse.ArgumentTypeError(f"{name!r} is given twice")
        try:
            found[name] = float(number) if equals else None
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is not of the form NAME=NUMBER") from None
        if not name:
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=NUMBER,NAME=NUMBER")
    return found
