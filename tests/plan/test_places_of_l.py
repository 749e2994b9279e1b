"""Where L goes unless somebody says so: it stays on the GPUs that make it, where it is at most half of their budget."""

import numpy as np
import pytest

import ooc_chol as oc
from tests.inside.calls import Machine
from tests.inside.dense import mixed_local
from tests.inside.dense import request as requests
from tests.inside.memory import as_source
from tests.inside.precision import FORMATS, FP64, PrecisionMap
from tests.inside.tasks import TileGrid
from tests.plan.norms import norms_of

N = 20_000
MEMORY = oc.HostMemory()


def made_on(cuda: bool) -> object:
    def tile(rows, cols, out, stream):
        out[...] = 0.0

    return oc.from_function(N, tile, cuda=tile if cuda else None)


def in_file(folder):
    """A ``.npy`` file that takes no room."""
    np.lib.format.open_memmap(folder / "a.npy", mode="w+", dtype=np.float64, shape=(N, N))
    return folder / "a.npy"


#: Matrices as calls take them: made on GPUs or on the host, an array, a file, and an order alone.
SOURCES = {
    "made on GPUs": lambda folder: made_on(cuda=True),
    "made on the host": lambda folder: made_on(cuda=False),
    "array": lambda folder: np.broadcast_to(0.0, (N, N)),
    "file": in_file,
    "order": lambda folder: N,
}


def kept(budget="8 GiB", devices="cuda:0", a=None, **options):
    return oc.plan(made_on(cuda=True) if a is None else a, devices=devices, memory_budget=budget, tile_size=2048, **options)


