"""Whole plans: budgets, options, the printed page, and the time that planning takes."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ooc_chol as oc
from ooc_chol import Plan
from tests.builders import planned
from tests.inside.dense import POLICIES, Rates, choose_tile_size, prefetch_slots
from tests.inside.dense import native as native_planner
from tests.inside.ground import parse_bytes
from tests.inside.kernels import CUDA, HOST
from tests.inside.tasks import Link, Pool, StepKind, StreamKind, TileGrid
from tests.plan.problems import task_of
from tests.plan.rates import UNIT_RATES
from tests.products import pairwise, share_of_examples, thorough

#: CPU seconds that planning may take: the promise is in seconds, but a busy machine must not fail the test.
PLANNING_SECONDS = 10.0

DEVICES = st.integers(1, 3).map(lambda count: [f"host:{number}" for number in range(count)])


def make(n: int, *, itemsize: int = 8, rates: bool = False, devices: object = "host:0", **options: object) -> Plan:
    """The plan of a matrix on the host."""
    return planned(n, itemsize, UNIT_RATES if rates else None, devices=devices, **options)


def tiles(count: int, nb: int) -> int:
    """Bytes of ``count`` slots."""
    return count * -(-8 * nb * nb // 4096) * 4096


# budgets


@share_of_examples(0.8)
@given(
    n=st.integers(1, 300),
    tile_size=st.none() | st.integers(1, 80),
    devices=DEVICES,
    policy=st.sampled_from(sorted(POLICIES)),
    itemsize=st.sampled_from([0, 4, 8]),
)
def test_exactly_the_bytes_that_an_error_names_suffice(n, tile_size, devices, policy, itemsize):
    assume(n <= 14 * (tile_size or 16))
    wanted = {"tile_size": tile_size, "devices": devices, "policy": policy, "itemsize": itemsize}
    with pytest.raises(oc.BudgetError) as caught:
        make(n, memory_budget=1, **wanted)
    needed = caught.value.needed_bytes
    plan = make(n, memory_budget=needed, **wanted)
    assert plan.peak_bytes <= needed
    with pytest.raises(oc.BudgetError):
        make(n, memory_budget=needed - 1, **wanted)


def test_a_budget_error_says_how_much_is_needed_and_what_to_do():
    with pytest.raises(oc.BudgetError) as caught:
        make(5000, tile_size=1000, memory_budget="1 MB")
    assert (caught.value.budget_bytes, caught.value.needed_bytes) == (1_000_000, tiles(3, 1000))
    assert caught.value.what == "memory_budget of host:0"
    assert re.fullmatch(
        r"memory_budget of host:0: 1000000 bytes are too few, at least 24010752 are needed; "
        r"give that much or more, or a tile_size smaller than 1000",
        str(caught.value),
    )


def test_a_smaller_tile_is_advised_only_where_it_helps():
    with pytest.raises(oc.BudgetError, match=r"at least 12288 are needed; give that much or more$"):
        make(100, tile_size=10, memory_budget=5000)
    with pytest.raises(oc.BudgetError, match=r"at least 24576 are needed; give that much or more$"):
        make(100, tile_size=23, memory_budget=5000)
    with pytest.raises(oc.BudgetError, match="or a tile_size smaller than 23"):
        make(100, tile_size=23, memory_budget=12288)
    assert make(100, tile_size=22, memory_budget=12288).grid.nb == 22


def test_a_matrix_of_one_tile_needs_one_slot():
    plan = make(30, tile_size=40, memory_budget=tiles(1, 30))
    assert (plan.grid.n_tiles, plan.budgets[0].n_slots, plan.peak_bytes) == (1, 1, tiles(1, 30))


@given(n=st.integers(1, 400), nb=st.integers(8, 64), slots=st.integers(3, 60), policy=st.sampled_from(["sync", "planned"]))
@settings(max_examples=40)
def test_memory_stays_within_the_budget_whatever_it_is(n, nb, slots, policy):
    assume(n <= 14 * nb)
    plan = make(n, tile_size=nb, memory_budget=tiles(slots, nb) + 17, policy=policy)
    budget = plan.budgets[0]
    assert budget.n_slots * budget.slot_bytes + budget.workspace_bytes <= budget.budget_bytes == tiles(slots, nb) + 17
    assert plan.peak_bytes <= plan.layout.capacity_bytes(budget.prefetch_slots) + budget.workspace_bytes
    assert plan.layout.slots(Pool.TILE) == budget.n_slots
    assert 8 * max(plan.grid.entries(*tile) for tile in plan.grid.tiles()) <= budget.slot_bytes


def test_no_more_slots_are_taken_than_the_triangle_can_use():
    plan = make(640, tile_size=64, memory_budget="1 GB")
    assert plan.budgets[0].n_slots == plan.grid.n_tiles + plan.budgets[0].prefetch_slots
    assert plan.loaded_bytes == plan.compulsory_bytes


@pytest.mark.parametrize(("slots", "kept"), [(3, 0), (5, 0), (6, 1), (15, 1), (16, 2), (40, 5), (64, 8), (10_000, 8)])
def test_an_eighth_of_the_slots_is_for_prefetch_but_three_tiles_remain(slots, kept):
    assert prefetch_slots(slots) == kept
    in_use = min(slots, 100)  # of a triangle of 105 tiles
    assert make(420, tile_size=30, memory_budget=tiles(in_use, 30)).budgets[0].prefetch_slots == prefetch_slots(in_use)


def test_a_policy_without_overlap_keeps_no_slots_for_prefetch():
    assert make(600, tile_size=30, memory_budget=tiles(40, 30), policy="sync").budgets[0].prefetch_slots == 0


# streams

#: An H200 at tiles of 4096: POTRF and TRSM keep only a part of it busy.
H200 = Rates(4096, 4.8e12, 31.9e12, 49.5e12, 52e12, 55e9, 55e9, 55e9, 1e10, 3e-6)


def plan_on_gpu(n: int, budget: str, *, rates: Rates | None = H200, devices: object = "cuda:0", **options: object) -> Plan:
    """The plan of a tile function's matrix on a GPU that need not be here."""
    return planned(n, 0, rates, tile_size=4096, devices=devices, memory_budget=budget, fp64="native", **options)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_gpu_finishes_tiles_on_a_stream_of_their_own_where_the_policy_overlaps(policy):
    program = plan_on_gpu(8 * 4096, "4 GiB", policy=policy).programs[0]
    tasks = {step.stream for step in program.steps if task_of(step) is not None}
    assert tasks == ({StreamKind.COMPUTE, StreamKind.FINISH} if POLICIES[policy].overlaps else {StreamKind.COMPUTE})


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_host_computes_on_one_stream(policy):
    for program in make(500, tile_size=50, devices=2, memory_budget=tiles(20, 50), policy=policy).programs:
        assert {step.stream for step in program.steps if task_of(step) is not None} == {StreamKind.COMPUTE}


