"""The trace of a real run, read again with protobuf: every step, wait, arrow and counter of it, beside the prediction."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.matrices import FAMILIES
from tests.host.runs import budget_of, check_bytes
from tests.inside.dense import STREAM_ROLES, measuring
from tests.inside.tasks import STREAM_NAMES, Link, StepKind, step_key
from tests.plan.perfetto_files import read

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 400, 64
A = FAMILIES["matern15 nugget 1e-6"](N)
KINDS = {kind: kind.name.lower() for kind in StepKind}


def tile(rows, cols, out, stream):
    """The tile function of A."""
    out[...] = A[rows.start : rows.stop, cols.start : cols.stop]


def traced(tiles=9, source=A, **options) -> oc.CholeskyFactor:
    factor = oc.cholesky(source, tile_size=NB, memory_budget=budget_of(tiles, N, NB), trace=True, **options)
    check_bytes(factor.report.plan, factor.report.execution)
    return factor


RUNS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"tiles": 3},
        {"devices": 3},
        {"policy": "sync"},
        {"policy": "sync", "devices": 2},
        {"source": oc.from_function(N, tile)},
    ],
    ids=["planned", "three tiles", "three workers", "sync", "sync, two workers", "function"],
)


@RUNS
def test_every_step_of_the_plan_is_a_slice(tmp_path, options):
    factor = traced(**options)
    plan = factor.report.plan
    found = read(factor.trace.save(tmp_path / "run.pftrace"))
    for name, program in zip(plan.devices, plan.programs, strict=True):
        for number, stream in enumerate(STREAM_NAMES):
            expected = [
                (step.label, KINDS[step.kind], position) for position, step in enumerate(program.steps) if step.stream == number
            ]
            slices = found.slices.get((f"{name} measured", stream), [])
            assert [(entry.name, entry.category, entry.notes["step"]) for entry in slices] == expected
            assert all(first.end_ns <= second.start_ns for first, second in itertools.pairwise(slices))
    assert found.groups == [f"{name} measured" for name in plan.devices]
    assert sum(len(program.steps) for program in plan.programs) == len(factor.trace.records)


@RUNS
def test_arrows_lead_from_what_was_waited_for(tmp_path, options):
    factor = traced(**options)
    plan = factor.report.plan
    found = read(factor.trace.save(tmp_path / "run.pftrace"))
    by_step = {
        (key[0], entry.notes["step"]): entry
        for key, entries in found.slices.items()
        for entry in entries
        if "step" in entry.notes
    }
    source = {flow: step for step, entry in by_step.items() for flow in entry.leaving}
    arrows = Counter((source[flow], step) for step, entry in by_step.items() for flow in entry.reaching)
    written = {
        step.block: (f"{name} measured", position)
        for name, program in zip(plan.devices, plan.programs, strict=True)
        for position, step in enumerate(program.steps)
        if step.kind is StepKind.WRITE
    }
    written |= {
        step_key(number, position): (f"{name} measured", position)
        for number, (name, program) in enumerate(zip(plan.devices, plan.programs, strict=True))
        for position in range(len(program.steps))
    }
    expected: Counter = Counter()
    for name, program in zip(plan.devices, plan.programs, strict=True):
        for position, step in enumerate(program.steps):
            producers = {(f"{name} measured", earlier) for earlier in step.waits}
            producers |= {written[key] for key in step.awaits}
            expected.update((producer, (f"{name} measured", position)) for producer in producers)
    assert arrows == expected and arrows
    assert all(by_step[first].end_ns <= by_step[second].start_ns for first, second in arrows), "an arrow leads back in time"


@RUNS
def test_the_counters_stay_within_the_budget_and_carry_the_planned_bytes(tmp_path, options):
    factor = traced(**options)
    plan = factor.report.plan
    found = read(factor.trace.save(tmp_path / "run.pftrace"))
    for number, name in enumerate(plan.devices):
        resident = [value for _, value in found.counters[f"{name} measured", "resident"]]
        assert min(resident) >= 0 and max(resident) <= plan.budgets[number].budget_bytes
        assert max(resident) <= plan.programs[number].peak_resident
        links = {key[1] for key in found.counters if key[0] == f"{name} measured"} - {"resident"}
        planned = plan.programs[number].link_bytes
        names = {
            Link.SOURCE: f"source->{name}",
            Link.FETCH: f"store->{name}",
            Link.WRITE: f"{name}->store",
            Link.PEER: f"peer->{name}",
        }
        assert links == {names[link] for link in Link if planned[link]}
    nbytes = sum(entry.notes.get("bytes", 0) for entries in found.slices.values() for entry in entries)
    assert nbytes == sum(factor.report.bytes.executed.values())


def test_flops_of_the_slices_are_those_of_the_plan():
    factor = traced()
    assert sum(record.flops for record in factor.trace.records) == factor.report.plan.flops


def test_times_are_those_of_the_run():
    factor = traced(tiles=4)
    records = factor.trace.records
    assert all(0 < record.start_ns <= record.end_ns for record in records)
    span = (max(record.end_ns for record in records) - min(record.start_ns for record in records)) / 1e9
    assert 0 < span <= factor.report.inside_seconds
    assert 0 <= factor.report.exposed_copy_share <= 1


@RUNS
def test_every_record_tells_the_role_of_its_stream(options):
    records = traced(**options).trace.records
    assert all(record.role == STREAM_ROLES[record.stream] for record in records)
    assert {record.stream for record in records if record.kind == "compute"} == {
        record.stream for record in records if record.role.computes
    }


def test_no_kernel_starts_before_its_tiles_are_there():
    factor = traced(tiles=4, devices=2)
    ends = {(record.device, record.step): record.end_ns for record in factor.trace.records}
    assert all(ends[earlier] <= record.start_ns for record in factor.trace.records for earlier in record.after)


@RUNS
def test_a_stream_runs_one_operation_at_a_time_in_the_order_of_its_steps(options):
    records = sorted(traced(**options).trace.records, key=lambda record: record.step)
    for name in {(record.device, record.stream) for record in records}:
        own = [record for record in records if (record.device, record.stream) == name]
        assert all(one.end_ns <= other.start_ns for one, other in itertools.pairwise(own)), name


def test_the_trace_says_what_run_it_was(tmp_path):
    factor = traced(devices=2)
    found = read(factor.trace.save(tmp_path / "run.pftrace"))
    about = found.about
    assert found.root.name == "run, n = 400" and about.name.startswith("n = 400, tiles of 64, planned, host:0, host:1, ")
    assert found.attributes["policy"] == "planned" and found.attributes["n"] == N
    assert about.notes["n"] == N and about.notes["tile_size"] == NB
    assert about.notes["policy"] == "planned" and about.notes["devices"] == "host:0, host:1"
    assert about.notes["budget_bytes"] == budget_of(9, N, NB) and about.notes["source"] == "array"
    assert about.notes["seconds"] == factor.report.inside_seconds


def test_the_prediction_stands_beside_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring, "MEASURE_SECONDS", 0.002)
    measuring.measure_rates(NB)
    factor = traced()
    plan = factor.report.plan
    assert [record[:10] for record in factor.trace.predicted] == [record[:10] for record in factor.trace.records]
    assert max(record.end_ns for record in factor.trace.predicted) == round(plan.seconds * 1e9)
    found = read(factor.trace.save(tmp_path / "run.pftrace"))
    assert sorted(found.groups) == sorted(f"{name} {what}" for what in ("measured", "predicted") for name in plan.devices)
    for name, program in zip(plan.devices, plan.programs, strict=True):
        for stream in (STREAM_NAMES[kind] for kind in program.streams):
            measured, predicted = (
                [(entry.name, entry.colour) for entry in found.slices[f"{name} {what}", stream]]
                for what in ("measured", "predicted")
            )
            assert measured == predicted
    assert "predicted" in factor.trace.summary() and "no rates of this machine" not in factor.trace.summary()


def test_the_summary_says_where_the_time_went():
    text = traced(tiles=4, devices=2).trace.summary()
    for words in (
        "n 400",
        "wall",
        "exposed copy",
        "host:0 compute",
        "host:1 copy-in",
        "store->host:0",
        "waiting on whom",
        "no rates",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_run_without_a_trace_has_none_but_its_report_has_the_records():
    factor = oc.cholesky(A, tile_size=NB)
    assert factor.trace is None
    assert np.isfinite(factor.report.exposed_copy_share)
    assert len(factor.report.execution.records) == sum(len(program.steps) for program in factor.report.plan.programs)


def test_a_trace_outlives_its_factor(tmp_path):
    with traced(store=tmp_path / "L.ooc") as factor:
        pass
    assert factor.trace.save(tmp_path / "run.pftrace").stat().st_size > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["L.ooc", "run.pftrace"]
