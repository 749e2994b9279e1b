"""One thread feeds several devices in turns, and waits for none of them while another one could go on."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from tests.inside.hardware import HostStream
from tests.inside.runtime import take_turns

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang")]


class Bench:
    """Devices that say which of them is current, a stream of each, and what was done."""

    def __init__(self, stack, count):
        self.done, self.current = [], None
        self.devices = [SimpleNamespace(current=lambda number=number: self._made_current(number)) for number in range(count)]
        self.streams = [HostStream(f"stream {number}") for number in range(count)]
        for stream in self.streams:
            stream.start()
            stack.callback(stream.close)

    @contextmanager
    def _made_current(self, number):
        assert self.current is None
        self.current = number
        try:
            yield
        finally:
            self.current = None

    def piece(self, number):
        """One piece of the work on a device, which is current."""
        assert self.current == number
        self.done.append(number)

    def event(self, number):
        return self.streams[number].record()


@pytest.fixture
def bench():
    with ExitStack() as stack:
        yield lambda count: Bench(stack, count)


def test_pieces_are_enqueued_in_turns_and_all_of_them(bench):
    of = bench(3)

    def work(number):
        for _ in range(number):
            of.piece(number)
            yield None
        of.piece(number)

    take_turns(of.devices, work)
    assert of.done == [0, 1, 2, 1, 2, 2]


@pytest.mark.parametrize("busy", range(3))
def test_a_device_that_is_busy_is_passed_over(bench, busy):
    of, gate = bench(3), threading.Event()

    def work(number):
        if number == busy:
            of.streams[number].enqueue(gate.wait)
        for _ in range(4):
            of.piece(number)
            yield of.event(number)
        if number != busy and of.done.count(number) == 4 and len(of.done) == 9:
            gate.set()  # the others are through: who waited for the busy one would wait for ever

    take_turns(of.devices, work)
    assert of.done[9:] == [busy] * 3
    assert all(of.done.count(number) == 4 for number in range(3))


def test_a_piece_begins_once_what_it_awaits_is_complete(bench):
    of, over = bench(2), []

    def work(number):
        for at in range(50):
            of.streams[number].enqueue(lambda at=at: over.append((number, at)))
            yield of.event(number)
            assert (number, at) in over
            of.piece(number)

    take_turns(of.devices, work)
    assert len(of.done) == len(over) == 100


@pytest.mark.parametrize("count", [1, 2])
def test_the_error_of_what_is_awaited_is_raised(bench, count):
    of = bench(count)

    def broken():
        raise OSError("the cable is out")

    def work(number):
        of.streams[number].enqueue(broken if number == 0 else int)
        yield of.event(number)
        of.piece(number)

    with pytest.raises(OSError, match="the cable is out"):
        take_turns(of.devices, work)
    assert 0 not in of.done and of.current is None


def test_an_error_of_a_piece_ends_all_turns(bench):
    of = bench(2)

    def work(number):
        of.piece(number)
        yield None
        if number == 0:
            raise KeyError("wrong")
        of.piece(number)

    with pytest.raises(KeyError, match="wrong"):
        take_turns(of.devices, work)
    assert of.done == [0, 1] and of.current is None


def test_who_is_held_up_holds_up_no_other(bench):
    """A function runs beside the turns of others, its device current on its thread, and its device's next piece behind it."""
    of, gate, seen = bench(3), threading.Event(), []

    def held(number):
        assert gate.wait(30)
        seen.append((number, threading.current_thread() is threading.main_thread()))

    def work(number):
        for _ in range(3):
            of.piece(number)
            if number == 1 and not seen:
                yield lambda: held(number)
                assert seen
            else:
                yield None
        if number != 1 and of.done.count(0) == of.done.count(2) == 3:
            gate.set()  # the others are through

    of.devices[1].name = "held"
    of.devices[1].current = nullcontext  # current on two threads at once
    of.piece = of.done.append
    take_turns(of.devices, work)
    assert seen == [(1, False)]
    assert of.done[-2:] == [1, 1] and all(of.done.count(number) == 3 for number in range(3))


def test_who_is_alone_is_held_up_by_itself(bench):
    of, seen = bench(1), []

    def work(number):
        yield lambda: seen.append((of.current, threading.current_thread() is threading.main_thread()))
        assert seen

    take_turns(of.devices, work)
    assert seen == [(0, True)]


@pytest.mark.parametrize("count", [1, 2])
def test_the_error_of_a_function_is_raised(bench, count):
    of, after = bench(count), []

    def broken():
        raise OSError("the cable is out")

    def work(number):
        if number == 0:
            yield broken
            after.append(number)
        yield None
        yield None

    for device in of.devices:
        device.name, device.current = "broken", nullcontext
    with pytest.raises(OSError, match="the cable is out"):
        take_turns(of.devices, work)
    assert not after


def test_no_function_is_left_behind_when_turns_end_by_an_error(bench):
    of, gate, over = bench(2), threading.Event(), []

    def slow():
        gate.wait(0.3)
        over.append(True)

    def work(number):
        yield slow if number == 0 else None
        raise KeyError("wrong")

    for device in of.devices:
        device.name, device.current = "slow", nullcontext
    with pytest.raises(KeyError, match="wrong"):
        take_turns(of.devices, work)
    assert over