def test_finishing_beside_the_sweeps_saves_what_small_kernels_leave(monkeypatch):
    beside = plan_on_gpu(131_072, "24 GiB")
    monkeypatch.setattr(native_planner, "kind_of", lambda name: dataclasses.replace(CUDA, finishes_beside=False))
    after = plan_on_gpu(131_072, "24 GiB")
    assert beside.flops / H200.gemm < beside.seconds < 0.97 * after.seconds
    assert beside.seconds < 1.01 * beside.flops / H200.gemm


@pytest.mark.parametrize(
    ("n", "budget", "devices"),
    pairwise([16 * 4096, 24 * 4096], ["8 GiB", "16 GiB", "40 GiB"], ["cuda:0", ["cuda:0", "cuda:1"]]),
)
def test_free_slots_are_chosen_by_seconds_within_the_budget(monkeypatch, n, budget, devices):
    # A TRSM as slow as POTRF lets the finish stream lag behind, so that slots come back late.
    lagging = dataclasses.replace(H200, trsm=4e12)
    chosen = plan_on_gpu(n, budget, rates=lagging, devices=devices)
    assert chosen.peak_bytes <= parse_bytes(budget, "memory_budget")
    for each in chosen.budgets:
        assert each.n_slots * each.slot_bytes + each.workspace_bytes <= each.budget_bytes
    monkeypatch.setattr(native_planner, "PREFETCH_CHOICES", ())
    usual = plan_on_gpu(n, budget, rates=lagging, devices=devices)
    assert chosen.seconds <= usual.seconds
    assert {each.prefetch_slots for each in usual.budgets} <= set(range(9))


