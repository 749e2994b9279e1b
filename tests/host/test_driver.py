"""What ``cholesky`` and ``plan`` promise besides the factor: plans of what will run, files, progress, memory, many callers."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import ooc_chol as oc
from tests.host.matrices import FAMILIES
from tests.host.runs import ENVIRONMENT, budget_of, check_bytes
from tests.inside.calls import progress
from tests.inside.dense import POLICIES, store_opening
from tests.inside.kernels import blas_identity, current_threads
from tests.inside.tasks import Link

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 300, 32
A = FAMILIES["matern15 nugget 1e-6"](N)


def never(rows, cols, out, stream):
    """A tile function that must not be called."""
    raise AssertionError("the plan called the tile function")


# plans


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("store", [None, "L.ooc"])
def test_the_plan_is_what_runs(tmp_path, policy, devices, store):
    store = None if store is None else tmp_path / store
    options = {"tile_size": NB, "memory_budget": budget_of(11, N, NB), "devices": devices, "policy": policy, "store": store}
    plan, same = oc.plan(A, **options), oc.plan(N, **options)
    assert store is None or not store.exists()
    with oc.cholesky(A, **options) as factor:
        report = factor.report
    assert plan.to_dict() == same.to_dict() == report.plan.to_dict()
    assert plan.programs == report.plan.programs
    assert report.bytes.executed == report.bytes.planned == plan.to_dict()["bytes"]
    check_bytes(plan, report.execution)


@pytest.mark.parametrize("tiles", [4, 10, 25])
def test_each_policy_of_the_paper_moves_no_more_than_the_one_before(tiles):
    moved = {}
    for policy in POLICIES:
        report = oc.cholesky(A, tile_size=NB, memory_budget=budget_of(tiles, N, NB), policy=policy).report
        moved[policy] = sum(report.bytes.executed.values())
    assert moved["planned"] <= moved["v3"] <= moved["v2"] <= moved["v1"] < moved["async"] == moved["sync"]


def test_a_plan_touches_nothing():
    before = set(threading.enumerate())
    plan = oc.plan(oc.from_function(10_000, never), tile_size=1000)
    assert plan.link_bytes(Link.SOURCE) == 0 and plan.link_bytes(Link.WRITE) > 0
    assert "function" in str(plan)
    assert set(threading.enumerate()) <= before


def test_a_plan_serves_many_factorizations():
    options = {"tile_size": NB, "devices": 2, "memory_budget": 8 * 8 * NB * NB}
    with oc.cholesky(A, **options) as first:
        plan, expected = first.report.plan, np.asarray(first)
    with oc.cholesky(A, plan=plan) as second, oc.cholesky(4.0 * A, plan=plan, host_budget="1 GiB") as scaled:
        assert second.report.plan is plan
        np.testing.assert_array_equal(np.asarray(second), expected)
        np.testing.assert_array_equal(np.asarray(scaled), 2.0 * expected)


def test_a_plan_of_another_matrix_or_beside_options_is_refused():
    plan = oc.plan(A, tile_size=NB)
    with pytest.raises(ValueError, match=r"order 300 .* order 299"):
        oc.cholesky(A[1:, 1:], plan=plan)
    with pytest.raises(ValueError, match=r"kind 'array'.*kind 'function'"):
        oc.cholesky(oc.from_function(N, never), plan=plan)
    with pytest.raises(ValueError, match="policy='planned', but 'v3'"):
        oc.cholesky(A, plan=plan, tile_size=NB, policy="v3")
    oc.cholesky(A, plan=plan, tile_size=NB, policy="planned").close()
    with pytest.raises(ValueError, match="to both, or to neither"):
        oc.cholesky(A, precision_threshold=1e-5, plan=plan)


def test_sizes_may_be_numpy_integers():
    how = {"tile_size": 50, "memory_budget": "1 GiB"}  # not what is free, which changes from call to call
    assert oc.plan(np.int64(100), **how).to_dict() == oc.plan(100, **how).to_dict()


@pytest.mark.parametrize(
    ("text", "expected"), [("1 MB", 1_000_000), ("1 MiB", 1 << 20), (999_999, 999_999), ("0.5 GB", 500_000_000)]
)
def test_budgets_may_be_written(text, expected):
    assert oc.plan(100, tile_size=50, memory_budget=text).budgets[0].budget_bytes == expected


def test_the_default_budget_is_half_of_the_free_memory_or_less():
    budget = oc.plan(2000).budgets[0]
    assert (
        budget.n_slots * budget.slot_bytes <= budget.budget_bytes < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    )
    assert oc.plan(2000).peak_bytes < 2 * 8 * 2000**2, "a small matrix takes no more than it needs"


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        (None, ["host:0"]),
        (1, ["host:0"]),
        (3, ["host:0", "host:1", "host:2"]),
        ("host:7", ["host:7"]),
        (("host:2", "host:0"), ["host:2", "host:0"]),
        (np.array(["host:5"]).tolist(), ["host:5"]),
    ],
)
def test_devices_may_be_names_or_a_count(devices, names):
    factor = oc.cholesky(A, tile_size=NB, devices=devices)
    assert list(factor.report.plan.devices) == names
    assert {record.device for record in factor.report.execution.records} == set(names)


# reports


@pytest.mark.parametrize("threshold", [None, 1e-4])
@pytest.mark.parametrize("tile_size", [NB, N])
def test_the_report_tells_what_the_caller_waited_for(threshold, tile_size):
    shares = []
    for _ in range(5):
        began = time.perf_counter()
        factor = oc.cholesky(A, precision_threshold=threshold, tile_size=tile_size)
        wall = time.perf_counter() - began
        report = factor.report
        seconds = report.seconds
        assert 0 < report.inside_seconds < seconds.total <= wall
        assert sum(seconds.parts.values()) == pytest.approx(seconds.total) and seconds.parts["setup"] > 0
        shares.append(report.seconds.total / wall)
    assert max(shares) > 0.5, "what no report tells is little, unless the machine was busy each time"
    assert report.wall_tflops == pytest.approx(N**3 / 3 / report.seconds.total / 1e12)
    figures = report.to_dict()
    assert (figures["seconds"]["total"], figures["wall_tflops"]) == (report.seconds.total, report.wall_tflops)


@pytest.mark.parametrize(("speed", "unit"), [(1.0, "GFLOP/s"), (1e-9, "TFLOP/s")])
def test_the_printed_report_begins_with_the_whole_call(speed, unit):
    report = oc.cholesky(A, tile_size=NB).report
    execution = replace(report.execution, seconds=report.execution.seconds * speed)
    report = replace(report, execution=execution, total_seconds=report.total_seconds * speed)
    line = str(report).splitlines()[1]
    found = re.fullmatch(
        r"  seconds    (\S+) for the whole call \((\S+) (\S+)\); (\S+) inside \((\S+) (\S+)\), none predicted .*", line
    )
    assert found is not None and found[3] == found[6] == unit
    scale = 1e3 if unit == "GFLOP/s" else 1.0
    figures = report.seconds.total, report.wall_tflops * scale, report.inside_seconds, report.tflops * scale
    assert [float(found[at]) for at in (1, 2, 4, 5)] == pytest.approx(figures, rel=5e-3)


def test_the_report_sets_measured_beside_planned():
    factor = oc.cholesky(A, tile_size=NB, memory_budget=budget_of(11, N, NB))
    report = factor.report
    assert report.inside_seconds > 0 and report.seconds.parts["setup"] > 0
    assert report.tflops == pytest.approx(N**3 / 3 / report.inside_seconds / 1e12)
    assert 0 <= report.exposed_copy_share <= 1
    figures = json.loads(json.dumps(report.to_dict()))
    assert (figures["n"], figures["tile_size"], figures["devices"], figures["policy"]) == (N, NB, ["host:0"], "planned")
    assert figures["bytes"]["planned"] == figures["bytes"]["executed"]
    assert figures["seconds"]["predicted"] is None
    assert figures["peak_bytes"] <= figures["budget_bytes"] == budget_of(11, N, NB)
    page = str(report)
    for word in ("n = 300", "host:0", "GFLOP/s", "none predicted", "planned", "bound", "peak", "exposed"):
        assert word in page
    assert factor.trace is None


def test_the_arithmetic_key_says_what_the_bits_depend_on():
    key = oc.cholesky(A, tile_size=NB).arithmetic_key
    assert (key["n"], key["nb"], key["formats"], key["engine"], key["device_model"]) == (N, NB, "fp64", "native", "host")
    assert key["threads_per_call"] == 1
    assert all(part in key["library"] for part in blas_identity().values())
    for absent in ("memory_budget", "policy", "devices", "panels", "store"):
        assert absent not in key


# files


def test_a_file_appears_under_its_name_only_when_it_is_complete(tmp_path):
    path, seen = tmp_path / "L.ooc", []

    def progress(done, total, seconds):
        seen.append(sorted(os.listdir(tmp_path)))

    factor = oc.cholesky(A, tile_size=NB, store=path, progress=progress)
    assert seen and all(names == ["L.ooc.partial"] for names in seen)
    assert os.listdir(tmp_path) == ["L.ooc"]
    dense, key = np.asarray(factor), factor.arithmetic_key
    factor.close()
    with oc.load(path) as loaded:
        assert np.array_equal(np.asarray(loaded), dense)
        assert loaded.arithmetic_key == key


def test_a_file_replaces_the_one_of_an_earlier_run(tmp_path):
    path = tmp_path / "L.ooc"
    with oc.cholesky(np.eye(4), store=path), oc.cholesky(A, tile_size=NB, store=str(path)) as second:
        expected = np.asarray(second)
    with oc.load(path) as loaded:
        assert np.array_equal(np.asarray(loaded), expected)


def test_overwriting_needs_no_memory_for_l():
    a = np.array(A)
    factor = oc.cholesky(a, tile_size=NB, overwrite=True)
    assert np.array_equal(np.tril(a), np.asarray(factor))
    assert np.array_equal(np.triu(a, 1), np.triu(A, 1))
    factor.close()
    assert np.array_equal(np.tril(a), np.asarray(oc.cholesky(A, tile_size=NB)))


def test_the_source_is_closed_after_the_run(tmp_path):
    np.save(tmp_path / "a.npy", A)
    before = len(os.listdir("/proc/self/fd"))
    for options in ({}, {"store": tmp_path / "L.ooc"}):
        factor = oc.cholesky(tmp_path / "a.npy", tile_size=NB, **options)
        factor.solve(np.ones(N))
        factor.close()
    with pytest.raises(oc.BudgetError):
        oc.cholesky(tmp_path / "a.npy", memory_budget=1)
    oc.plan(tmp_path / "a.npy")
    assert len(os.listdir("/proc/self/fd")) == before


# progress


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_a_progress_function_hears_of_all_work_in_order(devices):
    calls = []
    factor = oc.cholesky(A, tile_size=NB, devices=devices, progress=lambda *call: calls.append((*call, threading.get_ident())))
    done, totals, seconds, threads = zip(*calls, strict=True)
    assert len(calls) > 5
    assert list(done) == sorted(done) and done[0] > 0 and done[-1] <= totals[-1]
    assert done[-1] > 0.9 * totals[-1]
    assert set(totals) == {factor.report.plan.flops}
    assert list(seconds) == sorted(seconds) and seconds[-1] < 60
    assert set(threads) == {threading.get_ident()}, "it is called on the thread that called cholesky"


def test_one_worker_reports_the_very_end():
    calls = []
    oc.cholesky(A, tile_size=NB, progress=lambda done, total, seconds: calls.append(done / total))
    assert calls[-1] == 1.0


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self):
        return True


def test_progress_true_draws_a_bar_and_clears_it(monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", shown := Terminal())
        oc.cholesky(A, tile_size=NB, progress=True)
    assert capsys.readouterr() == ("", "") and "cholesky" in shown.getvalue() and "\n" not in shown.getvalue()


def test_progress_in_a_file_is_a_line_now_and_then(monkeypatch, capsys):
    """Without a terminal: none of a short call, and whole lines of a longer one, each after the pause."""
    oc.cholesky(A, tile_size=NB, progress=True)
    assert capsys.readouterr() == ("", "")
    with monkeypatch.context() as patch:
        patch.setattr(progress, "_LINE_SECONDS", 0.0)
        oc.cholesky(A, tile_size=NB, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 3 and all(re.fullmatch(r"cholesky: \d+%, \d+ s", line) for line in lines) and "100%" in lines[-1]


@pytest.mark.parametrize("writes", [0, 1, 2, 5])
def test_a_bar_that_nobody_reads_any_more_does_not_end_the_run(monkeypatch, writes):
    """The pipe of the error stream breaks: ``2>&1 | head``."""

    class Pipe(io.StringIO):
        left = writes

        def write(self, text):
            self.left -= 1
            if self.left < 0:
                raise BrokenPipeError(32, "Broken pipe")
            return super().write(text)

        def flush(self):
            self.write("")

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Pipe())
        factor = oc.cholesky(A, tile_size=NB, progress=True)
    assert np.array_equal(np.asarray(factor), np.asarray(oc.cholesky(A, tile_size=NB)))


@pytest.mark.parametrize("quiet", [None, False])
def test_no_progress_is_silent(capsys, quiet):
    oc.cholesky(A, tile_size=NB, progress=quiet)
    assert capsys.readouterr() == ("", "")


# many callers


def test_several_runs_at_once_from_different_threads(tmp_path):
    names = list(FAMILIES)
    expected = {name: np.asarray(oc.cholesky(FAMILIES[name](N), tile_size=NB)) for name in names}

    def run(number: int) -> bool:
        name = names[number % len(names)]
        options = {"store": tmp_path / f"{number}.ooc"} if number % 2 else {}
        with oc.cholesky(
            FAMILIES[name](N), tile_size=NB, memory_budget=budget_of(3 + number, N, NB), devices=1 + number % 3, **options
        ) as factor:
            check_bytes(factor.report.plan, factor.report.execution)
            return np.array_equal(np.asarray(factor), expected[name])

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(run, range(24)))


def test_a_run_inside_the_tile_function_of_another():
    """Runs share nothing, so that even this is no deadlock."""

    def tile(rows, cols, out, stream):
        inner = oc.cholesky(A[: len(rows), : len(rows)], tile_size=8)
        assert np.isfinite(inner.logdet())
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]

    outer = oc.cholesky(oc.from_function(N, tile), tile_size=100)
    assert np.array_equal(np.asarray(outer), np.asarray(oc.cholesky(A, tile_size=100)))


def test_errors_of_one_run_do_not_reach_another():
    bad = A.copy()
    bad[200, 200] = -1.0
    expected = np.asarray(oc.cholesky(A, tile_size=NB))

    def run(number: int) -> bool:
        if number % 2:
            with pytest.raises(oc.NotPositiveDefiniteError) as caught:
                oc.cholesky(bad, tile_size=NB, devices=2)
            return caught.value.minor == 201
        return np.array_equal(np.asarray(oc.cholesky(A, tile_size=NB, devices=2)), expected)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(16)))


def test_runs_at_once_leave_the_number_of_blas_threads_as_it_was():
    """Each sets one thread for several workers; the last to end restores what the first one found."""
    with threadpool_limits(limits=2, user_api="blas"):
        with ThreadPoolExecutor(4) as pool:
            keys = list(pool.map(lambda devices: oc.cholesky(A, tile_size=NB, devices=devices).arithmetic_key, [2, 3] * 8))
        assert current_threads() == 2
    assert {key["threads_per_call"] for key in keys} == {1}


# memory


def anonymous_bytes() -> int:
    """Anonymous resident memory of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        return int(dict(line.split(":", 1) for line in file)["RssAnon"].split()[0]) * 1024


