"""``ooc-chol geostat synth``: ExaGeoStat's synthetic data."""

from __future__ import annotations

import argparse
from pathlib import Path

import ooc_chol as oc
from ooc_chol.apps.geostat.cli.exageostat import THETA_HELP, add_kernel, check_kernel, theta
from ooc_chol.apps.geostat.cli.files import check_files
from ooc_chol.apps.geostat.cli.options import add_settings, factor_settings
from ooc_chol.apps.geostat.cli.summary import model_text
from ooc_chol.apps.geostat.covariances.model_content import model_content
from ooc_chol.apps.geostat.data.layers import Column, Layer, check_layer, write_layer
from ooc_chol.apps.geostat.data.spec import DataSpec
from ooc_chol.apps.geostat.synth import synthesize

#: Shown below the help of the command.
EXAMPLES = ("ooc-chol geostat synth --n 2000 --theta 1,0.1,0.5 --output field.csv",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Sites and values are those that ExaGeoStat generates for this seed. Its option names are understood, too, "
        "whatever their case, dashes and underscores: --N, --kernel, --ttheta, --initial_theta, --dts, --dimension."
    )
    parser.add_argument("--n", type=int, required=True, help="number of observations")
    parser.add_argument("--theta", "--ttheta", "--itheta", "--initial-theta", type=theta, required=True, help=THETA_HELP)
    parser.add_argument("--seed", type=int, default=0, help="0 to 4095 (default: 0)")
    parser.add_argument("--dimension", type=_dimension, default=2, metavar="2D|3D", help="unit square or unit cube (default: 2D)")
    add_kernel(parser)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DATA.csv",
        help="write x, y (and z in three dimensions) and value here; .nc, .gpkg or .parquet too",
    )
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Generate sites and values, and write them."""
    check_layer(options.output, "synthetic data")
    check_kernel(options.kernel, options.theta)
    check_files(options, [], [oc.Output("--output", options.output)])
    sample = synthesize(
        options.theta, options.n, seed=options.seed, dimension=options.dimension, settings=factor_settings(options)
    )
    spec = DataSpec("csv", "", tuple("xyz"[: options.dimension]), "value")
    title = f"synthetic data of seed {options.seed}"
    layer = Layer(spec, sample.coordinates, {"value": Column(sample.values)}, title)
    write_layer(options.output, layer, replace=options.force)
    options.answer = {"output": options.output, "n": options.n, "seed": options.seed, "model": model_content(options.theta)}
    print(f"{options.n} observations of {model_text(options.theta)} in {options.output}, of seed {options.seed}")
    return 0


def _dimension(text: str) -> int:
    dimensions = {"2d": 2, "2": 2, "3d": 3, "3": 3}
    if text.lower() not in dimensions:
        raise argparse.ArgumentTypeError(f"{text!r} is not 2D or 3D (space-time data are not generated here)")
    return dimensions[text.lower()]
