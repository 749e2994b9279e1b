"""All eigenpairs by LAPACK, of matrices so small that a Krylov basis would be all of the space."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.lanczos import MOST_ASYMMETRY, asymmetry_text
from ooc_chol.eigen.powers import RangeError, check_magnitude
from ooc_chol.eigen.wanted import Wanted, in_wanted_order
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.precision.triples import Precision
from ooc_chol.process.address_space import check_room

#: Columns of a product.
_WIDTH = 8
#: Orders up to which one BLAS thread is as fast as two; of 1,000 it takes 1.7 times as long. Several go on spinning, and hang
#: where another thread forks meanwhile.
_ONE_THREAD = 300


class WholePairs(NamedTuple):
    """Wanted pairs of a matrix all of whose pairs were computed."""

    values: NDArray[np.float64]  #: The most wanted first
    vectors: NDArray[Any]
    residuals: NDArray[np.float64]  #: ``||A v - value v|| / ||v||``
    scale: float
    asymmetry: float
    products: int  #: Products with A, of up to 8 columns each


def whole_pairs(
    product: Callable[[NDArray[np.float64]], NDArray[Any]], n: int, wanted: Wanted, precision: Precision
) -> WholePairs:
    """Make an array of A by products with the identity, and take LAPACK's eigenpairs of it.

    Raises ``BudgetError`` and ``ValueError``.
    """
    check_room(3 * 8 * n * n, f"all eigenpairs of a {n} x {n} matrix", "ask for fewer eigenpairs (k), or a smaller ncv")
    a, count = np.empty((n, n)), 0
    for first in range(0, n, _WIDTH):
        columns = np.zeros((n, min(_WIDTH, n - first)))
        columns[np.arange(first, first + columns.shape[1]), np.arange(columns.shape[1])] = 1.0
        a[:, first : first + columns.shape[1]] = product(columns)
        count += 1
    largest = float(np.abs(a).max())
    if not np.isfinite(largest):
        raise RangeError(
            "a product with A holds NaN or infinite numbers: look for such entries of what its LinearOperator returns"
        )
    check_magnitude(largest, precision)
    asymmetry = float(np.abs(a - a.T).max()) / largest if largest else 0.0
    if asymmetry > MOST_ASYMMETRY[precision]:
        raise ValueError(asymmetry_text(asymmetry))
    with blas_threads(1) if n <= _ONE_THREAD else nullcontext():
        all_values, all_vectors = np.linalg.eigh(a / 2 + a.T / 2)
    order = in_wanted_order(all_values, wanted.which)[: wanted.k]
    values, vectors = all_values[order], np.ascontiguousarray(all_vectors[:, order]).astype(precision.storage)
    exact = vectors.astype(np.float64)
    residuals = np.linalg.norm(a @ exact - exact * values, axis=0) / np.linalg.norm(exact, axis=0)
    return WholePairs(values, vectors, residuals, float(np.abs(all_values).max()), asymmetry, count)
