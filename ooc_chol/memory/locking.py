"""Host memory that is page-locked piece by piece, in the order of its use, by threads, while a run goes on.

Measurements on an H200's host decide on how it is done. Page faults are what takes long and what several
threads do faster, while the driver registers no faster by several: so a team touches pieces, and one thread registers those that
are touched. Touching disturbs nobody. Registering holds the driver's lock, which is not fair: without pauses the thread that
launches waits for a hundred pieces. So pieces are small, and pauses are twice as long as what they follow, unless the launching
thread waits for a piece anyway. A copy must not cross two registrations: who copies bytes of several pieces cuts there. So
pieces know nothing of tiles, and those that are locked serve any later layout.
"""

from __future__ import annotations

import os
import queue
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES
from ooc_chol.errors import OocCholError, TierError
from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar, LockState
from ooc_chol.memory.pages import HUGE_PAGE_BYTES, touch
from ooc_chol.process.fork_safety import new_condition
from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.process.threads import LOOK_SECONDS, OwnThread, start, take, wait_out

#: Bytes of a piece, 1.4 ms of the driver's lock on an H200's host; fewer where all is little, so that several threads touch.
PIECE_BYTES, LEAST_PIECE_BYTES = 64 << 20, 4 << 20
#: Most threads that touch.
TOUCHING_THREADS = 16
#: Pause after a registration, in units of its duration.
PAUSE = 2.0

#: What is page-locked, by its first address: whatever is interrupted, memory goes back to the system only once it is unlocked.
#: The driver would take for locked what is mapped at that address later, and copy to pages that are nobody's.
_KEPT: dict[int, object] = {}


@dataclass
class Piece:
    """Addresses from ``low`` to before ``high``, which are locked together."""

    low: int
    high: int
    state: LockState = LockState.UNDECIDED


_LOW = attrgetter("low")


def bands(starts: NDArray[np.int64], high: int, most: int) -> list[Piece]:
    """Runs of whole bands, which begin at ``starts``, ascending, and end at ``high``: each of ``most`` bytes, or a band more."""
    bounds = [int(starts[0])]
    while (at := int(np.searchsorted(starts, bounds[-1] + most))) < len(starts):
        bounds.append(int(starts[at]))
    return [Piece(low, high) for low, high in pairwise([*bounds, high])]


def completed(kept: Iterable[Piece], low: int, high: int, most: int) -> list[Piece]:
    """``kept``, which are ascending, and pieces of at most ``most`` bytes for all else from ``low`` to before ``high``."""
    found, at = [], low
    for piece in (*kept, Piece(high, high)):
        until = min(piece.low, high)
        found += [Piece(start, min(start + most, until)) for start in range(at, until, most)]
        found += [piece] if piece.high > piece.low else []
        at = max(at, piece.high)
    return found


