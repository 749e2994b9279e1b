"""What a checkpoint costs: one matrix in a file factored into a file, with and without, in turn.

Seconds of the whole call and of the processor, the least of each of the repeats: on a machine with other work the latter is the
steadier of the two.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options, Parser, both_seconds

FOLDER = "checkpoints"


def write_matrix(path: Path, n: int) -> None:
    """An exponential covariance of points on a line, by blocks of rows."""
    target = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, n))
    points = np.arange(n) / 50
    for start in range(0, n, 512):
        rows = slice(start, min(n, start + 512))
        target[rows] = np.exp(-np.abs(points[rows, None] - points))
        target[range(rows.start, rows.stop), range(rows.start, rows.stop)] += 1e-2
    target.flush()


def timed(matrix: Path, folder: Path, budget: str, is_kept: bool) -> dict[str, float]:
    """One factorization."""
    path = folder / "L"
    how = {"store": path, "checkpoint": is_kept, "memory_budget": budget, "devices": "host:0"}
    found, _ = both_seconds(lambda: oc.cholesky(matrix, **how, lower=True).close())
    path.unlink()
    return {"wall_seconds": found["seconds"], "processor_seconds": found["processor_seconds"]}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(n=8000, repeats=3, memory_budget="256 MiB", folder=Path)


def run(options: Options) -> dict[str, Any]:
    """Measure."""
    runs: dict[str, list[dict[str, float]]] = {"store": [], "checkpoint": []}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_matrix(folder / "a.npy", options.n)
        for _ in range(options.repeats):
            for kind, each in runs.items():
                each.append(timed(folder / "a.npy", folder, options.memory_budget, kind == "checkpoint"))
    least: dict[str, Any] = {kind: {what: min(run[what] for run in each) for what in each[0]} for kind, each in runs.items()}
    cost = {what: least["checkpoint"][what] / least["store"][what] - 1.0 for what in least["store"]}
    return {"n": options.n, "budget": options.memory_budget, "runs": runs, "least": least, "cost": cost}
