"""Plans that are kept: taken again for the same problem, never for another one, and let go when there are many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import FactorOptions, Plan
from tests.inside.dense import AskedRates, KeptPlans, Problem, Rates, fresh_plan, limit, make_plan
from tests.inside.hardware import kinds
from tests.inside.kernels import CUDA
from tests.inside.precision import FactorNorms, MatrixNorms, choose_formats
from tests.plan import golden

pytestmark = pytest.mark.plan

OPTIONS = FactorOptions(tile_size=64, devices=("cuda:0",), memory_budget=CUDA.workspace_bytes(64) + 24 * 8 * 64 * 64)
PROBLEM = Problem(500, 8, "array")


def planned(problem: Problem = PROBLEM, options: FactorOptions = OPTIONS, rates: Rates | None = golden.RATES) -> Plan:
    """The plan that a call gets."""
    return make_plan(problem, options, lambda grid: rates)


def test_the_same_problem_gets_the_same_plan():
    plan = planned()
    assert planned() is plan
    assert planned(options=replace(OPTIONS, host_budget=10**9, strict=False)) is plan  # no plan depends on these
    assert golden.digest(fresh_plan(PROBLEM, OPTIONS, lambda grid: golden.RATES)) == golden.digest(plan)


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": replace(PROBLEM, n=501)},
        {"problem": replace(PROBLEM, bytes_per_entry=4)},
        {"problem": replace(PROBLEM, source="slices")},
        {"problem": Problem(500, 0, "function")},
        {"options": replace(OPTIONS, tile_size=48)},
        {"options": replace(OPTIONS, devices=("cuda:0", "cuda:1"))},
        {"options": replace(OPTIONS, devices=("cuda:1",))},
        {"options": replace(OPTIONS, memory_budget=OPTIONS.memory_budget + 4096)},
        {"options": replace(OPTIONS, objective="bytes")},
        {"options": replace(OPTIONS, policy="v2")},
        {"options": replace(OPTIONS, fp64="native")},
        {"rates": None},
        {"rates": replace(golden.RATES, fetch=1.01 * golden.RATES.fetch)},
        {"rates": replace(golden.RATES, generate=2 * golden.RATES.generate)},
    ],
    ids=lambda changes: str(list(changes.values()))[:60],
)
def test_any_other_problem_gets_its_own(changes):
    plan, other = planned(), planned(**changes)
    assert other is not plan
    fresh = fresh_plan(changes.get("problem", PROBLEM), changes.get("options", OPTIONS), lambda grid: other.rates)
    assert golden.digest(other) == golden.digest(fresh)
    assert planned(**changes) is other


def test_chance_in_the_rate_of_a_tile_function_makes_no_new_plan():
    plan = planned()
    assert planned(rates=replace(golden.RATES, generate=1.2 * golden.RATES.generate)) is plan


def test_a_plan_for_what_is_left_of_a_run_is_not_kept():
    problem = replace(PROBLEM, given=frozenset({(i, 0) for i in range(8)}))
    assert planned(problem) is not planned(problem)


def test_a_kept_plan_is_refused_where_its_steps_would_be(monkeypatch):
    planned(replace(PROBLEM, n=1500))
    monkeypatch.setattr(limit, "MOST_STEPS", 1100)
    with pytest.raises(oc.PlanSizeError):
        planned(replace(PROBLEM, n=1500))


def test_plans_used_longest_ago_go_first():
    kept, asked = KeptPlans(most_steps=10**6, most_plans=2), AskedRates(lambda grid: golden.RATES)
    problems = [replace(PROBLEM, n=n) for n in (300, 400, 500)]
    for problem in problems[:2]:
        kept.keep(problem, OPTIONS, OPTIONS.devices, asked, planned(problem))
    assert kept.find(problems[0], OPTIONS, OPTIONS.devices, asked) is planned(problems[0])
    kept.keep(problems[2], OPTIONS, OPTIONS.devices, asked, planned(problems[2]))
    found = [kept.find(problem, OPTIONS, OPTIONS.devices, asked) is not None for problem in problems]
    assert found == [True, False, True]


def test_no_more_steps_are_kept_than_may_be():
    asked = AskedRates(lambda grid: golden.RATES)
    small, large = replace(PROBLEM, n=300), replace(PROBLEM, n=1000)
    steps = len(planned(large).programs[0].steps)
    kept = KeptPlans(most_steps=steps)
    kept.keep(small, OPTIONS, OPTIONS.devices, asked, planned(small))
    kept.keep(large, OPTIONS, OPTIONS.devices, asked, planned(large))
    assert kept.find(small, OPTIONS, OPTIONS.devices, asked) is None
    assert kept.find(large, OPTIONS, OPTIONS.devices, asked) is planned(large)
    less = KeptPlans(most_steps=steps - 1)
    less.keep(large, OPTIONS, OPTIONS.devices, asked, planned(large))
    assert less.find(large, OPTIONS, OPTIONS.devices, asked) is None


# default budgets


def test_a_default_budget_is_the_same_for_about_the_same_free_memory(monkeypatch):
    budgets = []
    for free in (20_000_000_000, 20_001_000_000, 19_999_000_000):
        monkeypatch.setattr(kinds, "free_host_bytes", lambda free=free: free)
        plan = oc.plan(300, devices="host:0", tile_size=32)
        budget = plan.budgets[0].budget_bytes
        usual = free // 2
        assert usual * 63 / 64 < budget <= usual
        budgets.append(plan)
    assert len(set(map(id, budgets))) == 1


# mixed precision


NATIVE = FactorOptions(tile_size=golden.NB, devices=("cuda:0",), memory_budget="70 MB", fp64="native", precision_threshold=1e-5)
RESIDUE = replace(NATIVE, memory_budget="145 MB", fp64="residue", moduli=6)


def mixed(scale: float = 1.0, *, off: float = 1.0) -> Problem:
    """That of the golden plans in mixed precision: A times ``scale``, what is expected of L below its diagonal times ``off``."""
    before = golden.precision()
    norms, expected = before.norms, before.norms.expected
    assert expected is not None
    factors = np.sqrt(scale) * np.where(np.eye(golden.GRID.nt), 1.0, off)
    scaled = MatrixNorms(
        norms.grid,
        scale * norms.tiles,
        scale * norms.traces,
        scale * norms.least,
        scale * norms.largest,
        expected=FactorNorms(factors * expected.tiles, factors * expected.columns),
    )
    return Problem(golden.N, 8, "array", precision=choose_formats(scaled, before.threshold).without_float32())


@pytest.mark.parametrize(
    "options", [NATIVE, RESIDUE, replace(RESIDUE, half_products=True), replace(RESIDUE, half_products=False)]
)
def test_other_norms_of_the_same_formats_take_the_same_programs(options):
    first, second = mixed(), mixed(4.0)
    plan, other = planned(first, options), planned(second, options)
    assert other.programs is plan.programs and other.timeline is plan.timeline
    assert other.precision is second.precision and plan.precision is first.precision
    assert other.half_products is None or other.half_products.precision is second.precision
    fresh = fresh_plan(second, options, lambda grid: golden.RATES)
    assert golden.digest(other) == golden.digest(fresh)
    assert str(other) == str(fresh)


def test_other_formats_get_a_plan_of_their_own():
    plan, wide = planned(mixed(), NATIVE), mixed()
    assert wide.precision is not None
    wide = replace(wide, precision=wide.precision.widened([(3, 0)]))
    assert planned(wide, NATIVE).programs is not plan.programs


def test_norms_that_choose_other_products_get_a_plan_of_their_own():
    options = replace(RESIDUE, half_products=True)
    plan, second = planned(mixed(), options), mixed(off=8.0)
    other = planned(second, options)
    assert other.programs is not plan.programs
    assert golden.digest(other) == golden.digest(fresh_plan(second, options, lambda grid: golden.RATES)) != golden.digest(plan)
