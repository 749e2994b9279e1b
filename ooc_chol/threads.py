"""The threads of a call: daemons all, started where there is room for them, and waited for unless the user's code holds them.

An interrupt reaches the main thread between any two steps. So what a thread runs must not depend on anybody's cleaning up: it
ends when it is told to, or when those who could tell it are gone; and no thread keeps a process from ending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from ooc_chol import blas_buffers
from ooc_chol.errors import BudgetError
from ooc_chol.room import USERS_NOTE, check_room, stack_bytes

#: Seconds for which a thread that is inside the user's code is waited for once the run is over.
GRACE_SECONDS = 0.5
_LOOKS_PER_GRACE = 10
_ADVICE = "compute on fewer cores (OPENBLAS_NUM_THREADS), or give a smaller memory_budget"


@final
class OwnThread(threading.Thread):
    """A daemon that runs a function.

    Parameters
    ----------
    run : callable
        What it runs.
    arguments : tuple
        With what.
    name : str
        Its name, after ``"ooc_chol "``.

    Attributes
    ----------
    is_lent : bool
        Whether it runs the user's code, which may never return.
    """

    def __init__(self, run: Callable[..., None], arguments: tuple[Any, ...], name: str) -> None:
        super().__init__(target=run, args=arguments, name=f"ooc_chol {name}", daemon=True)
        self.is_lent = False


def start(thread: threading.Thread) -> None:
    """Start a thread.

    Raises
    ------
    BudgetError
        There is no room for its stack, or the system has no threads left.
    """
    check_room(stack_bytes(), f"stack of thread {thread.name!r}", _ADVICE)
    try:
        thread.start()
    except RuntimeError as error:
        advice = f"the system starts no more threads (ulimit -u, pids.max); {_ADVICE}"
        raise BudgetError(f"thread {thread.name!r}", stack_bytes(), 0, advice) from error


def wait_out(threads: Sequence[threading.Thread]) -> None:
    """Wait until threads that were told to end have ended, but no longer than :data:`GRACE_SECONDS` for the user's code in one.

    Parameters
    ----------
    threads : sequence of Thread
        Those that never started are passed over.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in threads:
        while thread.is_alive() and (not is_lent(thread) or time.monotonic() < deadline):
            thread.join(GRACE_SECONDS / _LOOKS_PER_GRACE)


def is_lent(thread: threading.Thread) -> bool:
    """Whether the thread is one of ours and runs the user's code."""
    return isinstance(thread, OwnThread) and thread.is_lent


@contextmanager
def users_code() -> Iterator[None]:
    """Around every call of the user's code by which A's entries come: nobody waits for ever for a thread inside.

    Raises
    ------
    BudgetError
        There is no room for the buffer that a BLAS call of that code would need, and wait for without end.
    """
    blas_buffers.ensure(numpys=True)
    thread = threading.current_thread()
    if isinstance(thread, OwnThread):
        thread.is_lent = True
    try:
        yield
    except MemoryError as error:
        error.add_note(USERS_NOTE)
        raise
    finally:
        if isinstance(thread, OwnThread):
            thread.is_lent = False
