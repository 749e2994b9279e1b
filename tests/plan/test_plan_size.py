"""Plans of too many steps: counted before anything is made, refused with advice that is true, avoided where tiles are chosen."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ooc_chol as oc
from ooc_chol import FactorOptions, Plan
from tests.builders import planned, problem
from tests.inside.dense import (
    POLICIES,
    best_layouts,
    least_layout,
    least_native_steps,
    least_residue_steps,
    limit,
    make_plan,
    mixed_engine,
    native_steps,
    prefetch_slots,
    residue_steps,
)
from tests.inside.kernels import CUDA, HOST, kind_of
from tests.inside.schedulers import balanced_rows
from tests.inside.tasks import TileGrid
from tests.plan.rates import UNIT_RATES
from tests.plan.residue_problems import ResidueProblem, make_problem
from tests.products import pairwise, share_of_examples

#: What may be between a count and the steps of a plan of at least LEAST_ROWS tile rows, as the counts' module states.
LOW, HIGH, LEAST_ROWS = 0.9, 1.75, 8


def make(n: int, devices: object = "host:0", **options: object) -> Plan:
    """A plan without rates."""
    return planned(n, devices=devices, **options)


def steps_of(programs) -> int:
    """Steps of all devices."""
    return sum(len(program.steps) for program in programs)


def host(count: int) -> tuple[str, ...]:
    """Names of so many host devices."""
    return tuple(f"host:{number}" for number in range(count))


@contextmanager
def at_most(steps: int):
    """No more than ``steps`` steps are planned, so that tests need not build plans of millions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limit, "MOST_STEPS", steps)
        yield


# counts


@pytest.mark.parametrize(("policy", "devices", "nt"), pairwise(list(POLICIES), [1, 2, 4], [LEAST_ROWS, 14]))
def test_counts_are_near_the_steps_of_native_plans(policy, devices, nt):
    for slots in (3, 7, 30, 200):
        plan = make(20 * nt, host(devices), tile_size=20, memory_budget=4096 * slots, policy=policy)
        kept = prefetch_slots(slots) if POLICIES[policy].overlaps else 0
        counted, built = native_steps(nt, slots - kept, POLICIES[policy], devices), steps_of(plan.programs)
        assert least_native_steps(nt) <= built
        assert LOW * built <= counted <= HIGH * built
        assert counted == built or policy not in ("sync", "async", "v1")


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_counts_hold_for_plans_that_are_chosen_by_seconds(devices):
    for slots in (4, 30):
        names = tuple(f"cuda:{number}" for number in range(devices))
        budget = CUDA.workspace_bytes(256) + slots * 8 * 256 * 256
        options = {"devices": names, "tile_size": 256, "memory_budget": budget, "fp64": "native"}
        built = steps_of(planned(12 * 256, rates=UNIT_RATES, **options).programs)
        counted = native_steps(12, slots - prefetch_slots(slots), POLICIES["planned"], devices)
        assert least_native_steps(12) <= built
        assert LOW * built <= counted <= HIGH * built


@share_of_examples(0.4)
@given(
    nt=st.integers(LEAST_ROWS, 20),
    devices=st.integers(1, 4),
    nb=st.sampled_from([16, 2048]),
    more=st.sampled_from([1.0, 1.1, 1.5, 3.0, 10.0]),
    place=st.integers(0, 10**6),
)
def test_counts_are_near_the_steps_of_residue_plans(nt, devices, nb, more, place):
    grid = TileGrid(nt * nb, nb)
    layouts = best_layouts(grid, int(more * least_layout(grid, 13).arena_bytes), 13, devices, rates=None)
    layout = layouts[place % len(layouts)]
    problem = ResidueProblem(grid, balanced_rows(nt, devices), layout)
    built = steps_of(problem.programs())
    assert least_residue_steps(nt) <= built
    assert LOW * built <= residue_steps(grid, layout, devices) <= HIGH * built


