"""The block cache against a simple model: every rule of residency, whatever is asked of it in whatever order."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ooc_chol.dense.programs.cache import BlockCache, Residency
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockKey

NAMES = st.sampled_from(["L", "A"])
COORDS = st.sampled_from([(0, 0), (1, 0), (1, 1), (2, 0), (2, 2)])
KEYS = st.builds(BlockKey, NAMES, COORDS, st.integers(0, 3))
SLOT_BYTES = 100


@dataclass
class ModelBlock:
    """What the model knows of one block on the device."""

    key: BlockKey
    slot: int
    nbytes: int
    state: Residency
    holds: int = 0
    unwritten: bool = False


class CacheMachine(RuleBasedStateMachine):
    """Asks for anything, allowed or not; what is not allowed must raise and change nothing."""

    @initialize(n_slots=st.integers(1, 4))
    def start(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self.cache = BlockCache(n_slots, SLOT_BYTES)
        self.blocks: dict[tuple[str, tuple[int, int]], ModelBlock] = {}
        self.peak = 0

    # asking

    @rule(key=KEYS, slot=st.integers(-1, 4), nbytes=st.integers(1, SLOT_BYTES + 1))
    def reserve(self, key: BlockKey, slot: int, nbytes: int) -> None:
        taken = {block.slot for block in self.blocks.values()}
        allowed = 0 <= slot < self.n_slots and slot not in taken and nbytes <= SLOT_BYTES and key[:2] not in self.blocks
        if self.attempt(allowed, lambda: self.cache.reserve(key, slot, nbytes)):
            self.blocks[key[:2]] = ModelBlock(key, slot, nbytes, Residency.LOADING)
            self.peak = max(self.peak, self.bytes_held())

    @precondition(lambda self: len(self.blocks) < self.n_slots)
    @rule(data=st.data(), nbytes=st.integers(1, SLOT_BYTES))
    def fetch(self, data: st.DataObject, nbytes: int) -> None:
        taken = {block.slot for block in self.blocks.values()}
        slot = data.draw(st.sampled_from([slot for slot in range(self.n_slots) if slot not in taken]))
        key = data.draw(KEYS.filter(lambda key: key[:2] not in self.blocks))
        self.reserve(key, slot, nbytes)
        self.loaded(key)

    @rule(key=KEYS)
    def loaded(self, key: BlockKey) -> None:
        if self.attempt(self.state_of(key) is Residency.LOADING, lambda: self.cache.loaded(key)):
            self.blocks[key[:2]].state = Residency.SHARED

    @rule(key=KEYS)
    def hold(self, key: BlockKey) -> None:
        if self.attempt(self.is_readable(key), lambda: self.cache.hold(key)):
            self.blocks[key[:2]].holds += 1

    @rule(key=KEYS)
    def release(self, key: BlockKey) -> None:
        allowed = self.is_readable(key) and self.blocks[key[:2]].holds > 0
        if self.attempt(allowed, lambda: self.cache.release(key)):
            self.blocks[key[:2]].holds -= 1

    @rule(key=KEYS)
    def modify(self, key: BlockKey) -> None:
        newer = key._replace(version=key.version + 1)
        if self.attempt(self.is_readable(key), lambda: self.check_equal(self.cache.modify(key), newer)):
            block = self.blocks[key[:2]]
            block.key, block.state, block.unwritten = newer, Residency.MODIFIED, True

    @rule(key=KEYS)
    def written(self, key: BlockKey) -> None:
        if self.attempt(self.state_of(key) is Residency.MODIFIED, lambda: self.cache.written(key)):
            self.blocks[key[:2]].state, self.blocks[key[:2]].unwritten = Residency.SHARED, False

    @rule(name=NAMES, coords=COORDS)
    def evict(self, name: str, coords: tuple[int, int]) -> None:
        block = self.blocks.get((name, coords))
        allowed = block is not None and block.holds == 0 and not block.unwritten and block.state is not Residency.LOADING
        if self.attempt(allowed, lambda: self.cache.evict(name, coords)):
            del self.blocks[name, coords]

    @rule(key=KEYS)
    def find_slot(self, key: BlockKey) -> None:
        self.attempt(self.is_readable(key), lambda: self.check_equal(self.cache.slot(key), self.blocks[key[:2]].slot))

    # the rules that most random keys miss, on blocks that are there

    @precondition(lambda self: self.blocks)
    @rule(data=st.data(), what=st.sampled_from(["loaded", "hold", "release", "modify", "modify", "written", "find_slot"]))
    def use_what_is_there(self, data: st.DataObject, what: str) -> None:
        getattr(self, what)(data.draw(st.sampled_from([block.key for block in self.blocks.values()])))

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def evict_what_is_there(self, data: st.DataObject) -> None:
        self.evict(*data.draw(st.sampled_from(sorted(self.blocks))))

    # the model

    def attempt(self, allowed: bool, operation: object) -> bool:
        assert callable(operation)
        if allowed:
            operation()
            return True
        with pytest.raises(ScheduleError):
            operation()
        return False

    @staticmethod
    def check_equal(found: object, expected: object) -> None:
        assert found == expected

    def state_of(self, key: BlockKey) -> Residency:
        block = self.blocks.get(key[:2])
        return block.state if block is not None and block.key == key else Residency.INVALID

    def is_readable(self, key: BlockKey) -> bool:
        return self.state_of(key) in (Residency.SHARED, Residency.MODIFIED)

    def bytes_held(self) -> int:
        return sum(block.nbytes for block in self.blocks.values())

    @invariant()
    def capacity_is_never_exceeded(self) -> None:
        assert len(self.cache) == len(self.blocks) <= self.n_slots
        assert self.cache.resident_bytes == self.bytes_held() <= self.n_slots * SLOT_BYTES
        assert self.cache.peak_bytes == self.peak

    @invariant()
    def held_and_unwritten_blocks_are_there(self) -> None:
        for block in self.blocks.values():
            assert self.cache.residency(block.key) is block.state
            assert self.cache.residency(block.key._replace(version=block.key.version + 1)) is Residency.INVALID
            if block.state is not Residency.LOADING:
                assert self.cache.slot(block.key) == block.slot


TestBlockCache = CacheMachine.TestCase
TestBlockCache.settings = settings(max_examples=150, stateful_step_count=40)


def test_errors_name_the_block_its_state_and_the_slot():
    cache = BlockCache(2, 64)
    key = BlockKey("L", (3, 1), 0)
    with pytest.raises(ScheduleError, match=r"L\(3, 1\)v0 \(65 bytes\) does not fit slot 0 of 2 slots of 64 bytes"):
        cache.reserve(key, 0, 65)
    cache.reserve(key, 0, 64)
    with pytest.raises(ScheduleError, match=r"slot 0 still holds L\(3, 1\)v0; L\(2, 2\)v0 cannot be fetched into it"):
        cache.reserve(BlockKey("L", (2, 2), 0), 0, 8)
    with pytest.raises(ScheduleError, match=r"L\(3, 1\)v0 is on the device already; L\(3, 1\)v2 cannot be fetched beside it"):
        cache.reserve(key._replace(version=2), 1, 8)
    with pytest.raises(ScheduleError, match=r"L\(3, 1\)v0 is loading, but must be shared or modified here"):
        cache.modify(key)
    cache.loaded(key)
    newer = cache.modify(key)
    with pytest.raises(ScheduleError, match=r"L\(3, 1\)v0 is not on the device, but L\(3, 1\)v1 is"):
        cache.slot(key)
    with pytest.raises(ScheduleError, match=r"L\(3, 1\)v1 is modified with 0 holds and may not be evicted"):
        cache.evict("L", (3, 1))
    cache.written(newer)
    cache.hold(newer)
    with pytest.raises(ScheduleError, match=r"L\(3, 1\)v1 is shared with 1 holds and may not be evicted"):
        cache.evict("L", (3, 1))
    cache.release(newer)
    with pytest.raises(ScheduleError, match=r"L\(3, 1\)v1 is released more often than it was held"):
        cache.release(newer)
    cache.evict("L", (3, 1))
    with pytest.raises(ScheduleError, match=r"L\(3, 1\) is not on the device and cannot be evicted"):
        cache.evict("L", (3, 1))
