"""The records of a run sorted by stream and time, and checked: what every number and every drawing starts from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from ooc_chol.tracing.records import TraceRecord

StreamKey: TypeAlias = tuple[str, str]
Step: TypeAlias = tuple[str, int]


@dataclass(frozen=True)
class Timeline:
    """Records sorted by stream and time, checked, with overlaps inside a stream removed."""

    #: Operations of each stream by time; devices by number, streams by the places that their roles tell
    streams: dict[StreamKey, list[TraceRecord]]
    by_step: dict[Step, TraceRecord]  #: The same records, by device and step
    position: dict[Step, int]  #: Place of a record in the list of its stream
    start_ns: int  #: First start and last end; both 0 without records
    end_ns: int

    @property
    def wall_ns(self) -> int:
        """Nanoseconds from the first start to the last end."""
        return self.end_ns - self.start_ns

    @property
    def devices(self) -> list[str]:
        """Names of the devices, by number."""
        return list(dict.fromkeys(device for device, _ in self.streams))

    @property
    def records(self) -> list[TraceRecord]:
        """All records, those of each stream in turn, in order of time."""
        return [record for operations in self.streams.values() for record in operations]


Records: TypeAlias = Timeline | Iterable[TraceRecord]


def timeline(records: Records) -> Timeline:
    """Sort the records of one run by stream and time; raise ``ValueError`` for records that contradict each other."""
    if isinstance(records, Timeline):
        return records
    grouped: dict[StreamKey, list[TraceRecord]] = {}
    for record in records:
        grouped.setdefault((record.device, record.stream), []).append(record)
    streams = {key: _one_at_a_time(grouped[key]) for key in sorted(grouped, key=lambda key: stream_rank(grouped[key][0]))}
    by_step: dict[Step, TraceRecord] = {}
    position: dict[Step, int] = {}
    for operations in streams.values():
        for place, record in enumerate(operations):
            if (first := by_step.get((record.device, record.step))) is not None:
                raise ValueError(f"step {record.step} of {record.device} has two records: {first.label} and {record.label}")
            by_step[record.device, record.step] = record
            position[record.device, record.step] = place
    _refuse_unknown_producers(by_step)
    start = min((operations[0].start_ns for operations in streams.values()), default=0)
    end = max((operations[-1].end_ns for operations in streams.values()), default=0)
    return Timeline(streams, by_step, position, start, end)


def stream_rank(record: TraceRecord) -> tuple[str, int, int, str]:
    """Where the stream of a record stands: devices by number, streams by the places that their roles tell."""
    kind, _, number = record.device.partition(":")
    return kind, int(number) if number.isdecimal() else 0, record.role.place, f"{record.stream} {record.device}"


def _one_at_a_time(operations: list[TraceRecord]) -> list[TraceRecord]:
    """Operations of one stream by time; a start that a coarse clock puts before the end of the one in front moves to that end."""
    ordered = sorted(operations, key=lambda record: (record.start_ns, record.end_ns, record.step))
    free = ordered[0].start_ns
    for place, record in enumerate(ordered):
        if record.end_ns < record.start_ns:
            raise ValueError(f"{_name(record)} ends {record.start_ns - record.end_ns} ns before it starts")
        if record.start_ns < free:
            ordered[place] = record._replace(start_ns=free, end_ns=max(free, record.end_ns))
        free = ordered[place].end_ns
    return ordered


def _refuse_unknown_producers(by_step: dict[Step, TraceRecord]) -> None:
    for record in by_step.values():
        for device, step in record.after:
            if (device, step) not in by_step:
                raise ValueError(f"{_name(record)} waited for step {step} of {device}, which has no record")


def _name(record: TraceRecord) -> str:
    return f"{record.label} (step {record.step} of {record.device})"