def test_nothing_of_a_run_stays_in_memory_and_no_garbage_collection_is_needed():
    a = FAMILIES["exponential"](1000)
    gc.collect()
    gc.disable()
    try:
        resident = []
        for _ in range(6):
            oc.cholesky(a, tile_size=250, memory_budget="20 MB").close()
            resident.append(anonymous_bytes())
    finally:
        gc.enable()
    assert resident[-1] - resident[1] < 4_000_000  # an arena has 5 MB, and so has L


#: Runs in a process of its own, so that the peak is that of the run: prints the bytes before and the largest ones during it.
_MEASURE = """
import sys, threading, time
import numpy as np
import ooc_chol as oc

def anonymous():
    with open("/proc/self/status", encoding="ascii") as file:
        return int(dict(line.split(":", 1) for line in file)["RssAnon"].split()[0]) * 1024

def watch():
    while not done.wait(0.002):
        peak[0] = max(peak[0], anonymous())

matrix, store, budget, n, nb = sys.argv[1:]

def tile(rows, cols, out, stream):
    np.subtract.outer(np.asarray(rows, dtype=float), np.asarray(cols, dtype=float), out=out)
    np.abs(out, out=out)
    np.multiply(out, -1.0 / 300.0, out=out)
    np.exp(out, out=out)

source = oc.from_function(int(n), tile) if matrix == "function" else matrix
oc.cholesky(oc.from_function(600, tile), tile_size=128, memory_budget=2_000_000).close()  # modules are imported at first use
before, peak, done = anonymous(), [0], threading.Event()
watcher = threading.Thread(target=watch)
watcher.start()
factor = oc.cholesky(source, tile_size=int(nb), memory_budget=int(budget), store=store)
done.set()
watcher.join()
assert factor.report.bytes.executed == factor.report.bytes.planned
print(before, max(peak[0], anonymous()), factor.logdet())
"""

