"""Threads that write, behind those who compute, what lies in memory anyway."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, final

from ooc_chol.process.fork_safety import new_condition, new_lock
from ooc_chol.process.threads import LOOK_SECONDS, OwnThread, start_among, wait_out

Item = TypeVar("Item")


class _Shared(Generic[Item]):
    """State shared by the threads and whoever gives them work; none of them knows the object that is closed or dropped."""

    def __init__(self, write: Callable[[Item], None]) -> None:
        self.write = write
        self.changed = new_condition()
        self.waiting: deque[Item] = deque()
        self.running: list[Item] = []
        self.error: BaseException | None = None
        self.has_ended = False

    def work(self) -> None:
        """Write one after the other until told to end; a thread's body."""
        while True:
            with self.changed:
                while not self.waiting and not self.has_ended:
                    self.changed.wait()
                if self.has_ended:
                    return
                item = self.waiting.popleft()
                self.running.append(item)
            error: BaseException | None = None
            try:
                self.write(item)
            except BaseException as caught:  # raised by who gives the next item, or waits for the last
                error = caught
            with self.changed:
                self.running.remove(item)
                if error is not None:
                    self.error = self.error or error
                    self.waiting.clear()
                self.changed.notify_all()

    def end(self) -> None:
        """Let every thread end once it has written what it is writing; what waits is dropped."""
        with self.changed:
            self.has_ended = True
            self.waiting.clear()
            self.changed.notify_all()


@final
class WriteBehind(Generic[Item]):
    """A bounded queue of items, and threads that write them.

    The first error of a write drops what waits, and is raised by every later call. One that is dropped ends its threads, like one
    that is closed.
    """

    def __init__(self, write: Callable[[Item], None], *, threads: int, most_waiting: int) -> None:
        self._shared: _Shared[Item] = _Shared(write)
        self._most, self._count = most_waiting, threads
        self._threads: list[OwnThread] = []
        self._starting = new_lock()
        weakref.finalize(self, self._shared.end).atexit = False

    @property
    def is_closed(self) -> bool:
        """True if it takes nothing more."""
        return self._shared.has_ended

    def put(self, item: Item) -> None:
        """Have ``item`` written; waits while too many wait, and until the same one, given before, is written."""
        self._start()
        shared = self._shared
        with shared.changed:
            while self._is_full(item) and shared.error is None and not shared.has_ended:
                shared.changed.wait(LOOK_SECONDS)
            self._raise()
            if not shared.has_ended:
                shared.waiting.append(item)
                shared.changed.notify_all()

    def settle(self, item: Item) -> None:
        """Wait until ``item`` is not being written nor waits for it, so that its memory may change."""
        shared = self._shared
        with shared.changed:
            while (item in shared.waiting or item in shared.running) and not shared.has_ended:
                shared.changed.wait(LOOK_SECONDS)
            self._raise()

    def drain(self) -> None:
        """Wait until all is written that was given until now; what comes meanwhile does not count."""
        shared = self._shared
        with shared.changed:
            left = {*shared.waiting, *shared.running}
            while left and shared.error is None and not shared.has_ended:
                shared.changed.wait(LOOK_SECONDS)
                left &= {*shared.waiting, *shared.running}
            self._raise()

    def close(self) -> None:
        """Drop what waits, and end the threads once they have written what they are writing; a second call does nothing."""
        self._shared.end()
        wait_out(self._threads)

    def _is_full(self, item: Item) -> bool:
        shared = self._shared
        return len(shared.waiting) >= self._most or item in shared.waiting or item in shared.running

    def _raise(self) -> None:
        if self._shared.error is not None:
            raise self._shared.error

    def _start(self) -> None:
        with self._starting:
            while len(self._threads) < self._count and not self._shared.has_ended:
                start_among(self._threads, OwnThread(self._shared.work, (), "writer"))
