"""How rates are measured: timers, solved products, links both ways, several devices at once."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.rates import kernels, links, opened, residues, together
from ooc_chol.dense.rates.timing import IdleTimer, LoadedTimer
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.kinds import CudaKind
from ooc_chol.hardware.registry import CUDA
from ooc_chol.kernels.registry import CUDA as CUDA_KERNELS
from tests.builders import host_device, open_device

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

KERNELS = {"potrf", "invert", "trsm", "syrk", "gemm", "generate", "launch"}
FLOAT32 = {"trsm_float32", "gemm_float32"}
LINKS = {"array", "file", "memory-read", "memory-write", "file-read", "file-write"}


@pytest.fixture
def stream():
    device = host_device()
    yield device.create_stream("test")
    device.close()


def sleeper(stream, seconds, name, calls):
    """A call that enqueues some seconds of sleep, and notes its name when it runs."""

    def run():
        time.sleep(seconds)
        calls.append(name)

    return lambda: stream.enqueue(run)


# timers


@pytest.mark.parametrize("kind", [IdleTimer, LoadedTimer])
def test_a_call_is_measured_without_load_and_preparation(stream, kind):
    calls = []
    timer = kind(stream, 0.1)
    timer.put_under_load(sleeper(stream, 0.02, "load", calls), 0.02)
    seconds = timer.seconds_each(sleeper(stream, 0.005, "call", calls), sleeper(stream, 0.02, "before", calls))
    assert 0.005 <= seconds < 0.015
    assert calls.count("call") == calls.count("before") >= 4


def test_load_and_calls_alternate_as_long_each(stream):
    calls = []
    timer = LoadedTimer(stream, 0.1)
    timer.put_under_load(sleeper(stream, 0.006, "load", calls))
    timer.seconds_each(sleeper(stream, 0.003, "call", calls))
    # Every round: one load and two calls, give or take the sleep's precision.
    rounds = "".join(name[0] for name in calls).rstrip("c").split("l")
    assert {len(part) for part in rounds[-6:-1]} <= {1, 2, 3}
    assert calls[-1] == "call"
    stream.synchronize()
    calls.clear()
    timer.put_under_load(sleeper(stream, 0.002, "load", calls))
    timer.seconds_each(sleeper(stream, 0.009, "call", calls))
    assert 3 <= calls[-12:].count("load") / calls[-12:].count("call") <= 6


def test_the_device_is_kept_busy_before_each_figure(stream):
    timer, calls = LoadedTimer(stream, 0.01), []
    timer.put_under_load(sleeper(stream, 0.005, "load", calls), 0.1)
    assert calls.count("load") >= 10, "the first load"
    calls.clear()
    timer.seconds_each(sleeper(stream, 0.001, "call", calls))
    assert max(map(len, "".join(name[0] for name in calls).split("c"))) >= 20, "load in front of the rounds"


def test_only_the_second_half_counts(stream):
    timer, runs = LoadedTimer(stream, 0.2), []
    timer.put_under_load(lambda: stream.enqueue(lambda: time.sleep(0.01)))

    def slow_in_the_first_half():
        runs.append(None)
        # Two calls tell that ten rounds of one load and one call make 0.2 s.
        time.sleep(0.01 if len(runs) <= 2 else 0.05 if len(runs) <= 7 else 0.002)

    assert timer.seconds_each(lambda: stream.enqueue(slow_in_the_first_half)) < 0.015
    assert 10 <= len(runs) <= 13


# residues


class FormulaTimer:
    """Tells the seconds that a formula gives for the length of K."""

    def __init__(self, formula):
        self.formula = formula

    def put_under_load(self, load, seconds=0.0):
        pass

    def seconds_each(self, call, before=None):
        return self.formula(call.args[0])


def solved(formula, shapes):
    return residues._product_rates(FormulaTimer(formula), lambda inner: None, shapes)


def test_two_lengths_of_k_tell_both_rates_of_a_product():
    shapes = residues.ResidueShapes(nb=64, moduli=13, columns=4, depth=8)
    entries = 64 * 256
    found = solved(lambda inner: entries * (2 * inner / 1e14 + 1 / 4e10), shapes)
    assert found == pytest.approx({"product": 1e14, "accumulate": 4e10})


@pytest.mark.parametrize("formula", [lambda inner: 1.0, lambda inner: 2.0 - inner / 1024, lambda inner: float(inner) ** 2])
def test_noise_cannot_make_a_rate_negative_or_forget_the_long_product(formula):
    shapes = residues.ResidueShapes(nb=64, moduli=13, columns=4, depth=8)
    found = solved(formula, shapes)
    entries = 64 * 256
    assert found["product"] > 0 and found["accumulate"] > 0
    assert entries * (2 * 512 / found["product"] + 1 / found["accumulate"]) == pytest.approx(formula(512))


def test_products_are_as_long_as_memory_allows(monkeypatch):
    monkeypatch.setattr(residues, "memory_info", lambda name: (free, free))
    free = 140 << 30
    shapes = residues.ResidueShapes.on("cuda:0", 2048, 13)
    assert (shapes.columns * 2048, shapes.depth * 2048) == (8192, 32768)
    free = 5 << 30
    smaller = residues.ResidueShapes.on("cuda:0", 2048, 13)
    assert 2 <= smaller.depth < shapes.depth and smaller.columns == shapes.columns
    assert sum(spec.nbytes for spec in smaller.arrays) <= free / 2
    free = 1
    assert residues.ResidueShapes.on("cuda:0", 4096, 13).depth == 2


def test_strips_hold_residues_of_all_their_rows():
    shapes = residues.ResidueShapes(nb=32, moduli=5, columns=2, depth=3)
    device = open_device("host:0", 1, 5)
    try:
        place = opened.set_up(device, 32, 0.001, shapes.arrays)
        place.arrays[0][...] = 99
        found = residues.measure_residues(place, shapes)
        strips = place.arrays[0]
        assert found["moduli"] == 5 and min(found.values()) > 0
        for row in range(3):
            for column in range(3):
                block = strips[:, row * 32 : (row + 1) * 32, column * 32 : (column + 1) * 32]
                assert all(len(np.unique(plane)) > 50 for plane in block), "residues of a factor's tile look uniform"
        assert device.kernels.residues.flagged_row() is None
        assert residues.measure_pull(place, shapes, strips[:, 32:64]) > 0
        assert np.array_equal(strips[:, :32], strips[:, 32:64])
    finally:
        device.close()


# tiles


def test_tiles_are_those_of_a_factor():
    device = open_device("host:0", 1)
    try:
        tiles = opened.set_up(device, 48, 0.001).tiles
        full = np.empty((144, 144))
        opened.covariance_function(144)(range(144), range(144), full, None)
        assert np.allclose(full, full.T)
        factor = np.linalg.cholesky(full)
        for found, row in ((tiles.l_kk, 0), (tiles.l_ik, 1), (tiles.l_jk, 2)):
            assert np.allclose(found, factor[48 * row : 48 * (row + 1), :48])
        assert np.array_equal(tiles.a_kk, full[:48, :48]) and np.array_equal(tiles.a_ik, full[48:96, :48])
    finally:
        device.close()


def test_float32_is_measured_on_the_host_only(monkeypatch):
    device = open_device("host:0", 1)
    try:
        place = opened.set_up(device, 48, 0.001)
        found = kernels.measure_kernels(place, 0.0)
        assert set(found) == KERNELS | FLOAT32 and all(value > 0 for value in found.values())
        monkeypatch.setattr(kernels, "kind_of", lambda name: CUDA_KERNELS)
        assert set(kernels.measure_kernels(place, 0.0)) == KERNELS
    finally:
        device.close()


# several devices, links


def measurement(names, moduli=None):
    return together.Measurement(names, 32, moduli, 1, 0.002, 0.002, 0.01)


@pytest.fixture
def as_gpus(monkeypatch):
    """Host devices are measured as GPUs are: under load, in float64 only, links both ways at once."""
    monkeypatch.setattr(kernels, "kind_of", lambda name: CUDA_KERNELS)
    monkeypatch.setattr(opened, "device_kind", lambda name: CUDA)
    monkeypatch.setattr(links, "device_kind", lambda name: CUDA)


@pytest.mark.parametrize("names", [("host:0",), ("host:0", "host:1")])
def test_gpus_are_measured_under_load_and_with_links_both_ways(as_gpus, names):
    figures = together.measure_at_once(measurement(names, 6))
    assert set(figures) == KERNELS | {"residue", "links"}
    assert set(figures["links"]) == LINKS | {"memory-read-alone", "memory-write-alone"}
    halves = {"half", "half_accumulate", "quarter", "quarter_accumulate"}
    assert set(figures["residue"]) == {"moduli", "product", "accumulate", "convert", "reconstruct", "pull"} | halves
    assert all(value > 0 for value in (*figures["residue"].values(), *figures["links"].values()))


def test_the_slowest_device_counts():
    assert together.slowest([{"array": 3.0, "file": 1.0}, {"array": 2.0, "file": 9.0}]) == {"array": 2.0, "file": 1.0}


def test_links_of_two_directions_are_timed_apart(stream):
    device = host_device("host:1")
    other = device.create_stream("other")
    moved = {"in": [], "out": []}

    def move(which, on, seconds):
        def enqueue(index):
            moved[which].append(index)
            on.enqueue(lambda: time.sleep(seconds))

        return on, enqueue

    grid = links.TileGrid(32, 8)
    try:
        there, back = (*move("in", stream, 0.001), False), (*move("out", other, 0.004), True)
        (rates,) = links._rates(grid, [(device, [there, back])], 0.001)
        assert 2 < rates[0] / rates[1] < 6
    finally:
        device.close()
    assert set(moved["in"]) == set(moved["out"]) == set(grid.tiles())
    assert moved["in"][0] == (0, 0) and moved["out"] == moved["in"][::-1]


def test_devices_that_are_measured_at_once_begin_at_different_tiles(stream):
    firsts, device = {}, host_device("host:1")

    def move(number):
        return stream, lambda index: firsts.setdefault(number, index), False

    grid = links.TileGrid(32, 8)
    rates = links._rates(grid, [(device, [move(0)]), (device, [move(1)])], 0.001)
    assert len(rates) == 2 and all(rate > 0 for (rate,) in rates)
    assert firsts == {0: (0, 0), 1: list(grid.tiles())[5]}


def test_an_error_on_one_device_closes_the_others(monkeypatch):
    def fail_on_the_second(device, *arguments):
        if device.name == "host:1":
            raise BudgetError("arena of host:1", 2, 1, "free some")
        return SimpleNamespace(device=device)

    monkeypatch.setattr(together, "set_up", fail_on_the_second)
    with pytest.raises(BudgetError, match="host:1"):
        together.measure_at_once(measurement(("host:0", "host:1")))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ooc_chol host")]


def test_copies_come_from_the_next_device_else_from_itself(monkeypatch):
    assert together.pulled_from(("host:0",)) == "host:0"
    assert together.pulled_from(("cuda:2", "cuda:0")) == "cuda:0"
    monkeypatch.setattr(CudaKind, "names", lambda self: ("cuda:0", "cuda:1"))
    assert together.pulled_from(("cuda:0",)) == "cuda:1" and together.pulled_from(("cuda:1",)) == "cuda:0"
    monkeypatch.setattr(CudaKind, "names", lambda self: ("cuda:0",))
    assert together.pulled_from(("cuda:0",)) == "cuda:0"


def test_another_device_lends_its_memory_for_copies(as_gpus, monkeypatch):
    monkeypatch.setattr(together, "pulled_from", lambda names: "host:3")
    opened_names = []

    def open_and_note(name, *arguments):
        opened_names.append(name)
        return open_device(name, *arguments)

    monkeypatch.setattr(together, "open_tile_device", open_and_note)
    assert together.measure_at_once(measurement(("host:0",), 6))["residue"]["pull"] > 0
    assert opened_names == ["host:0", "host:3"]


def test_every_figure_has_a_place_in_the_rates():
    assert set(Rates.__dataclass_fields__) >= KERNELS | FLOAT32
