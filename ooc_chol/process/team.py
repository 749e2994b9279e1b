"""A team of threads that shares independent jobs: the row strips of one tile kernel, the pieces of a product."""

from __future__ import annotations

import itertools
import os
import queue
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TypeAlias, TypeVar, final

from ooc_chol.config import whole_number
from ooc_chol.process import blas_buffers
from ooc_chol.process.fork_safety import new_lock, renewed_in_child
from ooc_chol.process.threads import OwnThread, start, take, wait_out

#: Bytes of a copy that are worth a thread.
_LEAST_SHARE = 1 << 20

Job = Callable[[], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


class _Batch:
    """Jobs that several threads take from, one after the other."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._next = itertools.count()  # next() is atomic
        self._left = len(jobs)
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


#: Batches for helpers. Anything else in the queue ends a helper: None, or a reference to a team that is gone.
_Batches: TypeAlias = "queue.SimpleQueue[_Batch | object]"


@final
class _Helpers:
    """Threads that take batches from a queue, started as they are first needed."""

    def __init__(self) -> None:
        self.batches: _Batches = queue.SimpleQueue()
        self._threads: list[OwnThread] = []
        self._starting = new_lock()  # several streams may run their first batches at once
        self._process = os.getpid()

    @property
    def are_here(self) -> bool:
        """False in a process that was forked from theirs."""
        return self._process == os.getpid()

    def start(self, count: int) -> None:
        """See that there are so many."""
        with self._starting:
            while len(self._threads) < count:
                # It knows the queue and not this: what is dropped ends it, as what is closed does.
                helper = OwnThread(_help, (self.batches, weakref.ref(self, self.batches.put)), "team")
                self._threads.append(helper)  # before it starts: whenever an interrupt comes, it is told to end
                try:
                    start(helper)
                except Exception:  # it could not start
                    self._threads.remove(helper)
                    raise

    def close(self) -> None:
        """End them all, and wait for them."""
        threads = list(self._threads)
        while self._threads:
            self._threads.pop()
            self.batches.put(None)
        wait_out(threads)


class ThreadTeam:
    """``size`` threads, the calling one among them, that run batches of independent jobs.

    Jobs are taken one by one: a thread whose core is taken by another program does fewer of them, and nobody waits for it
    longer than one job. A threaded BLAS call divides its work beforehand, and all its threads wait for the slowest.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a team of {size} threads cannot work; give at least 1")
        self.size = size
        self._helpers: _Helpers | None = None
        self._is_cut = False  # a batch was, by an error: jobs of it may run still
        self._taking = new_lock()

    def run(self, jobs: Sequence[Job]) -> None:
        """Run all jobs, in any order and at once; return when all have run."""
        if self.size == 1 or len(jobs) <= 1:
            for job in jobs:
                job()
            return
        helpers, count = self._taken(), min(self.size, len(jobs)) - 1
        helpers.start(count)
        batch = _Batch(jobs)
        try:
            for _ in range(count):
                helpers.batches.put(batch)
            batch.work()
            batch.wait()
        except BaseException as error:
            self._is_cut = True
            batch.drop(error)
            raise

    def _taken(self) -> _Helpers:
        """Its helpers, from its first batch on: those that were kept, or new ones."""
        with self._taking:
            if self._helpers is None:
                self._helpers = _KEPT.take()
            return self._helpers

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``[function(item) for item in items]``, by all threads."""
        found: dict[int, Result] = {}

        def call(number: int) -> None:
            found[number] = function(items[number])

        self.run([partial(call, number) for number in range(len(items))])
        return [found[number] for number in range(len(items))]

    def shares(self, rows: int, nbytes: int) -> list[slice]:
        """Rows of so many bytes in even shares: one for each thread, or as many as are worth one."""
        count = min(self.size, 1 + nbytes // _LEAST_SHARE)
        return [slice(rows * number // count, rows * (number + 1) // count) for number in range(count)]

    def close(self) -> None:
        """End the helping threads, or let them be kept; a later batch takes others."""
        with self._taking:
            helpers, self._helpers = self._helpers, None
        if helpers is not None and (self._is_cut or not _KEPT.keeps(helpers)):
            helpers.close()


def _help(batches: _Batches, helpers: weakref.ref[_Helpers]) -> None:
    """Run batches until told to end, or until ``helpers`` are gone, as it then says in the queue; a helper's body."""
    while isinstance(batch := batches.get(), _Batch):
        batch.work()
        del batch


@final
class _Kept:
    """Helpers that wait for the next team, as long as a block of :func:`threads_kept` goes on."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self._blocks = 0
        self._idle: list[_Helpers] = []

    def begin(self) -> None:
        """Keep helpers from now on."""
        with self.lock:
            self._blocks += 1

    def end(self) -> None:
        """Keep them no longer, unless another block does."""
        with self.lock:
            self._blocks -= 1
            ended = [] if self._blocks else [*self._idle]
            if not self._blocks:
                self._idle.clear()
        for helpers in ended:
            helpers.close()

    def take(self) -> _Helpers:
        """Those that wait, or new ones."""
        with self.lock:
            return self._idle.pop() if self._idle else _Helpers()

    def keeps(self, helpers: _Helpers) -> bool:
        """Let helpers wait, if any are kept; whether they do."""
        with self.lock:
            if is_kept := self._blocks > 0 and helpers.are_here:
                self._idle.append(helpers)
            return is_kept

    def forget(self) -> None:
        """In a forked child: none of the threads is there."""
        self._idle.clear()


_KEPT = _Kept()
renewed_in_child(_KEPT.forget, lambda: _KEPT.lock)


@contextmanager
def threads_kept() -> Iterator[None]:
    """Keep threads, those of :func:`map_in_threads` and of other calls, from one call to the next inside a block.

    Yields
    ------
    None
        Nothing: calls inside of the block, on any thread, use threads that wait, where there are some.

    Notes
    -----
    A new thread waits for the interpreter before it does anything, 2 ms beside others that are busy: longer than a call on some
    hundred thousand numbers takes. All threads have ended once the last such block of the process is left.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> with oc.toolbox.threads_kept():
    ...     [sum(oc.toolbox.map_in_threads(abs, range(n))) for n in (2, 3)]
    [1, 3]
    """
    _KEPT.begin()
    try:
        yield
    finally:
        _KEPT.end()


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
        What a call raised, or an interrupt; calls that had not started by then are dropped. No thread is left that would keep
        the process from ending, as those of ``concurrent.futures`` do.
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
    with closing(ThreadTeam(most)) as team:
        return team.map(partial(_call, function), items)


def _call(function: Callable[[Item], Result], item: Item) -> Result:
    """Call a function that may use NumPy's BLAS."""
    blas_buffers.ensure(numpys=True)
    return function(item)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
