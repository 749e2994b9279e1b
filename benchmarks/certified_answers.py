"""Costs of intervals: a certified log-determinant and quadratic form beside the factorization, and how narrow they are.

    python -m benchmarks certified_answers --name h100-65536 --memory-budget "8 GiB"

For FP64 and each threshold the wall clock of whole calls of ``cholesky``, of ``certify`` with one right-hand side and of
``logdet(certified=True)``, each twice a factor; seconds of all passes of the last four; the gap, and the half-widths. The
matrix is the exponential covariance of a jittered grid in Morton order, made on the GPU.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.mixed_families import dgemm_tflops
from benchmarks.running import Options
from ooc_chol.bench.problem import CovarianceProblem

FOLDER = "certified"
#: Figures of a threshold that are printed.
SHOWN = ("engine", "certify_over_factor", "logdet_over_factor", "gap", "logdet_half_width", "log_likelihood_half_width")


def measured(a: Any, b: np.ndarray, threshold: float | None, calls: int, options: dict[str, Any]) -> dict[str, Any]:
    """Some calls, one after the other; the last one is told of."""
    factoring, certifying, of_logdet = [], [], []
    for _ in range(calls):
        began = time.perf_counter()
        with oc.cholesky(a, threshold, **options) as factor:
            factoring.append(time.perf_counter() - began)
            before = dict(factor.report.passes.totals)
            for _ in range(2):
                began = time.perf_counter()
                answers = factor.certify(b)
                certifying.append(time.perf_counter() - began)
                began = time.perf_counter()
                factor.logdet(certified=True)
                of_logdet.append(time.perf_counter() - began)
            passes = {
                title: totals.seconds - (before[title].seconds if title in before else 0.0)
                for title, totals in factor.report.passes.totals.items()
            }
            engine, formats = factor.report.plan.engine, dict(factor.formats)
    logdet, quadratic = answers.logdet, answers.quadratic[0]
    return {
        "engine": engine,
        "formats": formats,
        "factor_seconds": factoring,
        "certify_seconds": certifying,
        "logdet_seconds": of_logdet,
        "certify_over_factor": statistics.median(certifying[1:]) / statistics.median(factoring[1:] or factoring),
        "logdet_over_factor": statistics.median(of_logdet[1:]) / statistics.median(factoring[1:] or factoring),
        "passes": passes,
        "gap": logdet.gap,
        "logdet": logdet.value,
        "logdet_half_width": logdet.half_width,
        "quadratic": quadratic.value,
        "quadratic_half_width": quadratic.half_width,
        "log_likelihood_half_width": (logdet.half_width + quadratic.half_width) / 2,
    }


TAKES = {
    "devices": "cuda:0",
    "memory_budget": None,
    "n": 65536,
    "range": [0.02627, 0.078809, 0.210158],
    "thresholds": [1e-5],
    "calls": 2,
    "store": None,
}


def run(options: Options) -> None:
    """Measure."""
    how = {"memory_budget": options.memory_budget, "devices": options.devices, "store": options.store}
    dgemm = dgemm_tflops() if options.on_gpu else None
    found: dict[str, Any] = {"n": options.n, "budget": options.memory_budget, "store": options.store}
    found |= {"devices": list(options.devices), "dgemm_tflops": dgemm, "ranges": {}}
    b = np.random.default_rng(0).standard_normal(options.n)
    for correlation_range in options.range:
        problem = CovarianceProblem(options.n, correlation_range)
        a = oc.from_function(options.n, problem.host_tile, cuda=problem.cuda_tile() if options.on_gpu else None)
        rows = found["ranges"][str(correlation_range)] = {}
        for threshold in (None, *options.thresholds):
            rows[str(threshold)] = row = measured(a, b, threshold, options.calls, how)
            options.write(found)
            print(correlation_range, threshold, {key: row[key] for key in SHOWN}, flush=True)
