"""What a checkpoint costs: one matrix in a file factored into a file, with and without, in turn.

    python benchmarks/checkpoint_cost.py [--n 8000] [--repeats 3] [--budget "256 MiB"] [--folder DIR] [--output FILE]

Seconds of the whole call and of the processor, the least of each of the repeats: on a machine with other work the latter is the
steadier of the two. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import datetime
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from ooc_chol.bench.results import commit, machine


def write_matrix(path: Path, n: int) -> None:
    """An exponential covariance of points on a line, by blocks of rows."""
    target = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, n))
    points = np.arange(n) / 50
    for start in range(0, n, 512):
        rows = slice(start, min(n, start + 512))
        target[rows] = np.exp(-np.abs(points[rows, None] - points))
        target[range(rows.start, rows.stop), range(rows.start, rows.stop)] += 1e-2
    target.flush()


def processor_seconds() -> float:
    """Seconds of all cores that the process took until now, in its own code and in the system's."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(matrix: Path, folder: Path, budget: str, is_kept: bool) -> dict[str, float]:
    """One factorization."""
    path = folder / "L"
    wall, processor = time.perf_counter(), processor_seconds()
    oc.cholesky(matrix, store=path, checkpoint=is_kept, memory_budget=budget, devices="host:0", lower=True).close()
    found = {"wall_seconds": time.perf_counter() - wall, "processor_seconds": processor_seconds() - processor}
    path.unlink()
    return found


def main() -> int:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", default="256 MiB")
    parser.add_argument("--folder", type=Path, help="where the files go (default: the system's folder for such files)")
    parser.add_argument("--output", type=Path, help="write the result here; by default it is printed")
    arguments = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {"store": [], "checkpoint": []}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        write_matrix(folder / "a.npy", arguments.n)
        for _ in range(arguments.repeats):
            for kind, each in runs.items():
                each.append(timed(folder / "a.npy", folder, arguments.budget, kind == "checkpoint"))
    least: dict[str, Any] = {kind: {what: min(run[what] for run in each) for what in each[0]} for kind, each in runs.items()}
    result = {
        "case": "checkpoint cost",
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "machine": machine(with_gpus=False),
        "n": arguments.n,
        "budget": arguments.budget,
        "runs": runs,
        "least": least,
        "cost": {what: least["checkpoint"][what] / least["store"][what] - 1.0 for what in least["store"]},
    }
    text = json.dumps(result, indent=1) + "\n"
    if arguments.output is None:
        print(text, end="")
    else:
        arguments.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
