"""The threads of a call: daemons all, started where there is room for them, and waited for unless the user's code holds them.

An interrupt reaches the main thread between any two steps. So what a thread runs must not depend on anybody's cleaning up: it
ends when it is told to, or when those who could tell it are gone; and no thread keeps a process from ending.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, final

from ooc_chol.errors import BudgetError
from ooc_chol.process import blas_buffers
from ooc_chol.process.address_space import USERS_NOTE, check_room, stack_bytes

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds for which a thread that is inside the user's code is waited for once the run is over.
GRACE_SECONDS = 0.5
#: Seconds after which one who waits looks up. A signal that comes between Python's last look and the system's wait wakes nobody.
LOOK_SECONDS = 0.1
#: Its attribute ``thread`` is, on each thread of ours, that thread. Asked for the object of a GPU driver's thread, Python would
#: make one that stays.
_here = threading.local()
_ADVICE = "compute on fewer cores (OPENBLAS_NUM_THREADS), or give a smaller memory_budget"


@final
class OwnThread(threading.Thread):
    """A daemon that runs a function; ``is_lent`` says whether it is inside the user's code now."""

    def __init__(self, run: Callable[..., None], arguments: tuple[Any, ...], name: str) -> None:
        super().__init__(target=self._call, args=(run, arguments), name=f"ooc_chol {name}", daemon=True)
        self.is_lent = False
        self._has_returned = False
        self._returned: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._process = os.getpid()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until a thread that was started has ended, or for so long; returns whether it has.

        ``join`` will not do: up to Python 3.12, one that an interrupt cuts short takes the thread for ended.
        """
        while not self._has_returned:
            if self._process != os.getpid():
                return True  # it runs in the process that this one was forked from
            try:
                self._returned.get(timeout=LOOK_SECONDS if seconds is None else seconds)
            except queue.Empty:
                if seconds is not None:
                    return False
        self._returned.put(None)  # for the next one who waits
        self.join(GRACE_SECONDS)  # it has nothing left to do
        return True

    def _call(self, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Run the function, and say that the thread has returned whatever happens."""
        _here.thread = self
        try:
            run(*arguments)
        finally:
            self._has_returned = True
            self._returned.put(None)


def start(thread: threading.Thread) -> None:
    """Start a thread; raises ``BudgetError`` where there is no room for its stack, or the system starts no more."""
    check_room(stack_bytes(), f"stack of thread {thread.name!r}", _ADVICE)
    try:
        thread.start()
    except RuntimeError as error:
        advice = f"the system starts no more threads (ulimit -u, pids.max); {_ADVICE}"
        raise BudgetError(f"thread {thread.name!r}", stack_bytes(), 0, advice) from error


def start_among(threads: list[OwnThread], thread: OwnThread) -> None:
    """Start a thread that belongs to others, of which it is one only if it could start."""
    threads.append(thread)  # before it starts: whenever an interrupt comes, it is told to end
    try:
        start(thread)
    except Exception:  # it could not start
        threads.remove(thread)
        raise


def wait_out(threads: Sequence[OwnThread]) -> None:
    """Wait for threads that were told to end, but no longer than :data:`GRACE_SECONDS` for the user's code in one."""
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in threads:
        while thread.ident is not None and not thread.wait(LOOK_SECONDS):
            if thread.is_lent and time.monotonic() > deadline:
                break


@contextmanager
def called_beside(function: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """Call a function on a thread of its own while a ``with`` block runs, as while GPUs factor.

    Parameters
    ----------
    function : callable
        It is called once, as ``function()``.

    Yields
    ------
    callable
        It waits for the function, and returns what that returned, or raises what it raised. The block's end waits for it, too.

    Raises
    ------
    BudgetError
        The system has no room for the stack of another thread, or starts no more.

    Examples
    --------
    >>> import ooc_chol.toolbox as tb
    >>> with tb.called_beside(lambda: sum(range(10))) as total:
    ...     total()
    45
    """
    results, errors = list[Result](), list[BaseException]()

    def call() -> None:
        try:
            blas_buffers.ensure(numpys=True)
            results.append(function())
        except BaseException as error:  # raised by who asks
            errors.append(error)

    def result() -> Result:
        thread.wait()
        if errors:
            raise errors[0]
        return results[0]

    thread = OwnThread(call, (), "beside")
    start(thread)
    try:
        yield result
    finally:
        thread.wait()


def take(items: queue.SimpleQueue[Item]) -> Item:
    """Wait for the next of ``items``, as their ``get`` does; but an interrupt is seen at once, or at the next look."""
    while True:
        try:
            return items.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            continue


@final
class UsersCode:
    """Wraps every call of the user's code by which A's entries come: nobody waits for ever for a thread inside."""

    __slots__ = ("_thread",)

    def __enter__(self) -> None:
        blas_buffers.ensure(numpys=True)
        self._thread: OwnThread | None = getattr(_here, "thread", None)
        if self._thread is not None:
            self._thread.is_lent = True

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._thread is not None:
            self._thread.is_lent = False
        if isinstance(error, MemoryError):
            error.add_note(USERS_NOTE)
