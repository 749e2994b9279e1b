"""A trace as native Perfetto protobuf: tracks, slices, waits, flows and counters.

The viewer opens a file whose tracks all stand below one, and then shows what is directly below it. So the first track is the run
itself, as one slice that says what it was, and directly below it, from top to bottom, stand a few counters that sum it up, and
the streams of all devices with their predictions. What they waited for, the passes beside the run, and the rate of every copy
are folded into tracks of their own. They are plain tracks and not processes and threads: the viewer nests and orders
nothing below a thread, and appends invented numbers to the names.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from gzip import GzipFile
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias, cast

from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from ooc_chol.files.outputs import output_file
from ooc_chol.tracing.analysis import Wait, waits
from ooc_chol.tracing.counters import Samples, Stretches, best_rate, by_link, copy_rate_samples, resident_samples, significant
from ooc_chol.tracing.perfetto_names import (
    ABOUT,
    BUDGET,
    COMPUTES,
    COPIES,
    DETAILS,
    FOLDED_PASSES,
    HELPS,
    NO_PREDICTION,
    PREDICTED,
    RUN,
    WAITS,
    track_name,
)
from ooc_chol.tracing.perfetto_packets import (
    COLOURS,
    Notes,
    Packet,
    attributes_packet,
    begin_packet,
    counter_packet,
    end_packet,
    instant_packet,
    names_packet,
    track_packet,
)
from ooc_chol.tracing.records import TRACE_FILES, TraceRecord
from ooc_chol.tracing.timeline import Records, Step, StreamKey, Timeline, stream_rank, timeline

Timed: TypeAlias = tuple[int, Packet]


@dataclass(frozen=True)
class _Flows:
    """Numbers of the arrows that leave from and arrive at each step, by device and step."""

    leaving: dict[Step, list[int]]
    reaching: dict[Step, list[int]]


class _Side(NamedTuple):
    """One timeline as it is drawn: what its tracks are called, its time 0, its arrows, and the waits of each stream."""

    name: str
    run: Timeline
    origin_ns: int
    flows: _Flows
    gaps: dict[StreamKey, list[Wait]]


class _Layout:
    """The tracks described so far, and the events of each in order of time."""

    def __init__(self, metadata: Notes) -> None:
        self.packets: list[Packet] = [names_packet(), attributes_packet(metadata)]
        self.events: list[Iterator[Timed]] = []
        self.n_flows = 0
        self._below: dict[int, int] = {}  # tracks below each

    def add_track(self, name: str, *, parent: int = 0, description: str = "", unit: str = "", axis: str = "") -> int:
        """Describe the next track below ``parent`` and return its number."""
        track, rank = len(self._below) + 1, self._below.get(parent, 0)
        self._below[parent], self._below[track] = rank + 1, 0
        options = {"description": description, "unit": unit, "axis": axis}
        self.packets.append(track_packet(track, name, parent=parent, rank=rank, **options))
        return track

    def add_counter(self, name: str, samples: Samples, origin_ns: int, *, parent: int, unit: str, axis: str) -> None:
        """Add a counter below ``parent``."""
        track = self.add_track(name, parent=parent, unit=unit, axis=axis)
        self.events.append((time_ns - origin_ns, counter_packet(track, time_ns - origin_ns, value)) for time_ns, value in samples)

    def side(self, name: str, run: Timeline, origin_ns: int) -> _Side:
        """Prepare a timeline to be drawn."""
        gaps: dict[StreamKey, list[Wait]] = {}
        for wait in waits(run):
            gaps.setdefault((wait.device, wait.stream), []).append(wait)
        return _Side(name, run, origin_ns, self._number_flows(run), gaps)

    def _number_flows(self, run: Timeline) -> _Flows:
        """Give each pair of a producer and a step that waited for it a number: an arrow cannot fork."""
        flows = _Flows({}, {})
        for record in run.records:
            for producer in dict.fromkeys(record.after):
                self.n_flows += 1
                flows.leaving.setdefault(producer, []).append(self.n_flows)
                flows.reaching.setdefault((record.device, record.step), []).append(self.n_flows)
        return flows


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

    Packets are made as they are written: beside the records, memory holds the waits, the numbers of the flows and the counters.
    """
    layout = _Layout(metadata)
    run, beside, expected = (timeline(each) for each in (records, passes, predicted))
    origin = min((each.start_ns for each in (run, beside) if each.streams), default=0)
    measured = layout.side("", run, origin)
    # the prediction begins where the run does
    prediction = layout.side(PREDICTED, expected, expected.start_ns - (run.start_ns - origin if run.streams else 0))
    root = _add_root(layout, measured, metadata, is_predicted=bool(expected.streams))
    if run.streams:
        _add_shares(layout, root, measured, expected)
    is_alone = len({*run.devices, *expected.devices}) <= 1
    if is_alone:
        _add_memory(layout, root, measured, metadata)
    _add_streams(layout, root, (measured, prediction), is_alone=is_alone)
    if not is_alone:
        _add_memory(layout, root, measured, metadata)
    if beside.streams:
        _add_passes(layout, root, layout.side("", beside, origin))
    _add_copies(layout, root, (measured, prediction))
    builder = StreamingTraceProtoBuilder(file)
    for packet in layout.packets:
        builder.write_packet(packet)
    # The merge is stable within each track, so an end comes before the begin that follows it at the same time.
    for _, packet in heapq.merge(*layout.events, key=itemgetter(0)):
        builder.write_packet(packet)


