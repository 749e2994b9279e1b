"""``ooc-chol verify``: read factor files, and say whether they are still what was written."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from ooc_chol.cli.parsers import examples
from ooc_chol.dense.stores.verification import check_ordinary, verify_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``verify`` to its parser."""
    parser.description = (
        "Read factor files, and compare every byte with the checksums that were written with it. The exit status is 0 where all "
        "are whole, 1 where one is damaged, and 2 where there is no such file."
    )
    parser.epilog = examples("ooc-chol verify covariance.factor", "ooc-chol verify *.ooc --json --quiet")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file that store= or save wrote, finished or not")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    for file in arguments.files:
        check_ordinary(file)  # a name that is wrong is met before hours of reading
    arguments.answer = {"whole": True, "files": []}
    for file in arguments.files:
        verdict = verify_file(file)
        print(verdict)
        answer = {**asdict(verdict), "is_whole": verdict.is_whole}
        arguments.answer["files"].append(answer)
        arguments.answer["whole"] &= verdict.is_whole
    return 0 if arguments.answer["whole"] else 1
