"""How the terms of many sums are dealt out to thread blocks, by where each sum begins; this module imports without CuPy."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

#: Rows and terms together of a thread block, most terms of a row that one block adds, and of a part of a longer one.
WINDOW, LONG, SEGMENT = 1536, 512, 4096


class TermGroups(NamedTuple):
    """Rows of terms by thread blocks: consecutive rows together, and long rows in segments."""

    rows: Any  #: (groups + 1,) uint32, first row of each
    terms: Any  #: (groups + 1,) first term of each, of the type of the ends
    long_rows: Any  #: (long,) uint32, rows of more than LONG terms, which their groups leave out
    row_segments: Any  #: (long + 1,) uint32, first segment of each of them
    segment_terms: Any  #: (segments, 2) uint64, where each begins and ends


def term_groups(xp: ModuleType, ends: Any) -> TermGroups:
    """Deal out rows whose terms end at ``ends``, (rows + 1,) of NumPy or CuPy, which ``xp`` is.

    Row r begins at place ``ends[r] + r`` among all rows and terms; those that begin in one window are a group, so that empty rows
    count, too, and no group has more than a window's terms before its last row.
    """
    n = len(ends) - 1
    places = ends[:-1] + xp.arange(n, dtype=np.int64)
    windows = xp.arange(int(places[-1]) // WINDOW + 1 if n else 0, dtype=np.int64) * WINDOW
    firsts = xp.searchsorted(places, windows)
    rows = xp.unique(xp.concatenate([firsts, xp.full(1, n, firsts.dtype)]))
    del places
    lengths = xp.diff(ends)
    long_rows = xp.flatnonzero(lengths > LONG)
    counts = -(-lengths[long_rows].astype(np.int64) // SEGMENT)
    row_segments = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts)])
    segments = xp.arange(int(row_segments[-1]), dtype=np.int64)
    owners = xp.searchsorted(row_segments, segments, side="right") - 1
    begins = ends[long_rows][owners] + (segments - row_segments[owners]) * SEGMENT
    stops = xp.minimum(begins + SEGMENT, ends[long_rows + 1][owners])
    return TermGroups(
        rows.astype(np.uint32),
        ends[rows],
        long_rows.astype(np.uint32),
        row_segments.astype(np.uint32),
        xp.stack([begins, stops], axis=1).astype(np.uint64),
    )


def width_and_lanes(columns: int, itemsize: int) -> tuple[int, int]:
    """Columns that a lane reads at once, at most 16 bytes, and lanes of a row, for row-major panels of so many columns."""
    width = next(width for width in (4, 2, 1) if columns % width == 0 and width * itemsize <= 16)
    lanes = 1
    while lanes < 32 and lanes * width < columns:
        lanes *= 2
    return width, lanes