@given(nt=st.integers(1, LEAST_ROWS), devices=st.integers(1, 3), chunk=st.integers(1, 3), width=st.integers(1, 3))
@settings(max_examples=30)
def test_no_residue_plan_has_fewer_than_the_least_steps(nt, devices, chunk, width):
    owners = balanced_rows(nt, min(devices, nt))
    assert steps_of(
        make_problem(nt, owners=owners, chunk=chunk, width=min(width, chunk), more=2).programs()
    ) >= least_residue_steps(nt)


# refusals

#: Cases that took the machine's memory, or minutes: options, then n.
HUGE = [
    *[({"memory_budget": budget}, n) for n in (10**6, 10**7, 10**9) for budget in ("4 KiB", "64 MiB")],
    *[({"tile_size": nb, "policy": policy}, n) for nb in (1, 3) for n in (1000, 10**5) for policy in POLICIES],
    *[({"devices": "cuda:0", "memory_budget": budget}, 10**9) for budget in ("64 MiB", "80 GB")],
    *[
        ({"devices": ["cuda:0", "cuda:1"], "memory_budget": "64 MiB", "fp64": fp64}, 10**6)
        for fp64 in ("auto", "native", "residue")
    ],
    *[({"devices": name, "tile_size": 16, "memory_budget": "64 MiB", "fp64": "residue"}, 10**6) for name in ("host:0", "cuda:0")],
    ({}, 10**9),
]
#: Runs them all, and what measures norms first, in little memory and time; prints the error of each.
SCRIPT = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
import ooc_chol as oc
from tests.inside.cli import cli

def tile(rows, cols, out, stream=None):
    raise AssertionError("a tile is made before the plan")

def error_of(call):
    try:
        call()
    except oc.BudgetError as error:
        return type(error).__name__, str(error)
    return None, ""

errors = [error_of(lambda: oc.plan(n, **options)) for options, n in json.loads(sys.argv[1])]
for threshold in (None, 1e-4):
    for options in ({}, {"tile_size": 1}, {"tile_size": 16, "fp64": "residue"}):
        options = {"devices": "host:0", "memory_budget": "64 MiB", **options}
        errors.append(error_of(lambda: oc.cholesky(oc.from_function(10**6, tile), precision_threshold=threshold, **options)))
    larger = oc.from_function(10**7, tile)
    errors.append(error_of(lambda: oc.cholesky(larger, precision_threshold=threshold, memory_budget="64 MiB")))
