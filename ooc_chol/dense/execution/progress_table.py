"""The progress table: which values of which blocks have been written to the store, and how far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import AbstractEvent, BlockKey
from ooc_chol.process.fork_safety import new_lock


class Progress(IntEnum):
    """How far the writing of a value has come; it only ever rises."""

    ABSENT = 0  #: not enqueued yet: nothing may wait on it
    RECORDED = 1  #: enqueued and its event recorded: a stream may wait on the event
    DURABLE = 2  #: its bytes are in the store


class ProgressTable:
    """Per value: how far it is, its event, and who wants to know. Safe to use from any thread.

    Waiting on a CUDA event that is not recorded yet is a no-op, so a reader that came first would read too early. Hence RECORDED
    is a state of its own: it is set by the thread that recorded the event, after recording it.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._progress: dict[BlockKey, Progress] = {}
        self._events: dict[BlockKey, AbstractEvent] = {}
        self._waiting: dict[tuple[BlockKey, Progress], list[Callable[[], None]]] = {}

    def progress(self, key: BlockKey) -> Progress:
        """How far the value of ``key`` is, absent where nothing was told of it."""
        with self._lock:
            return self._progress.get(key, Progress.ABSENT)

    def event(self, key: BlockKey) -> AbstractEvent:
        """The event recorded behind the writing of ``key``."""
        with self._lock:
            if key not in self._events:
                raise ScheduleError(f"{key} is not recorded yet; waiting on it would be a no-op")
            return self._events[key]

    def record(self, key: BlockKey, event: AbstractEvent) -> None:
        """Note that the writing of ``key`` is enqueued and ``event`` recorded behind it."""
        with self._lock:
            if key in self._events:
                raise ScheduleError(f"{key} is written twice")
            self._events[key] = event
            # The store may have finished before this line: never lower DURABLE to RECORDED.
            self._progress[key] = max(self._progress.get(key, Progress.ABSENT), Progress.RECORDED)
            ready = self._waiting.pop((key, Progress.RECORDED), [])
        for callback in ready:
            callback()

    def mark_given(self, keys: Iterable[BlockKey], event: AbstractEvent) -> None:
        """Note, before anybody asks, that all of ``keys`` are in the store, and ``event`` recorded behind them."""
        with self._lock:
            for key in keys:
                self._events[key], self._progress[key] = event, Progress.DURABLE

    def mark_durable(self, key: BlockKey) -> None:
        """Note that the bytes of ``key`` are in the store."""
        with self._lock:
            self._progress[key] = Progress.DURABLE
            ready = self._waiting.pop((key, Progress.DURABLE), [])
        for callback in ready:
            callback()

    def when(self, key: BlockKey, level: Progress, callback: Callable[[], None]) -> bool:
        """Call ``callback`` once ``key`` has come as far as ``level``; True, without a call, when it has already."""
        with self._lock:
            reached = self._progress.get(key, Progress.ABSENT)
            if reached >= level and (level is not Progress.RECORDED or key in self._events):
                return True
            self._waiting.setdefault((key, level), []).append(callback)
            return False
