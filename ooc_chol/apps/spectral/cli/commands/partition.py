"""``ooc-chol spectral partition``: N parts of wanted weights."""

from __future__ import annotations

import argparse

from ooc_chol.apps.spectral.cli.options import numbers, search_options, solver_options
from ooc_chol.apps.spectral.cli.partitions import add_graph, add_partition_options, check_files, read, tell
from ooc_chol.apps.spectral.partitions.kway import partition

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol spectral partition mesh.graph 8 --output mesh.part.8",
    "ooc-chol spectral partition mesh.graph 3 --target-sizes 0.5,0.25,0.25 --picture mesh.png",
    "ooc-chol spectral partition mesh.graph 4 --vertex-weights loads.txt --json --quiet",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Cut a graph into N parts with few edges between them, by bisections of bisections. Parts have equal weights, or those "
        "that are wanted."
    )
    add_graph(parser)
    parser.add_argument("n_parts", type=int, metavar="N", help="how many parts")
    shares = "weights of the parts, with commas between: they sum up to the weight of all vertices, or to 1"
    parser.add_argument("--target-sizes", type=numbers, metavar="A,B,...", help=shares)
    add_partition_options(parser)


def run(options: argparse.Namespace) -> int:
    """Read, cut, write and tell."""
    check_files(options)
    graph = read(options)
    found = partition(
        graph, options.n_parts, target_sizes=options.target_sizes, **search_options(options), **solver_options(options)
    )
    tell(options, graph, found)
    return 0
