"""A saved trace, read again with protobuf, holds every operation, wait, arrow and counter of the run."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from ooc_chol.tracing import Trace, TraceRecord, waits
from tests.inside.tracing import COLOURS
from tests.plan.perfetto_files import Read, Slice, read
from tests.plan.simulated_records import Operation, programs, simulate
from tests.products import share_of_examples

#: Where each example is a whole program.
fewer_examples = share_of_examples(0.4)

pytestmark = pytest.mark.plan


def saved(path, records, predicted=(), **metadata) -> Read:
    return read(Trace(tuple(records), tuple(predicted), metadata).save(path))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "run.pftrace"


@fewer_examples
@given(program=programs())
def test_every_operation_is_one_slice_of_the_track_of_its_stream_and_every_wait_one_of_a_track_beneath(path, program):
    records = simulate(program, origin_ns=987_654_321)
    start = min(record.start_ns for record in records)
    found = saved(path, records)
    ran: dict[tuple[str, str], list] = {}
    stood: dict[tuple[str, str], list] = {}
    for record in records:
        span = record.start_ns - start, record.end_ns - start
        ran.setdefault((f"{record.device} measured", record.stream), []).append((*span, record.label, record.kind))
    for wait in waits(records):
        category = "idle" if wait.producer is None else "wait"
        entry = wait.start_ns - start, wait.end_ns - start, wait.label, category
        stood.setdefault((f"{wait.device} measured", wait.stream), []).append(entry)
    for expected, drawn in ((ran, found.slices), (stood, found.waits)):
        told = {key: sorted((s.start_ns, s.end_ns, s.name, s.category) for s in slices) for key, slices in drawn.items()}
        assert told == {key: sorted(slices) for key, slices in expected.items()}
    for track in found.tracks.values():
        if track.name.endswith(", waits"):
            assert track.above.name == track.name.removesuffix(", waits")


def operations(found: Read, side: str) -> dict[tuple[str, int], Slice]:
    """The slices of operations by device and step."""
    return {
        (group.removesuffix(f" {side}"), entry.notes["step"]): entry
        for (group, _), entries in found.slices.items()
        if group.endswith(side)
        for entry in entries
    }


@fewer_examples
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


@fewer_examples
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
    links = {(f"{record.device} measured", record.link) for record in records if record.link and record.end_ns > record.start_ns}
    assert links <= {key for key in found.counters if key[1] != "resident"}


@fewer_examples
@given(program=programs())
def test_resident_bytes_follow_the_program_to_its_last_step_and_end_with_the_run(path, program):
    records = simulate(program)
    start = min(record.start_ns for record in records)
    found = saved(path, records)
    for device in {record.device for record in records}:
        samples = found.counters[f"{device} measured", "resident"]
        own = [record for record in records if record.device == device]
        assert samples.pop() == (max(record.end_ns for record in records) - start, 0), "the counter ends where the run ends"
        assert samples[-1][1] == max(own, key=lambda record: record.step).resident_bytes
        assert all((time, value) in {(r.end_ns - start, r.resident_bytes) for r in own} for time, value in samples)
        assert [value for _, value in samples] == sorted(value for _, value in samples)  # 1000 + step in these records


ONE_OF_EACH = [
    Operation("host:0", "copy-in", 4_000),
    Operation("host:0", "compute", 50_000, after=(0,)),
    Operation("host:0", "copy-out", 5_000, launch_ns=1_500, after=(1,)),
]


def names(track) -> list[str]:
    return [below.name for below in track.below]


def test_one_device_shows_counters_streams_and_predictions_directly_below_the_run(path):
    program = [Operation("host:0", stream, 10_000) for stream in ("copy-out", "copy-in")]
    program.append(Operation("host:0", "compute", 10_000, 2_000, after=(0,)))
    found = saved(path, simulate(program), simulate(program), n=4096, budget_bytes=5000)
    assert names(found.root) == [
        "host:0 computes", "host:0->store, % of 0.0008 GB/s", "store->host:0, % of 0.0016 GB/s", "host:0 resident",
        "budget of a device", "host:0 copy-in", "host:0 copy-in, predicted", "host:0 compute", "host:0 compute, predicted",
        "host:0 copy-out", "host:0 copy-out, predicted", "links, copy by copy",
    ]  # fmt: skip
    assert found.root.name == "run, n = 4,096"
    by_name = {track.name: track.descriptor for track in found.tracks.values()}
    assert by_name["host:0 resident"].counter.unit == pb.CounterDescriptor.UNIT_SIZE_BYTES
    assert by_name["host:0 computes"].counter.unit_name == "%" and by_name["store->host:0"].counter.unit_name == "GB/s"
    assert by_name["host:0 resident"].counter.y_axis_share_key == by_name["budget of a device"].counter.y_axis_share_key != ""
    for link in ("store->host:0", "host:0->store"):
        predicted = by_name[f"{link}, predicted"].counter
        assert by_name[link].counter.y_axis_share_key == predicted.y_axis_share_key != ""
        assert by_name[link].parent_uuid == by_name[f"{link}, predicted"].parent_uuid, "an axis is shared below one track only"
    assert [names(track) for track in found.root.below if track.name == "host:0 compute"] == [["host:0 compute, waits"]]


def test_several_devices_stand_side_by_side_with_predictions_folded_into_their_streams(path):
    program = [Operation(f"host:{d}", stream, 10_000) for d in (1, 0) for stream in ("copy-out", "copy-in", "compute")]
    found = saved(path, simulate(program), simulate(program))
    assert names(found.root) == [
        "host:0 computes", "host:1 computes", "devices->store, % of 0.0016 GB/s", "store->devices, % of 0.0032 GB/s",
        "host:0 copy-in", "host:1 copy-in", "host:0 compute", "host:1 compute", "host:0 copy-out", "host:1 copy-out",
        "host:0 resident", "host:1 resident", "links, copy by copy",
    ]  # fmt: skip
    streams = [track for track in found.root.below if track.slices]
    assert all(names(track) == [f"{track.name}, predicted"] for track in streams)


def test_every_file_has_one_track_above_all_others_which_the_viewer_opens(path):
    program = [Operation("host:0", stream, 10_000) for stream in ("copy-out", "copy-in", "compute")]
    records = tuple(simulate(program))
    for trace in (
        Trace(records),
        Trace(records, records),
        Trace(records, (), {}, records),
        Trace((), records),
        Trace((), (), {}, records),
    ):
        found = read(trace.save(path))
        assert found.root.below and all(track.above is not None for track in found.tracks.values() if track is not found.root)


@fewer_examples
@given(program=programs())
def test_counters_on_top_sum_up_what_ran(path, program):
    records = simulate(program)
    found = saved(path, records)
    start, end = min(record.start_ns for record in records), max(record.end_ns for record in records)
    devices = sorted({record.device for record in records})
    for device in devices:
        samples = found.summary[f"{device} computes"]
        assert samples[-1] == (end - start, 0.0) and all(0 <= value <= 100.01 for _, value in samples)
        busy = sum(share / 100 * (until - at) for (at, share), (until, _) in itertools.pairwise(samples))
        kernels = [record for record in records if record.device == device and record.kind == "compute"]
        covered = len({ns for record in kernels for ns in range(record.start_ns, record.end_ns)})
        assert busy == pytest.approx(covered, rel=1e-3, abs=1e-3)
    for sort, link in (("fetch", "store->{}"), ("write", "{}->store")):
        copies = [record for record in records if record.kind == sort]
        if copies:
            samples = found.summary[link.format(devices[0] if len(devices) == 1 else "devices")]
            moved = sum(rate * (until - at) for (at, rate), (until, _) in itertools.pairwise(samples))
            expected = sum(copy.nbytes for copy in copies if copy.end_ns > copy.start_ns)
            assert moved == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_a_long_run_has_a_few_hundred_stretches_and_a_short_one_a_dozen(path):
    for operations, most in ((5, 12), (8_000, 240)):
        program = [Operation("host:0", "compute", 10_000 + place, 3_000) for place in range(operations)]
        samples = saved(path, simulate(program)).summary["host:0 computes"]
        assert 2 <= len(samples) <= most + 1


def test_the_budget_is_a_line_from_the_start_of_the_run_to_its_end(path):
    records = simulate(ONE_OF_EACH, origin_ns=10**15)
    found = saved(path, records, budget_bytes=5000)
    assert found.summary["budget of a device"] == [(0, 5000), (max(r.end_ns for r in records) - 10**15, 0)]


def viewer_hash(word: str, most: int) -> int:
    """The viewer's hash of a string (ui/src/base/hash.ts), on JavaScript's numbers."""
    found = 0x811C9DC5 & 0xFFFFFFF
    for letter in word:
        found = int(float(found ^ ord(letter)) * 16777619.0) & 0xFFFFFFFF
        found -= (found >> 31) << 32
    return abs(found) % most


def test_colours_of_sorts_of_work_are_far_apart_and_those_of_waits_are_pale():
    # colorizer.ts: hue and lightness of a slice, from its correlation id, for a saturation of 80 %
    hues = {sort: viewer_hash(word, 360) for sort, word in COLOURS.items()}
    lightness = {sort: viewer_hash(word + "x", 40) + 40 for sort, word in COLOURS.items()}
    work = [sort for sort in COLOURS if sort not in ("wait", "idle", "run")]
    for one, two in itertools.combinations(work, 2):
        apart = abs(hues[one] - hues[two])
        assert min(apart, 360 - apart) >= 35, (one, two)
    assert min(lightness["wait"], lightness["idle"]) > max(lightness[sort] for sort in work)


def test_work_has_the_same_colour_in_run_and_prediction_whatever_its_name(path):
    def coloured(records):
        sorts = {"compute": "product", "finish": "panel"}
        return [record._replace(work=sorts.get(record.stream, "")) for record in records]

    program = [Operation("host:0", stream, 10_000) for stream in ("copy-in", "compute", "finish", "copy-out")]
    program.append(Operation("host:0", "copy-in", 10_000, 2_000, (1,), "generate"))
    program.append(Operation("host:0", "copy-in", 10_000, after=(2, 4)))
    records = coloured(simulate(program))
    found = saved(path, records, records)
    expected = {"copy-in": ["fetch", "generate", "fetch"], "compute": ["product"], "finish": ["panel"], "copy-out": ["write"]}
    for side in ("measured", "predicted"):
        for stream, sorts in expected.items():
            drawn = [entry.colour for entry in found.slices[f"host:0 {side}", stream]]
            assert drawn == [COLOURS[sort] for sort in sorts]
    assert {entry.colour for entries in found.waits.values() for entry in entries} == {COLOURS["idle"]}


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
    assert fetch.notes == {**common, "link": "store->host:0", "bytes": 8, "GB/s": 0.002}
    (wait,), (compute,) = found.waits["host:0 measured", "compute"], found.slices["host:0 measured", "compute"]
    assert (wait.name, wait.category) == ("wait for fetch (0, 0)", "wait")
    assert wait.notes == {"before step": 1, "waited for": "step 0 of host:0"}
    assert (compute.notes["flops"], compute.notes["TFLOP/s"]) == (101, 2.02e-6)
    assert [entry.category for entry in found.waits["host:0 measured", "copy-out"]] == ["wait", "idle"]
    assert [entry.category for entry in found.slices["host:0 measured", "copy-out"]] == ["write"]


def test_a_kind_of_operation_that_is_new_keeps_its_name(path):
    found = saved(path, simulate([Operation("host:0", "compute", 10, kind="convert")]))
    assert [entry.category for entry in found.slices["host:0 measured", "compute"]] == ["convert"]


def test_what_the_run_was_is_stored_in_the_trace(path):
    records = simulate(ONE_OF_EACH)
    found = saved(path, records, n=4096, policy="planned", threshold=1e-8, seconds=2.114, gflops_per_second=44412.7)
    (about,) = found.root.slices
    assert about.name == "n = 4,096, planned, 2.11 s, 44.4 TFLOP/s"
    assert (about.start_ns, about.end_ns) == (0, max(record.end_ns for record in records))
    facts = {"n": 4096, "policy": "planned", "threshold": 1e-8, "seconds": 2.114, "gflops_per_second": 44412.7}
    assert about.notes == facts
    assert found.attributes == {name: value if isinstance(value, int) else str(value) for name, value in facts.items()}


def test_a_trace_without_records_still_says_what_the_run_was(path):
    found = saved(path, [], n=1)
    assert (found.groups, found.about.notes) == ([], {"n": 1})


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
@pytest.mark.usefixtures("processes")
def test_protobuf_is_imported_only_to_save():
    code = """
import sys
from ooc_chol.tracing import Trace
Trace(()).summary()
found = [name for name in sys.modules if name.startswith(("perfetto", "google.protobuf"))]
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)
