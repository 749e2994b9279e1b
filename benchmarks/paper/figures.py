"""Figures 6, 8, 10, 11, 12 and 13 of the paper on this machine, beside the numbers that its text prints.

The paper is Ren, Ltaief, Abdulah and Keyes (2024), arXiv 2410.09819. Its figures are pictures; what it prints in words is in
:data:`PRINTED`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.paper.likelihoods import KlReference
from benchmarks.paper.runs import ResultFile, Run, Sweep, failed, in_turn, measure
from ooc_chol.bench.problem import CovarianceProblem
from ooc_chol.errors import OocCholError

#: What the paper prints: FP64 with its best version, V3, on one GPU; bytes at order 160,000, both ways; mixed precision on GH200.
PRINTED: dict[str, Any] = {
    "fp64_tflops": {"A100-PCIe": 16.1, "H100-PCIe": 54.7, "GH200": 58.9},
    "volume_gb_at_160k": {"A100-PCIe": 935.7, "H100-PCIe": 437.4, "GH200": 480.0},
    "volume_order": ["v3", "v2", "v1", "async"],
    "memory_gb": 80,
    "mixed_tflops": {"GH200, threshold 1e-5, weak correlation": 136.1},
}
#: The policies of Figures 6 and 8, and ours.
POLICIES = ("sync", "async", "v1", "v2", "v3", "planned")
#: Largest order at which A is held as an array, to measure the true KL divergence.
DENSE_ORDER = 16384


def ablation(sweep: Sweep, policies: Sequence[str] = POLICIES) -> dict[str, Any]:
    """Figures 6 and 8: FP64 under each policy, on one device."""
    if len(sweep.devices) > 1:
        raise ValueError(f"the paper compares policies on one device, but there are {', '.join(sweep.devices)}")
    if unknown := set(policies) - set(POLICIES):
        raise ValueError(f"there is no policy {', '.join(sorted(unknown))}; there are {', '.join(POLICIES)}")
    file = ResultFile(sweep, "6 and 8", {"paper": PRINTED})
    for n in sweep.orders:
        problem = CovarianceProblem(n, sweep.ranges[0], sweep.nugget, sweep.smoothness[0])
        file.add(*in_turn([Run(problem, policy=policy, fp64=sweep.fp64) for policy in policies], sweep))
    file.set("volume_order_holds", volumes_in_order(file.content["runs"]))
    return file.content


def volumes_in_order(runs: Sequence[dict[str, Any]]) -> bool | None:
    """Whether at each order V3 moved no more bytes than V2, V2 no more than V1, and V1 no more than async.

    None where no two of these policies have a result at one order.
    """
    holds: bool | None = None
    for n in {run["n"] for run in runs}:
        moved = {run["policy"]: total_bytes(run) for run in runs if run["n"] == n and "error" not in run}
        volumes = [moved[policy] for policy in PRINTED["volume_order"] if policy in moved]
        if volumes != sorted(volumes):
            return False
        if len(volumes) > 1:
            holds = True
    return holds


def total_bytes(run: dict[str, Any]) -> int:
    """Executed bytes of a run over all links."""
    return sum(run["bytes"]["executed"].values())


def kl(sweep: Sweep) -> dict[str, Any]:
    """Figure 10: what the formats do to the likelihood, beside an FP64 factor of the same matrix."""
    file = ResultFile(sweep, "10", {"dense_order": DENSE_ORDER})
    for problem in sweep.problems():
        a = problem.array(sweep.threads) if problem.n <= DENSE_ORDER else None
        try:
            reference, record = _reference(Run(problem, fp64=sweep.fp64), sweep, a)
        except OocCholError as error:
            file.add(failed(Run(problem, fp64=sweep.fp64), error))
            continue
        file.add(record)
        for threshold in sweep.thresholds:
            run = Run(problem, threshold=threshold)
            try:
                record, factor = measure(run, sweep, a)
                with factor:
                    file.add(record | reference.compare(factor))
            except OocCholError as error:
                file.add(failed(run, error))
    return file.content


def _reference(run: Run, sweep: Sweep, a: Any) -> tuple[KlReference, dict[str, Any]]:
    """What the FP64 factor says, and its record with a divergence of its own: the floor of what can be measured."""
    record, factor = measure(run, sweep, a)
    with factor:
        reference = KlReference.of(factor, a)
        return reference, record | reference.compare(factor)


def mxp(sweep: Sweep, traces: Path | None = None) -> dict[str, Any]:
    """Figures 11, 12 and 13: speed, bytes and traces of mixed precision, beside FP64."""
    file = ResultFile(sweep, "11, 12 and 13", {"paper": PRINTED})
    for problem in sweep.problems():
        runs = [Run(problem, threshold=threshold) for threshold in sweep.thresholds]
        if sweep.fp64 != "none":
            runs.insert(0, Run(problem, fp64=sweep.fp64))
        file.add(*_with_logdet_errors(in_turn(runs, sweep, traces=traces)))
    return file.content


def _with_logdet_errors(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records with the error of the log-determinant, where the first is of FP64."""
    reference = records[0]
    if reference["precision_threshold"] is not None or "error" in reference:
        return records
    mixed = [run if "error" in run else run | {"logdet_error": run["logdet"] - reference["logdet"]} for run in records[1:]]
    return [reference, *mixed]
