"""``ooc-chol plan``: say what a factorization would move, need and take."""

from __future__ import annotations

import argparse
from pathlib import Path

import ooc_chol as oc
import ooc_chol.api.plan  # there before the command begins, which then answers signals itself
import ooc_chol.toolbox as tb
from ooc_chol.calls.options import count
from ooc_chol.cli.outputs import FORCE, PICTURES
from ooc_chol.cli.parsers import examples, place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of ``plan`` to its parser."""
    parser.epilog = examples(
        "ooc-chol plan --n 160000 --memory-budget '80 GB' --devices cuda:0    # on any machine",
        "ooc-chol plan --matrix covariance.npy --fp64 residue --moduli 13",
        "ooc-chol plan --matrix covariance.npy --precision-threshold 1e-6 --picture formats.svg",
    )
    matrix = parser.add_mutually_exclusive_group(required=True)
    matrix.add_argument("--n", type=count, help="order of a float64 matrix")
    matrix.add_argument("--matrix", type=place, help="a .npy file, or a Zarr array")
    parser.add_argument("--store", type=place, help="plan for L in this file or Zarr group instead of in memory")
    parser.add_argument("--picture", type=Path, help="draw the formats of all tiles as an SVG file")
    parser.add_argument(FORCE, action="store_true", help="replace whatever file the picture has the name of")
    oc.FactorOptions.add_arguments(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    picture = tb.Output("--picture", arguments.picture, PICTURES)
    tb.check_outputs([picture], [("--matrix", arguments.matrix)], replace=arguments.force, ask=FORCE)
    options = oc.FactorOptions.from_arguments(arguments)
    if arguments.picture is not None:
        if arguments.picture.suffix.lower() != ".svg":
            raise ValueError(f"{arguments.picture}: pictures of a plan are written as .svg")
        if options.precision_threshold is None:
            raise ValueError("--picture draws the formats of tiles in mixed precision: give --precision-threshold, too")
    matrix = arguments.n if arguments.matrix is None else arguments.matrix
    plan = oc.plan(matrix, **options.keywords(), store=arguments.store)
    if arguments.picture is not None:
        assert plan.precision is not None  # where there is a threshold
        with tb.output_file(arguments.picture, kind=PICTURES, replace=arguments.force, ask=FORCE) as part:
            part.write_text(plan.precision.svg(), encoding="utf-8")
    arguments.answer = plan.to_dict()
    print(plan)
