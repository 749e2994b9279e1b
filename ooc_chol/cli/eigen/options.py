"""Parts shared by ``eigsh`` and ``svds``: their options, files of arrays, and lines on values and residuals."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.calls.options import Option, add_words
from ooc_chol.cli.cluster import add_cluster
from ooc_chol.cli.outputs import FORCE
from ooc_chol.cli.sparse.options import SOURCE_HELP, add_source_options

#: What is wanted, and how it is looked for: options that both calls have.
_WANTED = {
    "precision": Option(
        "types of vectors, products and sums: D is float64, F float32 (default: FDF for an A of float32, else DDD)",
        "Precision",
        choices=tuple(each.value for each in oc.Precision),
    ),
    "tol": Option(
        "largest residual, relative to the largest value (default: 1e-10, 1e-6 or 1e-5 in DDD, FDF, FFF)", "float", parse=float
    ),
}
_HOW = {
    "ncv": Option("columns of the basis (default: k + 96; k + 48 up to 10,000 rows on the host)", "int", parse=int),
    "block": Option("columns that are multiplied together: 1, 2, 4 or 8", "int", parse=int),
    "max_passes": Option("most products with A, each of one block (default: 10000)", "int", parse=int),
}
#: Common options that the command line has, too.
_COMMON = ("checkpoint", "devices", "memory_budget", "host_budget")
#: Arguments of a call that the command line has under the same name, and passes on where they are given.
SHARED = (*_WANTED, *_HOW, *_COMMON)


def add_solver_options(parser: argparse.ArgumentParser, what: str) -> argparse._ArgumentGroup:
    """Add the source, how many are wanted and how; the group of what is wanted is given back, for more."""
    parser.add_argument("matrix", type=Path, metavar="A", help=SOURCE_HELP)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.npz", help=f"write the {what} and their residuals here")
    parser.add_argument(FORCE, action="store_true", help="replace a file that is none of this command, too, but never A")
    wanted = parser.add_argument_group("what is wanted")
    wanted.add_argument("-k", type=int, default=6, help=f"how many {what} (default: 6)")
    how = parser.add_argument_group("how it is looked for")
    for group, rows in ((wanted, _WANTED), (how, _HOW)):
        for name, row in rows.items():
            row.add_word(group, name, None)
    how.add_argument("--no-check", action="store_true", help="do not look for values that were missed")
    add_words(parser, _COMMON)
    add_cluster(parser)
    parser.add_argument("--plan", action="store_true", help="print what devices would hold, and what a pass moves; run nothing")
    add_source_options(parser)
    return wanted


def given(arguments: argparse.Namespace, *more: str) -> dict[str, Any]:
    """Arguments of the call that the user gave."""
    found = {name: getattr(arguments, name) for name in (*SHARED, *more)}
    is_told = {"check": not arguments.no_check, "replace": arguments.force, "progress": not arguments.quiet}
    return {name: value for name, value in found.items() if value is not None} | is_told


def told_plan(arguments: argparse.Namespace, plan: tb.AbstractPlan) -> None:
    """Print a plan."""
    arguments.answer = plan.to_dict()
    print(plan)


def npz_files(what: str) -> tb.FileKind:
    """Files that :func:`write_arrays` wrote, which a new one of the same kind may replace."""
    return tb.FileKind(f"file of {what} of ooc_chol", f"ooc_chol {what}".encode(), anywhere=True, endings=(".npz",))


def check_output(arguments: argparse.Namespace, kind: tb.FileKind) -> None:
    """Refuse a file that cannot be written, or may not be replaced, before anything is read."""
    if arguments.plan and arguments.output is not None:
        raise ValueError("--plan runs nothing, so that there is no output to write: leave that out")
    tb.check_outputs(
        [tb.Output("--output", arguments.output, kind)], [("A", arguments.matrix)], replace=arguments.force, ask=FORCE
    )


def write_arrays(arguments: argparse.Namespace, kind: tb.FileKind, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name, as ``numpy.load`` reads them, where that was asked for."""
    if arguments.output is None:
        return
    with (
        tb.output_file(arguments.output, kind=kind, replace=arguments.force, ask=FORCE) as part,
        part.open("wb") as file,
    ):
        mark = np.frombuffer(kind.mark, np.uint8)  # last: near the end it is looked for
        np.savez(file, **{name: np.ascontiguousarray(array) for name, array in arrays.items()}, format=mark)  # type: ignore[arg-type]
    print(f"{', '.join(arrays)} in {arguments.output}")


def print_values(what: str, values: Iterable[float], residuals: Mapping[str, Iterable[float]]) -> None:
    """Print values, ascending, with the residuals of each."""
    print("  ".join([f"{what:>22}", *(f"{name:>10}" for name in residuals)]))
    for value, *each in zip(values, *residuals.values(), strict=True):
        print("  ".join([f"{value:22.15g}", *(f"{residual:10.2e}" for residual in each)]))
