"""One device's residue program in the making: slots, and which steps must wait on which."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from ooc_chol.dense.programs.program import StepKind, StreamKind, unseen_waits
from ooc_chol.dense.programs.residue_steps import Operation, Place, Pool, ResidueLayout, ResidueProgram, ResidueStep, step_key
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockKey
from ooc_chol.tasks.tiling import Index

_Key = TypeVar("_Key", bound=Hashable)
#: A device and one of its streams.
_Lane: TypeAlias = tuple[int, StreamKind]


@dataclass
class _Uses:
    """Latest steps that wrote and read a place: by stream here; pulls of other devices by device and stream there.

    ``made`` is, for each tile column that a strip holds now, the step that made it, which ends after that of the column before.
    """

    writers: dict[StreamKind, int] = field(default_factory=dict)
    readers: dict[StreamKind, int] = field(default_factory=dict)
    pullers: dict[_Lane, int] = field(default_factory=dict)
    made: list[tuple[StreamKind, int]] = field(default_factory=list)


class ResidueProgramBuilder:
    """Appends steps, with the waits that the places which they read and write call for.

    Slots of a pool freed longest ago are used first, so that a copy seldom waits on a step that still reads the slot's old
    content: spare slots are prefetch depth.
    """

    def __init__(self, device: int, layout: ResidueLayout) -> None:
        self.device = device
        self.layout = layout
        self._steps: list[ResidueStep] = []
        self._announced: set[int] = set()
        pools: tuple[Pool, ...] = (Pool.TILE, Pool.TRANSIT, Pool.ACCUMULATOR)
        self._free: dict[Pool, deque[int]] = {pool: deque(range(layout.slots(pool))) for pool in pools}
        self._uses: dict[Place, _Uses] = {}
        self._seen = [[-1] * len(StreamKind) for _ in StreamKind]
        self._seen_elsewhere: dict[tuple[StreamKind, _Lane], int] = {}
        self._resident = 0
        self._peak = 0
        self._flops = 0

    @property
    def position(self) -> int:
        """Position of the next step."""
        return len(self._steps)

    def build(self) -> ResidueProgram:
        """The finished program."""
        steps = tuple(
            step._replace(announced=True) if position in self._announced else step for position, step in enumerate(self._steps)
        )
        return ResidueProgram(steps, self.layout, self._peak, self._flops)

    def take(self, pool: Pool) -> Place:
        """A free slot of ``pool``, the one freed longest ago."""
        if not self._free[pool]:
            raise ScheduleError(f"all {self.layout.slots(pool)} slots of {pool.name} are taken; give more memory")
        self.occupy(pool)
        return Place(pool, self._free[pool].popleft())

    def give(self, place: Place) -> None:
        """Free a slot; the step that uses it next will wait for what still reads it."""
        self._free[place.pool].append(place.slot)
        self.vacate(place.pool)

    def occupy(self, pool: Pool) -> None:
        """Count one slot more in use."""
        self._resident += self.layout.slot_bytes(pool)
        self._peak = max(self._peak, self._resident)

    def vacate(self, pool: Pool) -> None:
        """Count one slot less in use."""
        self._resident -= self.layout.slot_bytes(pool)

    def add(
        self,
        kind: StepKind,
        stream: StreamKind,
        tile: Index,
        version: int,
        operation: Operation,
        *,
        nbytes: int = 0,
        flops: int = 0,
        reads: Sequence[Place] = (),
        writes: Sequence[Place] = (),
        columns: tuple[int, int] = (0, 0),
        awaits: Iterable[BlockKey] = (),
    ) -> int:
        """Append a step; returns its position.

        Of strips it reads or writes the tile columns from ``columns[0]`` to before ``columns[1]``. A reader waits for what made
        these and those before, not for what is added behind; what is added does not wait for readers of the columns before.
        """
        position = len(self._steps)
        before: dict[StreamKind, int] = {}
        elsewhere: dict[_Lane, int] = {}
        start, stop = columns
        for place in reads:
            _latest(before, self._makers(place, stop))
        for place in writes:
            if place.pool is Pool.STRIP and start:
                _latest(before, self._makers(place, start))
                continue
            uses = self._of(place)
            _latest(before, uses.writers)
            _latest(before, uses.readers)
            _latest(elsewhere, uses.pullers)
            uses.pullers.clear()
        waits = unseen_waits(stream, before, self._seen[stream])
        keys = (*awaits, *self._reduce_elsewhere(stream, elsewhere))
        for place in reads:
            self._of(place).readers[stream] = position
        for place in writes:
            uses = self._of(place)
            uses.writers[stream] = position
            if place.pool is Pool.STRIP:
                uses.made[start:] = [(stream, position)] * (stop - start)
        self._flops += flops
        self._steps.append(ResidueStep(kind, stream, tile, version, operation, nbytes, flops, waits, keys, self._resident))
        return position

    def pulled(self, place: Place, device: int, stream: StreamKind, position: int) -> None:
        """Note that step ``position``, on ``stream`` of another device, reads ``place`` here: its next writer must await it."""
        self._of(place).pullers[device, stream] = position

    def makers(self, place: Place, stop: int) -> list[BlockKey]:
        """The steps that made what ``place`` holds, of a strip before tile column ``stop``; they will be announced."""
        positions = list(self._makers(place, stop).values())
        self._announced.update(positions)
        return [step_key(self.device, position) for position in positions]

    def announce(self, position: int) -> None:
        """Another device awaits step ``position``."""
        self._announced.add(position)

    def _makers(self, place: Place, stop: int) -> dict[StreamKind, int]:
        """The latest step of each stream that wrote to ``place``; of a strip only the last one before tile column ``stop``."""
        uses = self._of(place)
        return dict([uses.made[stop - 1]]) if place.pool is Pool.STRIP else uses.writers

    def _of(self, place: Place) -> _Uses:
        return self._uses.setdefault(place, _Uses())

    def _reduce_elsewhere(self, stream: StreamKind, elsewhere: dict[_Lane, int]) -> list[BlockKey]:
        """The latest pull on each stream of other devices that ``stream`` has not waited for yet, nor for a later one."""
        keys = []
        for lane, position in elsewhere.items():
            if position > self._seen_elsewhere.get((stream, lane), -1):
                self._seen_elsewhere[stream, lane] = position
                keys.append(step_key(lane[0], position))
        return keys


def _latest(into: dict[_Key, int], more: dict[_Key, int]) -> None:
    """Keep the later position of each."""
    for key, position in more.items():
        if position > into.get(key, -1):
            into[key] = position
