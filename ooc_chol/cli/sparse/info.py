"""``ooc-chol sparse info``: a page on a sparse matrix, and whether its file is as it was written."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

import ooc_chol as oc
from ooc_chol.cli.parsers import examples
from ooc_chol.cli.sparse.options import SOURCE_HELP, add_source_options, figures, opened
from ooc_chol.memory.block_files import is_packed_file

NAME = "info"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Print a page on a sparse matrix: blocks by kind, bytes, and what its source counted. Of a packed file the header is "
        "enough; anything else is packed in host memory first. With --verify the exit status is 0 where every byte is as it was "
        "written, and 1 where the file is damaged."
    )
    parser.epilog = examples("ooc-chol sparse info graph.oocsr", "ooc-chol sparse info graph.oocsr --verify --json --quiet")
    parser.add_argument("source", type=Path, metavar="SOURCE", help=SOURCE_HELP)
    parser.add_argument("--verify", action="store_true", help="read a packed file whole, and compare all its checksums")
    add_source_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.verify and not is_packed_file(arguments.source):
        raise ValueError(f"{arguments.source} is no packed matrix, and only those have checksums: leave --verify out, or pack it")
    with ExitStack() as stack:
        try:
            matrix = opened(arguments, arguments.source, stack)
        except oc.errors.DamagedFileError as error:
            if not arguments.verify:
                raise
            arguments.answer = {"path": str(arguments.source), "is_whole": False, "damage": [str(error)]}
            print(error)
            return 1
        arguments.answer = figures(matrix)
        print(matrix.info())
        if not arguments.verify:
            return 0
        damage = _damage(matrix)
    arguments.answer |= {"is_whole": not damage, "damage": damage}
    print("\n".join(damage) or "verified     every byte is as it was written")
    return 1 if damage else 0


def _damage(matrix: oc.BlockCSR) -> list[str]:
    """Lines on each block that is not as it was written."""
    found = []
    for number in range(len(matrix.blocks.blocks)):
        try:
            matrix.parts(number)
        except oc.errors.DamagedFileError as error:
            found.append(str(error))
    return found
