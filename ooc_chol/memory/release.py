"""Memory that nobody uses any more, page-locked or of a GPU: kept for a while for the next call, then freed in the background."""

from __future__ import annotations

import atexit
import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import BudgetError
from ooc_chol.memory import locking
from ooc_chol.memory.locking import PAUSE, PieceLocks
from ooc_chol.memory.pages import forget
from ooc_chol.process.fork_safety import new_condition, renewed_in_child
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.process.threads import LOOK_SECONDS, OwnThread, start

#: Seconds for which memory is kept for the next call, and how many times as much as it needs that takes at most.
GRACE_SECONDS, MOST_EXCESS = 2.0, 2
#: Seconds for which nothing is unlocked beside calls that launch kernels, and for which the next one is waited for.
STANDING_SECONDS, BETWEEN_SECONDS = 60.0, 0.2
#: Seconds for which the end of the process waits for the piece that is being unlocked.
_EXIT_SECONDS = 0.5


class MemoryBlock:
    """An allocation, of which the first ``nbytes`` bytes are in use and the rest is room, and what of it is page-locked.

    Shapes: ``memory`` (n,), all of it.
    """

    #: Whether whoever asks for memory may have it, once it waits for its release; others are taken by name.
    is_anyones = True

    def __init__(self, memory: NDArray[np.uint8], nbytes: int | None = None) -> None:
        self.memory: NDArray[np.uint8] = memory
        #: Bytes that were asked for: no others were ever touched.
        self.nbytes = memory.size if nbytes is None else nbytes
        self.locks: PieceLocks | None = None
        #: The list that it is in, of who has it; None while it waits for its release.
        self.holder: list[MemoryBlock] | None = None
        self.due = 0.0

    @property
    def waits(self) -> bool:
        """True of a block that waits for its release, as it is page-locked by us; others are freed at once."""
        return self.locks is not None and self.locks.is_ours

    def tell_to_stop(self) -> None:
        """Lock nothing more."""
        assert self.locks is not None  # it waits
        self.locks.tell_to_stop()

    def activate(self) -> None:
        """Make its device the current one of the thread that releases it."""
        assert self.locks is not None  # it waits
        self.locks.activate()

    def grow(self, nbytes: int) -> bool:
        """Use so many bytes from now on, unless it has them already; False where there is no room."""
        if has_room := nbytes <= self.memory.size:
            self.nbytes = max(self.nbytes, nbytes)
        return has_room

    def parted(self, nbytes: int) -> MemoryBlock | None:
        """Keep so many bytes, and what is page-locked together with the last of them; the rest as a block of its own, if any."""
        if self.locks is None or (locks := self.locks.parted(nbytes)) is None:
            return None
        kept = locks.memory.ctypes.data - self.memory.ctypes.data
        rest = MemoryBlock(locks.memory, self.nbytes - kept)
        rest.locks, self.memory, self.nbytes = locks, self.memory[:kept], kept
        return rest

    def unlock(self) -> None:
        """Unlock at once what somebody goes on using."""
        if self.locks is not None and self.locks.is_ours:
            self.locks.close()

    def release(self, pause: Callable[[float], bool]) -> bool:
        """Unlock and give back piece by piece, with ``pause(seconds)`` after one that took so long, as long as that is true.

        Returns whether all is released. The end of the mapping is quick then; it would hold the interpreter lock.
        """
        if self.locks is None:
            return True
        base = self.memory.ctypes.data
        for piece, seconds in self.locks.unlocking():
            forget(self.memory[piece.low - base : piece.high - base])
            if not pause(seconds):
                return False
        return True


class DeviceMemoryBlock(MemoryBlock):
    """Memory of devices, as a block that waits for its release: nobody else's, and none of the host's."""

    is_anyones = False

    def __init__(self) -> None:
        super().__init__(np.empty(0, np.uint8))

    @property
    def waits(self) -> bool:
        return True

    def tell_to_stop(self) -> None:
        pass

    def activate(self) -> None:
        pass


