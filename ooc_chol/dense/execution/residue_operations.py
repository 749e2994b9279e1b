"""Operations of steps on a device when products run through residues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from ooc_chol.dense.execution.operations import AbstractOperations
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.steps import Step
from ooc_chol.interfaces import AbstractStream, ArraySpec, Tile
from ooc_chol.precision.products import NARROW_TILES
from ooc_chol.tasks.operations import (
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
    Store,
    Trsm,
)
from ooc_chol.tasks.tiling import Index

#: Numbers of the arena's arrays.
_STRIPS, _SUMS, _FP16_STRIPS, _NARROW_SUMS = range(4)


def arrays_of(layout: ResidueLayout) -> tuple[ArraySpec, ...]:
    """Strips and accumulators: slots follow each other in rows, so that neighbouring slots are one taller matrix."""
    n, nb = layout.planes, layout.nb
    strips, sums = (layout.strips * nb, layout.chunk * nb), (layout.accumulators * nb, layout.width * nb)
    of_sums = np.dtype(np.int8 if layout.folds else np.int32)
    arrays = ArraySpec(np.dtype(np.int8), (n, *strips)), ArraySpec(of_sums, (n, *sums))
    if not layout.has_fp16:
        return arrays
    narrow = ArraySpec(np.dtype(np.float16), (1, *strips)), ArraySpec(np.dtype(np.float32), (1, *sums))
    return *arrays, *narrow


def _runs(narrow: Sequence[bool]) -> Iterator[tuple[int, int, bool]]:
    """Runs of tile columns that are multiplied in one way; those in FP16 are short."""
    start, count = 0, len(narrow)
    while start < count:
        is_narrow = narrow[start]
        stop = min(start + NARROW_TILES, count) if is_narrow else count
        end = start + 1
        while end < stop and narrow[end] == is_narrow:
            end += 1
        yield start, end, is_narrow
        start = end


@final
class ResidueOperations(AbstractOperations):
    """Operations of a program through residues."""

    def _allocate(self, plan: Plan) -> Any:
        layout = plan.layout
        assert isinstance(layout, ResidueLayout)
        self._nb, self._first_transit, self._type_name = layout.nb, layout.tiles, plan.fmt.type_name
        self._has_fp16 = layout.has_fp16
        #: Whether columns of accumulators hold sums in residues, and in FP32, as of what is enqueued.
        self._begun, self._begun_narrow = ([bytearray(layout.width) for _ in range(layout.accumulators)] for _ in range(2))
        narrow = 0 if plan.precision is None else plan.precision.largest_stored_bytes
        slots, arrays = layout.tiles + layout.transit, (*arrays_of(layout), *plan.probe_arrays)
        arena = self._device.allocate(slots, layout.tile_bytes, layout.nb, arrays, narrow_bytes=narrow)
        self._residues = self._device.kernels.open_residues(plan.grid.n)
        return arena

    def flagged_row(self) -> int | None:
        return self._residues.flagged_row()

    def copy_flags_back(self, stream: AbstractStream) -> None:
        """Those of tiles and pivots, and of rows."""
        self.flags.copy_back(stream)
        self._residues.copy_back(stream)

    def _fetch(self, place: Place, index: Index, stream: AbstractStream) -> int:
        if self._is_stored(place, index):
            self._device.copy_stored(stream, self._store, index, self._stored(place, index))
        else:
            self._device.copy_in(stream, self._store, index, self.tile(place, index))
        return self._stored_bytes(index)

    def _is_stored(self, place: Place, index: Index) -> bool:
        """Tell whether a place holds a tile as it is stored: on its way to residues, in a narrow format."""
        return place.pool is Pool.TRANSIT and self._store.format_of(index) != self._fmt

    def _stored(self, place: Place, index: Index) -> Tile:
        """The stored bytes of tile ``index`` in ``place``."""
        return self._arena.tile(place.slot + self._first_transit, (1, self._stored_bytes(index)), "uint8")

    def _diagonal(self, step: Step, work: Diagonal, stream: AbstractStream) -> int:
        self._residues.set_diagonal(stream, self._grid.start(step.tile[0]), self.tile(work.place, step.tile))
        return 0

    def _convert(self, step: Step, work: Convert, stream: AbstractStream) -> int:
        i, j = index = step.tile
        place = work.strip, work.column, self._grid.shape(i, j)
        fp16 = self.fp16_strip(*place) if self._has_fp16 else None
        rows, out = self._grid.span(i), self.strip(*place)
        if self._is_stored(work.place, index):
            stored, fmt = self._stored(work.place, index), self._store.format_of(index)
            self._residues.convert_stored(stream, stored, fmt, rows, out, is_first=work.is_first, fp16=fp16)
        else:
            tile = self.tile(work.place, index)
            self._residues.convert(stream, tile, rows, out, is_first=work.is_first, fp16=fp16)
        return 0

    def _product(self, step: Step, work: Product, stream: AbstractStream) -> int:
        """Multiply in residues, and where that was decided, in FP16: in runs of tile columns that are multiplied in one way."""
        tile, first, last, nb = step.tile, work.column, work.column + work.n_columns, self._nb
        begun, begun_narrow = self._begun[work.accumulator], self._begun_narrow[work.accumulator]
        if not work.accumulates:
            begun[first:last] = begun_narrow[first:last] = bytes(work.n_columns)
        depth = work.stop - work.start
        decisions, exact = self.decisions, ((0, depth, False),)
        runs = exact if decisions is None else _runs(decisions.of(*tile, range(work.k, work.k + depth)))
        rows, columns = shape = self._shape(tile, work.n_columns)
        for start, stop, is_narrow in runs:
            held, strip = (begun_narrow, self.fp16_strip) if is_narrow else (begun, self.strip)
            inner, start = (stop - start) * nb, work.start + start
            left, right = strip(work.left, start, (rows, inner)), strip(work.right, start, (columns, inner))
            accumulates = bool(held[first])
            if is_narrow:
                sums = self._narrow_sums(work.accumulator, first, shape)
                self._residues.fp16_product(stream, sums, left, right, accumulates=accumulates)
            else:
                sums = self._sums(work.accumulator, first, shape)
                self._residues.product(stream, sums, left, right, accumulates=accumulates, lower=work.lower)
            held[first:last] = b"\1" * work.n_columns
        return 0

    def _fold(self, step: Step, work: Fold, stream: AbstractStream) -> int:
        if self._begun[work.accumulator][work.column]:
            self._residues.fold(stream, self._sums(work.accumulator, work.column, self._shape(step.tile, work.n_columns)))
        return 0

    def _reconstruct(self, step: Step, work: Reconstruct, stream: AbstractStream) -> int:
        i, j = index = step.tile
        tile, grid, accumulator, column = self.tile(work.place, index), self._grid, work.accumulator, work.column
        place, rows, columns = (accumulator, column, grid.shape(i, j)), grid.span(i), grid.span(j)
        if self._begun_narrow[accumulator][column]:
            self._residues.subtract_narrow(stream, self._narrow_sums(*place), tile, rows, columns)
        if self._begun[accumulator][column]:
            self._residues.reconstruct(stream, self._sums(*place), tile, rows, columns)
        return 0

    def _trsm(self, step: Step, work: Trsm, stream: AbstractStream) -> int:
        """TRSM; behind the last one of a row in its panel, the way of what was measured of the row to the host."""
        super()._trsm(step, work, stream)
        if self.decisions is not None and self.finisher is not None and (panel := self.decisions.last_column(step.tile)):
            row, column = step.tile
            first, count = self._grid.packed(row, panel.k0), panel.width
            self.finisher.send(stream, first, count)
            self.decisions.send(row, column, stream.record(), partial(self.finisher.sent, first, count))
        return 0

    def _invert(self, step: Step, work: Invert, stream: AbstractStream) -> int:
        self._device.kernels.prepare_trsm(stream, self.tile(work.place, step.tile), step.tile[1])
        return 0

    def _pull(self, step: Step, work: Pull, stream: AbstractStream) -> int:
        """Copy a tile, or tile columns of a strip in all its forms."""
        if work.source.pool is not Pool.STRIP:
            return self._pull_tile(step, work, stream)
        other, shape = self._others[work.device], self._pulled_shape(step, work)
        forms = [(other.strip, self.strip)]
        if self._has_fp16:
            forms.append((other.fp16_strip, self.fp16_strip))
        moved = 0
        for theirs, ours in forms:
            target = ours(work.place.slot, work.start, shape)
            self._device.copy_between(stream, theirs(work.source.slot, work.start, shape), target)
            moved += int(target.nbytes)
        return moved

    def _pulled_shape(self, step: Step, work: Pull) -> tuple[int, int]:
        """Rows and columns of the part of a strip that is copied."""
        return self._grid.size(step.tile[0]), (work.stop - work.start) * self._nb

    def _shape(self, index: Index, n_columns: int) -> tuple[int, int]:
        """Rows and columns of so many tiles of one row, from tile ``index`` on."""
        return self._grid.size(index[0]), self._grid.columns(index[1], n_columns)

    def tile(self, place: Place, index: Index) -> Tile:
        slot = place.slot + self._first_transit if place.pool is Pool.TRANSIT else place.slot
        return self._arena.tile(slot, self._grid.shape(*index), self._type_name)

    def strip(self, slot: int, column: int, shape: tuple[int, int]) -> Tile:
        """The rectangle of ``shape`` from tile column ``column`` of strip ``slot`` on, of every modulus."""
        return self._arena.part(_STRIPS, (slot * self._nb, column * self._nb), shape)

    def fp16_strip(self, slot: int, column: int, shape: tuple[int, int]) -> Tile:
        """The same of its entries in FP16."""
        return self._arena.part(_FP16_STRIPS, (slot * self._nb, column * self._nb), shape)

    def _narrow_sums(self, slot: int, column: int, shape: tuple[int, int]) -> Tile:
        """The rectangle of an accumulator's sums in FP32."""
        return self._arena.part(_NARROW_SUMS, (slot * self._nb, column * self._nb), shape)

    def _sums(self, slot: int, column: int, shape: tuple[int, int]) -> Tile:
        """The rectangle of ``shape`` from tile column ``column`` of accumulator ``slot`` on, of every modulus."""
        return self._arena.part(_SUMS, (slot * self._nb, column * self._nb), shape)

    _PERFORM: ClassVar[Mapping[type, Callable[[Any, Step, Any, AbstractStream], int]]] = {
        Load: AbstractOperations._load,
        Store: AbstractOperations._write,
        Potrf: AbstractOperations._potrf,
        Trsm: _trsm,
        Invert: _invert,
        Diagonal: _diagonal,
        Convert: _convert,
        Product: _product,
        Fold: _fold,
        Reconstruct: _reconstruct,
        Pull: _pull,
    }
