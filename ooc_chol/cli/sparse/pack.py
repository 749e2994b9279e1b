"""``ooc-chol sparse pack``: a sparse matrix of another format, packed in a file."""

from __future__ import annotations

import argparse
from pathlib import Path

import ooc_chol as oc
from ooc_chol.cli.parsers import examples
from ooc_chol.cli.sparse.options import (
    SOURCE_HELP,
    add_order,
    add_packed_output,
    add_source_options,
    check_packed_output,
    figures,
    source_of,
)

NAME = "pack"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Pack a sparse matrix in row blocks, each with values in the narrowest type that holds them exactly, behind checksums. "
        "The file gets its name once it is complete."
    )
    parser.epilog = examples(
        "ooc-chol sparse pack matrix.mtx --output matrix.oocsr",
        "ooc-chol sparse pack edges.txt.gz --one-based --directed -o edges.oocsr",
        "ooc-chol sparse pack matrix.npz --dtype float32 --zeros drop -o single.oocsr",
        "ooc-chol sparse pack graph.npz --order degree -o hubs-first.oocsr",
    )
    parser.add_argument("source", type=Path, metavar="SOURCE", help=SOURCE_HELP)
    add_order(parser)
    add_packed_output(parser)
    parser.add_argument(
        "--dtype", choices=("float32", "float64"), help="float32 rounds every value to it (default: the source's)"
    )
    add_source_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    check_packed_output(arguments, arguments.source)
    with oc.block_csr(
        source_of(arguments, arguments.source),
        store=arguments.output,
        block_bytes=arguments.block_bytes,
        dtype=arguments.dtype,
        order=arguments.order,
        replace=arguments.force,
        progress=not arguments.quiet,
    ) as matrix:
        arguments.answer = figures(matrix)
        print(matrix.info())
