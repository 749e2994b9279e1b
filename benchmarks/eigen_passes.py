"""Seconds of a pass of ``eigsh`` as planned and as they were, for each width of panels, and what a checkpoint costs.

First ``ooc-chol bench rates --passes``, without which nothing is predicted. The matrix is R-MAT of GAP's parameters, packed
once. For each budget and each width: what the plan predicts of a pass (link, product, orthogonalization), what the report says
of it, passes, and bytes planned and executed; then the width that the plan would have taken beside the fastest. A run without a
checkpoint and one with it, resumed half-way, end with the same bits or the script fails.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options, brief, seconds_of

FOLDER = "sparse"
BLOCKS = (8, 4, 2, 1)
#: Passes after which a run is ended, to be gone on from.
ENDED_AFTER = 20


def measured(a: oc.BlockCSR, block: int, budget: str | None, options: Options) -> dict[str, Any]:
    """One run, and what its plan said of it."""
    common: dict[str, Any] = {"which": "LM", "precision": options.precision, "block": block, "ncv": options.ncv}
    common |= {"devices": options.devices, "memory_budget": budget}
    try:
        plan = oc.plan_eigsh(a, options.k, **common)
    except oc.BudgetError as error:
        return {"block": block, "budget": budget, "error": str(error)}
    report = oc.eigsh(a, options.k, tol=options.tol, check=False, **common).report
    seconds, scans = report.seconds.parts, report.moves.products
    chosen = plan.choice
    predicted = None if chosen is None or chosen.seconds is None else asdict(chosen.seconds) | {"total": chosen.seconds.total}
    parts = {"product": seconds["passes"] / scans, "orthogonalization": seconds["orthogonalization"] / report.passes}
    found = {
        "block": block,
        "budget": budget,
        "ncv": plan.ncv,
        "passes": report.passes,
        "scans": scans,
        "predicted_seconds_a_pass": predicted,
        "seconds_a_pass": parts | {"total": seconds["run"] / scans},
        "seconds": {"total": seconds["run"], **seconds},
        "bytes_planned": dict(report.bytes.planned),
        "bytes_executed": dict(report.bytes.executed),
        "worst_residual": report.worst,
    }
    print(brief(found), f"a pass: {found['seconds_a_pass']}, predicted {predicted}", flush=True)
    return found


def resumed(a: oc.BlockCSR, options: Options) -> dict[str, Any]:
    """A run that is ended and gone on from, beside one that is not."""
    common: dict[str, Any] = {"block": 4, "ncv": 56} | {name: getattr(options, name) for name in ("precision", "devices", "tol")}
    whole = oc.eigsh(a, 8, **common)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.ooceig")

        def begun() -> None:
            with suppress(oc.errors.NoConvergenceError):
                oc.eigsh(a, 8, max_passes=ENDED_AFTER, checkpoint=path, **common)

        ended, _ = seconds_of(begun)
        later = oc.eigsh(a, 8, checkpoint=path, **common)
        size = path.stat().st_size
    if not all(np.array_equal(one, other) for one, other in zip(whole, later, strict=True)):
        sys.exit("the run that went on from a checkpoint has other bits")
    report = later.report
    found = {"resumed_passes": report.resumed, "passes": report.passes, "checkpoint_bytes": size, "first_seconds": ended}
    return found | {"seconds": report.seconds.to_dict(), "whole_seconds": whole.report.seconds.total}


TAKES = {"scale": 16, "k": 24, "ncv": int, "tol": 1e-6, "precision": "FDF", "budgets": ["all"], "devices": "host:0"}


def run(options: Options) -> dict[str, Any]:
    """Run all settings."""
    runs = []
    with oc.block_csr(oc.testing.rmat(options.scale)) as a:
        for budget in (None if each == "all" else each for each in options.budgets):
            there = [measured(a, block, budget, options) for block in BLOCKS]
            how = {name: getattr(options, name) for name in ("precision", "ncv", "devices")}
            plan = oc.plan_eigsh(a, options.k, **how, memory_budget=budget)
            fastest = min((run for run in there if "error" not in run), key=lambda run: run["seconds"]["total"])["block"]
            print(f"budget {budget or 'all'}: the plan takes b = {plan.block}, the fastest was {fastest}")
            runs += [*there, {"budget": budget, "planned_block": plan.block, "fastest_block": fastest, "error": ""}]
        facts = {"case": f"eigsh passes {options.name}", "scale": options.scale, "k": options.k, "precision": options.precision}
        return facts | {"entries": a.nnz, "runs": runs, "checkpoint": resumed(a, options)}
