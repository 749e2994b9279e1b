"""How rates are measured: timers, solved products, links both ways, several devices at once."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from ooc_chol.errors import BudgetError
from tests.builders import host_device, open_device
from tests.host.clock import Clock
from tests.inside.dense import IdleTimer, LoadedTimer, Rates, kernels, links, opened, timing, together
from tests.inside.dense import residues_module as residues
from tests.inside.hardware import CUDA, CudaKind
from tests.inside.interfaces import AbstractEvent
from tests.inside.kernels import CUDA as CUDA_KERNELS

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

KERNELS = {"potrf", "invert", "trsm", "syrk", "gemm", "generate", "launch"}
FLOAT32 = {"trsm_float32", "gemm_float32"}
LINKS = {"array", "file", "memory-read", "memory-write", "file-read", "file-write"}


@pytest.fixture
def stream():
    device = host_device()
    yield device.create_stream("test")
    device.close()


class TimedEvent(AbstractEvent):
    """An event that was complete when it was recorded."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def time_ns(self) -> int:
        return round(1e9 * self._seconds)


class TimedStream:
    """A stream that performs each operation at once, at its own clock: what a timer needs of one."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.calls = clock, []

    def record(self) -> TimedEvent:
        return TimedEvent(self.clock.seconds)

    def synchronize(self) -> None:
        pass

    def takes(self, seconds, name):
        """A call that enqueues something of so many seconds, and notes its name."""

        def call():
            self.clock.seconds += seconds() if callable(seconds) else seconds
            self.calls.append(name)

        return call


@pytest.fixture
def timed(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    return TimedStream(clock)


# timers


@pytest.mark.parametrize("kind", [IdleTimer, LoadedTimer])
def test_a_call_is_measured_without_load_and_preparation(timed, kind):
    timer = kind(timed, 0.1)
    timer.put_under_load(timed.takes(0.02, "load"), 0.02)
    seconds = timer.seconds_each(timed.takes(0.005, "call"), timed.takes(0.02, "before"))
    assert seconds == pytest.approx(0.005)
    assert timed.calls.count("call") == timed.calls.count("before") >= 4


@pytest.mark.parametrize("kind", [IdleTimer, LoadedTimer])
def test_a_call_on_a_real_stream_takes_no_less_than_it_sleeps(stream, kind):
    calls = []

    def call():
        stream.enqueue(lambda: (time.sleep(0.002), calls.append("call")))

    timer = kind(stream, 0.01)
    timer.put_under_load(lambda: stream.enqueue(lambda: time.sleep(0.001)), 0.01)
    assert timer.seconds_each(call) >= 0.002
    stream.synchronize()
    assert len(calls) >= 4


def test_load_and_calls_alternate_as_long_each(timed):
    timer = LoadedTimer(timed, 0.1)
    timer.put_under_load(timed.takes(0.006, "load"))
    timer.seconds_each(timed.takes(0.003, "call"))
    rounds = "".join(name[0] for name in timed.calls).rstrip("c").split("l")
    assert {len(part) for part in rounds[-6:-1]} == {2}, "every round: one load and two calls"
    assert timed.calls[-1] == "call"
    timed.calls.clear()
    timer.put_under_load(timed.takes(0.002, "load"))
    timer.seconds_each(timed.takes(0.009, "call"))
    loads = round(0.009 / 0.002)
    assert timed.calls[-3 * (loads + 1) :] == 3 * (loads * ["load"] + ["call"])


def test_the_device_is_kept_busy_before_each_figure(timed):
    timer = LoadedTimer(timed, 0.01)
    timer.put_under_load(timed.takes(0.005, "load"), 0.1)
    assert timed.calls.count("load") >= 20, "the first load"
    timed.calls.clear()
    timer.seconds_each(timed.takes(0.001, "call"))
    assert max(map(len, "".join(name[0] for name in timed.calls).split("c"))) >= 40, "0.2 s of load in front of the rounds"


def test_only_the_second_half_counts(timed):
    timer, runs = LoadedTimer(timed, 0.2), []
    timer.put_under_load(timed.takes(0.01, "load"))

    def slow_in_the_first_half():
        runs.append(None)
        # Two calls tell that ten rounds of one load and one call make 0.2 s.
        return 0.01 if len(runs) <= 2 else 0.05 if len(runs) <= 7 else 0.002

    assert timer.seconds_each(timed.takes(slow_in_the_first_half, "call")) == pytest.approx(0.002)
    assert len(runs) == 12


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
    monkeypatch.setattr(opened, "BRIDGE_SECONDS", 0.005)  # no clock of theirs follows the load
    monkeypatch.setattr(kernels, "kind_of", lambda name: CUDA_KERNELS)
    monkeypatch.setattr(opened, "device_kind", lambda name: CUDA)
    monkeypatch.setattr(links, "device_kind", lambda name: CUDA)


@pytest.mark.parametrize("names", [("host:0",), ("host:0", "host:1")])
def test_gpus_are_measured_under_load_and_with_links_both_ways(as_gpus, names):
    figures = together.measure_at_once(measurement(names, 6))
    assert set(figures) == KERNELS | {"residue", "links"}
    assert set(figures["links"]) == LINKS | {"memory-read-alone", "memory-write-alone"}
    halves = {"half", "half_accumulate"}
    assert set(figures["residue"]) == {"moduli", "product", "accumulate", "convert", "reconstruct", "pull"} | halves
    assert all(value > 0 for value in (*figures["residue"].values(), *figures["links"].values()))


def test_the_slowest_device_counts():
    assert together.slowest([{"array": 3.0, "file": 1.0}, {"array": 2.0, "file": 9.0}]) == {"array": 2.0, "file": 1.0}


def test_links_of_two_directions_are_timed_apart():
    moved = {"in": [], "out": []}

    def direction(which, seconds, *, is_backward):
        stream = TimedStream(Clock())

        def enqueue(index):
            moved[which].append(index)
            stream.takes(seconds, which)()

        return stream, enqueue, is_backward

    grid, device = links.TileGrid(32, 8), SimpleNamespace(current=nullcontext)
    directions = [direction("in", 0.001, is_backward=False), direction("out", 0.004, is_backward=True)]
    (rates,) = links._rates(grid, [(device, directions)], 0.001)
    nbytes = sum(8 * grid.entries(*index) for index in grid.tiles())
    assert rates == pytest.approx((nbytes / 0.001 / grid.n_tiles, nbytes / 0.004 / grid.n_tiles))
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
    def fail_on_the_second(device, *arguments, **options):
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


def test_the_quick_covariance_is_one():
    n, nb = 96, 32
    function, a = opened.line_function(n), np.empty((n, n))
    for rows in (range(at, at + nb) for at in range(0, n, nb)):
        for cols in (range(at, at + nb) for at in range(0, n, nb)):
            function(rows, cols, a[rows.start : rows.stop, cols.start : cols.stop], None)
    expected = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / (0.1 * n)) + 0.01 * np.eye(n)
    np.testing.assert_allclose(a, expected, rtol=1e-15)
    assert np.linalg.eigvalsh(a).min() > 0
