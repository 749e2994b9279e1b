"""Disks in predictions: what one does in a second, and when it has served what is read and written."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import final

#: Between one after the other, 1, and both at once, a half.
_DUPLEX = 0.75


@dataclass(frozen=True)
class DiskRates:
    """Rates of the disk under a store's file, all devices together.

    Raises ``ValueError``: a rate is not more than zero.
    """

    read: float  #: Bytes per second from the disk and to it, past the page cache
    write: float
    #: Bytes per second read of A's file, by rows of tiles; None where A is in none, or where its disk was not measured
    source: float | None = None
    is_one: bool = True  #: Whether A's file is on the same disk
    folder: str = ""  #: The folder that was measured
    #: Seconds in which it reads and writes at once, over those of reading first and writing then: 1 for a disk that does one
    #: thing at a time, a half for one whose directions do not meet
    together: float = 1.0
    #: Bytes of a row of a tile of A, for which ``source`` is the rate; None where tiles are read in one piece
    row_bytes: int | None = None
    #: Whether ``source`` is the rate of how A is read; else reading by rows was not measured, and it is that of whole tiles
    is_by_rows: bool = True

    @property
    def is_duplex(self) -> bool:
        """True if reads and writes hinder each other so little that each counts for itself."""
        return self.together < _DUPLEX

    def __post_init__(self) -> None:
        for name in ("read", "write", "source", "together"):
            if (rate := getattr(self, name)) is not None and not rate > 0:
                raise ValueError(f"rate {name} of the disk is {rate}, but a measured rate is more than zero")


@final
class Disk:
    """One disk in the simulator: it serves one byte after the other, whoever asks, and never rests while somebody waits.

    Requests of one stream are told in order, but one stream may be told far ahead of another: a request takes what those told
    before have left of the time from its start on.
    """

    def __init__(self) -> None:
        self._starts: list[float] = []  # of the stretches in which it is busy, in order of time, without overlaps
        self._ends: list[float] = []

    def serve(self, start: float, seconds: float) -> float:
        """When a request ends that is told at ``start`` and takes ``seconds`` alone."""
        starts, ends = self._starts, self._ends
        first = last = bisect_right(ends, start)
        at, left = start, seconds
        while last < len(starts) and starts[last] < at + left:
            if starts[last] > at:
                left -= starts[last] - at
            at = ends[last]
            last += 1
        end = at + left
        # From its start to its end there is no moment left.
        starts[first:last] = [min(start, starts[first])] if first < last else [start]
        ends[first:last] = [end]
        return end
