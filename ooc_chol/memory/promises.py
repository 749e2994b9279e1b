"""Promises between the calls of one process: memory that was promised to a run and is not in use yet."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import final
from weakref import WeakKeyDictionary

from ooc_chol.memory.pages import resident_bytes
from ooc_chol.process.fork_safety import new_rlock, renewed_in_child


@final
class Promises:
    """Bytes of memory that runs will use, by the calls that they belong to; any thread may ask.

    The system counts memory as free until it is touched: two runs that ask it at once are both told that all of it is theirs.
    """

    def __init__(self) -> None:
        # A call may take it twice: a garbage collector's work may begin anywhere.
        self._lock = new_rlock()
        self._calls = 0
        self._bytes: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._resident_before = 0

    def call(self) -> AbstractContextManager[None]:
        """Count a call that will ask for a share of what is free, for the time of a block."""
        return _Call(self)

    def begin(self) -> None:
        """Count a call more."""
        with self._lock:
            self._calls += 1

    def end(self) -> None:
        """Count a call less; a child may have begun anew since."""
        with self._lock:
            self._calls = max(0, self._calls - 1)

    @property
    def calls(self) -> int:
        """Calls that share what is free, one at least."""
        return max(1, self._calls)

    def promise(self, owner: object, nbytes: int) -> None:
        """Note that ``owner`` will use so many bytes, until :meth:`give_back`."""
        with self._lock:
            if not self._bytes:
                self._resident_before = resident_bytes(own=True)
            self._bytes[owner] = nbytes

    def give_back(self, owner: object) -> None:
        """Forget what was promised to ``owner``, if anything was."""
        with self._lock:
            self._bytes.pop(owner, None)

    @property
    def nbytes(self) -> int:
        """Bytes that are promised and not in use yet: the system counts them as free.

        In use is what the process has more in memory than before the first of the promises that are open; where the system does
        not tell, all that is promised counts.
        """
        with self._lock:
            promised = sum(self._bytes.values())
            return max(0, promised - max(0, resident_bytes(own=True) - self._resident_before)) if promised else 0

    def renew(self) -> None:
        """Begin anew in a child: no call of the parent goes on here."""
        self.__init__()


@final
class _Call(AbstractContextManager[None]):
    """A call that is counted."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises

    def __enter__(self) -> None:
        self._promises.begin()

    def __exit__(self, *error: object) -> None:
        self._promises.end()


#: Those of host memory.
HOST_PROMISES = Promises()
renewed_in_child(HOST_PROMISES.renew, lambda: HOST_PROMISES._lock)
