"""Work groups of a block: runs of rows that a group of threads multiplies together, and segments of rows too long for one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ooc_chol.tasks.row_blocks import GROUP_ENTRIES, GROUP_ROWS, SEGMENT_ENTRIES


def work_groups(starts: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], int]:
    """Row and entry at which each work group of a block begins, (n_groups + 1, 2), and how many are segments of long rows.

    ``starts`` (n_rows + 1,) are the entries of the block before each row, ascending; the last pair stands behind all. Rows are
    taken into a group for as long as they fit. A loop of the interpreter does so, by one bisection a group, which has about 2,000
    entries or rows.
    """
    n_rows = len(starts) - 1
    counts = np.diff(starts)
    long_rows = np.flatnonzero(counts > GROUP_ENTRIES)
    first = np.array(_first_rows(starts, [*long_rows.tolist(), n_rows]), dtype=np.int64)
    segments = np.ones(len(first), dtype=np.int64)
    is_long = counts[first] > GROUP_ENTRIES if len(first) else np.zeros(0, dtype=bool)
    segments[is_long] = -(-counts[first[is_long]].astype(np.int64) // SEGMENT_ENTRIES)
    rows = np.repeat(first, segments)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(segments) - segments, segments)
    groups = np.empty((len(rows) + 1, 2), dtype=np.uint32)
    groups[:-1, 0], groups[:-1, 1] = rows, starts[rows] + SEGMENT_ENTRIES * within
    groups[-1] = n_rows, starts[-1]
    return groups, int(segments[is_long].sum())


def _first_rows(starts: NDArray[np.uint32], ends: list[int]) -> list[int]:
    """First row of each group, those of long rows once; ``ends`` are all long rows, and the number of rows."""
    entries = cast(Sequence[Any], np.ascontiguousarray(starts).data)  # a bisection of an array would take ten times as long
    found: list[int] = []
    at = 0
    for end in ends:
        while at < end:
            found.append(at)
            at = bisect_right(entries, entries[at] + GROUP_ENTRIES, at + 1, min(at + GROUP_ROWS, end) + 1) - 1
        if end < len(starts) - 1:
            found.append(end)
        at = end + 1
    return found
