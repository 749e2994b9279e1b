"""One device's program in the making: slots, and which steps must wait on which."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ooc_chol.dense.programs.layouts import AbstractMemoryLayout
from ooc_chol.dense.programs.steps import Program, Step
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockKey
from ooc_chol.tasks.operations import Operation, Place, Pool, StepKind, StreamKind, step_key

#: A device and one of its streams.
_Lane: TypeAlias = tuple[int, StreamKind]
#: A stream and the position of a step on it.
_Step: TypeAlias = tuple[StreamKind, int]
_STREAMS = tuple(StreamKind)
_STRIP = Pool.STRIP
_NO_KEYS: list[BlockKey] = []
_new_tuple = tuple.__new__
#: Behind every step.
_ALWAYS = 1 << 62
#: The writer of a place that nobody wrote to: before every step.
_NOBODY: _Step = (StreamKind.COMPUTE, -1)


@dataclass(slots=True, eq=False)
class _Uses:
    """Latest steps that used a place, by stream; pulls of other devices by device and stream there.

    ``writer`` is the step that wrote it last. ``made`` is, for each tile column that a strip holds now, the step that made it,
    which ends after that of the column before; None for places that are no strips.
    """

    made: list[_Step] | None
    writer: _Step = _NOBODY
    users: dict[StreamKind, int] = field(default_factory=dict)
    pullers: dict[_Lane, int] = field(default_factory=dict)


class Waits:
    """Which earlier steps each step must wait on, by the places that steps read and write.

    A step waits for the latest step of each other stream that wrote what it reads, or read or wrote what it writes, unless its
    stream has waited for that one or a later one. Of a strip, a reader waits for what made its columns and those before, not for
    what is added behind; what is added does not wait for readers of the columns before.
    """

    def __init__(self) -> None:
        self._uses: dict[Place, _Uses] = {}
        #: For each stream the latest step of each other one that it has waited for; its own are always before it.
        self._seen = [[_ALWAYS if other is stream else -1 for other in _STREAMS] for stream in _STREAMS]
        self._seen_elsewhere: dict[tuple[StreamKind, _Lane], int] = {}

    def add(
        self, position: int, stream: StreamKind, *, reads: Sequence[Place], writes: Sequence[Place], columns: tuple[int, int]
    ) -> tuple[tuple[int, ...], list[BlockKey]]:
        """The waits of step ``position``, by streams in their order, and the copies of other devices that it must await."""
        seen, uses_of, (start, stop) = self._seen[stream], self._uses, columns
        unseen: list[StreamKind] = []
        elsewhere: dict[_Lane, int] | None = None
        for place in reads:
            uses = uses_of.get(place) or self._of(place)
            lane, at = uses.writer if uses.made is None else uses.made[stop - 1]
            if at > seen[lane]:
                seen[lane] = at
                unseen.append(lane)
            uses.users[stream] = position
        for place in writes:
            uses = uses_of.get(place) or self._of(place)
            made, users = uses.made, uses.users
            if made is not None and start > 0:
                lane, at = made[start - 1]
                if at > seen[lane]:
                    seen[lane] = at
                    unseen.append(lane)
            else:
                for lane, at in users.items():
                    if at > seen[lane]:
                        seen[lane] = at
                        unseen.append(lane)
                users.clear()  # it waits for all before it: who waits for it waits for those
                if uses.pullers:
                    elsewhere = _latest(elsewhere or {}, uses.pullers)
                    uses.pullers.clear()
            users[stream] = position
            if made is None:
                uses.writer = stream, position
            elif len(made) == start == stop - 1:
                made.append((stream, position))  # as nearly all do
            else:
                made[start:] = [(stream, position)] * (stop - start)
        keys = self._unseen_elsewhere(stream, elsewhere) if elsewhere else _NO_KEYS
        if not unseen:
            return (), keys
        if len(unseen) == 1:
            return (seen[unseen[0]],), keys
        return tuple([seen[lane] for lane in sorted(set(unseen))]), keys

    def pulled(self, place: Place, lane: _Lane, position: int) -> None:
        """Note that a step of another device reads ``place``: its next writer must await it."""
        self._of(place).pullers[lane] = position

    def makers(self, place: Place, stop: int) -> list[int]:
        """The step that wrote to ``place`` last, if any did; of a strip the last one before tile column ``stop``."""
        uses = self._of(place)
        _, at = uses.writer if uses.made is None else uses.made[stop - 1]
        return [] if at < 0 else [at]

    def _of(self, place: Place) -> _Uses:
        """Uses of a place; a new one has none."""
        if place not in self._uses:
            self._uses[place] = _Uses([] if place.pool is _STRIP else None)
        return self._uses[place]

    def _unseen_elsewhere(self, stream: StreamKind, elsewhere: dict[_Lane, int]) -> list[BlockKey]:
        """The latest pull on each stream of other devices that ``stream`` has not waited for yet, nor for a later one."""
        keys = []
        for lane, position in elsewhere.items():
            if position > self._seen_elsewhere.get((stream, lane), -1):
                self._seen_elsewhere[stream, lane] = position
                keys.append(step_key(lane[0], position))
        return keys


class ProgramBuilder:
    """Appends steps, with the waits that the places which they read and write call for.

    Slots of a pool freed longest ago are used first, so that a copy seldom waits on a step that still reads the slot's old
    content: spare slots are prefetch depth.
    """

    def __init__(self, device: int, layout: AbstractMemoryLayout) -> None:
        self.device = device
        self.layout = layout
        self._steps: list[Step] = []
        self._announced: set[int] = set()
        pools: tuple[Pool, ...] = (Pool.TILE, Pool.TRANSIT, Pool.ACCUMULATOR)
        self._free = {pool: deque(Place(pool, slot) for slot in range(layout.slots(pool))) for pool in pools}
        self._slot_bytes = {pool: layout.slot_bytes(pool) for pool in Pool}
        self._bytes: dict[Place, int] = {}
        self._drops: list[Place] = []
        self._waits = Waits()
        self._resident = 0
        self._taken = 0
        self._peak = self._peak_resident = 0
        self._flops = 0

    @property
    def position(self) -> int:
        """The position that the next step gets."""
        return len(self._steps)

    def build(self) -> Program:
        """The program of all steps so far, each marked that another device awaits."""
        for position in self._announced:
            step: Step = _new_tuple(Step, (*self._steps[position][:-1], True))  # the last entry says so
            self._steps[position] = step
        return Program(
            tuple(self._steps), self.layout, peak_bytes=self._peak, peak_resident=self._peak_resident, flops=self._flops
        )

    def take(self, pool: Pool, nbytes: int | None = None) -> Place:
        """A free slot of ``pool``, the one freed longest ago, for a block of ``nbytes``; None fills the slot."""
        free = self._free[pool]
        if not free:
            raise ScheduleError(f"all {self.layout.slots(pool)} slots of {pool.name} are taken; give more memory")
        place = free.popleft()
        if nbytes is not None:
            self._bytes[place] = nbytes
        self.occupy(pool, nbytes)
        return place

    def give(self, place: Place) -> None:
        """Free a slot; the step that uses it next will wait for what still reads it."""
        self._free[place.pool].append(place)
        self.vacate(place.pool, self._bytes.pop(place, None) if self._bytes else None)
        self._drops.append(place)

    def occupy(self, pool: Pool, nbytes: int | None = None) -> None:
        """Count one slot more in use."""
        slot_bytes = self._slot_bytes[pool]
        self._resident += slot_bytes if nbytes is None else nbytes
        self._taken += slot_bytes
        if self._taken > self._peak:
            self._peak = self._taken
        if self._resident > self._peak_resident:
            self._peak_resident = self._resident

    def vacate(self, pool: Pool, nbytes: int | None = None) -> None:
        """Count one slot less in use."""
        slot_bytes = self._slot_bytes[pool]
        self._resident -= slot_bytes if nbytes is None else nbytes
        self._taken -= slot_bytes

    def add(
        self,
        kind: StepKind,
        stream: StreamKind,
        block: BlockKey,
        operation: Operation,
        *,
        nbytes: int = 0,
        flops: int = 0,
        reads: tuple[Place, ...] = (),
        writes: tuple[Place, ...] = (),
        columns: tuple[int, int] = (0, 0),
        awaits: Sequence[BlockKey] = (),
    ) -> int:
        """Append a step; returns its position."""
        position = len(self._steps)
        waits, keys = self._waits.add(position, stream, reads=reads, writes=writes, columns=columns)
        drops: tuple[Place, ...] = ()
        if self._drops:
            drops = tuple(self._drops)
            self._drops.clear()
        self._flops += flops
        awaited = (*awaits, *keys) if keys else tuple(awaits)
        # Up to millions of steps are made: a named tuple takes twice as long by its class.
        step: Step = _new_tuple(
            Step,
            (kind, stream, block, operation, reads, writes, columns, drops, nbytes, flops, waits, awaited, self._resident, False),
        )
        self._steps.append(step)
        return position

    def pulled(self, place: Place, device: int, stream: StreamKind, position: int) -> None:
        """Note that step ``position``, on ``stream`` of another device, reads ``place`` here: its next writer must await it."""
        self._waits.pulled(place, (device, stream), position)

    def makers(self, place: Place, stop: int) -> list[BlockKey]:
        """The steps that made what ``place`` holds, of a strip before tile column ``stop``; they will be announced."""
        positions = self._waits.makers(place, stop)
        self._announced.update(positions)
        return [step_key(self.device, position) for position in positions]

    def announce(self, position: int) -> None:
        """Note that another device awaits step ``position``."""
        self._announced.add(position)


def _latest(one: dict[_Lane, int], other: dict[_Lane, int]) -> dict[_Lane, int]:
    """The later step of each lane in two tables."""
    return one | {lane: max(at, one.get(lane, -1)) for lane, at in other.items()}


def waits_of(steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """The waits that the places of ``steps`` call for, whatever theirs are."""
    tracker = Waits()
    return [
        tracker.add(position, step.stream, reads=step.reads, writes=step.writes, columns=step.columns)[0]
        for position, step in enumerate(steps)
    ]
