"""A small simulator of streams: the records of made-up runs for the tests of tracing, with the reason of every gap known."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from ooc_chol.tracing import StreamRole, TraceRecord

KIND_OF_STREAM = {"copy-in": "fetch", "compute": "compute", "finish": "compute", "copy-out": "write"}
ROLE_OF_STREAM = {stream: StreamRole(place, kind == "compute") for place, (stream, kind) in enumerate(KIND_OF_STREAM.items())}


class Operation(NamedTuple):
    """One operation to simulate; ``after`` names earlier operations by their place in the program."""

    device: str
    stream: str
    duration_ns: int
    launch_ns: int = 0  # time between the moment when the operation could start and its start
    after: tuple[int, ...] = ()
    kind: str = ""


def simulate(program: list[Operation], *, origin_ns: int = 0) -> list[TraceRecord]:
    """Each operation starts ``launch_ns`` after its stream is free and all operations in ``after`` ended."""
    records: list[TraceRecord] = []
    free: dict[tuple[str, str], int] = {}
    steps: dict[str, int] = {}
    for operation in program:
        key = operation.device, operation.stream
        producers = [records[place] for place in operation.after]
        ready = max([free.get(key, origin_ns), *(producer.end_ns for producer in producers)])
        start = ready + operation.launch_ns
        free[key] = start + operation.duration_ns
        step = steps[operation.device] = steps.get(operation.device, -1) + 1
        records.append(_record(operation, step, start, tuple((p.device, p.step) for p in producers)))
    return records


def _record(operation: Operation, step: int, start_ns: int, after: tuple[tuple[str, int], ...]) -> TraceRecord:
    kind = operation.kind or KIND_OF_STREAM[operation.stream]
    links = {"fetch": f"store->{operation.device}", "write": f"{operation.device}->store"}
    return TraceRecord(
        step=step,
        device=operation.device,
        stream=operation.stream,
        kind=kind,
        label=f"{kind} ({step}, 0)",
        block=f"L({step}, 0)v1",
        fmt="fp64",
        nbytes=8 * (step + 1) if kind in links else 0,
        link=links.get(kind, ""),
        flops=100 + step if kind == "compute" else 0,
        start_ns=start_ns,
        end_ns=start_ns + operation.duration_ns,
        after=after,
        resident_bytes=1000 + step,
        role=ROLE_OF_STREAM.get(operation.stream, StreamRole(len(ROLE_OF_STREAM), False)),
    )


@st.composite
def programs(draw: st.DrawFn, *, longest_ns: int = 5_000, most: int = 25) -> list[Operation]:
    """Up to two devices with four streams each; operations wait for any earlier ones on other streams."""
    program: list[Operation] = []
    for place in range(draw(st.integers(1, most))):
        device = draw(st.sampled_from(["host:0", "host:1"]))
        stream = draw(st.sampled_from(sorted(KIND_OF_STREAM)))
        others = [p for p in range(place) if (program[p].device, program[p].stream) != (device, stream)]
        after = draw(st.lists(st.sampled_from(others), max_size=3, unique=True)) if others else []
        duration, launch = draw(st.integers(0, longest_ns)), draw(st.integers(0, longest_ns))
        kind = draw(st.sampled_from(["fetch", "generate"])) if stream == "copy-in" else ""
        program.append(Operation(device, stream, duration, launch, tuple(after), kind))
    return program
