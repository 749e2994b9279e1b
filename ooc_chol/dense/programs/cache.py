"""The block cache of one device: which block is in which slot, in which state, and whether it may leave.

Its rules are those of a plan's execution; a broken one is a :class:`ScheduleError`, found before the wrong bytes are used.
States are those of one copy, in enqueue order: a step that is enqueued later, on any stream, finds the block as stated once it
has waited for the steps that the plan names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockIndex, BlockKey


class Residency(Enum):
    """State of the device's copy of a block."""

    INVALID = "invalid"  #: the device has no copy
    LOADING = "loading"  #: a fetch into its slot is being enqueued; it may not be read, nor evicted
    SHARED = "shared"  #: equal to what the tier holds; may be evicted
    MODIFIED = "modified"  #: newer than what the tier holds; may not be evicted before it is written


@dataclass(slots=True)
class _Entry:
    """One block on the device."""

    key: BlockKey
    slot: int
    nbytes: int
    state: Residency
    holds: int = 0


class BlockCache:
    """Slots of one device and the blocks in them. Used by one thread."""

    def __init__(self, n_slots: int, slot_bytes: int) -> None:
        self._n_slots = n_slots
        self._slot_bytes = slot_bytes
        self._entries: dict[tuple[str, BlockIndex], _Entry] = {}
        self._taken: dict[int, BlockKey] = {}
        self.resident_bytes = 0
        self.peak_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def reserve(self, key: BlockKey, slot: int, nbytes: int) -> None:
        """Begin to load ``key`` into ``slot``."""
        if not 0 <= slot < self._n_slots or nbytes > self._slot_bytes:
            raise ScheduleError(
                f"{key} ({nbytes} bytes) does not fit slot {slot} of {self._n_slots} slots of {self._slot_bytes} bytes"
            )
        if slot in self._taken:
            raise ScheduleError(f"slot {slot} still holds {self._taken[slot]}; {key} cannot be fetched into it")
        if key[:2] in self._entries:
            raise ScheduleError(f"{self._entries[key[:2]].key} is on the device already; {key} cannot be fetched beside it")
        self._entries[key[:2]] = _Entry(key, slot, nbytes, Residency.LOADING)
        self._taken[slot] = key
        self.resident_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.resident_bytes)

    def loaded(self, key: BlockKey) -> None:
        """The fetch of ``key`` is enqueued: LOADING -> SHARED."""
        entry = self._require(key, Residency.LOADING)
        entry.state = Residency.SHARED

    def hold(self, key: BlockKey) -> None:
        """Forbid the eviction of ``key`` until it is released as often as it was held."""
        self._require(key, Residency.SHARED, Residency.MODIFIED).holds += 1

    def release(self, key: BlockKey) -> None:
        """Undo one :meth:`hold`."""
        entry = self._require(key, Residency.SHARED, Residency.MODIFIED)
        if entry.holds == 0:
            raise ScheduleError(f"{key} is released more often than it was held")
        entry.holds -= 1

    def modify(self, key: BlockKey) -> BlockKey:
        """A task changes ``key`` in place: its next version is MODIFIED. Returns the new key; holds stay."""
        entry = self._require(key, Residency.SHARED, Residency.MODIFIED)
        entry.key = BlockKey(key.name, key.coords, key.version + 1)
        entry.state = Residency.MODIFIED
        self._taken[entry.slot] = entry.key
        return entry.key

    def written(self, key: BlockKey) -> None:
        """The writing of ``key`` to its store is enqueued: MODIFIED -> SHARED."""
        self._require(key, Residency.MODIFIED).state = Residency.SHARED

    def evict(self, name: str, index: tuple[int, int]) -> None:
        """Drop the copy of a block."""
        entry = self._entries.get((name, index))
        if entry is None:
            raise ScheduleError(f"{name}{index} is not on the device and cannot be evicted")
        if entry.holds or entry.state is not Residency.SHARED:
            raise ScheduleError(f"{entry.key} is {entry.state.value} with {entry.holds} holds and may not be evicted")
        del self._entries[(name, index)]
        del self._taken[entry.slot]
        self.resident_bytes -= entry.nbytes

    def slot(self, key: BlockKey) -> int:
        """The slot that holds ``key``, which must be readable."""
        return self._require(key, Residency.SHARED, Residency.MODIFIED).slot

    def residency(self, key: BlockKey) -> Residency:
        """State of the device's copy of exactly this version."""
        entry = self._entries.get(key[:2])
        return entry.state if entry is not None and entry.key == key else Residency.INVALID

    def _require(self, key: BlockKey, *states: Residency) -> _Entry:
        """The entry of ``key`` in one of ``states``."""
        entry = self._entries.get(key[:2])
        if entry is None or entry.key != key:
            raise ScheduleError(f"{key} is not on the device" + (f", but {entry.key} is" if entry else ""))
        if entry.state not in states:
            raise ScheduleError(f"{key} is {entry.state.value}, but must be {' or '.join(state.value for state in states)} here")
        return entry
