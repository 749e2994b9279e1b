"""The plan of a run on a cluster: flops and bytes counted by hand, seconds above every bound, blocks of sensible heights."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from ooc_chol.errors import BudgetError
from ooc_chol.toolbox import ClusterPlan
from tests.inside.cluster import (
    BlockCosts,
    BlockGrid,
    BlockOwners,
    BlockPlace,
    Case,
    ClusterRates,
    WorkerRates,
    candidate_heights,
    chain_urgency,
    column_seconds,
    column_urgency,
    part_bounds,
    plan_cluster,
    simulate,
)
from tests.inside.tasks import TileGrid

HOST = WorkerRates(64 << 30, flops_per_second=50e9, panel_flops_per_second=25e9)
GPU = WorkerRates(1 << 40, flops_per_second=1e14, panel_flops_per_second=3e13, link_bytes_per_second=5e10)


def case_of(n, nb, height, n_workers, *, worker=GPU, rates=None, columns=1, **options):
    blocks = BlockGrid(TileGrid(n, nb), height)
    owners = BlockOwners(blocks.n_blocks, n_workers // columns, columns)
    return Case(BlockCosts(blocks), owners, (worker,) * n_workers, rates or ClusterRates(25e9), **options)


@pytest.mark.parametrize(("n", "nb", "height"), [(1000, 16, 5), (96, 16, 2), (7, 16, 1), (100, 10, 100)])
def test_blocks_have_the_flops_and_the_bytes_of_the_whole(n, nb, height):
    grid = BlockGrid(TileGrid(n, nb), height)
    costs = BlockCosts(grid, itemsize=4)
    assert sum(map(costs.flops, grid.places())) == pytest.approx(n**3 / 3)
    assert sum(map(costs.nbytes, grid.places())) == 4 * sum(grid.tiles.entries(i, j) for i, j in grid.tiles.tiles())


def test_parts_of_a_sum_have_the_flops_of_the_block_and_double_in_length():
    costs, place = BlockCosts(BlockGrid(TileGrid(640, 16), 2)), BlockPlace(15, 14)
    bounds = part_bounds(place, reach=2)
    assert bounds == [0, 7, 11, 13, 14] and part_bounds(BlockPlace(16, 14), reach=2) == [0, 14]
    parts = [costs.part(place, first, stop) for first, stop in pairwise(bounds)]
    assert sum(part.product_flops + part.panel_flops for part in parts) == pytest.approx(costs.flops(place))


@pytest.mark.parametrize("urgency", [column_urgency, chain_urgency])
def test_the_chain_of_diagonal_blocks_comes_before_what_waits_for_nobody(urgency):
    for column in range(6):
        below = [BlockPlace(row, column) for row in range(column + 2, 9)]
        assert urgency(BlockPlace(column, column)) < urgency(BlockPlace(column + 1, column)) < min(map(urgency, below))


def test_bytes_between_two_workers_are_those_counted_by_hand():
    """Four block rows of one tile of order 2 are dealt 1, 0, 0, 1: rows 0 and 2 go to the other worker, row 1, too."""
    plan = ClusterPlan(case_of(8, 2, 1, 2))
    assert plan.owners == (1, 0, 0, 1)
    tile = 2 * 2 * 8
    assert plan.received_bytes == (1 * tile, (2 + 3) * tile)  # worker 0: L[0, 0]; worker 1: rows 1 and 2 up to the diagonal
    assert plan.n_tasks == 10
    assert plan.n_dependencies == sum(
        place.column + (place.row > place.column) * (place.column + 1) for place in plan.blocks.places()
    )


@pytest.mark.parametrize("n_workers", [1, 2, 3, 7])
@pytest.mark.parametrize("a_is_sent", [False, True])
def test_the_simulation_moves_the_bytes_that_are_counted(n_workers, a_is_sent):
    plan = ClusterPlan(case_of(250, 8, 3, n_workers, a_is_sent=a_is_sent))
    assert list(plan.received_bytes) == plan.outcome.received_bytes


def test_a_zarr_group_is_written_once_and_read_as_often_as_the_cache_forgets():
    grid = TileGrid(240, 8)
    stored = sum(8 * grid.entries(i, j) for i, j in grid.tiles())
    storage = ClusterRates(1e9, storage_bytes_per_second=1e9)
    ample, scarce = (
        simulate(case_of(240, 8, 3, 2, rates=storage, store="zarr", worker=replace(HOST, memory_bytes=memory)))
        for memory in (1 << 30, 3 * 24 * 24 * 8)
    )
    assert sum(ample.written_bytes) == sum(scarce.written_bytes) == stored
    assert sum(ample.read_bytes) < sum(scarce.read_bytes)
    assert max(scarce.peak_bytes) <= 3 * 24 * 24 * 8


@pytest.mark.parametrize("store", ["memory", "zarr"])
@pytest.mark.parametrize("order", ["columns", "chains"])
@pytest.mark.parametrize(("n", "n_workers", "height"), [(32_768, 2, 2), (65_536, 4, 2), (65_536, 16, 4), (32_768, 1, 16)])
def test_a_run_takes_no_less_than_any_bound(n, n_workers, height, store, order):
    rates = ClusterRates(5e9, storage_bytes_per_second=2e9)
    plan = ClusterPlan(case_of(n, 1024, height, n_workers, rates=rates, store=store, order=order))
    assert plan.outcome is not None and plan.bounds
    assert all(plan.seconds >= seconds * (1 - 1e-12) for seconds in plan.bounds.values())
    assert plan.outcome.n_tasks == plan.n_tasks
    assert max(plan.outcome.busy_seconds) <= plan.outcome.seconds * (1 + 1e-12)


@pytest.mark.parametrize("network", [5e9, 25e9, 1e12])
@pytest.mark.parametrize(("n", "n_workers", "height"), [(131_072, 2, 4), (131_072, 2, 8), (262_144, 4, 4), (262_144, 16, 4)])
def test_the_formula_for_columns_agrees_with_the_simulation(n, n_workers, height, network):
    case = case_of(n, 2048, height, n_workers, rates=ClusterRates(network))
    assert column_seconds(case) == pytest.approx(simulate(case).seconds, rel=0.05)


@pytest.mark.parametrize(("storage", "height"), [(5e9, 8), (25e9, 4), (1e12, 4)])
def test_the_formula_for_columns_agrees_with_the_simulation_of_a_zarr_group(storage, height):
    case = case_of(131_072, 2048, height, 2, rates=ClusterRates(25e9, storage_bytes_per_second=storage), store="zarr")
    assert column_seconds(case) == pytest.approx(simulate(case).seconds, rel=0.10)


def test_one_worker_takes_the_time_of_its_tasks_and_is_sent_nothing():
    plan = ClusterPlan(case_of(4096, 256, 4, 1))
    assert plan.network_bytes == 0
    assert plan.seconds == pytest.approx(plan.bounds["busiest worker"])


def test_panels_of_a_gpu_that_makes_all_of_l_run_beside_its_products():
    """But for the last; a host's threads make one thing after the other, and tasks of blocks are too short to hide theirs."""
    whole, blocks = case_of(98_304, 2048, 48, 1), case_of(98_304, 2048, 4, 1)
    cost = whole.costs.part(BlockPlace(0, 0), 0, 0)
    products, panels = cost.product_flops / GPU.flops_per_second, cost.panel_flops / GPU.panel_flops_per_second
    assert cost.seconds(GPU) == pytest.approx(products + panels / 48)
    assert cost.seconds(replace(GPU, panel_flops_per_second=1e11)) == pytest.approx(cost.panel_flops / 1e11)
    assert cost.seconds(HOST) == pytest.approx(cost.product_flops / 50e9 + cost.panel_flops / 25e9)
    assert ClusterPlan(whole).seconds == pytest.approx(cost.seconds(GPU) + whole.rates.overhead_seconds)
    assert blocks.costs.part(BlockPlace(3, 3), 0, 3).exposed == 1.0