@pytest.mark.parametrize("engine", ["native", "residue"])
@pytest.mark.parametrize("source", SOURCES)
def test_l_stays_where_it_is_made(engine, source, tmp_path):
    plan = kept(fp64=engine, a=SOURCES[source](tmp_path))
    assert plan.kept_bytes >= plan.stored_bytes > 8 * N**2 // 2
    assert plan.memory_budget == 8 << 30
    assert plan.peak_bytes <= plan.memory_budget - plan.kept_bytes
    assert plan.host_bytes == 0
    assert "stays on it" in str(plan) and plan.to_dict()["kept_bytes"] == plan.kept_bytes


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_rule_holds_for_any_number_of_gpus(count):
    """L is dealt, with a tenth for what is uneven, and stays up to half of the budget of each."""
    devices = [f"cuda:{number}" for number in range(count)]
    half = 2 * kept("32 GiB", devices).kept_bytes
    beside = 256 << 20
    assert half / 2 == pytest.approx((1 if count == 1 else 1.1) * 8 * N * (N + 4096) / 2 / count, rel=1e-4)
    plan, other = kept(half + beside, devices, a=N), kept(half + beside - 1, devices, a=N)
    assert plan.kept_bytes == half // 2 and plan.budget_bytes == half + beside - plan.kept_bytes
    assert other.kept_bytes == 0 and other.budget_bytes == half + beside - 1
    assert "stays on them" in str(plan) or count == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"budget": "3 GiB"},  # more than half
        {"devices": "host:0"},
        {"store": "host"},
        {"store": MEMORY},
        {"store": "l.ooc"},
        {"store": "./host"},
        {"store": "./device"},
        {"checkpoint": "l.ooc"},
        {"policy": "v1"},
        {"a": N, "overwrite": True},
        {"a": N, "store": "host"},
    ],
    ids=str,
)
def test_l_goes_elsewhere(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = kept(**asked)
    assert plan.kept_bytes == 0 and "kept_bytes" not in plan.to_dict() and "stays on" not in str(plan)
    assert plan.in_file == ("checkpoint" in asked or asked.get("store") in ("l.ooc", "./host", "./device"))


@pytest.mark.parametrize("asked", [{"budget": "3 GiB"}, {"policy": "v1"}, {"a": N, "budget": "3 GiB"}], ids=str)
def test_l_stays_where_that_is_asked_for(asked):
    assert kept(store="device", **asked).kept_bytes > 0


def test_one_tile_stays_too():
    """An order that is factored at once keeps L where A was copied to; the smallest ones no GPU makes unasked."""
    for n in (64, 512, 4096):
        plan = oc.plan(n, devices="cuda:0", memory_budget="4 GiB")
        assert plan.engine == "library" and plan.kept_bytes >= 8 * n**2 / 2
        assert oc.plan(n, devices="cuda:0", memory_budget="4 GiB", store="host").kept_bytes == 0
    assert oc.plan(64).devices == ("host:0",)


def test_copies_of_l_on_the_gpus_are_counted_as_such():
    """Tiles that stay there are written and fetched at the rate of a GPU's memory, for an order alone as for a matrix."""
    here, there = kept(a=N, fp64="native"), kept(a=N, fp64="native", store="host")
    assert kept(a=np.broadcast_to(0.0, (N, N)), fp64="native").rates == here.rates
    if there.rates is not None:
        assert here.rates.write > 10 * there.rates.write and here.rates.fetch > 10 * there.rates.fetch


def test_spare_memory_leaves_it_open():
    memory = oc.HostMemory(spare=True)
    assert kept(store=memory).kept_bytes > 0
    assert kept("3 GiB", store=memory).kept_bytes == 0


def test_host_memory_is_not_asked_for():
    assert kept(host_budget="1 MiB").kept_bytes > 0
    with pytest.raises(oc.BudgetError, match="host"):
        kept("3 GiB", host_budget="1 MiB")
    with pytest.raises(oc.BudgetError, match="host"):
        kept(host_budget="1 MiB", store="host")


@pytest.mark.parametrize("made_for", [None, "host", "l.ooc"])
def test_a_plan_decides_unless_the_call_does(made_for, tmp_path, monkeypatch):
    """A call with the plan of another place goes where the call says; one that says nothing, where the plan does."""
    monkeypatch.chdir(tmp_path)
    plan, a = kept(a=N, store=made_for), np.broadcast_to(0.0, (N, N))

    def taken(store):
        machine = Machine(plan.devices, "8 GiB", must_exist=False)
        request = requests.Request(a, as_source(a), oc.FactorOptions(), machine, store=store, plan=plan)
        return request.problem.keeps_on_device, request.plan.kept_bytes > 0, request.plan.in_file

    monkeypatch.setattr(requests, "resolve_devices", lambda devices: devices)
    assert taken(None) == (made_for is None, made_for is None, False)
    assert taken("host") == (False, False, False)
    assert taken(tmp_path / "l.ooc") == (False, False, True)
    assert taken("device") == (True, True, False)


@pytest.mark.parametrize(("narrow", "stays"), [("fp8", True), ("fp16", True), ("fp64", False)])
def test_formats_say_how_much_stays(narrow, stays):
    """Narrow tiles fit into half of a budget that an L in FP64 exceeds; rates are those of where it goes."""
    options = oc.FactorOptions(precision_threshold=1e-5, devices="cuda:0", memory_budget="3 GiB", tile_size=2048, fp64="residue")
    grid, source = TileGrid(N, 2048), as_source(made_on(cuda=True))
    request = requests.Request(source, source, options=options, machine=Machine("cuda:0", "3 GiB", must_exist=False))
    assert not request.problem.keeps_on_device
    formats = tuple(FORMATS["fp64" if i == j else narrow] for i, j in grid.tiles())
    norms = norms_of(grid, [grid.nb * 2.0 ** (j - i) for i, j in grid.tiles()])
    of_tiles = PrecisionMap(grid, 1e-5, "unit-roundoff", norms, formats, (FP64,) * grid.n_tiles, 6, 1e-5)
    plan = mixed_local.plan_here(request, options, of_tiles)
    assert (plan.kept_bytes > 0) == stays and plan.peak_bytes + plan.kept_bytes <= 3 << 30
    assert plan.kept_bytes == 0 or plan.kept_bytes >= of_tiles.total_bytes
    again = mixed_local.plan_here(request, options, of_tiles, keeps=not stays)  # as a run before did
    assert (again.kept_bytes > 0) != stays
