"""Measured rates, and the seconds that they predict for a step."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ooc_chol.planning.program import Step, StepKind
from ooc_chol.planning.residue_steps import LOWER_SHARE, Convert, Diagonal, Potrf, Product, Pull, Reconstruct, ResidueStep, Trsm
from ooc_chol.tasks import TaskKind, flops
from ooc_chol.tiling import TileGrid


@dataclass(frozen=True)
class ResidueRates:
    """What a device does in a second with residues of one number of moduli.

    Parameters
    ----------
    moduli : int
        Number of moduli.
    product : float
        FP64 flops per second that products of long K stand for.
    accumulate : float
        Entries per second of an accumulator, all moduli together, that a product reads and writes besides.
    convert, reconstruct : float
        Entries of a tile per second.
    pull : float
        Bytes per second copied from another device.
    """

    moduli: int
    product: float
    accumulate: float
    convert: float
    reconstruct: float
    pull: float

    def at(self, moduli: int) -> ResidueRates:
        """The same for another number of moduli: each costs its share."""
        share = self.moduli / moduli
        product, accumulate = self.product * share, self.accumulate * share
        return ResidueRates(moduli, product, accumulate, self.convert * share, self.reconstruct * share, self.pull)


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
    residue : ResidueRates or None
        Rates of products through residues; None where they were not measured.
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
    residue: ResidueRates | None = None

    def __post_init__(self) -> None:
        for entry in fields(self):
            if entry.name != "residue" and not getattr(self, entry.name) > 0:
                raise ValueError(f"rate {entry.name} is {getattr(self, entry.name)}, but a measured rate is more than zero")

    def seconds(self, step: Step | ResidueStep, grid: TileGrid) -> float:
        """Predicted seconds of ``step`` on its stream.

        Raises
        ------
        ValueError
            It works on residues, but no rates of those are known.
        """
        if isinstance(step, ResidueStep) and step.kind in (StepKind.COMPUTE, StepKind.PULL):
            return self.launch + self._residue_seconds(step, grid)
        if isinstance(step, Step) and step.task is not None:
            return self.launch + flops(step.task, grid) / self._of_kernel(step.task.kind)
        if step.kind is StepKind.GENERATE:
            return self.launch + grid.entries(*step.tile) / self.generate
        if step.kind is StepKind.WRITE:
            return self.launch + step.nbytes / self.write
        return self.launch + step.nbytes / (self.source if step.version == 0 else self.fetch)

    def share(self, step: Step | ResidueStep) -> float:
        """Share of the device's processors that a kernel keeps busy: what its flops would take of its time at GEMM's rate."""
        if isinstance(step, Step):
            return 1.0 if step.task is None else min(1.0, self._of_kernel(step.task.kind) / self.gemm)
        kernel = {Potrf: TaskKind.POTRF, Trsm: TaskKind.TRSM}.get(type(step.operation))
        return 1.0 if kernel is None else min(1.0, self._of_kernel(kernel) / self.gemm)

    def _residue_seconds(self, step: ResidueStep, grid: TileGrid) -> float:
        """Predicted seconds of an operation on residues."""
        if self.residue is None:
            raise ValueError("no rates of residues are measured for this machine and tile size")
        rates, work = self.residue, step.operation
        entries = grid.entries(*step.tile) if isinstance(work, Convert | Reconstruct | Diagonal | Potrf | Trsm) else 0
        if isinstance(work, Product):
            rows = grid.size(step.tile[0])
            columns = sum(grid.size(step.tile[1] + offset) for offset in range(work.n_columns))
            share = LOWER_SHARE if work.lower else 1.0
            return share * rows * columns * (2 * (work.stop - work.start) * grid.nb / rates.product + 1 / rates.accumulate)
        if isinstance(work, Pull):
            return step.nbytes / rates.pull
        if isinstance(work, Potrf):
            return step.flops / self.potrf
        if isinstance(work, Trsm):
            return step.flops / self.trsm
        return entries / (rates.reconstruct if isinstance(work, Reconstruct) else rates.convert)

    def _of_kernel(self, kind: TaskKind) -> float:
        """Flops per second of one kernel."""
        return {TaskKind.POTRF: self.potrf, TaskKind.TRSM: self.trsm, TaskKind.SYRK: self.syrk, TaskKind.GEMM: self.gemm}[kind]