def test_two_workers_are_kept_busy():
    plan = plan_cluster(TileGrid(32_768, 512), [HOST] * 2, ClusterRates(1e9))
    assert plan.efficiency >= 0.85
    assert 8 <= plan.blocks.n_blocks <= 64
    assert all(seconds >= plan.seconds * 0.98 for _, seconds in plan.others)


def test_dearer_tasks_are_larger_ones():
    cheap, dear = (
        plan_cluster(TileGrid(32_768, 512), [HOST] * 2, ClusterRates(1e9, overhead_seconds=seconds)) for seconds in (0.01, 1.0)
    )
    assert cheap.blocks.height < dear.blocks.height
    assert candidate_heights(1) == [1] and candidate_heights(10) == [1, 2, 3, 4, 6, 8, 10]
    assert min(candidate_heights(100_000)) >= 100_000 / 1024


def test_sums_in_parts_and_owners_on_a_grid_shorten_a_run_that_chains_and_the_network_limit():
    plain = simulate(case_of(524_288, 4096, 4, 16))
    in_parts = simulate(case_of(524_288, 4096, 4, 16, reach=1000))
    on_a_grid = simulate(case_of(524_288, 4096, 4, 16, reach=1000, columns=4))
    assert on_a_grid.seconds < in_parts.seconds < plain.seconds / 2
    assert max(on_a_grid.received_bytes) < max(in_parts.received_bytes) / 2


