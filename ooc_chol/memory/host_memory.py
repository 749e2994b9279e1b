"""Host memory that one factor after the other takes for L, or one matrix after the other for its blocks."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar
from ooc_chol.memory.locking import PieceLocks
from ooc_chol.memory.pages import FOR_L, Purpose, allocate_with_room
from ooc_chol.memory.release import RELEASER, MemoryBlock
from ooc_chol.process.closing import AbstractClosing


@final
class HostMemory(AbstractClosing):
    """Memory for L that many factorizations use, one after the other: ``cholesky(A, store=memory)``.

    It may hold the blocks of a sparse matrix as well: ``block_csr(A, store=memory)``. A factor gives the memory back when it is
    closed. It is allocated by the first factorization, in huge pages where the system has them, and anew by one that needs
    more than twice as much.

    Parameters
    ----------
    spare : bool
        Let an L that would stay on GPUs without a ``store`` stay there; the memory holds those that do not.

    Raises
    ------
    ValueError
        By ``cholesky``, when the factor of an earlier call that uses this memory is still open.
    BudgetError
        By ``cholesky``, when the system does not grant as much memory as L takes.

    Notes
    -----
    For a GPU the memory is touched and page-locked in pieces, in the order in which L is written, while the run goes on, and
    stays locked for the next factorization, whatever its tiles. :meth:`close` hands locked memory to a thread, which keeps it for
    2 seconds for another factorization, which takes what it needs of it, or at most doubles it, and then unlocks and frees it.
    Memory that is not locked is freed at once.

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

    def __init__(self, *, spare: bool = False) -> None:
        self.is_spare = spare
        #: The allocation, while there is one.
        self._held: list[MemoryBlock] = []
        self._user: weakref.ref[object] | None = None
        # What was page-locked must not stay so when the memory is forgotten; at the end of the process nobody minds.
        weakref.finalize(self, RELEASER.hand_over, self._held).atexit = False

    @property
    def nbytes(self) -> int:
        """Bytes allocated now; 0 before the first factorization and after :meth:`close`."""
        return sum(block.nbytes for block in self._held)

    def take(self, user: object, nbytes: int, purpose: Purpose = FOR_L) -> NDArray[np.uint8]:
        """Lend memory to ``user``, until it gives it back or is forgotten; ``cholesky`` and ``block_csr`` do this.

        Parameters
        ----------
        user : object
            The store that takes the memory; only a weak reference to it is kept.
        nbytes : int
            Bytes that it needs; those that it never touches take no memory.
        purpose : Purpose
            Purpose, in the words of the error.

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
            raise ValueError(
                "this HostMemory holds the L of a factor, or a matrix, that is open: close that first, or give another"
            )
        if nbytes > self.nbytes and not (self._held and self._held[0].grow(nbytes)):
            is_outgrown = bool(self._held)
            self.close()
            if not RELEASER.take_back(nbytes, self._held):
                if is_outgrown:
                    RELEASER.release_now()  # it is what the system may lack
                block = MemoryBlock(allocate_with_room(nbytes, nbytes, purpose), nbytes)
                block.holder = self._held
                self._held.append(block)
        self._user = weakref.ref(user)
        return self._held[0].memory[:nbytes]

    def give_back(self) -> None:
        """End the loan, so that the next factorization can take the memory; closing a factor does this."""
        self._user = None
        if self._held and (locks := self._held[0].locks) is not None and locks.is_ours:
            locks.tell_to_stop()

    def lock(self, registrar: AbstractRegistrar, end: int, order: Iterable[tuple[int, int]]) -> None:
        """Begin to page-lock the memory, and return at once; ``cholesky`` does this.

        Parameters
        ----------
        registrar : AbstractRegistrar
            Registrar that locks a piece.
        end : int
            First byte behind what is used.
        order : iterable of (int, int)
            Bytes in the order in which they are needed, each range by its first byte and the first behind it; all others come
            behind them.

        Notes
        -----
        What is locked from the last time stays so, whatever lies in it now.
        """
        block = self._held[0]
        if block.locks is None:
            block.locks = PieceLocks(registrar, block.memory, is_fresh=True)
        base = block.memory.ctypes.data
        block.locks.begin(base + end, [(base + low, base + high) for low, high in order])

    @property
    def locking(self) -> AbstractLocking | None:
        """Page locks of its pieces; None before :meth:`lock`."""
        return self._held[0].locks if self._held else None

    def close(self) -> None:
        """Give up the memory; a later factorization allocates it anew, or takes it back. Returns at once.

        Under a factor that is open the memory lasts as long as that, and is unlocked before this returns.
        """
        if self._user is not None and self._user() is not None:
            for block in self._held:
                block.unlock()
            self._held.clear()
        else:
            RELEASER.hand_over(self._held)

    def __repr__(self) -> str:
        is_lent = self._user is not None and self._user() is not None
        return one_line(self, {"nbytes": format_bytes(self.nbytes), "is_lent": is_lent})
