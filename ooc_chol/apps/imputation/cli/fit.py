"""``ooc-chol impute fit``: a tensor in a file without its gaps."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.imputation.cli.options import FORCE, add_force, add_impute_options, impute_options
from ooc_chol.apps.imputation.crossvalidation import CrossValidation, cross_validate, dealt
from ooc_chol.apps.imputation.files import (
    TENSORS,
    TensorFile,
    check_fits,
    check_tensor_name,
    read_mask,
    read_tensor,
    write_tensor,
)
from ooc_chol.apps.imputation.fitting import fitted
from ooc_chol.apps.imputation.graphs import read_graph
from ooc_chol.apps.imputation.pictures import PICTURES, save_figure, slices_figure
from ooc_chol.apps.imputation.scores import observed_mask
from ooc_chol.apps.shared.pictures import check_picture

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol impute fit sensors.npy --graph roads.txt --output filled.npz",
    "ooc-chol impute fit climate.nc --variable anomaly --graph stations.npz --output filled.nc --picture slices.png",
    "ooc-chol impute fit sensors.npy --graph roads.txt --mask seen.txt --cross-validate 5    # held-out error",
    "ooc-chol impute fit big.npy --graph roads.txt --output filled.npy --checkpoint run.oocimp --memory-budget '8 GiB'",
    "ooc-chol impute fit big.npy --graph roads.txt --memory-budget '8 GiB' --plan    # runs nothing",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Impute slices, or entries, that are missing of matrices at the vertices of a graph: of low rank, slice by slice, in "
        "the Fourier domain of the graph. NaN stands for what is missing, or a mask says it."
    )
    parser.add_argument("tensor", type=Path, metavar="TENSOR", help="(N, m, n) numbers: .npy, .npz or NetCDF (.nc)")
    graph = "a graph of N vertices: a list of edges (.txt, .csv, .tsv, .edges, .el), .graph, .npz, .mtx, .oocsr, .npy"
    parser.add_argument("--graph", type=Path, required=True, metavar="FILE", help=graph)
    parser.add_argument("--base", type=int, choices=(0, 1), help="number of the first vertex in a list (default: 0)")
    mask = "what is observed, 1, and what is not, 0: .npy, or a line for each slice (default: what is not NaN)"
    parser.add_argument("--mask", type=Path, metavar="FILE", help=mask)
    parser.add_argument("--variable", metavar="NAME", help="array of an .npz or NetCDF file (default: the one with three axes)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the tensor here: .npy, .npz, .nc")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw some slices, observed and imputed")
    held = "also hold slices out in so many folds, and tell the errors at them by lambda"
    parser.add_argument("--cross-validate", type=int, metavar="FOLDS", help=held)
    parser.add_argument("--seed", type=int, help="of the dealing of slices into folds of --cross-validate (default: 0)")
    checkpoint = "file (.oocimp) from which the same command goes on after an interruption"
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help=checkpoint)
    folder = "folder for files that hold what devices do not keep, in place of main memory"
    parser.add_argument("--work-folder", type=Path, metavar="DIR", help=folder)
    parser.add_argument("--trace", type=Path, metavar="FILE", help="record every copy and computation, for Perfetto")
    parser.add_argument("--plan", action="store_true", help="print what devices would keep and what a step moves; run nothing")
    add_force(parser)
    share = "share of what is observed that one more fit is without, to tell errors at it (default: 0.1; 0: none)"
    parser.add_argument("--held-out", type=float, metavar="SHARE", help=share)
    fourier = parser.add_argument_group("the transform of the graph")
    fourier.add_argument("--n-components", type=int, metavar="R", help="eigenvectors, the smoothest (default: all)")
    which = fourier.add_mutually_exclusive_group()
    which.add_argument("--unnormalized", action="store_true", help="take the Laplacian D - A, not the normalized one")
    either = "try both Laplacians, and take that with the smaller held-out error"
    which.add_argument("--either-laplacian", action="store_true", help=either)
    add_impute_options(parser)


def run(options: argparse.Namespace) -> int:
    """Read, impute, write and tell."""
    _check_files(options)
    given = read_tensor(options.tensor, variable=options.variable)
    mask = _mask(options, given)
    graph = read_graph(options.graph, len(given.tensor), base=options.base)
    if options.plan:
        return _planned(options, given, mask)
    if options.output is not None:
        check_fits(options.output, np.dtype(given.tensor.dtype if given.tensor.dtype.kind == "f" else np.float64), given)
    if options.cross_validate is not None:
        dealt(mask, options.cross_validate, options.seed or 0)  # refuses what is no number of folds
    how = impute_options(options)
    files = {"checkpoint": options.checkpoint, "replace": options.force, "work_folder": options.work_folder}
    fit = fitted(
        given.tensor,
        mask,
        graph,
        n_components=options.n_components,
        normalized="auto" if options.either_laplacian else not options.unnormalized,
        held_out=options.held_out,
        progress=None if options.quiet else True,
        trace=options.trace is not None,
        **files,
        **how,
    )
    found = fit.imputed
    print(found.report)
    if options.output is not None:
        write_tensor(options.output, found.tensor, mask=mask, like=given, history=found.history, replace=options.force)
        print(f"the tensor is in {options.output}")
    if options.picture is not None:
        figure = slices_figure(found.tensor, given.tensor, mask, title=f"{options.tensor.name}: {found.report.stopped}")
        save_figure(figure, options.picture, replace=options.force)
        print(f"slices are drawn in {options.picture}")
    _save_trace(options, found)
    validated = None
    if options.cross_validate is not None:
        validated = _validated(options, given, mask, fit.fourier, how)
        print(validated)
    options.answer = _figures(options, found, validated)
    return 0


def _planned(options: argparse.Namespace, given: TensorFile, mask: NDArray[np.bool_]) -> int:
    """Print the plan."""
    how, most, count = _fixed(impute_options(options)), len(given.tensor), options.n_components
    if count is not None and not 1 <= count <= most:
        raise ValueError(f"n_components is {count}, but a graph of {most} vertices has 1 to {most}")
    plan = oc.plan_impute(given.tensor, mask, count, work_folder=options.work_folder, **how)
    options.answer = {"tensor": options.tensor, "plan": plan.to_dict()}
    print(plan)
    return 0


def _save_trace(options: argparse.Namespace, found: oc.Imputed) -> None:
    """Write the trace that was asked for; where nothing ran, say that there is none."""
    if options.trace is None:
        return
    if found.trace is None:
        print(f"note: no trace is written to {options.trace}: {found.report.stopped}", file=sys.stderr)
        return
    found.trace.save(options.trace, replace=options.force)
    print(f"the trace is in {options.trace}")


def _mask(options: argparse.Namespace, given: TensorFile) -> NDArray[np.bool_]:
    """Mask of observed entries, by the option, the file, or NaN."""
    if options.mask is not None:
        return read_mask(options.mask, given.tensor.shape)
    return observed_mask(given.tensor) if given.mask is None else given.mask


def _validated(
    options: argparse.Namespace,
    given: TensorFile,
    mask: NDArray[np.bool_],
    fourier: oc.GraphFourier,
    how: dict[str, Any],
) -> CrossValidation:
    """Held-out errors."""

    def told(done: int, folds: int) -> None:
        print(f"fold {done} of {folds} done", flush=True)

    folds = options.cross_validate
    return cross_validate(given.tensor, fourier, mask, folds=folds, seed=options.seed or 0, progress=told, **_fixed(how))


def _fixed(how: dict[str, Any]) -> dict[str, Any]:
    """Without the words by which a fit chooses."""
    return {name: value for name, value in how.items() if value != "auto"}


def _check_files(options: argparse.Namespace) -> None:
    """Refuse files that cannot be written, or may not be replaced, before anything is read."""
    if options.output is not None:
        check_tensor_name(options.output)
    if options.picture is not None:
        check_picture(options.picture)
    outputs = [
        tb.Output("--output", options.output, TENSORS),
        tb.Output("--picture", options.picture, PICTURES),
        tb.Output("--trace", options.trace, tb.TRACE_FILES),
    ]
    runs = [(output.option, output.path) for output in outputs]
    runs += [("--cross-validate", options.cross_validate), ("--checkpoint", options.checkpoint)]
    if options.plan and (asked := [option for option, given in runs if given is not None]):
        raise ValueError(f"--plan runs nothing, so that there is nothing to tell or to write: leave out {', '.join(asked)}")
    if options.seed is not None and options.cross_validate is None:
        raise ValueError("--seed deals slices into folds, of which there are none: leave it out, or give --cross-validate")
    read = [("TENSOR", options.tensor), ("--graph", options.graph), ("--mask", options.mask)]
    tb.check_outputs(outputs, [*read, ("--checkpoint", options.checkpoint)], replace=options.force, ask=FORCE)


def _figures(options: argparse.Namespace, found: oc.Imputed, validated: CrossValidation | None) -> dict[str, Any]:
    """Figures of the imputation, as plain data."""
    return {
        "tensor": options.tensor,
        **found.report.to_dict(),
        "cross_validation": None if validated is None else validated.to_dict(),
        "output": options.output,
        "picture": options.picture,
        "checkpoint": options.checkpoint,
        "trace": options.trace if found.trace is not None else None,
    }
