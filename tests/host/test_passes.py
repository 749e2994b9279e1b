"""Passes beside the factorization in trace and report: what they say was read is what the store was asked for, byte by byte."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import device_solver
from tests.host.clock import Clock
from tests.host.counted_reads import tell_reads
from tests.host.device_solves import budget_for, stored
from tests.host.turns import in_turn
from tests.inside.dense import conditioning, inverse_diagonal, solve
from tests.inside.precision import FP64, PROBES
from tests.inside.runtime import Passes
from tests.inside.runtime import passes as passes_module
from tests.inside.schedulers import TriangularScheduler
from tests.inside.tasks import TileGrid
from tests.plan.perfetto_files import read

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 200, 48
DISTANCE = np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
A = np.exp(-DISTANCE / 20.0) + 0.1 * np.eye(N)
GRID = TileGrid(N, NB)
B = np.random.default_rng(0).standard_normal((N, 5))


def entries(rows, cols, out, stream):
    """A tile function of anything."""
    np.add.outer(np.asarray(rows, float), np.asarray(cols, float), out=out)


SOURCE = oc.from_function(N + 3, entries)
USES = {
    "solve": lambda factor: factor.solve(B),
    "half solve": lambda factor: factor.half_solve(B, transposed=True),
    "product with L": lambda factor: factor.matmul(B),
    "inverse diagonal": lambda factor: factor.inverse_diagonal(7),
    "inverse panels": lambda factor: list(factor.inverse_panels(60)),
    "inverse traces": lambda factor: factor.inverse_traces([oc.from_function(N, entries)]),
    "half-solve sums": lambda factor: factor.half_solve_sums(SOURCE, range(N, N + 3), B, width=2),
}


@pytest.fixture
def reads(monkeypatch):
    """Stored bytes of every tile that a file was asked for, by thread."""
    found: list[int] = []
    tell_reads(monkeypatch, lambda layout, index: found.append(layout.nbytes(*index)))
    return found


@pytest.fixture
def unlooked(monkeypatch):
    """No first solve takes others to look at the condition."""
    monkeypatch.setattr(conditioning, "_ALWAYS_LOOKED_AT", 0)


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize(("title", "threshold"), in_turn(USES, [None, 1e-4]))
def test_bytes_of_a_pass_are_those_that_the_file_was_asked_for(title, threshold, tmp_path, reads):
    with oc.cholesky(
        A, precision_threshold=threshold, tile_size=NB, devices="host:0", store=tmp_path / "L", trace=True
    ) as factor:
        factor.diagonal()  # kept: the first solve looks at it
        before, earlier = factor.trace.passes, factor.report.passes.totals
        reads.clear()
        USES[title](factor)
        after = factor.trace.passes[len(before) :]
    fetches = [record for record in after if record.kind == "fetch"]
    assert len(fetches) == len(reads) > 0
    assert Counter(record.nbytes for record in fetches) == Counter(reads)
    assert {(record.device, record.stream, record.link) for record in fetches} == {("host:0", "solve copy-in", "store->host:0")}
    totals = factor.report.passes.totals
    assert totals[title].nbytes == sum(reads) and totals[title].calls == 1 and totals[title].seconds > 0.0
    assert {name: totals[name] for name in earlier} == earlier and set(totals) - set(earlier) == {title}
    # every tile that was read was computed with, behind its reading
    by_step = {record.step: record for record in after}
    computed = [record for record in after if record.kind == "compute"]
    assert len(computed) == len(fetches) and len(by_step) == len(after)
    for record in computed:
        ((_, fetched),) = record.after
        assert by_step[fetched].block == record.block and by_step[fetched].end_ns <= record.start_ns


def test_tiles_in_memory_are_used_in_place_and_counted():
    with oc.cholesky(A, tile_size=NB, devices="host:0", trace=True) as factor:
        assert factor.trace.passes == () and "passes" not in str(factor.report)
        factor.half_solve(B)
        records = factor.trace.passes
        assert [(record.kind, record.label, record.link) for record in records] == [
            ("compute", f"half solve {tuple(index)}", "") for index in TriangularScheduler().schedule(GRID).tasks[0]
        ]
        # a triangle with five columns: the diagonal tiles count whole
        assert sum(record.flops for record in records) == 5 * N * N
        nbytes = sum(8 * GRID.entries(*index) for index in GRID.tiles())
        assert factor.report.passes.totals["half solve"][:2] == (1, 5)
        assert factor.report.passes.totals["half solve"].nbytes == nbytes
        assert factor.report.to_dict()["passes"]["half solve"]["nbytes"] == nbytes
        assert "passes     half solve: 1 call, 5 columns, " in str(factor.report)
        run_ends = max(record.end_ns for record in factor.trace.records)
        assert all(run_ends <= record.start_ns <= record.end_ns for record in records)
        assert all(one.end_ns <= two.start_ns for one, two in itertools.pairwise(records))


@pytest.mark.parametrize("fits", [True, False])
def test_bytes_of_a_pass_on_a_device(fits, tmp_path):
    _, store = stored("file", N, NB, tmp_path)
    asked: list[tuple[int, int]] = []
    original = store.read
    store.read = lambda index, out: (asked.append(tuple(index)), original(index, out))[1]  # type: ignore[method-assign]
    ours, passes = device_solver("host:0", 1 << 24 if fits else budget_for("host:0", store, 3)), Passes(is_traced=True)
    with passes.running("solve", 5) as run:
        solve(ours, store, B.copy(), transposed=(False, True), run=run)
    with passes.running("inverse diagonal", N) as run:
        inverse_diagonal(ours, store, 40, run)
    store.close()
    fetches = [record for record in passes.records if record.kind == "fetch"]
    assert sorted(record.label for record in fetches) == sorted(f"fetch {index}" for index in asked)
    assert sum(record.nbytes for record in fetches) == sum(FP64.itemsize * GRID.entries(*index) for index in asked)
    assert sum(total.nbytes for total in passes.totals.values()) == sum(record.nbytes for record in fetches)
    # twice all of L where it fits; else a group of 3 columns and one of 2 take it forward and back, and the inverse some of it
    assert len(asked) == 2 * GRID.n_tiles if fits else len(asked) > 4 * GRID.n_tiles
    assert {record.stream for record in passes.records} == {"solve", "solve copy-in"}
    by_step = {record.step: record for record in passes.records}
    assert len(by_step) == len(passes.records)
    for record in passes.records:
        assert all(by_step[step].end_ns <= record.start_ns for _, step in record.after)
    computed = [record for record in passes.records if record.kind == "compute"]
    assert all(record.after for record in computed)
    # slots in transit wait for the tile that was in them
    assert fits or any(record.after for record in fetches)


def test_norms_and_certificate_are_passes(tmp_path):
    with oc.cholesky(
        A, precision_threshold=1e-4, tile_size=NB, devices="host:0", memory_budget="2 MiB", store=tmp_path / "L", trace=True
    ) as factor:
        trace, totals, report = factor.trace, factor.report.passes.totals, factor.report
        precision = report.plan.precision
    assert not report.plan.probe_arrays  # there is no room for the vectors beside the run
    assert list(totals) == ["norms of A", "certificate"] and not report.escalations
    assert totals["norms of A"].nbytes == sum(8 * GRID.entries(*index) for index in GRID.tiles())
    stored_bytes = [fmt.stored_bytes(GRID.entries(*index)) for index, fmt in zip(GRID.tiles(), precision.formats, strict=True)]
    assert totals["certificate"].nbytes == sum(stored_bytes) < totals["norms of A"].nbytes
    assert totals["norms of A"].columns == totals["certificate"].columns == 2 * PROBES
    by_link = Counter()
    for record in trace.passes:
        by_link[record.link] += record.nbytes
    assert by_link["source->host:0"] == totals["norms of A"].nbytes and by_link["store->host:0"] == sum(stored_bytes)
    run = [min(record.start_ns for record in trace.records), max(record.end_ns for record in trace.records)]
    assert all(record.end_ns <= run[0] for record in trace.passes if record.block.startswith("A"))
    assert all(record.start_ns >= run[1] for record in trace.passes if record.block.startswith("L"))


def test_a_tile_function_makes_tiles_in_the_pass_over_a():
    def tile(rows, cols, out, stream):
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]

    with oc.cholesky(oc.from_function(N, tile), precision_threshold=1e-4, tile_size=NB, devices="host:0", trace=True) as factor:
        kinds = Counter(record.kind for record in factor.trace.passes if record.block.startswith("A"))
        assert kinds == {"generate": GRID.n_tiles, "compute": GRID.n_tiles}
        assert factor.report.passes.totals["norms of A"].nbytes == 0


def test_a_saved_trace_shows_passes_in_a_group_of_their_own(tmp_path):
    with oc.cholesky(A, tile_size=NB, devices="host:0", trace=True) as factor:
        alone = read(factor.trace.save(tmp_path / "run.pftrace"))
        summary = factor.trace.summary()
        for use in USES.values():
            use(factor)
        both = read(factor.trace.save(tmp_path / "run.pftrace"))
        assert factor.trace.summary() == summary
        records = factor.trace.passes
    assert alone.groups == ["host:0 measured"]
    assert both.groups == ["host:0 measured", "host:0 passes"]
    for key, slices in alone.slices.items():
        assert both.slices[key] == slices
    drawn = both.slices["host:0 passes", "solve"]
    assert [(entry.name, entry.notes["step"]) for entry in drawn] == [(record.label, record.step) for record in records]


def test_a_prediction_begins_where_the_run_does(tmp_path):
    with oc.cholesky(A, precision_threshold=1e-4, tile_size=NB, devices="host:0", trace=True) as factor:
        trace = factor.trace
    predicted = tuple(
        record._replace(start_ns=record.start_ns - origin, end_ns=record.end_ns - origin)
        for origin in [min(record.start_ns for record in trace.records)]
        for record in trace.records
    )
    found = read(oc.tracing.Trace(trace.records, predicted, {}, trace.passes).save(tmp_path / "run.pftrace"))
    groups = {
        name: {
            stream: [(entry.name, entry.start_ns, entry.end_ns) for entry in slices]
            for (group, stream), slices in found.slices.items()
            if group == f"host:0 {name}"
        }
        for name in ("measured", "predicted")
    }
    assert groups["measured"] == groups["predicted"] and len(groups["measured"]) >= 3
    assert min(entry.start_ns for key, each in found.slices.items() if key[0] == "host:0 passes" for entry in each) == 0
    assert min(entry.start_ns for key, each in found.slices.items() if key[0] == "host:0 measured" for entry in each) > 0


def test_without_a_trace_there_are_sums_and_no_records(tmp_path):
    with oc.cholesky(A, precision_threshold=1e-4, tile_size=NB, devices="host:0", store=tmp_path / "L") as factor:
        factor.solve(B)
        assert factor.trace is None
        assert factor.report.passes.records == ()
        assert list(factor.report.passes.totals) == ["norms of A", "solve"]
        factor.save(tmp_path / "again")
    with oc.load(tmp_path / "again") as loaded:
        loaded.solve(B)
        assert loaded.trace is loaded.report is None


@pytest.mark.usefixtures("unlooked")
def test_passes_of_several_threads_all_count(tmp_path):
    with oc.cholesky(A, tile_size=NB, devices="host:0", store=tmp_path / "L", trace=True) as factor:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: factor.solve(B), range(16)))
        totals, trace = factor.report.passes.totals["solve"], factor.trace
    records = trace.passes
    assert totals[:2] == (16, 80)
    assert totals.nbytes == 16 * 2 * sum(8 * GRID.entries(*index) for index in GRID.tiles())
    assert sum(record.nbytes for record in records) == totals.nbytes
    assert sorted(record.step for record in records) == list(range(len(records)))
    # solves at once have streams of their own: no operation of a stream overlaps the next one
    streams = {record.stream for record in records}
    assert {"solve", "solve copy-in"} <= streams
    for stream in streams:
        ran = sorted((record.start_ns, record.end_ns) for record in records if record.stream == stream)
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(ran))
    rates = read(trace.save(tmp_path / "run.pftrace")).counters["host:0 passes", "store->host:0"]
    assert min(value for _, value in rates) == 0.0 < max(value for _, value in rates)


class Collects:
    """A track that collects garbage when its bytes are asked for, as any new object may."""

    device = "host:0"

    @property
    def nbytes(self) -> int:
        gc.collect()
        return 7

    def records(self, first: int) -> list[object]:
        return []


def left_in_a_circle(passes: Passes) -> None:
    """Start a pass whose generator nobody holds, but for itself."""

    def panels(circle: list[object]) -> Iterator[None]:
        with passes.running("inverse panels"):
            yield

    circle: list[object] = []
    circle.append(panels(circle))
    next(circle[0])


def test_garbage_that_is_collected_while_a_pass_is_added_is_a_pass_too():
    passes = Passes(is_traced=True)
    gc.disable()
    gc.freeze()  # what other tests left is no garbage now, and costs no time
    try:
        left_in_a_circle(passes)
        with passes.running("solve") as run:
            run.tracks.append(Collects())
    finally:
        gc.unfreeze()
        gc.enable()
    assert {title: total[::3] for title, total in passes.totals.items()} == {"solve": (1, 7), "inverse panels": (1, 0)}


FORKS = """
import os, signal, threading
import numpy as np
import ooc_chol as oc
factor = oc.cholesky(np.eye(8), devices="host:0")
b = np.ones(8)
def use():
    while True:
        factor.report.passes.totals
