"""Interrupts: at any moment of any call one suffices, nothing of ours is left, and the process ends."""

from __future__ import annotations

import _thread
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import host_device
from tests.host.runs import ENVIRONMENT
from tests.inside.hardware import AbortedError, HostEvent
from tests.inside.process import ThreadTeam

pytestmark = pytest.mark.usefixtures("no_hang")

ROOT = Path(oc.__file__).parents[1]
#: Seconds after which a process that should end hangs.
HANG = 120
N, NB = 60, 20
A = np.exp(-np.abs(np.subtract.outer(np.arange(N), np.arange(N))) / 10.0) + 0.1 * np.eye(N)


@cache
def pythons() -> list[str]:
    """This interpreter, and others on the path that have what ooc_chol needs."""
    needs = "import numpy, scipy, ml_dtypes, perfetto, tqdm, threadpoolctl, xxhash"
    own = f"python3.{sys.version_info.minor}"
    there = [shutil.which(f"python3.{minor}") for minor in range(11, 20) if f"python3.{minor}" != own]
    can = [
        name for name in there if name and subprocess.run([name, "-c", needs], capture_output=True, check=False).returncode == 0
    ]
    return [sys.executable, *can]


@pytest.mark.parametrize("mode", ["fp64", "residue", "mixed", "escalating"])
@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_an_interrupt_at_any_moment_leaves_nothing_and_the_process_ends(mode, tmp_path):
    for number, python in enumerate(pythons()):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = [python, "-m", "tests.host.interrupts", mode, str(folder)]
        environment = {**ENVIRONMENT, "OPENBLAS_NUM_THREADS": "2"}  # a team of two, and two threads a call outside of runs
        run = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
        *moments, again = [line.split(": ", 1) for line in run.stdout.splitlines()]
        assert [(where, end) for where, end in moments if end not in ("right", "not reached")] == [], run.stderr
        assert sum(end == "right" for _, end in moments) >= 20 and again == ["again", "right"]
        assert run.returncode == -signal.SIGINT and run.stderr.rstrip().endswith("KeyboardInterrupt"), run.stderr
        assert sorted(path.name for path in folder.iterdir()) == ["L.factor"]  # the complete one of the call before


def test_a_thread_that_an_interrupt_found_without_work_ends_with_its_device():
    """1. The thread of a stream looks for work, 2. an interrupt of who starts it ends the stream, 3. the device closes."""
    device = host_device("host:5")
    stream = device.create_stream("a")
    stream.synchronize()
    stream.end()
    device.close()
    assert not stream.thread.is_alive()


def press() -> None:
    """Ctrl-C: a signal that wakes the main thread."""
    os.kill(os.getpid(), signal.SIGINT)


class Blocking:
    """A tile function that at one call interrupts the main thread and stays until it is let go."""

    def __init__(self, at: int, interrupt: Callable[[], None] = press) -> None:
        self.calls, self.at, self.interrupt = 0, at, interrupt
        self.gate, self.main = threading.Event(), threading.main_thread()
        self.thread: threading.Thread | None = None

    def __call__(self, rows, cols, out, stream):
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]
        if threading.current_thread() is self.main:
            return
        self.calls += 1
        if self.calls == self.at:
            self.thread = threading.current_thread()
            self.interrupt()
            self.gate.wait(100)

    def let_go(self) -> None:
        """Return, and see the thread end."""
        self.gate.set()
        assert self.thread is not None
        self.thread.join(20)
        assert not self.thread.is_alive()


def factored(function, **options) -> bytes:
    """The bytes of the factor."""
    with oc.cholesky(oc.from_function(N, function), **{"tile_size": NB, "devices": "host:0", **options}) as factor:
        return np.asarray(factor).tobytes()


@pytest.mark.parametrize(
    ("at", "options"),
    [
        (1, {"plan": None}),  # at the earliest, the call by which the function's rate is measured
        (5, {}),
        (4, {"devices": 3}),
        (4, {"fp64": "residue", "tile_size": 16}),
        (2, {"precision_threshold": 1e-4}),  # the pass over A for its norms
        (9, {"precision_threshold": 1e-4}),  # the run
    ],
)
def test_one_interrupt_suffices_though_a_tile_function_blocks(at, options, tmp_path):
    right, blocking = factored(Blocking(0), **options), Blocking(at)
    before = set(threading.enumerate())
    try:
        with pytest.raises(KeyboardInterrupt):
            factored(blocking, store=tmp_path / "L", **options)
        assert set(threading.enumerate()) - before <= {blocking.thread}
        assert blocking.thread.daemon, "it would keep the process from ending"
        assert list(tmp_path.iterdir()) == []
        assert factored(Blocking(0), store=tmp_path / "L", **options) == right
    finally:
        blocking.let_go()
    assert factored(blocking, **options) == right