def test_more_free_slots_are_taken_where_they_help():
    lagging = dataclasses.replace(H200, trsm=4e12)
    assert plan_on_gpu(40 * 4096, "24 GiB", rates=lagging).budgets[0].prefetch_slots == 16


@pytest.mark.parametrize("budget", ["100 GiB", *thorough("16 GiB")])
def test_several_devices_end_with_a_wide_panel_where_it_is_faster(monkeypatch, budget):
    devices = [f"cuda:{number}" for number in range(4)]
    plan = plan_on_gpu(40 * 4096, budget, devices=devices)
    monkeypatch.setattr(native_planner, "WIDE_ENDS", ())
    before = plan_on_gpu(40 * 4096, budget, devices=devices)
    assert plan.panels[-1].width >= 12 and before.panels[-1].width < 4
    assert plan.seconds < 0.995 * before.seconds
    assert sum(panel.width for panel in plan.panels) == 40


def test_without_rates_a_gpu_keeps_up_to_sixteen_slots_free_but_not_for_least_bytes():
    assert plan_on_gpu(24 * 4096, "32 GiB", rates=None).budgets[0].prefetch_slots == 16
    assert plan_on_gpu(24 * 4096, "4 GiB", rates=None).budgets[0].prefetch_slots == 3
    assert plan_on_gpu(24 * 4096, "32 GiB", rates=None, objective="bytes").budgets[0].prefetch_slots == 8


# devices and tiles


def test_devices_share_the_rows_and_none_is_idle():
    plan = make(500, tile_size=100, devices=["host:0", "host:1", "host:2"], memory_budget=tiles(8, 100))
    assert len(plan.devices) == len(plan.programs) == 3
    assert set(plan.owners) == {0, 1, 2}
    few = make(150, tile_size=100, devices=["host:4", "host:2", "host:0"], memory_budget=tiles(8, 100))
    assert few.devices == ("host:4", "host:2")  # two tile rows, two devices
    assert set(few.owners) == {0, 1}


@pytest.mark.parametrize("devices", ["host:99", "tpu:0", ["host:0", "host:77"], ""])
def test_an_unknown_device_is_answered_with_those_there_are(devices):
    with pytest.raises(ValueError, match=r"there is no device '.*host:0 to host:15"):
        make(100, devices=devices)


@pytest.mark.parametrize("devices", [[], ["host:1", "host:1"], 0, -2, 10_000])
def test_devices_must_be_some_and_different(devices):
    with pytest.raises(ValueError, match=r"^devices is .*give (a count|at least one name)"):
        make(100, devices=devices)


@pytest.mark.parametrize("devices", [1.5, True, {"host:0"}])
def test_devices_of_another_type_are_refused(devices):
    with pytest.raises(TypeError, match=f"devices is a {type(devices).__name__}; give a name such as 'host:0'"):
        make(100, devices=devices)


def test_an_unknown_policy_is_answered_with_those_there_are():
    with pytest.raises(ValueError, match=r"policy is 'lazy'; there are 'planned', 'sync', .* and 'v3'"):
        make(100, policy="lazy")


@pytest.mark.parametrize("budget", ["plenty", 0, "3 bananas"])
def test_a_budget_that_is_no_size_is_refused_by_name(budget):
    with pytest.raises(ValueError, match="memory_budget"):
        make(100, memory_budget=budget)


@given(n=st.integers(1, 10**6), budget=st.integers(3 * 4096, 10**12), kind=st.sampled_from([HOST, CUDA]))
def test_the_tile_size_leaves_enough_tiles_in_the_matrix_and_in_memory(n, budget, kind):
    nb, least = choose_tile_size(n, budget, kind), kind.tile_sizes[-1]
    assert nb in kind.tile_sizes

    def has_room(size: int) -> bool:
        return n >= 4 * size and budget >= kind.wanted_slots(size) * 8 * size * size + kind.workspace_bytes(size)

    assert nb == least or has_room(nb)
    assert not any(has_room(size) for size in kind.tile_sizes if size > nb)


