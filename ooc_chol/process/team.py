"""A team of threads that shares independent jobs: the row strips of one tile kernel, the pieces of a product."""

from __future__ import annotations

import itertools
import math
import os
import queue
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TypeAlias, TypeVar

from ooc_chol.config import whole_number
from ooc_chol.process import blas_buffers
from ooc_chol.process.fork_safety import new_lock
from ooc_chol.process.threads import OwnThread, start_among, take, wait_out

#: Bytes of a copy that are worth a thread.
_LEAST_SHARE = 1 << 20
#: Bytes of an array from which on one pass over it is worth starting threads, and how many.
_LEAST_SHARED, _MOST_SHARES = 1 << 24, 8
#: Seconds between two looks at whether helpers are done with a batch that failed.
_PAUSE_SECONDS = 1e-3

Job = Callable[[], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


#: Teams of blocks that keep threads; the last one serves.
_kept: list[ThreadTeam] = []
#: Seconds for which a thread that wants the interpreter lets another one have it, where Python's own 5 ms cost a tenth of a call
#: of two threads that launch kernels: 9.9 s in place of 10.8 to 11.3, and 10.6 with 0.1 ms.
_TURN_SECONDS = 5e-4
#: Python's own, of before the first of these blocks; with the lock of both lists.
_turns_before: list[float] = []
_turns_lock = new_lock()


class _Batch:
    """Jobs that several threads take from, one after the other."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._next = itertools.count()  # next() is atomic
        self._left, self._helpers = len(jobs), 0
        self._lock = new_lock()
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.error: BaseException | None = None

    def work(self) -> None:
        """Run jobs until none is left to take."""
        while (at := next(self._next)) < len(self._jobs):
            try:
                if self.error is None:
                    self._jobs[at]()
            except BaseException as error:  # raised again by the thread that waits for the batch
                self.error = error
            with self._lock:
                self._left -= 1
                if self._left == 0:
                    self._done.put(None)

    def wait(self) -> None:
        """Block until every job has run; raise the error of one that failed, an interrupt at once."""
        if self.error is None or isinstance(self.error, Exception):
            take(self._done)
        if self.error is not None:
            raise self.error

    def drop(self, error: BaseException) -> None:
        """Skip the jobs that have not started, because of ``error``."""
        self.error = self.error or error

    def help(self) -> None:
        """Run jobs as :meth:`work` does, on a thread that no interrupt reaches."""
        with self._lock:
            self._helpers += 1
        try:
            self.work()
        finally:
            with self._lock:
                self._helpers -= 1

    def settle(self) -> None:
        """Block until no helper runs a job of those that were dropped; an interrupt may have cut short the caller's own."""
        while self._helpers:
            time.sleep(_PAUSE_SECONDS)


#: Batches for helpers. Anything else in the queue ends a helper: None, or a reference to a team that is gone.
_Batches: TypeAlias = "queue.SimpleQueue[_Batch | object]"


class ThreadTeam:
    """``size`` threads, the calling one among them, that run batches of independent jobs.

    Jobs are taken one by one: a thread whose core is taken by another program does fewer of them, and nobody waits for it
    longer than one job. A threaded BLAS call divides its work beforehand, and all its threads wait for the slowest.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a team of {size} threads cannot work; give at least 1")
        self.size = size
        self._batches: _Batches = queue.SimpleQueue()
        self._helpers: list[OwnThread] = []
        self._starting = new_lock()  # several streams may run their first batches at once

    def run(self, jobs: Sequence[Job], most: int | None = None, *, settles: bool = False) -> None:
        """Run all jobs, in any order and at once, by at most so many threads; return when all have run.

        After an error a team that is to go on ``settles``: none of the jobs runs any more when it is raised.
        """
        count = min(self.size, len(jobs), most or self.size)
        if count <= 1:
            for job in jobs:
                job()
            return
        self._start()
        batch = _Batch(jobs)
        try:
            for _ in range(count - 1):
                self._batches.put(batch)
            batch.work()
            batch.wait()
        except BaseException as error:
            batch.drop(error)
            if settles:
                batch.settle()
            raise

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], most: int | None = None, *, settles: bool = False
    ) -> list[Result]:
        """``[function(item) for item in items]``, by threads as of :meth:`run`."""
        found: dict[int, Result] = {}

        def call(number: int) -> None:
            found[number] = function(items[number])

        self.run([partial(call, number) for number in range(len(items))], most, settles=settles)
        return [found[number] for number in range(len(items))]

    def shares(self, rows: int, nbytes: int) -> list[slice]:
        """Rows of so many bytes in even shares: one for each thread, or as many as are worth one."""
        count = min(self.size, 1 + nbytes // _LEAST_SHARE)
        return [slice(rows * number // count, rows * (number + 1) // count) for number in range(count)]

    def close(self) -> None:
        """End the helping threads; a later batch starts them anew."""
        helpers = list(self._helpers)
        while self._helpers:
            self._helpers.pop()
            self._batches.put(None)
        wait_out(helpers)

    def _start(self) -> None:
        with self._starting:
            while len(self._helpers) < self.size - 1:
                # It knows the queue and not the team: one that is dropped ends it, as one that is closed does.
                helper = OwnThread(_help, (self._batches, weakref.ref(self, self._batches.put)), "team")
                start_among(self._helpers, helper)


def _help(batches: _Batches, team: weakref.ref[ThreadTeam]) -> None:
    """Run batches until told to end, or until the team is gone, as ``team`` then says in the queue; a helper's body."""
    while isinstance(batch := batches.get(), _Batch):
        batch.help()
        del batch


def pieces(count: int, length: int) -> list[slice]:
    """Cut ``count`` items into slices of so many; the last may be shorter."""
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def map_in_threads(function: Callable[[Item], Result], items: Sequence[Item], *, threads: int | None = None) -> list[Result]:
    """``[function(item) for item in items]`` by as many threads as there are cores, the calling one among them.

    Parameters
    ----------
    function : callable
        It is called once for each item, on several threads at once, as ``function(item)``.
    items : sequence
        The arguments, one for each call.
    threads : int, optional
        Most threads, for calls whose steps are so short that more would wait for the interpreter; by default as many as cores.

    Returns
    -------
    list
        Results of the calls, in the order of ``items``.

    Raises
    ------
    ValueError
        ``threads`` is below 1.
    BaseException
        Error that a call raised, or an interrupt; calls that had not started by then are dropped. No thread is left that would
        keep the process from ending, as those of ``concurrent.futures`` do.
    BudgetError
        The system has no room for the stack of another thread, or starts no more.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.toolbox.map_in_threads(abs, [-2, 1])
    [2, 1]
    """
    if threads is not None and whole_number(threads, "threads") < 1:
        raise ValueError(f"threads is {threads}; give 1 or more, or leave it out for as many as there are cores")
    most = cores() if threads is None else min(threads, cores())
    called = partial(_call, function)
    if _kept:
        return _kept[-1].map(called, items, most, settles=True)
    with closing(ThreadTeam(max(1, min(len(items), most)))) as team:
        return team.map(called, items)


@contextmanager
def kept_threads() -> Iterator[None]:
    """Keep threads for the calls of :func:`map_in_threads` while a ``with`` block runs, each of which would start its own.

    Other threads of the process use them as well. All have ended behind the block. Meanwhile threads take turns at the
    interpreter every half a millisecond at least (``sys.setswitchinterval``).

    Examples
    --------
    >>> import ooc_chol.toolbox as tb
    >>> with tb.kept_threads():
    ...     tb.map_in_threads(abs, [-2, 1])
    [2, 1]
    """
    with closing(ThreadTeam(cores())) as team:
        _keep(team)
        try:
            yield
        finally:
            _let_go(team)


def _keep(team: ThreadTeam) -> None:
    """Let a team serve; with the first one turns become short."""
    with _turns_lock:
        if not _kept:
            _turns_before[:] = [sys.getswitchinterval()]
            sys.setswitchinterval(min(_TURN_SECONDS, _turns_before[0]))
        _kept.append(team)


def _let_go(team: ThreadTeam) -> None:
    """Let a team serve no more; behind the last one turns are what they were, unless somebody has set them meanwhile."""
    with _turns_lock:
        _kept.remove(team)
        if not _kept and math.isclose(sys.getswitchinterval(), min(_TURN_SECONDS, _turns_before[0]), rel_tol=1e-3):
            sys.setswitchinterval(_turns_before[0])


def _call(function: Callable[[Item], Result], item: Item) -> Result:
    """Call a function that may use NumPy's BLAS."""
    blas_buffers.ensure(numpys=True)
    return function(item)


def by_shares(function: Callable[[slice], Result], rows: int, nbytes: int) -> list[Result]:
    """``function(share)`` of even shares of so many rows of so many bytes, by threads where it is worth starting some."""
    with closing(ThreadTeam(min(cores(), _MOST_SHARES) if nbytes >= _LEAST_SHARED else 1)) as team:
        return team.map(function, team.shares(rows, nbytes))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
