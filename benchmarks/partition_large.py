"""Two parts of a large R-MAT graph whose matrix has half of the room that it needs on a device: seconds of each step.

The graph is made on the device and packed; A's bytes times ``--share``, beside what a basis takes, are the budget of
eigenvectors. Refinement by moves of single vertices is in Python, some hundred thousand moves a second, so that it is left
out unless it is asked for. The file has the report, the cut beside that of random halves, and seconds.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options, Parser, brief, seconds_of
from ooc_chol.apps import spectral

FOLDER = "spectral"
TAKES = {"scale": 24, "devices": "cuda:0", "search": 0, "refine": False}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--share", type=float, default=0.5, help="of A's bytes that the budget holds (default: 0.5)")


def run(options: Options) -> dict[str, Any]:
    """One bisection."""
    packed, a = seconds_of(lambda: oc.block_csr(oc.testing.rmat(options.scale, devices=options.device)))
    with a:
        whole = oc.plan_eigsh(oc.laplacian(a), 4, which="SA", precision="FDF", devices=options.device, memory_budget="1 TiB")
        budget = int(whole.peak_bytes - (1 - options.share) * a.nbytes)
        how = {"search": options.search, "refine": options.refine, "devices": options.device, "precision": "FDF"}
        seconds, found = seconds_of(lambda: spectral.bisect(a, **how, memory_budget=budget))
        facts = {"n": a.shape[0], "entries": a.nnz, "nbytes": a.nbytes, "memory_budget": budget, "pack_seconds": packed}
    facts |= {"seconds": seconds, "cut": found.cut, "sizes": np.asarray(found.sizes).tolist(), "cut_of_random_halves": a.nnz / 4}
    print(found.report, brief(facts), flush=True)
    return {"scale": options.scale, **facts, "report": json.loads(json.dumps(found.report.to_dict(), default=str))}
