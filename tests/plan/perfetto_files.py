"""A saved trace, read again with protobuf."""

from __future__ import annotations

import re
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
    colour: str = ""


@dataclass
class Track:
    """One track as the viewer shows it."""

    name: str
    descriptor: pb.TrackDescriptor
    above: Track | None
    below: list[Track] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    samples: list[tuple[int, float]] = field(default_factory=list)

    @property
    def group(self) -> str:
        """The device and the part of the trace that it belongs to, such as ``"host:0 measured"``; empty for the run itself."""
        device = re.search(r"\b[a-z]+:\d+", self.name)
        if device is None:
            return ""
        folded = self.above is not None and self.above.name == "passes beside the run"
        return f"{device[0]} {'predicted' if ', predicted' in self.name else 'passes' if folded else 'measured'}"

    @property
    def stream(self) -> str:
        """The name without the device in front and what it is of behind."""
        return re.sub(r"^[a-z]+:\d+ |, predicted|, waits", "", self.name)


@dataclass
class Read:
    """The contents of a file: the track above all others; operations, waits and counters by (group, stream, link or name)."""

    root: Track
    tracks: dict[int, Track] = field(default_factory=dict)
    slices: dict[tuple[str, str], list[Slice]] = field(default_factory=dict)
    waits: dict[tuple[str, str], list[Slice]] = field(default_factory=dict)
    counters: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=dict)
    attributes: dict[str, str | int] = field(default_factory=dict)

    @property
    def about(self) -> Slice:
        """What the file says of the run."""
        (found,) = [*self.root.slices, *self.root.instants]
        return found

    @property
    def groups(self) -> list[str]:
        """Devices and parts of the trace, in order."""
        return list(dict.fromkeys(group for group, _ in self.slices))

    @property
    def summary(self) -> dict[str, list[tuple[int, float]]]:
        """The counters directly below the run, by name."""
        return {track.name: track.samples for track in self.root.below if track.descriptor.HasField("counter")}


def read(path) -> Read:
    """Read a file, and check on the way that events are in order of time and that slices begin and end one at a time."""
    trace = pb.Trace.FromString(path.read_bytes())
    tracks: dict[int, Track] = {}
    names, categories, words, attributes = {}, {}, {0: ""}, {}
    last_ns = 0
    for number, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        cleared = packet.sequence_flags & pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        assert bool(cleared) == (number == 0)
        names.update({entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names})
        categories.update({entry.iid: entry.name for entry in packet.interned_data.event_categories})
        words.update({entry.iid: entry.str.decode() for entry in packet.interned_data.correlation_id_str})
        for entry in packet.trace_attributes.attribute:
            attributes[entry.key] = getattr(entry, entry.WhichOneof("value"))
        if packet.HasField("track_descriptor"):
            _read_track(packet.track_descriptor, tracks)
        if packet.HasField("track_event"):
            assert packet.timestamp >= last_ns
            assert packet.sequence_flags & pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            last_ns = packet.timestamp
            _read_event(packet, tracks[packet.track_event.track_uuid], names, categories, words)
    assert all(entry.end_ns >= 0 for track in tracks.values() for entry in track.slices)
    (root,) = [track for track in tracks.values() if track.above is None]
    found = Read(root, tracks, attributes=attributes)
    for track in tracks.values():
        _sort_in(track, found)
    return found


def _read_track(descriptor, tracks: dict[int, Track]) -> None:
    assert descriptor.uuid not in tracks
    above = tracks[descriptor.parent_uuid] if descriptor.parent_uuid else None
    track = tracks[descriptor.uuid] = Track(descriptor.name, descriptor, above)
    if above is not None:
        assert descriptor.sibling_order_rank == len(above.below), "tracks stand in the file in the order in which they are shown"
        assert descriptor.name not in {other.name for other in above.below}, "the viewer merges tracks of one name"
        assert above.descriptor.child_ordering == pb.TrackDescriptor.EXPLICIT
        above.below.append(track)


def _read_event(packet, track: Track, names, categories, words) -> None:
    event = packet.track_event
    assert (event.type == Event.TYPE_COUNTER) == track.descriptor.HasField("counter")
    if event.type == Event.TYPE_COUNTER:
        value = event.double_counter_value if event.HasField("double_counter_value") else event.counter_value
        track.samples.append((packet.timestamp, value))
        return
    if event.type == Event.TYPE_SLICE_END:
        assert track.slices[-1].end_ns == -1
        track.slices[-1].end_ns = packet.timestamp
        return
    assert not track.slices or track.slices[-1].end_ns >= 0
    notes = {}
    for note in event.debug_annotations:
        notes[names[note.name_iid] if note.name_iid else note.name] = getattr(note, note.WhichOneof("value"))
    category = categories[event.category_iids[0]] if event.category_iids else event.categories[0]
    arrows = list(event.flow_ids), list(event.terminating_flow_ids)
    entry = Slice(event.name, category, notes, *arrows, packet.timestamp, colour=words[event.correlation_id_str_iid])
    assert event.type in (Event.TYPE_SLICE_BEGIN, Event.TYPE_INSTANT)
    (track.slices if event.type == Event.TYPE_SLICE_BEGIN else track.instants).append(entry)


def _sort_in(track: Track, found: Read) -> None:
    key = track.group, track.stream
    if track.descriptor.HasField("counter"):
        if track.above is not found.root or track.stream == "resident":  # what else is on top sums up
            found.counters[key] = track.samples
    elif track.name.endswith(", waits"):
        found.waits[key] = track.slices
    elif track.group:
        found.slices[key] = track.slices
