"""``ooc-chol geostat convert``: a fitted covariance in another package's parameters."""

from __future__ import annotations

import argparse
from pathlib import Path

from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.convert import PACKAGES, convert_parameters, packages_for
from ooc_chol.apps.geostat.covariances.geometry import GeometricAnisotropy
from ooc_chol.apps.geostat.results import read_result

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat convert zinc.json",
    "ooc-chol geostat convert zinc.json --convert-to gstools",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("model", type=Path, metavar="MODEL.json", help="what fit wrote")
    parser.add_argument("--convert-to", choices=PACKAGES, metavar="PACKAGE", help=f"one of {', '.join(PACKAGES)} (default: all)")


def run(options: argparse.Namespace) -> int:
    """Print the model in the parameters of one package, or of all."""
    saved = read_result(options.model)
    # chords of longitude and latitude are distances in space
    dimensions = 3 if saved.spec.lonlat else len(saved.spec.coordinates)
    name = saved.spec.error_variance or saved.spec.error_sd
    if name is not None:
        note(f"the known errors of column {name!r} are part of the data, not of these parameters: give them to that package, too")
    every = packages_for(saved.model)
    if isinstance(saved.model, GeometricAnisotropy) and options.convert_to is None:
        note(f"of the packages here {', '.join(every)} have anisotropy of any direction")
    for package in every if options.convert_to is None else (options.convert_to,):
        found = convert_parameters(saved.model, package, dimensions=dimensions)
        options.answer[package] = vars(found)
        print(found)
    return 0