def test_a_grid_of_owners_has_each_block_once_and_counts_what_others_own():
    owners = BlockOwners(12, n_row_groups=3, n_columns=4)
    places = list(BlockGrid(TileGrid(12, 1), 1).places())
    assert set(Counter(map(owners.of, places))) == set(range(12)) and owners.n_workers == 12
    for worker in range(12):
        for first, stop in ((0, 0), (0, 9), (3, 8)):
            others = sum(owners.of(BlockPlace(11, column)) != worker for column in range(first, stop))
            assert owners.count_of_others(11, first, stop, worker) == others


def test_too_little_memory_names_the_workers_that_would_do():
    small = replace(HOST, memory_bytes=64 << 20)
    with pytest.raises(BudgetError, match=r"take (\d+) workers or more, or let L go to a Zarr group") as caught:
        plan_cluster(TileGrid(8192, 256), [small] * 2, ClusterRates(1e9))
    assert caught.value.budget_bytes == 64 << 20 < caught.value.needed_bytes
    enough = int(str(caught.value).split("take ")[1].split()[0])
    plan = plan_cluster(TileGrid(8192, 256), [small] * (enough + 2), ClusterRates(1e9))
    assert plan.peak_bytes <= 64 << 20
    storage = ClusterRates(1e9, storage_bytes_per_second=1e9)
    assert plan_cluster(TileGrid(8192, 256), [small] * 2, storage, store="zarr").peak_bytes <= 64 << 20
    with pytest.raises(BudgetError, match="give the workers more memory"):
        plan_cluster(TileGrid(8192, 256), [replace(HOST, memory_bytes=1 << 20)] * 2, ClusterRates(1e9))


def test_a_plan_without_rates_has_blocks_and_bytes_but_no_seconds():
    plan = plan_cluster(TileGrid(8192, 128), [WorkerRates(8 << 30)] * 2, ClusterRates(1e9))
    assert plan.seconds is None and plan.efficiency is None and plan.bounds == {}
    assert plan.blocks.n_blocks == 16 and plan.network_bytes > 0
    assert "unknown" in str(plan)


@pytest.mark.parametrize("store", ["memory", "zarr"])
def test_a_plan_is_a_page_and_its_name_a_line(store):
    rates = ClusterRates(1e9, storage_bytes_per_second=5e8)
    plan = plan_cluster(TileGrid(4096, 128), [HOST] * 2, rates, store=store)
    heads = [line.split()[0] for line in str(plan).splitlines()[1:]]
    storage = ["storage"] if store == "zarr" else []
    assert heads == ["blocks", "tasks", "L", "network", *storage, "memory", "rates", "seconds", "bounds", "others"]
    assert max(map(len, str(plan).splitlines())) < 200
    assert repr(plan).startswith("ClusterPlan(n=4096") and "\n" not in repr(plan)
    figures = plan.to_dict()
    assert figures["tasks"] == plan.n_tasks and figures["seconds"] == plan.seconds


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WorkerRates(0), "memory_bytes of a worker is 0, but must be positive"),
        (lambda: WorkerRates(1, flops_per_second=-1.0), "flops_per_second"),
        (lambda: ClusterRates(0.0), "network_bytes_per_second"),
        (lambda: ClusterRates(1.0, overhead_seconds=-1.0), "overhead_seconds"),
        (lambda: plan_cluster(TileGrid(8, 2), [], ClusterRates(1.0)), "has no workers"),
        (lambda: plan_cluster(TileGrid(8, 2), [HOST], ClusterRates(1.0), store="disk"), "'disk'"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_a_plan_needs_neither_dask_nor_zarr():
    program = "import sys; from tests.inside.cluster import plan; assert not {'dask', 'distributed', 'zarr'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0
