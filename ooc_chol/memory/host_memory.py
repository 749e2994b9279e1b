"""Host memory that one factor after the other takes for L."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES
from ooc_chol.errors import BudgetError

#: Page-locks an array inside a ``with`` block.
PageLock = Callable[[NDArray[np.uint8]], AbstractContextManager[None]]


@final
class HostMemory:
    """Memory for L that many factorizations use, one after the other: ``cholesky(A, store=memory)``.

    A factor gives the memory back when it is closed. It is allocated by the first factorization, and anew by one that needs more.

    Raises
    ------
    ValueError
        By ``cholesky``, when the factor of an earlier call that uses this memory is still open.
    BudgetError
        By ``cholesky``, when the system does not grant as much memory as L takes.

    Notes
    -----
    For a GPU a new allocation is touched and page-locked, which takes as long as a third of a factorization of order 124,769
    (docs/measurements.md).

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> with oc.HostMemory() as memory:
    ...     for scale in (1.0, 4.0):
    ...         with oc.cholesky(scale * np.eye(2), store=memory) as factor:
    ...             print(round(factor.logdet(), 4))
    0.0
    2.7726
    """

    def __init__(self) -> None:
        self._bytes: NDArray[np.uint8] | None = None
        self._user: weakref.ref[object] | None = None
        self._locks = ExitStack()
        self._is_locked = False
        # What was page-locked must not stay so when the memory is forgotten; at the end of the process nobody minds.
        weakref.finalize(self, self._locks.close).atexit = False

    @property
    def nbytes(self) -> int:
        """Bytes allocated now; 0 before the first factorization and after :meth:`close`."""
        return 0 if self._bytes is None else self._bytes.size

    def take(self, user: object, nbytes: int) -> NDArray[np.uint8]:
        """Lend memory to ``user``, until it gives it back or is forgotten; ``cholesky`` does this.

        Parameters
        ----------
        user : object
            The store that takes the memory; only a weak reference to it is kept.
        nbytes : int
            Bytes that it needs.

        Returns
        -------
        (nbytes,) array
            Uninitialised bytes, uint8, that begin at a page.

        Raises
        ------
        ValueError
            Another user, which is still alive, has the memory.
        BudgetError
            The system does not grant that many bytes.
        """
        if self._user is not None and self._user() is not None:
            raise ValueError("this HostMemory holds the L of a factor that is open: close that first, or give another")
        if nbytes > self.nbytes:
            self.close()
            self._bytes = allocate_aligned(nbytes)
        assert self._bytes is not None  # a store has at least one tile
        self._user = weakref.ref(user)
        return self._bytes[:nbytes]

    def give_back(self) -> None:
        """End the loan, so that the next factorization can take the memory; closing a factor does this."""
        self._user = None

    def lock(self, page_lock: PageLock) -> None:
        """Page-lock the allocation as long as it lasts; a second call for one allocation does nothing.

        Parameters
        ----------
        page_lock : callable
            Function of the allocation, a uint8 array, that returns a context manager in which its pages are locked.
        """
        if self._bytes is not None and not self._is_locked:
            self._locks.enter_context(page_lock(self._bytes))
            self._is_locked = True

    def close(self) -> None:
        """Unlock and free the memory; a later factorization allocates it anew."""
        self._locks.close()
        self._is_locked = False
        self._bytes = None

    def __enter__(self) -> HostMemory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def allocate_aligned(nbytes: int) -> NDArray[np.uint8]:
    """``nbytes`` uninitialised bytes that start at a page."""
    try:
        raw = np.empty(nbytes + PAGE_BYTES, dtype=np.uint8)
    except MemoryError as error:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        advice = "keep L in a file (store=) or over A (overwrite=True)"
        raise BudgetError("host memory for L", nbytes, free, advice) from error
    skip = -raw.ctypes.data % PAGE_BYTES
    return raw[skip : skip + nbytes]
