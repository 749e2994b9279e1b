"""The report of a run on a cluster: what its tasks did, beside what was planned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ooc_chol.calls.page import Line
from ooc_chol.calls.report import AbstractReport, CallBytes
from ooc_chol.cluster.blocks import BlockGrid
from ooc_chol.cluster.plan import ClusterPlan
from ooc_chol.config import format_bytes
from ooc_chol.dense.report import FactorSeconds
from ooc_chol.display.drawing import Drawing
from ooc_chol.formats import PrecisionFormat
from ooc_chol.precision.certified import CertifiedBound
from ooc_chol.precision.escalation import Escalations
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.runtime.passes import Passes


@dataclass(frozen=True, repr=False)
class ClusterReport(AbstractReport):
    """Report of a factorization on a cluster.

    Parameters
    ----------
    plan : ClusterPlan
        Plan of the run.
    blocks : BlockGrid
        How L is cut.
    fmt : PrecisionFormat
        Format of L.
    engine : str
        How products were computed, ``"native"`` or ``"residue"``.
    store : str
        Where L is: ``"cluster"`` for the workers' memory, else the name of the Zarr group.
    task_seconds : float
        From the first task submitted to the last one ended.
    total_seconds : float
        The whole call.
    key : dict
        Arithmetic key of the factor.
    tasks : int
        Blocks that were made, each once.
    resumed : int
        Blocks that a checkpoint held, and were not made again.
    repeated : int
        Runs of tasks beyond these: Dask repeats those whose results were lost.
    workers : tuple of str
        Addresses of the workers when the run began.
    lost_workers : tuple of str
        Those of them that were gone when it ended.
    busy_seconds : mapping of str to float
        Seconds in tasks, by worker, reading and unpacking of their inputs left out.
    engine_seconds : float
        Seconds of all runs of the engine, planning included: the rest of ``busy_seconds`` is what a task costs beside.
    network_bytes : int
        Bytes of blocks of L that went to another worker, each once to every worker that used it: counted from who made and used
        what.
    sent_bytes : int
        Bytes that workers say they sent to other workers during the run, blocks of A and repeated transfers included.
    link_bytes : mapping of str to int
        Bytes over the links of the workers' devices in all tasks: ``"source"``, ``"fetch"``, ``"write"`` and ``"peer"``.
    read_bytes : int
        Bytes of L that workers read from the group: what each of them has not kept in its memory.
    worker_bytes : mapping of str to int
        Most memory that each worker's process has had since it started; empty where the system does not tell.
    passes : Passes
        Passes over L beside the run until now.
    precision : PrecisionMap or None
        In mixed precision the formats of the tiles, with the norms of A that they follow from; None in one format.
    escalations : Escalations
        Parts that were computed again because a pivot failed or the bound was too large.
    certified_bound : CertifiedBound or None
        In mixed precision what ``||A - L L.T||_F / ||A||_F`` is at most.
    certificate_seconds : float
        Seconds that the bounds took beside the runs.
    """

    call: ClassVar[str] = "cholesky"

    plan: ClusterPlan
    blocks: BlockGrid
    fmt: PrecisionFormat
    engine: str
    store: str
    task_seconds: float
    total_seconds: float
    key: dict[str, str | int]
    tasks: int
    resumed: int = 0
    repeated: int = 0
    workers: tuple[str, ...] = ()
    lost_workers: tuple[str, ...] = ()
    busy_seconds: dict[str, float] = field(default_factory=dict)
    engine_seconds: float = 0.0
    network_bytes: int = 0
    sent_bytes: int = 0
    link_bytes: dict[str, int] = field(default_factory=dict)
    read_bytes: int = 0
    worker_bytes: dict[str, int] = field(default_factory=dict)
    passes: Passes = field(default_factory=Passes, compare=False)
    precision: PrecisionMap | None = None
    escalations: Escalations = field(default_factory=Escalations)
    certified_bound: CertifiedBound | None = None
    certificate_seconds: float = 0.0

    @property
    def devices(self) -> tuple[str, ...]:
        """Addresses of the workers when the run began."""
        return self.workers

    @property
    def seconds(self) -> FactorSeconds:
        """Seconds of the call and of its parts: ``"setup"``, ``"norms"`` of A, ``"run"`` (all tasks) and ``"certificate"``.

        Nothing is predicted for a run that a checkpoint shortened.
        """
        norms = 0.0 if self.precision is None else self.precision.norms.seconds
        parts = {"norms": norms, "run": self.task_seconds, "certificate": self.certificate_seconds}
        setup = max(0.0, self.total_seconds - sum(parts.values()))
        return FactorSeconds(None if self.resumed else self.plan, self.total_seconds, {"setup": setup, **parts})

    @property
    def bytes(self) -> CallBytes:
        """Bytes over the network between workers, and read from a Zarr group."""
        return CallBytes(self.plan.bytes, {"network": self.network_bytes, "read": self.read_bytes})

    @property
    def peak_bytes(self) -> int:
        """Most memory that any worker's process has had since it started; 0 where the system does not tell."""
        return max(self.worker_bytes.values(), default=0)

    @property
    def tflops(self) -> float:
        """``n³/3`` over ``task_seconds``, in TFLOP/s; of a complex matrix ``4 n³/3``. 0 for a run that a checkpoint shortened."""
        if self.resumed or not self.task_seconds:
            return 0.0
        return self.fmt.flops_factor * self.blocks.tiles.n**3 / 3 / self.task_seconds / 1e12

    @property
    def overhead_seconds(self) -> float:
        """Seconds of a task beside the run of the engine, on the mean of all: unpacking, packing, words to the client."""
        runs = self.tasks + self.repeated
        return (sum(self.busy_seconds.values()) - self.engine_seconds) / runs if runs else 0.0

    def figures(self) -> dict[str, object]:
        """The figures of the report beside the common ones."""
        return {
            "n": self.blocks.tiles.n,
            "tile_size": self.blocks.tiles.nb,
            "height": self.blocks.height,
            "engine": self.engine,
            "dtype": self.fmt.dtype.name,
            "store": self.store,
            "tflops": self.tflops,
            "tasks": self._tasks,
            "sent_bytes": self.sent_bytes,
            "link_bytes": self.link_bytes,
            "busy_seconds": self.busy_seconds,
            "engine_seconds": self.engine_seconds,
            "overhead_seconds": self.overhead_seconds,
            "worker_bytes": self.worker_bytes,
            "lost_workers": list(self.lost_workers),
            "formats": None if self.precision is None else self.precision.counts,
            "certified_bound": None if self.certified_bound is None else float(self.certified_bound),
            "escalations": self.escalations.lines(),
            "passes": {title: totals._asdict() for title, totals in self.passes.totals.items()},
        }

    @property
    def _tasks(self) -> dict[str, int]:
        """Tasks planned and made."""
        made = {"made": self.tasks, "resumed": self.resumed, "repeated": self.repeated}
        return {"planned": self.plan.n_tasks, **made}

    def facts(self) -> dict[str, object]:
        """Facts for ``repr``."""
        tiles = self.blocks.tiles
        facts = {"n": tiles.n, "tile_size": tiles.nb, "workers": len(self.workers), "engine": self.engine}
        return {**facts, "seconds": self.total_seconds, "tasks": self.tasks, "repeated": self.repeated}

    def lines(self) -> list[Line]:
        """The lines of the printed report."""
        tiles, count = self.blocks.tiles, len(self.workers)
        busy = sum(self.busy_seconds.values())
        share = busy / (self.task_seconds * count) if self.task_seconds and count else 0.0
        rate = f" ({1e3 * self.tflops:.4g} GFLOP/s)" if self.tflops else ""
        known = self.seconds.predicted
        predicted = "" if known is None else f", {known:.3g} predicted"
        planned = format_bytes(self.plan.network_bytes)
        lines = [
            (
                "",
                f"Cholesky of n = {tiles.n} in tiles of {tiles.nb} on {count} workers, in blocks of {self.blocks.height}",
            ),
            ("seconds", f"{self.total_seconds:.3g} for the whole call; {self.task_seconds:.3g} in tasks{rate}{predicted}"),
            ("tasks", f"{self.tasks} of {self.plan.n_tasks} planned; {self.repeated} repeated"),
            ("workers", f"busy {100 * share:.0f} % of the time; {1e3 * self.overhead_seconds:.3g} ms a task beside its engine"),
            ("network", f"{format_bytes(self.network_bytes)} of L to other workers, {planned} planned"),
            ("sent", f"{format_bytes(self.sent_bytes)} in all by what workers count"),
        ]
        if self.link_bytes:
            fetched, written = (format_bytes(self.link_bytes[name]) for name in ("fetch", "write"))
            lines.append(("links", f"{fetched} of L to devices, {written} from them"))
        if self.store != "cluster":
            lines.append(("group", f"{format_bytes(self.read_bytes)} of L read by workers that had it not in memory"))
        if self.peak_bytes:
            lines.append(("memory", f"peak {format_bytes(self.peak_bytes)} of a worker's process since it started"))
        if self.precision is not None:
            lines.append(("formats", ", ".join(f"{count} {name}" for name, count in self.precision.counts.items())))
            norms, certified = self.precision.norms.seconds, self.certificate_seconds
            lines.append(("error", f"at most {self.certified_bound}; {norms:.3g} s for norms of A, {certified:.3g} s to certify"))
            lines += [("again", line) for line in self.escalations.lines()]
        if self.resumed:
            lines.append(("resumed", f"{self.resumed} blocks were in the checkpoint"))
        if self.lost_workers:
            lines.append(("lost", ", ".join(self.lost_workers[:8])))
        return [*lines, *(("passes", f"{title}: {totals}") for title, totals in self.passes.totals.items())]

    def picture(self) -> Drawing:
        """Seconds in tasks by worker."""
        title = f"Cholesky of n = {self.blocks.tiles.n} on {len(self.workers)} workers"
        drawing = Drawing(640, 40 + 16 * max(1, min(len(self.busy_seconds), 16)), title)
        drawing.words(8, 16, f"seconds in tasks, of {self.task_seconds:.3g}")
        for line, (worker, seconds) in enumerate(list(self.busy_seconds.items())[:16]):
            top, share = 28 + 16 * line, min(1.0, seconds / self.task_seconds) if self.task_seconds else 0.0
            drawing.words(8, top + 10, worker)
            drawing.rectangle(220, top, max(1.0, 400 * share), 12, "#4c78a8")
        return drawing
