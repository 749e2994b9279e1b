"""What a checkpoint costs: one matrix in a file factored into a file, with and without, in turn.

Seconds of the whole call and of the processor, the least of each of the repeats: on a machine with other work the latter is the
steadier of the two.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ooc_chol as oc
from benchmarks.matrices import Line
from benchmarks.running import Options, both_seconds, in_turn

FOLDER = "checkpoints"
TAKES = {"n": 8000, "repeats": 3, "memory_budget": "256 MiB", "folder": Path}


def timed(matrix: Path, budget: str, is_kept: bool) -> dict[str, float]:
    """One factorization."""
    path = matrix.with_name("L")
    how = {"store": path, "checkpoint": is_kept, "memory_budget": budget, "devices": "host:0"}
    found, _ = both_seconds(lambda: oc.cholesky(matrix, **how, lower=True).close())
    path.unlink()
    return {"wall_seconds": found["seconds"], "processor_seconds": found["processor_seconds"]}


def run(options: Options) -> dict[str, Any]:
    """Measure."""
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        matrix = Line(options.n, 50.0).write(Path(name, "a.npy"))
        kinds = {"store": False, "checkpoint": True}
        runs = in_turn(
            {kind: lambda kept=kept: timed(matrix, options.memory_budget, kept) for kind, kept in kinds.items()}, options.repeats
        )
    least: dict[str, Any] = {kind: {what: min(run[what] for run in each) for what in each[0]} for kind, each in runs.items()}
    cost = {what: least["checkpoint"][what] / least["store"][what] - 1.0 for what in least["store"]}
    return {"n": options.n, "budget": options.memory_budget, "runs": runs, "least": least, "cost": cost}
