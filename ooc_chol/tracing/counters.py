"""The counters of a trace as samples: shares and rates over short stretches of a run, copies one by one, resident bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TypeAlias

from ooc_chol.tracing.records import TraceRecord

#: Time in nanoseconds, and the value from then on.
Samples: TypeAlias = list[tuple[int, int | float]]

#: A run is cut into this many stretches for its summary, or fewer where it has few operations.
MOST_STRETCHES = 240
FEWEST_STRETCHES = 12
#: Operations for each stretch of such a run.
OPERATIONS_PER_STRETCH = 16


def significant(value: float) -> float:
    """Round to four digits."""
    return float(f"{value:.4g}")


class Stretches:
    """A run cut into stretches of equal length, whole nanoseconds."""

    def __init__(self, start_ns: int, end_ns: int, operations: int) -> None:
        wanted = max(FEWEST_STRETCHES, min(MOST_STRETCHES, operations // OPERATIONS_PER_STRETCH))
        self.start_ns, self.end_ns = start_ns, end_ns
        self.length_ns = max(1, -(-(end_ns - start_ns) // wanted))
        self.count = -(-(end_ns - start_ns) // self.length_ns)

    def busy_percent(self, operations: Iterable[TraceRecord]) -> Samples:
        """Sample the share of each stretch in which any of the operations ran."""
        busy = [0.0] * self.count
        done = self.start_ns
        for record in sorted(operations, key=attrgetter("start_ns")):
            if record.end_ns > done:
                self._spread(busy, max(done, record.start_ns), record.end_ns, 1.0)
                done = record.end_ns
        return self._samples([100.0 * amount for amount in busy])

    def rates(self, copies: Iterable[TraceRecord], *, unit: float = 1.0) -> Samples:
        """Sample bytes per nanosecond, over ``unit``, of the copies in each stretch; a copy's bytes cross evenly in its time."""
        moved = [0.0] * self.count
        for copy in copies:
            if copy.end_ns > copy.start_ns:
                self._spread(moved, copy.start_ns, copy.end_ns, copy.nbytes / (copy.end_ns - copy.start_ns))
        return self._samples([amount / unit for amount in moved])

    def _spread(self, totals: list[float], start_ns: int, end_ns: int, per_ns: float) -> None:
        """Add what runs from ``start_ns`` to ``end_ns`` to the stretches that it touches."""
        at = (start_ns - self.start_ns) // self.length_ns
        while start_ns < end_ns:
            border = min(end_ns, self.start_ns + (at + 1) * self.length_ns)
            totals[at] += per_ns * (border - start_ns)
            start_ns, at = border, at + 1

    def _samples(self, totals: Sequence[float]) -> Samples:
        """Totals of the stretches over their lengths, to four digits, without repetitions; 0 where the run ends."""
        samples: Samples = []
        for place, total in enumerate(totals):
            start_ns = self.start_ns + place * self.length_ns
            value = significant(total / (min(self.end_ns, start_ns + self.length_ns) - start_ns))
            if not samples or samples[-1][1] != value:
                samples.append((start_ns, value))
        return [*samples, (self.end_ns, 0.0)]


def resident_samples(records: Iterable[TraceRecord], end_ns: int) -> Samples:
    """Sample the resident bytes as each step ends; a step that ends late, behind a later one, says nothing new."""
    samples: Samples = []
    newest = -1
    for record in sorted(records, key=attrgetter("end_ns", "step")):
        if record.step > newest:
            newest = record.step
            samples.append((record.end_ns, record.resident_bytes))
    return [*samples, (end_ns, 0)]


def copy_rate_samples(copies: Iterable[TraceRecord]) -> Samples:
    """Sample bytes per nanosecond of the copies that run, and 0 between; copies too short to measure have no rate."""
    timed = [copy for copy in copies if copy.end_ns > copy.start_ns]
    edges = [(at, copy) for copy in timed for at in (copy.start_ns, copy.end_ns)]
    samples: Samples = []
    running: dict[tuple[str, str, int], float] = {}
    for at, group in groupby(sorted(edges, key=itemgetter(0)), key=itemgetter(0)):
        for _, copy in group:
            key = copy.device, copy.stream, copy.step
            if running.pop(key, None) is None:
                running[key] = copy.nbytes / (copy.end_ns - copy.start_ns)
        samples.append((at, sum(running.values(), 0.0)))
    return samples


def best_rate(copies: Iterable[TraceRecord]) -> float:
    """The most bytes per nanosecond of any copy; 0 without one that took time."""
    return max((copy.nbytes / (copy.end_ns - copy.start_ns) for copy in copies if copy.end_ns > copy.start_ns), default=0.0)


def by_link(records: Iterable[TraceRecord]) -> dict[str, list[TraceRecord]]:
    """The copies over each link, by the link's name."""
    copies: dict[str, list[TraceRecord]] = {}
    for record in records:
        if record.link:
            copies.setdefault(record.link, []).append(record)
    return dict(sorted(copies.items()))
