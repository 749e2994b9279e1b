"""A saved trace, read again with protobuf."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

Event = pb.TrackEvent


@dataclass
class Slice:
    """One slice as read from the file."""

    name: str
    category: str
    notes: dict
    leaving: list[int]
    reaching: list[int]
    start_ns: int
    end_ns: int = -1


@dataclass
class Read:
    """The contents of a file: everything by (group, track)."""

    groups: list[str] = field(default_factory=list)
    tracks: dict[tuple[str, str], pb.TrackDescriptor] = field(default_factory=dict)
    slices: dict[tuple[str, str], list[Slice]] = field(default_factory=dict)
    counters: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=dict)
    instants: list[Slice] = field(default_factory=list)


def read(path) -> Read:
    """Read a file, and check on the way that events are in order of time and that slices begin and end one at a time."""
    trace = pb.Trace.FromString(path.read_bytes())
    found, names, categories, key_of = Read(), {}, {}, {}
    last_ns = 0
    for number, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        cleared = packet.sequence_flags & pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        assert bool(cleared) == (number == 0)
        names.update({entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names})
        categories.update({entry.iid: entry.name for entry in packet.interned_data.event_categories})
        if packet.HasField("track_descriptor"):
            _read_track(packet.track_descriptor, found, key_of)
        if packet.HasField("track_event"):
            assert packet.timestamp >= last_ns
            assert packet.sequence_flags & pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            last_ns = packet.timestamp
            _read_event(packet, found, key_of[packet.track_event.track_uuid], names, categories)
    assert all(entry.end_ns >= 0 for entries in found.slices.values() for entry in entries)
    return found


def _read_track(track, found: Read, key_of) -> None:
    assert track.uuid not in key_of
    if track.parent_uuid:
        key = key_of[track.parent_uuid][0], track.name
        assert key not in found.tracks
        found.tracks[key] = track
        (found.counters if track.HasField("counter") else found.slices)[key] = []
    else:
        key = track.name, ""
        found.groups.append(track.name)
        assert track.child_ordering == pb.TrackDescriptor.EXPLICIT
    key_of[track.uuid] = key


def _read_event(packet, found: Read, key, names, categories) -> None:
    event = packet.track_event
    if event.type == Event.TYPE_COUNTER:
        value = event.double_counter_value if event.HasField("double_counter_value") else event.counter_value
        found.counters[key].append((packet.timestamp, value))
        return
    on_track = found.slices.get(key, found.instants)
    if event.type == Event.TYPE_SLICE_END:
        assert on_track[-1].end_ns == -1
        on_track[-1].end_ns = packet.timestamp
        return
    assert event.type == (Event.TYPE_SLICE_BEGIN if key in found.slices else Event.TYPE_INSTANT)
    assert not on_track or on_track[-1].end_ns >= 0
    notes = {}
    for note in event.debug_annotations:
        notes[names[note.name_iid] if note.name_iid else note.name] = getattr(note, note.WhichOneof("value"))
    category = categories[event.category_iids[0]] if event.category_iids else event.categories[0]
    on_track.append(Slice(event.name, category, notes, list(event.flow_ids), list(event.terminating_flow_ids), packet.timestamp))
