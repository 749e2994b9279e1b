"""Cases of certified answers."""

from __future__ import annotations

import statistics
import warnings
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.mixed_families import dgemm_tflops
from benchmarks.running import Options, seconds_of
from ooc_chol.bench.problem import CovarianceProblem

FOLDER = "certified"
#: Figures of a threshold that are printed.
SHOWN = ("engine", "certify_over_factor", "logdet_over_factor", "gap", "logdet_half_width", "log_likelihood_half_width")
#: Of the families on the host.
N, NB, THRESHOLDS = 400, 32, (1e-3, 1e-6)


def answered(a: Any, b: np.ndarray, threshold: float | None, calls: int, options: dict[str, Any]) -> dict[str, Any]:
    """Some calls, one after the other; the last one is told of."""
    seconds: dict[str, list[float]] = {"factor": [], "certify": [], "logdet": []}
    for _ in range(calls):
        taken, factor = seconds_of(lambda: oc.cholesky(a, threshold, **options))
        seconds["factor"].append(taken)
        with factor:
            before = dict(factor.report.passes.totals)
            for _ in range(2):
                taken, answers = seconds_of(lambda factor=factor: factor.certify(b))
                seconds["certify"].append(taken)
                seconds["logdet"].append(seconds_of(lambda factor=factor: factor.logdet(certified=True))[0])
            passes = {
                title: totals.seconds - (before[title].seconds if title in before else 0.0)
                for title, totals in factor.report.passes.totals.items()
            }
            engine, formats = factor.report.plan.engine, dict(factor.formats)
    logdet, quadratic = answers.logdet, answers.quadratic[0]
    whole = statistics.median(seconds["factor"][1:] or seconds["factor"])
    return {
        "engine": engine,
        "formats": formats,
        **{f"{name}_seconds": each for name, each in seconds.items()},
        **{f"{name}_over_factor": statistics.median(seconds[name][1:]) / whole for name in ("certify", "logdet")},
        "passes": passes,
        "gap": logdet.gap,
        "logdet": logdet.value,
        "logdet_half_width": logdet.half_width,
        "quadratic": quadratic.value,
        "quadratic_half_width": quadratic.half_width,
        "log_likelihood_half_width": (logdet.half_width + quadratic.half_width) / 2,
    }


TAKES_answers = {"devices": "cuda:0", "memory_budget": None, "n": 65536, "range": [0.02627, 0.078809, 0.210158]}
TAKES_answers |= {"thresholds": [1e-5], "calls": 2, "store": None}


def run_answers(options: Options) -> None:
    """Costs of intervals: a certified log-determinant and quadratic form beside the factorization, and how narrow they are.

        python -m benchmarks certified_answers --name h100-65536 --memory-budget "8 GiB"

    For FP64 and each threshold the wall clock of whole calls of ``cholesky``, of ``certify`` with one right-hand side and of
    ``logdet(certified=True)``, each twice a factor; seconds of all passes of the last four; the gap, and the half-widths. The
    matrix is the exponential covariance of a jittered grid in Morton order, made on the GPU.
    """
    how = {name: getattr(options, name) for name in ("memory_budget", "devices", "store")}
    found: dict[str, Any] = {"n": options.n, "budget": options.memory_budget, "store": options.store}
    found |= {"devices": list(options.devices), "dgemm_tflops": dgemm_tflops() if options.on_gpu else None, "ranges": {}}
    b = np.random.default_rng(0).standard_normal(options.n)
    for correlation_range in options.range:
        problem = CovarianceProblem(options.n, correlation_range)
        a = oc.from_function(options.n, problem.host_tile, cuda=problem.cuda_tile() if options.on_gpu else None)
        rows = found["ranges"][str(correlation_range)] = {}
        for threshold in (None, *options.thresholds):
            rows[str(threshold)] = row = answered(a, b, threshold, options.calls, how)
            options.write(found)
            print(correlation_range, threshold, {key: row[key] for key in SHOWN}, flush=True)


NAME_families = "families"
TAKES_families: dict[str, Any] = {}


def run_families(options: Options) -> dict[str, Any]:
    """True errors of log-determinants beside their certified half-widths, for fifteen families of matrices, on the host.

    For each family and threshold the error of ``L.logdet()`` as it is, of the certified value, the half-width and the gap, with
    the truth in long double. Orders are 400 in tiles of 32; the fewest bytes within a threshold are asked for, so that mixed
    precision runs.
    """
    from tests.host.structured import STRUCTURED
    from tests.long_double import truth_of

    def measured(name: str, threshold: float) -> dict[str, Any]:
        a = STRUCTURED[name](N, np.random.default_rng(len(name)))
        truth = truth_of(a, np.ones(N)).logdet
        with oc.cholesky(a, threshold, tile_size=NB, devices="host:0", objective="bytes", strict=False) as factor:
            plain, answer = factor.logdet(), factor.logdet(certified=True)
            return {
                "formats": dict(factor.formats),
                "gap": answer.gap,
                "error_as_it_is": abs(float(plain - truth)),
                "error": abs(float(answer.value - truth)),
                "half_width": answer.half_width if np.isfinite(answer.half_width) else None,
                "is_inside": bool(answer.lower <= truth <= answer.upper),
            }

    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"n": N, "tile_size": NB, "families": {}}
    for name in STRUCTURED:
        found["families"][name] = {f"{threshold:g}": measured(name, threshold) for threshold in THRESHOLDS}
        print(name, found["families"][name], flush=True)
    return found
