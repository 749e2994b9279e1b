"""Benchmarks without a device: cases, suites whose cases fail, meters, result files."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ooc_chol.errors import BudgetError
from tests.inside.bench import (
    ENGINES,
    HOST_SHARE,
    Fp64Case,
    Measured,
    Peer,
    Session,
    describe,
    engine_of,
    meters,
    run_links,
    suites,
    write_json,
)
from tests.inside.bench import case as case_module
from tests.inside.cli import main
from tests.inside.ground import parse_bytes

pytestmark = pytest.mark.plan

CASE = Fp64Case("a-case", 4096, 512, "24 MiB", devices=("host:0",))


def result_of(case: Fp64Case, **changes) -> dict:
    """What a summary reads of a result."""
    return {
        "n": case.n, "seconds": [2.0, 1.0, 3.0], "predicted_seconds": 1.5, "tflops": 50.0, "exposed_copy_share": 0.012,
        "dgemm_tflops": {"before": 52.0, "after": 48.0}, "residual": {"max_scaled_over_sqrt_n": 0.09}, "peers": [],
    } | changes  # fmt: skip


# cases and peers


@pytest.mark.parametrize("text", ["cusolver", "cusolver:", "cusolver:many", "lapack:9", "cusolver:0", ":9", "cusolver:9:9"])
def test_a_peer_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match="peer"):
        Peer.parse(text)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"engine": "mixed"}, "engine is 'mixed'; there are native, residue, auto"),
        ({"source": "file"}, "source is 'file'"),
        ({"repeats": 0}, "at least 1 run"),
        ({"n": 1023}, "at least two tile rows"),
        ({"budget": "much"}, "memory_budget: 'much' is not a size"),
    ],
)
def test_a_case_without_sense_is_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        replace(CASE, **changes)


def test_a_run_is_discarded_up_to_an_order_unless_the_case_says_otherwise():
    small, large = replace(CASE, n=65536), replace(CASE, n=65537)
    assert small.warms_up and not large.warms_up
    assert not replace(small, warm_up=False).warms_up and replace(large, warm_up=True).warms_up


def test_a_case_that_does_not_fit_into_host_memory_is_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(case_module, "memory_info", lambda name: (135 * 10**9, 135 * 10**9))
    array = replace(CASE, n=98304, budget="16 GiB", source="host-array")
    array.check_machine()
    with pytest.raises(BudgetError, match="measure a smaller n, or source='device-function'") as caught:
        replace(array, n=131072).check_machine()
    assert caught.value.needed_bytes == 8 * 131072**2 + 4 * 131072 * 131073
    assert caught.value.budget_bytes == int(HOST_SHARE * 135 * 10**9)


# suites


def test_suites_are_what_their_names_say():
    names = [case.name for cases in suites.SUITES.values() for case in cases]
    assert len(set(names)) == len(names)
    for case in (case for cases in suites.SUITES.values() for case in cases):
        assert case.engine in ENGINES and case.name.split("-")[1] == case.engine
        assert str(case.n) in case.name
        assert case.name.startswith(f"h200{'x4' if len(case.devices) == 4 else ''}-" if case.on_gpu else "host-")
        if case.budget is not None:  # out of core, on each GPU
            assert 2 * parse_bytes(case.budget) <= case.factor_bytes


def test_choose_takes_cases_in_the_order_wanted_and_changes_them():
    first, second = (case.name for case in suites.SUITES["host"])
    chosen = suites.choose("host", [second, first], repeats=1, warm_up=None)
    assert [case.name for case in chosen] == [second, first]
    assert {case.repeats for case in chosen} == {1}
    assert suites.choose("native-1gpu") == suites.SUITES["native-1gpu"]
    with pytest.raises(ValueError, match="no suite 'gpu'; there are residue-1gpu"):
        suites.choose("gpu")
    with pytest.raises(ValueError, match="suite host has no case none; it has host-native"):
        suites.choose("host", ["none"])


def test_a_case_that_fails_does_not_lose_the_others(tmp_path, capsys):
    cases = [replace(CASE, name=name) for name in ("one", "two", "three")]

    def run(case, session, trace):
        assert trace == tmp_path / "traces" / f"{case.name}.pftrace"
        if case.name == "two":
            raise MemoryError("too large")
        return result_of(case)

    outcomes = suites.run_suite(cases, Session(tmp_path, measures_rates=False), traces=tmp_path / "traces", run=run)
    assert [outcome.result is None for outcome in outcomes] == [False, True, False]
    assert outcomes[1].error == "MemoryError: too large"
    assert "Traceback" in (tmp_path / "errors/two.txt").read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "errors").iterdir()] == ["two.txt"]
    lines = suites.summary(outcomes).splitlines()
    assert [line.split()[0] for line in lines] == ["case", "one", "two", "three"]
    assert lines[2].split(maxsplit=1)[1] == "MemoryError: too large"
    assert "two: MemoryError: too large" in capsys.readouterr().out


def test_a_case_that_succeeds_takes_its_old_error_away(tmp_path):
    session = Session(tmp_path, measures_rates=False)
    suites.run_suite([CASE], session, run=lambda *_: 1 / 0)
    assert (tmp_path / "errors/a-case.txt").exists()
    suites.run_suite([CASE], session, run=lambda case, *_: result_of(case))
    assert not (tmp_path / "errors/a-case.txt").exists()


def test_an_interrupt_ends_the_suite(tmp_path):
    def run(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suites.run_suite([CASE], Session(tmp_path, measures_rates=False), run=run)


def test_no_case_begins_after_the_time_given(tmp_path):
    outcomes = suites.run_suite(
        [CASE, CASE], Session(tmp_path, measures_rates=False), stop_after=0.0, run=lambda case, *_: result_of(case)
    )
    assert [outcome.error for outcome in outcomes] == ["not begun: 0 s were over"] * 2


def test_the_summary_compares_with_what_was_measured_beside():
    peers = [{"tflops": 40.0}, {"error": "absent"}, {"tflops": 25.0}]
    joules = {"joules": [10.0, 30.0, 20.0], "predicted_seconds": None}
    outcomes = [
        suites.Outcome(CASE, result_of(CASE, peers=peers), "", 12.3),
        suites.Outcome(CASE, result_of(CASE, **joules), "", 0.0),
    ]
    _, first, second = suites.summary(outcomes).splitlines()
    for words in ("a-case", "1.5 (-25 %)", "50", "1.000", "1.25 of 40", "0.09", "1.2 %", "12 s"):
        assert words in first
    assert "unknown" in second and f"{3e12 * 20 / 4096**3:.1f}" in second


def test_list_prints_the_cases_and_runs_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "suite", "multi-gpu", "--list", "--no-peers", "--only", "h200x4-residue-163840"]) == 0
    assert capsys.readouterr().out == (
        "h200x4-residue-163840: residue (13 moduli), n = 163840, free memory on cuda:0, cuda:1, cuda:2, cuda:3, device-function; "
        "no peers\n"
    )
    assert list(tmp_path.iterdir()) == []


# meters


class FakeNvml:
    """NVML's counters of one device."""

    def __init__(self, used: list[int]) -> None:
        self.millijoules, self.used, self.clock = 5_000, used, 1980

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return self.millijoules

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=self.used[0] if len(self.used) == 1 else self.used.pop(0))

    def nvmlDeviceGetClockInfo(self, handle, which):
        self.clock -= 100
        return self.clock