@given(n=st.integers(1, 5000), budget=st.integers(3 * 4096, 10**9), mixed=st.booleans())
def test_on_the_host_small_tiles_give_way_to_larger_ones_that_the_budget_holds(n, budget, mixed):
    dear, rows = (HOST.dear_mixed_order, 16) if mixed else (HOST.dear_order, 4)
    nb = choose_tile_size(n, budget, HOST, rows=rows, dear_order=dear, least_rows=1 + mixed)
    if not mixed and 8 * n * n + 4095 <= budget and n <= dear:
        assert nb == n, "one tile"
    elif budget >= 20 * 8 * dear * dear:
        assert 2 * nb >= min(n, 2 * dear)
    assert nb == n or 8 * nb * nb * min(3, TileGrid(n, nb).n_tiles) <= max(budget, 3 * 4096)
    assert not mixed or n <= 16 or nb < n, "formats are chosen below the diagonal"
    assert nb >= min(n, choose_tile_size(n, budget, HOST, rows=rows)), "never smaller than by rows alone"


# figures


@settings(max_examples=25)
@given(
    n=st.integers(1, 400),
    devices=DEVICES,
    slots=st.integers(3, 60),
    policy=st.sampled_from(sorted(POLICIES)),
    itemsize=st.sampled_from([0, 4, 8]),
)
def test_figures_are_the_sums_of_the_steps(n, devices, slots, policy, itemsize):
    nb = 40
    plan = make(n, tile_size=nb, devices=devices, memory_budget=tiles(slots, nb), policy=policy, itemsize=itemsize)
    steps = [step for program in plan.programs for step in program.steps]
    assert plan.link_bytes(Link.SOURCE) == itemsize * plan.compulsory_bytes // 8
    assert plan.link_bytes(Link.WRITE) == sum(step.nbytes for step in steps if step.kind is StepKind.WRITE)
    assert plan.loaded_bytes == sum(step.nbytes for step in steps if step.kind is StepKind.FETCH)
    assert plan.task_counts == {
        "POTRF": plan.grid.nt,
        "TRSM": plan.grid.nt * (plan.grid.nt - 1) // 2,
        "SYRK": plan.grid.nt * (plan.grid.nt - 1) // 2,
        "GEMM": plan.grid.nt * (plan.grid.nt - 1) * (plan.grid.nt - 2) // 6,
    }
    assert 0 <= n**3 / 3 - plan.flops < plan.grid.nt  # each POTRF is rounded down to whole flops
    figures = plan.to_dict()
    assert json.loads(json.dumps(figures)) == figures
    assert figures["bytes"] == {link.name.lower(): plan.link_bytes(link) for link in Link}


def test_plans_are_deterministic():
    def once() -> Plan:
        return make(700, tile_size=50, devices=2, memory_budget=tiles(20, 50), rates=True)

    assert once() == once()


def test_seconds_are_made_least_when_rates_are_measured():
    by_seconds = make(1000, tile_size=50, memory_budget=tiles(30, 50), rates=True)
    by_bytes = make(1000, tile_size=50, memory_budget=tiles(30, 50), rates=True, objective="bytes")
    assert by_seconds.seconds is not None
    assert by_seconds.seconds <= by_bytes.seconds
    assert by_bytes.loaded_bytes <= by_seconds.loaded_bytes
    assert by_seconds.seconds == by_seconds.timeline.seconds


# the page


