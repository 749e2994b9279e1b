"""Plans of bases on devices, which need not be there: the order in which a budget is given out, and what is too little."""

from __future__ import annotations

import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.inside.eigen import plan_space
from tests.inside.sparse import NO_DIAGONALS, Diagonals, assumed_blocks

N = 1 << 24
BLOCKS = assumed_blocks((N, N), 32 * N, "pattern")
FFF, FDF, DDD = oc.Precision


def planned(budget, *, precision=FDF, block=8, capacity=12, devices=("cuda:0",), diagonals=NO_DIAGONALS, **options):
    asked = {"precision": precision, "block": block, "capacity": capacity, "devices": devices, "diagonals": diagonals}
    return plan_space(BLOCKS, budget_bytes=tb.parse_bytes(budget, "budget"), **asked, **options)


def least(**options):
    with pytest.raises(oc.BudgetError) as told:
        planned(1, **options)
    return told.value.needed_bytes


def test_parts_are_what_they_are_made_of():
    (parts,) = planned("20 GiB").memory().values()
    assert parts["replica"] == parts["w"] == N * 8 * 4
    assert parts["basis"] == 12 * N * 8 * 4
    assert parts["kept"] == BLOCKS.nbytes and parts["ring"] == 0
    assert parts["sums"] < parts["basis"] / 100


@pytest.mark.parametrize("precision", oc.Precision)
@pytest.mark.parametrize("block", [1, 2, 4, 8])
def test_a_row_has_room_for_a_number_of_float64(precision, block):
    (parts,) = planned("40 GiB", precision=precision, block=block).memory().values()
    assert parts["replica"] == N * max(8, block * precision.storage.itemsize)


@pytest.mark.parametrize("devices", [("cuda:0",), ("cuda:0", "cuda:1")])
def test_the_budget_named_is_the_least_that_does(devices):
    options = {"devices": devices, "diagonals": Diagonals(left=True, right=True, shift=True)}
    enough = least(**options)
    plan = planned(enough, **options)
    assert plan.peak_bytes <= enough
    assert all(parts["ring"] >= 3 * BLOCKS.largest_bytes for parts in plan.memory().values())
    with pytest.raises(oc.BudgetError, match="a basis of 96 vectors"):
        planned(enough - 1, **options)


def test_the_basis_comes_before_blocks_that_are_kept():
    budget = least(capacity=16) + (1 << 20)
    kept = [planned(budget, capacity=capacity).products.shares[0].kept_bytes for capacity in (14, 15, 16)]
    assert kept[0] > kept[1] > kept[2]


def test_a_deeper_ring_comes_before_blocks_that_are_kept():
    budget = least(ring_slots=8)
    deep, usual = planned(budget, ring_slots=8), planned(budget)
    assert deep.products.shares[0].ring_slots == 8
    assert deep.products.shares[0].kept_bytes < usual.products.shares[0].kept_bytes


def test_passes_move_what_is_not_kept():
    plan = planned(least() + (500 << 20))
    (share,) = plan.products.shares
    assert 0 < share.n_kept < len(share.blocks)
    assert plan.executed_bytes(45) == 45 * (BLOCKS.nbytes - share.kept_bytes) + share.kept_bytes
    assert "capacity=12" in repr(plan)


def test_a_matrix_that_is_not_square_is_refused():
    blocks = assumed_blocks((1000, 2000), 5000, "pattern")
    with pytest.raises(ValueError, match="1000 x 2000"):
        plan_space(blocks, precision=DDD, block=1, capacity=2, devices=("cuda:0",), budget_bytes=1 << 30, diagonals=NO_DIAGONALS)