for _ in range(2):
    threading.Thread(target=use, daemon=True).start()
for _ in range(40):
    if (child := os.fork()) == 0:
        signal.alarm(20)
        factor.half_solve(b)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child hangs"
print("done", flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.usefixtures("processes")
def test_a_fork_while_another_thread_adds_leaves_the_child_able_to_solve():
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True, text=True, check=False)
    assert run.stdout == "done\n", run.stderr


def test_time_between_panels_is_the_callers(monkeypatch):
    passes, clock = Passes(), Clock()
    monkeypatch.setattr(passes_module, "time", clock)
    with passes.running("inverse panels") as run:
        clock.seconds += 2.0
        with run.paused():
            clock.seconds += 5.0
        clock.seconds += 1.0
    assert passes.totals["inverse panels"].seconds == 3.0


@pytest.mark.parametrize("first", [0, 1, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_triangular_orders_can_run(first, transposed):
    (order,) = TriangularScheduler(first, transposed=transposed).schedule(GRID).tasks
    assert sorted(order) == sorted(index for index in GRID.tiles() if index.j >= first)
    final, left = set(), Counter(min(index) if transposed else max(index) for index in order)
    for i, j in order:
        source, target = (i, j) if transposed else (j, i)
        left[target] -= 1
        if i == j:
            assert left[target] == 0, "a row is solved for once nothing more is taken out of it"
            final.add(i)
        else:
            assert source in final
    assert final == set(range(first, GRID.nt))
