"""``ooc-chol factor``: factor a matrix in a file into a file."""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import asdict
from pathlib import Path

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.api import cholesky  # noqa: F401 - there before the command begins, which then answers signals itself
from ooc_chol.cli.outputs import FORCE, REPORT_FORMAT, REPORTS
from ooc_chol.cli.parsers import examples, place
from ooc_chol.dense.stores.choice import check_place, missing_checkpoint
from ooc_chol.dense.stores.header import FACTOR_FILES
from ooc_chol.files.zarr_names import is_url, is_zarr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of ``factor`` to its parser."""
    parser.epilog = examples(
        "ooc-chol factor covariance.npy --store covariance.factor",
        "ooc-chol factor covariance.npy --store covariance.factor --memory-budget '2 GiB' --trace run.pftrace",
        "ooc-chol factor covariance.npy --store covariance.factor --fp64 residue --moduli 13 --devices cuda:0",
        "ooc-chol factor covariance.npy --store covariance.factor --json --quiet > figures.json",
        "ooc-chol factor covariance.npy --store covariance.factor --checkpoint    # and again, after whatever ended it",
    )
    matrix = "a .npy file, or a Zarr array, with a symmetric positive definite matrix, of which one triangle is read"
    parser.add_argument("matrix", type=place, help=matrix)
    parser.add_argument("--store", type=place, required=True, help="file for L, or Zarr group: a folder NAME.zarr, or a URL")
    kept = "keep the unfinished file when the command is interrupted, killed or fails, and go on from one that is there"
    parser.add_argument("--checkpoint", action="store_true", help=kept)
    parser.add_argument(
        "--resume", action="store_true", help="as --checkpoint, and refuse to begin where there is nothing to go on from"
    )
    triangle = "triangle that is read (default: the lower one, and a warning where a sample shows that A is not symmetric)"
    parser.add_argument("--triangle", choices=("lower", "upper"), help=triangle)
    parser.add_argument("--trace", type=Path, help="write a Perfetto trace (.pftrace or .pftrace.gz) and print its summary")
    parser.add_argument("--report", type=Path, help="write the report's figures as JSON")
    parser.add_argument(FORCE, action="store_true", help="replace files that are not of their kind, too, but never the matrix")
    parser.add_argument(
        "--check", action="store_true", help="print the residual of sampled sub-blocks, for at most one factorization more"
    )
    oc.FactorOptions.add_arguments(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    _check_files(arguments)
    try:
        factor = _factored(arguments)
    except oc.errors.CheckpointError as error:
        raise oc.errors.CheckpointError(error.path, error.differences, FORCE) from None
    with factor:
        if not factor.n:
            raise ValueError(f"{arguments.matrix} is of order 0: its factor is written, but there is nothing to report")
        print(factor.report)
        arguments.answer = {"store": arguments.store, "logdet": factor.logdet(), "report": factor.report.to_dict()}
        print(f"  logdet     {arguments.answer['logdet']:.15g}")
        if arguments.report is not None:
            content = {"format": REPORT_FORMAT, **factor.report.to_dict()}
            with tb.output_file(arguments.report, kind=REPORTS, replace=arguments.force, ask=FORCE) as part:
                part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        if arguments.trace is not None:
            assert factor.trace is not None
            print(factor.trace.summary())
            path = factor.trace.save(arguments.trace, replace=arguments.force)
            print(f"trace in {path}; `ooc-chol trace view {shlex.quote(str(path))}` opens it in the browser, at ui.perfetto.dev")
        if arguments.check:  # last, as it reads A and L again, which may fail
            residual = factor.residual(arguments.matrix, progress=not arguments.quiet)
            arguments.answer["residual"] = asdict(residual)
            print(f"  residual   {residual}")
    print(f"factor in {arguments.store}; open it with ooc_chol.load")


def _factored(arguments: argparse.Namespace) -> oc.CholeskyFactor:
    """The factor that the options ask for."""
    return oc.cholesky(
        arguments.matrix,
        lower=None if arguments.triangle is None else arguments.triangle == "lower",
        **oc.FactorOptions.from_arguments(arguments).keywords(),
        store=arguments.store,
        checkpoint=arguments.checkpoint or arguments.resume,
        replace=arguments.force,
        progress=not arguments.quiet,
        trace=arguments.trace is not None,
    )


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse files that cannot be written, or may not be replaced, or are not there, before anything is computed."""
    if arguments.resume and arguments.force:
        raise ValueError("--resume goes on from a checkpoint, and --force begins afresh: give one of them")
    if arguments.resume and (wanted := missing_checkpoint(arguments.store)) is not None:
        raise ValueError(f"--resume: there is no checkpoint {wanted} to go on from; give --checkpoint to begin")
    inputs = [("MATRIX", arguments.matrix)]
    goes_on = arguments.checkpoint or arguments.resume
    if is_zarr(arguments.store):
        check_place(arguments.store, inputs, replace=arguments.force, goes_on=goes_on, ask=FORCE, option="--store")
    outputs = [
        tb.Output("--store", None if is_zarr(arguments.store) else arguments.store, FACTOR_FILES),
        tb.Output("--trace", arguments.trace, tb.TRACE_FILES),
        tb.Output("--report", arguments.report, REPORTS),
    ]
    tb.check_outputs(outputs, [one for one in inputs if not is_url(one[1])], replace=arguments.force, ask=FORCE)