def test_one_interrupt_suffices_in_products_and_in_refinement_though_a_tile_function_blocks():
    factor = oc.cholesky(A, precision_threshold=1e-3, tile_size=NB, devices="host:0")
    calls = {
        "symm": lambda source: oc.symm(source, np.ones(source.n), devices="host:0"),
        "refine": lambda source: factor.solve(np.ones(N), refine=True, a=source),
    }
    for name, call in calls.items():
        before, blocking = set(threading.enumerate()), Blocking(1)
        with pytest.raises(KeyboardInterrupt):
            call(oc.from_function(1200 if name == "symm" else N, blocking if name == "refine" else wide(blocking)))
        assert set(threading.enumerate()) - before <= {blocking.thread}, name
        blocking.let_go()


def wide(blocking: Blocking):
    """A function of a larger matrix, made in several pieces; the main thread's wait until another thread has one."""
    begun = threading.Event()

    def fill(rows, cols, out, stream):
        out[...] = 1.0
        if threading.current_thread() is blocking.main:
            begun.wait(20)
            return
        begun.set()
        blocking(range(1), range(1), out[:1, :1], stream)

    return fill


@pytest.mark.parametrize(("at", "threshold"), [(5, None), (2, 1e-4)])
def test_an_interrupt_that_wakes_nobody_is_seen(at, threshold):
    # As a signal that comes after the main thread's last look and before it waits: it says so, and does not end the wait.
    blocking = Blocking(at, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        factored(blocking, precision_threshold=threshold)
    blocking.let_go()


# the parts


@pytest.fixture
def device():
    made = host_device()
    yield made
    made.close()


def test_events_of_a_closed_device_are_complete_with_an_error(device):
    stream = device.create_stream("a")
    device.close()
    calls: list[BaseException | None] = []
    event = stream.record()
    device.notify(event, calls.append)
    with pytest.raises(AbortedError, match="closed"):
        event.synchronize()
    stream.enqueue(lambda: calls.append(None))
    stream.wait(HostEvent())  # which nobody will complete
    with pytest.raises(AbortedError):
        stream.synchronize()
    assert [type(call) for call in calls] == [AbortedError]


def test_a_closed_device_wakes_who_waits_for_what_it_will_not_do(device):
    stream, begun, gate = device.create_stream("a"), threading.Event(), threading.Event()

    def stay(rows, cols, out, where):
        begun.set()
        gate.wait(100)

    source = oc.from_function(4, stay)
    device.generate(stream, source.function, range(4), range(4), np.empty((4, 4)))
    behind, errors = stream.record(), []
    other = device.create_stream("b")
    other.wait(behind)
    waiting = threading.Thread(target=lambda: errors.append(error_of(behind)))
    waiting.start()
    assert begun.wait(20)
    device.close()
    waiting.join(20)
    assert [type(error) for error in errors] == [AbortedError] and type(error_of(other.record())) is AbortedError
    gate.set()
    stream.thread.join(20)


def error_of(event: HostEvent) -> BaseException | None:
    """What waiting for the event raises."""
    try:
        event.synchronize()
    except AbortedError as error:
        return error
    return None


def test_an_aborted_stream_waits_for_no_event_and_new_streams_are_aborted(device):
    first = device.create_stream("a")
    first.wait(HostEvent())  # which nobody will complete
    behind = first.record()
    assert not behind.wait(0.05)
    device.abort()
    with pytest.raises(AbortedError):
        behind.synchronize()
    with pytest.raises(AbortedError):
        device.create_stream("b").synchronize()


def test_streams_and_teams_that_are_dropped_end_their_threads():
    device, team = host_device("host:7"), ThreadTeam(3)
    streams = [device.create_stream(str(number)).thread for number in range(2)]
    team.run([int] * 3)
    del device, team
    deadline = time.monotonic() + 20.0
    while left := [each for each in threading.enumerate() if each in streams or each.name == "ooc_chol team"]:
        assert time.monotonic() < deadline, left
        time.sleep(0.005)


def test_nothing_of_ours_runs_on_threads_that_a_process_waits_for():
    names: list[tuple[str, bool]] = []

    def function(rows, cols, out, stream):
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]
        names.extend((each.name, each.daemon) for each in threading.enumerate())

    source = oc.from_function(N, function)
    with oc.cholesky(source, precision_threshold=1e-3, tile_size=NB, devices=2) as factor:
        factor.solve(np.ones(N), refine=True, a=source)
        factor.inverse_traces([source], np.ones((N, 1)))
        factor.half_solve_sums(source, range(N), np.ones((N, 1)))
    oc.symm(source, np.ones(N), devices="host:0")
    ours = [(name, is_daemon) for name, is_daemon in names if name.startswith("ooc_chol")]
    assert {"ooc_chol norms", "ooc_chol enqueuer", "ooc_chol read-ahead"} <= {name for name, _ in ours}
    assert all(is_daemon for _, is_daemon in ours)
