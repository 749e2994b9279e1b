"""Tiles of a group that a worker keeps in memory between its tasks, within a budget: those that it needs again first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.process.fork_safety import new_condition
from ooc_chol.tasks.tiling import Index
from ooc_chol.tasks.windows import Window

#: Bytes of a tile as a store keeps them.
Stored = NDArray[np.uint8]


@final
class RowDistances:
    """When each tile row comes again in the tasks of one worker.

    Tasks come about column by column, and in a column row by row. So rows that the present task works on come again one column
    later, other rows of this worker earlier, and rows of the columns themselves with the very next task, but never after their
    column.
    """

    def __init__(self, nt: int) -> None:
        self._nt = nt
        self._window = Window(range(1), range(1))
        self._met: dict[int, int] = {}  # by tile row, the first column of the last window that met it

    def begin(self, window: Window) -> None:
        """Go on to another window."""
        self._window = window
        self._met.update(dict.fromkeys(window.met_rows, window.columns.start))

    def of(self, row: int) -> int:
        """How many tile rows later a row comes again; more than all of them where it hardly does."""
        window, width = self._window, len(self._window.columns)
        first = window.columns.start
        if row < first - width or self._met.get(row, first) < first - 2 * width:
            return 3 * self._nt  # above all columns to come; or another worker's by now
        if row < first:
            return 2 * self._nt  # but a task of the last column may be late
        if row in window.columns:
            return 0
        return self._nt if row in window.rows else (row - window.rows.start) % self._nt


@final
class KeptTiles:
    """Tiles by index, from several threads.

    What comes again last leaves first, and is not even kept where others that come earlier fill the budget: rows that are gone
    through again and again would else push out one another, each just before it is needed.
    """

    def __init__(self, nt: int) -> None:
        self._distances = RowDistances(nt)
        self._limit_bytes = self._bytes = 0
        self._changed = new_condition()
        self._rows: dict[int, dict[int, Stored]] = defaultdict(dict)
        self._held: set[Index] = set()  # places that are counted, for tiles that come
        self._coming: set[Index] = set()  # those of them that a thread reads

    @property
    def nbytes(self) -> int:
        """Bytes that are kept, and those that are about to be."""
        return self._bytes

    def begin(self, window: Window, limit_bytes: int) -> None:
        """Go on to another window, with another limit."""
        with self._changed:
            self._limit_bytes = limit_bytes
            self._distances.begin(window)
            self._make_room(0, nearer_than=-1)

    def get(self, index: Index, nbytes: int, read: Callable[[], Stored]) -> Stored | None:
        """A tile, read by the first thread that asks for it; None where there is no room to keep it."""
        with self._changed:
            self._changed.wait_for(lambda: index not in self._coming)
            if (found := self._rows[index[0]].get(index[1])) is not None:
                return found
            if not self._hold(index, nbytes):
                return None
            self._coming.add(index)
        try:
            stored = read()
        except BaseException:
            self.drop(index, nbytes)
            raise
        self.put(index, stored)
        return stored

    def hold(self, index: Index, nbytes: int) -> bool:
        """Take room for a tile that :meth:`put` brings, or :meth:`drop` gives up; False where there is none, or it is here."""
        with self._changed:
            return self._hold(index, nbytes)

    def put(self, index: Index, stored: Stored) -> None:
        """Keep a tile that room was taken for; nobody changes it from now on."""
        stored.flags.writeable = False
        with self._changed:
            self._held.remove(index)
            self._coming.discard(index)
            self._rows[index[0]][index[1]] = stored
            self._changed.notify_all()

    def drop(self, index: Index, nbytes: int) -> None:
        """Give up the room of a tile that does not come."""
        with self._changed:
            self._held.remove(index)
            self._coming.discard(index)
            self._bytes -= nbytes
            self._changed.notify_all()

    def has(self, index: Index) -> bool:
        """Tell whether a tile is kept."""
        with self._changed:
            return index[1] in self._rows.get(index[0], ())

    def _hold(self, index: Index, nbytes: int) -> bool:
        """The same, with the lock held."""
        if index in self._held or index[1] in self._rows[index[0]]:
            return False
        if not self._make_room(nbytes, nearer_than=self._distances.of(index[0])):
            return False
        self._held.add(index)
        self._bytes += nbytes
        return True

    def _make_room(self, nbytes: int, *, nearer_than: int) -> bool:
        """Let tiles go of rows that come again later than ``nearer_than``, the last first; whether there is room now."""
        while self._bytes + nbytes > self._limit_bytes:
            row = max((row for row, tiles in self._rows.items() if tiles), key=self._distances.of, default=None)
            if row is None or self._distances.of(row) <= nearer_than:
                return False
            self._bytes -= self._rows[row].popitem()[1].nbytes
        return True
