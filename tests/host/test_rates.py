"""Measured rates: stored once, found by every later plan of the same machine at the tile size or near it, never guessed."""

from __future__ import annotations

import dataclasses
import json
import re
import time
import warnings
from dataclasses import fields, replace
from functools import lru_cache

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.rates import measure_rates
from tests.inside.cli import main
from tests.inside.dense import Rates, generation, measuring, stored_rates
from tests.inside.hardware import rates_path
from tests.inside.kernels import identity, machine_identity
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

GRID = TileGrid(320, 64)
#: Fields of rates that are no numbers.
NO_RATES = ("residue", "precision", "origin", "model", "disk")
#: How far a prediction may be off on a machine that others use at the same time.
PREDICTION_RATIO = 5.0


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and measurements that are short."""
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring, "MEASURE_SECONDS", 0.002)
    return tmp_path / "cache"


def test_without_measurements_there_are_no_seconds(cache):
    assert stored_rates(GRID, "array", "memory") is None
    plan = oc.plan(320, tile_size=64)
    assert plan.seconds is None and plan.to_dict()["seconds"] is None
    assert "unknown" in str(plan) and "ooc-chol bench rates" in str(plan)
    assert not cache.exists(), "looking up creates nothing"


def test_what_was_measured_is_found_again(cache):
    measured = measure_rates(64)
    assert rates_path() == cache / "rates.json"
    assert all(getattr(measured, field.name) > 0 for field in fields(Rates) if field.name not in NO_RATES)
    assert stored_rates(GRID, "array", "memory") == measured
    assert measured.tile_size == 64
    assert list(cache.iterdir()) == [cache / "rates.json"], "no partial file is left"


def test_each_kind_of_source_and_store_has_rates_of_its_own():
    measure_rates(64)
    links = json.loads(rates_path().read_text())[machine_identity()]["64"]["links"]
    for source, name in (("array", "array"), ("file", "file"), ("function", "array")):
        for store in ("memory", "file"):
            found = stored_rates(GRID, source, store)
            assert (found.source, found.fetch, found.write) == (links[name], links[f"{store}-read"], links[f"{store}-write"])
    assert stored_rates(GRID, "slices", "memory") is None, "what is behind slices cannot be known"


def test_rates_belong_to_one_tile_size_and_one_machine(monkeypatch):
    measure_rates(64)
    assert stored_rates(TileGrid(320, 65), "array", "memory") is None
    monkeypatch.setattr(identity, "machine_identity", lambda *_: "another machine")
    assert stored_rates(GRID, "array", "memory") is None


def test_rates_belong_to_the_kernels_with_which_they_were_measured(monkeypatch):
    measure_rates(64)
    facts = identity.kernel_facts(["host:0"])
    for name in ("trsm", "kernels", "library"):
        other = dataclasses.replace(facts, **{name: "another way"})
        monkeypatch.setattr(identity, "kernel_facts", lambda *_, other=other: other)
        assert stored_rates(GRID, "array", "memory") is None
    monkeypatch.setattr(identity, "kernel_facts", lambda *_: facts)
    assert stored_rates(GRID, "array", "memory") is not None


def test_measuring_keeps_what_was_measured_before(monkeypatch):
    machine = machine_identity()
    first = measure_rates(64)
    measure_rates(32)
    monkeypatch.setattr(identity, "machine_identity", lambda *_: "another machine")
    measure_rates(64)
    monkeypatch.setattr(identity, "machine_identity", lambda *_: machine)
    stored = json.loads(rates_path().read_text())
    assert {name: sorted(sizes) for name, sizes in stored.items()} == {machine: ["32", "64"], "another machine": ["64"]}
    assert stored_rates(GRID, "array", "memory") == first


def test_plans_and_reports_predict_seconds_from_them():
    measure_rates(64)
    a = np.eye(320)
    plan = oc.plan(a, tile_size=64)
    assert plan.seconds > 0 and f"{plan.seconds:.3g} predicted" in str(plan)
    assert plan.seconds == plan.timeline.seconds
    factor = oc.cholesky(a, tile_size=64)
    assert factor.report.to_dict()["seconds"]["predicted"] == pytest.approx(plan.seconds)
    assert "predicted" in str(factor.report) and "none predicted" not in str(factor.report)
    assert oc.plan(a, tile_size=48).seconds is None
    assert oc.plan(a, tile_size=64, devices=2).seconds is None, "two host devices share the cores that one was measured with"


def test_slower_links_and_kernels_predict_more_seconds():
    rates = measure_rates(64)
    expected = oc.plan(320, tile_size=64).seconds
    everything = json.loads(rates_path().read_text())
    figures = everything[machine_identity()]["64"]
    figures["gemm"] = rates.gemm / 1000
    rates_path().write_text(json.dumps(everything))
    slower = oc.plan(320, tile_size=64).seconds
    figures["links"]["array"] = rates.source / 1e6
    rates_path().write_text(json.dumps(everything))
    assert expected < slower < oc.plan(320, tile_size=64).seconds


def test_the_rate_of_a_tile_function_is_measured_on_the_device():
    calls = []

    def tile(rows, cols, out, stream):
        calls.append((rows, cols))
        time.sleep(0.02)
        out[...] = np.equal.outer(np.asarray(rows), np.asarray(cols))

    oc.plan(oc.from_function(320, tile), tile_size=64)
    assert calls == [], "without rates there is nothing to predict"
    measure_rates(64)
    plan = oc.plan(oc.from_function(320, tile), tile_size=64)
    assert set(calls) == {(range(256, 320), range(64))}, "one tile of full size tells the rate"
    assert plan.rates.generate < 64 * 64 / 0.02
    assert plan.seconds > 15 * 0.02, "each of the 15 tiles is generated once"


def tile_function_that_counts(calls):
    def tile(rows, cols, out, stream):
        calls.append((rows, cols))
        out[...] = np.equal.outer(np.asarray(rows), np.asarray(cols))

    return tile


def test_a_tile_function_is_measured_once_while_it_lives():
    measure_rates(64)
    calls = []
    tile = tile_function_that_counts(calls)
    rates = [oc.plan(oc.from_function(n, tile), tile_size=64).rates for n in (320, 320, 640)]
    assert len(calls) == 2 and rates[0] == rates[1] == rates[2]
    measure_rates(32)
    oc.plan(oc.from_function(320, tile), tile_size=32)
    assert len(calls) == 4, "another tile order has another rate"
    oc.plan(oc.from_function(320, tile_function_that_counts(calls)), tile_size=64)
    assert len(calls) == 6, "another function has another rate, whatever its code"


class Model:
    """An object whose method makes tiles; each look at the method makes another bound method."""

    def __init__(self):
        self.calls = []

    def tile(self, rows, cols, out, stream):
        self.calls.append((rows, cols))
        out[...] = np.equal.outer(np.asarray(rows), np.asarray(cols))

    def other(self, rows, cols, out, stream):
        self.tile(rows, cols, out, stream)


def test_a_method_is_measured_once_for_each_object():
    measure_rates(64)
    one, two = Model(), Model()
    for model in (one, two, one):
        oc.plan(oc.from_function(320, model.tile), tile_size=64)
    assert (len(one.calls), len(two.calls)) == (2, 2)
    oc.plan(oc.from_function(320, one.other), tile_size=64)
    assert len(one.calls) == 4


def test_a_function_that_takes_the_place_of_another_is_measured():
    measure_rates(64)
    calls = []
    for _ in range(5):  # the same address, as a rule, for each: the one before is gone
        oc.plan(oc.from_function(320, tile_function_that_counts(calls)), tile_size=64)
    assert len(calls) == 10


def test_cuda_source_is_known_by_its_text_and_integers():
    def source(code="text", order=1, scale=1.0, n=5):
        return oc.from_function(320, print, cuda=tb.cuda_source(code, "name", np.zeros(n), np.int32(order), scale))

    def name(source, device="cuda:0"):
        return generation._identity(source, device)[0]

    assert name(source()) == name(source(scale=2.0)), "a fit makes another function of the same source for each of its steps"
    names = [name(other) for other in (source(), source(code="other"), source(order=2), source(n=6))]
    assert len(set(names)) == 4
    assert name(source(code="other"), "host:0") == name(source(), "host:0"), "on the host the other function is called"


RESIDUE_FIGURES = ("product", "accumulate", "convert", "reconstruct", "pull")


def test_residues_are_measured_on_the_host_on_request():
    assert measure_rates(64).residue is None
    measured = measure_rates(64, moduli=10)
    assert measured.residue.moduli == 10 and all(getattr(measured.residue, name) > 0 for name in RESIDUE_FIGURES)
    assert stored_rates(GRID, "file", "file").residue == measured.residue
    assert json.loads(rates_path().read_text())[machine_identity()]["64"]["pulled_from"] == "host:0"
    plan = oc.plan(320, tile_size=64, fp64="residue", moduli=12)
    assert plan.seconds > 0
    assert plan.rates.residue == measured.residue.at(12)
    assert oc.plan(320, tile_size=64).seconds is not None


def test_a_residue_plan_without_rates_of_residues_predicts_no_seconds():
    measure_rates(64)
    assert oc.plan(320, tile_size=64, fp64="residue").seconds is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((40, "host:0", 13), "multiples of 16"),
        ((64, ("host:0", "host:1")), "measure one of them"),
        ((0,), "at least 1 row"),
        ((64, "host:0", 3), "from 4 to 16 moduli"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, text, cache):
    with pytest.raises(ValueError, match=text):
        measure_rates(*arguments)
    assert not cache.exists()


def test_a_plan_takes_the_rates_of_as_many_devices_or_those_of_one():
    one = measure_rates(64)
    names = ("host:0", "host:1")
    assert stored_rates(GRID, "array", "memory", names) == one
    everything = json.loads(rates_path().read_text())
    figures = everything[machine_identity()]["64"]
    everything[machine_identity(names)] = {"64": {**figures, "gemm": one.gemm / 2}}
    rates_path().write_text(json.dumps(everything))
    assert stored_rates(GRID, "array", "memory", names) == replace(one, gemm=one.gemm / 2)
    assert stored_rates(GRID, "array", "memory", ("host:0",)) == stored_rates(GRID, "array", "memory") == one
    assert stored_rates(GRID, "array", "memory", ("host:0", "host:1", "host:2")) == one


def test_rates_that_were_stored_without_residues_inversions_and_float32_still_count():
    measured = measure_rates(64)
    everything = json.loads(rates_path().read_text())
    figures = everything[machine_identity()]["64"]
    for name in ("invert", "trsm_float32", "gemm_float32"):
        del figures[name]
    rates_path().write_text(json.dumps(everything))
    found = stored_rates(GRID, "array", "memory")
    assert found == replace(measured, invert=float("inf"), trsm_float32=None, gemm_float32=None)


def test_rates_of_products_in_fp8_that_older_versions_stored_are_ignored():
    measured = measure_rates(64, moduli=10)
    everything = json.loads(rates_path().read_text())
    everything[machine_identity()]["64"]["residue"] |= {"quarter": 1e12, "quarter_accumulate": 1e11}
    rates_path().write_text(json.dumps(everything))
    assert stored_rates(GRID, "array", "memory") == measured


def test_a_prediction_is_of_the_size_of_the_run(monkeypatch):
    # Both are measured in the time of this process: other programs may take the cores of this machine.
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    monkeypatch.setattr(time, "perf_counter_ns", time.process_time_ns)
    monkeypatch.setattr(measuring, "MEASURE_SECONDS", 0.02)
    measure_rates(128, moduli=13)
    n = 1024
    a = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 50)
    for fp64 in ("native", "residue"):
        ratios = []
        for _ in range(3):
            with oc.cholesky(a, tile_size=128, devices="host:0", fp64=fp64) as factor:
                ratios.append(factor.report.plan.seconds / factor.report.inside_seconds)
        # The best of three, and no more than the size: caches are shared with other programs, too.
        assert any(1 / PREDICTION_RATIO < ratio < PREDICTION_RATIO for ratio in ratios), ratios


DAMAGES = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "no JSON": lambda text: "gemm: 3",
    "a list": lambda text: "[]",
    "a number": lambda text: "3",
    "a machine that is a number": lambda text: json.dumps({machine_identity(): 3}),
    "figures that are a list": lambda text: json.dumps({machine_identity(): {"64": []}}),
    "figures missing": lambda text: json.dumps({machine_identity(): {"64": {"gemm": 1e9}}}),
    "a link missing": lambda text: text.replace('"memory-read"', '"memory"'),
    "a rate of zero": lambda text: text.replace('"trsm": ', '"trsm": 0, "x": '),
    "a rate that is a word": lambda text: text.replace('"syrk": ', '"syrk": "fast", "x": '),
    "residues of another kind": lambda text: text.replace('"links"', '"residue": {"moduli": 13}, "links"'),
    "not UTF-8": lambda text: text + "\udcff",
    "an infinite rate": lambda text: text.replace('"syrk": ', '"syrk": Infinity, "x": '),
    "a rate beyond all floats": lambda text: text.replace('"gemm": ', '"gemm": 1e400, "x": '),
    "a rate that is no number": lambda text: text.replace('"potrf": ', '"potrf": NaN, "x": '),
    "a rate that is true": lambda text: text.replace('"launch": ', '"launch": true, "x": '),
    "a negative rate": lambda text: text.replace('"generate": ', '"generate": -1.0, "x": '),
    "a negative link": lambda text: text.replace('"memory-write": ', '"memory-write": -1.0, "x": '),
    "a rate of 400 digits": lambda text: text.replace('"gemm": ', f'"gemm": {"9" * 400}, "x": '),
    "a rate of 5000 digits": lambda text: text.replace('"gemm": ', f'"gemm": {"9" * 5000}, "x": '),
    "a rate that nothing has": lambda text: text.replace('"gemm": ', '"gemm": 5e-324, "x": '),
    "links that are a list": lambda text: text.replace('"links": ', '"links": [], "x": '),
    "deep lists": lambda text: "[" * 100_000,
    "deep objects": lambda text: '{"a":' * 100_000,
    "residues of true moduli": lambda text: text.replace(
        '"links"',
        '"residue": {"moduli": true, "product": 1, "accumulate": 1, "convert": 1, "reconstruct": 1, "pull": 1}, "links"',
    ),
}


@lru_cache
def rates_text() -> str:
    """What is stored of rates that were measured; the same for all damages."""
    measure_rates(64)
    return rates_path().read_text()


def damage_file(name: str) -> None:
    """Spoil rates that were measured."""
    text = rates_text()
    rates_path().parent.mkdir(parents=True, exist_ok=True)
    spoiled = DAMAGES[name](text)
    assert spoiled != text
    rates_path().write_bytes(spoiled.encode("utf-8", "surrogateescape"))


ADVICE = r"ignored.*`ooc-chol bench rates`"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_ignored_with_one_warning(damage):
    damage_file(damage)
    with pytest.warns(oc.errors.RatesWarning, match=ADVICE) as caught:
        plan = oc.plan(320, tile_size=64)
    assert len(caught) == 1 and str(rates_path()) in str(caught[0].message)
    assert plan.seconds is None
    # Once for a damage, whatever is done next; filters of "error" let no second one pass in silence, either.
    with oc.cholesky(np.eye(320), tile_size=64) as factor:
        assert factor.logdet() == 0.0


@pytest.mark.parametrize("damage", DAMAGES)
def test_measuring_replaces_a_damaged_file(damage):
    damage_file(damage)
    assert measure_rates(64) == stored_rates(GRID, "array", "memory")
    assert list(json.loads(rates_path().read_text())) == [machine_identity()]


@pytest.mark.parametrize("damage", ["cut", "a rate that is true", "deep lists"])
def test_the_commands_say_what_is_damaged(damage, capsys, monkeypatch):
    damage_file(damage)
    assert main(["devices"]) == 0
    said = capsys.readouterr()
    assert re.search(rf"{re.escape(str(rates_path()))}.*{ADVICE}", said.out) and said.err == ""
    assert main(["bench", "rates", "--tile-size", "64"]) == 0
    said = capsys.readouterr()
    assert f"{rates_path()}" in said.err and "measured anew" in said.err and "stored in" in said.out
    assert main(["devices"]) == 0
    assert "rates" not in capsys.readouterr().out


def test_rates_of_another_machine_may_be_damaged():
    measured = measure_rates(64)
    everything = json.loads(rates_path().read_text())
    everything["another machine"] = {"64": {"gemm": True}}
    rates_path().write_text(json.dumps(everything))
    assert stored_rates(GRID, "array", "memory") == measured
    measure_rates(32)
    assert "another machine" in json.loads(rates_path().read_text()), "its figures are not ours to drop"


def test_a_file_that_cannot_be_read_is_ignored_with_a_warning(cache):
    (cache / "rates.json").mkdir(parents=True)  # as root reads every file, a folder of that name stands for one without rights
    with pytest.warns(oc.errors.RatesWarning, match=rf"rates\.json.*cannot be read.*{ADVICE}"):
        assert oc.plan(320, tile_size=64).seconds is None


def test_a_warning_can_be_made_an_error_or_silent():
    damage_file("cut")
    with warnings.catch_warnings():
        warnings.simplefilter("error", oc.errors.RatesWarning)
        for _ in range(2):
            with pytest.raises(oc.errors.RatesWarning):
                oc.plan(320, tile_size=64)
        warnings.simplefilter("ignore", oc.errors.RatesWarning)
        oc.plan(320, tile_size=64)


def test_that_rates_cannot_be_stored_is_known_before_they_are_measured(cache, monkeypatch):
    def never(*_):
        raise AssertionError("measured for nothing")

    monkeypatch.setattr(measuring, "measure_at_once", never)
    (cache / "rates.json").mkdir(parents=True)
    with pytest.raises(OSError, match=r"rates\.json"):
        measure_rates(64)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match="file"):
        measure_rates(64)


def test_rates_can_be_measured_quickly():
    full, began = measure_rates(128), time.perf_counter()
    quick = measure_rates(128, quick=True)
    assert time.perf_counter() - began < 5.0
    assert (full.origin, quick.origin) == ("measured", "quick")
    assert stored_rates(TileGrid(512, 128), "array", "memory") == quick, "in place of the ones before"
    assert "measured quickly" in str(oc.plan(512, tile_size=128))
    measure_rates(128)
    assert "measured quickly" not in str(oc.plan(512, tile_size=128))


def test_the_command_measures_quickly_the_device_that_plans_take(capsys):
    assert main(["bench", "rates", "--quick", "--tile-size", "64"]) == 0
    assert "stored in" in capsys.readouterr().out
    (figures,) = json.loads(rates_path().read_text()).values()
    assert figures["64"]["quick"] is True
    device = oc.plan(64, tile_size=64).devices[0]
    assert stored_rates(TileGrid(64, 64), "array", "memory", device) is not None


def test_a_plan_says_what_would_predict_it():
    assert "tiles of 1000; `ooc-chol bench rates` measures them" in str(oc.plan(1000, devices="host:0"))
    residue = oc.plan(1000, devices="host:0", fp64="residue", tile_size=64, moduli=12)
    assert "`ooc-chol bench rates --tile-size 64 --moduli 12` measures them" in str(residue)
    gpu = oc.plan(100_000, devices="cuda:0", memory_budget="80 GB", tile_size=2048)
    assert "`ooc-chol bench rates --device cuda:0 --tile-size 2048` measures them" in str(gpu)
    several = str(oc.plan(1000, devices=2, tile_size=100))
    assert "unknown" in several and "bench rates" not in several
