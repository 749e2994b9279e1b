"""Measured rates, and the seconds that they predict for a step."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ooc_chol.planning.program import Step, StepKind
from ooc_chol.tasks import TaskKind, flops
from ooc_chol.tiling import TileGrid


@dataclass(frozen=True)
class Rates:
    """What a device does in a second, measured; a plan without rates predicts no seconds.

    Parameters
    ----------
    tile_size : int
        Tile order at which the kernels were measured.
    potrf, trsm, syrk, gemm : float
        Flops per second of each kernel.
    source, fetch, write : float
        Bytes per second read from A, read from the store of L, and written to it.
    generate : float
        Entries per second of a tile function.
    launch : float
        Seconds between two operations of one stream.
    """

    tile_size: int
    potrf: float
    trsm: float
    syrk: float
    gemm: float
    source: float
    fetch: float
    write: float
    generate: float
    launch: float

    def __post_init__(self) -> None:
        for entry in fields(self):
            if not getattr(self, entry.name) > 0:
                raise ValueError(f"rate {entry.name} is {getattr(self, entry.name)}, but a measured rate is more than zero")

    def seconds(self, step: Step, grid: TileGrid) -> float:
        """Predicted seconds of ``step`` on its stream."""
        if step.task is not None:
            return self.launch + flops(step.task, grid) / self._of_kernel(step.task.kind)
        if step.kind is StepKind.GENERATE:
            return self.launch + grid.entries(*step.tile) / self.generate
        if step.kind is StepKind.WRITE:
            return self.launch + step.nbytes / self.write
        return self.launch + step.nbytes / (self.source if step.version == 0 else self.fetch)

    def share(self, step: Step) -> float:
        """Share of the device's processors that a kernel keeps busy: what its flops would take of its time at GEMM's rate."""
        return 1.0 if step.task is None else min(1.0, self._of_kernel(step.task.kind) / self.gemm)

    def _of_kernel(self, kind: TaskKind) -> float:
        """Flops per second of one kernel."""
        return {TaskKind.POTRF: self.potrf, TaskKind.TRSM: self.trsm, TaskKind.SYRK: self.syrk, TaskKind.GEMM: self.gemm}[kind]
