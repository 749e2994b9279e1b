"""Contents of a device's slots while its program runs: the check of plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ooc_chol.dense.programs.layouts import AbstractMemoryLayout, ResidueLayout
from ooc_chol.dense.programs.steps import Step, tile_key
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockIndex, BlockKey
from ooc_chol.precision.moduli import MOST_TERMS
from ooc_chol.tasks.operations import (
    Convert,
    Diagonal,
    Fold,
    Gemm,
    Invert,
    Load,
    Place,
    Pool,
    Potrf,
    Product,
    Pull,
    Reconstruct,
    Store,
    Syrk,
    Trsm,
)
from ooc_chol.tasks.tiling import TileGrid

_STRIP, _ACCUMULATOR = Pool.STRIP, Pool.ACCUMULATOR
#: The pools whose slots a layout counts; the kernels keep the others.
_SLOTTED = (Pool.TILE, Pool.TRANSIT, Pool.STRIP, Pool.ACCUMULATOR)


@dataclass
class _Sum:
    """One tile column of an accumulator: ``S[row, column]`` over tile columns ``0:stop`` of K."""

    row: int
    column: int
    stop: int
    terms: int


@dataclass
class Contents:
    """Contents of one device's slots; :meth:`apply` verifies a step and takes its effect.

    A slot may be filled when it was given up, and given up when what it holds is in the store. Its bytes stay until it is filled
    again: other devices may still copy them.
    """

    grid: TileGrid
    layout: AbstractMemoryLayout  #: How the device's memory is divided into slots
    tiles: dict[Place, BlockKey] = field(default_factory=dict)
    free: set[Place] = field(default_factory=set)  # slots of tiles that were given up
    unwritten: set[Place] = field(default_factory=set)  # slots of tiles that are newer than the store's
    strips: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # slot: row, chunk, valid tile columns
    sums: dict[tuple[int, int], _Sum] = field(default_factory=dict)  # (accumulator slot, column in it)
    inverses: dict[int, int] = field(default_factory=dict)  # slot: tile column
    rows: set[int] = field(default_factory=set)  # tile rows whose exponents are known
    squares: dict[int, int] = field(default_factory=dict)  # tile columns whose squares are in the running sum of a tile row

    def __post_init__(self) -> None:
        self._slots = [self.layout.slots(pool) if pool in _SLOTTED else 0 for pool in Pool]
        self._chunk = self.layout.chunk if isinstance(self.layout, ResidueLayout) else 0
        # Products that leave residues fold each sum before it is kept: no sum of theirs has more terms than one of them adds.
        self._keeps_sums = not (isinstance(self.layout, ResidueLayout) and self.layout.folds)

    def apply(self, step: Step, others: Sequence[Contents]) -> None:
        """Verify that ``step`` finds what it needs, and note what it makes."""
        if drops := step.drops:
            for place in drops:
                self._drop(step, place)
        work = step.operation
        self._CHECKS[type(work)](self, step, work, others)

    def _drop(self, step: Step, place: Place) -> None:
        if place.pool is _ACCUMULATOR:
            return
        if place not in self.tiles or place in self.free:
            raise ScheduleError(f"{step.label}: {_name(place)} is to be given up, but holds nothing")
        if place in self.unwritten:
            raise ScheduleError(
                f"{step.label}: {_name(place)} is to be given up, but {self.tiles[place]} is not in the store yet"
            )
        self.free.add(place)

    def _load(self, step: Step, work: Load, others: Sequence[Contents]) -> None:
        self._fill(step, work.place, step.block)

    def _store(self, step: Step, work: Store, others: Sequence[Contents]) -> None:
        _, tile, version = step.block
        self._expect(step, work.place, tile, version)
        self.unwritten.discard(work.place)

    def _update(self, step: Step, work: Syrk | Gemm, others: Sequence[Contents]) -> None:
        (_, tile, _), place, k = step.block, work.place, work.k
        i, j = tile
        self._expect(step, place, tile, k)
        self._expect(step, work.left, (i, k), k + 1)
        if type(work) is Gemm:
            self._expect(step, work.right, (j, k), k + 1)
        self.tiles[place] = step.block
        self.unwritten.add(place)

    def _diagonal(self, step: Step, work: Diagonal, others: Sequence[Contents]) -> None:
        self._expect(step, work.place, step.tile, 0)
        self.rows.add(step.tile[0])

    def _convert(self, step: Step, work: Convert, others: Sequence[Contents]) -> None:
        tile, slot = step.block.coords, work.strip
        row, column = tile
        self._expect(step, work.place, tile, column + 1)
        if not 0 <= slot < self._slots[_STRIP]:
            self._exists(step, Place(_STRIP, slot))
        if row not in self.rows:
            self._scaled(step, row)
        chunk, at = divmod(column, self._chunk or self._residues(step).chunk)
        if at != work.column:
            raise ScheduleError(f"{step.label} goes to tile column {work.column} of a strip, but belongs to {at}")
        if at > 0 and self.strips.get(slot) != (row, chunk, at):
            raise ScheduleError(f"{step.label} continues strip slot {slot}, which holds {self._held(slot)}")
        self.strips[slot] = row, chunk, at + 1
        if work.is_first:
            if column != (counted := self.squares.get(row, 0)):
                raise ScheduleError(f"{step.label} adds its squares to row {row}, which has those of {counted} tile columns")
            self.squares[row] = column + 1

    def _product(self, step: Step, work: Product, others: Sequence[Contents]) -> None:
        row, column = step.tile
        self._residues(step)
        chunk = self._strip_of(step, work.left, row, work.stop)
        for offset in range(work.n_columns):
            if self._strip_of(step, work.right + offset, column + offset, work.stop) != chunk:
                raise ScheduleError(f"{step.label}: its strips belong to different chunks")
            if work.k != chunk * self._chunk + work.start:
                raise ScheduleError(f"{step.label} is said to begin at tile column {work.k} of K, but chunk {chunk} holds others")
            self._add(step, work, offset, chunk * self._chunk)

    def _add(self, step: Step, work: Product, offset: int, base: int) -> None:
        """One column's sum grows by the product's range of K, which must continue it."""
        row, column = step.tile[0], step.tile[1] + offset
        place = work.accumulator, work.column + offset
        start, stop = base + work.start, base + work.stop
        before = self.sums.get(place) if start else _Sum(row, column, 0, 0)
        if before is None or (before.row, before.column, before.stop) != (row, column, start):
            raise ScheduleError(f"{step.label} adds tile columns {start}:{stop} of K to ({row}, {column}), which holds {before}")
        if work.accumulates != (before.terms > 0):
            raise ScheduleError(f"{step.label} {'adds to' if work.accumulates else 'overwrites'} its sum, which holds {before}")
        terms = (stop - start) * self.grid.nb + (before.terms if self._keeps_sums else 0)
        if terms > MOST_TERMS:
            raise ScheduleError(f"{step.label}: {terms} products in one int32 may overflow; fold before")
        self.sums[place] = _Sum(row, column, stop, terms)

    def _fold(self, step: Step, work: Fold, others: Sequence[Contents]) -> None:
        terms = self._residues(step).basis.moduli[0]
        for column in range(work.column, work.column + work.n_columns):
            held = self.sums.get((work.accumulator, column))
            if held is None:
                raise ScheduleError(f"{step.label}: column {column} of accumulator {work.accumulator} holds nothing to fold")
            held.terms = terms

    def _reconstruct(self, step: Step, work: Reconstruct, others: Sequence[Contents]) -> None:
        self._expect(step, work.place, step.tile, 0)
        self._scaled(step, *step.tile)
        held = self.sums.pop((work.accumulator, work.column), None)
        if held is None or (held.row, held.column, held.stop) != (*step.tile, step.tile[1]):
            raise ScheduleError(f"{step.label} needs all updates of its tile, but the accumulator holds {held}")
        self.tiles[work.place] = tile_key(step.tile, step.tile[1])
        self.unwritten.add(work.place)

    def _potrf(self, step: Step, work: Potrf, others: Sequence[Contents]) -> None:
        self._expect(step, work.place, step.tile, step.version - 1)
        row, counted = step.tile[0], self.squares.get(step.tile[0], 0)
        if isinstance(self.layout, ResidueLayout) and counted != row:
            raise ScheduleError(
                f"{step.label} needs the squares of {row} tile columns, but those of {counted} are in the row's sum"
            )
        self._make(step, work.place)

    def _invert(self, step: Step, work: Invert, others: Sequence[Contents]) -> None:
        self._expect(step, work.place, step.tile, step.tile[1] + 1)
        self.inverses[work.slot] = step.tile[1]

    def _trsm(self, step: Step, work: Trsm, others: Sequence[Contents]) -> None:
        column = step.tile[1]
        self._expect(step, work.place, step.tile, step.version - 1)
        self._expect(step, work.diagonal, (column, column), column + 1)
        if work.slot is not None and self.inverses.get(work.slot) != column:
            raise ScheduleError(f"{step.label}: inverse {work.slot} belongs to column {self.inverses.get(work.slot)}")
        self._make(step, work.place)

    def _pull(self, step: Step, work: Pull, others: Sequence[Contents]) -> None:
        other = others[work.device]
        if work.source.pool is not _STRIP:
            wanted, held = tile_key(step.tile, step.tile[1] + 1), other.tiles.get(work.source)
            if held != wanted:
                holds = "is empty" if held is None else f"holds {held}"
                raise ScheduleError(f"{step.label}: {_name(work.source)} of device {work.device} {holds}, not {wanted}")
            self._fill(step, work.place, wanted)
            return
        self._exists(step, work.place)
        row, chunk = step.tile
        there = other.strips.get(work.source.slot)
        here = self.strips.get(work.place.slot) if work.start else (row, chunk, 0)
        if there is None or there[:2] != (row, chunk) or there[2] < work.stop or here != (row, chunk, work.start):
            raise ScheduleError(f"{step.label} of strip {(row, chunk)}: the source holds {there}, the target {here}")
        self.strips[work.place.slot] = (row, chunk, work.stop)

    def _scaled(self, step: Step, *rows: int) -> None:
        if not self.rows.issuperset(rows):
            raise ScheduleError(f"{step.label} needs the exponents of tile rows {rows}, of which some are not known yet")

    def _exists(self, step: Step, place: Place) -> None:
        if not 0 <= place.slot < self._slots[place.pool]:
            raise ScheduleError(f"{step.label}: there is no slot {place.slot} of {place.pool.name}")

    def _expect(self, step: Step, place: Place, tile: BlockIndex, version: int) -> None:
        """Verify the value in a tile's slot; a tile of the first column needs no update."""
        held = self.tiles.get(place)
        if held is None or held[1] != tile or held[2] != version or place in self.free:
            holds = "is empty" if held is None or place in self.free else f"holds {held}"
            raise ScheduleError(f"{step.label}: {_name(place)} {holds}, not {BlockKey('L', tile, version)}")

    def _fill(self, step: Step, place: Place, key: BlockKey) -> None:
        """A slot that was free holds a tile of a store."""
        pool, slot = place
        if not 0 <= slot < self._slots[pool]:
            self._exists(step, place)
        if place in self.free:
            self.free.remove(place)
        elif place in self.tiles:
            raise ScheduleError(f"{step.label}: {_name(place)} is not free, it holds {self.tiles[place]}")
        self.tiles[place] = key

    def _make(self, step: Step, place: Place) -> None:
        """Note that a place holds the step's block now, which is not in the store yet."""
        self.tiles[place] = step.block
        self.unwritten.add(place)

    def _residues(self, step: Step) -> ResidueLayout:
        """The layout, which has strips and sums."""
        if not isinstance(self.layout, ResidueLayout):
            raise ScheduleError(f"{step.label}: the device's memory has no place for residues")
        return self.layout

    def _strip_of(self, step: Step, slot: int, row: int, depth: int) -> int:
        """Chunk of a strip that must belong to ``row`` and have ``depth`` valid tile columns."""
        held = self.strips.get(slot)
        if held is None or held[0] != row or held[2] < depth:
            raise ScheduleError(f"{step.label} reads {depth} tile columns of row {row} in strip slot {slot}: {self._held(slot)}")
        return held[1]

    def _held(self, slot: int) -> str:
        held = self.strips.get(slot)
        return "nothing" if held is None else f"row {held[0]}, chunk {held[1]}, {held[2]} tile columns"

    #: The check of each operation: functions, so that no object refers to itself.
    _CHECKS: ClassVar[dict[type, Callable[[Contents, Step, Any, Sequence[Contents]], None]]] = {
        Load: _load,
        Store: _store,
        Potrf: _potrf,
        Invert: _invert,
        Trsm: _trsm,
        Syrk: _update,
        Gemm: _update,
        Diagonal: _diagonal,
        Convert: _convert,
        Product: _product,
        Fold: _fold,
        Reconstruct: _reconstruct,
        Pull: _pull,
    }


def _name(place: Place) -> str:
    """The name of a slot in an error."""
    return f"slot {place.slot} of {place.pool.name}"
