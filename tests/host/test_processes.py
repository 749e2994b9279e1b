"""Other processes and other threads: who writes a file is named, a forked child is told, factors travel, budgets are shared."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import host_device
from tests.host.runs import COMMAND, ENVIRONMENT
from tests.inside.files import lock_holder
from tests.inside.hardware import default_budget, host, kinds
from tests.inside.process import forks
from tests.inside.runtime import HOST_PROMISES, Promises

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 96, 32
A = np.exp(-np.abs(np.subtract.outer(np.arange(N), np.arange(N))) / 10.0) + 0.1 * np.eye(N)


@pytest.fixture(scope="module")
def right() -> np.ndarray:
    """L, as one thread a BLAS call makes it."""
    with oc.cholesky(A, tile_size=NB) as factor:
        return np.asarray(factor)


#: A process that writes a factor, and stays in the middle of it until it is told to go on.
WRITER = """
import sys, numpy as np, ooc_chol as oc
def tile(rows, cols, out, stream):
    out[...] = np.eye(96)[rows.start:rows.stop, cols.start:cols.stop]
    if rows.start >= 64 and cols.start >= 64:
        print("writing", flush=True)
        sys.stdin.readline()
oc.cholesky(oc.from_function(96, tile), tile_size=32, devices="host:0", store=sys.argv[1]).close()
"""


@pytest.fixture
def writer(processes: None, tmp_path: Path):
    """A process that is writing ``L.factor``."""
    command = [COMMAND[0], "-c", WRITER, str(tmp_path / "L.factor")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1"}, **pipes) as process:
        for _ in range(2):  # once its function is measured, once it runs
            assert process.stdout is not None and process.stdout.readline() == "writing\n"
            if (tmp_path / "L.factor.partial").exists():
                break
            process.stdin.write("\n")
            process.stdin.flush()
        yield process
        process.communicate("\n\n\n", timeout=30)
        assert process.returncode == 0


# two writers


def test_who_writes_a_file_is_told_by_whatever_name_it_goes(tmp_path, writer):
    (tmp_path / "by a link").symlink_to(tmp_path / "L.factor")
    (tmp_path / "in a linked folder").symlink_to(tmp_path)
    for name in ("L.factor", "by a link", "in a linked folder/L.factor"):
        with pytest.raises(
            oc.errors.TierError, match=rf"this file \(process {writer.pid}: .*since 20.*\); wait for it"
        ) as caught:
            oc.cholesky(A, tile_size=NB, store=tmp_path / name)
        assert str(tmp_path / "L.factor.partial") in str(caught.value) and "another name" in str(caught.value)


def test_hard_links_part_when_one_of_them_is_written(tmp_path, right):
    oc.cholesky(A, tile_size=NB, store=tmp_path / "one").close()
    os.link(tmp_path / "one", tmp_path / "other")
    oc.cholesky(2.0 * A, tile_size=NB, store=tmp_path / "one").close()
    with oc.load(tmp_path / "other") as factor:
        assert np.array_equal(np.asarray(factor), right)


def test_nobody_holds_a_file_that_is_not_locked(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        assert lock_holder(file.fileno()) == ""


# forks


def in_child(use: Callable[[], Any]) -> str:
    """What a forked child says of ``use``: what it returns, or its error; it ends at once."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                told = repr(use())
            except BaseException as error:
                told = f"{type(error).__name__}: {error}" if isinstance(error, oc.OocCholError) else traceback.format_exc()
            os.write(write, told.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        told = answer.read().decode()
    os.waitpid(child, 0)
    return told


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_a_factor_of_the_host_may_be_used_in_a_forked_child_and_a_new_one_be_made(tmp_path, right):
    with oc.cholesky(A, tile_size=NB) as in_memory, oc.cholesky(A, tile_size=NB, store=tmp_path / "L") as in_file:
        x = in_memory.solve(np.ones(N)).tobytes()
        assert in_child(lambda: in_memory.solve(np.ones(N)).tobytes() == x) == "True"
        assert in_child(lambda: in_file.solve(np.ones(N)).tobytes() == x) == "True"
        assert in_child(lambda: np.array_equal(np.asarray(oc.cholesky(A, tile_size=NB)), right)) == "True"
        assert np.array_equal(np.asarray(in_file), right)


class ForkingProgress:
    """A user's callback that forks once; the parent hears what the child says in the end."""

    def __init__(self) -> None:
        self.parent, self.write, self.told = os.getpid(), -1, ""

    def __call__(self, *_: object) -> None:
        if self.told or os.getpid() != self.parent:
            return
        read, self.write = os.pipe()
        if os.fork() == 0:
            return
        os.close(self.write)
        with os.fdopen(read, "rb") as answer:
            self.told = answer.read().decode()
        os.wait()

    def say(self, what: str) -> None:
        """In a child, say what became of the call, and end; in the parent do nothing."""
        if os.getpid() != self.parent:
            os.write(self.write, what.encode())
            os._exit(0)


@pytest.mark.usefixtures("processes")
def test_a_forked_child_does_not_go_on_with_a_factorization(tmp_path, right):
    progress = ForkingProgress()
    try:
        factor = oc.cholesky(A, tile_size=NB, devices="host:0", store=tmp_path / "L", progress=progress)
    except BaseException as error:
        progress.say(f"{type(error).__name__}: {error}")
        raise
    progress.say("it went on")
    with factor:
        assert np.array_equal(np.asarray(factor), right)
    expected = f"ForkedError: this factorization was begun by process {progress.parent}"
    assert progress.told.startswith(expected) and "spawn" in progress.told
    assert os.listdir(tmp_path) == ["L"]


@pytest.mark.usefixtures("processes")
def test_a_device_is_not_used_in_a_forked_child_and_can_be_closed_there():
    device = host_device()
    device.create_stream("a").synchronize()
    assert "ForkedError: the work of host:0" in in_child(lambda: device.create_stream("b"))
    assert in_child(device.close) == "None"
    device.close()


@pytest.mark.usefixtures("processes")
def test_a_driver_that_was_called_before_a_fork_is_refused_behind_it(monkeypatch):
    monkeypatch.setattr(forks, "_USED_IN", {})
    assert in_child(lambda: forks.note_driver("cuda")) == "None"
    forks.note_driver("cuda")
    assert "the driver of cuda devices was begun by process" in in_child(lambda: forks.note_driver("cuda"))


# travelling


def solved(factor: oc.CholeskyFactor) -> bytes:
    with factor:
        return factor.solve(np.ones(N)).tobytes()


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_a_factor_in_a_file_is_an_argument_of_a_spawned_process(tmp_path):
    with oc.cholesky(A, tile_size=NB, store=tmp_path / "L") as factor:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(solved, (factor,)) == factor.solve(np.ones(N)).tobytes()
        pool.join()


def test_another_factor_under_the_name_of_a_pickled_one_is_refused(tmp_path, right):
    with oc.cholesky(A, tile_size=NB, store=tmp_path / "L") as factor:
        pickled = pickle.dumps(factor)
        assert len(pickled) < 500
    with pickle.loads(pickled) as again:
        assert np.array_equal(np.asarray(again), right)
    for other, nb in ((2.0 * A, NB), (A, 48)):
        oc.cholesky(other, tile_size=nb, store=tmp_path / "L").close()
        with pytest.raises(oc.errors.TierError, match="another factor than the one that was pickled"):
            pickle.loads(pickled)
    (tmp_path / "L").unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickled)


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_copies_share_the_tiles_and_are_closed_one_by_one(make, tmp_path, right):
    for store in (None, tmp_path / "L"):
        factor = oc.cholesky(A, tile_size=NB, store=store)
        twin = make(factor)
        factor.close()
        assert factor.closed and np.array_equal(np.asarray(twin), right)
        twin.close()


