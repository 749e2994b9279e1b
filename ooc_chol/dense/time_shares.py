"""For what the streams of a run were busy, in seconds by kind: measured, or predicted by the simulator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ooc_chol.dense.programs.steps import Program, Step
from ooc_chol.tasks.operations import Gemm, Link, Potrf, Product, StepKind, Syrk, Trsm

#: Kinds of work in the order in which they are shown.
KINDS = ("A read", "A made", "products", "POTRF and TRSM", "conversions", "L fetched", "L written", "between devices")

_COMPUTED = {Gemm: "products", Syrk: "products", Product: "products", Potrf: "POTRF and TRSM", Trsm: "POTRF and TRSM"}
_MOVED = {Link.SOURCE: "A read", Link.FETCH: "L fetched", Link.WRITE: "L written", Link.PEER: "between devices"}


def kind_of_work(step: Step) -> str:
    """The kind of a step, one of :data:`KINDS`."""
    if step.kind is StepKind.COMPUTE:
        return _COMPUTED.get(type(step.operation), "conversions")
    link = step.link
    return "A made" if link is None else _MOVED[link]


def seconds_by_kind(programs: Sequence[Program], spans: Iterable[Iterable[tuple[float, float]]], unit: float) -> dict[str, float]:
    """Sum how long the steps of each kind took, all streams and devices together; ``spans`` are in ``unit`` seconds.

    About half a microsecond a step: those that are alike in all that tells their kind are summed first.
    """
    sums: dict[tuple[StepKind, type, bool], float] = defaultdict(float)
    examples: dict[tuple[StepKind, type, bool], Step] = {}
    for program, of_device in zip(programs, spans, strict=True):
        for step, (start, end) in zip(program.steps, of_device, strict=True):
            alike = step[0], step[3].__class__, step[2][2] == 0  # kind, operation, version of the block: by place, for speed
            if alike not in examples:
                examples[alike] = step
            sums[alike] += end - start
    totals = dict.fromkeys(KINDS, 0.0)
    for alike, total in sums.items():
        totals[kind_of_work(examples[alike])] += total * unit
    return {kind: total for kind, total in totals.items() if total}
