"""OpenBLAS's buffers, made before they are needed: where the system refuses one, OpenBLAS asks again without end, on a full core.

A call takes a buffer for its duration from a table of the library, which maps a new one when none is free. With as many as there
are threads that call, none is ever mapped inside of a call.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import threadpoolctl

from ooc_chol.room import check_room

#: Bytes of a buffer: as the wheels of NumPy and SciPy are built, and as OpenBLAS is built by default.
WHEEL_BUFFER_BYTES, BUFFER_BYTES = 32 << 20, 128 << 20
_ADVICE = "compute on fewer cores (OPENBLAS_NUM_THREADS), or give a smaller memory_budget"


class _Users(NamedTuple):
    """Who may be in a call of a library at once, and the buffers that it is known to have."""

    threads: WeakSet[threading.Thread]
    addresses: set[int]


@cache
def blas_controllers() -> tuple[Any, ...]:
    """All BLAS libraries of the process, as threadpoolctl controls them; NumPy and SciPy have loaded theirs before this is asked.

    Looked for once: threadpoolctl reads the list of all mapped files, a millisecond or more, and a factorization asks five times.
    """
    return tuple(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers)


class _Library:
    """One OpenBLAS."""

    def __init__(self, controller: Any) -> None:
        library = ctypes.CDLL(controller.filepath)
        self.buffer_bytes = WHEEL_BUFFER_BYTES if "scipy_openblas" in Path(controller.filepath).name else BUFFER_BYTES
        self._take, self._give = library.blas_memory_alloc, library.blas_memory_free
        self._take.argtypes, self._take.restype = [ctypes.c_int], ctypes.c_void_p
        self._give.argtypes, self._give.restype = [ctypes.c_void_p], None
        self._users = _Users(WeakSet(), set())

    def admit(self, thread: threading.Thread) -> None:
        """Count a thread among those that call, and let there be a buffer for each that lives."""
        self._users.threads.add(thread)
        try:
            self._make(sum(each.is_alive() for each in self._users.threads))
        except BaseException:
            self._users.threads.discard(thread)
            raise

    def _make(self, count: int) -> None:
        """Take buffers until ``count`` are known, and give them all back."""
        taken: list[int] = []
        try:
            while len(self._users.addresses) < count:
                check_room(self.buffer_bytes, "buffer of OpenBLAS for a thread", _ADVICE)
                taken.append(self._take(0))
                self._users.addresses.add(taken[-1])
        finally:
            for address in taken:
                self._give(address)


@cache
def _libraries() -> tuple[tuple[_Library, ...], tuple[_Library, ...]]:
    """The libraries of SciPy alone, and all."""
    package = Path(np.__file__).resolve().parent
    own = (package, package.parent / "numpy.libs")
    every: list[_Library] = []
    scipys: list[_Library] = []
    for controller in blas_controllers():
        if controller.internal_api != "openblas" or not hasattr(ctypes.CDLL(controller.filepath), "blas_memory_alloc"):
            continue  # no other library is known to ask without end
        every.append(_Library(controller))
        if len(blas_controllers()) == 1 or not any(folder in Path(controller.filepath).resolve().parents for folder in own):
            scipys.append(every[-1])
    return tuple(scipys), tuple(every)


#: Only one thread at a time takes buffers.
_TAKING = threading.Lock()
_admitted = threading.local()


def ensure(*, numpys: bool = False) -> None:
    """Let the calling thread's BLAS calls find their buffer.

    Parameters
    ----------
    numpys : bool
        Whether NumPy's library is called, too, and not only SciPy's.

    Raises
    ------
    BudgetError
        There is no room for a buffer.

    Notes
    -----
    A look at a variable of the thread, but for its first call.
    """
    level = 2 if numpys else 1
    if getattr(_admitted, "level", 0) >= level:
        return
    with _TAKING:
        for library in _libraries()[level - 1]:
            library.admit(threading.current_thread())
    _admitted.level = level
