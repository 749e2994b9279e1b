"""Sparse matrices for tests, and sources that hand them over in runs of a chosen length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from tests.inside.sparse import AbstractRows, RowCounts, Rows


class RunsOf(AbstractRows):
    """A canonical matrix of SciPy in runs of ``length`` rows; nothing of it is looked at."""

    def __init__(self, matrix: Any, length: int, name: str = "test") -> None:
        self.matrix, self.length, self.name = matrix, length, name
        self.shape, self.expected_entries, self.counts = matrix.shape, matrix.nnz, RowCounts()

    def runs(self) -> Iterator[Rows]:
        indptr = self.matrix.indptr.astype(np.int64)
        for first in range(0, self.shape[0], self.length):
            starts = indptr[first : first + self.length + 1]
            entries = slice(starts[0], starts[-1])
            columns = self.matrix.indices[entries].astype(np.int32)
            yield Rows(first, starts - starts[0], columns, self.matrix.data[entries])


#: Values by the kind that is the narrowest to hold them, of ``count`` entries.
VALUES = {
    "pattern": lambda rng, count: np.full(count, 0.1),
    "int8": lambda rng, count: rng.integers(-128, 128, count).astype(float),
    "fp32": lambda rng, count: rng.standard_normal(count).astype(np.float32).astype(float),
    "fp64": lambda rng, count: rng.standard_normal(count),
}


def random_csr(n: int, m: int, degree: int, kind: str = "fp64", seed: int = 0) -> csr_array:
    """About ``degree`` entries a row, and many rows without any."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, n, n * degree) // 3 * 3 % max(n, 1), rng.integers(0, m, n * degree)
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, m))
    matrix.sum_duplicates()
    matrix.data = VALUES[kind](rng, matrix.nnz)
    return matrix


def mixed_csr(n: int = 3000, seed: int = 0) -> csr_array:
    """Stretches of rows of all kinds of values, some of them long."""
    rng = np.random.default_rng(seed)
    matrix = random_csr(n, 20_000, 6, seed=seed).tolil()
    matrix[n // 2, :] = rng.integers(1, 5, 20_000)
    matrix = matrix.tocsr()
    bounds = matrix.indptr[np.linspace(0, n, 5).astype(int)]
    for start, stop, make in zip(bounds, bounds[1:], VALUES.values(), strict=False):
        matrix.data[start:stop] = make(rng, stop - start)
    return matrix


def assert_same(found: Any, expected: Any) -> None:
    """Equal to the bit, signs of zeros included."""
    assert found.shape == expected.shape
    assert np.array_equal(found.indptr, expected.indptr) and np.array_equal(found.indices, expected.indices)
    assert found.data.tobytes() == expected.data.astype(found.dtype).tobytes()
