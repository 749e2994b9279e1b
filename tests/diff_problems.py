"""Patterns, values and exact results for kernels of differentiable operations, on the host as on a GPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ooc_chol.diff import Pattern
from tests.inside.kernels import LONG, SEGMENT, WINDOW
from tests.tolerances import sparse_product_bound

#: Lengths of rows around every size at which terms are dealt out in another way, empty rows and many short ones among them.
LENGTHS = [0, 1, 5, 31, 32, 33, 64, 0, 0, LONG - 1, LONG, 2, LONG + 1, 7, WINDOW, 1, SEGMENT, SEGMENT + 1, 3, 2 * SEGMENT + 5, 0]
N_COLUMNS = 12_000


class Case(NamedTuple):
    """Types of storage and of computing, as ``precision=`` says them."""

    storage: type
    compute: type

    @property
    def precision(self):
        return None if self.storage is self.compute else "FDF"


CASES = [Case(np.float32, np.float32), Case(np.float32, np.float64), Case(np.float64, np.float64)]


def pattern_of(lengths, n_columns=N_COLUMNS, seed=1):
    """Rows of so many entries, in random columns."""
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.choice(n_columns, length, replace=False)) for length in lengths]
    indices = np.concatenate([np.zeros(0, int), *columns])
    return Pattern(np.concatenate([[0], np.cumsum(lengths, dtype=int)]), indices, (len(lengths), n_columns))


def short_rows(count=700, seed=2):
    """Lengths of a five-point stencil, with empty rows between some."""
    return np.random.default_rng(seed).choice([0, 3, 4, 5, 5, 5, 5], count).tolist()


def numbers(shape, case, seed=3):
    """Standard normal numbers of the case's storage."""
    return np.random.default_rng(seed).standard_normal(shape).astype(case.storage)


def exact_product(pattern, v, x):
    """``A @ x``, and ``|A| @ |x|``, in extended precision, and the entries of each row."""
    terms = v.astype(np.longdouble)[:, None] * np.atleast_2d(x.T).T.astype(np.longdouble)[pattern.indices]
    ends = pattern.indptr
    return exact_sums(ends, terms), exact_sums(ends, np.abs(terms)), np.diff(ends)[:, None]


def exact_sums(ends, terms):
    """Sums of segments of terms."""
    found = np.zeros((len(ends) - 1, *terms.shape[1:]), np.longdouble)
    taken = ends[1:] > ends[:-1]
    if taken.any():
        found[taken] = np.add.reduceat(terms, ends[:-1][taken], axis=0)
    return found


def check_product(found, pattern, v, x, case):
    """Hold a product against the exact one."""
    exact, size, lengths = exact_product(pattern, v, x)
    assert found.dtype == case.storage and found.shape == (pattern.n_rows, *x.shape[1:])
    bound = sparse_product_bound(lengths, size, case.compute, exact, case.storage)
    assert np.all(np.abs(found.reshape(exact.shape) - exact) <= bound)


def check_sampled(found, pattern, g, x, case):
    """Hold sampled entries against the exact ones."""
    left, right = (np.atleast_2d(each.T).T.astype(np.longdouble) for each in (g, x))
    terms = left[pattern.rows] * right[pattern.indices]
    exact, size = terms.sum(axis=1), np.abs(terms).sum(axis=1)
    assert found.dtype == case.storage and found.shape == (pattern.nnz,)
    assert np.all(np.abs(found - exact) <= sparse_product_bound(terms.shape[1], size, case.compute, exact, case.storage))


def triples(pattern, n_a, n_b, dtype, seed=4):
    """Segments of the lengths of a pattern's rows, and random places in a and b."""
    rng = np.random.default_rng(seed)
    of_a, of_b = (rng.integers(count, size=pattern.nnz, dtype=dtype) for count in (n_a, n_b))
    return pattern.indptr.astype(dtype), of_a, of_b


def check_bilinear(found, ends, of_a, of_b, a, b, case):
    """Hold sums of products against the exact ones."""
    terms = a.astype(np.longdouble)[of_a] * b.astype(np.longdouble)[of_b]
    exact, size = exact_sums(ends, terms), exact_sums(ends, np.abs(terms))
    assert found.dtype == case.storage and found.shape == exact.shape
    assert np.all(np.abs(found - exact) <= sparse_product_bound(np.diff(ends), size, case.compute, exact, case.storage))
