"""``ooc-chol svds``: the largest singular triplets of a sparse matrix, with the residuals of both sides."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

import ooc_chol as oc
from ooc_chol.cli.cluster import with_client
from ooc_chol.cli.eigen.options import add_solver_options, check_output, given, npz_files, print_values, told_plan, write_arrays
from ooc_chol.cli.parsers import examples
from ooc_chol.cli.sparse.options import opened

_TRIPLETS = npz_files("singular triplets")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``svds`` to its parser."""
    parser.description = (
        "Find the largest singular triplets of a sparse matrix of any shape, which may be larger than the devices. Every triplet "
        "is told with the residuals of both sides, computed in float64; the command fails where one has not converged."
    )
    parser.epilog = examples(
        "ooc-chol svds ratings.mtx -k 20 --output factors.npz",
        "ooc-chol svds ratings.mtx -k 20 --memory-budget '8 GiB' --plan    # runs nothing",
        "ooc-chol svds links.txt.gz --directed -k 8 --precision FDF --json --quiet",
    )
    add_solver_options(parser, "singular triplets")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    check_output(arguments, _TRIPLETS)
    with ExitStack() as stack:
        matrix = opened(arguments, arguments.matrix, stack)
        options = given(arguments) | stack.enter_context(with_client(arguments))
        if arguments.plan:
            told_plan(arguments, oc.plan_svds(matrix, arguments.k, **options))
            return
        found = oc.svds(matrix, arguments.k, **options)
    u, s, vt = found
    arguments.answer = {
        "singular_values": s,
        "left_residuals": found.left_residuals,
        "right_residuals": found.right_residuals,
        "report": found.report.to_dict(),
        "output": arguments.output,
    }
    print_values("singular value", s, {"A v - s u": found.left_residuals, "A.T u - s v": found.right_residuals})
    print(found.report)
    residuals = {"left_residuals": found.left_residuals, "right_residuals": found.right_residuals}
    write_arrays(arguments, _TRIPLETS, {"singular_values": s, "u": u, "vt": vt} | residuals)
