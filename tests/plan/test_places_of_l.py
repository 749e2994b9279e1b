"""Where L goes unless somebody says so: on the GPUs, where A is made there and L is at most half of the budget."""

import pytest

import ooc_chol as oc


def made_on(cuda: bool) -> object:
    def tile(rows, cols, out, stream):
        out[...] = 0.0

    return oc.from_function(20_000, tile, cuda=tile if cuda else None)


def kept(budget="8 GiB", devices="cuda:0", cuda=True, **options):
    return oc.plan(made_on(cuda), devices=devices, memory_budget=budget, tile_size=2048, **options)


@pytest.mark.parametrize("engine", ["native", "residue"])
def test_l_stays_where_a_is_made(engine):
    plan = kept(fp64=engine)
    assert plan.kept_bytes >= plan.stored_bytes > 8 * 20_000**2 // 2
    assert plan.memory_budget == 8 << 30
    assert plan.peak_bytes <= plan.memory_budget - plan.kept_bytes
    assert "stays on it" in str(plan) and plan.to_dict()["kept_bytes"] == plan.kept_bytes


@pytest.mark.parametrize(
    "asked",
    [
        {"budget": "3 GiB"},  # more than half
        {"cuda": False},
        {"devices": "host:0"},
        {"store": oc.HostMemory()},
        {"store": "l.ooc"},
        {"policy": "v1"},
    ],
    ids=str,
)
def test_l_goes_elsewhere(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = kept(**asked)
    assert plan.kept_bytes == 0 and "kept_bytes" not in plan.to_dict() and "stays on" not in str(plan)


def test_spare_memory_leaves_it_open():
    memory = oc.HostMemory(spare=True)
    assert kept(store=memory).kept_bytes > 0
    assert kept("3 GiB", store=memory).kept_bytes == 0


def test_two_gpus_share_it():
    one, two = kept(), kept(devices="cuda:0,cuda:1")
    assert 0.5 * one.kept_bytes < two.kept_bytes < 0.6 * one.kept_bytes
    assert "stays on them" in str(two)


def test_host_memory_is_not_asked_for():
    assert kept(host_budget="1 MiB").kept_bytes > 0
    with pytest.raises(oc.BudgetError, match="host"):
        kept("3 GiB", host_budget="1 MiB")
