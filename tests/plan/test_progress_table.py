"""The progress table: nobody is told too early, everybody is told once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.errors import ScheduleError
from tests.inside.dense import Progress, ProgressTable
from tests.inside.interfaces import AbstractEvent, BlockKey

KEY = BlockKey("L", (2, 1), 2)
OTHER = BlockKey("L", (2, 1), 1)


class NamedEvent(AbstractEvent):
    """An event that only has to be told from others."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Complete already."""

    def time_ns(self) -> int:
        return 0


def test_a_value_is_recorded_then_durable():
    table, event = ProgressTable(), NamedEvent()
    assert table.progress(KEY) is Progress.ABSENT
    table.record(KEY, event)
    assert table.progress(KEY) is Progress.RECORDED
    assert table.event(KEY) is event
    table.mark_durable(KEY)
    assert table.progress(KEY) is Progress.DURABLE
    assert table.event(KEY) is event
    assert table.progress(OTHER) is Progress.ABSENT  # an older value of the tile is another value


def test_a_value_may_be_durable_before_its_event_is_noted():
    # 1. the worker enqueues the write; 2. the device completes it and says so; 3. the worker notes the event.
    table, told = ProgressTable(), []
    assert not table.when(KEY, Progress.RECORDED, lambda: told.append("recorded"))
    assert not table.when(KEY, Progress.DURABLE, lambda: told.append("durable"))
    table.mark_durable(KEY)
    assert told == ["durable"]  # a stream could not wait on the event yet
    assert not table.when(KEY, Progress.RECORDED, lambda: told.append("recorded, asked between"))
    assert table.when(KEY, Progress.DURABLE, lambda: told.append("never"))
    table.record(KEY, NamedEvent())
    assert told == ["durable", "recorded", "recorded, asked between"]
    assert table.progress(KEY) is Progress.DURABLE  # and not RECORDED again


def test_waiting_on_an_event_that_is_not_recorded_is_an_error():
    table = ProgressTable()
    with pytest.raises(ScheduleError, match=r"L\(2, 1\)v2 is not recorded yet; waiting on it would be a no-op"):
        table.event(KEY)
    table.mark_durable(KEY)
    with pytest.raises(ScheduleError, match="not recorded yet"):
        table.event(KEY)


def test_a_value_is_written_once():
    table = ProgressTable()
    table.record(KEY, NamedEvent())
    table.record(OTHER, NamedEvent())
    for _ in range(2):
        with pytest.raises(ScheduleError, match=r"L\(2, 1\)v2 is written twice"):
            table.record(KEY, NamedEvent())
        table.mark_durable(KEY)


@given(st.lists(st.sampled_from(["record", "durable", "ask recorded", "ask durable"]), max_size=12))
def test_every_question_is_answered_exactly_once_and_not_too_early(operations):
    table, recorded, durable = ProgressTable(), False, False
    answers: Counter[int] = Counter()
    asked: dict[int, Progress] = {}
    for number, operation in enumerate(operations):
        if operation == "record" and not recorded:
            recorded = True
            table.record(KEY, NamedEvent())
        elif operation == "durable":
            durable = True
            table.mark_durable(KEY)
        elif operation.startswith("ask"):
            asked[number] = Progress.RECORDED if operation.endswith("recorded") else Progress.DURABLE
            answers[number] += table.when(KEY, asked[number], lambda number=number: answers.update([number]))
        for question, level in asked.items():
            assert answers[question] == (recorded if level is Progress.RECORDED else durable)
        expected = Progress.DURABLE if durable else Progress.RECORDED if recorded else Progress.ABSENT
        assert table.progress(KEY) is expected


def test_a_callback_may_ask_again():
    table, told = ProgressTable(), []
    table.when(KEY, Progress.RECORDED, lambda: told.append(table.when(KEY, Progress.RECORDED, lambda: told.append("never"))))
    table.record(KEY, NamedEvent())
    assert told == [True]


class YieldingKey(BlockKey):
    """A key that lets other threads run whenever it is looked up: in the middle of whatever is not locked."""

    def __hash__(self) -> int:
        time.sleep(0)
        return super().__hash__()

    @classmethod
    def numbered(cls, number: int) -> YieldingKey:
        return cls("L", (number, 0), 1)


def run_in_rounds(rounds: int, *bodies: Callable[[int], None]) -> None:
    """Call every body with each round's number, all bodies of a round at once, each on its own thread; raise the first error."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(bodies))

    def repeat(body: Callable[[int], None]) -> None:
        try:
            for number in range(rounds):
                barrier.wait(timeout=10)
                body(number)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=repeat, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_questions_from_many_threads_are_answered_exactly_once():
    table, rounds, readers = ProgressTable(), 200, 2
    lock = threading.Lock()
    answers: Counter[tuple[int, BlockKey, Progress]] = Counter()

    def answer(question: tuple[int, BlockKey, Progress]) -> None:
        if question[2] is Progress.RECORDED:
            table.event(question[1])  # raises when told too early
        assert table.progress(question[1]) >= question[2]
        with lock:
            answers[question] += 1

    def ask(reader: int, number: int) -> None:
        for level in (Progress.RECORDED, Progress.DURABLE)[:: 1 if number % 2 else -1]:
            question = (reader, YieldingKey.numbered(number), level)
            if table.when(question[1], level, partial(answer, question)):
                answer(question)

    def record(number: int) -> None:
        table.record(YieldingKey.numbered(number), NamedEvent())

    def mark(number: int) -> None:
        table.mark_durable(YieldingKey.numbered(number))

    run_in_rounds(rounds, record, mark, *[partial(ask, reader) for reader in range(readers)])
    assert set(answers.values()) == {1}
    assert len(answers) == rounds * readers * 2
    assert all(table.progress(YieldingKey.numbered(number)) is Progress.DURABLE for number in range(rounds))


def test_a_value_is_recorded_by_one_thread_only():
    table, refused = ProgressTable(), []

    def record(number: int) -> None:
        try:
            table.record(YieldingKey.numbered(number), NamedEvent())
        except ScheduleError:
            refused.append(number)

    run_in_rounds(100, record, record, record)
    assert sorted(refused) == sorted([*range(100), *range(100)])
