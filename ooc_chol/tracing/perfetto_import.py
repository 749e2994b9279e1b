"""Records of a run from the file that :mod:`ooc_chol.tracing.perfetto_export` wrote, of this version or an earlier one."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TracePackets
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from ooc_chol.tracing.perfetto_names import COMPUTES, FOLDED_PASSES, HELPS, PREDICTED, stream_of
from ooc_chol.tracing.perfetto_packets import COLOURS
from ooc_chol.tracing.records import TRACE_FILES, StreamRole, TraceRecord, decompressed, read_trace_file
from ooc_chol.tracing.timeline import timeline

_KindT = TypeVar("_KindT", int, str)

#: Groups of tracks that earlier versions wrote, a device in front.
_EARLIER = {"measured": "records", "predicted": "predicted", "passes": "passes"}
_WORK_OF_WORD = {COLOURS[work]: work for work in ("product", "panel")}


class _DamagedError(Exception):
    """A trace says what no run can have done; the text says what."""


class Contents(NamedTuple):
    """Content of a file, as :class:`ooc_chol.Trace` takes it; times are nanoseconds from the start."""

    records: tuple[TraceRecord, ...]
    predicted: tuple[TraceRecord, ...]
    passes: tuple[TraceRecord, ...]
    metadata: dict[str, str | int | float]


class _Track(NamedTuple):
    """A track of operations: which of :class:`Contents` they belong to, whose they are, and where it stands."""

    part: str
    device: str
    stream: str
    place: int
    description: str


class _Slice(NamedTuple):
    """One slice; a mark starts and ends at once."""

    track: int
    event: Any
    start_ns: int
    end_ns: int


class _Names:
    """The names that a file gives numbers."""

    def __init__(self) -> None:
        self.categories: dict[int, str] = {}
        self.annotations: dict[int, str] = {}
        self.words: dict[int, str] = {}

    def add(self, interned: Any) -> None:
        """Take what one packet numbers."""
        self.categories.update({entry.iid: _text(entry.name) for entry in interned.event_categories})
        self.annotations.update({entry.iid: _text(entry.name) for entry in interned.debug_annotation_names})
        self.words.update({entry.iid: entry.str.decode("utf-8", "replace") for entry in interned.correlation_id_str})

    def category_of(self, event: Any) -> str:
        """The first category of an event."""
        return self.categories[event.category_iids[0]] if event.category_iids else _text(event.categories[0])

    def notes_of(self, event: Any) -> dict[str, Any]:
        """Annotations of an event by name."""
        return {
            (self.annotations[note.name_iid] if note.name_iid else _text(note.name)): getattr(
                note, note.WhichOneof("value") or "bool_value"
            )
            for note in event.debug_annotations
        }

    def work_of(self, event: Any) -> str:
        """Sort of work of an event, where that is told."""
        return _WORK_OF_WORD.get(self.words.get(event.correlation_id_str_iid, ""), "")


def read(path: Path) -> Contents:
    """Read a trace, compressed with gzip or not; raise ``ValueError`` for a file that is none of ours or is damaged."""
    content = read_trace_file(path)
    try:
        return _contents(TracePackets.FromString(decompressed(content)))
    except (DecodeError, EOFError, zlib.error, LookupError, _DamagedError) as error:
        raise ValueError(f"{path} is a damaged {TRACE_FILES.name}: {error or type(error).__name__}") from error


def _contents(packets: Any) -> Contents:
    names, tracks, slices = _Names(), _tracks(packets), []
    metadata: dict[str, str | int | float] = {}
    for entry in _slices(packets, names):
        category = names.category_of(entry.event)
        if category == "run":
            metadata = {
                name: value for name, value in names.notes_of(entry.event).items() if isinstance(value, str | int | float)
            }
        elif entry.track in tracks and category not in ("wait", "idle"):  # which earlier versions drew among operations
            slices.append((entry, names.notes_of(entry.event)))
    leaves = {
        flow: (tracks[entry.track].device, _known(notes, "step", int)) for entry, notes in slices for flow in entry.event.flow_ids
    }
    computing = {entry.track for entry, _ in slices if names.category_of(entry.event) == "compute"}
    found: dict[str, list[TraceRecord]] = defaultdict(list)
    for entry, notes in slices:
        track = tracks[entry.track]
        computes = track.description == COMPUTES if track.description else entry.track in computing
        after = tuple(leaves[flow] for flow in entry.event.terminating_flow_ids)
        role = StreamRole(track.place, computes)
        found[track.part].append(_record(entry, notes, track, names, after=after, role=role))
    contents = Contents(tuple(found["records"]), tuple(found["predicted"]), tuple(found["passes"]), metadata)
    for part in contents[:3]:
        try:
            timeline(part)
        except ValueError as error:
            raise _DamagedError(str(error)) from error
    return contents


def _text(value: str | bytes) -> str:
    """A text of the file, which protobuf gives as bytes where they are none."""
    if isinstance(value, bytes):
        raise _DamagedError(f"a name in it is no text: {value[:40]!r}")
    return value


def _known(notes: dict[str, Any], name: str, kind: type[_KindT], default: _KindT | None = None) -> _KindT:
    """An annotation of the kind that it has in every trace; numbers are not negative."""
    value = notes.get(name, default)
    if isinstance(value, bool) or not isinstance(value, kind) or (isinstance(value, int) and value < 0):
        raise _DamagedError(f"{name!r} of an operation is {value!r:.80}" if name in notes else f"an operation has no {name!r}")
    return value


def _record(
    entry: _Slice, notes: dict[str, Any], track: _Track, names: _Names, *, after: tuple[tuple[str, int], ...], role: StreamRole
) -> TraceRecord:
    return TraceRecord(
        step=_known(notes, "step", int),
        device=track.device,
        stream=track.stream,
        kind=names.category_of(entry.event),
        label=_text(entry.event.name),
        block=_known(notes, "block", str),
        fmt=_known(notes, "format", str),
        nbytes=_known(notes, "bytes", int, 0),
        link=_known(notes, "link", str, ""),
        flops=_known(notes, "flops", int, 0),
        start_ns=entry.start_ns,
        end_ns=entry.end_ns,
        after=after,
        resident_bytes=_known(notes, "resident bytes", int),
        role=role,
        work=names.work_of(entry.event),
    )


def _slices(packets: Any, names: _Names) -> Iterator[_Slice]:
    """Every slice and mark as it ends; ``names`` are taken on the way."""
    begun: dict[int, tuple[int, Any]] = {}
    for packet in packets.packet:
        if packet.HasField("interned_data"):
            names.add(packet.interned_data)
        if not packet.HasField("track_event") or (event := packet.track_event).type == TrackEvent.TYPE_COUNTER:
            continue
        track = event.track_uuid
        if event.type != TrackEvent.TYPE_SLICE_END:
            begun[track] = packet.timestamp, event
        if event.type != TrackEvent.TYPE_SLICE_BEGIN:
            start_ns, event = begun.pop(track)
            yield _Slice(track, event, start_ns, packet.timestamp)


def _tracks(packets: Any) -> dict[int, _Track]:
    """The tracks of operations by number; not those of waits, counters and the run itself."""
    described = [packet.track_descriptor for packet in packets.packet if packet.HasField("track_descriptor")]
    names = {track.uuid: _text(track.name) for track in described}
    found = {}
    for place, track in enumerate(described):
        above = names.get(track.parent_uuid, "")
        device, _, earlier = above.rpartition(" ")
        if track.description in (COMPUTES, HELPS):
            device, stream, end = stream_of(_text(track.name))
            part = "predicted" if end == PREDICTED else "passes" if above == FOLDED_PASSES else "records"
            found[track.uuid] = _Track(part, device, stream, place, track.description)
        elif earlier in _EARLIER and " " not in device and not track.HasField("counter"):
            found[track.uuid] = _Track(_EARLIER[earlier], device, _text(track.name), place, "")
    return found
