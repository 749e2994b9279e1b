"""``ooc-chol sparse multiply``: products of a sparse matrix, its powers or its Laplacian with vectors, or a plan of them."""

from __future__ import annotations

import argparse
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.calls.options import add_words
from ooc_chol.cli.cluster import add_cluster, with_client
from ooc_chol.cli.outputs import FORCE
from ooc_chol.cli.parsers import examples
from ooc_chol.cli.sparse.options import SOURCE_HELP, add_devices, add_source_options, opened, operator_of
from ooc_chol.cli.sparse.vectors import NPY_FILES, read_vectors

NAME = "multiply"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Multiply a sparse matrix with vectors, Y = A X. The matrix may be larger than the devices: blocks for which there is no "
        "room are streamed in every product. Without X random columns are multiplied, and the norm of Y is told."
    )
    parser.epilog = examples(
        "ooc-chol sparse multiply graph.oocsr X.npy --output Y.npy",
        "ooc-chol sparse multiply graph.oocsr --columns 8 --times 10 --memory-budget '8 GiB' --trace run.pftrace.gz",
        "ooc-chol sparse multiply graph.oocsr --normalized --precision FDF --plan    # runs nothing",
    )
    parser.add_argument("matrix", type=Path, metavar="A", help=SOURCE_HELP)
    parser.add_argument("x", type=Path, nargs="?", metavar="X.npy", help="a vector, or vectors as columns, in a .npy file")
    parser.add_argument("-o", "--output", type=Path, metavar="Y.npy", help="write the product here")
    random = parser.add_argument_group("random columns in place of X")
    random.add_argument("--columns", type=int, help="how many (default: 1)")
    random.add_argument("--seed", type=int, help="which ones (default: 0)")
    what = parser.add_argument_group("what is multiplied")
    operator = what.add_mutually_exclusive_group()
    operator.add_argument("--laplacian", action="store_true", help="D - A in place of A, D having the row sums of A")
    operator.add_argument(
        "--normalized", action="store_true", help="the normalized Laplacian, I - D^-1/2 A D^-1/2, in place of A"
    )
    what.add_argument("--times", type=int, default=1, help="multiply so many times, Y = A^TIMES X (default: 1)")
    precision = "types of vectors, products and sums: D is float64, F float32 (default: FDF for an X of float32, else DDD)"
    what.add_argument("--precision", choices=[each.value for each in oc.Precision], help=precision)
    add_devices(parser)
    add_words(parser, ["host_budget"])
    add_cluster(parser)
    parser.add_argument(
        "--plan", action="store_true", help="print what each device would hold and what would cross each link; run nothing"
    )
    parser.add_argument("--trace", type=Path, help="write a Perfetto trace (.pftrace or .pftrace.gz) and print its summary")
    parser.add_argument(FORCE, action="store_true", help="replace files that are not of their kind, too, but never A or X")
    add_source_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    _check(arguments)
    x = None if arguments.x is None else read_vectors(arguments.x)
    columns = (arguments.columns or 1) if x is None else 1 if x.ndim == 1 else x.shape[1]
    precision = arguments.precision or ("FDF" if x is not None and x.dtype.kind == "f" and x.dtype.itemsize <= 4 else "DDD")
    where: dict[str, Any] = {"precision": precision, "devices": arguments.devices, "memory_budget": arguments.memory_budget}
    where["host_budget"] = arguments.host_budget
    with ExitStack() as stack:
        operator = operator_of(arguments, opened(arguments, arguments.matrix, stack))
        where |= stack.enter_context(with_client(arguments))
        if arguments.plan:
            plan = oc.plan_multiply(operator, max(1, columns), **where)
            arguments.answer = plan.to_dict()
            print(plan)
            return
        if x is None:
            storage = oc.Precision(precision).storage
            x = np.random.default_rng(arguments.seed or 0).standard_normal((operator.shape[1], columns), storage.type)
        if arguments.cluster is not None:
            made = oc.multiply(operator, x, **where, progress=not arguments.quiet)
            assert made.report is not None
            _tell(arguments, made.report, None, made)
            return
        is_traced = arguments.trace is not None
        product = stack.enter_context(
            oc.multiplier(operator, max(1, columns), **where, trace=is_traced, progress=not arguments.quiet)
        )
        y = product.apply(x, times=arguments.times)
        _tell(arguments, product.report, product.trace, y)


def _tell(arguments: argparse.Namespace, report: tb.MultiplyReport, trace: oc.Trace | None, y: NDArray[Any]) -> None:
    """Print and write what came of it."""
    norm = float(np.linalg.norm(y.astype(np.float64, copy=False)))
    arguments.answer = {**report.to_dict(), "norm": norm, "output": arguments.output, "trace": arguments.trace}
    print(report)
    print(f"  norm       {norm:.15g} of Y ({' x '.join(map(str, y.shape))}), as Frobenius has it")
    if arguments.output is not None:
        with (
            tb.output_file(arguments.output, kind=NPY_FILES, replace=arguments.force, ask=FORCE) as part,
            part.open("wb") as file,
        ):
            np.lib.format.write_array(file, y, allow_pickle=False)
        print(f"product in {arguments.output}")
    if arguments.trace is not None:
        assert trace is not None  # as it was asked for
        print(trace.summary())
        path = trace.save(arguments.trace, replace=arguments.force)
        print(f"trace in {path}; `ooc-chol trace view {shlex.quote(str(path))}` opens it in the browser, at ui.perfetto.dev")


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be meant, or written, before anything is read."""
    outputs = [tb.Output("--output", arguments.output, NPY_FILES), tb.Output("--trace", arguments.trace, tb.TRACE_FILES)]
    tb.check_outputs(outputs, [("A", arguments.matrix), ("X", arguments.x)], replace=arguments.force, ask=FORCE)
    if arguments.x is not None and (arguments.columns is not None or arguments.seed is not None):
        raise ValueError("--columns and --seed are of random vectors, but X is given: leave them out, or X")
    if arguments.columns is not None and arguments.columns < 1:
        raise ValueError(f"--columns is {arguments.columns}; give at least 1")
    if arguments.cluster is not None and (arguments.times != 1 or arguments.trace is not None):
        raise ValueError("--cluster makes one product, of which Dask's dashboard shows the tasks: leave --times and --trace out")
    if arguments.plan and (given := [name for name in ("output", "trace") if getattr(arguments, name) is not None]):
        raise ValueError(f"--plan runs nothing, so that there is no {' and no '.join(given)} to write: leave that out")
