"""What a step does on a device when products run through residues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ooc_chol.dense.execution.operations import AbstractOperations, Finisher
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.program import Link, StepKind
from ooc_chol.dense.programs.residue_steps import (
    Convert,
    Diagonal,
    Fold,
    Invert,
    Load,
    Place,
    Pool,
    Potrf,
    Product,
    Pull,
    Reconstruct,
    ResidueLayout,
    ResidueProgram,
    ResidueStep,
    Store,
    Trsm,
)
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.formats import FP64
from ooc_chol.interfaces import AbstractStream, AbstractTier, ArraySpec, Tile
from ooc_chol.kernels.interfaces import AbstractResidueKernels, NarrowParts, TileDevice
from ooc_chol.tasks.tiling import Index

#: Numbers of the arena's arrays.
_STRIPS, _SUMS, _HALVES, _HALF_SUMS, _QUARTERS = range(5)


def arrays_of(layout: ResidueLayout) -> tuple[ArraySpec, ...]:
    """Strips and accumulators: slots follow each other in rows, so that neighbouring slots are one taller matrix."""
    n, nb = layout.moduli, layout.nb
    strips, sums = (layout.strips * nb, layout.chunk * nb), (layout.accumulators * nb, layout.width * nb)
    arrays = ArraySpec(np.dtype(np.int8), (n, *strips)), ArraySpec(np.dtype(np.int32), (n, *sums))
    if not layout.halves:
        return arrays
    narrow = ArraySpec(np.dtype(np.float16), (1, *strips)), ArraySpec(np.dtype(np.float32), (1, *sums))
    quarters = (ArraySpec(np.dtype(np.uint8), (1, *strips)),) if layout.quarters else ()
    return *arrays, *narrow, *quarters


class ResidueOperations(AbstractOperations):
    """Operations of a residue program.

    That each step finds in its slots what it needs is the plan's matter: the planner runs the programs of all devices in the
    simulator (:mod:`ooc_chol.dense.programs.simulate`), which raises if one does not.
    """

    def __init__(
        self,
        device: TileDevice,
        plan: Plan,
        number: int,
        source: SourceTier,
        store: AbstractTier,
        others: Mapping[int, ResidueOperations],
    ) -> None:
        program = plan.programs[number]
        assert isinstance(program, ResidueProgram)
        layout = program.layout
        self._device, self._grid, self._nb, self._first_transit = device, plan.grid, layout.nb, layout.tiles
        self._number, self._owners = number, plan.owners
        self._source, self._store, self._others = source, store, others
        self._has_halves, self._has_quarters = layout.halves, layout.quarters
        self._source_itemsize = source.source.bytes_per_entry
        narrow = 0 if plan.precision is None else plan.precision.largest_stored_bytes
        slots, arrays = layout.tiles + layout.transit, arrays_of(layout)
        self._arena = device.allocate(slots, layout.tile_bytes, layout.nb, arrays, narrow_bytes=narrow)
        self.finisher = None if plan.precision is None else Finisher(device, plan.precision)
        device.prepare(source.source.prepare)
        self.flags = device.kernels.create_flags(plan.grid.nt)
        self._residues: AbstractResidueKernels = device.kernels.open_residues(plan.grid.n)
        self._resident = 0
        self.peak_bytes = program.peak_bytes

    @property
    def resident_bytes(self) -> int:
        """Bytes of slots in use."""
        return self._resident

    def flagged_row(self) -> int | None:
        """Smallest flagged matrix row, as of the last copy of flags."""
        return self._residues.flagged_row()

    def flagged_row_is_due(self, columns: int) -> bool:
        """Whether the pivot of the flagged row is this device's, and has been taken with all before it."""
        row = self.flagged_row()
        return row is not None and row // self._grid.nb < columns and self._owners[row // self._grid.nb] == self._number

    def perform(self, step: ResidueStep, stream: AbstractStream) -> int:
        """The operation of ``step``."""
        operation, link = step.operation, step.link
        self._PERFORM[type(operation)](self, step, operation, stream)
        self._resident = step.resident
        return 0 if link is None else self._moved_bytes(step, link)

    def _moved_bytes(self, step: ResidueStep, link: Link) -> int:
        """Bytes that the issued copy moves."""
        if isinstance(step.operation, Pull):
            copied = int(self._pull_target(step, step.operation).nbytes)
            if step.operation.place.pool is Pool.STRIP:
                rows, columns = self._pulled_shape(step, step.operation)
                copied += (2 * self._has_halves + self._has_quarters) * rows * columns
            return copied
        entries = self._grid.entries(*step.tile)
        if link is Link.SOURCE:
            return entries * self._source_itemsize
        return self._store.format_of(step.tile).stored_bytes(entries)

    def _load(self, step: ResidueStep, work: Load, stream: AbstractStream) -> None:
        """Fetch or generate a tile; tiles of A are checked for NaN and infinity before anything uses them."""
        i, j = step.tile
        tile = self.tile(work.place, step.tile)
        if step.kind is StepKind.GENERATE:
            self._device.generate(stream, self._source.generate, self._grid.span(i), self._grid.span(j), tile)
        elif self._is_stored(work.place, step.tile):
            self._device.copy_stored(stream, self._store, step.tile, self._stored(work.place, step.tile))
        else:
            self._device.copy_in(stream, self._source if step.version == 0 else self._store, step.tile, tile)
        if step.version == 0:
            self._device.kernels.check_finite(stream, tile, i == j, self.flags, self._grid.packed(i, j))

    def _is_stored(self, place: Place, index: Index) -> bool:
        """Whether a place holds a tile as it is stored: on its way to residues, in a narrow format."""
        return place.pool is Pool.TRANSIT and self._store.format_of(index) != FP64

    def _stored(self, place: Place, index: Index) -> Tile:
        """The stored bytes of tile ``index`` in ``place``."""
        nbytes = self._store.format_of(index).stored_bytes(self._grid.entries(*index))
        return self._arena.tile(place.slot + self._first_transit, (1, nbytes), "uint8")

    def _write(self, step: ResidueStep, work: Store, stream: AbstractStream) -> None:
        self._device.copy_out(stream, self.tile(work.place, step.tile), self._store, step.tile)

    def _diagonal(self, step: ResidueStep, work: Diagonal, stream: AbstractStream) -> None:
        self._residues.set_diagonal(stream, self._grid.start(step.tile[0]), self.tile(work.place, step.tile))

    def _convert(self, step: ResidueStep, work: Convert, stream: AbstractStream) -> None:
        place = work.strip, work.column, self._grid.shape(*step.tile)
        half = self.half(*place) if self._has_halves else None
        narrow = NarrowParts(half, self.quarter(*place) if self._has_quarters else None, work.quarter)
        rows, out = self._grid.span(step.tile[0]), self.strip(*place)
        if self._is_stored(work.place, step.tile):
            stored, fmt = self._stored(work.place, step.tile), self._store.format_of(step.tile)
            self._residues.convert_stored(stream, stored, fmt, rows, out, is_first=work.is_first, narrow=narrow)
        else:
            tile = self.tile(work.place, step.tile)
            self._residues.convert(stream, tile, rows, out, is_first=work.is_first, narrow=narrow)

    def _product(self, step: ResidueStep, work: Product, stream: AbstractStream) -> None:
        rows, columns = shape = self._shape(step.tile, work.n_columns)
        inner = (work.stop - work.start) * self._nb
        strip = self.strip if not work.half else self.half if work.quarter is None else self.quarter
        left, right = strip(work.left, work.start, (rows, inner)), strip(work.right, work.start, (columns, inner))
        if work.half:
            sums, kernels = self._half_sums(work.accumulator, work.column, shape), self._residues
            if work.quarter is None:
                kernels.half_product(stream, sums, left, right, accumulates=work.accumulates)
            else:
                kernels.quarter_product(stream, sums, left, right, exponent=work.quarter, accumulates=work.accumulates)
            return
        target = self._sums(work.accumulator, work.column, shape)
        self._residues.product(stream, target, left, right, accumulates=work.accumulates, lower=work.lower)

    def _fold(self, step: ResidueStep, work: Fold, stream: AbstractStream) -> None:
        self._residues.fold(stream, self._sums(work.accumulator, work.column, self._shape(step.tile, work.n_columns)))

    def _reconstruct(self, step: ResidueStep, work: Reconstruct, stream: AbstractStream) -> None:
        tile, place = self.tile(work.place, step.tile), (work.accumulator, work.column, self._grid.shape(*step.tile))
        spans = self._grid.span(step.tile[0]), self._grid.span(step.tile[1])
        if work.halves:
            self._residues.subtract_halves(stream, self._half_sums(*place), tile, *spans)
        if work.residues:
            self._residues.reconstruct(stream, self._sums(*place), tile, *spans)

    def _potrf(self, step: ResidueStep, work: Potrf, stream: AbstractStream) -> None:
        tile = self.tile(work.place, step.tile)
        self._device.kernels.potrf(stream, tile, self.flags, step.tile[0])
        if self.finisher is not None:
            self.finisher.finish(stream, tile, step.tile)
        self.flags.copy_back(stream)
        self._residues.copy_back(stream)

    def _invert(self, step: ResidueStep, work: Invert, stream: AbstractStream) -> None:
        self._device.kernels.prepare_trsm(stream, self.tile(work.place, step.tile), step.tile[1])

    def _trsm(self, step: ResidueStep, work: Trsm, stream: AbstractStream) -> None:
        column = step.tile[1]
        diagonal, tile = self.tile(work.diagonal, (column, column)), self.tile(work.place, step.tile)
        self._device.kernels.trsm(stream, diagonal, tile, column)
        if self.finisher is not None:
            self.finisher.finish(stream, tile, step.tile)

    def _pull(self, step: ResidueStep, work: Pull, stream: AbstractStream) -> None:
        other = self._others[work.device]
        if work.source.pool is Pool.STRIP:
            shape = self._pulled_shape(step, work)
            source = other.strip(work.source.slot, work.start, shape)
            if self._has_halves:
                halves = other.half(work.source.slot, work.start, shape), self.half(work.place.slot, work.start, shape)
                self._device.copy_between(stream, *halves)
            if self._has_quarters:
                quarters = other.quarter(work.source.slot, work.start, shape), self.quarter(work.place.slot, work.start, shape)
                self._device.copy_between(stream, *quarters)
        else:
            source = other.tile(work.source, step.tile)
        self._device.copy_between(stream, source, self._pull_target(step, work))

    def _pull_target(self, step: ResidueStep, work: Pull) -> Tile:
        """Where a copy from another device goes."""
        if work.place.pool is Pool.STRIP:
            return self.strip(work.place.slot, work.start, self._pulled_shape(step, work))
        return self.tile(work.place, step.tile)

    def _pulled_shape(self, step: ResidueStep, work: Pull) -> tuple[int, int]:
        """Rows and columns of the part of a strip that is copied."""
        return self._grid.size(step.tile[0]), (work.stop - work.start) * self._nb

    def _shape(self, index: Index, n_columns: int) -> tuple[int, int]:
        """Rows and columns of so many tiles of one row, from tile ``index`` on; only the last row and column may be short."""
        row, column = index
        return self._grid.size(row), (n_columns - 1) * self._nb + self._grid.size(column + n_columns - 1)

    def tile(self, place: Place, index: Index) -> Tile:
        """The FP64 tile in ``place``."""
        slot = place.slot + (self._first_transit if place.pool is Pool.TRANSIT else 0)
        return self._arena.tile(slot, self._grid.shape(*index))

    def strip(self, slot: int, column: int, shape: tuple[int, int]) -> Tile:
        """The rectangle of ``shape`` from tile column ``column`` of strip ``slot`` on, of every modulus."""
        return self._arena.part(_STRIPS, (slot * self._nb, column * self._nb), shape)

    def half(self, slot: int, column: int, shape: tuple[int, int]) -> Tile:
        """The same of its entries in FP16."""
        return self._arena.part(_HALVES, (slot * self._nb, column * self._nb), shape)

    def quarter(self, slot: int, column: int, shape: tuple[int, int]) -> Tile:
        """The same of its entries in FP8."""
        return self._arena.part(_QUARTERS, (slot * self._nb, column * self._nb), shape)

    def _half_sums(self, slot: int, column: int, shape: tuple[int, int]) -> Tile:
        """The rectangle of an accumulator's sums in FP32."""
        return self._arena.part(_HALF_SUMS, (slot * self._nb, column * self._nb), shape)

    def _sums(self, slot: int, column: int, shape: tuple[int, int]) -> Tile:
        """The rectangle of ``shape`` from tile column ``column`` of accumulator ``slot`` on, of every modulus."""
        return self._arena.part(_SUMS, (slot * self._nb, column * self._nb), shape)

    #: What performs each operation: functions, as bound methods would tie an object to itself, and its device's memory with it.
    _PERFORM: ClassVar[dict[type, Callable[[ResidueOperations, ResidueStep, Any, AbstractStream], None]]] = {
        Load: _load,
        Store: _write,
        Diagonal: _diagonal,
        Convert: _convert,
        Product: _product,
        Fold: _fold,
        Reconstruct: _reconstruct,
        Potrf: _potrf,
        Invert: _invert,
        Trsm: _trsm,
        Pull: _pull,
    }
