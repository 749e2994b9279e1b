"""ExaGeoStat's words for a Matérn covariance: its ``theta``, and names of its covariance functions."""

from __future__ import annotations

import argparse

from ooc_chol.apps.geostat.cli.options import numbers
from ooc_chol.apps.geostat.cli.parser import bare
from ooc_chol.apps.geostat.covariances.covariance import Matern

#: ExaGeoStat's names of the covariance functions that are here, without case and underscores, and their parameters.
KERNELS = {"univariatematernstationary": 3, "univariatematernnuggetsstationary": 4}

THETA_HELP = "parameters with commas (or colons) between: VARIANCE,RANGE,SMOOTHNESS[,NUGGET]"


def add_kernel(parser: argparse.ArgumentParser) -> None:
    """Add ``--kernel``."""
    parser.add_argument(
        "--kernel",
        type=_kernel,
        metavar="NAME",
        help="of --theta: univariate_matern_stationary or univariate_matern_nuggets_stationary",
    )


def theta(text: str) -> Matern:
    """A Matérn model from ``variance,range,smoothness[,nugget]``."""
    values = numbers(text)
    if len(values) not in (3, 4):
        raise argparse.ArgumentTypeError(f"{text!r} is not variance,range,smoothness[,nugget]")
    try:
        return Matern(*values)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_kernel(kernel: str | None, model: Matern) -> None:
    """Raise ``ValueError`` unless the kernel has as many parameters as the model."""
    if kernel is not None and (KERNELS[kernel] == 3) != (model.nugget == 0):
        raise ValueError(f"{kernel} has {KERNELS[kernel]} parameters, but the nugget of --theta is {model.nugget:g}")


def _kernel(text: str) -> str:
    name = bare(text)
    if name not in KERNELS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of ExaGeoStat's covariance functions that are here: univariate_matern_stationary and "
            "univariate_matern_nuggets_stationary"
        )
    return name