#: What a run takes beside its budget: OpenBLAS's buffers, touched as far as a kernel packs, the plan and its events, the stacks
#: of threads, and modules that are imported. Measured with one BLAS thread: 4 MB.
CONSTANT_BYTES = 17_000_000


@pytest.mark.parametrize("kind", ["file", "function"])
@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_memory_stays_within_the_budget_and_a_constant(tmp_path, kind):
    n, nb, budget = 4096, 256, 16 << 20
    matrix = "function"
    if kind == "file":
        matrix = str(tmp_path / "a.npy")
        write_matrix(Path(matrix), n)
    command = [sys.executable, "-c", _MEASURE, matrix, str(tmp_path / "L.ooc"), str(budget), str(n), str(nb)]
    out = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=120).stdout.split()
    before, peak, logdet = int(out[0]), int(out[1]), float(out[2])
    stored = os.path.getsize(tmp_path / "L.ooc")
    print(f"{kind}: {(peak - before - budget) / 1e6:.1f} MB above the budget")
    assert peak - before <= 1.15 * budget + CONSTANT_BYTES
    assert stored > 1.5 * (1.15 * budget + CONSTANT_BYTES), "L would fit into what is allowed: the test could not fail"
    # A is that of an AR(1) process: det = (1 - rho^2)^(n - 1).
    assert logdet == pytest.approx((n - 1) * np.log1p(-np.exp(-2.0 / 300.0)), rel=1e-10)