def _add_root(layout: _Layout, measured: _Side, metadata: Notes, *, is_predicted: bool) -> int:
    """Add the track above all others, with the run as one slice."""
    n = metadata.get("n")
    name = f"{RUN}, n = {n:,}" if isinstance(n, int) else RUN
    root = layout.add_track(name, description=ABOUT if is_predicted else ABOUT + NO_PREDICTION)
    start, end = measured.run.start_ns - measured.origin_ns, measured.run.end_ns - measured.origin_ns
    title = _title(metadata)
    if end > start:
        begin = begin_packet(root, start, title, category="run", notes=metadata, colour="run")
        layout.events.append(iter([(start, begin), (end, end_packet(root, end))]))
    else:
        layout.events.append(iter([(start, instant_packet(root, start, title, category="run", notes=metadata))]))
    return root


def _title(metadata: Notes) -> str:
    """Say in a line what run it was."""
    forms = {
        "n": "n = {:,}",
        "tile_size": "tiles of {:,}",
        "policy": "{}",
        "devices": "{}",
        "seconds": "{:.3g} s",
    }
    facts = [form.format(metadata[key]) for key, form in forms.items() if key in metadata]
    if isinstance(rate := metadata.get("gflops_per_second"), float):
        facts.append(f"{rate / 1e3:.3g} TFLOP/s" if rate >= 1e3 else f"{rate:.3g} GFLOP/s")
    return ", ".join(facts) or RUN


def _add_shares(layout: _Layout, root: int, measured: _Side, expected: Timeline) -> None:
    """Add the counters on top: how busy devices and links were."""
    run, origin = measured.run, measured.origin_ns
    records, devices = run.records, run.devices
    stretches = Stretches(run.start_ns, run.end_ns, len(records))
    for device in devices:
        kernels = (record for record in records if record.device == device and record.kind == "compute")
        layout.add_counter(f"{device} computes", stretches.busy_percent(kernels), origin, parent=root, unit="%", axis="share")
    ceilings = {link: best_rate(copies) for link, copies in by_link(expected.records).items()}
    for name, links in _together(by_link(records), devices).items():
        ceiling = sum(ceilings.get(link, 0.0) for link in links)
        copies = (copy for each in links.values() for copy in each)
        title, unit = (f"{name}, % of {ceiling:.4g} GB/s", "%") if ceiling else (name, "GB/s")
        samples = stretches.rates(copies, unit=ceiling / 100.0 if ceiling else 1.0)
        layout.add_counter(title, samples, origin, parent=root, unit=unit, axis=f"links {unit}")


def _add_memory(layout: _Layout, root: int, measured: _Side, metadata: Notes) -> None:
    """Add what was resident on each device, beside the budget."""
    run = measured.run
    for device in run.devices:
        resident = resident_samples((record for record in run.records if record.device == device), run.end_ns)
        layout.add_counter(f"{device} resident", resident, measured.origin_ns, parent=root, unit="bytes", axis="resident")
    if run.streams and isinstance(budget := metadata.get("budget_bytes"), int):
        line: Samples = [(run.start_ns, budget), (run.end_ns, 0)]
        layout.add_counter(BUDGET, line, measured.origin_ns, parent=root, unit="bytes", axis="resident")


def _together(links: dict[str, list[TraceRecord]], devices: list[str]) -> dict[str, dict[str, list[TraceRecord]]]:
    """Links of the same sort of all devices under one name; with one device each is on its own."""
    found: dict[str, dict[str, list[TraceRecord]]] = {}
    for link, copies in links.items():
        name = link if len(devices) == 1 else link.replace(copies[0].device, "devices")
        found.setdefault(name, {})[link] = copies
    return found


