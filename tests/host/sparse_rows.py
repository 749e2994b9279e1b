"""A sparse matrix of SciPy's from the runs of a source, each rule of a run checked on the way."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tests.inside.sparse import AbstractRows


def assembled(rows: AbstractRows) -> sp.csr_array:
    """All runs as one matrix of float64."""
    starts, columns, values = [np.zeros(1, np.int64)], [np.empty(0, np.int32)], [np.empty(0)]
    n_rows = 0
    for run in rows.runs():
        assert run.first_row == n_rows
        assert run.starts.dtype == np.int64 and run.starts[0] == 0
        assert run.columns.dtype == np.int32 and run.starts[-1] == run.columns.size
        inner = np.diff(run.columns.astype(np.int64)) > 0
        first = run.starts[1:-1]
        inner[first[(first > 0) & (first < run.columns.size)] - 1] = True
        assert inner.all(), "columns ascend in each row"
        n_rows += run.starts.size - 1
        starts.append(run.starts[1:] + starts[-1][-1])
        columns.append(run.columns)
        values.append(np.ones(run.columns.size) if run.values is None else run.values.astype(np.float64))
    assert n_rows == rows.shape[0]
    return sp.csr_array((np.concatenate(values), np.concatenate(columns), np.concatenate(starts)), shape=rows.shape)


def same(found: sp.csr_array, expected: sp.sparray | sp.spmatrix) -> bool:
    """Whether both have the same entries, to the bit, explicit zeros of the second among them."""
    expected = sp.csr_array(expected.astype(np.float64), copy=True)
    expected.sum_duplicates()
    parts = ("indptr", "indices", "data")
    return found.shape == expected.shape and all(np.array_equal(getattr(found, p), getattr(expected, p)) for p in parts)
