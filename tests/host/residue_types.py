"""Matrices, rows and sums of every type for the tests of residues, on the host and on GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.host.residue_reference import residues
from tests.inside.precision import PrecisionFormat, ResidueBasis

Numbers = NDArray[Any]


def diagonals_of(rng: np.random.Generator, n: int, fmt: PrecisionFormat) -> Numbers:
    """Entries of every magnitude that the type's reals hold, and just beside powers of four."""
    top = 30 if fmt.real_dtype.itemsize == 4 else 250
    beside = 4.0 ** rng.integers(-top, top, n) * rng.choice([1.0, 1.01, 1 - 2.0**-20, 1 + 2.0**-20, 3.3], n)
    return np.where(rng.random(n) < 0.5, 10.0 ** rng.uniform(-top, top, n), beside).astype(fmt.real_dtype).astype(float)


def normals(rng: np.random.Generator, shape: tuple[int, ...], fmt: PrecisionFormat) -> Numbers:
    """Standard normal numbers, complex ones where the format is."""
    return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if fmt.is_complex else 0.0)


def rows_of_a_factor(rng: np.random.Generator, diagonal: Numbers, cols: int, fmt: PrecisionFormat) -> Numbers:
    """Rows whose squares sum up to half of the diagonal entries."""
    rows = normals(rng, (len(diagonal), cols), fmt)
    norms = np.sqrt((np.abs(rows) ** 2).sum(axis=1))
    return (rows * (np.sqrt(diagonal / 2) / norms)[:, None]).astype(fmt.dtype)


def entries_between(rng: np.random.Generator, rows: Numbers, cols: Numbers, fmt: PrecisionFormat) -> Numbers:
    """Entries of A of every magnitude between rows and columns of given diagonal entries, and some that are odd."""
    shape = len(rows), len(cols)
    scales = np.sqrt(rows)[:, None] * np.sqrt(cols) * 2.0 ** -rng.integers(0, 60, shape)
    entries = (normals(rng, shape, fmt) * scales).astype(fmt.dtype)
    odd = np.array([0.0, np.inf, np.nan, 1e37, -1e-44][: entries.size], dtype=fmt.dtype)
    entries.flat[: len(odd)] = odd
    return entries


def sums_with_edges(rng: np.random.Generator, basis: ResidueBasis, shape: tuple[int, int]) -> Numbers:
    """Sums of residues of any size, and such as stand for the largest and the least numbers."""
    rows, cols = shape
    sums = rng.integers(-(2**31), 2**31, (basis.planes, rows, cols), dtype=np.int64)
    half = basis.product // 2
    edges = [half, half - 1, 1 - half, 2 - half, 0, 1, -1, -(2**31), half // 3, -half // 5][:cols]
    sums[:, 0, : len(edges)] = planes_of(edges, edges[::-1], basis)
    sums[:, -1] = rng.choice([-(2**31), 2**31 - 1, 0, -1], (basis.planes, cols))
    return sums.astype(np.int32)


def planes_of(real: Any, imaginary: Any, basis: ResidueBasis) -> Numbers:
    """Canonical residues of Python integers, in Python's integers; of split moduli those of complex numbers, both planes."""
    if not basis.is_split:
        return residues(real, basis)
    x, y = np.asarray(real, dtype=object), np.asarray(imaginary, dtype=object)
    return np.array([residues(x + sign * w * y, basis)[p] for sign in (1, -1) for p, w in enumerate(basis.roots)])