status = [cli.main(["plan", "--n", "10000000"]), cli.main(["plan", "--n", "1000", "--tile-size", "1", "--devices", "host:0"])]
print(json.dumps([errors, status]))
"""


@pytest.mark.usefixtures("processes")
def test_what_would_take_the_machine_is_refused_before_anything_is_made():
    command = [sys.executable, "-c", SCRIPT, json.dumps(HUGE)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    errors, status = json.loads(ran.stdout)
    assert [name for name, _ in errors] == ["PlanSizeError"] * (len(HUGE) + 8)
    assert all(re.search(r"give tile_size=\d+( and memory_budget=\d+ or more)?$", text) for _, text in errors)
    assert status == [2, 2]
    assert ran.stderr.count("steps are planned here: give --tile-size ") == 2


def test_the_error_says_what_why_and_what_to_do(monkeypatch):
    monkeypatch.setattr(limit, "memory_info", lambda name: (10**10, 10**10))
    with pytest.raises(oc.errors.PlanSizeError) as caught:
        make(1000, tile_size=1, memory_budget="1 MiB")
    error = caught.value
    assert (error.most_steps, error.tile_size, error.memory_budget) == (limit.MOST_STEPS, 16, None)
    assert error.budget_bytes == limit.MOST_STEPS * limit.STEP_BYTES
    assert error.needed_bytes == error.steps * limit.STEP_BYTES
    assert re.fullmatch(
        r"memory to plan a matrix of order 1000 in 1000 x 1000 tiles of 1, about 1.68e\+08 steps: 1440000000 bytes are too few, "
        r"at least \d+ are needed; at most 900000 steps are planned here: give tile_size=16",
        str(error),
    )
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.tile_size, again.steps) == (str(error), error.tile_size, error.steps)


def test_little_free_memory_allows_fewer_steps(monkeypatch):
    assert make(20 * 20, tile_size=20, memory_budget="1 MiB").grid.nt == 20
    monkeypatch.setattr(limit, "memory_info", lambda name: (1500 * limit.STEP_BYTES, 10**10))
    with pytest.raises(oc.errors.PlanSizeError) as caught:
        make(20 * 20, tile_size=20, memory_budget="1 MiB")
    assert caught.value.most_steps == 1500
    assert make(20 * 20, tile_size=caught.value.tile_size, memory_budget="1 MiB").grid.nt < 20


@share_of_examples(0.6)
@given(
    n=st.integers(200, 3000),
    tile_size=st.none() | st.sampled_from([1, 3, 10, 16, 32]),
    budget=st.integers(1, 1 << 22),
    devices=st.integers(1, 3),
    engine=st.sampled_from([*POLICIES, "residue", "mixed", "mixed residue"]),
    most=st.integers(100, 2000),
)
def test_who_follows_the_advice_gets_a_plan(n, tile_size, budget, devices, engine, most):
    options: dict[str, object] = {"devices": host(devices), "memory_budget": budget}
    if engine.startswith("mixed"):
        options["precision_threshold"] = 1e-4
    if engine.endswith("residue"):
        options["fp64"] = "residue"
        tile_size = None if tile_size is None else 16 * tile_size
    elif engine in POLICIES:
        options["policy"] = engine
    with at_most(most):
        try:
            plan_of(n, {"tile_size": tile_size, **options}, most)
        except oc.errors.PlanSizeError as error:
            told = {"tile_size": error.tile_size, "memory_budget": error.memory_budget or budget}
            assert tile_size is None or error.tile_size > tile_size
            plan_of(n, options | told, most)
            if tile_size is None:  # the budget alone does, too
                assert error.memory_budget is not None
                plan_of(n, options | {"memory_budget": error.memory_budget}, most)
        except oc.BudgetError:
            pass  # the budget does not hold tiles that could be planned


def plan_of(n: int, options: dict[str, object], most: int) -> None:
    """Plan, in mixed precision as far as there are no norms; the plan has about as many steps as may be."""
    if "precision_threshold" in options:
        mixed_engine(problem(n), FactorOptions(**options))
        return
    plan = make(n, **options)
    assert steps_of(plan.programs) <= most / LOW


@pytest.mark.parametrize("tile_size", [None, 16])
@pytest.mark.parametrize("more", [{}, {"fp64": "residue"}, {"fp64": "residue", "half_products": True}])
@pytest.mark.parametrize("budget", ["48 KiB", "1 MiB", "64 MiB"])
def test_the_advice_holds_for_plans_in_mixed_precision(tile_size, more, budget):
    at = np.linspace(0.0, 1.0, 500)
    a = np.exp(-10.0 * np.abs(at[:, None] - at)) + 1e-2 * np.eye(500)
    options = {"precision_threshold": 1e-4, "devices": "host:0", "tile_size": tile_size, "memory_budget": budget, **more}
    with at_most(300):
        try:
            plan = oc.plan(a, **options)
        except oc.errors.PlanSizeError as error:
            told = {"tile_size": error.tile_size, "memory_budget": error.memory_budget or budget}
            plan = oc.plan(a, **options | told)
        else:
            assert tile_size is None  # larger tiles than usual were chosen
    assert plan.engine == "mixed"
    assert steps_of(plan.programs) <= 300 / LOW


# choices


@pytest.mark.parametrize("devices", ["host:0", "cuda:0"])
@pytest.mark.parametrize("fp64", ["native", "residue"])
def test_larger_tiles_are_chosen_where_the_usual_ones_cannot_be_planned(devices, fp64):
    n, budget = 20 * (256 if (devices, fp64) == ("host:0", "residue") else 2048), "60 GB"
    usual = make(n, devices, memory_budget=budget, fp64=fp64)
    with at_most(steps_of(usual.programs) // 4):
        larger = make(n, devices, memory_budget=budget, fp64=fp64)
    assert larger.grid.nb > usual.grid.nb
    assert larger.grid.nb in kind_of(devices).tile_sizes or larger.grid.nb & (larger.grid.nb - 1) == 0
    assert larger.peak_bytes <= 60 * 10**9


def test_the_choice_of_tiles_does_not_depend_on_free_memory(monkeypatch):
    monkeypatch.setattr(limit, "memory_info", lambda name: (0, 10**10))
    with pytest.raises(oc.errors.PlanSizeError):
        make(3000, memory_budget="1 MiB")
    monkeypatch.undo()
    assert make(3000, memory_budget="1 MiB").grid.nb == 128


@pytest.mark.parametrize("threshold", [None, 1e-4])
def test_where_native_plans_are_too_long_residues_are_planned_instead(threshold):
    n, options = 24 * 2048, {"devices": "cuda:0", "memory_budget": "60 GB", "tile_size": 2048}
    with at_most(2000):
        if threshold is None:
            assert planned(n, **options).engine == "residue"
        else:
            assert mixed_engine(problem(n), FactorOptions(precision_threshold=threshold, **options))[1].fp64 == "residue"


@pytest.mark.parametrize(
    ("n", "count", "how", "nb"),
    [
        (131_072, 4, {}, 4096),
        (400_000, 4, {}, 4096),
        (131_072, 2, {}, 2048),
        (65_536, 4, {}, 2048),  # 16 tile rows, of which none is one GPU's alone for long
        (131_072, 4, {"memory_budget": "12 GiB"}, 2048),
        (131_072, 4, {"tile_size": 2048}, 2048),
        (131_072, 4, {"fp64": "residue"}, 4096),
    ],
)
def test_many_gpus_have_tiles_of_which_one_thread_feeds_them_all(n, count, how, nb):
    options = {"devices": tuple(f"cuda:{number}" for number in range(count)), "memory_budget": "60 GiB", **how}
    assert mixed_engine(problem(n), FactorOptions(precision_threshold=1e-5, **options))[0].nb == nb


def test_mixed_precision_is_native_where_residues_have_too_many_steps_or_rows():
    options = FactorOptions(devices="cuda:0", memory_budget="60 GB", precision_threshold=1e-4)
    grid, settled = mixed_engine(
        problem(2 * 10**6), FactorOptions(devices="cuda:0", memory_budget="100 GB", precision_threshold=1e-4)
    )
    assert (settled.fp64, grid.nb > CUDA.tile_sizes[0]) == ("native", True)
    with pytest.raises(ValueError, match="room for the rounding"):
        mixed_engine(
            problem(2 * 10**6),
            FactorOptions(devices="cuda:0", memory_budget="100 GB", precision_threshold=1e-4, fp64="residue"),
        )
    assert mixed_engine(problem(10**5), options)[1].fp64 == "residue"


def test_rates_are_not_looked_up_for_tiles_that_cannot_be_planned():
    def rates_at(grid: TileGrid) -> None:
        raise AssertionError("looked up")

    for fp64 in ("native", "residue"):
        options = FactorOptions(devices="host:0", tile_size=16, fp64=fp64, memory_budget="1 GiB")
        with pytest.raises(oc.errors.PlanSizeError):
            make_plan(problem(10**6, 0), options, rates_at)
    assert HOST.tile_sizes[-1] == 16