def test_the_page_shows_what_a_person_needs():
    page = str(make(700, tile_size=50, devices=["host:0", "host:1"], memory_budget=tiles(20, 50)))
    lines = dict(line.split(maxsplit=1) for line in page.splitlines()[1:] if not line.startswith("  device"))
    assert page.splitlines()[0] == "Plan: Cholesky of n = 700 in 14 x 14 tiles of 50 (fp64), policy 'planned'"
    assert re.search(r"host:0: budget 410 kB, 20 tiles of 20\.5 kB \(2 for prefetch\), 7 tile rows, \d+ steps", page)
    assert re.search(r"host:1: budget .*", page)
    assert re.search(r"work of the busiest device is 1\.\d\d\d x the mean", page)
    assert re.fullmatch(r"(\d+ x \(w=\d+, h=\d+\)(, )?)+(\.\.\. \d+ in all)?", lines["panels"])
    assert lines["tasks"].startswith("14 POTRF, 91 TRSM, 91 SYRK, 364 GEMM; 1.143e+08 flops counted")
    moves = r"2\.1 MB of A read \(array\), .*B of L fetched again, 2\.1 MB of L written; .*B in all; .*B from device to device"
    assert re.fullmatch(moves, lines["moves"])
    assert re.search(r"loads are \d\.\d\d x the larger bound, .*B \(.*\); read once and written once: 4\.2 MB", lines["bounds"])
    assert re.fullmatch(r"peak .*B on a device; the factor takes 2\.1 MB in its store", lines["memory"])
    assert lines["seconds"].startswith("unknown: host devices share the cores")
    assert "unknown: no rates are measured here for tiles of 50" in str(make(700, tile_size=50, memory_budget=tiles(20, 50)))


def test_the_page_predicts_seconds_when_rates_are_measured():
    plan = make(700, tile_size=50, memory_budget=tiles(20, 50), rates=True)
    assert re.search(r"  seconds +\S+ predicted( \(\d+ days\))? \(\S+ GFLOP/s\)$", str(plan))
    assert f"{plan.seconds:.3g} predicted" in str(plan)
    assert "n³/(3·√2·√S)" in str(plan) or "read once)" in str(plan)


def test_a_tile_function_is_read_for_nothing():
    plan = make(700, tile_size=50, memory_budget=tiles(20, 50), itemsize=0)
    assert plan.link_bytes(Link.SOURCE) == 0
    assert "0 B of A read (function)" in str(plan)


# the time that planning takes


def test_160_thousand_rows_are_planned_in_seconds():
    # With rates it takes longest: several shapes may be simulated.
    began = time.process_time()
    plan = make(160_000, memory_budget="80 GB", rates=True)
    page = str(plan)
    assert time.process_time() - began < PLANNING_SECONDS
    assert plan.loaded_bytes == plan.compulsory_bytes
    assert "207 GB in all" in page
    assert plan.peak_bytes <= parse_bytes("80 GB")


# flops


@settings(max_examples=25)
@given(n=st.integers(1, 3000), nb=st.integers(100, 700))
def test_executed_flops_are_those_counted_on_the_host_and_a_little_more_on_a_gpu(n, nb):
    host, cuda = (oc.plan(n, tile_size=nb, devices=device, memory_budget="2 GiB") for device in ("host:0", "cuda:0"))
    assert host.flops_executed == host.flops == cuda.flops
    assert host.flops <= cuda.flops_executed <= 6 * host.flops + 1  # TRSM of one block does six times what is counted
    assert f"{cuda.flops_executed:.4g} executed" in str(cuda)


def test_executed_flops_of_one_column_of_two_tiles_on_a_gpu():
    plan = oc.plan(2048, tile_size=1024, devices="cuda:0", memory_budget="2 GiB")
    syrk = 2 * 1024 * 1024 * 1024 * 9 // 16  # eight strips: 36 of 64 sub-blocks
    blocks = range(0, 1024, 64)  # updates by what is left of a block, and three products with blocks
    trsm = sum(2 * 1024 * 64 * (column + 3 * 64) for column in blocks)
    assert plan.flops_executed == 2 * (1024**3 // 3) + syrk + trsm


def test_the_plan_in_the_document_on_residues_is_what_is_printed():
    text = (Path(__file__).parents[2] / "docs/residues.md").read_text(encoding="utf-8")
    shown = re.search(r"```\n(Plan: .*?)```", text, re.DOTALL)[1].splitlines()
    page = str(planned(131072, devices="cuda:0", memory_budget="32 GiB", fp64="residue")).splitlines()
    assert shown == page[: len(shown)] and len(shown) == 2
