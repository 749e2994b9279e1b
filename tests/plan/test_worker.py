"""The worker's state machine survives any order of worker events, and keeps its promises in all of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ooc_chol.errors import ScheduleError
from tests.inside.dense import (
    IN_FLIGHT_SECONDS,
    POLICIES,
    REPORT_SECONDS,
    STEP_SECONDS,
    Await,
    BlockReady,
    Drain,
    Drained,
    Enqueue,
    Finish,
    Pause,
    Program,
    Resume,
    Start,
    StepDone,
    Stop,
    Window,
    WorkerEvent,
    WorkerState,
    WorkerStatus,
    make_window,
)
from tests.inside.interfaces import BlockKey
from tests.inside.tasks import StepKind, TaskKind, flops, uniform_panels
from tests.plan.problems import PlanningProblem, make_schedule, planning_problems, task_of


def shared_program(policy: str = "planned") -> Program:
    """The program of the second of two devices, which waits for the first again and again."""
    return PlanningProblem(make_schedule(6, uniform_panels(6, 2, 1), (0, 1, 0, 1, 0, 1)), POLICIES[policy], 8, 1).programs()[1]


def alone_program() -> Program:
    """The program of an only device with little memory: it fetches again what it wrote."""
    return PlanningProblem(make_schedule(7, uniform_panels(7, 1, 1)), POLICIES["planned"], 5, 1).programs()[0]


@st.composite
def windows(draw: st.DrawFn, program: Program) -> Window:
    """Any weights, any watched compute steps, any limit: not only those that ``make_window`` gives."""
    chance, share = random.Random(draw(st.integers(0, 2**32 - 1))), draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    weights = tuple(chance.choice([0.0, 0.5, 1.0, 3.0]) for _ in program.steps)
    computes = [at for at, step in enumerate(program.steps) if step.kind is StepKind.COMPUTE]
    watched = frozenset(at for at in computes if chance.random() < share)
    return Window(weights, watched, draw(st.sampled_from([0.1, 1.0, 4.0, 1e9])))


#: Programs that fetch again and again what they, or others, have written.
WAITING_PROGRAMS = [shared_program("planned"), shared_program("sync"), alone_program()]


@st.composite
def programs_and_windows(draw: st.DrawFn) -> tuple[Program, Window]:
    """A program of one device, and a window for it."""
    any_program = planning_problems(most_rows=4).flatmap(lambda problem: st.sampled_from(problem.programs()))
    program = draw(st.sampled_from(WAITING_PROGRAMS) | any_program)
    return program, draw(windows(program))


class WorkerMachine(RuleBasedStateMachine):
    """A device and its neighbours, as a model: completes and reports in any order, says blocks ready when it likes."""

    @initialize(what=programs_and_windows(), turn=st.sampled_from([1, 3, 48]))
    def start(self, what: tuple[Program, Window], turn: int) -> None:
        self.program, self.window = what
        self.turn, self.paused = turn, False
        self.state = WorkerState(self.program, self.window, turn)
        self.enqueued: list[int] = []
        self.unreported: set[int] = set()
        self.reported_up_to = -1
        self.awaited: BlockKey | None = None
        self.said_ready: set[BlockKey] = set()
        self.draining = self.drained = self.stopped = False
        self.finished: Finish | None = None
        self.send(Start())

    # what may come

    @precondition(lambda self: self.awaited is not None)
    @rule()
    def block_ready(self) -> None:
        assert self.awaited is not None
        key, self.awaited = self.awaited, None
        self.said_ready.add(key)
        self.send(BlockReady(key))

    @precondition(lambda self: self.unreported)
    @rule(data=st.data())
    def step_done(self, data: st.DataObject) -> None:
        self.report(data.draw(st.sampled_from(sorted(self.unreported))))  # reports may come in any order

    @precondition(lambda self: self.paused)
    @rule()
    def others_had_their_turn(self) -> None:
        self.paused = False
        self.send(Resume())

    @precondition(lambda self: self.draining and not self.drained)
    @rule()
    def streams_drained(self) -> None:
        self.drained = True
        self.send(Drained())

    @rule(chance=st.integers(0, 9))
    def stop(self, chance: int) -> None:
        if chance == 0:
            self.stopped = self.stopped or self.finished is None  # a stop that comes after the end stops nothing
            self.send(Stop())

    # what must follow

    def report(self, position: int) -> None:
        self.unreported.discard(position)
        self.reported_up_to = max(self.reported_up_to, position)
        self.send(StepDone(position))

    def send(self, event: WorkerEvent) -> None:
        was_finished = self.finished is not None
        actions = self.state.handle(event)
        self.state.validate()
        assert self.state.done_up_to == self.reported_up_to or was_finished
        assert not (was_finished and actions), "something follows the end"
        assert sum(isinstance(action, Enqueue) for action in actions) <= self.turn, "others have no turn"
        for action in actions:
            assert self.finished is None, "something follows the end"
            if isinstance(action, Enqueue):
                self.check_enqueue(action)
            elif isinstance(action, Await):
                assert self.awaited is None
                assert action.key == self.program.steps[len(self.enqueued)].block
                self.awaited = action.key
            elif isinstance(action, Pause):
                assert not self.paused
                self.paused = True
            elif isinstance(action, Drain):
                assert not self.draining
                self.draining = True
            else:
                self.finished = action

    def check_enqueue(self, action: Enqueue) -> None:
        position = action.position
        assert position == len(self.enqueued), "steps are enqueued once, in order"
        step = self.program.steps[position]
        assert not step.needs_store or step.block in self.said_ready, "a fetch before its block was said to be ready"
        assert action.watch == (position in self.window.watched)
        assert self.in_flight() < self.window.limit or not self.unreported_ahead(), "the window is overrun"
        self.enqueued.append(position)
        if action.watch:
            self.unreported.add(position)

    def in_flight(self) -> float:
        """Nominal seconds of compute steps that nobody reported, nor a later one."""
        computes = [at for at in self.enqueued[self.reported_up_to + 1 :] if self.program.steps[at].kind is StepKind.COMPUTE]
        return sum(self.window.weights[at] for at in computes)

    def unreported_ahead(self) -> set[int]:
        """Watched steps whose report will open the window."""
        return {at for at in self.unreported if at > self.reported_up_to}

    @invariant()
    def the_end_is_neither_early_nor_missed(self) -> None:
        whole = len(self.enqueued) == len(self.program.steps)
        assert self.draining <= whole
        if self.finished is not None:
            assert self.finished.stopped == self.stopped
            assert self.stopped or (whole and self.drained)
            assert self.state.status is (WorkerStatus.STOPPED if self.stopped else WorkerStatus.DONE)
        else:
            assert not self.stopped
            assert not self.drained

    @invariant()
    def something_will_wake_the_worker(self) -> None:
        will_come = self.awaited is not None or self.paused or self.unreported_ahead() or self.draining
        assert self.finished is not None or will_come

    def teardown(self) -> None:
        """From any state on: when everything that was asked for comes, the worker ends."""
        if not hasattr(self, "state"):
            return
        while self.finished is None:
            if self.awaited is not None:
                self.block_ready()
            elif self.paused:
                self.others_had_their_turn()
            elif self.unreported:
                self.report(min(self.unreported))
            else:
                self.streams_drained()
            self.the_end_is_neither_early_nor_missed()
        for late in (*map(StepDone, sorted(self.unreported)), Drained(), Stop()):
            assert self.state.handle(late) == []  # completions may still trickle in


TestWorkerState = WorkerMachine.TestCase
TestWorkerState.settings = settings(max_examples=60, stateful_step_count=50)


@given(data=st.data(), cut=st.integers(0, 10**6))
def test_a_stop_ends_the_worker_wherever_it_stands(data, cut):
    program, window = data.draw(programs_and_windows())
    state = WorkerState(program, window)
    pending: list[WorkerEvent] = [Start()]
    for _ in range(cut % (2 * len(program.steps) + 1)):
        if not pending:
            break
        for action in state.handle(pending.pop(0)):
            if isinstance(action, Await):
                pending.append(BlockReady(action.key))
            elif isinstance(action, Enqueue) and action.watch:
                pending.append(StepDone(action.position))
            elif isinstance(action, Pause):
                pending.append(Resume())
            elif isinstance(action, Drain):
                pending.append(Drained())
    was_done = state.status is WorkerStatus.DONE
    assert state.handle(Stop()) == ([] if was_done else [Finish(stopped=True)])
    assert state.handle(Stop()) == []
    assert all(state.handle(event) == [] for event in pending)
    state.validate()


# events that cannot come


def test_a_completion_of_what_was_never_enqueued_is_an_error():
    program = shared_program()
    state = WorkerState(program, make_window(program, 1e9))
    state.handle(Start())
    assert 0 < state.next < len(program.steps)  # it waits for the first device
    with pytest.raises(ScheduleError, match=rf"step {state.next} is reported complete but was not enqueued to be watched"):
        state.handle(StepDone(state.next))
    unwatched = next(at for at, step in enumerate(program.steps) if step.kind is StepKind.FETCH)
    with pytest.raises(ScheduleError, match="was not enqueued to be watched"):
        state.handle(StepDone(unwatched))


def test_streams_cannot_be_drained_before_all_is_enqueued():
    program = shared_program()
    state = WorkerState(program, make_window(program, 1e9))
    state.handle(Start())
    with pytest.raises(ScheduleError, match="drained before all steps are enqueued"):
        state.handle(Drained())


def test_validate_finds_a_window_that_does_not_add_up():
    program = shared_program()
    state = WorkerState(program, make_window(program, 1e9))
    state.handle(Start())
    state.validate()
    state._in_flight += 1.0
    with pytest.raises(ScheduleError, match="are counted in flight, but the outstanding steps weigh"):
        state.validate()


# the window of a program


@given(problem=planning_problems(), rate=st.sampled_from([1e3, 1e5, 1e12]))
def test_every_pivot_and_every_so_much_work_is_reported(problem, rate):
    grid = problem.schedule.grid
    for program in problem.programs():
        window = make_window(program, rate)
        assert window.limit == IN_FLIGHT_SECONDS
        since = 0.0
        for position, step in enumerate(program.steps):
            if (task := task_of(step)) is None:
                assert position not in window.watched
                assert window.weights[position] == STEP_SECONDS
                continue
            assert window.weights[position] == max(STEP_SECONDS, flops(task, grid) / rate)
            since += window.weights[position]
            assert position in window.watched or since < REPORT_SECONDS
            assert position in window.watched or task.kind is not TaskKind.POTRF
            if position in window.watched:
                since = 0.0


def test_a_hundred_milliseconds_stay_enqueued():
    # The window closes at 120 ms and opens at the first report, 10 ms of work (or one step) later.
    program = PlanningProblem(make_schedule(12, uniform_panels(12, 1, 1)), POLICIES["planned"], 30, 4).programs()[0]
    window = make_window(program, 128 / 0.004)  # a GEMM takes 4 ms
    state = WorkerState(program, window)
    watched, ahead, event = [], [], Start()
    while state.next < len(program.steps):
        actions = state.handle(event)
        watched += [action.position for action in actions if isinstance(action, Enqueue) and action.watch]
        if actions and isinstance(actions[-1], Await):
            event = BlockReady(actions[-1].key)  # at once: the device wrote the block itself
        elif actions and isinstance(actions[-1], Pause):
            event = Resume()  # at once: there is no other device
        else:
            event = StepDone(watched.pop(0))
            behind = range(event.position + 1, state.next)
            ahead.append(sum(window.weights[at] for at in behind if program.steps[at].kind is StepKind.COMPUTE))
    assert len(ahead) > 5
    assert min(ahead) >= 0.1
