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
from ooc_chol.cli.outputs import FORCE
from ooc_chol.cli.sparse.options import SOURCE_HELP, add_devices, add_source_options

#: Arguments of a call that the command line has under the same name, and passes on where they are given.
SHARED = ("precision", "tol", "ncv", "block", "max_passes", "devices", "memory_budget")


def add_solver_options(parser: argparse.ArgumentParser, what: str) -> argparse._ArgumentGroup:
    """Add the source, how many are wanted and how; the group of what is wanted is given back, for more."""
    parser.add_argument("matrix", type=Path, metavar="A", help=SOURCE_HELP)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.npz", help=f"write the {what} and their residuals here")
    parser.add_argument(FORCE, action="store_true", help="replace a file that is none of this command, too, but never A")
    wanted = parser.add_argument_group("what is wanted")
    wanted.add_argument("-k", type=int, default=6, help=f"how many {what} (default: 6)")
    precision = "types of vectors, products and sums: D is float64, F float32 (default: FDF for an A of float32, else DDD)"
    wanted.add_argument("--precision", choices=[each.value for each in oc.Precision], help=precision)
    residual = "largest residual, relative to the largest value (default: 1e-10, 1e-6 or 1e-5 in DDD, FDF, FFF)"
    wanted.add_argument("--tol", type=float, help=residual)
    how = parser.add_argument_group("how it is looked for")
    how.add_argument("--ncv", type=int, help="columns of the basis (default: k + 96)")
    how.add_argument("--block", type=int, choices=(1, 2, 4, 8), help="columns that are multiplied together")
    how.add_argument("--max-passes", type=int, help="most products with A, each of one block (default: 10000)")
    how.add_argument("--no-check", action="store_true", help="do not look for values that were missed")
    add_devices(parser)
    add_source_options(parser)
    return wanted


def given(arguments: argparse.Namespace, *more: str) -> dict[str, Any]:
    """Arguments of the call that the user gave."""
    found = {name: getattr(arguments, name) for name in (*SHARED, *more)}
    return {name: value for name, value in found.items() if value is not None}


def check_output(arguments: argparse.Namespace, kind: tb.FileKind) -> None:
    """Refuse a file that cannot be written, or may not be replaced, before anything is read."""
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
        np.savez(file, **{name: np.ascontiguousarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    print(f"{', '.join(arrays)} in {arguments.output}")


def print_values(what: str, values: Iterable[float], residuals: Mapping[str, Iterable[float]]) -> None:
    """Print values, ascending, with the residuals of each."""
    print("  ".join([f"{what:>22}", *(f"{name:>10}" for name in residuals)]))
    for value, *each in zip(values, *residuals.values(), strict=True):
        print("  ".join([f"{value:22.15g}", *(f"{residual:10.2e}" for residual in each)]))