@final
class PieceLocks(AbstractLocking):
    """Page-locks memory in pieces; one run at a time begins it, and any number of threads may ask."""

    def __init__(
        self, registrar: AbstractRegistrar, memory: NDArray[Any], *, is_fresh: bool = False, piece_bytes: int | None = None
    ) -> None:
        self.waited_seconds = 0.0
        self._registrar, self.memory, self._is_fresh = registrar, memory, is_fresh
        self._piece_bytes = PIECE_BYTES if piece_bytes is None else piece_bytes
        self._base = memory.ctypes.data
        self._process = os.getpid()
        self._changed = new_condition()
        self._pieces: list[Piece] = []
        self._waiting = 0
        self._is_stopped = self._is_touching = False
        self._error: BaseException | None = None
        self._thread: OwnThread | None = None

    @property
    def is_ours(self) -> bool:
        """True if this process made it: in a child that was forked nothing is locked, and no thread runs."""
        return self._process == os.getpid()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces, ascending."""
        return tuple(self._pieces)

    @property
    def refused_bytes(self) -> int:
        return sum(piece.high - piece.low for piece in self._pieces if piece.state is LockState.REFUSED)

    def parted(self, nbytes: int) -> PieceLocks | None:
        """Keep the pieces that begin in so many bytes; the others, and the memory from the first of these on, if there are any.

        Nothing is being locked.
        """
        number = bisect_left(self._pieces, self._base + nbytes, key=_LOW)
        if number == len(self._pieces):
            return None
        kept = self._pieces[number].low - self._base
        rest = PieceLocks(self._registrar, self.memory[kept:], is_fresh=self._is_fresh, piece_bytes=self._piece_bytes)
        rest._pieces, self._pieces = self._pieces[number:], self._pieces[:number]
        self.memory = self.memory[:kept]
        return rest

    def begin(self, high: int, order: Iterable[tuple[int, int]], starts: NDArray[np.int64] | None = None) -> None:
        """Lock the memory up to address ``high``; does not wait for it.

        Pieces of an earlier call stay locked. What lies in the ranges of ``order``, first addresses and those behind the last,
        comes first. Pieces begin at any page, or at ``starts`` alone, of which there is no earlier call then.
        """
        self.stop()
        most = min(self._piece_bytes, max(LEAST_PIECE_BYTES, (high - self._base) // TOUCHING_THREADS))
        most -= most % (HUGE_PAGE_BYTES if most >= HUGE_PAGE_BYTES else PAGE_BYTES)
        if starts is None:
            kept = (piece for piece in self._pieces if piece.state is LockState.LOCKED)
            self._pieces = completed(kept, self._base, high, most)
        else:
            self._pieces = bands(starts, high, most)
        ordered = dict.fromkeys([*(number for ends in order for number in self._numbers(*ends)), *range(len(self._pieces))])
        undecided = [self._pieces[number] for number in ordered if self._pieces[number].state is LockState.UNDECIDED]
        self._is_stopped, self._error = False, None
        if undecided:
            self._thread = OwnThread(self._lock_all, (undecided,), "page-locker")
            start(self._thread)

    def _numbers(self, low: int, high: int) -> range:
        """The pieces that hold bytes between two addresses."""
        return range(max(0, bisect_right(self._pieces, low, key=_LOW) - 1), bisect_left(self._pieces, high, key=_LOW))

    def _between(self, low: int, high: int) -> Sequence[Piece]:
        """The pieces of all bytes between two addresses; none where some of them are in no piece."""
        number = bisect_right(self._pieces, low, key=_LOW) - 1
        if number >= 0 and low < high <= self._pieces[number].high:  # as nearly always
            return self._pieces[number : number + 1]
        numbers = self._numbers(low, high)
        pieces = self._pieces[numbers.start : numbers.stop]
        is_whole = pieces and pieces[0].low <= low and high <= pieces[-1].high
        return pieces if is_whole and all(one.high == other.low for one, other in pairwise(pieces)) else ()

    def holds(self, low: int, high: int, is_stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait until that is decided."""
        pieces = self._between(low, high)
        for piece in pieces:
            if piece.state is LockState.UNDECIDED:
                self._wait(piece, is_stopped)
        return bool(pieces) and all(piece.state in (LockState.LOCKED, LockState.FOUND) for piece in pieces)

    def cuts(self, low: int, high: int) -> Sequence[int]:
        return [piece.low for piece in self._between(low, high)[1:]]

    def _wait(self, piece: Piece, is_stopped: Callable[[], bool]) -> None:
        """Wait until ``piece`` is decided, or nobody will decide, or ``is_stopped()``."""
        began = time.perf_counter()
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()  # the locking thread pauses no longer: who launches waits for it
            try:
                while piece.state is LockState.UNDECIDED and self._error is None and not (self._is_stopped or is_stopped()):
                    self._changed.wait(LOOK_SECONDS)
            finally:
                self._waiting -= 1
                self.waited_seconds += time.perf_counter() - began
            error = self._error if piece.state is LockState.UNDECIDED else None
        if isinstance(error, OocCholError):
            raise error
        if error is not None:
            text = f"page-locking host memory failed ({error}): the run cannot go on; keep L in a file (store=)"
            raise TierError(text) from error

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def activate(self) -> None:
        """Prepare a thread that does nothing but unlock."""
        self._registrar.activate()

    def tell_to_stop(self) -> None:
        """Lock no further piece; :meth:`begin` goes on with those that are left. Returns at once."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Lock no further piece, and wait for the one that is being locked."""
        self.tell_to_stop()
        if self._thread is not None:
            wait_out([self._thread])
            self._thread = None

    def unlocking(self) -> Iterator[tuple[Piece, float]]:
        """Unlock piece by piece; tells each, also one that was not locked, and the seconds that it took."""
        self.stop()
        while self._pieces:
            piece, began = self._pieces[-1], time.perf_counter()
            if piece.state is LockState.LOCKED:
                self._unlock(piece)
            del self._pieces[-1]
            yield piece, time.perf_counter() - began

    def close(self) -> None:
        """Unlock all, also when it is interrupted."""
        try:
            self._unlock_all()
        except BaseException:
            self._unlock_all()
            raise

    def _unlock_all(self) -> None:
        for _ in self.unlocking():
            pass

    def _unlock(self, piece: Piece) -> None:
        piece.state = LockState.UNDECIDED  # before it is: an interrupt between the two leaves memory locked, and kept
        self._registrar.unregister(piece.low)
        _KEPT.pop(piece.low, None)

    def _lock_all(self, pieces: Sequence[Piece]) -> None:
        """Lock ``pieces`` one by one until told to stop; a thread's body, whose error is told to whoever waits."""
        try:
            self._registrar.activate()
            with closing(self._touched(pieces) if self._is_fresh else (piece for piece in pieces)) as ready:
                for piece in ready:
                    if self._is_stopped:
                        return
                    self._lock(piece)
        except BaseException as error:  # raised by those who wait
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _lock(self, piece: Piece) -> None:
        """Decide on one piece, and let others have the driver's lock for a while unless they wait for a piece."""
        began = time.monotonic()
        state = self._registrar.register(piece.low, piece.high - piece.low)
        if state is LockState.LOCKED:
            _KEPT[piece.low] = self.memory
        ended = time.monotonic()
        until = ended + PAUSE * (ended - began)
        with self._changed:
            piece.state = state
            self._changed.notify_all()
            while not (self._waiting or self._is_stopped) and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)

    def _touched(self, pieces: Sequence[Piece]) -> Generator[Piece, None, None]:
        """``pieces`` as they are touched, by threads that run ahead; a single one by this thread."""
        if len(pieces) == 1:
            touch(self._bytes_of(pieces[0]))
            yield pieces[0]
            return
        ready: queue.SimpleQueue[Piece | BaseException] = queue.SimpleQueue()
        toucher = OwnThread(self._touch_all, (pieces, ready), "toucher")
        self._is_touching = True
        try:
            start(toucher)
            for _ in pieces:
                piece = take(ready)
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            self._is_touching = False  # not stopped: an error of this thread is still to be told to who waits
            wait_out([toucher])

    def _touch_all(self, pieces: Sequence[Piece], ready: queue.SimpleQueue[Piece | BaseException]) -> None:
        """Touch pieces by a team, each by one thread: more but shorter pieces of work would hold up who launches."""
        try:
            with closing(ThreadTeam(min(TOUCHING_THREADS, cores(), len(pieces)))) as team:
                team.run([partial(self._touch, piece, ready) for piece in pieces])
        except BaseException as error:  # raised by the thread that locks
            ready.put(error)

    def _touch(self, piece: Piece, ready: queue.SimpleQueue[Piece | BaseException]) -> None:
        if self._is_touching and not self._is_stopped:
            touch(self._bytes_of(piece))
        ready.put(piece)

    def _bytes_of(self, piece: Piece) -> NDArray[np.uint8]:
        """The bytes of a piece of fresh memory."""
        return self.memory[piece.low - self._base : piece.high - self._base]
