"""The host device keeps CUDA's model: ordered streams, recorded events, errors that travel along waits, one bounded arena."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ooc_chol as oc
from tests.builders import host_device, memory_store
from tests.inside.hardware import AbortedError, HostStream, total_host_bytes
from tests.inside.interfaces import AbstractEvent, AbstractStream
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.usefixtures("no_hang")

SECONDS = 10.0


class BoomError(Exception):
    """Raised by an operation."""


@pytest.fixture
def device():
    opened = host_device()
    yield opened
    opened.close()


@pytest.fixture
def gate():
    """An operation that runs until the test opens it; opened at the end in any case."""
    opened = threading.Event()
    yield opened
    opened.set()


def hold_back(stream: HostStream, gate: threading.Event) -> threading.Event:
    """Enqueue an operation that waits for ``gate``; the result is set once it has begun."""
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        assert gate.wait(SECONDS)

    stream.enqueue(wait)
    return begun


def raise_boom(error: BaseException):
    """An operation that raises ``error``."""

    def operation() -> None:
        raise error

    return operation


# order


def test_a_stream_runs_its_operations_in_order_on_one_thread_of_its_name(device):
    stream, seen = device.create_stream("copy-in"), []
    for number in range(1000):
        stream.enqueue(lambda number=number: seen.append((number, threading.current_thread().name)))
    stream.synchronize()
    assert [number for number, _ in seen] == list(range(1000))
    assert {name for _, name in seen} == {"ooc_chol host:0 copy-in"}


def test_enqueueing_waiting_and_recording_never_block(device, gate):
    first, second = device.create_stream("a"), device.create_stream("b")
    assert hold_back(first, gate).wait(SECONDS)
    event = first.record()
    for _ in range(1000):
        second.wait(event)
        second.enqueue(lambda: None)
        second.record()
    assert not event.query()  # the gate is shut: whoever had waited for it would wait still


def test_streams_run_beside_each_other(device, gate):
    first, second = device.create_stream("a"), device.create_stream("b")
    hold_back(first, gate)
    second.enqueue(gate.set)
    first.synchronize()  # ends only because the second stream ran meanwhile


def test_a_wait_orders_two_streams(device, gate):
    first, second, seen = device.create_stream("a"), device.create_stream("b"), []
    begun = hold_back(first, gate)
    first.enqueue(lambda: seen.append("first"))
    second.enqueue(lambda: seen.append("before"))
    second.wait(first.record())
    second.enqueue(lambda: seen.append("second"))
    assert begun.wait(SECONDS)
    gate.set()
    second.synchronize()
    assert seen.index("first") < seen.index("second") == 2


@settings(max_examples=30)
@given(choices=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40))
def test_any_pattern_of_waits_keeps_the_order_of_its_events(choices):
    device = host_device()
    try:
        streams = [device.create_stream(str(number)) for number in range(3)]
        finished, after = [], []
        for operation, (own, other) in enumerate(choices):
            streams[own].wait(streams[other].record())
            earlier = [past for past, (stream, _) in enumerate(choices[:operation]) if stream in (own, other)]
            after.append(earlier)
            streams[own].enqueue(lambda operation=operation: finished.append(operation))
        for stream in streams:
            stream.synchronize()
    finally:
        device.close()
    place = {operation: position for position, operation in enumerate(finished)}
    assert len(place) == len(choices)
    assert all(place[past] < place[operation] for operation, earlier in enumerate(after) for past in earlier)


# events


def test_an_event_is_complete_only_after_all_work_before_it(device, gate):
    stream = device.create_stream("a")
    early = stream.record()
    early.synchronize()
    assert hold_back(stream, gate).wait(SECONDS)
    late = stream.record()
    stream.enqueue(lambda: None)
    assert early.query() and not late.query()
    gate.set()
    late.synchronize()
    assert late.query()


def test_an_event_knows_when_it_completed(device):
    stream = device.create_stream("a")
    before = time.perf_counter_ns()
    first = stream.record()
    stream.enqueue(lambda: time.sleep(0.02))
    second = stream.record()
    second.synchronize()
    assert before <= first.time_ns() <= second.time_ns() <= time.perf_counter_ns()
    assert second.time_ns() - first.time_ns() >= 20_000_000


def test_an_event_that_is_complete_holds_nothing_back(device):
    first, second = device.create_stream("a"), device.create_stream("b")
    event = first.record()
    event.synchronize()
    for _ in range(3):
        second.wait(event)
    second.synchronize()


def test_many_threads_may_wait_for_one_event(device, gate):
    stream = device.create_stream("a")
    hold_back(stream, gate)
    event = stream.record()
    others = [device.create_stream(str(number)) for number in range(5)]
    for other in others:
        other.wait(event)
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(event.synchronize) for _ in range(5)]
        gate.set()
        assert [future.result(SECONDS) for future in waiting] == [None] * 5
    for other in others:
        other.synchronize()


def test_notify_calls_back_from_the_streams_thread_or_at_once(device, gate):
    stream, calls = device.create_stream("a"), []

    def call(error: BaseException | None) -> None:
        calls.append((error, threading.current_thread().name))

    assert hold_back(stream, gate).wait(SECONDS)
    event = stream.record()
    device.notify(event, call)
    device.notify(event, call)
    assert calls == []
    gate.set()
    stream.synchronize()
    assert calls == [(None, "ooc_chol host:0 a")] * 2
    device.notify(event, call)
    assert calls[2:] == [(None, threading.current_thread().name)]


def test_a_callback_comes_exactly_once_when_it_races_with_completion(device):
    stream, calls = device.create_stream("a"), []
    for number in range(2000):
        device.notify(stream.record(), lambda error, number=number: calls.append(number))
    stream.synchronize()
    assert sorted(calls) == list(range(2000))


# errors


def test_after_an_error_a_stream_runs_nothing_more(device):
    stream, seen, error = device.create_stream("a"), [], BoomError("first")
    before = stream.record()
    stream.enqueue(raise_boom(error))
    behind = stream.record()
    stream.enqueue(lambda: seen.append("ran"))
    stream.enqueue(raise_boom(BoomError("second")))
    with pytest.raises(BoomError) as caught:
        stream.synchronize()
    assert caught.value is error and seen == []
    before.synchronize()
    with pytest.raises(BoomError):
        behind.synchronize()
    assert behind.query(), "an event behind an error is complete, with the error"


def test_an_error_travels_along_waits_and_callbacks(device):
    streams = [device.create_stream(str(number)) for number in range(4)]
    error, seen, calls = BoomError(), [], []
    streams[0].enqueue(raise_boom(error))
    for first, second in itertools.pairwise(streams):
        second.wait(first.record())
        second.enqueue(lambda: seen.append("ran"))
    last = streams[-1].record()
    device.notify(last, calls.append)
    for stream in streams:
        with pytest.raises(BoomError) as caught:
            stream.synchronize()
        assert caught.value is error
    device.notify(last, calls.append)
    assert calls == [error, error] and seen == []


def test_streams_that_do_not_wait_for_the_failed_one_go_on(device):
    first, second, seen = device.create_stream("a"), device.create_stream("b"), []
    before = first.record()
    first.enqueue(raise_boom(BoomError()))
    second.wait(before)
    second.enqueue(lambda: seen.append("ran"))
    second.synchronize()
    assert seen == ["ran"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), MemoryError(), GeneratorExit()])
def test_no_kind_of_error_ends_a_stream_thread(device, error):
    stream = device.create_stream("a")
    stream.enqueue(raise_boom(error))
    with pytest.raises(type(error)) as caught:
        stream.synchronize()
    assert caught.value is error


def test_a_tier_that_fails_is_the_error_of_its_stream(device):
    grid = TileGrid(4, 4)
    store = memory_store(grid)
    store.close()
    stream = device.create_stream("a")
    device.copy_in(stream, store, (0, 0), np.empty((4, 4)))
    with pytest.raises(oc.errors.TierError, match="closed"):
        stream.synchronize()


# abort and close


def test_abort_ends_after_the_current_operation(device, gate):
    stream, other, seen, calls = device.create_stream("a"), device.create_stream("b"), [], []
    assert hold_back(stream, gate).wait(SECONDS)
    stream.enqueue(lambda: seen.append("ran"))
    behind = stream.record()
    other.wait(behind)
    device.notify(behind, calls.append)
    device.abort()
    device.abort()
    gate.set()
    with pytest.raises(AbortedError, match="stopped"):
        behind.synchronize()
    with pytest.raises(AbortedError):
        other.synchronize()
    assert seen == [] and [type(call) for call in calls] == [AbortedError]


def test_abort_keeps_the_error_that_came_first(device):
    stream = device.create_stream("a")
    stream.enqueue(raise_boom(BoomError()))
    failed = stream.record()
    failed.wait()
    device.abort()
    with pytest.raises(BoomError):
        stream.synchronize()


def test_close_waits_for_running_operations_and_may_be_called_twice(gate):
    device = host_device("host:1")
    streams, seen = [device.create_stream(str(number)) for number in range(3)], []
    assert hold_back(streams[0], gate).wait(SECONDS)
    streams[0].enqueue(lambda: seen.append("ran"))
    threading.Timer(0.05, gate.set).start()
    device.close()
    assert seen == ["ran"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ooc_chol host:1")]
    device.close()


def test_an_idle_stream_keeps_nothing_alive(device):
    class Large:
        """What an operation refers to."""

    stream, ran = device.create_stream("a"), threading.Event()
    stream.enqueue(lambda large=Large(): ran.set())  # noqa: B008 - owned by the operation alone
    assert ran.wait(SECONDS)
    deadline = time.monotonic() + 2.0
    while left := [found for found in gc.get_objects() if type(found) is Large]:
        assert time.monotonic() < deadline, "the operation that ran last is still there"
        del left
        time.sleep(0.01)


# copies, generation, arena


def test_copies_and_generation_are_operations_of_their_stream(device):
    grid, stream = TileGrid(10, 4), device.create_stream("a")
    store, tile, calls = memory_store(grid), np.full((2, 4), 7.0), []
    for index in grid.tiles():
        store.write(index, np.zeros(grid.shape(*index)))

    def fill(rows, cols, out, where):
        calls.append((rows, cols, where))
        out[...] = np.add.outer(np.asarray(rows), np.asarray(cols))

    other = np.empty((2, 4))
    device.copy_out(stream, tile, store, (2, 1))
    device.copy_in(stream, store, (2, 1), other)
    device.generate(stream, fill, range(8, 10), range(4, 8), tile)
    stream.synchronize()
    assert np.array_equal(other, np.full((2, 4), 7.0))
    assert calls == [(range(8, 10), range(4, 8), stream)]
    assert np.array_equal(tile, [[12, 13, 14, 15], [13, 14, 15, 16]])


def test_the_arena_is_equal_slots_that_do_not_overlap(device):
    arena = device.allocate(5, 8192, 32)
    assert (arena.n_slots, arena.slot_bytes) == (5, 8192)
    tiles = [arena.tile(slot, (32, 32)) for slot in range(5)]
    for slot, tile in enumerate(tiles):
        assert tile.flags.carray and tile.dtype == np.float64
        assert tile.ctypes.data % 4096 == 0
        tile.fill(slot)
    assert [set(tile.ravel()) for tile in tiles] == [{0.0}, {1.0}, {2.0}, {3.0}, {4.0}]
    short = arena.tile(3, (3, 5))
    assert short.shape == (3, 5) and np.all(short == 3.0) and short.ctypes.data == tiles[3].ctypes.data


def anonymous_bytes() -> int:
    """Anonymous resident memory of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["RssAnon"].split()[0]) * 1024


