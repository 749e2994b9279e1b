"""What the tests of random graphs on the host and on GPUs share."""

from __future__ import annotations

import hashlib

import numpy as np
import scipy.sparse

from tests.inside.sparse import AbstractRows, Rows


def joined(runs) -> Rows:
    """All runs as one, which begin where the one before ends."""
    starts, columns, row, count = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], 0, 0
    for run in runs:
        assert run.first_row == row and run.values is None
        assert run.starts.dtype == np.int64 and run.columns.dtype == np.int32
        assert run.starts[0] == 0 and run.starts[-1] == len(run.columns)
        starts.append(run.starts[1:] + count)
        columns.append(run.columns.copy())
        row, count = row + len(run.starts) - 1, count + len(run.columns)
    return Rows(0, np.concatenate(starts), np.concatenate(columns), None)


def same(left: Rows, right: Rows) -> bool:
    return np.array_equal(left.starts, right.starts) and np.array_equal(left.columns, right.columns)


def matrix(source: AbstractRows) -> scipy.sparse.csr_array:
    """All of it."""
    rows = joined(source.runs())
    return scipy.sparse.csr_array((np.ones(len(rows.columns), np.int8), rows.columns, rows.starts), shape=source.shape)


def digest(*arrays) -> str:
    """SHA-256 of arrays of whole numbers, whatever the byte order of the machine."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(array.astype("<i8").tobytes())
    return found.hexdigest()
