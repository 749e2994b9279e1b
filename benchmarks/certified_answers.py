"""Costs of intervals: a certified log-determinant and quadratic form beside the factorization, and how narrow they are.

    python benchmarks/certified_answers.py --name h100-65536 --n 65536 --budget "8 GiB" --thresholds 1e-5

writes ``results/certified/NAME.json``: for FP64 and each threshold the wall clock of whole calls of ``cholesky``, of ``certify``
with one right-hand side and of ``logdet(certified=True)``, each twice a factor; seconds of all passes of the last four; the gap,
and the half-widths. The matrix is the exponential covariance of a jittered grid in Morton order, made on the GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from mixed_families import dgemm_tflops

import ooc_chol as oc
from ooc_chol.bench.problem import CovarianceProblem

RESULTS = Path(__file__).resolve().parent / "results" / "certified"


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


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True)
    parser.add_argument("--n", type=int, default=65536)
    parser.add_argument("--range", type=float, nargs="+", default=[0.02627, 0.078809, 0.210158])
    parser.add_argument("--budget", default=None)
    parser.add_argument("--thresholds", type=float, nargs="*", default=[1e-5])
    parser.add_argument("--calls", type=int, default=2)
    parser.add_argument("--devices", default="cuda:0")
    parser.add_argument("--store", default=None)
    given = parser.parse_args()
    options = {"memory_budget": given.budget, "devices": given.devices, "store": given.store}
    dgemm = dgemm_tflops() if given.devices.startswith("cuda") else None
    found: dict[str, Any] = {"n": given.n, "budget": given.budget, "store": given.store, "devices": given.devices}
    found |= {"dgemm_tflops": dgemm, "ranges": {}}
    b = np.random.default_rng(0).standard_normal(given.n)
    for correlation_range in given.range:
        problem = CovarianceProblem(given.n, correlation_range)
        cuda = problem.cuda_tile() if given.devices.startswith("cuda") else None
        a = oc.from_function(given.n, problem.host_tile, cuda=cuda)
        rows = found["ranges"][str(correlation_range)] = {}
        for threshold in (None, *given.thresholds):
            rows[str(threshold)] = row = measured(a, b, threshold, given.calls, options)
            RESULTS.mkdir(parents=True, exist_ok=True)
            (RESULTS / f"{given.name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            shown = (
                "engine",
                "certify_over_factor",
                "logdet_over_factor",
                "gap",
                "logdet_half_width",
                "log_likelihood_half_width",
            )
            print(correlation_range, threshold, {key: row[key] for key in shown}, flush=True)


if __name__ == "__main__":
    main()
