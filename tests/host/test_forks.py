"""Children that are forked while other threads compute: every lock of the package is free there, and they compute right."""

from __future__ import annotations

import ast
import gc
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import cached_property
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import random_array

import ooc_chol as oc
from tests.inside.kernels import blas_threads, current_threads
from tests.inside.process import LOCK_TYPES, collector_off, forked

pytestmark = pytest.mark.usefixtures("no_hang")

PACKAGE = Path(oc.__file__).parent
#: Seconds that a child gets, on a busy machine too.
CHILD_SECONDS = 60
N = 120
A = np.exp(-np.abs(np.subtract.outer(np.arange(N), np.arange(N))) / 10.0) + np.eye(N)
S = random_array((N, N), density=0.1, rng=np.random.default_rng(0), format="csr")
S = (S + S.T).tocsr()
FOURIER = oc.GraphFourier(np.roll(np.eye(16), 1, axis=1) + np.roll(np.eye(16), -1, axis=1))
T = oc.testing.low_rank_tensor(FOURIER, 8, 8, 1)
MASK = oc.testing.random_mask(T.shape, 0.8)


def multiply() -> np.ndarray:
    return oc.multiply(S, np.ones((N, 2)))


def cholesky() -> np.ndarray:
    with oc.cholesky(A, tile_size=20, memory_budget="64 kB", devices="host:0") as factor:
        return np.asarray(factor)


def eigsh() -> np.ndarray:
    return oc.eigsh(S, k=2, devices="host:0").eigenvalues


def impute() -> np.ndarray:
    return np.asarray(oc.impute(T, MASK, FOURIER, devices="host:0").tensor)


CALLS = [cholesky, eigsh, impute, multiply]


