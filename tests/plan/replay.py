"""Streams in any order: replays programs under every interleaving that stream order, ``waits`` and ``awaits`` allow.

An operation takes time: between its start and its end anything else that may run does. Everything that it uses, derived here from
the operation alone, must hold the right value from its start to its end: tiles with the number of their updates, each tile column
of each strip, each tile column of each accumulator with the range of K that it sums, inverses, the exponents of rows, their
running sums, and the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tests.inside.dense import Program, ResidueLayout, Step
from tests.inside.precision import MOST_TERMS
from tests.inside.tasks import (
    STEP,
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
    StepKind,
    Store,
    Syrk,
    TileGrid,
    Trsm,
)

Spot: TypeAlias = tuple[Any, ...]

#: An accumulator that holds the sum of no tile.
NO_SUM = (None, None, None, None)


class RaceError(AssertionError):
    """A step saw a wrong value, two steps used one place at once, or some step could never run."""


class Write(NamedTuple):
    """A change of what ``spot`` holds; ``before`` is what must be there, None if that does not matter."""

    spot: Spot
    before: Any
    after: Any


@dataclass
class Uses:
    """What a step reads, with the value that must be there, and what it changes."""

    reads: list[tuple[Spot, Any]]
    writes: list[Write]


@dataclass
class _Lane:
    """One stream of one device: its steps, the next one last; ``uses`` of the one that runs."""

    device: int
    queue: list[int]
    uses: Uses | None = None


class Replay:
    """Runs the programs of all devices, one start or one end at a time; checks every value that a step sees.

    L lies over A, as with ``overwrite=True``: a tile of A is gone once that of L is written.
    """

    def __init__(self, programs: Sequence[Program], grid: TileGrid) -> None:
        self._programs = programs
        self._grid = grid
        self._folding = {device for device, program in enumerate(programs) if getattr(program.layout, "folds", False)}
        self.held: dict[Spot, Any] = {("store", i, j): 0 for i, j in grid.tiles()}
        self._written: set[Any] = set()
        self.writes_of_store: list[Spot] = []
        self._readers: dict[Spot, int] = {}
        self._writers: set[Spot] = set()
        self._done: list[set[int]] = [set() for _ in programs]
        self._lanes = [
            _Lane(device, [at for at, step in enumerate(program.steps) if step.stream is stream][::-1])
            for device, program in enumerate(programs)
            for stream in program.streams
        ]

    def run(self, eagerness: Sequence[float], seed: int) -> None:
        """Run to the end; the larger a lane's number, the sooner it moves. Raises RaceError."""
        chance = random.Random(seed)
        while movable := [at for at, lane in enumerate(self._lanes) if lane.uses is not None or self._may_start(lane)]:
            chosen = chance.choices(movable, [eagerness[at % len(eagerness)] for at in movable])[0]
            self._move(self._lanes[chosen])
        if left := sum(len(lane.queue) for lane in self._lanes):
            raise RaceError(f"{left} steps never run")

    def _may_start(self, lane: _Lane) -> bool:
        if not lane.queue:
            return False
        step = self._programs[lane.device].steps[lane.queue[-1]]
        return self._done[lane.device].issuperset(step.waits) and all(self._has_come(key) for key in step.awaits)

    def _has_come(self, key: Any) -> bool:
        if key.name == STEP:
            device, position = key.coords
            if not self._programs[device].steps[position].announced:
                raise RaceError(f"{key} is awaited, but will not be announced")
            return position in self._done[device]
        return key in self._written

    def _move(self, lane: _Lane) -> None:
        """Start the next step of the lane, or end the one that runs."""
        step = self._programs[lane.device].steps[lane.queue[-1]]
        if lane.uses is None:
            lane.uses = self._uses(lane.device, step)
            self._begin(step, lane.uses)
            return
        for spot, _ in lane.uses.reads:
            self._readers[spot] -= 1
        for spot, _, after in lane.uses.writes:
            self._writers.discard(spot)
            self.held[spot] = after
        if step.kind is StepKind.WRITE:
            self._written.add(step.block)
        lane.uses = None
        self._done[lane.device].add(lane.queue.pop())

    def _begin(self, step: Step, uses: Uses) -> None:
        for spot, _, _ in uses.writes:
            if self._readers.get(spot) or spot in self._writers:
                raise RaceError(f"{step.label} writes {spot} while it is in use")
        needed = [*uses.reads, *((spot, before) for spot, before, _ in uses.writes if before is not None)]
        for spot, value in needed:
            if spot in self._writers or self.held.get(spot) != value:
                raise RaceError(f"{step.label} finds {self.held.get(spot)} in {spot}, or it is being written; needed: {value}")
        for spot, _ in uses.reads:
            self._readers[spot] = self._readers.get(spot, 0) + 1
        self._writers.update(spot for spot, _, _ in uses.writes)
        self.writes_of_store += [spot for spot, _, _ in uses.writes if spot[0] == "store"]

    # what operations use

    def _uses(self, device: int, step: Step) -> Uses:
        derive: dict[type, Callable[[int, Step, Any], Uses]] = {
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
            Syrk: self._update,
            Gemm: self._update,
            Pull: self._pull,
        }
        return derive[type(step.operation)](device, step, step.operation)

    def _load(self, device: int, step: Step, work: Load) -> Uses:
        reads = [] if step.kind is StepKind.GENERATE else [(("store", *step.tile), step.version)]
        return Uses(reads, [Write(tile_at(device, work.place), None, (*step.tile, step.version))])

    def _store(self, device: int, step: Step, work: Store) -> Uses:
        value = (*step.tile, step.version)
        return Uses([(tile_at(device, work.place), value)], [Write(("store", *step.tile), None, step.version)])

    def _update(self, device: int, step: Step, work: Syrk | Gemm) -> Uses:
        i, j = step.tile
        reads = [(tile_at(device, work.left), (i, work.k, work.k + 1))]
        if isinstance(work, Gemm):
            reads.append((tile_at(device, work.right), (j, work.k, work.k + 1)))
        return Uses(reads, [Write(tile_at(device, work.place), (i, j, work.k), (i, j, work.k + 1))])

    def _diagonal(self, device: int, step: Step, work: Diagonal) -> Uses:
        row = step.tile[0]
        return Uses([(tile_at(device, work.place), (row, row, 0))], [Write(("exponents", device, row), None, True)])

    def _convert(self, device: int, step: Step, work: Convert) -> Uses:
        row, column = step.tile
        reads = [(tile_at(device, work.place), (row, column, column + 1)), (("exponents", device, row), True)]
        writes = [Write(("strip", device, work.strip, work.column), None, (row, column))]
        if work.is_first:  # the squares are summed by ascending columns
            self.held.setdefault(("norms", device, row), 0)
            writes.append(Write(("norms", device, row), column, column + 1))
        return Uses(reads, writes)

    def _product(self, device: int, step: Step, work: Product) -> Uses:
        row, first = step.tile
        columns = range(first, first + work.n_columns)
        if work.lower != (row in columns) or (work.lower and work.n_columns > 1):
            raise RaceError(f"{step.label} is {'' if work.lower else 'not '}lower")
        k0 = work.k
        ks = {at: k0 + at - work.start for at in range(work.start, work.stop)}
        reads = {("strip", device, work.left, at): (row, k) for at, k in ks.items()}
        for offset, column in enumerate(columns):
            reads |= {("strip", device, work.right + offset, at): (column, k) for at, k in ks.items()}
        return Uses(list(reads.items()), [self._sum(device, work, row, first, offset, k0) for offset in range(work.n_columns)])

    def _sum(self, device: int, work: Product, row: int, first: int, offset: int, k0: int) -> Write:
        """A tile column of an accumulator: its tile, where its range of K ends, and terms of residues since they were folded."""
        spot, column = ("sum", device, work.accumulator, work.column + offset), first + offset
        held = self.held.get(spot, NO_SUM) if k0 else (row, column, 0, 0)
        *where, terms = held
        if tuple(where) != (row, column, k0) or work.accumulates != (k0 > 0):
            raise RaceError(f"the sum of ({row}, {column}) goes on at tile column {k0} of K, but finds {held}")
        before = 0 if device in self._folding else terms
        if (terms := before + (work.stop - work.start) * self._grid.nb) > MOST_TERMS:
            raise RaceError(f"the sum of ({row}, {column}) has {terms} terms")
        return Write(spot, held if k0 else None, (row, column, k0 + work.stop - work.start, terms))

    def _fold(self, device: int, step: Step, work: Fold) -> Uses:
        row, first = step.tile
        writes = []
        for offset in range(work.n_columns):
            spot = ("sum", device, work.accumulator, work.column + offset)
            held = self.held.get(spot, NO_SUM)
            if held[:2] != (row, first + offset):
                raise RaceError(f"{step.label} finds {held} in {spot}")
            writes.append(Write(spot, held, (*held[:3], 0)))
        return Uses([], writes)

    def _reconstruct(self, device: int, step: Step, work: Reconstruct) -> Uses:
        row, column = step.tile
        spot = ("sum", device, work.accumulator, work.column)
        total = (row, column, column, self.held.get(spot, NO_SUM)[3])
        reads = [(spot, total), *((("exponents", device, index), True) for index in {row, column})]
        return Uses(reads, [Write(tile_at(device, work.place), (row, column, 0), (row, column, column))])

    def _potrf(self, device: int, step: Step, work: Potrf) -> Uses:
        return Uses([], [_finished(device, step, work.place)])

    def _invert(self, device: int, step: Step, work: Invert) -> Uses:
        column = step.tile[1]
        return Uses(
            [(tile_at(device, work.place), (column, column, column + 1))], [Write(("inverse", device, work.slot), None, column)]
        )

    def _trsm(self, device: int, step: Step, work: Trsm) -> Uses:
        column = step.tile[1]
        reads = [(tile_at(device, work.diagonal), (column, column, column + 1))]
        if work.slot is not None:
            reads.append((("inverse", device, work.slot), column))
        return Uses(reads, [_finished(device, step, work.place)])

    def _pull(self, device: int, step: Step, work: Pull) -> Uses:
        if work.source.pool is not Pool.STRIP:
            value = (*step.tile, step.tile[1] + 1)
            return Uses([(tile_at(work.device, work.source), value)], [Write(tile_at(device, work.place), None, value)])
        row, chunk = step.tile
        layout = self._programs[device].layout
        assert isinstance(layout, ResidueLayout)
        base = chunk * layout.chunk
        values = {at: (row, base + at) for at in range(work.start, work.stop)}
        reads = [(("strip", work.device, work.source.slot, at), value) for at, value in values.items()]
        return Uses(reads, [Write(("strip", device, work.place.slot, at), None, value) for at, value in values.items()])


def tile_at(device: int, place: Place) -> Spot:
    """A slot of tiles."""
    return "tile", device, place.pool, place.slot


def _finished(device: int, step: Step, place: Place) -> Write:
    """A tile with all its updates becomes one of L."""
    return Write(tile_at(device, place), (*step.tile, step.tile[1]), (*step.tile, step.tile[1] + 1))
