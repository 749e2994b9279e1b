"""Rates, measured or nominal, and the seconds that they predict for a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from math import inf
from typing import ClassVar

from ooc_chol.dense.programs.disk import DiskRates
from ooc_chol.dense.programs.steps import Step
from ooc_chol.display.prints import brief_repr
from ooc_chol.formats import FP32
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.operations import (
    LOWER_SHARE,
    Convert,
    Diagonal,
    Fold,
    Gemm,
    Invert,
    Load,
    Potrf,
    Product,
    Pull,
    Reconstruct,
    StepKind,
    Store,
    Syrk,
    Trsm,
)
from ooc_chol.tasks.tiling import TileGrid

_GENERATE, _WRITE = StepKind.GENERATE, StepKind.WRITE
#: Fields of :class:`Rates` that are no rates.
NO_RATES = ("residue", "precision", "origin", "model", "disk")


class RatesOrigin(StrEnum):
    """Where rates come from."""

    MEASURED = "measured"  #: On this machine, in the state of a long run
    QUICK = "quick"  #: On this machine, in a second or two, before its clock settled
    NEARBY = "nearby"  #: On this machine, at smaller and larger tiles
    SCALED = "scaled"  #: On this machine in float64, and of another type by a stated ratio
    NOMINAL = "nominal"  #: Nowhere here: what a GPU of this model should do


@dataclass(frozen=True)
class ResidueRates:
    """Rates of a device with residues of one number of moduli.

    Products of all shapes are told by two numbers: a product of K columns takes ``2 K / product + 1 / accumulate`` seconds an
    entry. They are those of a long and of a short product (:mod:`ooc_chol.dense.rates.residues`).
    """

    moduli: int
    product: float  #: FP64 flops per second that products of long K stand for
    accumulate: float  #: Entries per second of an accumulator, all moduli together, that a product reads and writes besides
    convert: float  #: Entries of a tile per second that become residues
    reconstruct: float  #: Entries of a tile per second that are made of residues
    pull: float  #: Bytes per second copied from another device
    #: As ``product`` and ``accumulate``, of products in FP16; None where they were not measured
    half: float | None = None
    half_accumulate: float | None = None

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        _check_positive(self)

    def at(self, moduli: int) -> ResidueRates:
        """The same for another number of moduli: each costs its share."""
        share = self.moduli / moduli
        product, accumulate = self.product * share, self.accumulate * share
        return replace(
            self,
            moduli=moduli,
            product=product,
            accumulate=accumulate,
            convert=self.convert * share,
            reconstruct=self.reconstruct * share,
        )


@dataclass(frozen=True)
class Rates:
    """Rates of a device; a plan without rates predicts no seconds.

    Raises ``ValueError``: a rate is not more than zero.
    """

    tile_size: int  #: Tile order at which the kernels were measured
    potrf: float  #: Flops per second of each kernel
    trsm: float
    syrk: float
    gemm: float
    #: Bytes per second read from A, read from the store of L, and written to it: on GPUs while the link carries as much in the
    #: other direction, as it does in a run
    source: float
    fetch: float
    write: float
    generate: float  #: Entries per second of a tile function
    launch: float  #: Seconds between two operations of one stream
    residue: ResidueRates | None = None  #: Rates of products through residues; None where they were not measured
    invert: float = inf  #: Entries per second of a diagonal tile that TRSM is prepared with; infinite where that was not measured
    #: Flops per second of tiles that are updated in float32, of TRSM with what makes them final; None where they were not
    #: measured, which counts as float64
    trsm_float32: float | None = None
    gemm_float32: float | None = None
    precision: PrecisionMap | None = None  #: Which tiles these are; None where all are float64
    origin: RatesOrigin = RatesOrigin.MEASURED  #: Whether they were measured here, and how long, or are nominal ones
    model: str | None = None  #: The model of GPU whose nominal rates they are; None where they were measured
    #: As ``fetch`` and ``write``, of tiles that are in host memory, wherever the others are. None where those are not known,
    #: which counts as ``fetch`` and ``write``.
    memory_fetch: float | None = None
    memory_write: float | None = None
    #: What the disk under that file does; None where it was not measured: then ``fetch`` and ``write`` are of a file in the page
    #: cache
    disk: DiskRates | None = None

    def __post_init__(self) -> None:
        _check_positive(self)

    def origin_text(self) -> str:
        """Where predicted seconds come from, to be written behind them; empty where the rates were measured in full."""
        if self.origin is RatesOrigin.MEASURED:
            return ""
        if self.origin is RatesOrigin.NEARBY:
            return " from rates of smaller and larger tiles"
        if self.origin is RatesOrigin.QUICK:
            return " from rates measured quickly; `ooc-chol bench rates` measures them under load"
        if self.origin is RatesOrigin.SCALED:
            return " from rates of float64, scaled; `ooc-chol bench rates` measures those of every type"
        return f" from nominal rates of {self.model}; `ooc-chol bench rates` measures this machine's"

    def of_formats(self, precision: PrecisionMap | None) -> Rates:
        """The same for a factorization whose tiles have these formats."""
        return replace(self, precision=precision)

    def seconds(self, step: Step, grid: TileGrid) -> float:
        """Predicted seconds of ``step`` on its stream.

        Raises ``ValueError``: it works on residues, but no rates of those are known.
        """
        return self._SECONDS[type(step.operation)](self, step, grid)

    def all_seconds(self, steps: Sequence[Step], grid: TileGrid) -> list[float]:
        """Those of all ``steps``, in less time than by asking one by one."""
        of = self._SECONDS
        return [of[type(step.operation)](self, step, grid) for step in steps]

    def shares(self) -> dict[type, float]:
        """For each operation, the share of the device's processors that its kernel keeps busy.

        It is what the kernel's flops would take of its time at GEMM's rate.
        """
        rates = {operation: self._of_kernel(operation) for operation in self._SECONDS}
        return {operation: 1.0 if rate is None else min(1.0, rate / self.gemm) for operation, rate in rates.items()}

    def _moving(self, step: Step, grid: TileGrid) -> float:
        """Seconds of a tile on its way between tier and device, or made there."""
        if step.kind is _GENERATE:
            i, j = step.block.coords
            return self.launch + grid.entries(i, j) / self.generate
        if step.kind is _WRITE:
            return self.launch + step.nbytes / self.write
        return self.launch + step.nbytes / (self.source if step.block.version == 0 else self.fetch)

    def _pulling(self, step: Step, grid: TileGrid) -> float:
        """Seconds of a copy from another device; where such were not measured, as by way of the host's memory."""
        return self.launch + step.nbytes / (self.fetch if self.residue is None else self.residue.pull)

    def _updating(self, step: Step, grid: TileGrid) -> float:
        """Seconds of SYRK, GEMM and TRSM."""
        return self.launch + step.flops / self._of_task(step)

    def _factoring(self, step: Step, grid: TileGrid) -> float:
        """Seconds of POTRF, with what the first TRSM of the column makes of the tile, where nothing else does."""
        prepares = isinstance(step.operation, Potrf) and step.operation.prepares
        return self.launch + (grid.entries(*step.tile) / self.invert if prepares else 0.0) + step.flops / self.potrf

    def _adding(self, step: Step, grid: TileGrid) -> float:
        """Seconds of a product of residues, and of a fold."""
        row, first = step.block.coords
        work = step.operation
        assert isinstance(work, Product | Fold)
        entries = grid.size(row) * grid.columns(first, work.n_columns)
        return self.launch + entries * _seconds_an_entry(work, self._of_residues, grid.nb)

    def _converting(self, step: Step, grid: TileGrid) -> float:
        i, j = step.block.coords
        return self.launch + grid.entries(i, j) / self._of_residues.convert

    def _reconstructing(self, step: Step, grid: TileGrid) -> float:
        return self.launch + grid.entries(*step.tile) / self._of_residues.reconstruct

    def _inverting(self, step: Step, grid: TileGrid) -> float:
        return self.launch + grid.entries(*step.tile) / self.invert

    def _scaling(self, step: Step, grid: TileGrid) -> float:
        return self.launch

    @property
    def _of_residues(self) -> ResidueRates:
        """Those of residues, which there must be."""
        if self.residue is None:
            raise ValueError("no rates of residues are measured for this machine and tile size")
        return self.residue

    def _of_task(self, step: Step) -> float:
        """Flops per second of a tile kernel, in the format in which its tile is updated."""
        kind = type(step.operation)
        rate: float | None = None
        if self.precision is not None and self.precision.product_of(step.tile) is FP32:
            rate = {Trsm: self.trsm_float32, Gemm: self.gemm_float32}.get(kind)
        rate = rate or self._of_kernel(kind)
        assert rate is not None
        return rate

    def _of_kernel(self, kind: type) -> float | None:
        """Flops per second of one tile kernel; what prepares TRSM keeps the processors as busy as POTRF."""
        if kind is Gemm:
            return self.gemm
        if kind is Syrk:
            return self.syrk
        if kind is Trsm:
            return self.trsm
        return self.potrf if kind is Potrf or kind is Invert else None

    #: The seconds of each operation: functions, so that no object refers to itself.
    _SECONDS: ClassVar[dict[type, Callable[[Rates, Step, TileGrid], float]]] = {
        Load: _moving,
        Store: _moving,
        Pull: _pulling,
        Potrf: _factoring,
        Trsm: _updating,
        Syrk: _updating,
        Gemm: _updating,
        Product: _adding,
        Fold: _adding,
        Convert: _converting,
        Reconstruct: _reconstructing,
        Invert: _inverting,
        Diagonal: _scaling,
    }

    __repr__ = brief_repr


def _seconds_an_entry(work: Product | Fold, rates: ResidueRates, nb: int) -> float:
    """Seconds for each entry of an accumulator; a fold reads and writes it as a product does."""
    if isinstance(work, Fold):
        return 1 / rates.accumulate
    flops = 2 * (work.stop - work.start) * nb
    share = LOWER_SHARE if work.lower else 1.0
    return share * (flops / rates.product + 1 / rates.accumulate)


def _check_positive(rates: Rates | ResidueRates) -> None:
    """Refuse rates that nothing has."""
    for entry in fields(rates):
        value = getattr(rates, entry.name)
        if entry.name not in NO_RATES and value is not None and not value > 0:
            raise ValueError(f"rate {entry.name} is {value}, but a measured rate is more than zero")
