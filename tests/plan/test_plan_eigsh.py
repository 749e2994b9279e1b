"""Plans of eigensolvers: blocks, bases, budgets, rings and pages, from facts alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.rates import PassRates
from tests.inside.eigen import PASSES_OF_BLOCK, EigshProblem, Sizes, kept_panels, pass_seconds, planned_eigsh
from tests.inside.sparse import RING_SLOTS, assumed_blocks

pytestmark = pytest.mark.plan

SCALE_27 = ((1 << 27, 1 << 27), 1 << 32, "pattern")
SMALL = ((1 << 18, 1 << 18), 1 << 22, "pattern")
#: About those of an H200.
RATES = PassRates(link=5.5e10, memory=2.0e12, gathers=3.5e10, single_gathers=4.7e10, launch=5e-5)


def on_gpu(facts=SCALE_27, k=24, *, rates=None, budget="16 GiB", precision="FDF", devices=("cuda:0",), which="LM", **options):
    problem = EigshProblem(
        assumed_blocks(*facts), oc.Precision(precision), devices, tb.parse_bytes(budget, "budget"), rates=rates
    )
    return planned_eigsh(problem, k, which, **options)


# what the issue counts


def test_16_gib_hold_24_single_vectors_of_scale_27():
    plan = oc.plan_eigsh(SCALE_27, 8, precision="FDF", devices="cuda:0", memory_budget="16 GiB")
    assert (plan.block, plan.ncv) == (1, 25)
    memory = plan.space.memory()["cuda:0"]
    assert memory["ring"] >= RING_SLOTS * 250e6 and memory["kept"] < 300e6
    assert plan.peak_bytes <= 16 << 30


def test_32_gib_hold_56_columns_for_24_pairs_of_scale_27():
    plan = oc.plan_eigsh(SCALE_27, 24, precision="FDF", devices="cuda:0", memory_budget="32 GiB")
    assert plan.ncv >= 56 and plan.block <= 2


def test_a_gpu_in_core_takes_blocks_of_8_and_96_columns_more():
    plan = oc.plan_eigsh(SCALE_27, 24, precision="FDF", devices="cuda:0", memory_budget="130 GiB")
    assert (plan.block, plan.ncv, plan.method) == (8, 120, "lanczos")
    assert plan.link_bytes(1) == plan.link_bytes(50)  # all of A stays


def test_blocks_are_as_wide_as_they_may_be_without_rates(tmp_path, monkeypatch):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))
    plan = oc.plan_eigsh(SMALL, 24, devices="host:0", memory_budget="4 GiB")
    assert (plan.block, plan.ncv) == (8, 120)
    assert not plan.link_bytes(7) and plan.seconds is None


def test_what_a_file_holds_is_streamed_in_blocks_of_8():
    problem = EigshProblem(assumed_blocks(*SMALL), oc.Precision.DDD, ("host:0",), 1 << 30, tier="file")
    assert planned_eigsh(problem, 24, "LM").block == 8


# the choice


@pytest.mark.parametrize("ncv", [40, 47, 48, 59, 60, 71, 72, 120])
def test_wide_blocks_need_twelve_panels_beside_the_wanted_columns(ncv):
    plan = on_gpu(budget="130 GiB", ncv=ncv)
    widest = max(block for block in (1, 2, 4, 8) if block == 1 or 12 * block <= -(-ncv // block) * block - 24)
    assert plan.block == widest
    assert ncv <= plan.ncv < ncv + plan.block


def test_the_fastest_block_is_taken_by_predicted_seconds():
    """One rate at a time is what counts; each makes another block the fastest."""
    gathering = PassRates(link=1e15, memory=1e15, gathers=1e6, single_gathers=1e15, launch=1e-12)
    reading = PassRates(link=1e15, memory=1e9, gathers=1e15, single_gathers=1e15, launch=1e-12)
    for rates in (gathering, reading, RATES):
        plan = on_gpu(budget="130 GiB", rates=rates)
        costs = {each.block: each.cost for each in (plan.choice, *plan.others)}
        assert set(costs) == {1, 2, 4, 8}
        assert plan.block == min(costs, key=costs.get)
        assert costs[plan.block] == pytest.approx(PASSES_OF_BLOCK[plan.block] * plan.seconds)
    assert on_gpu(budget="130 GiB", rates=gathering).block == 1  # single numbers are gathered for nothing
    assert on_gpu(budget="130 GiB", rates=RATES).block == 8


def test_streaming_takes_wide_blocks_where_the_basis_has_room_for_them():
    plan = on_gpu(budget="100 GiB", rates=RATES, ncv=120)
    assert plan.block == 8 and plan.seconds is not None


def test_what_the_user_gives_is_taken():
    plan = on_gpu(budget="130 GiB", block=2, ncv=51)
    assert (plan.block, plan.ncv, plan.others) == (2, 52, ())


# memory


def test_the_link_works_while_vectors_are_orthogonalized():
    """Slow memory makes orthogonalization long: the ring holds what the link brings meanwhile."""
    slow = PassRates(link=5.5e10, memory=8e11, gathers=3.5e11, single_gathers=4.7e11, launch=5e-6)
    plan = on_gpu(budget="40 GiB", rates=slow, ncv=56, block=2)
    share = plan.space.products.shares[0]
    seconds = plan.choice.seconds
    assert share.ring_slots > RING_SLOTS
    assert share.ring_bytes >= seconds.orthogonalization * slow.link
    assert seconds.overlap == pytest.approx(min(seconds.orthogonalization, seconds.link))
    assert plan.seconds == pytest.approx(max(seconds.link, seconds.product + seconds.orthogonalization))
    assert plan.peak_bytes <= 40 << 30
    shallow = replace(plan.problem, rates=None).space(Sizes(2, 28), 20)
    assert shallow.products.shares[0].ring_slots == RING_SLOTS


def test_a_ring_is_no_deeper_than_memory_holds():
    slow = PassRates(link=5.5e12, memory=2e9, gathers=3.5e11, single_gathers=4.7e11, launch=5e-6)
    slots = []
    for budget in (34, 36, 40):
        plan = on_gpu(budget=f"{budget} GiB", rates=slow, ncv=56, block=1)
        assert plan.peak_bytes <= budget << 30 and plan.ncv == 56
        slots.append(plan.space.products.shares[0].ring_slots)
    assert RING_SLOTS <= slots[0] < slots[1] < slots[2]


@pytest.mark.parametrize("ncv", [None, 33, 120])
def test_the_budget_that_an_error_tells_is_the_least(ncv):
    with pytest.raises(oc.BudgetError) as told:
        on_gpu(budget=1 << 30, ncv=ncv, block=1)
    needed = told.value.needed_bytes
    plan = on_gpu(budget=needed, ncv=ncv, block=1)
    assert plan.ncv == (28 if ncv is None else ncv) and plan.peak_bytes <= needed
    with pytest.raises(oc.BudgetError):
        on_gpu(budget=needed - 1, ncv=ncv, block=1)


def test_an_error_tells_the_ncv_that_would_fit():
    with pytest.raises(oc.BudgetError, match=r"a basis of 120 vectors on cuda:0: .*ncv=(\d+), which fits") as told:
        on_gpu(budget="32 GiB", ncv=120, block=1)
    held = int(str(told.value).split("ncv=")[1].split(",")[0])
    assert on_gpu(budget="32 GiB", ncv=held, block=1).ncv == held
    with pytest.raises(oc.BudgetError):
        on_gpu(budget="32 GiB", ncv=held + 1, block=1)
    with pytest.raises(oc.BudgetError, match="not even ncv=28, the least"):
        on_gpu(budget="4 GiB")


def test_devices_share_the_basis():
    one, two = on_gpu(budget="40 GiB", ncv=56, block=2), on_gpu(budget="40 GiB", ncv=56, block=2, devices=("cuda:0", "cuda:1"))
    memory = two.space.memory()
    assert sum(each["basis"] for each in memory.values()) == one.space.memory()["cuda:0"]["basis"]
    assert memory["cuda:0"]["replica"] == memory["cuda:1"]["replica"] == one.space.memory()["cuda:0"]["replica"]
    assert two.exchanged_bytes == (1 << 27) * 2 * 4 and one.exchanged_bytes == 0
    assert set(two.link_bytes(1)) == {"memory->cuda:0", "memory->cuda:1"}


def test_bytes_of_passes_are_all_but_what_is_kept():
    plan = on_gpu(budget="40 GiB", ncv=40, block=1)
    share = plan.space.products.shares[0]
    assert share.kept_bytes > 0
    for passes in (1, 2, 45):
        expected = passes * (share.stored_bytes - share.kept_bytes) + share.kept_bytes
        assert plan.link_bytes(passes) == {"memory->cuda:0": expected}


# sizes


def test_a_restart_keeps_half_of_what_is_not_wanted_and_leaves_room():
    assert kept_panels(24, Sizes(8, 15)) * 8 == 72
    assert kept_panels(8, Sizes(1, 24)) == 16
    for k in (1, 3, 24):
        for block in (1, 2, 4, 8):
            for panels in range(-(-k // block) + 4, 40):
                assert -(-k // block) <= kept_panels(k, Sizes(block, panels)) < panels


def test_small_matrices_are_dense_problems():
    plan = oc.plan_eigsh(((100, 100), 400, "fp64"), 6, devices="host:0", memory_budget="1 GiB")
    assert (plan.method, plan.ncv, plan.choice) == ("dense", 100, None)
    assert "LAPACK" in str(plan) and plan.link_bytes(3) == {}
    with pytest.raises(ValueError, match="order 100 is solved as a dense one"):
        plan.space  # noqa: B018 - it raises


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"k": 0}, "k is 0"),
        ({"k": (1 << 18) + 1}, "ask for 1 to"),
        ({"which": "SM", "null": [1.0] * (1 << 18)}, "by the inverse"),
        ({"ncv": 27}, "at least 28"),
        ({"block": 3}, "1, 2, 4 or 8"),
        ({"A": ((10, 20), 30, "fp64")}, "only square"),
        ({"precision": "DFD"}, "'DDD'"),
    ],
)
def test_what_makes_no_sense_is_refused(change, said):
    options = {"A": SMALL, "k": 24, "devices": "host:0", "memory_budget": "4 GiB"} | change
    with pytest.raises(ValueError, match=said):
        oc.plan_eigsh(options.pop("A"), options.pop("k"), **options)


def test_what_is_no_matrix_is_refused():
    with pytest.raises(TypeError, match=r"oc\.block_csr"):
        oc.plan_eigsh([1.0], 1)


# pages


def test_a_plan_is_a_page_and_plain_data():
    plan = on_gpu(budget="40 GiB", rates=RATES)
    page = str(plan)
    for words in (
        "24 eigenpairs (LM)",
        "block Lanczos",
        "replica",
        "ring",
        "basis",
        "memory->cuda:0",
        "by measured rates",
        "unknown",
    ):
        assert words in page, words
    assert len(page.splitlines()) < 20
    told = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert told["ncv"] == plan.ncv and told["bytes"] == plan.link_bytes(1)
    assert sum(told["memory"]["cuda:0"].values()) <= told["peak_bytes"] + 4096
    unknown = str(on_gpu(budget="40 GiB"))
    assert "of a pass unknown" in unknown and "bench rates --passes" in unknown


def test_predictions_follow_the_bytes():
    space = on_gpu(budget="40 GiB", rates=RATES, ncv=40, block=1).space
    seconds = pass_seconds(space, 20)
    share = space.products.shares[0]
    assert seconds.link == pytest.approx((share.stored_bytes - share.kept_bytes) / RATES.link)
    assert seconds.total >= seconds.link


@pytest.mark.parametrize("facts", [(5, 5), ((5, 5), 3), ((5,), 3, "pattern"), ((5, 5), 3, 7)])
def test_facts_that_are_none_say_what_they_are(facts):
    with pytest.raises(TypeError, match=r"give \(\(rows, columns\), entries, kind\)"):
        oc.plan_eigsh(facts, 2, devices="host:0")