def _add_streams(layout: _Layout, root: int, sides: tuple[_Side, _Side], *, is_alone: bool) -> None:
    """Add the streams of one device with their predictions beneath; of several stream by stream, predictions folded into them."""
    measured, prediction = sides
    streams = {**prediction.run.streams, **measured.run.streams}
    ranks = {key: stream_rank(operations[0]) for key, operations in streams.items()}
    for key in sorted(streams, key=lambda key: ranks[key] if is_alone else (ranks[key][2], key[1], ranks[key])):
        parent = root
        if key in measured.run.streams:
            track = _add_stream(layout, root, measured, key)
            parent = root if is_alone else track
        if key in prediction.run.streams:
            _add_stream(layout, parent, prediction, key)


def _add_stream(layout: _Layout, parent: int, side: _Side, key: StreamKey) -> int:
    """Add what one stream did, with what it waited for folded into it."""
    operations = side.run.streams[key]
    description = COMPUTES if operations[0].role.computes else HELPS
    track = layout.add_track(track_name(*key, side.name), parent=parent, description=description)
    layout.events.append(_slices(track, operations, side))
    if gaps := side.gaps.get(key):
        below = layout.add_track(track_name(*key, side.name + WAITS), parent=track)
        layout.events.append(_wait_slices(below, gaps, side.origin_ns))
    return track


def _add_passes(layout: _Layout, root: int, side: _Side) -> None:
    """Add the passes before and after the run, folded."""
    group = layout.add_track(FOLDED_PASSES, parent=root)
    for key in side.run.streams:
        _add_stream(layout, group, side, key)
    _add_device_counters(layout, group, side)
    for device in side.run.devices:
        resident = resident_samples((record for record in side.run.records if record.device == device), side.run.end_ns)
        layout.add_counter(f"{device} resident", resident, side.origin_ns, parent=group, unit="bytes", axis="resident")


def _add_copies(layout: _Layout, root: int, sides: Iterable[_Side]) -> None:
    """Add the rates of single copies, measured and predicted, folded."""
    drawn = [side for side in sides if by_link(side.run.records)]
    if drawn:
        group = layout.add_track(DETAILS, parent=root, description=COPIES)
        for side in drawn:
            _add_device_counters(layout, group, side)


def _add_device_counters(layout: _Layout, parent: int, side: _Side) -> None:
    """Add a counter for the rate of each link, copy by copy."""
    for link, copies in by_link(side.run.records).items():
        samples = copy_rate_samples(copies)
        layout.add_counter(link + side.name, samples, side.origin_ns, parent=parent, unit="GB/s", axis=link)


def _slices(track: int, operations: list[TraceRecord], side: _Side) -> Iterator[Timed]:
    """Begin and end every operation of one stream, in order."""
    leaving, reaching = side.flows.leaving, side.flows.reaching
    for record in operations:
        start, end = record.start_ns - side.origin_ns, record.end_ns - side.origin_ns
        step = record.device, record.step
        work = record.work or record.kind
        yield (
            start,
            begin_packet(
                track,
                start,
                record.label,
                category=record.kind,
                notes=_record_notes(record),
                colour=work if work in COLOURS else "",
                leaving=leaving.get(step, ()),
                reaching=reaching.get(step, ()),
            ),
        )
        yield end, end_packet(track, end)


def _wait_slices(track: int, gaps: Iterable[Wait], origin_ns: int) -> Iterator[Timed]:
    """Begin and end every wait of one stream, in order."""
    for wait in sorted(gaps, key=attrgetter("start_ns", "end_ns")):
        start, end = wait.start_ns - origin_ns, wait.end_ns - origin_ns
        category: str = "idle"
        notes: Notes = {"before step": wait.step}
        if wait.producer is not None:
            category, notes = "wait", {**notes, "waited for": f"step {wait.producer.step} of {wait.producer.device}"}
        yield start, begin_packet(track, start, wait.label, category=category, notes=notes, colour=category)
        yield end, end_packet(track, end)


def _record_notes(record: TraceRecord) -> Notes:
    """Describe an operation; bytes per nanosecond are GB/s. Rates have four digits."""
    duration = record.end_ns - record.start_ns
    notes: dict[str, str | int | float] = {"step": record.step, "block": record.block, "format": record.fmt}
    for title, rate, amount, unit in (("bytes", "GB/s", record.nbytes, 1.0), ("flops", "TFLOP/s", record.flops, 1e3)):
        if amount:
            notes[title] = amount
            if duration:
                notes[rate] = significant(amount / duration / unit)
    if record.link:
        notes["link"] = record.link
    return {**notes, "resident bytes": record.resident_bytes}
