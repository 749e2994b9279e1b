"""A saved trace, loaded again, is the trace that was saved."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given

from ooc_chol.tracing import StreamRole, Trace
from tests.plan.perfetto_files import pb
from tests.plan.simulated_records import Operation, programs, simulate
from tests.products import share_of_examples

#: Where each example is a whole program.
fewer_examples = share_of_examples(0.4)

pytestmark = pytest.mark.plan


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "run.pftrace"


def moved(records, by_ns: int) -> tuple:
    return tuple(record._replace(start_ns=record.start_ns - by_ns, end_ns=record.end_ns - by_ns) for record in records)


def told(records) -> set:
    """Records without the places of their streams, of which only the order is kept, and producers in any order."""
    return {record._replace(role=StreamRole(0, record.role.computes), after=tuple(sorted(record.after))) for record in records}


@fewer_examples
@given(run=programs(), expected=programs(), passes=programs())
def test_a_loaded_trace_has_the_records_that_were_saved(path, run, expected, passes):
    work = {"compute": "product", "finish": "panel"}
    records = [record._replace(work=work.get(record.stream, "")) for record in simulate(run, origin_ns=10**12)]
    predicted, beside = simulate(expected), simulate(passes, origin_ns=10**12 + 77)
    metadata = {"n": 65536, "policy": "planned", "seconds": 0.1 + 0.2, "note": "a, b"}
    saved = Trace(tuple(records), tuple(predicted), metadata, tuple(beside))
    loaded = Trace.load(saved.save(path))
    origin = min(record.start_ns for record in [*records, *beside])
    assert told(loaded.records) == told(moved(records, origin))
    assert told(loaded.passes) == told(moved(beside, origin))
    began = min(record.start_ns for record in records) - origin - min(record.start_ns for record in predicted)
    assert told(loaded.predicted) == told(moved(predicted, -began))
    assert loaded.metadata == metadata and list(loaded.metadata) == list(metadata)


@fewer_examples
@given(run=programs(), expected=programs())
def test_what_is_made_of_a_loaded_trace_is_what_was_made_of_the_saved_one(path, run, expected):
    saved = Trace(tuple(simulate(run, origin_ns=10**12)), tuple(simulate(expected)), {"n": 4, "seconds": 1 / 3})
    content = saved.save(path).read_bytes()
    loaded = Trace.load(path)
    assert loaded.summary() == saved.summary()
    assert loaded.save(path).read_bytes() == content


RECORDED = Path(__file__).resolve().parents[2] / "traces"
SMALL = [Operation("host:0", "copy-in", 4_000), Operation("host:0", "compute", 50_000, after=(0,))]


def test_a_trace_that_gzip_compressed_is_read_as_it_is(tmp_path):
    plain = Trace(tuple(simulate(SMALL)), (), {"n": 2}).save(tmp_path / "run.pftrace")
    packed = tmp_path / "run.pftrace.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert Trace.load(packed) == Trace.load(plain)


def test_a_trace_of_an_earlier_version_is_read(tmp_path):
    """As they were written before: a group for each device, waits among the operations."""
    trace = pb.Trace()
    first = trace.packet.add()
    for number, name in enumerate(("fetch", "compute", "wait", "run"), start=1):
        first.interned_data.event_categories.add(iid=number, name=name)
    tracks = [
        ("about this run", 0),
        ("host:0 measured", 0),
        ("copy-in", 2),
        ("compute", 2),
        ("host:0 predicted", 0),
        ("compute", 5),
    ]
    for number, (name, parent) in enumerate(tracks, start=1):
        descriptor = trace.packet.add().track_descriptor
        descriptor.uuid, descriptor.name, descriptor.parent_uuid = number, name, parent

    def add(track, at, kind, category=0, name="", notes=(), leaving=(), reaching=()):
        packet = trace.packet.add(timestamp=at)
        event = packet.track_event
        event.type, event.track_uuid, event.name = kind, track, name
        event.category_iids.extend([category] if category else [])
        event.flow_ids.extend(leaving)
        event.terminating_flow_ids.extend(reaching)
        for title, value in notes:
            note = event.debug_annotations.add(name=title)
            setattr(note, "string_value" if isinstance(value, str) else "int_value", value)

    begin, end, mark = pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END, pb.TrackEvent.TYPE_INSTANT
    common = [("block", "L(0, 0)v1"), ("format", "fp64"), ("resident bytes", 32)]
    add(1, 0, mark, 4, "run", [("n", 2)])
    add(3, 0, begin, 1, "fetch (0, 0)", [("step", 0), *common, ("bytes", 8), ("link", "store->host:0")], leaving=[1])
    add(4, 0, begin, 3, "wait for fetch (0, 0)", [("before step", 1)])
    add(3, 5, end)
    add(4, 5, end)
    add(4, 5, begin, 2, "POTRF (0, 0)", [("step", 1), *common, ("flops", 3)], reaching=[1])
    add(4, 9, end)
    add(6, 9, begin, 2, "POTRF (0, 0)", [("step", 1), *common, ("flops", 3)])
    add(6, 12, end)
    path = tmp_path / "old.pftrace"
    path.write_bytes(trace.SerializeToString())
    loaded = Trace.load(path)
    assert loaded.metadata == {"n": 2}
    assert [(r.stream, r.label, r.start_ns, r.end_ns, r.after) for r in loaded.records] == [
        ("copy-in", "fetch (0, 0)", 0, 5, ()),
        ("compute", "POTRF (0, 0)", 5, 9, (("host:0", 0),)),
    ]
    assert [record.role.computes for record in loaded.records] == [False, True]
    assert [(r.label, r.flops, r.end_ns) for r in loaded.predicted] == [("POTRF (0, 0)", 3, 12)]
    assert "POTRF" not in loaded.summary() and "host:0 compute" in loaded.summary()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no trace of ooc_chol"),
        (b"x,y\n1,2\n", "is no trace of ooc_chol"),
        (gzip.compress(b"x,y\n1,2\n", mtime=0), "is no trace of ooc_chol"),
        (b"\x1f\x8b broken", "is no trace of ooc_chol"),
        (pb.Trace(packet=[pb.TracePacket(timestamp=1)]).SerializeToString(), "is no trace of ooc_chol"),
    ],
)
def test_a_file_that_is_no_trace_is_named(tmp_path, content, words):
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"other {words}"):
        Trace.load(file)


def test_a_trace_that_was_cut_off_is_named(tmp_path):
    content = Trace(tuple(simulate(SMALL))).save(tmp_path / "run.pftrace").read_bytes()
    packed = gzip.compress(content * 1)
    for name, part in (("cut.pftrace", content[:-3]), ("cut.gz", packed[:-9])):
        (tmp_path / name).write_bytes(part)
        with pytest.raises(ValueError, match=f"{name} is a damaged trace of ooc_chol"):
            Trace.load(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "field", "value", "said"),
    [
        ("step", "string_value", "first", "'step' of an operation is 'first'"),
        ("step", "int_value", -1, "'step' of an operation is -1"),
        ("block", "int_value", 3, "'block' of an operation is 3"),
        ("format", "bool_value", True, "'format' of an operation is True"),
        ("flops", "double_value", 0.5, "'flops' of an operation is 0.5"),
        ("bytes", "bool_value", True, "'bytes' of an operation is True"),
        ("step", None, None, "an operation has no 'step'"),
    ],
)
def test_an_annotation_of_another_kind_is_named(tmp_path, name, field, value, said):
    trace = pb.Trace.FromString(Trace(tuple(simulate(SMALL))).save(tmp_path / "run.pftrace").read_bytes())
    titles = {entry.iid: entry.name for packet in trace.packet for entry in packet.interned_data.debug_annotation_names}
    notes = [note for packet in trace.packet for note in packet.track_event.debug_annotations]
    named = [note for note in notes if titles[note.name_iid] == name]
    assert named
    for note in named:
        if field is None:
            note.ClearField("name_iid")
            note.name = "another"
        else:
            setattr(note, field, value)
    (tmp_path / "other.pftrace").write_bytes(trace.SerializeToString())
    with pytest.raises(ValueError, match=f"other.pftrace is a damaged trace of ooc_chol: {said}"):
        Trace.load(tmp_path / "other.pftrace")


@pytest.mark.parametrize("recorded", sorted(RECORDED.glob("*.pftrace.gz")), ids=lambda path: path.name)
def test_a_recorded_trace_opens_with_its_tracks(recorded):
    packets = pb.Trace.FromString(gzip.decompress(recorded.read_bytes())).packet
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in packets if packet.HasField("track_descriptor")}
    (root,) = [track for track in tracks.values() if not track.parent_uuid]
    assert root.name.startswith("run")
    below = {track.name for track in tracks.values() if track.parent_uuid == root.uuid}
    if "sparse" in recorded.name:  # products, of which nothing was predicted
        assert {"cuda:0 computes", "cuda:0 compute", "cuda:0 copy-in", "cuda:0 resident"} <= below
        return
    assert root.name.startswith("run, n = ")
    assert {"cuda:0 computes", "cuda:0 compute", "cuda:0 copy-out", "cuda:0 resident", "budget of a device"} <= below
    assert {f"{name}, predicted" for name in ("cuda:0 compute", "cuda:0 copy-out")} <= {track.name for track in tracks.values()}


def test_a_trace_that_is_not_there_is_the_error_of_any_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "nothing.pftrace")