# threads


def test_calls_at_once_share_what_is_free(monkeypatch):
    monkeypatch.setattr(kinds, "free_host_bytes", lambda: 1 << 30)
    monkeypatch.setattr(host, "free_host_bytes", lambda: 1 << 30)
    alone = default_budget(["host:0"])
    with HOST_PROMISES.call(), HOST_PROMISES.call(), HOST_PROMISES.call(), HOST_PROMISES.call():
        assert 4 * default_budget(["host:0"]) <= alone
        first, second = host_device("host:0"), host_device("host:1")
        arena = first.allocate(3, 200 << 20, 32)
        assert 8 * default_budget(["host:0"]) <= (1 << 30) - (590 << 20)
        with pytest.raises(oc.BudgetError, match=r"host:1.*of other calls in this process"):
            second.allocate(3, 200 << 20, 32)
        arena.tile(0, (5000, 5000))[...] = 1.0  # what is in use is no longer counted as free by the system
        assert HOST_PROMISES.nbytes <= 410 << 20
        second.close()
        first.close()
    assert default_budget(["host:0"]) == alone and HOST_PROMISES.nbytes == 0


def test_promises_of_a_parent_do_not_bind_its_child():
    promises, owner = Promises(), Promises()
    promises.promise(owner, 1 << 30)
    with promises.call(), promises.call():
        assert promises.calls == 2 and promises.nbytes > 1 << 29
        promises.renew()
        assert (promises.calls, promises.nbytes) == (1, 0)
    assert promises.calls == 1


def test_a_promise_ends_with_a_device_that_nobody_closed():
    device = host_device()
    device.allocate(3, 64 << 20, 32)
    assert HOST_PROMISES.nbytes > 0
    del device
    assert HOST_PROMISES.nbytes == 0


def at_once(count: int, call: Callable[[int], Any]) -> list[Any]:
    """What so many threads get that begin together."""
    found: list[Any] = [None] * count
    gate = threading.Barrier(count)

    def work(number: int) -> None:
        gate.wait()
        try:
            found[number] = call(number)
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("options", [{}, {"fp64": "residue"}, {"precision_threshold": 1e-4}, {"tile_size": None}])
def test_factorizations_at_once_have_the_bits_of_one_alone(options, tmp_path):
    options = {"tile_size": NB, "devices": "host:0", **options}
    with oc.cholesky(A, **options) as factor:
        alone = np.asarray(factor).tobytes()

    def factored(number: int) -> bytes:
        store = tmp_path / f"L{number}" if number % 2 and options["tile_size"] else None
        with oc.cholesky(A, store=store, **options) as factor:
            return np.asarray(factor).tobytes()

    assert set(at_once(8, factored)) == {alone}


@pytest.mark.thorough
def test_four_at_once_take_no_longer_than_one_after_another():
    n = 2000
    a = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 100.0) + 0.1 * np.eye(n)

    def factored(_: int) -> bytes:
        with oc.cholesky(a, tile_size=256, memory_budget="8 MiB", devices="host:0") as factor:
            return factor.diagonal().tobytes()

    def seconds(call: Callable[[], list[bytes]]) -> tuple[float, list[bytes]]:
        began = time.perf_counter()
        found = call()
        return time.perf_counter() - began, found

    factored(0)
    together, alone = [], []
    for _ in range(5):
        alone.append(seconds(lambda: [factored(number) for number in range(4)]))
        together.append(seconds(lambda: at_once(4, factored)))
    assert {bits for _, found in (*together, *alone) for bits in found} == set(alone[0][1][:1])
    assert min(together)[0] <= 1.15 * min(alone)[0]
