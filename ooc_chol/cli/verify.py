"""``ooc-chol verify``: read factor files, and say whether they are still what was written."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ooc_chol.cli.parsers import examples, place
from ooc_chol.dense.stores.choice import check_verifiable, verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``verify`` to its parser."""
    parser.description = (
        "Read factor files, and compare every byte with the checksums that were written with it. The exit status is 0 where all "
        "are whole, 1 where one is damaged, and 2 where there is no such file."
    )
    parser.epilog = examples(
        "ooc-chol verify covariance.factor", "ooc-chol verify *.ooc --json --quiet", "ooc-chol verify L.zarr"
    )
    parser.add_argument(
        "files", nargs="+", type=place, metavar="FILE", help="what store= or save wrote, finished or not: a file, or a Zarr group"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    for file in arguments.files:
        check_verifiable(file)  # a name that is wrong is met before hours of reading
    arguments.answer = {"whole": True, "files": []}
    for file in arguments.files:
        verdict = verify(file)
        print(verdict)
        answer = {**asdict(verdict), "is_whole": verdict.is_whole}
        arguments.answer["files"].append(answer)
        arguments.answer["whole"] &= verdict.is_whole
    return 0 if arguments.answer["whole"] else 1
