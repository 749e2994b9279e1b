"""Plans of products: budgets, bytes, panels and pages, from facts alone."""

from __future__ import annotations

import time

import pytest

import ooc_chol as oc
from ooc_chol.rates import PassRates
from tests.inside.sparse import RING_SLOTS, Diagonals, assumed_blocks, panel_groups, panel_widths, plan_products
from tests.inside.tasks import CHUNK_ROWS, RowBlock, RowBlocks, ValueKind

pytestmark = pytest.mark.plan

N = 40 * CHUNK_ROWS
DDD, FDF = oc.Precision.DDD, oc.Precision.FDF


def even_blocks(count=40, entries=1_000_000, kind=ValueKind.PATTERN, shape=(N, N)):
    """So many blocks of one chunk each."""
    rows, offset, blocks = CHUNK_ROWS, 0, []
    for number in range(count):
        blocks.append(RowBlock(number * rows, rows, entries + number, 500, 3, kind, 1.0, offset))
        offset += blocks[-1].nbytes
    return RowBlocks(shape, tuple(blocks))


def planned(blocks, columns=1, precision=DDD, *, devices=("cuda:0",), budget=1 << 40, **others):
    others.setdefault("workspace", lambda room, threads: 1000 * room)
    return plan_products(blocks, columns, precision, devices=devices, budget_bytes=budget, **others)


def least(*arguments, **others):
    with pytest.raises(oc.BudgetError) as told:
        planned(*arguments, budget=1, **others)
    return told.value.needed_bytes


@pytest.mark.parametrize("tier", ["memory", "file"])
@pytest.mark.parametrize("threads", [1, 2, 16])
def test_fewer_threads_are_planned_where_the_budget_asks_for_it(threads, tier):
    """What is needed at least is what one thread needs, and no more is taken than there is."""
    given = {"devices": ("host:0",), "threads": threads, "tier": tier, "workspace": lambda room, count: 10_000_000 * count}
    blocks = even_blocks()
    needed = least(blocks, **given)
    assert needed == least(blocks, **{**given, "threads": 1})
    for spare in (0, 9_999_999, 10_000_000, 35_000_000, 1 << 34):
        plan = planned(blocks, budget=needed + spare, **given)
        assert plan.threads == min(threads, 1 + spare // 10_000_000)
        assert plan.peak_bytes <= plan.budget_bytes
    with pytest.raises(oc.BudgetError):
        planned(blocks, budget=needed - 1, **given)


def test_scale_27_is_planned_as_the_issue_counts_it():
    facts = ((1 << 27, 1 << 27), 1 << 32, "pattern")
    for budget, columns, most_streamed in (("8 GiB", 1, 11.7e9), ("16 GiB", 8, 10.6e9), ("4 GiB", 1, 16.1e9)):
        plan = oc.plan_multiply(facts, columns, precision="FDF", devices="cuda:0", memory_budget=budget)
        assert 17.6e9 < plan.first_bytes < 17.9e9
        assert plan.later_bytes <= most_streamed
        assert plan.peak_bytes <= plan.budget_bytes


@pytest.mark.parametrize("diagonals", [Diagonals(), Diagonals(left=True, right=True, shift=True)])
@pytest.mark.parametrize("columns", [1, 8, 20])
def test_the_budget_that_an_error_tells_is_the_least(columns, diagonals):
    blocks = even_blocks()
    needed = least(blocks, columns, diagonals=diagonals)
    plan = planned(blocks, columns, budget=needed, diagonals=diagonals)
    assert plan.peak_bytes <= needed
    assert plan.shares[0].ring_slots == RING_SLOTS
    with pytest.raises(oc.BudgetError, match=f"{needed} are needed"):
        planned(blocks, columns, budget=needed - 1, diagonals=diagonals)


@pytest.mark.parametrize("extra", [0, 1 << 20, 9 << 20, 50 << 20, 1 << 30])
def test_first_pass_brings_all_and_later_ones_all_but_the_kept(extra):
    blocks = even_blocks()
    plan = planned(blocks, budget=least(blocks) + extra)
    (share,) = plan.shares
    kept = sum(block.nbytes for block in blocks.blocks[: share.n_kept])
    assert plan.first_bytes == blocks.nbytes
    assert plan.later_bytes == blocks.nbytes - kept
    assert plan.copied_bytes(5) == blocks.nbytes + 4 * (blocks.nbytes - kept)
    assert share.n_kept == len(blocks.blocks) or plan.budget_bytes - plan.peak_bytes < blocks.largest_bytes + 4096
    assert plan.peak_bytes <= plan.budget_bytes


def test_more_budget_never_moves_more():
    blocks = even_blocks()
    needed = least(blocks)
    moved = [planned(blocks, budget=needed + extra).later_bytes for extra in range(0, 200 << 20, 3 << 20)]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] == 0


def test_host_devices_read_memory_in_place_and_stream_files():
    blocks = even_blocks()
    in_place = planned(blocks, devices=("host:0", "host:1"))
    assert in_place.first_bytes == 0
    assert not in_place.link_bytes()
    assert in_place.peak_bytes == in_place.shares[0].vector_bytes + in_place.shares[0].workspace_bytes
    from_file = planned(blocks, devices=("host:0",), tier="file")
    assert from_file.link_bytes() == {"file->host:0": blocks.nbytes}


