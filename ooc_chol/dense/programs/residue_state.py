"""What the slots of a device hold while its residue program runs: the check of plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    ResidueStep,
    Store,
    Trsm,
)
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockKey
from ooc_chol.precision.moduli import MOST_TERMS
from ooc_chol.tasks.tiling import Index, TileGrid


@dataclass
class _Sum:
    """One tile column of an accumulator: ``S[row, column]`` over tile columns ``0:stop`` of K."""

    row: int
    column: int
    stop: int
    terms: int
    halves: bool = False


@dataclass
class ResidueState:
    """Contents of one device's slots; :meth:`apply` verifies a step and takes its effect."""

    grid: TileGrid
    layout: ResidueLayout  #: The device's memory
    tiles: dict[Place, BlockKey] = field(default_factory=dict)
    strips: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # slot: row, chunk, valid tile columns
    sums: dict[tuple[int, int], _Sum] = field(default_factory=dict)  # (accumulator slot, column in it)
    inverses: dict[int, int] = field(default_factory=dict)  # slot: tile column
    rows: set[int] = field(default_factory=set)  # tile rows whose exponents are known

    def apply(self, step: ResidueStep, others: Mapping[int, ResidueState]) -> None:
        """Verify that ``step`` finds what it needs, and note what it makes."""
        checks: dict[type, Callable[[ResidueStep, Any], None]] = {
            Load: self._load,
            Store: self._store,
            Diagonal: self._diagonal,
            Convert: self._convert,
            Product: self._product,
            Fold: self._fold,
            Reconstruct: self._reconstruct,
            Potrf: self._potrf,
            Invert: self._invert,
            Trsm: self._trsm,
        }
        if isinstance(step.operation, Pull):
            self._pull(step, step.operation, others[step.operation.device])
        else:
            checks[type(step.operation)](step, step.operation)

    def _load(self, step: ResidueStep, work: Load) -> None:
        self._exists(step, work.place)
        self.tiles[work.place] = step.block

    def _store(self, step: ResidueStep, work: Store) -> None:
        self._expect(step, work.place, step.tile, step.version)

    def _diagonal(self, step: ResidueStep, work: Diagonal) -> None:
        self._expect(step, work.place, step.tile, 0)
        self.rows.add(step.tile[0])

    def _convert(self, step: ResidueStep, work: Convert) -> None:
        row, column = step.tile
        self._expect(step, work.place, step.tile, column + 1)
        self._exists(step, Place(Pool.STRIP, work.strip))
        self._scaled(step, row)
        chunk, at = divmod(column, self.layout.chunk)
        if at != work.column:
            raise ScheduleError(f"{step.label} goes to tile column {work.column} of a strip, but belongs to {at}")
        if at == 0:
            self.strips[work.strip] = (row, chunk, 0)
        if self.strips.get(work.strip) != (row, chunk, at):
            raise ScheduleError(f"{step.label} continues strip slot {work.strip}, which holds {self._held(work.strip)}")
        self.strips[work.strip] = (row, chunk, at + 1)

    def _product(self, step: ResidueStep, work: Product) -> None:
        row, column = step.tile
        chunk = self._strip_of(step, work.left, row, work.stop)
        for offset in range(work.n_columns):
            if self._strip_of(step, work.right + offset, column + offset, work.stop) != chunk:
                raise ScheduleError(f"{step.label}: its strips belong to different chunks")
            self._add(step, work, offset, chunk * self.layout.chunk)

    def _add(self, step: ResidueStep, work: Product, offset: int, base: int) -> None:
        """One column's sum grows by the product's range of K, which must continue it."""
        row, column = step.tile[0], step.tile[1] + offset
        place = work.accumulator, work.column + offset
        start, stop = base + work.start, base + work.stop
        before = self.sums.get(place) if start else _Sum(row, column, 0, 0)
        if before is None or (before.row, before.column, before.stop) != (row, column, start):
            raise ScheduleError(f"{step.label} adds tile columns {start}:{stop} of K to ({row}, {column}), which holds {before}")
        if work.accumulates != (before.halves if work.half else before.terms > 0):
            raise ScheduleError(f"{step.label} {'adds to' if work.accumulates else 'overwrites'} its sum, which holds {before}")
        if work.half:
            self.sums[place] = _Sum(row, column, stop, before.terms, True)
            return
        terms = before.terms + (stop - start) * self.grid.nb
        if terms > MOST_TERMS:
            raise ScheduleError(f"{step.label}: {terms} products in one int32 may overflow; fold before")
        self.sums[place] = _Sum(row, column, stop, terms, before.halves)

    def _fold(self, step: ResidueStep, work: Fold) -> None:
        for column in range(work.column, work.column + work.n_columns):
            held = self.sums.get((work.accumulator, column))
            if held is None:
                raise ScheduleError(f"{step.label}: column {column} of accumulator {work.accumulator} holds nothing to fold")
            held.terms = self.layout.basis.moduli[0]

    def _reconstruct(self, step: ResidueStep, work: Reconstruct) -> None:
        self._expect(step, work.place, step.tile, 0)
        self._scaled(step, *step.tile)
        held = self.sums.pop((work.accumulator, work.column), None)
        if held is None or (held.row, held.column, held.stop) != (*step.tile, step.tile[1]):
            raise ScheduleError(f"{step.label} needs all updates of its tile, but the accumulator holds {held}")
        if (work.residues, work.halves) != (held.terms > 0, held.halves):
            raise ScheduleError(f"{step.label} takes sums that are not there, or leaves some: {held}")
        self.tiles[work.place] = BlockKey("L", step.tile, step.tile[1])

    def _potrf(self, step: ResidueStep, work: Potrf) -> None:
        self._expect(step, work.place, step.tile, step.tile[1])
        self.tiles[work.place] = step.block

    def _invert(self, step: ResidueStep, work: Invert) -> None:
        self._expect(step, work.place, step.tile, step.tile[1] + 1)
        self.inverses[work.slot] = step.tile[1]

    def _trsm(self, step: ResidueStep, work: Trsm) -> None:
        column = step.tile[1]
        self._expect(step, work.place, step.tile, column)
        self._expect(step, work.diagonal, (column, column), column + 1)
        if self.inverses.get(work.slot) != column:
            raise ScheduleError(f"{step.label}: inverse {work.slot} belongs to column {self.inverses.get(work.slot)}")
        self.tiles[work.place] = step.block

    def _pull(self, step: ResidueStep, work: Pull, other: ResidueState) -> None:
        self._exists(step, work.place)
        if work.source.pool is not Pool.STRIP:
            other._expect(step, work.source, step.tile, step.tile[1] + 1)
            self.tiles[work.place] = other.tiles[work.source]
            return
        row, chunk = step.tile
        there = other.strips.get(work.source.slot)
        here = self.strips.get(work.place.slot) if work.start else (row, chunk, 0)
        if there is None or there[:2] != (row, chunk) or there[2] < work.stop or here != (row, chunk, work.start):
            raise ScheduleError(f"{step.label} of strip {(row, chunk)}: the source holds {there}, the target {here}")
        self.strips[work.place.slot] = (row, chunk, work.stop)

    def _scaled(self, step: ResidueStep, *rows: int) -> None:
        if not self.rows.issuperset(rows):
            raise ScheduleError(f"{step.label} needs the exponents of tile rows {rows}, of which some are not known yet")

    def _exists(self, step: ResidueStep, place: Place) -> None:
        if not 0 <= place.slot < self.layout.slots(place.pool):
            raise ScheduleError(f"{step.label}: there is no slot {place.slot} of {place.pool.name}")

    def _expect(self, step: ResidueStep, place: Place, tile: Index, version: int) -> None:
        """Verify the value in a tile's slot; a tile of the first column needs no reconstruction."""
        held, wanted = self.tiles.get(place), BlockKey("L", tile, version)
        if held != wanted:
            raise ScheduleError(f"{step.label}: {place.pool.name} {place.slot} holds {held}, not {wanted}")

    def _strip_of(self, step: ResidueStep, slot: int, row: int, depth: int) -> int:
        """Chunk of a strip that must belong to ``row`` and have ``depth`` valid tile columns."""
        held = self.strips.get(slot)
        if held is None or held[0] != row or held[2] < depth:
            raise ScheduleError(f"{step.label} reads {depth} tile columns of row {row} in strip slot {slot}: {self._held(slot)}")
        return held[1]

    def _held(self, slot: int) -> str:
        held = self.strips.get(slot)
        return "nothing" if held is None else f"row {held[0]}, chunk {held[1]}, {held[2]} tile columns"
