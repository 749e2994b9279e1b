"""The check of plans against a simple model of slots: whatever is asked in whatever order, only what is right passes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ooc_chol.errors import ScheduleError
from tests.inside.dense import Contents, Step, TileSlots, tile_key
from tests.inside.tasks import (
    Gemm,
    Index,
    Load,
    Operation,
    Place,
    Pool,
    Potrf,
    Pull,
    StepKind,
    Store,
    StreamKind,
    Syrk,
    TileGrid,
    Trsm,
)

GRID = TileGrid(12, 4)
TILES = st.sampled_from(sorted(GRID.tiles()))
SLOTS = st.integers(-1, 4)


def place(slot: int) -> Place:
    return Place(Pool.TILE, slot)


class SlotMachine(RuleBasedStateMachine):
    """Two devices; each slot holds a tile with so many updates, which must be in the store before it is given up."""

    @initialize(n_slots=st.integers(1, 4))
    def start(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self.devices = [Contents(GRID, TileSlots(n_slots, 128)) for _ in range(2)]
        #: Per device and slot: tile, updates, whether the store has it, whether the slot was given up.
        self.held: list[dict[int, tuple[Index, int, bool, bool]]] = [{}, {}]

    # asking

    def attempt(self, device: int, allowed: bool, operation: Operation, tile: Index, version: int, drops: tuple[int, ...] = ()):
        """Apply a step; what is not allowed must raise."""
        kind = {Load: StepKind.FETCH, Store: StepKind.WRITE, Pull: StepKind.PULL}.get(type(operation), StepKind.COMPUTE)
        dropped = tuple(map(place, drops))
        step = Step(
            kind,
            StreamKind.COMPUTE,
            tile_key(tile, version),
            operation,
            (),
            (),
            (0, 0),
            dropped,
            0,
            0,
            waits=(),
            awaits=(),
            resident=0,
        )
        if allowed:
            self.devices[device].apply(step, self.devices)
        else:
            with pytest.raises(ScheduleError):
                self.devices[device].apply(step, self.devices)
        return allowed

    def is_free(self, device: int, slot: int) -> bool:
        return 0 <= slot < self.n_slots and (slot not in self.held[device] or self.held[device][slot][3])

    def has(self, device: int, slot: int, tile: Index, version: int) -> bool:
        held = self.held[device].get(slot)
        return held is not None and held[:2] == (tile, version) and not held[3]

    @rule(device=st.integers(0, 1), slot=SLOTS, tile=TILES, version=st.integers(0, 3))
    def load(self, device, slot, tile, version):
        version = min(version, tile[1] + 1)
        if self.attempt(device, self.is_free(device, slot), Load(place(slot)), tile, version):
            self.held[device][slot] = tile, version, True, False

    @rule(device=st.integers(0, 1), slot=SLOTS, k=st.integers(0, 2))
    def load_and_factor(self, device, slot, k):
        if self.attempt(device, self.is_free(device, slot), Load(place(slot)), (k, k), k):
            self.attempt(device, True, Potrf(place(slot)), (k, k), k + 1)
            self.held[device][slot] = (k, k), k + 1, False, False

    @rule(device=st.integers(0, 1), data=st.data())
    def give_up_and_use(self, device, data):
        if not self.held[device]:
            return
        dropped = data.draw(st.sampled_from(sorted(self.held[device])))
        tile, version, is_stored, is_free = self.held[device][dropped]
        if is_stored and not is_free:
            self.held[device][dropped] = tile, version, True, True
        self.attempt(device, False, Store(place(dropped)), tile, version, (dropped,))

    @rule(device=st.integers(0, 1), slot=SLOTS, source=SLOTS, tile=TILES)
    def pull(self, device, slot, source, tile):
        there = self.held[1 - device].get(source)  # bytes stay in a slot that was given up until it is filled again
        allowed = self.is_free(device, slot) and there is not None and there[:2] == (tile, tile[1] + 1)
        if self.attempt(device, allowed, Pull(1 - device, place(source), place(slot)), tile, tile[1] + 1):
            self.held[device][slot] = tile, tile[1] + 1, True, False

    @rule(device=st.integers(0, 1), data=st.data(), slots=st.tuples(SLOTS, SLOTS, SLOTS), tile=TILES)
    def compute(self, device, data, slots, tile):
        (i, j), (target, left, right) = tile, slots
        k = data.draw(st.integers(0, j))
        if data.draw(st.booleans(), "on what is there") and self.held[device]:
            target = data.draw(st.sampled_from(sorted(self.held[device])))
            (i, j), version, *_ = self.held[device][target]
            k = min(version, j)
        if k == j:
            operation = Potrf(place(target)) if i == j else Trsm(place(target), place(left))
            needed = [] if i == j else [(left, (j, j), j + 1)]
        elif i == j:
            operation, needed = Syrk(place(target), place(left), k), [(left, (i, k), k + 1)]
        else:
            operation = Gemm(place(target), place(left), place(right), k)
            needed = [(left, (i, k), k + 1), (right, (j, k), k + 1)]
        allowed = self.has(device, target, (i, j), k) and all(self.has(device, *one) for one in needed)
        if self.attempt(device, allowed, operation, (i, j), k + 1):
            self.held[device][target] = (i, j), k + 1, False, False

    @rule(device=st.integers(0, 1), slot=SLOTS, tile=TILES, version=st.integers(0, 3))
    def store(self, device, slot, tile, version):
        if slot in self.held[device]:
            tile, version, *_ = self.held[device][slot]
        if self.attempt(device, self.has(device, slot, tile, version), Store(place(slot)), tile, version):
            self.held[device][slot] = tile, version, True, False

    @rule(device=st.integers(0, 1), data=st.data(), dropped=SLOTS, slot=SLOTS, tile=TILES)
    def give_up_and_load(self, device, data, dropped, slot, tile):
        if data.draw(st.booleans(), "of what is there") and self.held[device]:
            dropped = slot = data.draw(st.sampled_from(sorted(self.held[device])))
        held = self.held[device].get(dropped)
        may_drop = held is not None and held[2] and not held[3]
        allowed = may_drop and (slot == dropped or self.is_free(device, slot))
        if may_drop:
            self.held[device][dropped] = (*held[:3], True)
        if self.attempt(device, allowed, Load(place(slot)), tile, 0, (dropped,)):
            self.held[device][slot] = tile, 0, True, False

    @invariant()
    def the_check_knows_what_the_slots_hold(self):
        for device, held in enumerate(self.held if hasattr(self, "held") else []):
            contents = self.devices[device]
            assert {slot: key for (_, slot), key in contents.tiles.items()} == {
                slot: tile_key(tile, version) for slot, (tile, version, *_) in held.items()
            }
            assert {slot for _, slot in contents.unwritten} == {slot for slot, one in held.items() if not one[2]}
            assert {slot for _, slot in contents.free} == {slot for slot, one in held.items() if one[3]}
            assert len(contents.tiles) <= self.n_slots


TestSlots = SlotMachine.TestCase
TestSlots.settings = settings(max_examples=150, stateful_step_count=60)
