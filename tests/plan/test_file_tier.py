"""Plans of an L in a file: what host memory keeps, what files and disks see, and what that makes of a plan."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ooc_chol as oc
from ooc_chol import FactorOptions, Plan
from tests.inside.dense import (
    FILE,
    Disk,
    DiskRates,
    Problem,
    Rates,
    chosen_tiles,
    fetch_counts,
    fresh_plan,
    make_plan,
    rate_by_rows,
    without_file_tier,
)
from tests.inside.ground import whole_pages
from tests.inside.kernels import CUDA
from tests.inside.tasks import FileLink, Link, StepKind
from tests.plan import golden

pytestmark = pytest.mark.plan

#: Host memory for L: none, for a part of the tiles that are fetched, and for all.
HOST_BUDGETS = (1, 1 << 20, 64 << 20)
GB = 10**9
#: By how much a prediction may be shorter than one of a slower disk: candidates that gain less than that are not looked at.
NEGLIGIBLE = 0.006


def with_disk(rate: float, rates: Rates = golden.RATES, **changes: object) -> Rates:
    """Rates of a disk that does so many bytes per second each way, and of a host memory that is as fast as the link."""
    memory = {"memory_fetch": rates.fetch, "memory_write": rates.write}
    return replace(rates, **memory, disk=DiskRates(rate, rate, folder="/data", **changes))


#: Engines and devices: options, and bytes of an entry of A.
CASES = {
    "native": (FactorOptions(tile_size=64, devices=("host:0",), memory_budget=20 * 32768, fp64="native"), None),
    "native, two devices": (
        FactorOptions(tile_size=64, devices=("host:0", "host:1"), memory_budget=20 * 32768, fp64="native"),
        None,
    ),
    "residue": (
        FactorOptions(tile_size=64, devices=("host:0",), memory_budget=3 << 20, fp64="residue", moduli=13),
        None,
    ),
    "mixed": (
        FactorOptions(tile_size=64, devices=("host:0",), memory_budget=24 * 32768, fp64="native"),
        golden.precision(),
    ),
    "cuda": (
        FactorOptions(tile_size=64, devices=("cuda:0",), memory_budget=CUDA.workspace_bytes(64) + 20 * 32768, fp64="native"),
        None,
    ),
}
ENGINES = pytest.mark.parametrize("name", CASES)


#: Two thirds of the order of the golden plans: as much out of core, in a third of the time.
N = 2 * golden.N // 3


@cache
def planned(name: str, host_budget: int | None = 1 << 20, rates: Rates | None = None, source: str = "array") -> Plan:
    """The plan of a case whose L goes to a file."""
    options, precision = CASES[name]
    problem = Problem(N if precision is None else golden.N, 8, source, precision=precision, in_file=True)
    return fresh_plan(problem, replace(options, host_budget=host_budget), lambda grid: rates)


# what is kept


@ENGINES
@pytest.mark.parametrize("host_budget", HOST_BUDGETS)
def test_host_memory_holds_what_is_planned_and_no_more(name, host_budget):
    if name in ("cuda", "mixed"):
        host_budget = max(host_budget, 2 * 32768)  # less would hold no tile on its way
    plan = planned(name, host_budget)
    kept = sum(whole_pages(plan.stored_tile_bytes(index)) for index in plan.host_tiles)
    assert (
        plan.host_tile_bytes == kept
        and plan.host_bytes == kept + plan.staging_bytes
        and kept + plan.staging_bytes <= max(plan.staging_bytes, host_budget)
    )
    assert plan.host_budget_bytes == host_budget


@ENGINES
def test_what_is_fetched_most_often_is_kept(name):
    plan = planned(name)
    counts = fetch_counts(plan.programs)
    size = {index: whole_pages(plan.stored_tile_bytes(index)) for index in plan.grid.tiles()}
    assert plan.host_tiles and plan.host_tiles <= counts.keys()
    for kept, other in itertools.product(plan.host_tiles, counts.keys() - plan.host_tiles):
        assert counts[kept] >= counts[other] or size[kept] < size[other], (kept, other)


def test_of_equals_the_lower_left_tiles_are_kept():
    counts = {(i, j): 1 for i in range(4) for j in range(i + 1)}
    assert chosen_tiles(counts, 3 * 4096, lambda index: 4000) == {(3, 0), (2, 0), (1, 0)}
    assert chosen_tiles({**counts, (3, 3): 2}, 2 * 4096, lambda index: 4000) == {(3, 3), (3, 0)}
    assert chosen_tiles(counts, 3 * 4096, lambda index: 4000, given=[(2, 0)]) == {(3, 0), (1, 0), (0, 0)}
    assert chosen_tiles(counts, 4095, lambda index: 4000) == frozenset()


@pytest.mark.parametrize("policy", ["sync", "async"])
def test_tiles_that_are_stored_before_they_are_final_are_not_kept(policy):
    options = replace(CASES["native"][0], policy=policy, host_budget=1 << 20)
    plan = fresh_plan(Problem(golden.N, 8, "array", in_file=True), options, lambda grid: None)
    assert plan.host_tiles == frozenset() and plan.file_bytes(FileLink.READ) == plan.link_bytes(Link.FETCH)


def test_tiles_that_an_earlier_run_kept_are_those_that_are_kept():
    options, _ = CASES["native"]
    problem = Problem(golden.N, 8, "array", in_file=True, host_tiles=frozenset({(5, 1)}), given=frozenset({(0, 0)}))
    assert fresh_plan(problem, options, lambda grid: None).host_tiles == {(5, 1)}


def test_a_plan_for_the_rest_of_a_run_keeps_no_tile_that_is_given():
    options, _ = CASES["native"]
    column = frozenset((i, 0) for i in range(golden.GRID.nt))
    problem = Problem(golden.N, 8, "array", in_file=True, given=column)
    kept = fresh_plan(problem, replace(options, host_budget=64 << 20), lambda grid: None).host_tiles
    assert kept and not kept & column


# bytes


@ENGINES
@pytest.mark.parametrize("source", ["array", FILE])
def test_files_see_what_host_memory_does_not_spare_them(name, source):
    plan = planned(name, source=source)
    steps = [step for program in plan.programs for step in program.steps]
    fetched = [step for step in steps if step.kind is StepKind.FETCH and step.version > 0 and step.tile not in plan.host_tiles]
    assert plan.file_bytes(FileLink.READ) == sum(step.nbytes for step in fetched) < plan.link_bytes(Link.FETCH)
    assert plan.file_bytes(FileLink.WRITE) == plan.link_bytes(Link.WRITE) == plan.stored_bytes
    assert plan.file_bytes(FileLink.SOURCE) == (plan.link_bytes(Link.SOURCE) if source == FILE else 0)
    figures = plan.to_dict()
    assert figures["file_bytes"] == {way.name.lower(): plan.file_bytes(way) for way in FileLink}
    assert (figures["host_tile_bytes"], figures["host_tiles"]) == (plan.host_tile_bytes, len(plan.host_tiles))


@ENGINES
def test_more_host_memory_never_reads_more(name):
    read = [planned(name, budget).file_bytes(FileLink.READ) for budget in (3 * 32768, 1 << 20, 64 << 20)]
    assert read == sorted(read, reverse=True) and read[-1] == 0


def test_a_plan_without_a_file_has_nothing_to_do_with_one():
    plan = fresh_plan(Problem(golden.N, 8, "array"), CASES["native"][0], lambda grid: golden.RATES)
    assert not any(plan.file_bytes(way) for way in FileLink) and plan.file_costs is None and not plan.host_tiles
    assert "  host  " not in str(plan) and "  file  " not in str(plan)
    assert golden.digest(replace(plan, in_file=False)) == golden.digest(plan)


def test_a_plan_can_be_taken_for_another_place_of_l():
    in_file = planned("cuda")
    in_memory = without_file_tier(in_file, in_file=False)
    assert not in_memory.in_file and not in_memory.host_tiles and in_memory.staging_bytes == 0
    again = without_file_tier(in_memory, in_file=True)
    assert again.in_file and not again.host_tiles and again.staging_bytes == in_file.staging_bytes > 0
    assert without_file_tier(in_file, in_file=True) is in_file


# seconds


@ENGINES
def test_a_slower_disk_never_predicts_fewer_seconds(name):
    seconds = [planned(name, rates=with_disk(rate)).seconds for rate in (1e11, 1e9, 1e8, 1e7)]
    for faster, slower in itertools.pairwise(seconds):
        assert slower >= (1 - NEGLIGIBLE) * faster
    plan = planned(name, rates=with_disk(1e7))
    moved = plan.file_bytes(FileLink.READ) + plan.file_bytes(FileLink.WRITE)
    assert plan.seconds == pytest.approx(moved / 1e7, rel=0.05), "a slow disk alone takes nearly all of it, and never rests"


@ENGINES
def test_host_memory_shortens_what_a_slow_disk_makes_long(name):
    seconds = [planned(name, budget, with_disk(1e8)).seconds for budget in (3 * 32768, 1 << 20, 64 << 20)]
    assert seconds[0] > seconds[1] > seconds[2]


def test_one_disk_serves_all_devices():
    one, two = (planned(name, 3 * 32768, with_disk(1e7)) for name in ("native", "native, two devices"))
    for plan in (one, two):
        moved = plan.file_bytes(FileLink.READ) + plan.file_bytes(FileLink.WRITE)
        assert plan.seconds >= moved / 1e7


def test_a_in_a_file_shares_the_disk_or_has_its_own():
    fast = planned("native", rates=with_disk(1e8), source=FILE)
    same = planned("native", rates=with_disk(1e8, source=1e8), source=FILE)
    apart = planned("native", rates=with_disk(1e8, source=1e8, is_one=False), source=FILE)
    assert fast.seconds <= apart.seconds < same.seconds
    assert same.seconds >= sum(same.file_bytes(way) for way in FileLink) / 1e8


def test_a_disk_that_reads_while_it_writes_is_sooner_done():
    one, duplex = (planned("native", rates=with_disk(1e8, together=together)) for together in (1.0, 0.5))
    ways = [plan.file_bytes(FileLink.READ) / 1e8 for plan in (one, duplex)] + [one.file_bytes(FileLink.WRITE) / 1e8]
    assert max(ways[1:]) <= duplex.seconds < one.seconds
    assert duplex.busy_seconds["file"] == pytest.approx(max(ways[1:])) and "at once" in str(duplex)


def test_without_a_measured_disk_the_rates_are_those_of_the_cache():
    plan, cached = (
        planned("native", 1, golden.RATES),
        fresh_plan(Problem(N, 8, "array"), CASES["native"][0], lambda grid: golden.RATES),
    )
    assert plan.seconds == pytest.approx(cached.seconds, rel=NEGLIGIBLE)
    kept = planned("native", 64 << 20, golden.RATES)
    assert kept.timeline.filed > 0 and kept.seconds >= kept.timeline.filed


@pytest.mark.parametrize(("slots", "narrow", "wide"), [(30, 2, 6), (40, 2, 7)])
def test_a_slow_file_is_read_in_wider_panels(slots, narrow, wide):
    options = replace(CASES["native"][0], memory_budget=slots * 32768, host_budget=1 << 20)
    problem = Problem(golden.N, 8, "array", in_file=True)
    fast, slow = (fresh_plan(problem, options, lambda grid, rate=rate: with_disk(rate)) for rate in (1e11, 1e9))
    assert [max(panel.width for panel in plan.panels) for plan in (fast, slow)] == [narrow, wide]
    assert slow.file_bytes(FileLink.READ) < fast.file_bytes(FileLink.READ)
    slow_in_narrow = replace(fast, rates=slow.rates)
    assert slow.seconds < slow_in_narrow.seconds, "what is chosen for a fast disk is worse on a slow one"


def test_a_slow_file_chooses_layouts_of_residues_that_read_less():
    options = replace(CASES["residue"][0], memory_budget=40 * 4 * 32768, host_budget=1 << 20)
    problem = Problem(golden.N, 8, "array", in_file=True)
    read = [
        fresh_plan(problem, options, lambda grid, rate=rate: with_disk(rate)).file_bytes(FileLink.READ)
        for rate in (1e11, 1e9, 3e8)
    ]
    assert read[0] > read[1] > read[2]


def test_each_part_of_the_way_is_told_with_its_seconds():
    plan = planned("cuda", 3 * 32768, with_disk(1e8))
    parts = plan.busy_seconds
    moved = plan.file_bytes(FileLink.READ) + plan.file_bytes(FileLink.WRITE)
    assert parts["file"] == pytest.approx(moved / 1e8)
    assert plan.seconds >= max(parts.values())
    loads = plan.link_bytes(Link.SOURCE) / golden.RATES.source + plan.link_bytes(Link.FETCH) / golden.RATES.fetch
    launches = sum(step.kind is StepKind.FETCH for step in plan.programs[0].steps) * golden.RATES.launch
    assert parts["into a device"] == pytest.approx(loads + launches)
    assert planned("cuda").busy_seconds == {}


REQUESTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=30)


@given(REQUESTS)
@settings(max_examples=60)
def test_a_disk_does_one_thing_at_a_time_and_never_rests_while_somebody_waits(requests):
    disk, free = Disk(), [True] * 1000
    for start, seconds in requests:
        left, at = seconds, start
        while left:  # moment by moment
            left -= free[at]
            free[at] = False
            at += 1
        assert disk.serve(float(start), float(seconds)) == at


@pytest.mark.parametrize("name", ["read", "write", "source", "together"])
@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_a_disk_without_a_rate_is_refused(name, rate):
    with pytest.raises(ValueError, match=f"rate {name} of the disk"):
        DiskRates(**{"read": 1.0, "write": 1.0, name: rate})


ROWS = ((4096, 0.2e9), (16384, 0.6e9), (32768, 0.9e9))


@pytest.mark.parametrize(("piece", "rate"), [*ROWS, (1024, 0.05e9), (1 << 40, 2e9), (0.5 * (4096 + 16384), 0.43e9)])
def test_the_rate_of_rows_is_that_of_their_length(piece, rate):
    assert rate_by_rows(ROWS, piece, 2e9) == pytest.approx(rate, rel=0.01)


@given(st.integers(1, 1 << 20))
def test_rows_are_never_read_faster_than_whole_tiles(piece):
    assert 0 < rate_by_rows(ROWS, piece, 0.7e9) <= 0.7e9


def test_reading_a_by_rows_is_told_and_predicted_by_a_rate_of_its_own():
    rates = with_disk(1e8, source=2e7, row_bytes=256)
    slow, fast = planned("cuda", 3 * 32768, rates, "file"), planned("cuda", 3 * 32768, with_disk(1e8, source=1e8), "file")
    of_l = slow.file_bytes(FileLink.READ) + slow.file_bytes(FileLink.WRITE)
    assert slow.busy_seconds["file"] == pytest.approx(of_l / 1e8 + slow.file_bytes(FileLink.SOURCE) / 2e7)
    assert slow.file_bytes(FileLink.SOURCE) == fast.file_bytes(FileLink.SOURCE) and slow.seconds > fast.seconds


# what is asked for and told


def test_host_memory_that_holds_no_tile_on_its_way_is_refused():
    with pytest.raises(oc.BudgetError, match="host_budget for tiles on their way between file and device") as caught:
        planned("cuda", 4096)
    error = caught.value
    assert error.needed_bytes == 2 * 32768 and error.budget_bytes == 4096 and "smaller tile_size" in str(error)
    assert planned("cuda", error.needed_bytes).staging_bytes == error.needed_bytes


def test_nothing_is_kept_on_the_host_unless_it_is_asked_for():
    plan = planned("native", None)
    assert not plan.host_tiles and plan.host_budget_bytes == 0 and plan.staging_bytes == 0


def test_a_gpu_has_half_of_what_is_free_for_l():
    plan = planned("cuda", None)
    assert plan.host_budget_bytes > 0 and plan.host_tiles == fetch_counts(plan.programs).keys()


def test_a_plan_of_three_tiers_on_a_page():
    plan = oc.plan(110_000, store="x", host_budget="8 GiB", memory_budget="20 GB", devices="cuda:0")
    page = str(plan)
    kept, read = plan.host_tile_bytes / 1e9, plan.file_bytes(FileLink.READ) / 1e9
    assert f"  host       {len(plan.host_tiles)} of {plan.grid.n_tiles} tiles of L are kept in host memory, {kept:.3g} GB" in page
    assert "host_budget 8.59 GB" in page and f"  file       {read:.3g} GB of L read, 50.2 GB of L written" in page
    assert plan.host_bytes <= 8 << 30 and plan.peak_bytes <= 20 * GB
    assert len(page.splitlines()) < 40


def test_a_page_says_where_the_seconds_of_files_come_from():
    measured, cached = (str(planned("native", rates=rates)) for rates in (with_disk(2e9), golden.RATES))
    assert "disk       2 GB/s read, 2 GB/s written, one after the other, measured in /data" in measured
    assert "not measured" in cached and "ooc-chol bench rates --folder DIR" in cached
    assert "busy       file " in measured and measured.count("longest") == 1


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ({"in_file": False}, {}),
        ({}, {"host_budget": 2 << 20}),
        ({}, {"host_budget": None}),
        ({"host_tiles": frozenset({(3, 1)})}, {}),
    ],
)
def test_plans_are_kept_by_what_their_files_ask(problem, options):
    of_case, _ = CASES["native"]
    one, asked = Problem(N, 8, "array", in_file=True), replace(of_case, host_budget=1 << 20)
    plan = make_plan(one, asked, lambda grid: golden.RATES)
    assert make_plan(one, asked, lambda grid: golden.RATES) is plan
    assert make_plan(replace(one, **problem), replace(asked, **options), lambda grid: golden.RATES) is not plan


def test_a_kept_plan_is_not_taken_for_another_disk():
    of_case, _ = CASES["native"]
    problem, options = Problem(N, 8, "array", in_file=True), replace(of_case, host_budget=1 << 20)
    plan = make_plan(problem, options, lambda grid: with_disk(1e9))
    assert make_plan(problem, options, lambda grid: with_disk(1e9)) is plan
    assert make_plan(problem, options, lambda grid: with_disk(2e9)) is not plan
