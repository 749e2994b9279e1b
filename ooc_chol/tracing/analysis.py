"""Numbers from the records of a run: who waited for whom, what streams and links did, and which copies were exposed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ooc_chol.tracing.records import TraceRecord
from ooc_chol.tracing.timeline import Records, StreamKey, Timeline, timeline

#: Gaps on a stream up to this many nanoseconds are not worth a name.
SHORTEST_WAIT_NS = 1_000


class Wait(NamedTuple):
    """A stretch of time in which a stream stood still before an operation.

    Parameters
    ----------
    device, stream : str
        The stream that stood still.
    start_ns, end_ns : int
        Nanoseconds on the clock of the records.
    step : int
        The step that the stream ran next.
    producer : TraceRecord or None
        The operation that ended last among those that the step had to wait for; None when it waited for nobody.
    """

    device: str
    stream: str
    start_ns: int
    end_ns: int
    step: int
    producer: TraceRecord | None

    @property
    def cause(self) -> str:
        """Kind of the producer, ``"other device"`` when it ran on another one, or ``"idle"`` without a producer."""
        if self.producer is None:
            return "idle"
        return self.producer.kind if self.producer.device == self.device else "other device"

    @property
    def label(self) -> str:
        """Label for a person, such as ``"wait for fetch (3, 1)"``."""
        if self.producer is None:
            return "idle"
        place = "" if self.producer.device == self.device else f" on {self.producer.device}"
        return f"wait for {self.producer.label}{place}"


@dataclass(frozen=True)
class StreamTimes:
    """How one stream spent the run; the four parts sum to the run's wall time.

    Parameters
    ----------
    busy_ns : int
        Nanoseconds in which an operation ran.
    waiting_ns : int
        Nanoseconds in which the stream waited for an operation of another stream or device.
    idle_ns : int
        Nanoseconds between operations without a producer to wait for, gaps too short for a name included.
    finished_ns : int
        Nanoseconds from its last operation to the end of the run.
    """

    busy_ns: int
    waiting_ns: int
    idle_ns: int
    finished_ns: int


@dataclass(frozen=True)
class LinkTotals:
    """Traffic over one link.

    Parameters
    ----------
    nbytes : int
        Bytes that crossed the link in the whole run.
    busy_ns : int
        Nanoseconds that its copies took, added up: of two that run at once both count.
    """

    nbytes: int
    busy_ns: int


def waits(records: Records, *, shortest_ns: int = SHORTEST_WAIT_NS) -> tuple[Wait, ...]:
    """Every stretch in which a stream stood still before an operation, and for whom.

    A gap before an operation, from the end of the one in front (or the start of the run), is a wait until the last of the
    operations in ``after`` ended. From there on it is idle: launching, waking up, or the thread that enqueues running late.

    Parameters
    ----------
    records : Timeline or iterable of TraceRecord
        Operations of one run.
    shortest_ns : int, optional
        Gaps of at most this many nanoseconds are left out, and a part of a gap that short is counted to the other part.

    Returns
    -------
    tuple of Wait
        The waits of each stream in turn, in order of time.

    Raises
    ------
    ValueError
        Two records have one step, one ends before it starts, or one waited for a step that has no record.
    """
    run = timeline(records)
    found: list[Wait] = []
    for operations in run.streams.values():
        free = run.start_ns
        for record in operations:
            if record.start_ns - free > shortest_ns:
                found.extend(_split_gap(free, record, run, shortest_ns))
            free = record.end_ns
    return tuple(found)


def _split_gap(free_ns: int, record: TraceRecord, run: Timeline, shortest_ns: int) -> list[Wait]:
    """Split the gap from ``free_ns`` to ``record`` into a wait for its last producer and idle time."""
    producers = (run.by_step[key] for key in record.after)
    last = max(producers, key=lambda producer: (producer.end_ns, producer.device, producer.step), default=None)
    turn = free_ns if last is None else min(max(last.end_ns, free_ns), record.start_ns)
    if turn - free_ns <= shortest_ns:
        turn = free_ns
    elif record.start_ns - turn <= shortest_ns:
        turn = record.start_ns
    parts = ((free_ns, turn, last), (turn, record.start_ns, None))
    return [Wait(record.device, record.stream, start, end, record.step, who) for start, end, who in parts if end > start]


def stream_times(records: Records) -> dict[StreamKey, StreamTimes]:
    """How each stream spent the run.

    Parameters
    ----------
    records : Timeline or iterable of TraceRecord
        Operations of one run.

    Returns
    -------
    dict from (device, stream) to StreamTimes
        Times of each stream; devices are in order of their numbers, streams of the places that their roles tell.

    Raises
    ------
    ValueError
        Two records have one step, one ends before it starts, or one waited for a step that has no record.
    """
    run = timeline(records)
    waiting = dict.fromkeys(run.streams, 0)
    for wait in waits(run):
        if wait.producer is not None:
            waiting[wait.device, wait.stream] += wait.end_ns - wait.start_ns
    times = {}
    for key, operations in run.streams.items():
        busy = sum(record.end_ns - record.start_ns for record in operations)
        finished = run.end_ns - operations[-1].end_ns
        times[key] = StreamTimes(busy, waiting[key], run.wall_ns - busy - waiting[key] - finished, finished)
    return times


def link_totals(records: Records) -> dict[str, LinkTotals]:
    """Bytes and copy time of each link.

    Parameters
    ----------
    records : Timeline or iterable of TraceRecord
        Operations of one run.

    Returns
    -------
    dict from str to LinkTotals
        Totals by name of the link, such as ``"source->host:0"``.

    Raises
    ------
    ValueError
        Two records have one step, one ends before it starts, or one waited for a step that has no record.
    """
    totals: dict[str, LinkTotals] = {}
    for record in timeline(records).records:
        if record.link:
            before = totals.get(record.link, LinkTotals(0, 0))
            totals[record.link] = LinkTotals(before.nbytes + record.nbytes, before.busy_ns + record.end_ns - record.start_ns)
    return dict(sorted(totals.items()))


def computing_ns(records: Records) -> int:
    """Nanoseconds in which a device ran the kernel of a task, summed over devices; kernels side by side count once."""
    run = timeline(records)
    spans: dict[str, list[tuple[int, int]]] = {}
    for record in run.records:
        if record.kind == "compute":
            spans.setdefault(record.device, []).append((record.start_ns, record.end_ns))
    return sum(_covered_ns(kernels, run.start_ns, run.end_ns) for kernels in spans.values())


def exposed_copy_seconds(records: Records) -> float:
    """Seconds in which devices stood still while a fetch that they waited for was in flight, summed over devices.

    A device stands still while none of its computing streams runs anything. Of each gap on such a stream the part counts in
    which the fetches that the next kernel waited for, or fetches queued in front of them, were running. What other computing
    streams of the device did meanwhile is taken off. A fetch that itself waits, for a write or for another device, is
    not in flight.

    Parameters
    ----------
    records : Timeline or iterable of TraceRecord
        Operations of one run.

    Returns
    -------
    float
        Seconds of exposed copies, summed over devices; 0 where no device waited for a fetch.

    Raises
    ------
    ValueError
        Two records have one step, one ends before it starts, or one waited for a step that has no record.
    """
    run = timeline(records)
    exposed_ns = 0
    for device in run.devices:
        queues = [ran for (owner, _), ran in run.streams.items() if owner == device and ran[0].role.computes]
        busy = [(record.start_ns, record.end_ns) for operations in queues for record in operations]
        fetches = [span for operations in queues for span in _awaited_fetches(operations, run)]
        with_fetches_ns = _covered_ns([*busy, *fetches], run.start_ns, run.end_ns)
        exposed_ns += with_fetches_ns - _covered_ns(busy, run.start_ns, run.end_ns)
    return exposed_ns * 1e-9


def _awaited_fetches(operations: list[TraceRecord], run: Timeline) -> list[tuple[int, int]]:
    """Parts of the gaps on one computing stream in which a fetch was in flight that the next operation waited for."""
    spans: list[tuple[int, int]] = []
    free = run.start_ns
    for record in operations:
        if record.start_ns > free:
            fetches = _fetches_in_flight(free, record, run)
            spans.extend((max(free, start), min(record.start_ns, end)) for start, end in fetches)
        free = record.end_ns
    return [(start, end) for start, end in spans if end > start]


def _fetches_in_flight(free_ns: int, record: TraceRecord, run: Timeline) -> list[tuple[int, int]]:
    """Start and end of the fetches that ``record`` waited for after ``free_ns``, with the fetches queued in front of them."""
    last: dict[StreamKey, int] = {}
    for key in record.after:
        producer = run.by_step[key]
        if producer.kind == "fetch":
            queue = producer.device, producer.stream
            last[queue] = max(last.get(queue, 0), run.position[key])
    spans = []
    for queue, place in last.items():
        operations = run.streams[queue]
        while place >= 0 and operations[place].end_ns > free_ns:
            if operations[place].kind == "fetch":
                spans.append((operations[place].start_ns, operations[place].end_ns))
            place -= 1
    return spans


def _covered_ns(spans: list[tuple[int, int]], start_ns: int, end_ns: int) -> int:
    """Nanoseconds of ``[start_ns, end_ns]`` that the union of ``spans`` covers."""
    covered = 0
    for start, end in sorted(spans):
        low, high = max(start, start_ns), min(end, end_ns)
        if high > low:
            covered += high - low
            start_ns = high
    return covered
