"""``ooc-chol sparse make``: a random graph, packed in a file."""

from __future__ import annotations

import argparse

import ooc_chol as oc
from ooc_chol.cli.parsers import examples
from ooc_chol.cli.sparse.options import add_devices, add_order, add_packed_output, check_packed_output, figures

NAME = "make"
#: Probabilities of R-MAT's first three quadrants that the GAP benchmark suite has.
_QUADRANTS = (0.57, 0.19, 0.19)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Make the adjacency matrix of a random graph, packed. It depends on the first options alone: the host and GPUs make "
        "the same one."
    )
    parser.epilog = examples(
        "ooc-chol sparse make rmat --scale 20 --output graph.oocsr",
        "ooc-chol sparse make urand --scale 18 --degree 8 --seed 3 --directed -o uniform.oocsr",
        "ooc-chol sparse make rmat --scale 20 --order degree -o hubs-first.oocsr",
    )
    parser.add_argument("graph", choices=("rmat", "urand"), help="degrees that follow a power law, or uniform random edges")
    parser.add_argument("--scale", type=int, required=True, help="base-2 logarithm of the number of vertices")
    parser.add_argument("--degree", type=int, default=16, help="edges drawn for each vertex (default: 16)")
    parser.add_argument("--seed", type=int, default=0, help="each number gives another graph (default: 0)")
    parser.add_argument("--directed", action="store_true", help="an edge is one entry; else the matrix is symmetric")
    quadrants = f"probabilities of R-MAT's quadrants (default: {','.join(map(str, _QUADRANTS))})"
    parser.add_argument("--quadrants", type=_three_numbers, metavar="A,B,C", help=quadrants)
    add_order(parser)
    add_packed_output(parser)
    add_devices(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    check_packed_output(arguments)
    with oc.block_csr(
        _graph(arguments),
        store=arguments.output,
        block_bytes=arguments.block_bytes,
        replace=arguments.force,
        progress=not arguments.quiet,
    ) as matrix:
        arguments.answer = figures(matrix)
        print(matrix.info())


def _graph(arguments: argparse.Namespace) -> oc.testing.RandomGraph:
    """The graph that the options ask for."""
    if arguments.graph == "urand":
        if arguments.quadrants is not None:
            raise ValueError("--quadrants are of rmat: a uniform graph has none")
        return oc.testing.urand(
            arguments.scale,
            arguments.degree,
            arguments.seed,
            directed=arguments.directed,
            order=arguments.order,
            devices=arguments.devices,
            memory_budget=arguments.memory_budget,
        )
    a, b, c = arguments.quadrants or _QUADRANTS
    return oc.testing.rmat(
        arguments.scale,
        arguments.degree,
        a,
        b,
        c,
        seed=arguments.seed,
        directed=arguments.directed,
        order=arguments.order,
        devices=arguments.devices,
        memory_budget=arguments.memory_budget,
    )


def _three_numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers with commas between, such as 0.57,0.19,0.19")
    return numbers