def child(run: Callable[[], bool]) -> int:
    """The exit code of a forked child that ``run`` says is right: 0, 1 where it is wrong or fails, -9 where it hangs."""
    if (pid := os.fork()) == 0:
        code = 1
        try:
            code = 0 if run() else 1
        finally:
            os._exit(code)
    until = time.monotonic() + CHILD_SECONDS
    while (done := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            done = os.waitpid(pid, 0)
            break
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(done[1])


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.usefixtures("processes")
def test_children_compute_right_while_another_thread_computes(call):
    expected = [each() for each in CALLS]
    ended, right = threading.Event(), expected[CALLS.index(call)]

    def compute() -> None:
        while not ended.is_set():
            call()

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        for attempt in range(8):
            time.sleep(0.003 * attempt)
            assert child(lambda: np.array_equal(call(), right)) == 0
        for each, known in zip(CALLS, expected, strict=True):
            assert child(lambda each=each, known=known: np.array_equal(each(), known)) == 0
    finally:
        ended.set()
        thread.join()


def guards() -> set[int]:
    """Locks that the thread which forks takes before."""
    return {id(each.guard()) for each in forked._RENEWALS if each.guard is not None}


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_locks_that_another_thread_has_are_free_in_a_child():
    """Every lock there is now, and a cached property's, is taken by a thread that is not there in the child."""
    cholesky()
    locks = [lock for lock in {*forked._LOCKS, *forked._locks_of_modules()} if id(lock) not in guards()]
    assert len(locks) > 10
    taken, ended = threading.Event(), threading.Event()

    def take() -> None:
        with ExitStack() as held:
            for lock in locks:
                held.enter_context(lock)
            taken.set()
            ended.wait()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        assert taken.wait(CHILD_SECONDS)
        assert not any(lock.acquire(blocking=False) for lock in locks)
        assert child(lambda: all(lock.acquire(blocking=False) for lock in locks)) == 0
    finally:
        ended.set()
        thread.join()


@pytest.mark.usefixtures("processes")
def test_what_a_run_sets_for_its_time_is_as_before_in_a_child():
    """Threads of BLAS, and Python's garbage collector."""
    before = current_threads()
    inside, ended = threading.Event(), threading.Event()

    def run() -> None:
        with blas_threads(1), collector_off():
            inside.set()
            ended.wait()

    with blas_threads(max(2, before)):  # so that 1 is another number
        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert inside.wait(CHILD_SECONDS)
            assert not gc.isenabled()
            assert child(lambda: gc.isenabled() and current_threads() == before) == 0
        finally:
            ended.set()
            thread.join()
    assert gc.isenabled() and current_threads() == before


# the table holds all


def modules() -> Iterator[Path]:
    return (path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")))


#: Where locks are made by themselves: for the threads of one call that ends with them, or by what is found as a module's own.
OWN_LOCKS = {
    "process/fork_safety.py": "makes them",
    "apps/spectral/images/branches.py": "a condition of one call",
    "apps/spectral/images/gpu_cuts.py": "a lock of one call",
    "apps/spectral/solving/eigenpairs.py": "a variable of the module",
    "bench/cuda/devices.py": "a barrier of one measurement",
    "dense/keeping.py": "an event of one call",
    "tracing/viewer.py": "an event of one server",
}
MAKERS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}


def test_every_lock_of_the_package_is_in_the_table():
    """Locks are made by ``ooc_chol.process.fork_safety``, which frees them in a child; nothing else registers at forks."""
    assert {str(path) for path in modules() if _makes_locks((PACKAGE / path).read_text(encoding="utf-8"))} == set(OWN_LOCKS)


def _makes_locks(code: str) -> bool:
    """Whether code uses a lock's type other than in an annotation, or registers at forks."""
    if "threading" not in code and "register_at_fork" not in code:
        return False
    nodes = list(ast.walk(ast.parse(code)))
    given = [each.annotation for each in nodes if isinstance(each, ast.AnnAssign | ast.arg) and each.annotation]
    given += [each.returns for each in nodes if isinstance(each, ast.FunctionDef) and each.returns]
    annotations = {id(node) for each in given for node in ast.walk(each)}
    imports = [each for each in nodes if isinstance(each, ast.ImportFrom) and each.module == "threading"]
    names = {alias.asname or alias.name for each in imports for alias in each.names if alias.name in MAKERS}
    used = {ast.unparse(each) for each in nodes if isinstance(each, ast.Attribute | ast.Name) and id(each) not in annotations}
    return bool(used & ({f"threading.{name}" for name in MAKERS} | names | {"os.register_at_fork"}))


#: What another thread of the parent may have in its hands at a fork.
HELD_TYPES = (*LOCK_TYPES, queue.SimpleQueue, queue.Queue, threading.Thread, threading.Event, Executor)


def held(value: object, seen: set[int], depth: int = 0) -> Iterator[object]:
    """What of these a variable of a module leads to, through objects of the package and containers."""
    if id(value) in seen or depth > 6:
        return
    seen.add(id(value))
    if isinstance(value, HELD_TYPES):
        yield value
    elif isinstance(value, dict):
        for each in list(value.values()):
            yield from held(each, seen, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from held(each, seen, depth + 1)
    elif isinstance(value, type):
        if value.__module__.startswith("ooc_chol"):
            for each in list(vars(value).values()):
                if not isinstance(each, cached_property):  # found by its type
                    yield from held(each, seen, depth + 1)
    elif type(value).__module__.startswith("ooc_chol"):
        names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        for each in [*vars(value).values()] if hasattr(value, "__dict__") else [getattr(value, name, None) for name in names]:
            yield from held(each, seen, depth + 1)


@pytest.mark.usefixtures("foreign")
@pytest.mark.commit
def test_all_that_modules_hold_is_in_the_table():
    """No variable of a module leads to a lock, a queue, a thread or a pool that a child would not begin anew with."""
    for each in CALLS:
        each()
    for path in modules():
        name = ".".join(("ooc_chol", *path.with_suffix("").parts)).removesuffix(".__init__")
        if not any(part in name for part in ("cuda", "torch", "jax", "bench", "__main__")):
            import_module(name)
    known = {id(each) for each in (*forked._LOCKS, *forked._locks_of_modules())}
    strangers = {
        f"{name}.{variable}": each
        for name, module in list(sys.modules.items())
        if name.split(".")[0] == "ooc_chol"
        for variable, value in list(vars(module).items())
        if not variable.startswith("__")
        for each in held(value, set())
        if id(each) not in known
    }
    assert strangers == {}
