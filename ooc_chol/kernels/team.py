"""A team of threads that shares the row strips of one tile kernel."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

Job = Callable[[], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


class _Batch:
    """Jobs that several threads take from, one after the other."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._next = itertools.count()  # next() is atomic
        self._left = len(jobs)
        self._lock = threading.Lock()
        self._done = threading.Event()
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
                    self._done.set()

    def wait(self) -> None:
        """Block until every job has run; raise the error of one that failed."""
        self._done.wait()
        if self.error is not None:
            raise self.error


class ThreadTeam:
    """``size`` threads, the calling one among them, that run batches of independent jobs.

    Parameters
    ----------
    size : int
        Threads, at least 1. The others start with the first batch that can use them.

    Notes
    -----
    Jobs are taken one by one: a thread whose core is taken by another program does fewer of them, and nobody waits for it
    longer than one job. A threaded BLAS call divides its work beforehand, and all its threads wait for the slowest.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a team of {size} threads cannot work; give at least 1")
        self.size = size
        self._batches: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._helpers: list[threading.Thread] = []
        self._starting = threading.Lock()  # several streams may run their first batches at once

    def run(self, jobs: Sequence[Job]) -> None:
        """Run all jobs, in any order and at once; return when all have run.

        Raises
        ------
        BaseException
            What a job raised; jobs that had not started by then are dropped.
        """
        if self.size == 1 or len(jobs) == 1:
            for job in jobs:
                job()
            return
        self._start()
        batch = _Batch(jobs)
        for _ in range(min(self.size, len(jobs)) - 1):
            self._batches.put(batch)
        batch.work()
        batch.wait()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``[function(item) for item in items]``, by all threads.

        Raises
        ------
        BaseException
            As :meth:`run`.
        """
        found: dict[int, Result] = {}

        def call(number: int) -> None:
            found[number] = function(items[number])

        self.run([partial(call, number) for number in range(len(items))])
        return [found[number] for number in range(len(items))]

    def close(self) -> None:
        """End the helping threads; a later batch starts them anew."""
        for _ in self._helpers:
            self._batches.put(None)
        while self._helpers:
            self._helpers.pop().join()

    def _start(self) -> None:
        with self._starting:
            while len(self._helpers) < self.size - 1:
                helper = threading.Thread(target=self._help, name="ooc_chol kernel team", daemon=True)
                self._helpers.append(helper)
                helper.start()

    def _help(self) -> None:
        while (batch := self._batches.get()) is not None:
            batch.work()
            del batch
