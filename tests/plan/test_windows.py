"""Windows: their tiles, what they need, and plans that make no more than them and cost no more than that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol import FactorOptions, Plan
from ooc_chol.errors import BudgetError, ScheduleError
from tests.builders import forget_plans
from tests.inside.cluster import BlockGrid
from tests.inside.dense import Problem, fresh_plan, limit, make_plan
from tests.inside.schedulers import window_rows
from tests.inside.tasks import Link, StepKind, TileGrid, Window, whole_triangle
from tests.plan import golden

pytestmark = pytest.mark.plan

N, NB = 190, 16
PROBLEM, GRID = Problem(N, 8, "array"), TileGrid(N, NB)
OPTIONS = FactorOptions(tile_size=NB, devices=("host:0",), memory_budget="64 MiB", fp64="native")
TIGHT = replace(OPTIONS, memory_budget=3 * 4096)
RESIDUE = replace(OPTIONS, fp64="residue")
CHOICES = {
    "native": OPTIONS,
    "three slots": TIGHT,
    "residue": RESIDUE,
    "two devices": replace(OPTIONS, devices=("host:0", "host:1")),
    "residue on three": replace(RESIDUE, devices=("host:0", "host:1", "host:2")),
    "paper": replace(OPTIONS, policy="v3"),
    "cuda residue": replace(RESIDUE, devices=("cuda:0", "cuda:1"), memory_budget="4 GB"),
    "cuda native": replace(OPTIONS, devices=("cuda:0", "cuda:1"), memory_budget="4 GB"),
}


def window_plan(window: Window, options: FactorOptions = OPTIONS, problem: Problem = PROBLEM, rates=None) -> Plan:
    """The plan of a window, made anew."""
    return fresh_plan(problem.of_window(window), options, lambda grid: rates)


@st.composite
def windows(draw: st.DrawFn, nt: int = GRID.nt) -> Window:
    """Any window of a triangle of tiles."""
    left = draw(st.integers(0, nt - 1))
    right = draw(st.integers(left + 1, nt))
    if right == nt or draw(st.booleans()):
        return Window(range(left, draw(st.integers(right, nt))), range(left, right))
    first = draw(st.integers(right, nt - 1))
    return Window(range(first, draw(st.integers(first + 1, nt))), range(left, right))


@given(windows())
def test_what_a_window_says_of_itself_is_what_its_tiles_say(window):
    tiles, needs = set(window.tiles()), window.needs()
    window.check(GRID)
    assert tiles == {(i, j) for i in window.rows for j in window.columns if i >= j}
    assert (window.n_tiles, window.n_needs) == (len(tiles), len(needs)) and not tiles & needs
    read = {(row, k) for tile in tiles for row in tile for k in range(tile[1])} | {(j, j) for _, j in tiles}
    assert needs == read - tiles
    assert set(window.met_rows) == {i for i, _ in tiles | needs}
    assert window.task_counts()["GEMM"] == sum(j for i, j in tiles if i > j)


def test_the_whole_triangle_is_a_window_that_needs_nothing():
    assert not whole_triangle(5).needs()
    assert whole_triangle(5).task_counts() == {"POTRF": 5, "TRSM": 10, "SYRK": 10, "GEMM": 10}


@pytest.mark.parametrize(
    "window",
    [
        Window(range(2, 4), range(1, 3)),
        Window(range(0, 2), range(2, 4)),
        Window(range(2, 3), range(2, 4)),
        Window(range(2, 2), range(0, 1)),
        Window(range(2, 13), range(0, 1)),
        Window(range(2, 4), range(0, 0)),
        Window(range(2, 6, 2), range(0, 1)),
    ],
    ids=str,
)
def test_what_is_no_window_is_refused(window):
    with pytest.raises(ValueError, match="tile"):
        window.check(GRID)
    with pytest.raises(ValueError, match="tile"):
        make_plan(PROBLEM.of_window(window), OPTIONS, lambda grid: None)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("height", [1, 2, 5, 12])
def test_all_windows_together_are_the_whole(choice, height):
    blocks, options = BlockGrid(GRID, height), CHOICES[choice]
    plans = [window_plan(blocks.window(place), options) for place in blocks.places()]
    whole = fresh_plan(PROBLEM, options, lambda grid: None)
    assert sum(plan.flops for plan in plans) == whole.flops
    assert sum(plan.compulsory_bytes for plan in plans) == whole.compulsory_bytes
    assert sum(plan.link_bytes(Link.WRITE) for plan in plans) == whole.link_bytes(Link.WRITE)
    for kind, count in whole.task_counts.items():
        assert sum(plan.task_counts[kind] for plan in plans) == count
    for plan in plans:  # the simulator has found each of them to be sound
        assert max(plan.timeline.ends[0]) == 0.0
        written = {step.tile for program in plan.programs for step in program.steps if step.kind is StepKind.WRITE}
        assert written == set(plan.made.tiles())
        assert plan.loaded_bytes >= plan.movement_bound_bytes
        assert plan.given_flops == 0


@given(windows(), st.sampled_from(sorted(CHOICES)))
def test_any_window_has_a_plan_that_keeps_its_budget(window, choice):
    plan = window_plan(window, CHOICES[choice])
    assert plan.timeline.seconds == 0.0
    assert plan.peak_bytes <= plan.budgets[0].budget_bytes
    assert len(plan.devices) <= len(window.rows)
    assert {plan.owners[row] for row in window.rows} == set(range(len(plan.devices)))


@pytest.mark.parametrize("options", [OPTIONS, RESIDUE], ids=["native", "residue"])
def test_with_room_each_needed_tile_comes_once(options):
    window = Window(range(8, 10), range(4, 6))
    assert window_plan(window, options).link_bytes(Link.FETCH) == 8 * NB * NB * window.n_needs


def test_rates_predict_the_seconds_of_a_window():
    window = Window(range(8, 10), range(4, 6))
    plan = window_plan(window, replace(OPTIONS, devices=("cuda:0",), memory_budget="4 GB"), rates=golden.RATES)
    assert plan.seconds is not None and plan.seconds > 0.0


@pytest.mark.parametrize("options", [OPTIONS, RESIDUE], ids=["native", "residue"])
def test_a_window_of_an_endless_grid_costs_what_its_own_tasks_cost(options):
    nt = 4000  # 10**10 tasks in all
    problem = Problem(nt * NB, 8, "array")
    plan = window_plan(Window(range(nt - 3, nt), range(2, 4)), replace(options, memory_budget="1 GiB"), problem)
    assert sum(len(program.steps) for program in plan.programs) < 200


def test_rows_of_a_window_are_dealt_to_all_devices():
    owners = window_rows(12, Window(range(7, 11), range(2, 4)), 2)
    assert sorted(owners[7:11]) == [0, 0, 1, 1] and not any(owners[:7]) and not any(owners[11:])


def test_the_plan_of_a_window_is_taken_again():
    first, second = Window(range(4, 6), range(2, 4)), Window(range(6, 8), range(2, 4))
    plan = make_plan(PROBLEM.of_window(first), OPTIONS, lambda grid: None)
    assert make_plan(PROBLEM.of_window(first), OPTIONS, lambda grid: None) is plan
    other = make_plan(PROBLEM.of_window(second), OPTIONS, lambda grid: None)
    assert set(other.made.tiles()) == set(second.tiles())


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("distance", [1, 2, 4])
def test_a_plan_of_the_same_columns_is_the_one_that_would_be_made_anew(choice, distance):
    forget_plans()
    first, second = (Window(range(row, row + 3), range(2, 5)) for row in (5, 5 + distance))
    options = CHOICES[choice]
    make_plan(PROBLEM.of_window(first), options, lambda grid: None)
    taken, fresh = make_plan(PROBLEM.of_window(second), options, lambda grid: None), window_plan(second, options)
    assert taken == fresh and taken.timeline == fresh.timeline


def test_the_last_tile_row_is_short_and_has_a_plan_of_its_own():
    forget_plans()
    first, last = (Window(range(row, row + 2), range(2, 4)) for row in (8, 10))
    make_plan(PROBLEM.of_window(first), OPTIONS, lambda grid: None)
    taken = make_plan(PROBLEM.of_window(last), OPTIONS, lambda grid: None)
    assert taken == window_plan(last) and taken.flops < window_plan(first).flops


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        (PROBLEM, replace(OPTIONS, tile_size=None)),
        (PROBLEM, replace(OPTIONS, fp64="auto")),
        (PROBLEM, replace(OPTIONS, policy="async")),
        (PROBLEM, replace(RESIDUE, half_products=True)),
        (replace(PROBLEM, in_file=True), OPTIONS),
    ],
    ids=["tile_size", "engine", "policy", "half_products", "file"],
)
def test_what_all_windows_must_share_is_settled(problem, options):
    with pytest.raises(ValueError, match="window"):
        make_plan(problem.of_window(Window(range(4, 6), range(2, 4))), options, lambda grid: None)


def test_given_tiles_are_those_that_are_needed():
    window = Window(range(4, 6), range(2, 4))
    problem = PROBLEM.of_window(window)
    with pytest.raises(ValueError, match="given"):
        make_plan(replace(problem, given=frozenset([(4, 0)])), OPTIONS, lambda grid: None)
    wrong = frozenset([*window.needs()][1:]) | {(9, 9)}
    with pytest.raises(ScheduleError, match="never written"):
        fresh_plan(replace(problem, given=wrong), OPTIONS, lambda grid: None)


def test_a_window_of_too_many_steps_is_refused(monkeypatch):
    monkeypatch.setattr(limit, "MOST_STEPS", 1500)
    with pytest.raises(BudgetError, match="fewer tile rows in a block"):
        window_plan(Window(range(30, 40), range(20, 30)), OPTIONS, Problem(40 * NB, 8, "array"))


def test_the_page_says_which_window_it_is_of():
    plan = window_plan(Window(range(4, 6), range(2, 4)), CHOICES["two devices"])
    page, facts = str(plan), plan.to_dict()
    assert "tile rows 4 to 5 x columns 2 to 3 of the Cholesky of n = 190" in page
    assert "needed ones of L once" in page and "1 tile rows" in page
    assert facts["window"] == [[4, 6], [2, 4]] and facts["formats"] == {"fp64": 4}
