"""Seconds of planning: plans of 64 and 128 tile rows, on one GPU and on four, with rates and without, made anew and kept.

No GPU is needed: a plan is made anywhere, and its rates are those of an H200, written down here. Each case is planned several
times with no plan kept, and then once more, kept; beside wall seconds stand those of the processor, which other programs change
less. ``--before`` puts the cases of an earlier result beside them. The script also runs against commits that keep no plans.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running import Options, both_seconds
from ooc_chol.dense import planner
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import Problem, make_plan
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.cost import Rates, ResidueRates
from ooc_chol.precision.norms import FactorNorms, MatrixNorms
from ooc_chol.precision.tile_formats import PrecisionMap, choose_formats
from ooc_chol.tasks.tiling import TileGrid

FOLDER = "planning"
#: About what an H200 does with tiles of order 2048.
RATES = Rates(
    tile_size=2048, potrf=4e12, trsm=3e13, syrk=5e13, gemm=5.3e13, source=5e10, fetch=5e10, write=5e10, generate=5e10,
    launch=5e-6, invert=4e9, residue=ResidueRates(
        13, product=1.1e14, accumulate=4.2e10, convert=2e11, reconstruct=6e10, pull=3e11, half=4e14, half_accumulate=1e11
    ),
)  # fmt: skip
THRESHOLD = 1e-6
#: Without a plan that is kept: commits before plans were kept have one function only.
FRESH: Callable[..., Plan] = getattr(planner, "fresh_plan", make_plan)


@dataclass(frozen=True)
class Case:
    """A problem to be planned."""

    name: str
    n: int
    gpus: int
    budget: str
    fp64: str = "auto"
    tile_size: int | None = None
    has_rates: bool = True
    is_mixed: bool = False

    @property
    def options(self) -> FactorOptions:
        """The options that a user would give."""
        threshold = THRESHOLD if self.is_mixed else None
        return FactorOptions(
            devices=tuple(f"cuda:{number}" for number in range(self.gpus)),
            memory_budget=self.budget,
            fp64=self.fp64,
            tile_size=self.tile_size,
            moduli=8 if self.is_mixed and self.fp64 == "residue" else None,
            precision_threshold=threshold,
        )

    def problem(self) -> Problem:
        """A matrix from a tile function, in mixed precision one whose tiles become smaller away from the diagonal."""
        precision = None if self.tile_size is None or not self.is_mixed else decaying(TileGrid(self.n, self.tile_size))
        return Problem(self.n, 0, "function", precision=precision)

    def plan(self, how: Callable[..., Plan], problem: Problem) -> Plan:
        """The plan, by one of the planner's two functions."""
        return how(problem, self.options, lambda grid: RATES if self.has_rates else None)


CASES = (
    Case("residue, 64 rows, 1 GPU", 131_072, 1, "32 GiB", "residue"),
    Case("auto, 64 rows, 1 GPU", 131_072, 1, "32 GiB"),
    Case("auto, 64 rows, 4 GPUs", 131_072, 4, "32 GiB"),
    Case("auto, 80 rows, 2 GPUs, 12 GiB", 163_840, 2, "12 GiB"),
    Case("auto, 128 rows, 1 GPU", 262_144, 1, "120 GiB"),
    Case("auto, 128 rows, 4 GPUs", 262_144, 4, "64 GiB"),
    Case("mixed, 64 rows, 1 GPU", 131_072, 1, "32 GiB", "residue", 2048, is_mixed=True),
    Case("mixed, 64 rows, 4 GPUs", 131_072, 4, "32 GiB", "residue", 2048, is_mixed=True),
    Case("native, 64 rows, 1 GPU", 131_072, 1, "24 GiB", "native", 2048),
    Case("native, 64 rows, 4 GPUs", 131_072, 4, "24 GiB", "native", 2048),
    Case("no rates, residue, 64 rows, 1 GPU", 131_072, 1, "32 GiB", "residue", has_rates=False),
    Case("no rates, native, 64 rows, 1 GPU", 131_072, 1, "24 GiB", "native", 2048, has_rates=False),
    Case("no rates, native, 64 rows, 4 GPUs", 131_072, 4, "24 GiB", "native", 2048, has_rates=False),
    Case("auto, order 2000, 1 GPU", 2000, 1, "1 GiB"),
)


def decaying(grid: TileGrid) -> PrecisionMap:
    """Formats of a matrix whose tiles' norms fall by 2 from one to the next away from the diagonal, and whose factor's do too."""
    away = np.array([i - j for i, j in grid.tiles()])
    sizes, ones = np.array([grid.size(k) for k in range(grid.nt)], dtype=float), np.ones(grid.nt)
    lower = np.tril(2.0 ** -np.abs(np.subtract.outer(np.arange(grid.nt), np.arange(grid.nt))))
    expected = FactorNorms(np.sqrt(grid.nb) * lower, lower)
    norms = MatrixNorms(grid, grid.nb * 2.0**-away, sizes, ones, ones, expected=expected)
    return choose_formats(norms, THRESHOLD).without_float32()


def timed(call: Callable[[], Plan]) -> tuple[dict[str, float], Plan]:
    """Seconds on the clock and of the processor, and the plan."""
    gc.collect()
    return both_seconds(call)


def measure(case: Case, repeats: int) -> dict[str, Any]:
    """Every repeat of one case, and of taking the plan again."""
    problem, seconds = case.problem(), []
    plan: Plan | None = None
    for _ in range(repeats):
        plan = None  # what letting go of millions of objects takes is not the next plan's
        each, plan = timed(lambda: case.plan(FRESH, problem))
        seconds.append(each)
    assert plan is not None
    again: list[float] | None = None
    if FRESH is not make_plan:
        case.plan(make_plan, problem)
        # In mixed precision another map of formats each time, as a fit has it.
        taken = [timed(lambda: case.plan(make_plan, case.problem() if case.is_mixed else problem))[0] for _ in range(repeats)]
        again = [each["seconds"] for each in taken]
    return {
        "engine": plan.engine,
        "n": plan.grid.n,
        "tile_size": plan.grid.nb,
        "tile_rows": plan.grid.nt,
        "devices": len(plan.devices),
        "budget_bytes": plan.budgets[0].budget_bytes,
        "steps": sum(len(program.steps) for program in plan.programs),
        "predicted_seconds": plan.seconds,
        "wall_seconds": [each["seconds"] for each in seconds],
        "processor_seconds": [each["processor_seconds"] for each in seconds],
        "kept_wall_seconds": again,
    }


NAME = "planning"
TAKES = {"repeats": 3, "before": Path}


def run(options: Options) -> dict[str, Any]:
    """Measure every case."""
    print(f"{len(CASES)} cases, each planned {options.repeats} times anew and as often again", flush=True)
    before = json.loads(options.before.read_text(encoding="utf-8")) if options.before else None
    found = {}
    for case in CASES:
        found[case.name] = one = measure(case, options.repeats)
        kept = "" if one["kept_wall_seconds"] is None else f", kept {1e3 * min(one['kept_wall_seconds']):.2f} ms"
        times = f"{min(one['wall_seconds']):.3f} s, {min(one['processor_seconds']):.3f} s of the processor"
        print(f"{case.name}: {one['steps']} steps, {times}{kept}", flush=True)
    what = "Seconds of planning, with rates of an H200 written down in the script; every repeat, the least one counts."
    result = {"what": what, "cases": found}
    return result if before is None else result | {"before": {"commit": before["commit"], "cases": before["cases"]}}
