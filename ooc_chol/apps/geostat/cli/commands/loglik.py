"""``ooc-chol geostat loglik``: the log-likelihood of given parameters, or of a fitted model."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ooc_chol.apps.geostat.cli.areas import raster_files, with_other_rasters
from ooc_chol.apps.geostat.cli.columns import add_data_options, load_saved, named_spec
from ooc_chol.apps.geostat.cli.exageostat import THETA_HELP, add_kernel, check_kernel, theta
from ooc_chol.apps.geostat.cli.files import check_files
from ooc_chol.apps.geostat.cli.options import add_settings, factor_settings
from ooc_chol.apps.geostat.cli.summary import model_text
from ooc_chol.apps.geostat.covariances.geometry import GreatCircle
from ooc_chol.apps.geostat.covariances.model_content import model_content
from ooc_chol.apps.geostat.estimation.likelihood import log_likelihood
from ooc_chol.apps.geostat.results import read_result

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat loglik --model zinc.json",
    "ooc-chol geostat loglik field.csv --theta 1,0.1,0.5 --mean zero",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument(
        "data", nargs="?", metavar="DATA.csv", help="file with named columns (default, with --model: what was fitted)"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--theta", "--ttheta", "--itheta", "--initial-theta", type=theta, help=THETA_HELP)
    what.add_argument(
        "--model", type=Path, metavar="MODEL.json", help="what fit wrote, of any covariance; it names the columns, too"
    )
    parser.add_argument("--x", metavar="COLUMN", help="first coordinate; the longitude with --lonlat (default: x)")
    parser.add_argument("--y", metavar="COLUMN", help="second coordinate (default: y)")
    parser.add_argument("--z", metavar="COLUMN", help="third coordinate, if there is one")
    parser.add_argument("--value", metavar="COLUMN", help="the observed values (default: value)")
    add_data_options(parser)
    add_kernel(parser)
    parser.add_argument(
        "--certified",
        action="store_true",
        help="give the interval of exact arithmetic, too, whatever the precision of the factor",
    )
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Print the log-likelihood with its parts."""
    check_files(options, [("DATA.csv", options.data), ("--model", options.model), *raster_files(options)])
    if options.model is not None:
        _check_no_columns(options)
        saved = with_other_rasters(read_result(options.model), options)
        spec, model, reml = saved.spec, saved.model, saved.reml
    else:
        if options.data is None:
            raise ValueError("which data? give DATA.csv: --theta names none")
        check_kernel(options.kernel, options.theta)
        defaults = {"x": options.x or "x", "y": options.y or "y", "value": options.value or "value"}
        spec = named_spec(argparse.Namespace(**{**vars(options), **defaults}))
        if spec.time is not None or spec.variable is not None:
            raise ValueError(
                "--theta is of a Matérn covariance, which knows no --time and no --variable; give --model MODEL.json"
            )
        model, reml = GreatCircle(options.theta) if spec.distance == "great-circle" else options.theta, False
    dataset = load_saved(spec, options.data)
    settings = factor_settings(options)
    found = log_likelihood(dataset.observations, model, reml=reml, settings=settings, certified=options.certified)
    certified = found.interval is not None and bool(np.isfinite(found.interval).all())
    pairs = zip(dataset.observations.mean_columns, found.coefficients, strict=True)
    n, variance = dataset.observations.n, model.variance
    options.answer = {
        "n": n,
        "model": model_content(model),
        "loglik": found.loglik,
        "reml": reml,
        "interval": list(found.interval) if found.interval is not None and certified else None,
        "quadratic": found.quadratic / variance,
        "logdet": found.logdet + n * float(np.log(variance)),
        "mean": dict(zip(dataset.observations.mean_columns, found.coefficients, strict=True)),
        "seconds": found.seconds,
    }
    print(
        f"{n} observations of {spec.value_name}, {model_text(model)}\n"
        f"  loglik       {found.loglik:.15g}{' (restricted)' if reml else ''}\n"
        f"{_interval_line(found.interval)}"
        f"  quadratic    {found.quadratic / variance:.15g}\n"
        f"  logdet       {found.logdet + n * float(np.log(variance)):.15g}\n"
        f"  mean         {', '.join(f'{name} {value:.6g}' for name, value in pairs) or 'zero'}\n"
        f"  seconds      {found.seconds:.2f}"
    )
    return 0


def _interval_line(interval: tuple[float, float] | None) -> str:
    """The line that ``--certified`` asks for; nothing without it."""
    if interval is None:
        return ""
    if not np.isfinite(interval).all():
        return "  interval     nothing is certified: the factor is too far from the matrix, or that too near to a singular one\n"
    return f"  interval     {interval[0]:.15g} to {interval[1]:.15g}, whatever the precision\n"


def _check_no_columns(options: argparse.Namespace) -> None:
    """Raise ``ValueError`` where columns are named although the model's file does that."""
    names = ("x", "y", "z", "value", "covariates", "lonlat", "time", "variable", "error_variance", "error_sd", "kernel", "crs")
    if any(getattr(options, name) for name in names) or options.mean != "constant" or options.distance != "euclidean":
        raise ValueError("MODEL.json says which columns are what, and which covariance it is: leave out the options of columns")
