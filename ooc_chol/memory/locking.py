"""Host memory that is page-locked piece by piece, in the order of its use, by threads, while a run goes on.

Measurements on an H200's host (docs/measurements.md) decide on how it is done. Page faults are what takes long and what several
threads do faster, while the driver registers no faster by several: so a team touches pieces, and one thread registers those that
are touched. Touching disturbs nobody. Registering holds the driver's lock, which is not fair: without pauses the thread that
launches waits for a hundred pieces. So pieces are small, and pauses are twice as long as what they follow, unless the launching
thread waits for a piece anyway. And a copy must not cross two registrations: a piece is a run of whole tiles.
"""

from __future__ import annotations

import os
import queue
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import OocCholError, TierError
from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar, LockState
from ooc_chol.memory.pages import touch
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
    """A run of whole tiles: addresses from ``low`` to before ``high``."""

    low: int
    high: int
    state: LockState = LockState.UNDECIDED


def cut(starts: NDArray[np.int64], end: int, most: int) -> list[Piece]:
    """Cut what begins at ``starts``, ascending, and ends at ``end`` into pieces of ``most`` bytes, or up to a tile more."""
    bounds = [int(starts[0])]
    while (at := int(np.searchsorted(starts, bounds[-1] + most))) < len(starts):
        bounds.append(int(starts[at]))
    return [Piece(low, high) for low, high in zip(bounds, [*bounds[1:], end], strict=True)]


def fits(piece: Piece, starts: NDArray[np.int64], end: int) -> bool:
    """Tell whether no tile crosses a boundary of ``piece``, tiles beginning at ``starts`` and the last one ending at ``end``."""

    def is_between(address: int) -> bool:
        at = int(np.searchsorted(starts, address))
        return address >= end or (at < len(starts) and int(starts[at]) == address)

    return is_between(piece.low) and is_between(piece.high)


def completed(kept: Sequence[Piece], starts: NDArray[np.int64], end: int, most: int) -> list[Piece]:
    """``kept``, which fit and are ascending, and pieces for all tiles between them."""
    found: list[Piece] = []
    at = int(starts[0])
    for piece in (*kept, Piece(end, end)):
        gap = starts[(starts >= at) & (starts < min(piece.low, end))]
        if len(gap):
            found += cut(gap, min(piece.low, end), most)
        if piece.high > piece.low:
            found.append(piece)
        at = max(at, piece.high)
    return sorted(found, key=lambda piece: piece.low)


@final
class PieceLocks(AbstractLocking):
    """Page-locks memory in pieces; one run at a time begins it, and any number of threads may ask."""

    def __init__(
        self, registrar: AbstractRegistrar, memory: NDArray[Any], *, is_fresh: bool = False, piece_bytes: int | None = None
    ) -> None:
        self.waited_seconds = 0.0
        self._registrar, self._memory, self._is_fresh = registrar, memory, is_fresh
        self._piece_bytes = PIECE_BYTES if piece_bytes is None else piece_bytes
        self._base = memory.ctypes.data
        self._process = os.getpid()
        self._changed = new_condition()
        self._pieces: list[Piece] = []
        self._lows: list[int] = []
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

    def begin(self, starts: NDArray[np.int64], end: int, order: Sequence[int]) -> None:
        """Lock the tiles that begin at addresses ``starts``, ascending, the last one ending at ``end``; does not wait for it.

        Pieces of an earlier call stay locked, but for those that a tile would cross: they are unlocked first. Tiles of ``order``,
        addresses too, come first.
        """
        self.stop()
        for piece in self._pieces:
            if piece.state is LockState.LOCKED and not fits(piece, starts, end):
                self._unlock(piece)
        most = max(min(self._piece_bytes, LEAST_PIECE_BYTES), min(self._piece_bytes, (end - int(starts[0])) // TOUCHING_THREADS))
        kept = [piece for piece in self._pieces if piece.state is LockState.LOCKED]
        self._pieces = completed(kept, starts, end, most)
        self._lows = [piece.low for piece in self._pieces]
        ordered = dict.fromkeys([*map(self._number, order), *range(len(self._pieces))])
        undecided = [self._pieces[number] for number in ordered if self._pieces[number].state is LockState.UNDECIDED]
        self._is_stopped, self._error = False, None
        if undecided:
            self._thread = OwnThread(self._lock_all, (undecided,), "page-locker")
            start(self._thread)

    def _number(self, address: int) -> int:
        """The piece that may hold an address; -1 for none."""
        return bisect_right(self._lows, address) - 1

    def holds(self, low: int, high: int, is_stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait until that is decided."""
        number = self._number(low)
        if number < 0 or high > self._pieces[number].high:
            return False
        piece = self._pieces[number]
        if piece.state is LockState.UNDECIDED:
            self._wait(piece, is_stopped)
        return piece.state in (LockState.LOCKED, LockState.FOUND)

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
            del self._pieces[-1], self._lows[-1]
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
            _KEPT[piece.low] = self._memory
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
        return self._memory[piece.low - self._base : piece.high - self._base]
