"""Rows of a sparse matrix in runs, each of which one thread looks at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Entries that a thread looks at in one go: what that needs beside the matrix stays in its core's cache.
_RUN_ENTRIES = 1 << 17


def runs_between(starts: NDArray[Any]) -> list[slice]:
    """Rows by runs of some hundred thousand entries, which depend on the matrix alone, and so do sums of sums of runs.

    Parameters
    ----------
    starts : (n + 1,) array of int
        Entries before each row, and all.

    Returns
    -------
    list of slice
        Consecutive rows; a row of more entries is a run by itself.
    """
    starts, found = starts.astype(np.int64, copy=False), []
    row, n = 0, len(starts) - 1
    while row < n:
        end = max(row + 1, int(np.searchsorted(starts, starts[row] + _RUN_ENTRIES, side="right")) - 1)
        found.append(slice(row, end))
        row = end
    return found
