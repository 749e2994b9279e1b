"""Plans that are kept: taken again for the same problem, never for another one, and let go when there are many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import FactorOptions, Plan
from tests.inside.dense import (
    AskedRates,
    Candidate,
    KeptPlans,
    Problem,
    Rates,
    fresh_plan,
    limit,
    make_plan,
    rest_of_residue_plan,
)
from tests.inside.ground import format_bytes
from tests.inside.hardware import kinds
from tests.inside.kernels import CUDA
from tests.inside.precision import FORMATS, FP32, FP64, FactorNorms, MatrixNorms, choose_formats
from tests.inside.tasks import Link, Window, compulsory_bytes
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
    with pytest.raises(oc.errors.PlanSizeError):
        planned(replace(PROBLEM, n=1500))


def test_plans_used_longest_ago_go_first():
    kept, asked = KeptPlans(most_steps=10**6, most_plans=2), AskedRates(lambda grid: golden.RATES)
    problems = [replace(PROBLEM, n=n) for n in (300, 400, 500)]
    for problem in problems[:2]:
        kept.keep(problem, OPTIONS, (OPTIONS.devices,), asked, planned(problem))
    assert kept.find(problems[0], OPTIONS, (OPTIONS.devices,), asked) is planned(problems[0])
    kept.keep(problems[2], OPTIONS, (OPTIONS.devices,), asked, planned(problems[2]))
    found = [kept.find(problem, OPTIONS, (OPTIONS.devices,), asked) is not None for problem in problems]
    assert found == [True, False, True]


def test_plans_of_windows_are_kept_for_all_like_them_and_each_by_itself():
    kept, asked, options = KeptPlans(), AskedRates(lambda grid: golden.RATES), replace(OPTIONS, fp64="native")
    offered = (OPTIONS.devices,)
    first, second = (PROBLEM.of_window(Window(rows, range(1, 3))) for rows in (range(3, 5), range(4, 6)))
    kept.keep(first, options, offered, asked, fresh_plan(first, options, asked))
    plan = kept.find(second, options, offered, asked)
    assert golden.digest(plan) == golden.digest(fresh_plan(second, options, asked)) and plan.window == second.window
    assert kept.find(second, options, offered, asked) is plan
    other = AskedRates(lambda grid: replace(golden.RATES, fetch=2 * golden.RATES.fetch))
    assert kept.find(second, options, offered, other) is None
    kept.keep(first, options, offered, other, fresh_plan(first, options, other))
    again = kept.find(second, options, offered, other)  # not by the rates that its own plan was made with
    assert again is not None and again is not plan and kept.find(second, options, offered, other) is again


def test_no_more_steps_are_kept_than_may_be():
    asked = AskedRates(lambda grid: golden.RATES)
    small, large = replace(PROBLEM, n=300), replace(PROBLEM, n=1000)
    steps = len(planned(large).programs[0].steps)
    kept = KeptPlans(most_steps=steps)
    kept.keep(small, OPTIONS, (OPTIONS.devices,), asked, planned(small))
    kept.keep(large, OPTIONS, (OPTIONS.devices,), asked, planned(large))
    assert kept.find(small, OPTIONS, (OPTIONS.devices,), asked) is None
    assert kept.find(large, OPTIONS, (OPTIONS.devices,), asked) is planned(large)
    less = KeptPlans(most_steps=steps - 1)
    less.keep(large, OPTIONS, (OPTIONS.devices,), asked, planned(large))
    assert less.find(large, OPTIONS, (OPTIONS.devices,), asked) is None


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


def of_free(monkeypatch, free, **given):
    """The plan of a call without a budget where so many bytes are free."""
    monkeypatch.setattr(kinds, "free_host_bytes", lambda: free)
    return oc.plan(given.pop("n", 300), devices="host:0", tile_size=32, **given)


@pytest.mark.parametrize("share", [0.9, 1.0, 1.1])
def test_a_plan_serves_where_about_as_much_is_free_and_no_budget_is_told(monkeypatch, share):
    plan = of_free(monkeypatch, 20_000_000_000)
    assert of_free(monkeypatch, int(share * 20_000_000_000)) is plan


@pytest.mark.parametrize("share", [0.8, 1.25])
def test_a_plan_does_not_serve_where_less_or_more_is_free(monkeypatch, share):
    plan = of_free(monkeypatch, 20_000_000_000)
    other = of_free(monkeypatch, int(share * 20_000_000_000))
    assert other.budget_bytes < plan.budget_bytes if share < 1 else other.budget_bytes > plan.budget_bytes


def test_a_plan_does_not_serve_where_it_would_not_fit():
    """It has as many slots as what was free had room for."""
    plan, kept, asked = planned(), KeptPlans(), AskedRates(lambda grid: golden.RATES)
    kept.keep(PROBLEM, OPTIONS, (OPTIONS.devices,), asked, plan, is_told=False)
    slot = 8 * 64 * 64
    assert plan.budget_bytes - slot < plan.needed_bytes <= plan.budget_bytes

    def found(budget, *, is_told=False):
        return kept.find(PROBLEM, replace(OPTIONS, memory_budget=budget), (OPTIONS.devices,), asked, is_told=is_told)

    assert found(plan.needed_bytes) is plan and found(plan.budget_bytes + slot) is plan
    assert found(plan.needed_bytes - 1) is None
    assert found(plan.budget_bytes, is_told=True) is None  # that is another call


def test_a_budget_that_is_told_is_met_to_the_byte(monkeypatch):
    plan = of_free(monkeypatch, 20_000_000_000)
    told = of_free(monkeypatch, 20_000_000_000, memory_budget=plan.budget_bytes)
    assert told is not plan and told.budget_bytes == plan.budget_bytes
    assert of_free(monkeypatch, 20_000_000_000, memory_budget=plan.budget_bytes - 4096).budget_bytes == plan.budget_bytes - 4096


# mixed precision


NATIVE = FactorOptions(tile_size=golden.NB, devices=("cuda:0",), memory_budget="70 MB", fp64="native", precision_threshold=1e-5)
RESIDUE = replace(NATIVE, memory_budget="145 MB", fp64="residue", moduli=6)


def mixed(scale: float = 1.0, *, off: float = 1.0) -> Problem:
    """That of the golden plans in mixed precision: A times ``scale``, columns expected of L below its diagonal times ``off``."""
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
        expected=FactorNorms(np.sqrt(scale) * expected.tiles, factors * expected.columns),
    )
    return Problem(golden.N, 8, "array", precision=choose_formats(scaled, before.threshold).without_float32())


def anew(plan: Plan, problem: Problem, options: FactorOptions) -> Plan:
    """The plan of ``problem`` in the layout of ``plan``, made step by step."""
    return rest_of_residue_plan(plan, problem, options, lambda grid: golden.RATES)


HALF = replace(RESIDUE, half_products=True)
ENGINES = [NATIVE, RESIDUE, HALF, replace(RESIDUE, half_products=False)]


@pytest.mark.parametrize("options", ENGINES)
def test_other_norms_of_the_same_formats_take_the_same_programs(options):
    first, second = mixed(), mixed(4.0)
    plan, other = planned(first, options), planned(second, options)
    assert other.programs is plan.programs and other.timeline is plan.timeline
    assert other.precision is second.precision and plan.precision is first.precision
    fresh = fresh_plan(second, options, lambda grid: golden.RATES)
    assert golden.digest(other) == golden.digest(fresh)
    assert str(other) == str(fresh)


def test_other_formats_get_a_plan_of_their_own():
    plan, wide = planned(mixed(), NATIVE), mixed()
    assert wide.precision is not None
    wide = replace(wide, precision=wide.precision.widened([(3, 0)]))
    assert planned(wide, NATIVE).programs is not plan.programs


def test_through_residues_a_plan_serves_other_formats():
    """No step depends on them: tiles move other bytes in the same steps."""
    first = mixed()
    assert first.precision is not None
    second = replace(first, precision=first.precision.widened([(3, 0), (18, 2)]))
    plan, other = planned(first, RESIDUE), planned(second, RESIDUE)
    assert other.precision is second.precision and other.stored_bytes > plan.stored_bytes
    assert golden.digest(other) == golden.digest(anew(plan, second, RESIDUE)) != golden.digest(plan)
    in_file = [planned(replace(each, in_file=True), RESIDUE) for each in (first, second)]
    # Which tiles of a file are kept in host memory depends on their bytes: nothing of the first plan is used.
    assert all(program not in in_file[0].programs for program in in_file[1].programs)
    assert in_file[1].precision is second.precision


@pytest.mark.parametrize("devices", [("cuda:0",), ("cuda:0", "cuda:1"), ("host:0",)])
@pytest.mark.parametrize("options", ENGINES[1:3])
@pytest.mark.parametrize("seed", range(3))
def test_a_plan_bound_to_other_formats_is_the_plan_made_for_them(options, devices, seed):
    """Step by step, in bytes and simulated seconds: any formats of tiles below the diagonal, FP32 and the widest among them."""
    options, rng, grid = replace(options, devices=devices), np.random.default_rng(seed), golden.GRID
    problem = mixed()
    assert problem.precision is not None
    drawn = rng.choice(list(FORMATS.values()), grid.n_tiles)
    formats = [FP64 if i == j else fmt for (i, j), fmt in zip(grid.tiles(), drawn, strict=True)]
    formats[grid.packed(1, 0)] = FP32  # so that the largest narrow tile has as many bytes
    second = replace(problem, precision=replace(problem.precision, formats=tuple(formats)))
    plan = planned(problem, options)
    bound, fresh = plan.with_norms(second.precision), anew(plan, second, options)
    assert bound.precision is fresh.precision is second.precision
    assert [program.steps for program in bound.programs] == [program.steps for program in fresh.programs]
    assert [bound.link_bytes(link) for link in Link] == [fresh.link_bytes(link) for link in Link]
    assert bound.link_bytes(Link.WRITE) == bound.stored_bytes == second.precision.total_bytes != plan.stored_bytes
    assert bound.seconds == fresh.seconds
    assert bound.timeline.ends != plan.timeline.ends, "other bytes take other times, even where no copy decides on the last step"
    assert golden.digest(bound) == golden.digest(fresh)
    assert str(bound) == str(fresh)


def test_norms_that_let_far_less_run_in_fp16_get_a_plan_of_their_own():
    """A plan keeps the share by which it was priced, to an eighth: 0.17 here, where columns 64 times larger allow 0.09."""
    plan, near, other = (planned(mixed(off=off), HALF) for off in (64.0, 4096.0, 3e5))
    assert near.programs is plan.programs and near.half_share == plan.half_share > 0.1
    assert other.programs is not plan.programs and 0.0 < other.half_share < 0.02
    assert golden.digest(other) == golden.digest(fresh_plan(mixed(off=3e5), HALF, lambda grid: golden.RATES))


# what was asked for


def test_a_plan_says_what_was_compared_for_a_threshold():
    plan = planned(mixed(), RESIDUE)
    precision, seconds = plan.precision, plan.seconds
    assert precision is not None
    candidates = (
        Candidate.in_fp64(plan.grid, 0.5, 1e-15),
        Candidate.of(precision, 6, seconds),
        Candidate.of(precision, None, None),
    )
    asked = plan.asked_for((1e-5, "paper"), candidates)
    assert asked.asked == (1e-5, "paper") and asked.candidates == candidates
    assert asked.programs is plan.programs and asked.timeline is plan.timeline and not plan.candidates
    lines = [line.split(maxsplit=1)[1] for line in str(asked).splitlines() if line.startswith("  candidate ")]
    assert lines == [str(each) for each in candidates]
    narrow = format_bytes(plan.stored_bytes)
    error, exact = precision.expected_error(6), precision.expected_error(None)
    assert lines == [
        f"FP64: 0.5 s, {format_bytes(compulsory_bytes(plan.grid, 8))}, expected error 1.0e-15 ||A||_F",
        f"tiles in FP64/FP32/FP16/FP8, 6 moduli: {seconds:.3g} s, {narrow}, expected error {error:.1e} ||A||_F",
        f"tiles in FP64/FP32/FP16/FP8: unknown seconds, {narrow}, expected error {exact:.1e} ||A||_F",
    ]
    assert "candidate" not in str(plan)
