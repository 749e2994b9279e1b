"""``ooc-chol report``: what an issue needs of a machine: devices, versions and a plan, as text without names and places."""

from __future__ import annotations

import argparse
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ooc_chol as oc
import ooc_chol.api.plan  # there before the command begins, which then answers signals itself
import ooc_chol.toolbox as tb
from ooc_chol.bench.results import machine, versions
from ooc_chol.calls.options import count
from ooc_chol.cli.outputs import FORCE, ISSUE_REPORTS
from ooc_chol.cli.parsers import examples, place

#: Packages beside those of :func:`machine` whose versions matter; CuPy's has the version of CUDA in its name.
_PACKAGES = (
    *("ml_dtypes", "cupy", "cupy-cuda12x", "cupy-cuda13x", "cuda-bindings", "nvidia-cudss-cu13"),
    *("jax", "zarr", "dask", "scikit-learn", "matplotlib"),
)
#: What :func:`machine` says that is no version of a package.
_FACTS = ("devices", "cores", "blas", "threads", "python")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``report`` to its parser."""
    parser.description = (
        "Print devices, versions and, with --n or --matrix, the plan: what an issue should have. It holds no name of a user or a "
        "host, and of places only the last part."
    )
    parser.epilog = examples(
        "ooc-chol report",
        "ooc-chol report --n 160000 --memory-budget '80 GB' --devices cuda:0 --output report.txt",
        "ooc-chol report --matrix covariance.npy --precision-threshold 1e-6",
    )
    matrix = parser.add_mutually_exclusive_group()
    matrix.add_argument("--n", type=count, help="plan for a float64 matrix of this order")
    matrix.add_argument("--matrix", type=place, help="plan for a .npy file, or a Zarr array")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the report to this file, too")
    parser.add_argument(FORCE, action="store_true", help="replace whatever file --output names")
    oc.FactorOptions.add_arguments(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    output = tb.Output("--output", arguments.output, ISSUE_REPORTS)
    tb.check_outputs([output], [("--matrix", arguments.matrix)], replace=arguments.force, ask=FORCE)
    options = oc.FactorOptions.from_arguments(arguments)
    matrix = arguments.n if arguments.matrix is None else arguments.matrix
    if matrix is None and options != oc.FactorOptions():
        raise ValueError("options of a factorization belong to a plan: give --n or --matrix, too")
    plan = None if matrix is None else oc.plan(matrix, **options.keywords())
    problem = oc.devices().cuda_problem
    facts = {"version": oc.__version__, "system": _system(), **machine(problem is None), **versions(_PACKAGES)}
    text = _without_places("\n".join([_described(facts, problem), *([] if plan is None else [str(plan)])]))
    if arguments.output is not None:
        with tb.output_file(arguments.output, kind=ISSUE_REPORTS, replace=arguments.force, ask=FORCE) as part:
            part.write_text(text + "\n", encoding="utf-8")
    no_gpu = None if problem is None else _without_places(problem)
    arguments.answer = {**facts, "cuda_problem": no_gpu, "plan": None if plan is None else plan.to_dict()}
    print(text)


def _system() -> str:
    """The system, its kernel, the processor's architecture and the C library."""
    return f"{platform.system()} {platform.release()} {platform.machine()}, {' '.join(platform.libc_ver())}".rstrip(", ")


def _described(facts: Mapping[str, Any], problem: str | None) -> str:
    """The facts as lines, each behind its word; the first is the mark of such a file."""
    named = [f"{name} {value}" for name, value in facts.items() if name not in (*_FACTS, "version", "system")]
    rows = [
        ("ooc_chol", facts["version"]),
        ("system", facts["system"]),
        ("Python", facts["python"]),
        ("packages", ", ".join(named)),
        ("BLAS", f"{' '.join(facts['blas'].values())}, {facts['threads']} threads; {facts['cores']} cores"),
        *(("device", device) for device in facts["devices"]),
        *([] if problem is None else [("cuda", f"none: {problem}")]),
    ]
    return "\n".join(["Report of ooc-chol", *(f"  {word:<10} {told}" for word, told in rows)])


def _without_places(text: str) -> str:
    """The text with ``~`` for the user's folder, and with the last part alone of any other place."""
    return re.sub(r"(?<![\w.~/:])/(?:[^\s/'\"]+/)+", ".../", text.replace(str(Path.home()), "~"))