def test_a_meter_sums_energy_and_keeps_the_largest_memory_of_each_device(monkeypatch):
    monkeypatch.setattr(meters, "SAMPLE_SECONDS", 0.0)
    first, second = FakeNvml([10, 30, 20]), FakeNvml([100, 101])
    with meters.GpuMeter([(first, None), (second, None)]) as meter:
        meter.sample(1, 2, 0.5)
        meter.sample(2, 2, 1.0)
        first.millijoules, second.millijoules = 8_500, 6_000
    assert meter.figures() == {
        "joules": 4.5, "joules_each": [3.5, 1.0], "device_bytes": 20, "device_bytes_each": [20, 1], "clock_mhz": [1830.0, 1830.0],
    }  # fmt: skip


def test_a_meter_does_not_sample_more_often_than_it_should():
    nvml = FakeNvml([10])
    with meters.GpuMeter([(nvml, None)]) as meter:
        for _ in range(1000):
            meter.sample()
    assert nvml.clock >= 1980 - 2 * 100


def test_the_host_has_no_meter():
    with meters.meter_for(["host:0"]) as meter:
        assert meter.sample is None
    assert meter.figures() == {}


# results


def measured(case: Fp64Case, engine: str, **run) -> Measured:
    """A measurement with two repeats."""
    link = {"source": 0, "fetch": 1, "write": 2, "peer": 3}
    figures = {
        "wall_seconds": 3.0, "setup_seconds": 1.0, "predicted_seconds": 1.9, "exposed_copy_share": 0.0, "budget_bytes": 24 << 20,
        "bytes": {"planned": link, "executed": link},
    } | run  # fmt: skip
    return Measured(
        case=case,
        covariance="exponential",
        runs=[figures | {"seconds": 2.0}, figures | {"seconds": 4.0}],
        engine=engine,
        residual={"max_scaled_over_sqrt_n": 0.1, "floor": 1e-7, "blocks": 200},
        logdet=-1.0,
        ceilings={"dgemm_tflops": {"before": 1.0, "after": 1.0}},
    )