def _best(blocks: Iterable[MemoryBlock], nbytes: int) -> MemoryBlock | None:
    """The block that serves best who asks for so many bytes: the smallest that has them, else the largest that has room.

    For less than a piece no block is parted, which would be more than twice as much.
    """
    most = MOST_EXCESS * nbytes if nbytes < locking.PIECE_BYTES else inf
    fitting = (block for block in blocks if block.is_anyones and nbytes <= block.memory.size and block.nbytes <= most)
    return min(fitting, key=lambda block: (block.nbytes < nbytes, abs(block.nbytes - nbytes)), default=None)


def _due(block: MemoryBlock) -> float:
    return block.due


@final
class Releaser:
    """Takes blocks over from those who need them no more. One thread works, and ends when nothing is left."""

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.grace_seconds = grace_seconds
        # One thread may take it twice: a factor that nobody holds any more is given up wherever Python collects garbage.
        self._changed = new_condition()
        self._pending: list[MemoryBlock] = []
        self._releasing: list[MemoryBlock] = []
        self._thread: OwnThread | None = None
        self._in_haste = 0  # those who wait for the memory
        self._calls = 0  # that launch kernels now, one after the other since `_standing_since`; or the last one ended
        self._standing_since = self._standing_until = 0.0
        self._is_ending = False

    @property
    def pending_bytes(self) -> int:
        """Bytes that are free for whoever asks: kept, or being released."""
        with self._changed:
            return sum(block.nbytes for block in (*self._pending, *self._releasing) if block.is_anyones)

    @contextmanager
    def standing_back(self) -> Iterator[None]:
        """Unlock nothing inside the ``with`` block, for a minute at most, unless somebody waits for the memory.

        Who launches kernels waits for the driver's lock else, a third of the time.
        """
        with self._changed:
            now = time.monotonic()
            if not self._calls and now > self._standing_until:
                self._standing_since = now
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._standing_until = time.monotonic() + BETWEEN_SECONDS
                self._changed.notify_all()

    def _standing_seconds(self, now: float) -> float:
        """For how long calls keep memory from being unlocked; not positive where they do not."""
        if self._in_haste:
            return 0.0
        most = self._standing_since + STANDING_SECONDS
        return (most if self._calls else min(most, self._standing_until)) - now

    def hand_over(self, held: list[MemoryBlock], grace_seconds: float | None = None) -> None:
        """Empty ``held``: blocks that are page-locked are kept and then released, others are freed at once. Returns at once.

        They are kept for ``grace_seconds``, by default those of all. A block that has another holder by now, as after an
        interrupted call, is left to that one.
        """
        grace = self.grace_seconds if grace_seconds is None else grace_seconds
        for block in held:
            if block.holder is not held or not block.waits:
                continue
            block.tell_to_stop()
            with self._changed:
                block.due = time.monotonic() + grace
                self._line_up(block)
                block.holder = None
                self._changed.notify_all()
            self._start()
        held.clear()

    def take_back(self, nbytes: int, held: list[MemoryBlock]) -> bool:
        """Put into ``held`` the block that waits and serves best who asks for ``nbytes`` bytes, if there is one.

        Of one with more than twice as many the rest is left, to wait anew.
        """
        if not self._pending:  # as nearly always
            return False
        with self._changed:
            if (block := _best(self._pending, nbytes)) is None:
                return False
            self._take(block, held)
            block.grow(nbytes)
        if block.nbytes > MOST_EXCESS * nbytes and block.locks is not None:
            block.locks.stop()
            with HeldInterrupts():
                if (rest := block.parted(nbytes)) is not None:
                    rest.holder = left = [rest]
                    self.hand_over(left)
        return True

    def take_named(self, is_named: Callable[[MemoryBlock], bool], held: list[MemoryBlock], grace_seconds: float) -> bool:
        """Put into ``held`` the first block that waits, is nobody else's and ``is_named``, if there is one.

        Others of that kind are likely to be asked for next, and are kept for ``grace_seconds`` from now on.
        """
        with self._changed:
            named = [block for block in self._pending if not block.is_anyones]
            wanted = next(filter(is_named, named), None)
            if wanted is None:
                return False
            self._take(wanted, held)
            for block in named:
                block.due = max(block.due, time.monotonic() + grace_seconds)
            self._pending.sort(key=_due)
            return True

    def hasten_named(self) -> None:
        """Let blocks that are taken by name be released next: nobody will ask for them. Returns at once."""
        with self._changed:
            for block in self._pending:
                block.due = block.due if block.is_anyones else 0.0
            self._pending.sort(key=_due)
            self._changed.notify_all()

    def _line_up(self, block: MemoryBlock) -> None:
        """Let a block wait behind those that are due before it."""
        if block in self._pending:
            self._pending.remove(block)
        insort(self._pending, block, key=_due)

    def _take(self, block: MemoryBlock, held: list[MemoryBlock]) -> None:
        """Give a block that waits to who holds ``held``."""
        block.holder = held
        self._pending.remove(block)
        held.append(block)

    def make_room(self, nbytes: int, free: int) -> None:
        """Release all at once where ``nbytes`` bytes are asked for, and what the best block lacks of them is not ``free``."""
        with self._changed:
            best = _best(self._pending, nbytes)
        if nbytes - (0 if best is None else best.nbytes) > free:
            self.release_now()

    def release_now(self) -> None:
        """Release all that waits, and return when it is free."""
        with self._changed:
            self._in_haste += 1
            self._changed.notify_all()
        try:
            while (block := self._next(is_due=True)) is not None:
                self._release(block)
            with self._changed:
                while self._releasing:  # by the thread
                    self._changed.wait(LOOK_SECONDS)
        finally:
            with self._changed:
                self._in_haste -= 1

    def _next(self, *, is_due: bool = False) -> MemoryBlock | None:
        """Take out a block to be released: the oldest one, if it is due."""
        with self._changed:
            if not self._pending or self._is_ending or not (is_due or self._due_seconds() <= 0):
                return None
            self._releasing.append(self._pending[0])
            return self._pending.pop(0)

    def _due_seconds(self) -> float:
        """Seconds until the first block is to be released."""
        now = time.monotonic()
        return max(self._pending[0].due - now, self._standing_seconds(now))

    def _release(self, block: MemoryBlock) -> None:
        """Release one block; an interrupt leaves what is left of it for the next time."""
        is_released = False
        try:
            is_released = block.release(self._pause)
        finally:
            with self._changed:
                if not is_released:
                    self._line_up(block)
                self._releasing.remove(block)
                self._changed.notify_all()

    def _pause(self, seconds: float) -> bool:
        """Let those who launch have the driver's lock, twice as long as a piece took and through a call, unless memory is wanted.

        Returns whether to go on with the next piece.
        """
        until = time.monotonic() + PAUSE * seconds
        with self._changed:
            while not self._in_haste and (left := max(until - (now := time.monotonic()), self._standing_seconds(now))) > 0:
                self._changed.wait(left)
        return not self._is_ending

    def _start(self) -> None:
        """Let there be a thread while something waits; without room for one, release at once."""
        with self._changed:
            if self._thread is not None or self._is_ending:
                return
            self._thread = OwnThread(self._work, (), "releaser")
            try:
                start(self._thread)
                return
            except BudgetError:
                self._thread = None
            except BaseException:  # an interrupt, before or after the system started it
                if not self._thread.is_alive():
                    self._thread = None
                raise
        self.release_now()

    def _work(self) -> None:
        """Release what is due until nothing waits; the thread's body."""
        try:
            while True:
                with self._changed:
                    if not self._pending or self._is_ending:
                        self._thread = None  # within the lock: who hands over next starts another
                        return
                    if (left := self._due_seconds()) > 0:
                        self._changed.wait(left)
                if (block := self._next()) is not None:
                    block.activate()
                    self._release(block)
                    del block
        except BaseException:  # the driver's: what is left is tried again with what is handed over next
            with self._changed:
                self._thread = None
            raise

    def end(self) -> None:
        """Release nothing more, as the process ends, but wait for the piece at hand: no thread may be inside the driver then."""
        with self._changed:
            self._is_ending, self._in_haste = True, 1
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.wait(_EXIT_SECONDS)

    def renew(self) -> None:
        """Forget what is the parent's: a child has no part in what its parent locked, and no thread of it."""
        self.__init__(self.grace_seconds)


#: All memory of the process that waits to be released.
RELEASER = Releaser()
atexit.register(RELEASER.end)
renewed_in_child(RELEASER.renew, lambda: RELEASER._changed)
