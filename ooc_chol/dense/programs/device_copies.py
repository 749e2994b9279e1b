"""Copies from device to device in place of fetches: a tile crosses the host's link once, and goes on to others directly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ooc_chol.dense.programs.builder import waits_of
from ooc_chol.dense.programs.steps import Program, Step, final_keys
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockKey
from ooc_chol.tasks.operations import Load, Place, Potrf, Pull, StepKind, Store, StreamKind, Trsm, step_key
from ooc_chol.tasks.tiling import Index


def with_pulls(
    programs: Sequence[Program],
    starts: Sequence[Sequence[float]] | None,
    slot_bytes: Callable[[Index], int],
    given: Iterable[Index] = (),
) -> tuple[Program, ...]:
    """Replace fetches of tiles that another device holds at that time by copies from there.

    The steps of all devices are put into one order that respects each program and every value's way through the store. A copy
    awaits the step that brought or made the tile on the other device, which stands before it in that order; the step that fills
    the other device's slot next awaits the copy and stands behind it. So no device waits for itself by way of others.
    """
    merge = _Merge([list(program.steps) for program in programs], starts, slot_bytes, stored=set(final_keys(given)))
    merge.run()
    changed = []
    for program, steps in zip(programs, merge.steps, strict=True):
        waits = waits_of(steps)
        waiting = (s if s.waits == w else s._replace(waits=w) for s, w in zip(steps, waits, strict=True))  # few change
        changed.append(replace(program, steps=tuple(waiting)))
    return tuple(changed)


#: Later than any step starts: the next one waits for another device, or there is none.
_NOT_YET = float("inf")


@dataclass
class _Merge:
    """All programs on their way through one order."""

    steps: list[list[Step]]
    starts: Sequence[Sequence[float]] | None
    slot_bytes: Callable[[Index], int]
    next: list[int] = field(default_factory=list)
    soonest: list[float] = field(default_factory=list)  # when each device's next step may come; _NOT_YET where it must wait
    stored: set[BlockKey] = field(default_factory=set)
    holders: dict[Index, dict[int, tuple[Place, int]]] = field(default_factory=dict)  # tile: device: place, step that made it
    held: dict[tuple[int, Place], Index] = field(default_factory=dict)  # device and place: the tile there
    pulls: dict[tuple[int, Place], list[BlockKey]] = field(default_factory=dict)  # device and place: copies from there

    def run(self) -> None:
        """Take the steps one after the other, always of the device whose next step may come and starts first."""
        devices = range(len(self.steps))
        self.next = [0 for _ in devices]
        self.soonest = [self._start(device, 0.0) for device in devices]
        came = [0.0 for _ in devices]  # when the latest step of each device came
        while (now := min(self.soonest)) < _NOT_YET:
            device = self.soonest.index(now)
            position, came[device] = self.next[device], now
            self.next[device] += 1
            if self._take(device, position):  # others may have waited for what it wrote
                for other in devices:
                    if self.soonest[other] == _NOT_YET:
                        self.soonest[other] = self._start(other, came[other])
            self.soonest[device] = self._start(device, now)
        left = [device for device, steps in enumerate(self.steps) if self.next[device] < len(steps)]
        if left:
            step = self.steps[left[0]][self.next[left[0]]]
            raise ScheduleError(f"the plan blocks: device {left[0]} waits for {step.block}, which is never written")

    def _start(self, device: int, earliest: float) -> float:
        """When the next step of a device may come, not before ``earliest``."""
        steps, position = self.steps[device], self.next[device]
        if position == len(steps):
            return _NOT_YET
        step = steps[position]
        if step.needs_store and step.block not in self.stored:
            return _NOT_YET
        start = position / len(steps) if self.starts is None else self.starts[device][position]
        return start if start > earliest else earliest

    def _take(self, device: int, position: int) -> bool:
        """One step: what it gives up, brings, makes final or writes; whether it writes."""
        step = self.steps[device][position]
        for place in step.drops:
            self.holders.get(self.held.pop((device, place)), {}).pop(device, None)
        work = step.operation
        if type(work) is Load:
            self.steps[device][position] = self._brought(device, position, step, work)
        elif type(work) is Potrf or type(work) is Trsm:
            self.holders.setdefault(step.tile, {})[device] = work.place, position
        elif type(work) is Store:
            self.stored.add(step.block)
            return True
        return False

    def _brought(self, device: int, position: int, step: Step, work: Load) -> Step:
        """A tile comes into a slot that other devices may still copy from."""
        is_final = step.version == step.tile[1] + 1
        if is_final and step.kind is StepKind.FETCH:
            step = self._pulled(device, position, step, work)
        after = self.pulls.pop((device, work.place), [])
        self.held[device, work.place] = step.tile
        if is_final:
            self.holders.setdefault(step.tile, {})[device] = work.place, position
        return step._replace(awaits=(*step.awaits, *after)) if after else step

    def _pulled(self, device: int, position: int, step: Step, work: Load) -> Step:
        """The fetch ``step`` as a copy, if another device holds its tile."""
        holders = self.holders.get(step.tile, {})
        if not holders:
            return step
        # Of several holders the one that was asked least: its links are shared.
        other = min(holders, key=lambda number: (len(self.pulls.get((number, holders[number][0]), [])), number))
        source, made = holders[other]
        self.steps[other][made] = self.steps[other][made]._replace(announced=True)
        self.pulls.setdefault((other, source), []).append(step_key(device, position))
        return step._replace(
            kind=StepKind.PULL,
            stream=StreamKind.PEER,
            operation=Pull(other, source, work.place),
            nbytes=self.slot_bytes(step.tile),
            awaits=(step_key(other, made),),
            announced=True,
        )
