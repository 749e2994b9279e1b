"""``ooc-chol eigsh``: eigenpairs of a symmetric sparse matrix, or of its graph's Laplacian, each with its residual."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

import ooc_chol as oc
from ooc_chol.cli.cluster import with_client
from ooc_chol.cli.eigen.options import add_solver_options, check_output, given, npz_files, print_values, told_plan, write_arrays
from ooc_chol.cli.parsers import examples
from ooc_chol.cli.sparse.options import opened, operator_of

_PAIRS = npz_files("eigenpairs")
#: Options of the call that this command has beside those of every solver.
_OPTIONS = ("which", "sigma", "method")


def _degree(text: str) -> int | str:
    """A degree, or the word."""
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor auto") from None


def _filter(arguments: argparse.Namespace) -> dict[str, int | None]:
    """The degree as the call takes it, where it is given."""
    given_one = arguments.degree
    return {} if given_one is None else {"degree": None if given_one == "auto" else given_one}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``eigsh`` to its parser."""
    parser.description = (
        "Find eigenpairs of a symmetric sparse matrix, which may be larger than the devices. Every pair is told with its "
        "residual, computed in float64; the command fails where one has not converged."
    )
    parser.epilog = examples(
        "ooc-chol eigsh graph.oocsr -k 24 --output pairs.npz",
        "ooc-chol eigsh mesh.graph --laplacian --which SA -k 4 --precision FDF --tol 1e-5",
        "ooc-chol eigsh graph.oocsr -k 24 --memory-budget '8 GiB' --plan    # runs nothing",
    )
    wanted = add_solver_options(parser, "eigenpairs")
    wanted.add_argument(
        "--which", choices=("LM", "LA", "SA", "SM"), help="largest in magnitude (default), largest, smallest, or nearest 0"
    )
    wanted.add_argument("--sigma", type=float, help="those nearest to SIGMA, by a factorization on the host")
    operator = wanted.add_mutually_exclusive_group()
    operator.add_argument("--laplacian", action="store_true", help="of D - A in place of A, D having the row sums of A")
    operator.add_argument("--normalized", action="store_true", help="of the normalized Laplacian, I - D^-1/2 A D^-1/2")
    parser.add_argument("--method", choices=("lanczos", "lobpcg"), help="block Lanczos (default), or LOBPCG")
    degree = "degree of a Chebyshev filter: 1 for none (default), auto for what is worth it"
    parser.add_argument("--degree", type=_degree, metavar="DEGREE|auto", help=degree)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    check_output(arguments, _PAIRS)
    with ExitStack() as stack:
        a = operator_of(arguments, opened(arguments, arguments.matrix, stack))
        options = given(arguments, *_OPTIONS) | _filter(arguments) | stack.enter_context(with_client(arguments))
        if arguments.plan:
            told_plan(arguments, oc.plan_eigsh(a, arguments.k, **options))
            return
        pairs = oc.eigsh(a, arguments.k, **options)
    _tell(arguments, pairs)


def _tell(arguments: argparse.Namespace, pairs: oc.Eigenpairs) -> None:
    """Print and write what came of it."""
    arguments.answer = {
        "eigenvalues": pairs.eigenvalues,
        "residuals": pairs.residuals,
        "report": pairs.report.to_dict(),
        "output": arguments.output,
    }
    print_values("eigenvalue", pairs.eigenvalues, {"residual": pairs.residuals})
    print(pairs.report)
    arrays = {"eigenvalues": pairs.eigenvalues, "eigenvectors": pairs.eigenvectors, "residuals": pairs.residuals}
    write_arrays(arguments, _PAIRS, arrays)
