"""The Perfetto packets that a trace is made of: one function for each kind, and nothing about runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, TracePacket, TrackDescriptor, TrackEvent

#: Names written once at the start of the file and by number from then on; the number of a name is its place here plus one.
CATEGORIES = ("fetch", "generate", "compute", "write", "pull", "wait", "idle", "run")
ANNOTATIONS = (
    "step",
    "block",
    "format",
    "link",
    "bytes",
    "GB/s",
    "flops",
    "TFLOP/s",
    "resident bytes",
    "waited for",
    "before step",
)

#: The word from which the viewer makes the colour of each sort of work; see :data:`COLOUR_WORDS`.
COLOURS = {
    "product": "product",
    "panel": "panels",
    "compute": "convert",
    "fetch": "fetching",
    "generate": "generating",
    "write": "writing",
    "pull": "pull",
    "wait": "stands still",
    "idle": "idling",
    "run": "the run",
}
#: All of them, numbered as the names above. The viewer hashes a word into a hue: blue, crimson, cyan, yellow, green, orange,
#: purple, pink, salmon and light blue. Its slices have a colour for each word whatever their names.
COLOUR_WORDS = tuple(COLOURS.values())

# Perfetto's types are generated when protobuf is imported, so that no type checker knows them.
Packet: TypeAlias = Any
Notes: TypeAlias = Mapping[str, str | int | float]

_SEQUENCE = 1
_CATEGORY_NUMBERS = {name: number for number, name in enumerate(CATEGORIES, start=1)}
_ANNOTATION_NUMBERS = {name: number for number, name in enumerate(ANNOTATIONS, start=1)}
_COLOUR_NUMBERS = {name: number for number, name in enumerate(COLOURS, start=1)}


def names_packet() -> Packet:
    """Make the first packet of the file, which numbers names."""
    packet = TracePacket(trusted_packet_sequence_id=_SEQUENCE, sequence_flags=TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)
    packet.first_packet_on_sequence = True
    for name, number in _CATEGORY_NUMBERS.items():
        packet.interned_data.event_categories.add(iid=number, name=name)
    for name, number in _ANNOTATION_NUMBERS.items():
        packet.interned_data.debug_annotation_names.add(iid=number, name=name)
    for number, word in enumerate(COLOUR_WORDS, start=1):
        packet.interned_data.correlation_id_str.add(iid=number, str=word.encode())
    return packet


def attributes_packet(notes: Notes) -> Packet:
    """Name facts of the whole trace, which the viewer shows on its page of overview."""
    packet = TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    for key, value in notes.items():
        attribute = packet.trace_attributes.attribute.add(key=key)
        if isinstance(value, int):
            attribute.long_value = value
        else:
            attribute.string_value = str(value)
    return packet


def track_packet(
    track: int, name: str, *, parent: int = 0, rank: int = 0, description: str = "", unit: str = "", axis: str = ""
) -> Packet:
    """Describe a track.

    ``rank`` is its place among the tracks below ``parent``; a ``unit`` makes it a counter, which shares its axis with those below
    the same track that have the same ``axis``.
    """
    packet = TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    descriptor = packet.track_descriptor
    descriptor.uuid = track
    descriptor.name = name
    if description:
        descriptor.description = description
    if parent:
        descriptor.parent_uuid = parent
        descriptor.sibling_order_rank = rank
    if not unit:
        descriptor.child_ordering = TrackDescriptor.EXPLICIT
    elif unit == "bytes":
        descriptor.counter.unit = CounterDescriptor.UNIT_SIZE_BYTES
    else:
        descriptor.counter.unit_name = unit
    if axis:
        descriptor.counter.y_axis_share_key = axis
    return packet


def begin_packet(
    track: int,
    time_ns: int,
    name: str,
    *,
    category: str,
    notes: Notes,
    colour: str = "",
    leaving: Iterable[int] = (),
    reaching: Iterable[int] = (),
) -> Packet:
    """Begin a slice on ``track``, ``time_ns`` nanoseconds after the start; ``colour`` is a key of :data:`COLOURS`."""
    packet = _event(track, time_ns, TrackEvent.TYPE_SLICE_BEGIN)
    event = packet.track_event
    _describe(event, name, category, notes)
    if colour:
        event.correlation_id_str_iid = _COLOUR_NUMBERS[colour]
    event.flow_ids.extend(leaving)
    event.terminating_flow_ids.extend(reaching)
    return packet


def end_packet(track: int, time_ns: int) -> Packet:
    """End the slice that is open on ``track``, ``time_ns`` nanoseconds after the start of the run."""
    return _event(track, time_ns, TrackEvent.TYPE_SLICE_END)


def instant_packet(track: int, time_ns: int, name: str, *, category: str, notes: Notes) -> Packet:
    """Mark a moment; the arguments are those of :func:`begin_packet`."""
    packet = _event(track, time_ns, TrackEvent.TYPE_INSTANT)
    _describe(packet.track_event, name, category, notes)
    return packet


def counter_packet(track: int, time_ns: int, value: int | float) -> Packet:
    """Set the counter of ``track`` to ``value``, ``time_ns`` nanoseconds after the start of the run."""
    packet = _event(track, time_ns, TrackEvent.TYPE_COUNTER)
    if isinstance(value, float):
        packet.track_event.double_counter_value = value
    else:
        packet.track_event.counter_value = value
    return packet


def _event(track: int, time_ns: int, kind: int) -> Packet:
    packet = TracePacket(timestamp=time_ns, trusted_packet_sequence_id=_SEQUENCE)
    packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
    packet.track_event.type = kind
    packet.track_event.track_uuid = track
    return packet


def _describe(event: Any, name: str, category: str, notes: Notes) -> None:
    event.name = name
    if category in _CATEGORY_NUMBERS:
        event.category_iids.append(_CATEGORY_NUMBERS[category])
    else:
        event.categories.append(category)
    for title, value in notes.items():
        note = event.debug_annotations.add()
        if title in _ANNOTATION_NUMBERS:
            note.name_iid = _ANNOTATION_NUMBERS[title]
        else:
            note.name = title
        if isinstance(value, str):
            note.string_value = value
        elif isinstance(value, float):
            note.double_value = value
        else:
            note.int_value = value
