"""OpenBLAS's buffers, made before they are needed: where the system refuses one, OpenBLAS asks again without end, on a full core.

A call takes a buffer for its duration from a table of the library, which maps a new one when none is free. With as many as there
are threads that call, none is ever mapped inside of a call.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from pathlib import Path
from typing import Any, final
from weakref import WeakSet

import numpy as np
import threadpoolctl

from ooc_chol.process.address_space import check_room
from ooc_chol.process.fork_safety import new_lock, renewed_in_child

#: Bytes of a buffer: as the wheels of NumPy and SciPy are built, and as OpenBLAS is built by default.
WHEEL_BUFFER_BYTES, BUFFER_BYTES = 32 << 20, 128 << 20
_ADVICE = "compute on fewer cores (OPENBLAS_NUM_THREADS), or give a smaller memory_budget"


@cache
def blas_controllers() -> tuple[Any, ...]:
    """All BLAS libraries of the process, as threadpoolctl controls them; NumPy and SciPy have loaded theirs before this is asked.

    Looked for once: threadpoolctl reads the list of all mapped files, a millisecond or more, and a factorization asks five times.
    """
    return tuple(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers)


class _Caller:
    """A thread that calls, to which nobody else refers.

    Not Python's object of it: asked for that of a thread that it did not start, a GPU driver's say, Python makes one that stays.
    """


class _Library:
    """One OpenBLAS library: the threads that may be in a call of it at once, and the buffers that it is known to have."""

    def __init__(self, controller: Any) -> None:
        library = ctypes.CDLL(controller.filepath)
        self._buffer_bytes = WHEEL_BUFFER_BYTES if "scipy_openblas" in Path(controller.filepath).name else BUFFER_BYTES
        self._take, self._give = library.blas_memory_alloc, library.blas_memory_free
        self._take.argtypes, self._take.restype = [ctypes.c_int], ctypes.c_void_p
        self._give.argtypes, self._give.restype = [ctypes.c_void_p], None
        self._controller, self._pool = controller, controller.num_threads
        self._callers: WeakSet[_Caller] = WeakSet()
        self._addresses: set[int] = set()

    def admit(self, caller: _Caller, *, has_forked: bool) -> None:
        """Count a thread among those that call, and let there be a buffer for each that lives, and for the library's own threads.

        These keep theirs, but give them back while calls are limited to fewer threads, and before a fork: then they are owed.
        """
        owed = self._pool if has_forked else max(0, self._pool - self._controller.num_threads)
        self._callers.add(caller)
        try:
            self._make(len(self._callers) + owed)
        except BaseException:
            self._callers.discard(caller)
            raise

    def _make(self, count: int) -> None:
        """Take buffers until ``count`` are known, and give them all back."""
        taken: list[int] = []
        try:
            while len(self._addresses) < count:
                check_room(self._buffer_bytes, "buffer of OpenBLAS for a thread", _ADVICE)
                taken.append(self._take(0))
                self._addresses.add(taken[-1])
        finally:
            for address in taken:
                self._give(address)


@final
class _Buffers:
    """The buffers of all libraries of the process."""

    def __init__(self) -> None:
        self._taking = new_lock()
        self._admitted = threading.local()
        self._has_forked = False

    def ensure(self, level: int) -> None:
        """Let the calling thread's calls find theirs: of level 1 those of SciPy's library, of level 2 those of NumPy's, too."""
        if getattr(self._admitted, "level", 0) >= level:
            return
        caller = getattr(self._admitted, "caller", None) or _Caller()
        with self._taking:
            for library in _libraries()[level - 1]:
                library.admit(caller, has_forked=self._has_forked)
        self._admitted.caller, self._admitted.level = caller, level

    def after_fork(self) -> None:
        """Begin anew in a child, which has one thread."""
        self._admitted, self._has_forked = threading.local(), True


_BUFFERS = _Buffers()
renewed_in_child(_BUFFERS.after_fork)


@cache
def _libraries() -> tuple[tuple[_Library, ...], tuple[_Library, ...]]:
    """OpenBLAS libraries that SciPy calls, and all that are loaded."""
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


def ensure(*, numpys: bool = False) -> None:
    """Let the calling thread's BLAS calls find their buffer, NumPy's too with ``numpys``; nearly free after the first call."""
    _BUFFERS.ensure(2 if numpys else 1)
