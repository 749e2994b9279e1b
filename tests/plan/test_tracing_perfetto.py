"""A saved trace, read again with protobuf, holds every operation, wait, arrow and counter of the run."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from ooc_chol.tracing import Trace, TraceRecord, waits
from tests.plan.perfetto_files import Read, Slice, read
from tests.plan.simulated_records import Operation, programs, simulate

pytestmark = pytest.mark.plan


def saved(path, records, predicted=(), **metadata) -> Read:
    return read(Trace(tuple(records), tuple(predicted), metadata).save(path))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "run.pftrace"


@given(program=programs())
def test_every_operation_and_wait_is_one_slice_of_the_track_of_its_stream(path, program):
    records = simulate(program, origin_ns=987_654_321)
    start = min(record.start_ns for record in records)
    found = saved(path, records)
    expected: dict[tuple[str, str], list] = {}
    for record in records:
        span = record.start_ns - start, record.end_ns - start
        expected.setdefault((f"{record.device} measured", record.stream), []).append((*span, record.label, record.kind))
    for wait in waits(records):
        span = wait.start_ns - start, wait.end_ns - start
        category = "idle" if wait.producer is None else "wait"
        expected[f"{wait.device} measured", wait.stream].append((*span, wait.label, category))
    told = {key: [(s.start_ns, s.end_ns, s.name, s.category) for s in slices] for key, slices in found.slices.items()}
    assert {key: sorted(slices) for key, slices in told.items()} == {key: sorted(slices) for key, slices in expected.items()}


def operations(found: Read, side: str) -> dict[tuple[str, int], Slice]:
    """The slices of operations by device and step."""
    return {
        (group.removesuffix(f" {side}"), entry.notes["step"]): entry
        for (group, _), entries in found.slices.items()
        if group.endswith(side)
        for entry in entries
        if entry.category not in ("wait", "idle")
    }


@given(program=programs())
def test_each_arrow_goes_from_a_producer_to_the_step_that_waited_for_it(path, program):
    records = simulate(program)
    found = saved(path, records, records)
    every_number = []
    for side in ("measured", "predicted"):
        slices = operations(found, side)
        begins = {number: step for step, entry in slices.items() for number in entry.leaving}
        ends = {number: step for step, entry in slices.items() for number in entry.reaching}
        assert begins.keys() == ends.keys()
        arrows = sorted((begins[number], ends[number]) for number in begins)
        assert arrows == sorted((producer, (record.device, record.step)) for record in records for producer in record.after)
        every_number += [number for entry in slices.values() for number in entry.leaving]
    assert len(set(every_number)) == len(every_number)


@given(program=programs())
def test_the_rate_of_a_link_integrates_to_its_bytes_and_ends_at_zero(path, program):
    records = simulate(program)
    found = saved(path, records)
    for (group, track), samples in found.counters.items():
        if track == "resident":
            continue
        copies = [r for r in records if r.link == track and f"{r.device} measured" == group and r.end_ns > r.start_ns]
        nbytes = sum(rate * (end - start) for (start, rate), (end, _) in itertools.pairwise(samples))
        assert nbytes == pytest.approx(sum(copy.nbytes for copy in copies), rel=1e-12)
        assert [value for _, value in samples[-1:]] in ([], [0.0])
    links = {(f"{record.device} measured", record.link) for record in records if record.link}
    assert links == {key for key in found.counters if key[1] != "resident"}


@given(program=programs())
def test_resident_bytes_follow_the_program_and_end_at_its_last_step(path, program):
    records = simulate(program)
    start = min(record.start_ns for record in records)
    found = saved(path, records)
    for device in {record.device for record in records}:
        samples = found.counters[f"{device} measured", "resident"]
        own = [record for record in records if record.device == device]
        assert samples[-1][1] == max(own, key=lambda record: record.step).resident_bytes
        assert all((time, value) in {(r.end_ns - start, r.resident_bytes) for r in own} for time, value in samples)
        assert [value for _, value in samples] == sorted(value for _, value in samples)  # 1000 + step in these records


ONE_OF_EACH = [
    Operation("host:0", "copy-in", 4_000),
    Operation("host:0", "compute", 50_000, after=(0,)),
    Operation("host:0", "copy-out", 5_000, launch_ns=1_500, after=(1,)),
]


def test_tracks_stand_in_order_with_the_prediction_beside_the_run(path):
    program = [Operation(f"host:{d}", stream, 10) for d in (1, 0) for stream in ("copy-out", "copy-in", "compute")]
    records = simulate(program)
    found = saved(path, records, records)
    assert sorted(found.groups) == [
        "about this run",
        "host:0 measured",
        "host:0 predicted",
        "host:1 measured",
        "host:1 predicted",
    ]
    for group in sorted(found.groups)[1:]:
        device = group.split()[0]
        by_rank = sorted((d.sibling_order_rank, track) for (g, track), d in found.tracks.items() if g == group)
        named = ["copy-in", "compute", "copy-out", "resident", f"{device}->store", f"store->{device}"]
        assert by_rank == list(enumerate(named))
    assert found.tracks["host:0 measured", "resident"].counter.unit == pb.CounterDescriptor.UNIT_SIZE_BYTES
    assert found.tracks["host:0 measured", "host:0->store"].counter.unit_name == "GB/s"


def test_measured_and_predicted_begin_together(path):
    found = saved(path, simulate(ONE_OF_EACH, origin_ns=10**15), simulate(ONE_OF_EACH))
    assert found.slices["host:0 measured", "copy-in"][0].start_ns == 0
    assert found.slices["host:0 predicted", "copy-in"][0].start_ns == 0
    starts = {side: [s.start_ns for s in found.slices[f"host:0 {side}", "copy-out"]] for side in ("measured", "predicted")}
    assert starts["measured"] == starts["predicted"]


def test_slices_carry_what_the_operation_was(path):
    found = saved(path, simulate(ONE_OF_EACH))
    fetch = found.slices["host:0 measured", "copy-in"][0]
    common = {"step": 0, "block": "L(0, 0)v1", "format": "fp64", "resident bytes": 1000}
    assert fetch.notes == {**common, "link": "store->host:0", "bytes": 8, "GB/s": 8 / 4_000}
    wait, compute = found.slices["host:0 measured", "compute"]
    assert (wait.name, wait.category) == ("wait for fetch (0, 0)", "wait")
    assert wait.notes == {"before step": 1, "waited for": "step 0 of host:0"}
    assert (compute.notes["flops"], compute.notes["GFLOP/s"]) == (101, 101 / 50_000)
    assert [entry.category for entry in found.slices["host:0 measured", "copy-out"]] == ["wait", "idle", "write"]


def test_a_kind_of_operation_that_is_new_keeps_its_name(path):
    found = saved(path, simulate([Operation("host:0", "compute", 10, kind="convert")]))
    assert [entry.category for entry in found.slices["host:0 measured", "compute"]] == ["convert"]


def test_what_the_run_was_is_stored_in_the_trace(path):
    found = saved(path, simulate(ONE_OF_EACH), n=4096, policy="planned", threshold=1e-8)
    assert [(entry.name, entry.notes) for entry in found.instants] == [
        ("run", {"n": 4096, "policy": "planned", "threshold": 1e-8})
    ]


def test_a_trace_without_records_still_says_what_the_run_was(path):
    found = saved(path, [], n=1)
    assert (found.groups, found.instants[0].notes) == (["about this run"], {"n": 1})


def test_the_same_trace_gives_the_same_bytes_in_whatever_order_its_records_came(tmp_path):
    records = tuple(simulate(ONE_OF_EACH * 5))
    first = Trace(records, records, {"n": 2}).save(tmp_path / "first.pftrace").read_bytes()
    second = Trace(records[::-1], records[::-1], {"n": 2}).save(str(tmp_path / "second.pftrace")).read_bytes()
    assert first == second


def test_a_failed_save_leaves_the_file_that_was_there(tmp_path):
    path = tmp_path / "run.pftrace"
    good = simulate(ONE_OF_EACH)
    Trace(tuple(good)).save(path)
    before = path.read_bytes()
    broken: list[TraceRecord] = [good[0]._replace(after=(("host:0", 99),)), *good[1:]]
    with pytest.raises(ValueError, match="step 99 of host:0, which has no record"):
        Trace(tuple(broken)).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.host
def test_protobuf_is_imported_only_to_save():
    code = """
import sys
from ooc_chol.tracing import Trace
Trace(()).summary()
found = [name for name in sys.modules if name.startswith(("perfetto", "google.protobuf"))]
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)
