"""Plans that must not change unnoticed: problems that use every part of the planner, and a digest of all that a plan says.

``python -m tests.plan.golden`` writes the file of digests anew: a deliberate change, in a commit of its own with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ooc_chol import FactorOptions, Plan
from tests.golden import GoldenFile
from tests.golden import digest as sha256
from tests.inside.dense import Problem, Rates, ResidueRates, fresh_plan
from tests.inside.kernels import CUDA, HOST
from tests.inside.precision import FactorNorms, MatrixNorms, PrecisionMap, choose_formats
from tests.inside.tasks import STREAM_NAMES, Link, Pool, TileGrid

#: Digests by the name of a problem.
FILE = GoldenFile(Path(__file__).with_name("golden_plans.json"), "tests.plan.golden")

N, NB = 1210, 64
GRID = TileGrid(N, NB)
#: A fast device beside slow links, so that what moves decides.
RATES = Rates(
    tile_size=NB, potrf=1e10, trsm=4e10, syrk=1e11, gemm=1e11, source=4e9, fetch=5e9, write=4e9, generate=1e9, launch=2e-6,
    invert=4e8, residue=ResidueRates(
        13, product=2e11, accumulate=4e9, convert=1e10, reconstruct=5e9, pull=2e10, half=6e11, half_accumulate=1e10
    ),
)  # fmt: skip


def precision() -> PrecisionMap:
    """Formats of a matrix whose tiles become smaller away from the diagonal, by norms that are exact in FP64."""
    away = np.array([i - j for i, j in GRID.tiles()])
    sizes = np.array([GRID.size(k) for k in range(GRID.nt)], dtype=float)
    ones = np.ones(GRID.nt)
    lower = np.tril(2.0 ** -np.abs(np.subtract.outer(np.arange(GRID.nt), np.arange(GRID.nt))))
    expected = FactorNorms(8.0 * lower, lower)
    return choose_formats(MatrixNorms(GRID, 64.0 * 4.0**-away, sizes, ones, ones, expected=expected), 1e-5)


class Case(NamedTuple):
    """A problem and the options that it is planned with."""

    problem: Problem
    options: FactorOptions
    rates: Rates | None

    def plan(self) -> Plan:
        """The plan, on any machine."""
        return fresh_plan(self.problem, self.options, lambda grid: self.rates)


def cases() -> Iterator[tuple[str, Case]]:
    """All problems by name."""
    plain = Problem(N, 8, "array")
    for devices in (
        ("host:0",),
        ("host:0", "host:1"),
        *(tuple(f"cuda:{number}" for number in range(count)) for count in (1, 2, 4, 8)),
    ):
        kind = HOST if devices[0] == "host:0" else CUDA
        where = f"{len(devices)} {kind.name}"
        native, residue = kind.workspace_bytes(NB), kind.residue_workspace_bytes(N, NB)
        for slots in (8, 24, 200):
            options = FactorOptions(tile_size=NB, devices=devices, memory_budget=native + slots * 8 * NB * NB, fp64="native")
            yield f"native, {where}, {slots} slots", Case(plain, options, RATES)
        few = replace(options, memory_budget=native + 24 * 8 * NB * NB)
        yield f"native, {where}, bytes, generated", Case(Problem(N, 0, "function"), replace(few, objective="bytes"), None)
        for policy in ("sync", "async", "v1", "v2", "v3") if len(devices) == 1 else ("v3",):
            yield f"native, {where}, {policy}", Case(plain, replace(few, policy=policy), RATES)
        for mebibytes in (3, 12):
            options = replace(few, fp64="residue", moduli=13, memory_budget=residue + (mebibytes << 20))
            yield f"residue, {where}, {mebibytes} MiB", Case(plain, options, RATES)
        narrow = replace(plain, precision=precision() if kind is HOST else precision().without_float32())
        yield f"mixed, {where}", Case(narrow, few, RATES)
        options = replace(options, moduli=6, half_products=True)
        yield f"mixed residue, {where}", Case(replace(narrow, precision=precision().without_float32()), options, RATES)


def digest(plan: Plan) -> str:
    """SHA-256 of every step, the panels, owners and budgets, and of what the plan predicts."""
    text = [repr((plan.panels, plan.owners, plan.budgets, plan.flops, plan.flops_executed))]
    text += [repr([plan.link_bytes(link) for link in Link])]
    text += [
        f"{plan.seconds!r}",
        f"{[program.layout.slots(Pool.TILE) if plan.moduli is None else 0 for program in plan.programs]}",
    ]
    for program in plan.programs:
        for step in program.steps:
            place = STREAM_NAMES[step.stream], tuple(step.block), step.nbytes
            text.append(f"{step.label} {place} {tuple(step.waits)} {tuple(map(tuple, step.awaits))} {step.announced}")
    return sha256("\n".join(text))


if __name__ == "__main__":
    FILE.write({name: digest(case.plan()) for name, case in cases()})
