"""A trace as native Perfetto protobuf: tracks, slices, waits, flows and counters.

Each device is a group of tracks, ``host:0 measured``, with ``host:0 predicted`` beside it: a track for each stream, then the
counters. The groups are plain tracks and not processes, because Perfetto keeps the order of tracks only below plain ones and
advises against made-up processes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from gzip import GzipFile
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import IO, TypeAlias, cast

from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from ooc_chol.outputs import output_file
from ooc_chol.tracing.analysis import Wait, waits
from ooc_chol.tracing.perfetto_packets import (
    Notes,
    Packet,
    begin_packet,
    counter_packet,
    end_packet,
    instant_packet,
    names_packet,
    track_packet,
)
from ooc_chol.tracing.records import TRACE_FILES, TraceRecord
from ooc_chol.tracing.timeline import Records, Step, StreamKey, Timeline, timeline

Timed: TypeAlias = tuple[int, Packet]


@dataclass(frozen=True)
class _Flows:
    """Numbers of the arrows that leave from and arrive at each step, by device and step."""

    leaving: dict[Step, list[int]]
    reaching: dict[Step, list[int]]


class _Layout:
    """The tracks described so far, and the events of each in order of time."""

    def __init__(self) -> None:
        self.packets: list[Packet] = [names_packet()]
        self.events: list[Iterator[Timed]] = []
        self.n_flows = 0

    def add_track(self, name: str, *, parent: int = 0, rank: int = 0, unit: str = "") -> int:
        """Describe a track and return its number."""
        track = len(self.packets)
        self.packets.append(track_packet(track, name, parent=parent, rank=rank, unit=unit))
        return track


def export(
    records: Records, predicted: Records, metadata: Notes, path: Path, *, passes: Records = (), replace: bool = False
) -> Path:
    """Write a run to ``path``, measured and predicted, and the passes before and after it; compressed if that ends in ``.gz``."""
    with output_file(path, kind=TRACE_FILES, replace=replace) as part, part.open("wb") as file:
        if path.suffix.lower() == ".gz":
            with GzipFile("", "wb", fileobj=file, mtime=0) as packed:  # no name, no time: the same trace gives the same bytes
                write_packets(cast(IO[bytes], packed), records, predicted, passes=passes, metadata=metadata)
        else:
            write_packets(file, records, predicted, passes=passes, metadata=metadata)
    return path


def write_packets(file: IO[bytes], records: Records, predicted: Records, *, passes: Records, metadata: Notes) -> None:
    """Write the packets of a run: descriptions of the tracks first, then the events of all tracks by time.

    Packets are made as they are written: beside the records, memory holds the waits and the numbers of the flows.
    """
    layout = _Layout()
    about = layout.add_track("about this run")
    layout.events.append(iter([(0, instant_packet(about, 0, "run", category="run", notes=metadata))]))
    measured, beside, expected = (timeline(each) for each in (records, passes, predicted))
    origin = min((run.start_ns for run in (measured, beside) if run.streams), default=0)
    _add_run(layout, "measured", measured, origin)
    _add_run(layout, "passes", beside, origin)
    # the prediction begins where the run does
    _add_run(layout, "predicted", expected, expected.start_ns - (measured.start_ns - origin if measured.streams else 0))
    builder = StreamingTraceProtoBuilder(file)
    for packet in layout.packets:
        builder.write_packet(packet)
    # The merge is stable within each track, so an end comes before the begin that follows it at the same time.
    for _, packet in heapq.merge(*layout.events, key=itemgetter(0)):
        builder.write_packet(packet)


def _add_run(layout: _Layout, name: str, run: Timeline, origin_ns: int) -> None:
    """Lay out a group for each device, its streams on top of its counters; ``origin_ns`` is time 0."""
    flows = _number_flows(layout, run)
    gaps: dict[StreamKey, list[Wait]] = {}
    for wait in waits(run):
        gaps.setdefault((wait.device, wait.stream), []).append(wait)
    for device in run.devices:
        group = layout.add_track(f"{device} {name}")
        rank = 0
        for key, operations in run.streams.items():
            if key[0] == device:
                track = layout.add_track(key[1], parent=group, rank=rank)
                layout.events.append(_slices(track, [*operations, *gaps.get(key, [])], flows, origin_ns))
                rank += 1
        for title, unit, samples in _counters(run, device):
            track = layout.add_track(title, parent=group, rank=rank, unit=unit)
            layout.events.append(_values(track, samples, origin_ns))
            rank += 1


def _number_flows(layout: _Layout, run: Timeline) -> _Flows:
    """Give each pair of a producer and a step that waited for it a number: an arrow cannot fork."""
    flows = _Flows({}, {})
    for record in run.records:
        for producer in dict.fromkeys(record.after):
            layout.n_flows += 1
            flows.leaving.setdefault(producer, []).append(layout.n_flows)
            flows.reaching.setdefault((record.device, record.step), []).append(layout.n_flows)
    return flows


def _slices(track: int, entries: list[TraceRecord | Wait], flows: _Flows, origin_ns: int) -> Iterator[Timed]:
    """Begin and end every operation and wait of one stream, in order."""
    for entry in sorted(entries, key=attrgetter("start_ns", "end_ns")):
        start, end = entry.start_ns - origin_ns, entry.end_ns - origin_ns
        if isinstance(entry, Wait):
            category = "idle" if entry.producer is None else "wait"
            notes = _wait_notes(entry)
            yield start, begin_packet(track, start, entry.label, category=category, notes=notes, leaving=(), reaching=())
        else:
            step = entry.device, entry.step
            arrows = {"leaving": flows.leaving.get(step, ()), "reaching": flows.reaching.get(step, ())}
            yield start, begin_packet(track, start, entry.label, category=entry.kind, notes=_record_notes(entry), **arrows)
        yield end, end_packet(track, end)


def _record_notes(record: TraceRecord) -> Notes:
    """Describe an operation; bytes and flops per nanosecond are GB/s and GFLOP/s."""
    duration = record.end_ns - record.start_ns
    notes: dict[str, str | int | float] = {"step": record.step, "block": record.block, "format": record.fmt}
    for title, rate, amount in (("bytes", "GB/s", record.nbytes), ("flops", "GFLOP/s", record.flops)):
        if amount:
            notes[title] = amount
            if duration:
                notes[rate] = amount / duration
    if record.link:
        notes["link"] = record.link
    return {**notes, "resident bytes": record.resident_bytes}


def _wait_notes(wait: Wait) -> Notes:
    """Describe a wait: the step that waits, and for whom."""
    if wait.producer is None:
        return {"before step": wait.step}
    return {"before step": wait.step, "waited for": f"step {wait.producer.step} of {wait.producer.device}"}


def _counters(run: Timeline, device: str) -> Iterator[tuple[str, str, list[tuple[int, int | float]]]]:
    """Yield title, unit and samples (time, value) of each counter of a device."""
    records = [record for record in run.records if record.device == device]
    yield "resident", "bytes", _resident_samples(records)
    copies: dict[str, list[TraceRecord]] = {}
    for record in records:
        if record.link:
            copies.setdefault(record.link, []).append(record)
    for link in sorted(copies):
        yield link, "GB/s", _rate_samples(copies[link])


def _resident_samples(records: Iterable[TraceRecord]) -> list[tuple[int, int | float]]:
    """Sample the resident bytes as each step ends; a step that ends late, behind a later one, says nothing new."""
    samples: list[tuple[int, int | float]] = []
    newest = -1
    for record in sorted(records, key=attrgetter("end_ns", "step")):
        if record.step > newest:
            newest = record.step
            samples.append((record.end_ns, record.resident_bytes))
    return samples


def _rate_samples(copies: list[TraceRecord]) -> list[tuple[int, int | float]]:
    """Sample bytes per nanosecond of the copies that run, and 0 between; copies too short to measure have no rate."""
    timed = [copy for copy in copies if copy.end_ns > copy.start_ns]
    edges = [(at, copy) for copy in timed for at in (copy.start_ns, copy.end_ns)]
    samples: list[tuple[int, int | float]] = []
    running: dict[tuple[str, int], float] = {}
    for at, group in groupby(sorted(edges, key=itemgetter(0)), key=itemgetter(0)):
        for _, copy in group:
            if running.pop((copy.stream, copy.step), None) is None:
                running[copy.stream, copy.step] = copy.nbytes / (copy.end_ns - copy.start_ns)
        samples.append((at, sum(running.values(), 0.0)))
    return samples


def _values(track: int, samples: Iterable[tuple[int, int | float]], origin_ns: int) -> Iterator[Timed]:
    """Turn the samples of one counter into packets."""
    for time_ns, value in samples:
        yield time_ns - origin_ns, counter_packet(track, time_ns - origin_ns, value)