def write_matrix(path: Path, n: int) -> None:
    """Write ``exp(-|i - j| / 300)`` by rows, without ever holding it."""
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, n))
    columns = np.arange(n, dtype=float)
    for first in range(0, n, 256):
        rows = columns[first : first + 256]
        out[first : first + 256] = np.exp(-np.abs(np.subtract.outer(rows, columns)) / 300.0)
    out.flush()
    del out


@pytest.mark.parametrize("options", [{}, {"fp64": "residue"}, {"precision_threshold": 1e-4}, {"devices": ["host:0", "host:1"]}])
def test_a_run_leaves_no_cycles_that_hold_devices_or_stores(options):
    """What a collector must find first keeps its memory until then, and may be freed where a device's memory may not be."""
    a = np.eye(300) + 0.001
    gc.collect()
    gc.disable()
    try:
        oc.cholesky(a, **({"tile_size": 32, "devices": "host:0"} | options)).close()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(found).__qualname__ for found in gc.garbage if type(found).__module__.startswith("ooc_chol")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("threshold", [None, 1e-4])
def test_the_garbage_collector_rests_during_a_run_and_only_then(fails, threshold):
    enabled = []

    def tile(rows, cols, out, stream):
        enabled.append(gc.isenabled())
        if fails:
            raise RuntimeError("no entries today")
        np.subtract.outer(np.arange(rows.start, rows.stop), np.arange(cols.start, cols.stop), out=out, casting="unsafe")
        np.exp(-np.abs(out), out=out)

    assert gc.isenabled()
    if fails:
        with pytest.raises(RuntimeError, match="no entries today"):
            oc.cholesky(oc.from_function(100, tile), precision_threshold=threshold, tile_size=32, devices="host:0")
    else:
        oc.cholesky(oc.from_function(100, tile), precision_threshold=threshold, tile_size=32, devices="host:0").close()
    assert enabled and not any(enabled)
    assert gc.isenabled()
    gc.disable()
    try:
        oc.cholesky(np.eye(10)).close()
        assert not gc.isenabled()  # who switched it off keeps it off
    finally:
        gc.enable()


