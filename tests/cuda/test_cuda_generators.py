"""Random graphs made on GPUs: the bytes of the host's."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.random_graphs import joined, same
from tests.inside.sparse import RowCounts, device_runs

pytestmark = pytest.mark.cuda

MAKERS = {"rmat": oc.testing.rmat, "urand": oc.testing.urand}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
@pytest.mark.parametrize("directed", [False, True])
def test_entries_are_the_hosts_from_one_range_and_from_seven(name, seed, directed):
    source = MAKERS[name](16, seed=seed, directed=directed, devices="host:0")
    wanted = joined(source.runs())
    for n_ranges in (1, 7):
        counts, most = RowCounts(), source.draw.n_drawn // n_ranges + source.draw.n_drawn % n_ranges
        runs = list(device_runs(source.draw, counts, ("cuda:0",), None, run_entries=most))
        assert len(runs) >= n_ranges
        assert same(joined(runs), wanted)
        assert counts == source.counts


@pytest.mark.parametrize("name", MAKERS)
def test_entries_of_scale_20_are_the_hosts(name):
    make = MAKERS[name]
    on_host, on_device = make(20, seed=7, devices="host:0"), make(20, seed=7, devices="cuda:0")
    assert same(joined(on_device.runs()), joined(on_host.runs()))
    assert on_device.counts == on_host.counts


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("directed", [False, True])
def test_vertices_are_numbered_by_degree_as_the_host_numbers_them(name, directed):
    # 2^18 vertices are four chunks of rows, to which they are dealt.
    on_host, on_device = (
        MAKERS[name](18, 4, seed=2, directed=directed, order="degree", devices=device) for device in ("host:0", "cuda:0")
    )
    assert same(joined(on_device.runs()), joined(on_host.runs()))
    assert on_device.counts == on_host.counts
    parts = oc.testing.rmat(16, seed=2, order="degree", devices="cuda:0", memory_budget="16 MiB")
    assert same(joined(parts.runs()), joined(oc.testing.rmat(16, seed=2, order="degree", devices="host:0").runs()))


def test_a_graph_is_packed_in_the_order_of_its_degrees():
    packed = [oc.block_csr(oc.testing.rmat(18, 4, devices=device), order="degree") for device in ("host:0", "cuda:0")]
    assert np.array_equal(packed[0].order, packed[1].order)
    assert all(np.array_equal(*pair) for pair in zip(*(matrix.parts(0)[:3] for matrix in packed), strict=True))
    x = np.random.default_rng(1).standard_normal((2**18, 3))
    with oc.block_csr(oc.testing.rmat(18, 4)) as plain:
        for precision in ("DDD", "FDF"):
            y, wanted = (oc.multiply(a, x, precision=precision, devices="cuda:0") for a in (packed[1], plain))
            assert np.allclose(y, wanted, rtol=1e-5 if precision == "FDF" else 1e-12, atol=1e-5 if precision == "FDF" else 1e-12)


@pytest.mark.parametrize("scale", [1, 2, 5, 11, 12, 13])
def test_small_graphs_are_the_hosts(scale):
    for make in MAKERS.values():
        on_device, on_host = make(scale, 3, devices="cuda:0"), make(scale, 3, devices="host:0")
        assert same(joined(on_device.runs()), joined(on_host.runs()))
    for quadrants in [(0.0, 1.0, 0.0), (1.0, 0.0, 0.0)]:  # one edge, none
        one = [oc.testing.rmat(scale, 3, *quadrants, devices=device) for device in ("cuda:0", "host:0")]
        assert same(*[joined(source.runs()) for source in one])
        assert one[0].counts == one[1].counts


def test_a_large_graph_is_made_on_a_gpu_unless_devices_are_named():
    assert oc.testing.rmat(20).devices == ("cuda:0",)
    assert oc.testing.rmat(16).devices == ("host:0",)


def test_a_run_stays_as_it_is_while_others_are_made():
    source = oc.testing.rmat(18, seed=1, devices="cuda:0", memory_budget="64 MiB")
    runs, copies = [], []
    for run in source.runs():
        runs.append(run)
        copies.append(run.columns.copy())
    assert len(runs) > 3
    assert all(np.array_equal(run.columns, copy) for run, copy in zip(runs, copies, strict=True))


@pytest.mark.alone
def test_memory_of_the_device_is_given_back():
    import cupy as cp

    with closing(oc.testing.urand(18, devices="cuda:0").runs()) as runs:
        next(runs)
    cp.cuda.Device(0).synchronize()
    before = cp.cuda.runtime.memGetInfo()[0]
    list(oc.testing.urand(20, devices="cuda:0").runs())
    assert cp.cuda.runtime.memGetInfo()[0] >= before - (32 << 20)


def test_a_budget_that_does_not_hold_a_bucket_says_what_would():
    with pytest.raises(oc.BudgetError, match="random graph on cuda:0") as caught:
        list(oc.testing.rmat(16, devices="cuda:0", memory_budget="64 KiB").runs())
    wanted = joined(oc.testing.rmat(16, devices="host:0").runs())
    assert same(joined(oc.testing.rmat(16, devices="cuda:0", memory_budget=caught.value.needed_bytes).runs()), wanted)


@pytest.mark.multigpu
def test_two_gpus_make_the_same_graph():
    two = oc.testing.rmat(18, seed=4, devices="cuda:0,cuda:1", memory_budget="64 MiB")
    assert same(joined(two.runs()), joined(oc.testing.rmat(18, seed=4, devices="host:0").runs()))
