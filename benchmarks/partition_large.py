"""Two parts of a large R-MAT graph whose matrix has half of the room that it needs on a device: seconds of each step.

    python benchmarks/partition_large.py NAME [--scale 24] [--device cuda:0] [--share 0.5] [--search 0] [--refine]
                                         [--output FOLDER]

The graph is made on the device and packed; A's bytes times ``--share``, beside what a basis takes, are the budget of
eigenvectors. Refinement by moves of single vertices is in Python, some hundred thousand moves a second, so that it is left
out unless it is asked for. ``benchmarks/results/spectral/NAME.json`` has the report, the cut beside that of random halves, and
seconds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from ooc_chol.apps import spectral
from ooc_chol.bench.results import commit, machine, write_json

RESULTS = Path(__file__).resolve().parent / "results/spectral"


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """One bisection."""
    began = time.perf_counter()
    with oc.block_csr(oc.rmat(options.scale, devices=options.device)) as a:
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


def main() -> None:
    """Measure, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--scale", type=int, default=24)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--share", type=float, default=0.5, help="of A's bytes that the budget holds (default: 0.5)")
    parser.add_argument("--search", type=int, default=0)
    parser.add_argument("--refine", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    about = {"case": options.name, "commit": commit(), "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    content = about | {"machine": machine(options.device.startswith("cuda")), "scale": options.scale} | measured(options)
    print(write_json(content, options.output / f"{options.name}.json"))


if __name__ == "__main__":
    main()