# memory that is used again


def test_one_memory_serves_one_factor_after_the_other():
    with oc.HostMemory() as memory:
        with oc.cholesky(A, tile_size=NB, store=memory) as factor:
            first, size = np.asarray(factor), memory.nbytes
            with pytest.raises(ValueError, match="that is open: close that first"):
                oc.cholesky(A, tile_size=NB, store=memory)
        with oc.cholesky(4.0 * A[:200, :200], tile_size=NB, store=memory) as factor:
            np.testing.assert_array_equal(np.asarray(factor), 2.0 * first[:200, :200])
        assert memory.nbytes == size
    assert memory.nbytes == 0


def test_a_memory_is_free_again_when_its_factor_is_forgotten_or_failed():
    memory = oc.HostMemory()
    with pytest.raises(oc.NotPositiveDefiniteError):
        oc.cholesky(-np.eye(50), store=memory)
    factor = oc.cholesky(np.eye(50), store=memory)
    assert factor.logdet() == 0.0
    del factor
    gc.collect()
    with oc.cholesky(np.eye(60), store=memory) as factor:
        assert factor.logdet() == 0.0


def test_memory_that_is_there_counts_as_free(monkeypatch):
    with oc.HostMemory() as memory:
        oc.cholesky(A, tile_size=NB, store=memory).close()
        monkeypatch.setattr(store_opening, "free_host_bytes", lambda: 5 * 8 * NB * NB)
        with pytest.raises(oc.BudgetError, match="host memory for L"):
            oc.cholesky(A, tile_size=NB, memory_budget=3 * 8 * NB * NB + 3 * 4096)
        oc.cholesky(A, tile_size=NB, memory_budget=3 * 8 * NB * NB + 3 * 4096, store=memory).close()
