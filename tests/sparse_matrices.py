"""Sparse matrices of several chunks of rows for tests of products, and what their products may err."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from tests.tolerances import unit_roundoff

CHUNK = 65536


def many_chunks(n: int = 4 * CHUNK + 1000, seed: int = 1) -> scipy.sparse.csr_array:
    """About two entries a row, one row and one column of thousands, empty rows, and values of all kinds in one matrix."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, n, (2, 2 * n))
    hub = np.full(9000, n // 3)
    others = rng.integers(0, n, (2, 9000))
    rows, columns = np.concatenate([rows, hub, others[0]]), np.concatenate([columns, others[1], hub])
    is_kept = (rows % 1000 != 7) & (rows < n - 5)  # empty rows, the last ones among them
    rows, columns = rows[is_kept], columns[is_kept]
    values = np.ones(len(rows))
    quarter = rows * 4 // n
    values[quarter == 1] = rng.integers(-100, 100, (quarter == 1).sum())
    values[quarter == 2] = rng.standard_normal((quarter == 2).sum()).astype(np.float32)
    values[quarter == 3] = rng.standard_normal((quarter == 3).sum())
    a = scipy.sparse.coo_array((values, (rows, columns)), shape=(n, n)).tocsr()
    first = a.indptr[n // 4]
    a.data[:first] = 1.0  # duplicates were summed: a quarter of the rows is a pattern again
    return a


def product_bound(a, x, precision) -> np.ndarray:
    """``8 sqrt(d) u (|A| |x|)`` of each entry, d being the entries of its row, and one rounding to the type of storage."""
    magnitudes = abs(a) @ np.abs(np.asarray(x, np.float64))
    d = np.maximum(np.diff(a.indptr), 1).reshape(-1, *[1] * (magnitudes.ndim - 1))
    rounding = unit_roundoff(precision.storage) if precision.storage != precision.compute else 0.0
    return (8 * np.sqrt(d) * unit_roundoff(precision.compute) + rounding) * magnitudes
