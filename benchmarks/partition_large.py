"""Two parts of a large R-MAT graph whose matrix has half of the room that it needs on a device: seconds of each step.

The graph is made on the device and packed; A's bytes times ``--share``, beside what a basis takes, are the budget of
eigenvectors. Refinement by moves of single vertices is in Python, some hundred thousand moves a second, so that it is left
out unless it is asked for. The file has the report, the cut beside that of random halves, and seconds.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options, Parser
from ooc_chol.apps import spectral

FOLDER = "spectral"


def measured(options: Options) -> dict[str, Any]:
    """One bisection."""
    began = time.perf_counter()
    with oc.block_csr(oc.testing.rmat(options.scale, devices=options.device)) as a:
        packed = time.perf_counter() - began
        whole = oc.plan_eigsh(oc.laplacian(a), 4, which="SA", precision="FDF", devices=options.device, memory_budget="1 TiB")
        budget = int(whole.peak_bytes - (1 - options.share) * a.nbytes)
        began = time.perf_counter()
        found = spectral.bisect(
            a,
            search=options.search,
            refine=options.refine,
            devices=options.device,
            memory_budget=budget,
            precision="FDF",
        )
        seconds = time.perf_counter() - began
        facts = {"n": a.shape[0], "entries": a.nnz, "nbytes": a.nbytes, "memory_budget": budget, "pack_seconds": packed}
    facts |= {"seconds": seconds, "cut": found.cut, "sizes": np.asarray(found.sizes).tolist(), "cut_of_random_halves": a.nnz / 4}
    facts["report"] = json.loads(json.dumps(found.report.to_dict(), default=str))
    print(found.report, flush=True)
    print({key: value for key, value in facts.items() if key != "report"}, flush=True)
    return facts


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(scale=24, devices="cuda:0", search=0, refine=False)
    parser.add_argument("--share", type=float, default=0.5, help="of A's bytes that the budget holds (default: 0.5)")


def run(options: Options) -> dict[str, Any]:
    """One bisection."""
    return {"scale": options.scale} | measured(options)