def test_close_gives_the_arena_back_while_its_tiles_are_still_in_sight():
    device = host_device()
    nbytes = 64 << 20
    tile = device.allocate(1, nbytes, 4096).tile(0, (2048, 4096))
    tile.fill(1.0)
    held = anonymous_bytes()
    device.close()
    assert anonymous_bytes() < held - 0.9 * nbytes
    assert not tile.any()


def test_an_arena_that_the_machine_cannot_hold_is_refused(device):
    with pytest.raises(oc.BudgetError, match="give a smaller memory_budget") as caught:
        device.allocate(2, total_host_bytes(), 1)
    assert caught.value.needed_bytes == 2 * total_host_bytes()
    assert 0 < caught.value.budget_bytes <= total_host_bytes()
    assert "host:0" in str(caught.value)


def test_foreign_streams_and_events_are_refused(device):
    class Stream(AbstractStream):
        def wait(self, event): ...
        def record(self): ...
        def synchronize(self): ...

    class Event(AbstractEvent):
        def query(self): ...
        def synchronize(self): ...
        def time_ns(self): ...

    store = memory_store(TileGrid(1, 1))
    with pytest.raises(TypeError, match="Stream is not a stream of the host device"):
        device.copy_in(Stream(), store, (0, 0), np.empty((1, 1)))
    with pytest.raises(TypeError, match="Event is not an event of the host device"):
        device.notify(Event(), lambda error: None)
