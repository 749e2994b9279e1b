"""``ooc-chol spectral bisect``: two parts of equal weight, with few edges between them."""

from __future__ import annotations

import argparse

from ooc_chol.apps.spectral.cli.options import search_options, solver_options
from ooc_chol.apps.spectral.cli.partitions import add_graph, add_partition_options, check_files, read, tell
from ooc_chol.apps.spectral.partitions.bisect import bisect

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol spectral bisect mesh.graph --output mesh.part.2",
    "ooc-chol spectral bisect mesh.graph --balance 0.03 --seed 1 --json --quiet",
    "ooc-chol spectral bisect mesh.graph --picture mesh.png --coordinates mesh.xy",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Cut a graph into two parts of equal weight with few edges between them: the best cut among combinations of the lowest "
        "eigenvectors of its Laplacian, refined by moving single vertices. Components of a graph that is not connected are "
        "packed first."
    )
    add_graph(parser)
    add_partition_options(parser)


def run(options: argparse.Namespace) -> int:
    """Read, cut, write and tell."""
    check_files(options)
    graph = read(options)
    tell(options, graph, bisect(graph, **search_options(options), **solver_options(options)))
    return 0
