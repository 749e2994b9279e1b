"""Where the time of a run went, as a text that fits a screen: measured beside predicted."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ooc_chol.tracing.analysis import (
    LinkTotals,
    StreamTimes,
    Wait,
    computing_ns,
    exposed_copy_seconds,
    link_totals,
    stream_times,
    waits,
)
from ooc_chol.tracing.records import TraceRecord
from ooc_chol.tracing.timeline import StreamKey, Timeline, timeline

_COLUMNS = 100
_MOST_ROWS = 12
_MOST_CAUSES = 8


@dataclass(frozen=True)
class _Unit:
    """The unit of every time in one summary."""

    name: str
    nanoseconds: int

    def __call__(self, nanoseconds: float) -> str:
        """Write a time in this unit, without its name."""
        return f"{nanoseconds / self.nanoseconds:.3f}"


_UNITS = (_Unit("s", 10**9), _Unit("ms", 10**6), _Unit("us", 10**3))


@dataclass(frozen=True)
class _Side:
    """The numbers of one timeline, measured or predicted."""

    run: Timeline
    streams: dict[StreamKey, StreamTimes]
    links: dict[str, LinkTotals]
    waits: tuple[Wait, ...]
    exposed_ns: float
    compute_ns: int
    generate_ns: int
    flops: int

    @property
    def wall_ns(self) -> int:
        """Nanoseconds of the run."""
        return self.run.wall_ns


def summarize(records: Sequence[TraceRecord], expected: Sequence[TraceRecord], metadata: Mapping[str, str | int | float]) -> str:
    """Say in a screenful where the time of a run went, beside the records that were expected of it."""
    head = _heading(metadata)
    if not records:
        return f"{head}\nno operation was recorded"
    measured = _side(timeline(records))
    predicted = _side(timeline(expected)) if expected else None
    unit = _unit(measured.wall_ns)
    whole = _whole(measured, predicted, unit)
    if predicted is None:
        whole += "\nprediction: none, because no rates of this machine were known"
    tables = [
        whole,
        _streams(measured, predicted, unit),
        _links(measured, predicted, unit),
        _causes(measured, unit),
    ]
    return "\n\n".join([head, *(table for table in tables if table)])


def _side(run: Timeline) -> _Side:
    records = run.records
    generate = sum(record.end_ns - record.start_ns for record in records if record.kind == "generate")
    flops = sum(record.flops for record in records if record.kind == "compute")
    return _Side(
        run, stream_times(run), link_totals(run), waits(run), exposed_copy_seconds(run) * 1e9, computing_ns(run), generate, flops
    )


def _heading(metadata: Mapping[str, str | int | float]) -> str:
    values = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in metadata.items()}
    facts = ", ".join(f"{name} {value}" for name, value in values.items())
    return textwrap.fill(f"run: {facts or 'nothing is known of it'}", _COLUMNS, subsequent_indent="     ")


def _unit(wall_ns: float) -> _Unit:
    """Choose the largest unit of which the run took at least one."""
    return next((unit for unit in _UNITS if wall_ns >= unit.nanoseconds), _UNITS[-1])


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _rate(amount: float, nanoseconds: float) -> str:
    """Write an amount per nanosecond, which is 10⁹ per second: GFLOP/s of flops, GB/s of bytes."""
    return f"{amount / nanoseconds:.2f}" if amount and nanoseconds else "-"


def _table(rows: list[list[str]]) -> str:
    """Set columns side by side, the first to the left and the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _capped(rows: list[list[str]], predicted: _Side | None, what: str) -> str:
    """Tabulate at most twelve rows under their heading and say how many were left out; the last column if one was predicted."""
    text = _table([row if predicted else row[:-1] for row in rows[: _MOST_ROWS + 1]])
    left = len(rows) - 1 - _MOST_ROWS
    return f"{text}\n... and {left} more {what}, which the saved trace shows" if left > 0 else text


def _whole(measured: _Side, predicted: _Side | None, unit: _Unit) -> str:
    sides = [measured] if predicted is None else [measured, predicted]
    # Exposed copy is summed over the compute streams, and so is the time that it is a share of.
    machines = [max(1, len(side.run.devices)) for side in sides]
    rows = [
        ["whole run", "measured", "predicted"][: 1 + len(sides)],
        [f"wall ({unit.name})", *(unit(side.wall_ns) for side in sides)],
        ["GFLOP/s over the wall time", *(_rate(side.flops, side.wall_ns) for side in sides)],
        ["GFLOP/s of a device while computing", *(_rate(side.flops, side.compute_ns) for side in sides)],
        [f"exposed copy ({unit.name})", *(unit(side.exposed_ns) for side in sides)],
        ["exposed copy, share", *(_percent(side.exposed_ns, side.wall_ns * n) for side, n in zip(sides, machines, strict=True))],
    ]
    if measured.generate_ns:
        rows.append([f"generating ({unit.name})", *(unit(side.generate_ns) for side in sides)])
    return _table(rows)


def _streams(measured: _Side, predicted: _Side | None, unit: _Unit) -> str:
    rows = [[f"stream ({unit.name})", "busy", "share", "waiting", "idle", "finished", "predicted busy"]]
    for key, times in measured.streams.items():
        parts = [times.waiting_ns, times.idle_ns, times.finished_ns]
        expected = predicted.streams.get(key) if predicted else None
        rows.append(
            [
                " ".join(key),
                unit(times.busy_ns),
                _percent(times.busy_ns, measured.wall_ns),
                *(unit(part) for part in parts),
                unit(expected.busy_ns) if expected else "-",
            ]
        )
    return _capped(rows, predicted, "streams")


def _links(measured: _Side, predicted: _Side | None, unit: _Unit) -> str:
    if not measured.links:
        return ""
    rows = [["link", "bytes", f"copying ({unit.name})", "GB/s", "predicted GB/s"]]
    for name, totals in measured.links.items():
        expected = predicted.links.get(name) if predicted else None
        copying = unit(totals.busy_ns)
        predicted_rate = _rate(expected.nbytes, expected.busy_ns) if expected else "-"
        rows.append([name, f"{totals.nbytes:,}", copying, _rate(totals.nbytes, totals.busy_ns), predicted_rate])
    return _capped(rows, predicted, "links")


def _causes(measured: _Side, unit: _Unit) -> str:
    """Tabulate which stream waited for what kind of operation, longest first."""
    spent: dict[str, list[int]] = {}
    for wait in measured.waits:
        what = f"for {wait.cause}" if wait.producer else "idle"
        spent.setdefault(f"{wait.device} {wait.stream} {what}", []).append(wait.end_ns - wait.start_ns)
    if not spent:
        return ""
    rows = [["waiting on whom", unit.name, "share of wall", "times", f"longest ({unit.name})"]]
    longest_first = sorted(spent.items(), key=lambda item: (-sum(item[1]), item[0]))
    for who, gaps in longest_first[:_MOST_CAUSES]:
        total = sum(gaps)
        share = _percent(total, measured.wall_ns)
        rows.append([who, unit(total), share, str(len(gaps)), unit(max(gaps))])
    return _table(rows)
