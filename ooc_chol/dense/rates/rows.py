"""Rates of reading tiles of A from a file, row by row: a tile there is one piece for each of its rows, at no page."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import isqrt
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ooc_chol.files.access import drop_pages
from ooc_chol.memory.sources.file import MatrixLayout, NpySource
from ooc_chol.process.team import ThreadTeam

#: Rates of reading by rows: bytes of a piece, and bytes per second, the shortest piece first.
RowRates: TypeAlias = tuple[tuple[int, float], ...]

#: Orders of the tiles of 8-byte entries that are read by rows; tiles of 4-byte entries of twice the order have the same pieces.
ROW_TILES = (512, 2048, 4096)
#: Bytes of an entry of the matrix that is made of the file, and those before the first, as in a ``.npy`` file.
_ENTRY, _HEADER = np.dtype(np.float64), 128


def measured_rows(descriptor: int, nbytes: int, team: ThreadTeam, seconds: float) -> RowRates:
    """Read tiles by rows, as A is read, from the first ``nbytes`` of an open file whose pages are all on the disk.

    Tiles that are wider than half of the largest matrix that fits are left out; none are read where the system does not open a
    file by its descriptor.
    """
    n = isqrt(max(0, nbytes - _HEADER) // _ENTRY.itemsize)
    n -= 1 - n % 2  # rows that all begin elsewhere in a page
    stride = n * _ENTRY.itemsize
    layout = MatrixLayout(Path(f"/proc/self/fd/{descriptor}"), n, _ENTRY, _HEADER, stride, _ENTRY.itemsize)
    orders = [order for order in ROW_TILES if 2 * order <= n + 1]
    if not orders or not layout.path.exists():
        return ()
    with closing(NpySource(layout)) as source:
        source.is_bounded = True
        return tuple((_ENTRY.itemsize * order, _rate(source, order, descriptor, team, seconds)) for order in orders)


def _rate(source: NpySource, order: int, descriptor: int, team: ThreadTeam, seconds: float) -> float:
    """Bytes per second of tiles of one order, one after the other, none of them in the cache."""
    drop_pages(descriptor, 0, source.n * source.n * _ENTRY.itemsize + _HEADER)
    out = np.empty((order, order), _ENTRY)
    out.fill(0.0)  # the system gives its pages now, not while they are timed
    began, taken, read = time.perf_counter(), 0.0, 0
    for rows, cols in _tiles(source.n, order):
        source.read_block(rows, cols, out[: len(rows)], team=team)
        read, taken = read + out[: len(rows)].nbytes, time.perf_counter() - began
        if taken > seconds:
            break
    return read / taken


def _tiles(n: int, order: int) -> Iterator[tuple[range, range]]:
    """Every second tile column of a matrix, so that what the system reads beyond a piece is part of no other."""
    for col in range(0, n - order + 1, 2 * order):
        for row in range(0, n, order):
            yield range(row, min(row + order, n)), range(col, col + order)


def rate_by_rows(rates: RowRates, piece: int, read: float) -> float:
    """Bytes per second of pieces of so many bytes, from those that were measured; never more than ``read``, that of whole tiles.

    Between two measured pieces, seconds grow with the bytes. A shorter one than all takes the seconds of the shortest, and what
    a longer one has beyond the longest is read at the rate of whole tiles.
    """
    lengths = [length for length, _ in rates]
    seconds = [length / rate for length, rate in rates]
    at = bisect_left(lengths, piece)
    if at == 0:
        found = seconds[0]
    elif at == len(lengths):
        found = seconds[-1] + (piece - lengths[-1]) / read
    else:
        part = (piece - lengths[at - 1]) / (lengths[at] - lengths[at - 1])
        found = seconds[at - 1] + part * (seconds[at] - seconds[at - 1])
    return min(read, piece / found)


def rows_text(rates: Sequence[Sequence[float]]) -> str:
    """Rates by rows in words."""
    return ", ".join(f"{rate / 1e9:.3g} GB/s by rows of {int(piece) // 1024} KiB" for piece, rate in rates)
