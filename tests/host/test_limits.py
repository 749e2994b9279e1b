"""Limits of the process on memory: a right factor or an error of ours, never a hang and never another number."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

import ooc_chol as oc
from tests.builders import host_device
from tests.host.runs import ENVIRONMENT
from tests.inside.process import ThreadTeam, room, threads

pytestmark = pytest.mark.usefixtures("no_hang")

#: In a process for each: sets a limit (MiB beyond what is used after the imports), factors, and prints what came of it.
SCRIPT = """
import os, resource, signal, sys
import numpy as np
import ooc_chol as oc

oc.cholesky, oc.OocCholError  # imports their modules, before there is a limit

def call(number, field, mebibytes, threshold):
    now = 4096 * int(open("/proc/self/statm").read().split()[field])
    resource.setrlimit(number, (now + (mebibytes << 20), resource.RLIM_INFINITY))
    try:
        L = oc.cholesky(a, precision_threshold=threshold, tile_size=128, memory_budget="4 MiB", devices="host:0")
        x = L.solve(np.ones(900))
        print(mebibytes, "factor", L.logdet().hex(), bool(np.abs(a @ x - 1.0).max() < 1e-2), flush=True)
    except oc.OocCholError as error:
        print(mebibytes, type(error).__name__, error, flush=True)

which = {"AS": (resource.RLIMIT_AS, 0), "DATA": (resource.RLIMIT_DATA, 5)}[sys.argv[1]]
a = np.exp(-np.abs(np.subtract.outer(np.arange(900), np.arange(900))) / 50.0) + 0.1 * np.eye(900)
for mebibytes in map(int, sys.argv[3:]):
    if (child := os.fork()) == 0:
        signal.alarm(30)  # ends also a thread that spins in a library
        call(*which, mebibytes, float(sys.argv[2]) or None)
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        print(mebibytes, "ended with status", status, flush=True)
"""
#: From nothing to enough for all threads, with steps below and above a buffer, a stack and the heap of a thread; and no limit.
MEBIBYTES = (0, 12, 30, 50, 75, 100, 125, 150, 190, 250, 400, 900, 1 << 20)


@pytest.mark.parametrize(("which", "threshold"), [("AS", 0.0), ("DATA", 1e-4)])
@pytest.mark.usefixtures("processes")
def test_any_limit_gives_the_right_factor_or_an_error_that_names_it(which, threshold):
    words = [sys.executable, "-W", "ignore", "-c", SCRIPT, which, str(threshold), *map(str, MEBIBYTES)]
    environment = ENVIRONMENT | {"OPENBLAS_NUM_THREADS": "2"}
    run = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and not run.stderr, run.stderr
    found = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    assert list(map(int, found)) == list(MEBIBYTES)
    *limited, right = found.values()
    assert right.startswith("factor") and right.endswith("True")
    errors = [text for text in limited if text != right]
    assert all(text.startswith("BudgetError") and f"RLIMIT_{which}" in text for text in errors), errors
    assert limited[-1] == right and limited[0] != right  # the sweep meets both


#: In a process for each: sets a limit (MiB beyond what NumPy takes), and imports what a factorization needs.
LOADING = """
import os, resource, signal, sys
import numpy as np
for mebibytes in map(int, sys.argv[1:]):
    if (child := os.fork()) == 0:
        signal.alarm(30)
        now = 4096 * int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (now + (mebibytes << 20), resource.RLIM_INFINITY))
        try:
            import ooc_chol
            ooc_chol.cholesky
            print(mebibytes, "loaded", flush=True)
        except MemoryError as error:
            print(mebibytes, type(error).__name__, error, flush=True)
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        print(mebibytes, "ended with status", status, flush=True)
"""


@pytest.mark.usefixtures("processes")
def test_libraries_that_a_limit_leaves_no_room_for_are_an_error_and_no_hang():
    words = [sys.executable, "-c", LOADING, "0", "30", "75", "100", "150", "400", "900"]
    run = subprocess.run(words, env=ENVIRONMENT | {"OPENBLAS_NUM_THREADS": "2"}, capture_output=True, text=True, check=False)
    found = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    assert len(found) == 7 and not [text for text in found.values() if "status" in text], run.stdout + run.stderr
    assert found["30"].startswith("BudgetError") and "RLIMIT_AS" in found["30"] and "SciPy's BLAS" in found["30"]
    assert found["900"] == "loaded"


def no_threads(self: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_thread_that_cannot_start_is_a_budget_error_and_leaves_nothing(monkeypatch):
    monkeypatch.setattr(threads.OwnThread, "start", no_threads)
    team, device = ThreadTeam(3), host_device()
    with pytest.raises(oc.BudgetError, match="no more threads"):
        team.run([int, int])
    team.close()  # joins nobody
    with pytest.raises(oc.BudgetError, match=r"thread 'ooc_chol host:0 a'"):
        device.create_stream("a")
    device.synchronize()  # waits for nobody
    device.close()
    monkeypatch.undo()
    team.run([int, int])  # and starts anew
    team.close()


def test_memory_that_is_not_granted_is_a_budget_error_with_its_numbers(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setitem(sys.modules, "mmap", SimpleNamespace(mmap=refuse, MAP_PRIVATE=0, MAP_ANONYMOUS=0))
    monkeypatch.setattr(room, "tightest_limit", lambda: room.Limit("RLIMIT_AS (ulimit -v)", 5))
    device = host_device()
    with pytest.raises(
        oc.BudgetError, match=r"arena of host:0 under RLIMIT_AS .*5 bytes are too few.*raise that limit"
    ) as caught:
        device.allocate(1, 4096, 16)
    assert caught.value.needed_bytes == 4096 + room.SLACK_BYTES and caught.value.budget_bytes == 5
    device.close()


@pytest.mark.parametrize("error", [MemoryError("list"), OSError(12, "Cannot allocate memory")])
def test_other_memory_errors_become_budget_errors_but_the_users_own(error):
    with pytest.raises(oc.BudgetError, match=r"^planning") as caught, room.memory_errors_typed("planning"):
        raise error
    assert caught.value.__cause__ is error


def test_a_memory_error_of_a_tile_function_stays_what_it_is():
    error = MemoryError("mine")

    def tile(rows, cols, out, stream):
        raise error

    with pytest.raises(MemoryError) as caught:
        oc.cholesky(oc.from_function(10, tile), devices="host:0")
    assert caught.value is error


def test_errors_that_are_not_of_memory_pass():
    for error in (OSError(2, "No such file"), oc.errors.TierError("disk"), oc.BudgetError("a", 2, 1, "b")):
        with pytest.raises(type(error)) as caught, room.memory_errors_typed("planning"):
            raise error
        assert caught.value is error
