"""What the certificate costs: whole calls in mixed precision with it taken beside the run, by a reading of L, and not at all.

The three ways take turns, each with one call before those that count, so that its plan is there. A run without a certificate is
not to be had otherwise: this script takes the measuring out, and nobody should use such a factor. Each case prints a JSON line
a way.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options
from ooc_chol.bench.problem import CovarianceProblem
from ooc_chol.dense import mixed
from ooc_chol.dense.planner import problem as planning
from ooc_chol.dense.planner.kept_plans import KEPT_PLANS
from ooc_chol.precision.certified import CertifiedBound

FOLDER = "certificate"
#: Ranges of correlation at order 163,840, in the unit square; they shrink with the distance of neighbours.
RANGES = {"weak": 0.02627, "strong": 0.210158}
WAYS = ("beside the run", "by a reading of L", "none")


class Way:
    """The way that ``name`` says, inside a ``with`` block."""

    def __init__(self, name: str) -> None:
        self._name, self._before = name, (planning.PROBES_PART, mixed._norms_and_form, mixed._certify)

    def __enter__(self) -> None:
        KEPT_PLANS.clear()
        if self._name != "beside the run":
            planning.PROBES_PART = 1 << 40
        if self._name == "none":
            mixed._norms_and_form = lambda ground, grid, *_: ground.norms(grid, probes=None)
            mixed._certify = lambda ground, result, norms: CertifiedBound(0.0, 0.0, 0)

    def __exit__(self, *_: object) -> None:
        planning.PROBES_PART, mixed._norms_and_form, mixed._certify = self._before


def call(n: int, correlation: str, threshold: float, options: dict[str, Any]) -> dict[str, Any]:
    """One whole call."""
    problem = CovarianceProblem(n, RANGES[correlation], 1e-4)
    a = oc.from_function(n, problem.host_tile, cuda=problem.cuda_tile())
    start = time.perf_counter()
    with oc.cholesky(a, precision_threshold=threshold, **options) as factor:
        wall, report = time.perf_counter() - start, factor.report
        bound = report.certified_bound
        assert bound is not None
        return {
            "wall_seconds": wall, "seconds": report.seconds, "run_seconds": report.execution.seconds,
            "norms_seconds": report.norms_seconds, "certify_seconds": report.certify_seconds,
            "certified_bound": bound.total, "certified_measured": bound.measured, "beside": bool(report.plan.probe_arrays),
            "moduli": report.plan.moduli, "formats": factor.formats, "escalations": len(report.escalations),
        }  # fmt: skip


def measured(
    n: int, correlation: str, threshold: float, options: dict[str, Any], repeats: int, rounds: int
) -> list[dict[str, Any]]:
    """A line for each way, printed too."""
    calls: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for way in WAYS * rounds:
        with Way(way):
            calls[way] += [call(n, correlation, threshold, options) for _ in range(1 + repeats)][1:]
    lines = []
    for way, each in calls.items():
        names = [name for name in each[0] if name.endswith("seconds")]
        medians = {name: float(np.median([one[name] for one in each])) for name in names}
        told = {"n": n, "correlation": correlation, "threshold": threshold, "certificate": way, "medians": medians}
        print(json.dumps(told), flush=True)
        lines.append({**told, "calls": each})
    return lines


TAKES = {
    "devices": "cuda:0",
    "memory_budget": "16 GiB",
    "n": 131072,
    "repeats": 2,
    "rounds": 2,
    "cases": ["weak:1e-5", "strong:1e-5", "strong:1e-8"],
}


def run(options: Options) -> None:
    """Measure every case."""
    how = {"devices": options.devices, "memory_budget": options.memory_budget}
    lines: list[dict[str, Any]] = []
    for case in options.cases:
        correlation, threshold = case.split(":")
        lines += measured(options.n, correlation, float(threshold), how, options.repeats, options.rounds)
        options.write({"memory_budget": options.memory_budget, "lines": lines})
