"""Streams in any order: replays programs under every interleaving that stream order, ``waits`` and the store allow.

An operation takes time: between its start and its end anything else that may run does. Every slot and every tile of the store
that it uses must hold the right value from its start to its end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ooc_chol.dense.programs.program import Program, Step, StepKind
from ooc_chol.interfaces import BlockKey

Place = tuple[str, object]  # a slot ("device 0", 3), or a tile of the store ("store", (2, 1))


class RaceError(AssertionError):
    """A step saw a wrong value, two steps used one place at once, or some step could never run."""


class _Uses(NamedTuple):
    """What a step reads, and the one place that it changes; ``before`` is what must be there, if anything must."""

    reads: list[tuple[Place, BlockKey | None]]
    target: Place
    before: BlockKey | None


@dataclass
class _Lane:
    """One stream of one device: its steps, the next one last."""

    device: int
    queue: list[int]
    running: bool = False


class StreamReplay:
    """Runs the programs of all devices, one start or one end at a time; checks every value that a step sees.

    L lies over A, as with ``overwrite=True``: a tile of A is gone once a value of L is written.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = programs
        self.held: dict[Place, BlockKey] = {}
        self._written: set[BlockKey] = set()
        self._readers: dict[Place, int] = {}
        self._writers: set[Place] = set()
        self._done: list[set[int]] = [set() for _ in programs]
        self._lanes = [
            _Lane(device, [at for at, step in enumerate(program.steps) if step.stream is stream][::-1])
            for device, program in enumerate(programs)
            for stream in sorted({step.stream for step in program.steps})
        ]

    def run(self, eagerness: Sequence[float], seed: int) -> None:
        """Run to the end; the larger a lane's number, the sooner it moves. Raises RaceError."""
        chance = random.Random(seed)
        while movable := [at for at, lane in enumerate(self._lanes) if lane.running or self._may_start(lane)]:
            chosen = chance.choices(movable, [eagerness[at % len(eagerness)] for at in movable])[0]
            self._move(self._lanes[chosen])
        if left := sum(len(lane.queue) for lane in self._lanes):
            raise RaceError(f"{left} steps never run")

    def _may_start(self, lane: _Lane) -> bool:
        if not lane.queue:
            return False
        step = self._programs[lane.device].steps[lane.queue[-1]]
        return self._done[lane.device].issuperset(step.waits) and (not step.needs_store or step.block in self._written)

    def _move(self, lane: _Lane) -> None:
        """Start the next step of the lane, or end the one that runs."""
        step = self._programs[lane.device].steps[lane.queue[-1]]
        uses = _uses(lane.device, step)
        if not lane.running:
            self._begin(step, uses)
        else:
            self._end(step, uses)
            self._done[lane.device].add(lane.queue.pop())
        lane.running = not lane.running

    def _begin(self, step: Step, uses: _Uses) -> None:
        if self._readers.get(uses.target) or uses.target in self._writers:
            raise RaceError(f"{step.label} writes {uses.target} while it is in use")
        expected = uses.reads if uses.before is None else [*uses.reads, (uses.target, uses.before)]
        for place, value in expected:
            if place in self._writers or self.held.get(place) != value:
                raise RaceError(f"{step.label} finds {self.held.get(place)} in {place}, or it is being written; needed: {value}")
        for place, _ in uses.reads:
            self._readers[place] = self._readers.get(place, 0) + 1
        self._writers.add(uses.target)

    def _end(self, step: Step, uses: _Uses) -> None:
        for place, _ in uses.reads:
            self._readers[place] -= 1
        self._writers.discard(uses.target)
        self.held[uses.target] = step.block
        if step.kind is StepKind.WRITE:
            self._written.add(step.block)


def _uses(device: int, step: Step) -> _Uses:
    slot: Place = (f"device {device}", step.slot)
    store: Place = ("store", step.tile)
    if step.kind is StepKind.WRITE:
        return _Uses([(slot, step.block)], store, None)
    if step.task is not None:
        operands = zip(step.operands, step.task.reads, strict=True)
        reads = [((f"device {device}", at), BlockKey("L", tile, tile[1] + 1)) for at, tile in operands]
        return _Uses(reads, slot, BlockKey("L", step.tile, step.version - 1))
    if step.kind is StepKind.GENERATE:
        return _Uses([], slot, None)
    return _Uses([(store, step.block if step.needs_store else None)], slot, None)
