"""The report of a run on a cluster: what its tasks did, beside what was planned."""

from __future__ import annotations

from dataclasses import dataclass, field

from ooc_chol.cluster.blocks import BlockGrid
from ooc_chol.cluster.plan import ClusterPlan
from ooc_chol.config import format_bytes
from ooc_chol.display.drawing import Drawing, notebook_html
from ooc_chol.display.prints import one_line
from ooc_chol.formats import PrecisionFormat
from ooc_chol.precision.certified import CertifiedBound
from ooc_chol.precision.escalation import Escalations
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.runtime.passes import Passes


@dataclass(frozen=True)
class ClusterReport:
    """Report of a factorization on a cluster.

    Parameters
    ----------
    plan : ClusterPlan
        What was planned.
    blocks : BlockGrid
        How L is cut.
    fmt : PrecisionFormat
        Format of L.
    engine : str
        How products were computed, ``"native"`` or ``"residue"``.
    store : str
        Where L is: ``"cluster"`` for the workers' memory, else the name of the Zarr group.
    seconds : float
        From the first task submitted to the last one ended.
    wall_seconds : float
        The whole call.
    tasks : int
        Blocks that were made, each once.
    resumed_blocks : int
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
    read_bytes : int
        Bytes of L that workers read from the group: what each of them has not kept in its memory.
    peak_bytes : mapping of str to int
        Most memory that each worker's process has had since it started; empty where the system does not tell.
    passes : Passes
        What passes over L beside the run did until now.
    precision : PrecisionMap or None
        In mixed precision the formats of the tiles, with the norms of A that they follow from; None in one format.
    escalations : Escalations
        What was computed again because a pivot failed or the bound was too large.
    certified_bound : CertifiedBound or None
        In mixed precision what ``||A - L L.T||_F / ||A||_F`` is at most.
    certify_seconds : float
        Seconds that the bounds took beside the runs.
    """

    plan: ClusterPlan
    blocks: BlockGrid
    fmt: PrecisionFormat
    engine: str
    store: str
    seconds: float
    wall_seconds: float
    tasks: int
    resumed_blocks: int = 0
    repeated: int = 0
    workers: tuple[str, ...] = ()
    lost_workers: tuple[str, ...] = ()
    busy_seconds: dict[str, float] = field(default_factory=dict)
    engine_seconds: float = 0.0
    network_bytes: int = 0
    sent_bytes: int = 0
    read_bytes: int = 0
    peak_bytes: dict[str, int] = field(default_factory=dict)
    passes: Passes = field(default_factory=Passes, compare=False)
    precision: PrecisionMap | None = None
    escalations: Escalations = field(default_factory=Escalations)
    certified_bound: CertifiedBound | None = None
    certify_seconds: float = 0.0

    @property
    def tflops(self) -> float:
        """``n³/3`` over ``seconds``, in TFLOP/s; of a complex matrix ``4 n³/3``. 0 for a run that a checkpoint shortened."""
        if self.resumed_blocks or not self.seconds:
            return 0.0
        return self.fmt.flops_factor * self.blocks.tiles.n**3 / 3 / self.seconds / 1e12

    @property
    def predicted_seconds(self) -> float | None:
        """Prediction of ``seconds`` by the plan; None without rates, and for a run that a checkpoint shortened."""
        return None if self.resumed_blocks else self.plan.seconds

    @property
    def overhead_seconds(self) -> float:
        """Seconds of a task beside the run of the engine, on the mean of all: unpacking, packing, words to the client."""
        runs = self.tasks + self.repeated
        return (sum(self.busy_seconds.values()) - self.engine_seconds) / runs if runs else 0.0

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold: times in seconds, memory and transfers in bytes.
        """
        return {
            "n": self.blocks.tiles.n,
            "tile_size": self.blocks.tiles.nb,
            "height": self.blocks.height,
            "engine": self.engine,
            "dtype": self.fmt.dtype.name,
            "store": self.store,
            "seconds": self.seconds,
            "predicted_seconds": self.predicted_seconds,
            "wall_seconds": self.wall_seconds,
            "tflops": self.tflops,
            "tasks": self._tasks,
            "network_bytes": {"planned": self.plan.network_bytes, "executed": self.network_bytes, "sent": self.sent_bytes},
            "read_bytes": self.read_bytes,
            "busy_seconds": self.busy_seconds,
            "engine_seconds": self.engine_seconds,
            "overhead_seconds": self.overhead_seconds,
            "peak_bytes": self.peak_bytes,
            "workers": list(self.workers),
            "lost_workers": list(self.lost_workers),
            "formats": None if self.precision is None else self.precision.counts,
            "certified_bound": None if self.certified_bound is None else float(self.certified_bound),
            "certify_seconds": self.certify_seconds,
            "escalations": self.escalations.lines(),
            "passes": {title: totals._asdict() for title, totals in self.passes.totals.items()},
        }

    @property
    def _tasks(self) -> dict[str, int]:
        """Tasks planned and made."""
        made = {"made": self.tasks, "resumed": self.resumed_blocks, "repeated": self.repeated}
        return {"planned": self.plan.n_tasks, **made}

    def __repr__(self) -> str:
        tiles = self.blocks.tiles
        facts = {"n": tiles.n, "tile_size": tiles.nb, "workers": len(self.workers), "engine": self.engine}
        return one_line(self, {**facts, "seconds": self.seconds, "tasks": self.tasks, "repeated": self.repeated})

    def __str__(self) -> str:
        return "\n".join(f"  {name:<10} {text}" if name else text for name, text in self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        """The lines of the printed report."""
        tiles, count = self.blocks.tiles, len(self.workers)
        busy = sum(self.busy_seconds.values())
        share = busy / (self.seconds * count) if self.seconds and count else 0.0
        rate = f" ({1e3 * self.tflops:.4g} GFLOP/s)" if self.tflops else ""
        predicted = "" if self.predicted_seconds is None else f", {self.predicted_seconds:.3g} predicted"
        planned = format_bytes(self.plan.network_bytes)
        lines = [
            (
                "",
                f"Cholesky of n = {tiles.n} in tiles of {tiles.nb} on {count} workers, in blocks of {self.blocks.height}",
            ),
            ("seconds", f"{self.wall_seconds:.3g} for the whole call; {self.seconds:.3g} in tasks{rate}{predicted}"),
            ("tasks", f"{self.tasks} of {self.plan.n_tasks} planned; {self.repeated} repeated"),
            ("workers", f"busy {100 * share:.0f} % of the time; {1e3 * self.overhead_seconds:.3g} ms a task beside its engine"),
            ("network", f"{format_bytes(self.network_bytes)} of L to other workers, {planned} planned"),
            ("sent", f"{format_bytes(self.sent_bytes)} in all by what workers count"),
        ]
        if self.store != "cluster":
            lines.append(("group", f"{format_bytes(self.read_bytes)} of L read by workers that had it not in memory"))
        if self.peak_bytes:
            lines.append(("memory", f"peak {format_bytes(max(self.peak_bytes.values()))} of a worker's process since it started"))
        if self.precision is not None:
            lines.append(("formats", ", ".join(f"{count} {name}" for name, count in self.precision.counts.items())))
            norms, certified = self.precision.norms.seconds, self.certify_seconds
            lines.append(("error", f"at most {self.certified_bound}; {norms:.3g} s for norms of A, {certified:.3g} s to certify"))
            lines += [("again", line) for line in self.escalations.lines()]
        if self.resumed_blocks:
            lines.append(("resumed", f"{self.resumed_blocks} blocks were in the checkpoint"))
        if self.lost_workers:
            lines.append(("lost", ", ".join(self.lost_workers[:8])))
        return [*lines, *(("passes", f"{title}: {totals}") for title, totals in self.passes.totals.items())]

    def _repr_html_(self) -> str:
        """HTML for notebooks: seconds in tasks by worker, then the report."""
        title = f"Cholesky of n = {self.blocks.tiles.n} on {len(self.workers)} workers"
        drawing = Drawing(640, 40 + 16 * max(1, min(len(self.busy_seconds), 16)), title)
        drawing.words(8, 16, f"seconds in tasks, of {self.seconds:.3g}")
        for line, (worker, seconds) in enumerate(list(self.busy_seconds.items())[:16]):
            top = 28 + 16 * line
            drawing.words(8, top + 10, worker)
            drawing.rectangle(220, top, max(1.0, 400 * min(1.0, seconds / self.seconds if self.seconds else 0)), 12, "#4c78a8")
        return notebook_html(str(self), drawing)