def test_devices_own_whole_chunks_and_exchange_their_rows():
    plan = planned(even_blocks(), columns=4, devices=("cuda:0", "cuda:1", "cuda:2"))
    assert [share.rows.start % CHUNK_ROWS for share in plan.shares] == [0, 0, 0]
    assert [row for share in plan.shares for row in share.rows[:: CHUNK_ROWS // 2]] == list(range(0, N, CHUNK_ROWS // 2))
    assert plan.exchanged_bytes == 2 * N * 4 * 8
    counts = [share.n_entries for share in plan.shares]
    assert max(counts) < 1.1 * min(counts)


def test_a_device_without_rows_takes_no_part():
    plan = planned(even_blocks(count=2, shape=(2 * CHUNK_ROWS, 100)), devices=("cuda:0", "cuda:1", "cuda:2"))
    assert len(plan.shares) == 2


def test_panels_follow_from_the_columns_alone():
    for columns in range(1, 70):
        widths = panel_widths(columns)
        assert columns <= sum(widths) <= columns * 4 / 3
        assert list(widths) == sorted(widths, reverse=True)
    assert panel_widths(7) == (8,)
    assert panel_widths(5) == (4, 1)


def test_millions_of_columns_are_planned_in_seconds():
    begun = time.process_time()
    plan = oc.plan_multiply(((10, 10), 5, "fp64"), 1_000_000, devices="cuda:0", memory_budget="60 MB")
    assert plan.scans == len(plan.groups) and plan.scans > 1 and plan.peak_bytes <= 60_000_000
    assert time.process_time() - begun < 5


def test_columns_that_do_not_fit_together_take_several_scans():
    blocks = even_blocks()
    needed = least(blocks, 40)
    plan = planned(blocks, 40, budget=needed)
    assert plan.panels == (8,) * 5
    assert plan.scans == 5
    assert plan.first_bytes == plan.copied_bytes(1) == 5 * blocks.nbytes - 4 * plan.shares[0].kept_bytes
    room = planned(blocks, 40, budget=needed + 3 * 2 * N * 8 * 8)
    assert room.scans == 2
    assert panel_groups(room.panels, room.room) == room.groups
    assert planned(blocks, 40).scans == 1


def test_seconds_are_the_longer_of_link_and_device():
    blocks = even_blocks()
    fast_link = PassRates(link=1e15, memory=1e12, gathers=1e9, single_gathers=1e10, launch=1e-6)
    slow_link = PassRates(link=1e9, memory=1e15, gathers=1e15, single_gathers=1e15, launch=1e-9)
    budget = least(blocks)
    assert planned(blocks, budget=budget).seconds is None
    by_link = planned(blocks, budget=budget, rates=slow_link)
    assert by_link.seconds == pytest.approx(by_link.later_bytes / 1e9)
    by_gathers = planned(blocks, 8, FDF, budget=least(blocks, 8, FDF), rates=fast_link)
    assert by_gathers.seconds == pytest.approx(blocks.n_entries / 1e9 + 40e-6)


def test_the_page_tells_what_is_planned():
    blocks = even_blocks()
    page = str(planned(blocks, 12, FDF, budget=least(blocks, 12, FDF) + (64 << 20)))
    for word in (
        "40 pattern",
        "cuda:0",
        "ring 3 x",
        "blocks kept",
        "panels: 1 of 8, 1 of 4",
        "memory->cuda:0",
        "unknown",
        "bench rates --passes",
    ):
        assert word in page
    assert len(page.splitlines()) < 15


def test_assumed_blocks_hold_all_rows_and_entries():
    for shape, entries in (
        ((1 << 27, 1 << 27), 1 << 32),
        ((1000, 7), 7000),
        ((1, 5), 0),
        ((300_000, 10), 123_457),
        ((70_000, 1 << 20), 1 << 33),
    ):
        blocks = assumed_blocks(shape, entries, "fp64")
        assert blocks.n_entries == entries
        rows = [row for block in blocks.blocks for row in (block.rows.start, block.rows.stop)]
        assert rows[0] == 0
        assert rows[-1] == shape[0]
        assert rows[1:-1:2] == rows[2::2]
        assert all(block.n_entries < 2**31 for block in blocks.blocks)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((((5, 5), 3, "pattern"), 0), {}, "columns is 0"),
        ((((5, 5), 26, "pattern"), 1), {}, "no 5 x 5 matrix with 26"),
        ((((5, 5), 3, "int16"), 1), {}, "kind is 'int16'"),
        ((((5, 2**31), 3, "int8"), 1), {}, "at most 2147483647"),
        ((((5, 5), 3, "fp64"), 1), {"precision": "DFD"}, "precision is 'DFD'"),
        ((((5, 5), 3, "fp64"), 1), {"devices": "tpu:0"}, "no device"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        oc.plan_multiply(*arguments, **({"devices": "host:0", "memory_budget": "1 GiB"} | options))


@pytest.mark.parametrize("facts", [(5, 5), (5, 5, "int8"), ((5, 5), 3), ((5, 5, 5), 3, "int8"), ((5, 5), 3, ["int8"])])
def test_facts_that_are_none_are_refused(facts):
    with pytest.raises(TypeError, match="entries, kind"):
        oc.plan_multiply(facts, 1, devices="host:0", memory_budget="1 GiB")
