"""What the streams of a GPU did under each policy: tables and pictures from the recorded traces of one matrix.

``--update`` rewrites them in ``docs/ablation.md``, and draws ``docs/pictures``. A document holds the place of a table between
``<!-- streams -->`` and ``<!-- /streams -->``. The pictures need Matplotlib (``pip install '.[plots]'``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from benchmarks.drawing import figure_of, save
from benchmarks.running import ROOT, Options, markdown, updated
from ooc_chol.tracing import TraceRecord

#: Result file and trace of each policy, in the order of the tables and pictures.
RUNS = {
    **{policy: (f"h200-fp64-65536-8g-{policy}",) * 2 for policy in ("async", "v1", "v2", "v3")},
    "planned": ("h200-fp64-65536-8g", "h200-fp64-65536-8g-planned"),
}
DEVICE = "cuda:0"
#: Document that holds each table.
DOCUMENTS = {"streams": ROOT / "docs/ablation.md"}
KERNELS = ("GEMM", "SYRK", "TRSM", "POTRF")
#: What each stream runs, from top to bottom in the pictures.
STREAMS = {"compute": KERNELS, "copy-in": ("fetch", "generate"), "copy-out": ("write",)}
#: Work blue, copies in orange, copies out green, as in Figure 7 of Ren et al.
COLOURS = {
    "GEMM": "#8ab8e0",
    "SYRK": "#2f77b8",
    "TRSM": "#0b2f5b",
    "POTRF": "#b0306a",
    "fetch": "#ee8a2e",
    "generate": "#d9c23c",
    "write": "#3f9d57",
}
#: Seconds of one bin in the picture of whole runs.
BIN_SECONDS = 0.040
#: The other picture begins with the first update of this diagonal tile and shows this many seconds.
COLUMN, WINDOW_SECONDS = 8, 0.120


class Operation(NamedTuple):
    """One operation of one stream; ``kind`` is a key of :data:`COLOURS`, times are seconds from the start of the run."""

    stream: str
    kind: str
    label: str
    start: float
    end: float
    flops: int
    nbytes: int


@dataclass(frozen=True)
class Run:
    """One device in one trace."""

    about: dict[str, Any]
    measured: list[Operation]
    predicted: list[Operation]


# reading


def read_run(path: Path, device: str = DEVICE) -> Run:
    """What a trace, compressed with gzip or not, holds of one device; kinds of the engine's own keep their first word."""
    trace = oc.Trace.load(path)
    return Run(dict(trace.metadata), _operations(trace.records, device), _operations(trace.predicted, device))


def _operations(records: Iterable[TraceRecord], device: str) -> list[Operation]:
    """The operations of one device."""
    found = []
    for record in records:
        if record.device == device:
            kind = record.label.split()[0] if record.kind == "compute" else record.kind
            times = record.start_ns / 1e9, record.end_ns / 1e9
            found.append(Operation(record.stream, kind, record.label, *times, record.flops, record.nbytes))
    return found


def read_runs() -> dict[str, Run]:
    """The traces of :data:`RUNS`, by policy."""
    return {policy: read_run(ROOT / "traces" / f"{trace}.pftrace.gz") for policy, (_, trace) in RUNS.items()}


def result_of(policy: str) -> dict[str, Any]:
    """The result file of the run of a policy."""
    result: dict[str, Any] = json.loads((ROOT / f"benchmarks/results/{RUNS[policy][0]}.json").read_text(encoding="utf-8"))
    return result


# tables


class Total(NamedTuple):
    """Sums over operations."""

    calls: int
    seconds: float
    flops: int
    nbytes: int

    @property
    def tflops(self) -> float:
        """TFLOP/s while they ran."""
        return self.flops / self.seconds / 1e12

    @property
    def gigabytes_per_second(self) -> float:
        """GB/s while they ran."""
        return self.nbytes / self.seconds / 1e9


def total(operations: Iterable[Operation], *kinds: str) -> Total:
    """Sums over the operations of ``kinds``."""
    chosen = [entry for entry in operations if entry.kind in kinds]
    seconds = sum(entry.end - entry.start for entry in chosen)
    return Total(len(chosen), seconds, sum(entry.flops for entry in chosen), sum(entry.nbytes for entry in chosen))


def made_tables(runs: Mapping[str, Run]) -> dict[str, str]:
    """The tables by name."""
    return {"streams": streams_table(runs)}


def streams_table(runs: Mapping[str, Run]) -> str:
    """For each policy, what its streams did in the recorded run."""
    rows = []
    for policy, run in runs.items():
        seconds = run.about["seconds"]
        works, fetches, writes = total(run.measured, *KERNELS), total(run.measured, "fetch"), total(run.measured, "write")
        row = [f"`{policy}`", f"{seconds:.3f}", f"{works.seconds:.3f}", f"{seconds - works.seconds:.3f}"]
        for copies in (fetches, writes):
            row += [f"{copies.calls:,}", f"{copies.seconds:.3f}", f"{copies.gigabytes_per_second:.1f}"]
        rows.append(row)
    return markdown(["policy", "run", "works", "stands still", "fetches", "s", "GB/s", "writes", "s", "GB/s"], *rows)


