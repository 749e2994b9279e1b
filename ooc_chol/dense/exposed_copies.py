"""For how long devices stood still for fetches, from the times of steps: as :func:`~ooc_chol.tracing.exposed_copy_seconds` says.

That makes a record of every step first, which takes twenty times as long: a printed report asks for this one number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.execution.records import STREAM_ROLES
from ooc_chol.dense.programs.steps import Program, Step
from ooc_chol.tasks.operations import STEP, STREAM_NAMES, StepKind, StreamKind

_Times = NDArray[np.int64]
#: Device and position in its program of a step.
_At = tuple[int, int]


@dataclass(frozen=True)
class _Queue:
    """Steps of one stream, in order of time, one at a time."""

    positions: NDArray[np.intp]  #: Of the steps in the program
    starts: _Times  #: In nanoseconds
    ends: _Times
    is_fetch: NDArray[np.bool_]

    @classmethod
    def of(cls, positions: NDArray[np.intp], times: _Times, is_fetch: NDArray[np.bool_]) -> _Queue:
        """Sort the steps; a start that a coarse clock puts before the end of the step in front moves to that end."""
        ordered = positions[np.lexsort((positions, times[positions, 1], times[positions, 0]))]
        starts, ends = times[ordered, 0], np.maximum.accumulate(times[ordered, 1])
        starts[1:] = np.maximum(starts[1:], ends[:-1])
        return cls(ordered, starts, ends, is_fetch[ordered])


@dataclass(frozen=True)
class _Device:
    """Steps of one device."""

    steps: Sequence[Step]
    queues: dict[StreamKind, _Queue]

    @classmethod
    def of(cls, program: Program, spans: Sequence[tuple[int, int]]) -> _Device:
        """Share the steps out to their streams."""
        steps, count = program.steps, len(program.steps)
        times = np.array(spans, np.int64).reshape(count, 2)
        streams = np.fromiter((step[1] for step in steps), np.int8, count)  # by place, for speed
        is_fetch = np.fromiter((step[0] is StepKind.FETCH for step in steps), bool, count)
        present = map(StreamKind, np.unique(streams).tolist())
        return cls(steps, {which: _Queue.of(np.flatnonzero(streams == which), times, is_fetch) for which in present})

    @cached_property
    def places(self) -> list[int]:
        """Place of each step in the queue of its stream."""
        found = np.empty(len(self.steps), np.intp)
        for queue in self.queues.values():
            found[queue.positions] = np.arange(len(queue.positions))
        return found.tolist()

    @property
    def computing(self) -> list[_Queue]:
        """The queues of streams that run kernels."""
        return [queue for which, queue in self.queues.items() if STREAM_ROLES[STREAM_NAMES[which]].computes]


def exposed_copy_ns(programs: Sequence[Program], times: Sequence[Sequence[tuple[int, int]]]) -> int:
    """Nanoseconds in which devices stood still while a fetch that they waited for was in flight, summed over devices.

    ``times`` are nanoseconds at which each step began and ended, by device, in the order of its program.
    """
    devices = [_Device.of(*each) for each in zip(programs, times, strict=True)]
    queues = [queue for device in devices for queue in device.queues.values()]
    if not queues:
        return 0
    begin, end = min(int(queue.starts[0]) for queue in queues), max(int(queue.ends[-1]) for queue in queues)
    exposed = 0
    for number, device in enumerate(devices):
        busy = [np.stack((queue.starts, queue.ends), axis=1) for queue in device.computing]
        fetches = [span for queue in device.computing for span in _awaited_fetches(number, queue, devices, begin)]
        both = [*busy, np.array(fetches, np.int64).reshape(-1, 2)]
        exposed += _covered_ns(both, begin, end) - _covered_ns(busy, begin, end)
    return exposed


def _awaited_fetches(number: int, queue: _Queue, devices: Sequence[_Device], begin: int) -> Iterator[tuple[int, int]]:
    """Parts of the gaps on one computing stream in which a fetch was in flight that the next step waited for."""
    free = np.concatenate(([begin], queue.ends[:-1]))
    steps = devices[number].steps
    for gap in np.flatnonzero(queue.starts > free):
        left, right = int(free[gap]), int(queue.starts[gap])
        for start, end in _fetches_in_flight(left, number, steps[queue.positions[gap]], devices):
            if min(right, end) > max(left, start):
                yield max(left, start), min(right, end)


def _fetches_in_flight(free: int, number: int, step: Step, devices: Sequence[_Device]) -> Iterator[tuple[int, int]]:
    """Start and end of the fetches that ``step`` waited for after ``free``, with the fetches queued in front of them."""
    last: dict[tuple[int, StreamKind], int] = {}
    for at, position in _producers(number, step):
        producer = devices[at].steps[position]
        if producer.kind is StepKind.FETCH:
            which = at, producer.stream
            last[which] = max(last.get(which, 0), devices[at].places[position])
    for (at, stream), place in last.items():
        queue = devices[at].queues[stream]
        while place >= 0 and queue.ends[place] > free:
            if queue.is_fetch[place]:
                yield int(queue.starts[place]), int(queue.ends[place])
            place -= 1


def _producers(number: int, step: Step) -> Iterator[_At]:
    """Steps of this device and of others that ``step`` waited for; tiles in a store were written, not fetched."""
    yield from ((number, earlier) for earlier in step.waits)
    yield from ((key.coords[0], key.coords[1]) for key in step.awaits if key.name == STEP)


def _covered_ns(spans: Sequence[_Times], begin: int, end: int) -> int:
    """Nanoseconds of ``[begin, end]`` that the union of ``spans`` covers."""
    all_spans = np.clip(np.concatenate([*spans, np.empty((0, 2), np.int64)]), begin, end)
    if not len(all_spans):
        return 0
    starts, ends = all_spans[np.argsort(all_spans[:, 0], kind="stable")].T
    reached = np.maximum.accumulate(ends)
    new = ends - np.maximum(starts, np.concatenate(([begin], reached[:-1])))
    return int(np.maximum(new, 0).sum())
