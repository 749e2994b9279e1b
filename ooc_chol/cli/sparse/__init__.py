"""``ooc-chol sparse``: make random graphs, pack sparse matrices, look at them, and multiply with them."""

from __future__ import annotations

import argparse

from ooc_chol.cli.parsers import examples
from ooc_chol.cli.sparse import info, make, multiply, pack


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``sparse`` to its parser."""
    parser.epilog = examples(
        "ooc-chol sparse make rmat --scale 20 --output graph.oocsr",
        "ooc-chol sparse pack matrix.mtx --output matrix.oocsr",
        "ooc-chol sparse info graph.oocsr",
        "ooc-chol sparse multiply graph.oocsr --columns 8 --times 3",
    )
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    for module, told in (
        (make, "make a random graph, R-MAT or uniform, packed in a file"),
        (pack, "pack a sparse matrix from files of other formats"),
        (info, "print a page on a sparse matrix; read all its checksums"),
        (multiply, "multiply a sparse matrix, or its Laplacian, with vectors; or plan that"),
    ):
        module.add_options(commands.add_parser(module.NAME, help=told))
