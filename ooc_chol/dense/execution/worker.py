"""State and decisions of one device's worker: a state machine without I/O, threads or clocks.

Worker events go in, actions come out; :mod:`ooc_chol.dense.execution.executor` performs them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from ooc_chol.dense.programs.steps import Program
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockKey
from ooc_chol.tasks.operations import StepKind


@dataclass(frozen=True, slots=True)
class Start:
    """The run begins: the first steps may be enqueued."""


@dataclass(frozen=True, slots=True)
class BlockReady:
    """A value that the worker asked for may be read now."""

    key: BlockKey


@dataclass(frozen=True, slots=True)
class StepDone:
    """A watched step is complete, and so is everything before it on its stream."""

    position: int


@dataclass(frozen=True, slots=True)
class Drained:
    """All streams are empty."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Other devices have had their turn since :class:`Pause`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The run ends early: an error here or on another device."""


WorkerEvent: TypeAlias = Start | BlockReady | StepDone | Drained | Resume | Stop


class Enqueue(NamedTuple):
    """Enqueue a step; with ``watch``, report its completion as :class:`StepDone`. One is made for every step of a run."""

    position: int
    watch: bool


@dataclass(frozen=True, slots=True)
class Await:
    """Report as :class:`BlockReady` when a value may be read."""

    key: BlockKey


@dataclass(frozen=True, slots=True)
class Pause:
    """More could be enqueued: let other devices have their turn, then report :class:`Resume`."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Report as :class:`Drained` when all streams are empty."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The worker is done; nothing follows."""

    stopped: bool


Action: TypeAlias = Enqueue | Await | Pause | Drain | Finish


class WorkerStatus(Enum):
    """RUNNING: steps remain to be enqueued. DRAINING: all are enqueued. DONE, STOPPED: nothing follows."""

    RUNNING = "running"
    DRAINING = "draining"
    DONE = "done"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Window:
    """How much may be enqueued and not yet complete."""

    weights: tuple[float, ...]  #: Seconds, in nominal terms, of each step
    #: Compute steps whose completion is reported: every failed pivot is seen at one, and every so much work
    watched: frozenset[int]
    limit: float  #: Seconds that may be in flight; enqueueing goes on below it


#: Seconds of work, at the device's nominal rate, that stay enqueued, and between two reports. More would fill the queues of
#: CUDA's streams, and a full one blocks the thread that enqueues for all.
IN_FLIGHT_SECONDS = 0.12
REPORT_SECONDS = 0.01
#: Steps that one device enqueues before others have their turn: a few milliseconds of the thread that enqueues for all.
TURN = 48
#: Least nominal seconds of any step, so that tiny tiles do not fill queues without bound.
STEP_SECONDS = 2e-5


def make_window(program: Program, flops_per_second: float) -> Window:
    """The window of ``program``: weights from flops at the nominal rate, reports at pivots and about every 10 ms of work."""
    weights, watched, since = [], set(), 0.0
    for position, step in enumerate(program.steps):
        weight = STEP_SECONDS
        if step.kind is StepKind.COMPUTE:
            weight = max(weight, step.flops / flops_per_second)
            since += weight
            if since >= REPORT_SECONDS or step.is_pivot:
                watched.add(position)
                since = 0.0
        weights.append(weight)
    return Window(tuple(weights), frozenset(watched), IN_FLIGHT_SECONDS)


class WorkerState:
    """Enqueues a program in order, never more than the window ahead, never a read before its value is ready."""

    def __init__(self, program: Program, window: Window, turn: int = TURN) -> None:
        self._program = program
        self._window = window
        self.status = WorkerStatus.RUNNING
        self.next = 0
        self.done_up_to = -1
        self._in_flight = 0.0
        self._outstanding: deque[int] = deque()
        self._ready: set[BlockKey] = set()
        self._asked: BlockKey | None = None
        self._draining = False
        self._paused = False
        self._turn = turn

    def handle(self, event: WorkerEvent) -> list[Action]:
        """Take one worker event; return what to do now."""
        if self.status in (WorkerStatus.DONE, WorkerStatus.STOPPED):
            return []  # completions may still trickle in
        if isinstance(event, Stop):
            self.status = WorkerStatus.STOPPED
            return [Finish(stopped=True)]
        if isinstance(event, Drained):
            return self._finish()
        if isinstance(event, StepDone):
            self._complete(event.position)
        elif isinstance(event, BlockReady):
            self._ready.add(event.key)
            self._asked = None
        elif isinstance(event, Resume):
            self._paused = False
        return self._advance()

    def _complete(self, position: int) -> None:
        """Everything up to a watched compute step is complete; reports may come in any order."""
        if position >= self.next or position not in self._window.watched:
            raise ScheduleError(f"step {position} is reported complete but was not enqueued to be watched")
        self.done_up_to = max(self.done_up_to, position)
        while self._outstanding and self._outstanding[0] <= self.done_up_to:
            self._in_flight -= self._window.weights[self._outstanding.popleft()]

    def _advance(self) -> list[Action]:
        """Enqueue what the window, the progress of other blocks and the turns of other devices allow."""
        actions: list[Action] = []
        if self._paused:
            return actions
        steps, limit, watched = self._program.steps, self._window.limit, self._window.watched
        weights, turn = self._window.weights, self.next + self._turn
        for position in range(self.next, len(steps)):
            if position == turn:
                self._paused = True
                return [*actions, Pause()]
            step = steps[position]
            if self._in_flight >= limit and self._awaits_report():
                return actions
            if step.awaits:
                missing = next((key for key in step.awaits if key not in self._ready), None)
                if missing is not None:
                    if self._asked is None:
                        self._asked = missing
                        actions.append(Await(missing))
                    return actions
                self._ready.clear()
            if step.kind is StepKind.COMPUTE:
                self._outstanding.append(position)
                self._in_flight += weights[position]
            actions.append(Enqueue(position, position in watched))
            self.next = position + 1
        if not self._draining:
            self._draining = True
            self.status = WorkerStatus.DRAINING
            actions.append(Drain())
        return actions

    def _awaits_report(self) -> bool:
        """Tell whether some enqueued step will be reported: the window may only be closed when something can open it."""
        return any(position in self._window.watched for position in self._outstanding)

    def _finish(self) -> list[Action]:
        """All streams are empty after the last step."""
        if self.status is not WorkerStatus.DRAINING:
            raise ScheduleError("the streams are drained before all steps are enqueued")
        self.status = WorkerStatus.DONE
        return [Finish(stopped=False)]

    def validate(self) -> None:
        """Check the invariants; used by tests after every event."""
        expected = sum(self._window.weights[position] for position in self._outstanding)
        if abs(expected - self._in_flight) > 1e-9 * max(1.0, expected):
            raise ScheduleError(f"{self._in_flight} s are counted in flight, but the outstanding steps weigh {expected} s")
        if any(position <= self.done_up_to or position >= self.next for position in self._outstanding):
            raise ScheduleError("an outstanding step is complete already, or not enqueued")
        if self._asked is not None and (
            self.next >= len(self._program.steps) or self._asked not in self._program.steps[self.next].awaits
        ):
            raise ScheduleError(f"the worker waits for {self._asked}, which its next step does not read")