def first_solves(run: Run) -> tuple[float, float]:
    """Median seconds of the first TRSM of a column, which inverts the diagonal blocks, and of the others."""
    by_column: dict[str, list[float]] = {}
    for entry in run.measured:
        if entry.kind == "TRSM":
            by_column.setdefault(entry.label.split(",")[1], []).append(entry.end - entry.start)
    firsts, others = [times[0] for times in by_column.values()], [time for times in by_column.values() for time in times[1:]]
    return float(np.median(firsts)), float(np.median(others))


# pictures


def draw_runs(runs: Mapping[str, Run], path: Path) -> None:
    """Draw whole runs on one scale of time: how much of each bin every stream worked, by kind."""
    figure, axes = _figure(len(runs), 7.0)
    for axis, (policy, run) in zip(axes, runs.items(), strict=True):
        edges = np.linspace(0.0, run.about["seconds"], round(run.about["seconds"] / BIN_SECONDS) + 1)
        for stream, low in _lanes(axis):
            axis.barh(low + 0.425, run.about["seconds"], 0.85, color="#f0f0f0", linewidth=0)
            base = np.full(len(edges) - 1, float(low))
            for kind in STREAMS[stream]:
                operations = [entry for entry in run.measured if (entry.stream, entry.kind) == (stream, kind)]
                top = base + 0.85 * shares(operations, edges)
                axis.stairs(top, edges, baseline=base, fill=True, color=COLOURS[kind], linewidth=0)
                base = top
        fetched, written = total(run.measured, "fetch").nbytes / 1e9, total(run.measured, "write").nbytes / 1e9
        facts = f"{run.about['seconds']:.2f} s, {fetched:.0f} GB in, {written:.0f} GB out"
        axis.set_title(f"$\\bf{{{policy}}}$   {facts}", loc="left", fontsize=9, pad=3)
    axes[-1].set_xlim(0.0, max(run.about["seconds"] for run in runs.values()))
    axes[-1].set_xlabel(f"seconds; height: share of each {BIN_SECONDS * 1e3:.0f} ms in which the stream worked")
    save(figure, path, dpi=130)


def draw_column(runs: Mapping[str, Run], path: Path) -> None:
    """Draw every operation in a short window, from the first update of one diagonal tile on."""
    figure, axes = _figure(len(runs), 6.6)
    for axis, (policy, run) in zip(axes, runs.items(), strict=True):
        began = next(entry.start for entry in run.measured if entry.label.startswith(f"SYRK ({COLUMN}, {COLUMN})"))
        for stream, low in _lanes(axis):
            axis.barh(low + 0.425, WINDOW_SECONDS * 1e3, 0.85, color="#f0f0f0", linewidth=0)
            for entry in run.measured:
                if entry.stream == stream and entry.end > began and entry.start < began + WINDOW_SECONDS:
                    start, width = (entry.start - began) * 1e3, (entry.end - entry.start) * 1e3
                    axis.barh(low + 0.425, width, 0.85, left=start, color=COLOURS[entry.kind], edgecolor="white", linewidth=0.4)
        axis.set_title(f"$\\bf{{{policy}}}$   from {began:.3f} s", loc="left", fontsize=9, pad=3)
    axes[-1].set(xlim=(0.0, WINDOW_SECONDS * 1e3), xlabel=f"milliseconds from the first update of tile ({COLUMN}, {COLUMN})")
    save(figure, path, dpi=130)


def shares(operations: Sequence[Operation], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of each bin that the operations, which do not overlap, cover."""
    times = np.array([[entry.start, entry.end] for entry in operations]).ravel()
    done = np.concatenate([[0.0], np.cumsum(np.diff(times) * (np.arange(len(times) - 1) % 2 == 0))])
    shares: NDArray[np.float64] = np.diff(np.interp(edges, times, done)) / np.diff(edges)
    return shares


def _lanes(axis: Any) -> Iterator[tuple[str, int]]:
    """Name the lanes of one policy; yield each stream with its lower edge."""
    lows = range(len(STREAMS) - 1, -1, -1)
    axis.set_yticks([low + 0.425 for low in lows], list(STREAMS), fontsize=8)
    axis.tick_params(length=0, labelsize=8)
    axis.spines[:].set_visible(False)
    yield from zip(STREAMS, lows, strict=True)


def _figure(count: int, height: float) -> tuple[Any, Any]:
    """One row for each policy, one scale of time, one legend."""
    figure, axes = figure_of(10.0, height, count)
    from matplotlib.patches import Patch

    patches = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items()]
    figure.legend(handles=patches, loc="outside upper center", ncols=len(patches), frameon=False, fontsize=8, handlelength=1.2)
    return figure, axes


TAKES = {"update": False}


def run(options: Options) -> None:
    """Print the tables, or rewrite them and draw the pictures."""
    runs = read_runs()
    made = made_tables(runs)
    print(*made.values(), sep="\n\n")
    first, other = first_solves(runs["planned"])
    print(f"\nTRSM of 'planned', median: the first of a column {first * 1e3:.2f} ms, the others {other * 1e3:.2f} ms")
    if options.update:
        for name, document in DOCUMENTS.items():
            updated(document, {name: made[name]})
        draw_runs(runs, ROOT / "docs/pictures/policies-run.png")
        draw_column(runs, ROOT / "docs/pictures/policies-column.png")
