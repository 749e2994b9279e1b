"""Trace records of a plan's steps, measured or predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.steps import Program, Step
from ooc_chol.interfaces import BlockKey
from ooc_chol.tasks.operations import STREAM_NAMES, Gemm, Link, Potrf, Product, StepKind, StreamKind, Syrk, Trsm, step_key
from ooc_chol.tracing.records import StreamRole, TraceRecord

_KINDS = {
    StepKind.FETCH: "fetch",
    StepKind.GENERATE: "generate",
    StepKind.COMPUTE: "compute",
    StepKind.WRITE: "write",
    StepKind.PULL: "pull",
}

#: Sorts of work that traces show in colours of their own.
_WORK = {Gemm: "product", Syrk: "product", Product: "product", Potrf: "panel", Trsm: "panel"}

#: Streams in the order in which they are shown; those that are not named here come last.
_SHOWN = ("copy-in", "compute", "finish", "finish-1", "finish-2", "convert", "exchange", "peer", "copy-out")
#: Streams that run kernels, but for inversions of some 20 us on ``exchange``.
_COMPUTING = ("compute", "finish", "finish-1", "finish-2", "convert")
STREAM_ROLES = {
    name: StreamRole(_SHOWN.index(name) if name in _SHOWN else len(_SHOWN), name in _COMPUTING) for name in STREAM_NAMES
}

#: For each value in the store, the device and the step that wrote it.
Writers = dict[BlockKey, tuple[str, int]]


def link_name(link: Link | None, device: str, store: str = "store") -> str:
    """The link as traces and reports write it; ``store`` is what L is fetched from or goes to."""
    if link is None:
        return ""
    if link is Link.PEER:
        return f"peer->{device}"
    return f"{device}->{store}" if link is Link.WRITE else f"{'source' if link is Link.SOURCE else store}->{device}"


def store_name(step: Step, plan: Plan) -> str:
    """Name of the place that a tile of L comes from or first goes to: host memory where it is kept there, else store or file."""
    if not plan.in_file:
        return "store"
    return "memory" if step.tile in plan.host_tiles else "file"


def find_writers(devices: tuple[str, ...], programs: tuple[Program, ...]) -> Writers:
    """Which step writes each value, and which step has the key that another device awaits."""
    writers: Writers = {}
    for number, (device, program) in enumerate(zip(devices, programs, strict=True)):
        for position, step in enumerate(program.steps):
            if step.kind is StepKind.WRITE:
                writers[step.block] = (device, position)
            if step.announced:
                writers[step_key(number, position)] = (device, position)
    return writers


def format_name(step: Step, plan: Plan) -> str:
    """Format of what a step moves or multiplies: that of the tile in its store, or of a product's factors."""
    precision = plan.precision
    if isinstance(step.operation, Product):
        return "int8"
    if precision is None or step.link not in (Link.FETCH, Link.WRITE):
        return plan.fmt.name
    return precision.format_of(step.tile).name


def step_record(position: int, step: Step, device: str, times: tuple[int, int], *, writers: Writers, plan: Plan) -> TraceRecord:
    """One step as a record, with the nanoseconds at which it began and ended."""
    after = tuple((device, earlier) for earlier in step.waits)
    after = (*after, *(writers[key] for key in step.awaits if key in writers))  # tiles that were given have no writer
    return TraceRecord(
        step=position,
        device=device,
        stream=STREAM_NAMES[step.stream],
        kind=_KINDS[step.kind],
        label=step.label,
        block=str(step.block),
        fmt=format_name(step, plan),
        nbytes=step.nbytes,
        link=link_name(step.link, device, store_name(step, plan)),
        flops=step.flops,
        start_ns=times[0],
        end_ns=times[1],
        after=after,
        resident_bytes=step.resident,
        role=STREAM_ROLES[STREAM_NAMES[step.stream]],
        work=_WORK.get(type(step.operation), ""),
    )


def spans_of(plan: Plan, enqueued: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]) -> Iterator[list[tuple[int, int]]]:
    """When every enqueued step of each device began and ended, by when it was enqueued and ended.

    A step begins once it was enqueued, the one before it on its stream is over, and what it waited for: an event before each
    would be half of what the enqueuing thread records.
    """
    writers = find_writers(plan.devices, plan.programs)
    by_name = dict(zip(plan.devices, ends, strict=True))
    for program, from_host, own in zip(plan.programs, enqueued, ends, strict=True):
        found, last = list[tuple[int, int]](), dict[StreamKind, int]()
        for step, begun, end in zip(program.steps, from_host, own, strict=False):
            awaited = (writers[key] for key in step.awaits if key in writers)  # tiles that were given have no writer
            others = (by_name[device][position] for device, position in awaited)
            begun = max(begun, last.get(step.stream, 0), *(own[earlier] for earlier in step.waits), *others)
            found.append((min(begun, end), end))
            last[step.stream] = end
        yield found


def executed_records(plan: Plan, times: Sequence[Sequence[tuple[int, int]]]) -> Iterator[TraceRecord]:
    """The steps of ``plan`` that ran, with the times of each device's."""
    writers = find_writers(plan.devices, plan.programs)
    for device, program, spans in zip(plan.devices, plan.programs, times, strict=True):
        for position, (step, span) in enumerate(zip(program.steps, spans, strict=True)):
            yield step_record(position, step, device, span, writers=writers, plan=plan)


def predicted_records(plan: Plan) -> tuple[TraceRecord, ...]:
    """The simulator's run of ``plan`` as records that start at 0; empty when no rates are known."""
    if plan.rates is None:
        return ()
    writers = find_writers(plan.devices, plan.programs)
    records = []
    for device, program, starts, ends in zip(plan.devices, plan.programs, plan.timeline.starts, plan.timeline.ends, strict=True):
        for position, step in enumerate(program.steps):
            times = round(starts[position] * 1e9), round(ends[position] * 1e9)
            records.append(step_record(position, step, device, times, writers=writers, plan=plan))
    return tuple(records)
