"""What the certificate costs: whole calls in mixed precision with it taken beside the run, by a reading of L, and not at all.

The three ways take turns, each with one call before those that count, so that its plan is there. A run without a certificate is
not to be had otherwise: this script takes the measuring out, and nobody should use such a factor. Each case prints a JSON line
a way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options, seconds_of
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
    wall, factor = seconds_of(lambda: oc.cholesky(a, precision_threshold=threshold, **options))
    with factor:
        report, bound = factor.report, factor.report.certified_bound
        assert bound is not None
        return {
            "wall_seconds": wall, "seconds": report.inside_seconds, "run_seconds": report.execution.seconds,
            "norms_seconds": report.seconds.parts["norms"], "certify_seconds": report.seconds.parts["certificate"],
            "certified_bound": bound.total, "certified_measured": bound.measured, "beside": bool(report.plan.probe_arrays),
            "moduli": report.plan.moduli, "formats": factor.formats, "escalations": len(report.escalations),
        }  # fmt: skip


def measured(case: str, options: Options) -> Iterator[dict[str, Any]]:
    """A line for each way."""
    correlation, threshold = case.split(":")
    how = {"devices": options.devices, "memory_budget": options.memory_budget}
    calls: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for way in WAYS * options.rounds:
        with Way(way):
            calls[way] += [call(options.n, correlation, float(threshold), how) for _ in range(1 + options.repeats)][1:]
    for way, each in calls.items():
        medians = {name: float(np.median([one[name] for one in each])) for name in each[0] if name.endswith("seconds")}
        told = {"n": options.n, "correlation": correlation, "threshold": float(threshold), "certificate": way}
        yield {**told, "medians": medians, "calls": each}


TAKES = {"devices": "cuda:0", "memory_budget": "16 GiB", "n": 131072, "repeats": 2, "rounds": 2}
TAKES |= {"cases": ["weak:1e-5", "strong:1e-5", "strong:1e-8"]}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Measure every case."""
    options.about = {"memory_budget": options.memory_budget}
    for case in options.cases:
        yield from measured(case, options)
