"""Options shared by the commands: eigenvectors and the search for a cut, and numbers as they are typed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import ooc_chol as oc
import ooc_chol.toolbox as tb

#: How a user asks for files to be replaced.
FORCE = "--force"
#: Options of eigenvectors that a call has under the same name, and gets where they are given.
_SOLVER = ("precision", "tol", "max_passes", "preconditioner")
#: The same of common ones.
_COMMON = ("devices", "memory_budget", "host_budget")

GRAPH_HELP = (
    "a graph: METIS (.graph, also .gz), SciPy's .npz, Matrix Market (.mtx), a list of edges (.txt, .csv, .tsv, .edges, .el) or a "
    "packed matrix (.oocsr)"
)


def add_solver(parser: argparse.ArgumentParser) -> None:
    """Add how eigenvectors are computed."""
    group = parser.add_argument_group("how eigenvectors are computed")
    tb.add_words(group, _COMMON)
    precision = "types of vectors, products and sums: D is float64, F float32 (default: DDD)"
    group.add_argument("--precision", choices=[each.value for each in oc.Precision], help=precision)
    group.add_argument("--tol", type=float, help="largest residual, relative to the norm of the matrix (default: 1e-7)")
    group.add_argument("--max-passes", type=int, help="most products with the matrix, each of a block of vectors")
    preconditioner = "smoothed aggregation of PyAMG, or the diagonal (default: auto, whichever suits the graph)"
    group.add_argument("--preconditioner", choices=("auto", "amg", "diagonal"), help=preconditioner)


def add_search(parser: argparse.ArgumentParser) -> None:
    """Add how a cut is looked for among the eigenvectors."""
    group = parser.add_argument_group("how a cut is looked for")
    group.add_argument("--vectors", type=int, default=3, help="eigenvectors whose combinations are tried (default: 3)")
    group.add_argument("--search", type=int, default=60, metavar="N", help="random combinations that are tried (default: 60)")
    group.add_argument("--balance", type=float, default=0.0, help="share by which a part may be too heavy (default: 0.0)")
    group.add_argument("--no-refine", action="store_true", help="leave the cut as the eigenvectors have it: move no vertices")
    add_seed(group)


def add_seed(parser: argparse._ActionsContainer) -> None:
    """Add the seed of all random numbers."""
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default: 0)")


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add the word for replacing files."""
    parser.add_argument(
        FORCE, action="store_true", help="replace files that exist already; files that the command reads are never replaced"
    )


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Add the file of a trace."""
    parser.add_argument("--trace", type=Path, metavar="FILE", help="trace of the first eigenvectors, for Perfetto")


def solver_options(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of a call that say how eigenvectors are computed."""
    found = {name: getattr(options, name) for name in (*_SOLVER, *_COMMON)}
    given = {name: value for name, value in found.items() if value is not None}
    return {**given, "seed": options.seed, "trace": getattr(options, "trace", None) is not None, "progress": not options.quiet}


def search_options(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of a call that say how a cut is looked for."""
    names = ("vectors", "search", "balance")
    return {**{name: getattr(options, name) for name in names}, "refine": not options.no_refine}


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between."""
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers with commas between") from None


def save_trace(options: argparse.Namespace, trace: oc.Trace | None) -> None:
    """Write the trace that was asked for; where nothing ran on a device, say that there is none."""
    if options.trace is None:
        return
    if trace is None:
        why = "LAPACK found the eigenvectors, or none were needed"
        print(f"note: no trace is written to {options.trace}: {why}", file=sys.stderr)
        return
    trace.save(options.trace, replace=options.force)
    print(f"trace of the first eigenvectors in {options.trace}")
