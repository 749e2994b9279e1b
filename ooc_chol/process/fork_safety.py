"""Locks, and what a process has one of: in a forked child they begin anew, as no thread is there that would let go of them."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

_Lock = TypeVar("_Lock")

#: All locks of the package, whoever has them.
_LOCKS: WeakSet[Any] = WeakSet()
#: Types of locks: the first two are functions in some versions of Python.
LOCK_TYPES = (type(threading.Lock()), type(threading.RLock()), threading.Condition)
#: Calls of ``collector_off`` that will switch Python's garbage collector on again.
RESTING: set[object] = set()


class _Renewal(NamedTuple):
    """State of the process that a child begins anew."""

    renew: Callable[[], None]
    guard: Callable[[], Any] | None


_RENEWALS: list[_Renewal] = []
#: The guards that the thread which forks has taken.
_HELD: list[Any] = []


def _known(lock: _Lock) -> _Lock:
    _LOCKS.add(lock)
    return lock


def new_lock() -> threading.Lock:
    """A lock that is free in a forked child."""
    return _known(threading.Lock())


def new_rlock() -> threading.RLock:
    """A reentrant lock that is free in a forked child."""
    return _known(threading.RLock())


def new_condition() -> threading.Condition:
    """A condition, with a reentrant lock, that is free in a forked child."""
    return _known(threading.Condition())


def renewed_in_child(renew: Callable[[], None], guard: Callable[[], Any] | None = None) -> None:
    """Let a forked child call ``renew``; nobody forks while another thread has the lock that ``guard`` returns."""
    _RENEWALS.append(_Renewal(renew, guard))


def _before() -> None:
    """Let nobody be in the middle of a change."""
    guards = [each.guard() for each in reversed(_RENEWALS) if each.guard is not None]
    for guard in guards:
        guard.acquire()
    _HELD[:] = guards


def _go_on() -> None:
    """Let go of the guards."""
    guards, _HELD[:] = list(_HELD), []
    for guard in guards:
        guard.release()


def _in_child() -> None:
    """Free all locks, and begin anew what other threads of the parent may have been changing, or had set for their time."""
    _go_on()
    for lock in [*_LOCKS, *_locks_of_modules()]:
        if not (hasattr(lock, "_is_owned") and lock._is_owned()):  # what this thread has, it lets go of itself
            lock._at_fork_reinit()
    for each in _RENEWALS:
        each.renew()
    if RESTING:
        RESTING.clear()
        gc.enable()


def _locks_of_modules() -> Iterator[Any]:
    """Locks that are variables of modules, and those that cached properties have up to Python 3.11 while they are computed."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "ooc_chol":
            continue
        for value in list(vars(module).values()):
            if isinstance(value, LOCK_TYPES):
                yield value
            elif sys.version_info < (3, 12) and isinstance(value, type) and value.__module__ == name:
                for each in list(vars(value).values()):
                    if isinstance(each, cached_property) and (lock := getattr(each, "lock", None)) is not None:
                        yield lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_go_on, after_in_child=_in_child)