def test_a_result_has_what_its_engine_needs(tmp_path):
    made = measured(replace(CASE, engine="residue", moduli=12), "residue", joules=7.0, clock_mhz=[1800.0]).to_dict()
    assert (made["engine"], made["moduli"]) == ("residue", 12)
    assert made["seconds"] == [2.0, 4.0] and made["tflops"] == pytest.approx(4096**3 / 3e12 / 3.0)
    assert made["joules"] == [7.0, 7.0] and made["clock_mhz"] == [[1800.0], [1800.0]]
    assert made["bytes"]["executed"]["peer"] == 3
    assert made["out_of_core"] and made["peers"] == []
    file = write_json(made, tmp_path / "folder/a-case.json")
    assert json.loads(file.read_text(encoding="utf-8")) == made
    assert [path.name for path in file.parent.iterdir()] == ["a-case.json"]


def test_a_native_result_on_the_host_has_no_moduli_and_no_joules():
    made = measured(CASE, "native").to_dict([{"name": "SciPy dpotrf", "n": 9, "tflops": 1.0}])
    assert not {"moduli", "joules", "device_bytes"} & set(made)
    assert made["peers"][0]["n"] == 9


def test_out_of_core_counts_the_budgets_of_all_devices():
    four = replace(CASE, devices=tuple(f"host:{number}" for number in range(4)))
    budget = CASE.factor_bytes // 4
    assert measured(CASE, "native", budget_bytes=2 * budget).to_dict()["out_of_core"]
    assert not measured(four, "native", budget_bytes=budget).to_dict()["out_of_core"]


def test_auto_is_recorded_as_the_engine_that_ran():
    residues = SimpleNamespace(arithmetic_key={"engine": "residues of 13 moduli"})
    native = SimpleNamespace(arithmetic_key={"engine": "native"})
    auto = replace(CASE, engine="auto")
    assert (engine_of(auto, residues), engine_of(auto, native)) == ("residue", "native")
    assert engine_of(CASE, native) == "native"


# links


def test_links_need_a_gpu(tmp_path):
    with pytest.raises(ValueError, match="host:0 has no links to measure"):
        run_links("links", "host:0", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_many_copies_at_once_are_shown_by_their_range():
    rates = {f"cuda:{number}->cuda:{number + 1}": 390.0 + number for number in range(5)}
    line = describe([{"what": "peer all", "devices": ["cuda:0", "cuda:1"], "gigabytes_per_second": rates}])
    assert line == "peer all  cuda:0, cuda:1: 1960.0 GB/s (5 copies of 390.0 to 394.0)"
