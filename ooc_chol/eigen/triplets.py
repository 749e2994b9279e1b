"""Singular triplets from right singular vectors: Rayleigh and Ritz on both sides, and the residuals of both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.powers import check_magnitude
from ooc_chol.eigen.two_sided import AbstractTwoSided
from ooc_chol.precision.triples import Precision


class Triplets(NamedTuple):
    """Triplets of B, m >= n, the largest first."""

    u: NDArray[np.float64]  #: (m, k)
    s: NDArray[np.float64]  #: (k,)
    v: NDArray[np.float64]  #: (n, k)
    forward: NDArray[np.float64]  #: ``||B v - s u||`` of each
    backward: NDArray[np.float64]  #: ``||B.T u - s v||``

    @property
    def residuals(self) -> NDArray[np.float64]:
        """The larger of both sides."""
        found: NDArray[np.float64] = np.maximum(self.forward, self.backward)
        return found


def triplets_of(b: AbstractTwoSided, vectors: NDArray[np.float64]) -> Triplets:
    """The best triplets whose right vectors are in the span of some vectors, by the SVD of ``B V``.

    Shapes: ``vectors`` (n, k). What squares of singular values lose of small ones within the span is had back: errors here are of
    the roundoff of the largest value, not of its square. Two products with the matrix in float64, one of them with the transpose.
    """
    q = np.linalg.qr(vectors).Q
    y = b.times(q, exact=True)
    u, s, wt = np.linalg.svd(y, full_matrices=False)
    v = q @ wt.T
    forward = np.linalg.norm(y @ wt.T - u * s, axis=0)
    backward = np.linalg.norm(b.adjoint(u, exact=True) - v * s, axis=0)
    return Triplets(u, s, v, forward, backward)


def dense_triplets(b: AbstractTwoSided, k: int, block: int) -> Triplets:
    """The k largest triplets of a matrix of few columns, by LAPACK's SVD of all of it."""
    unit = np.eye(b.n)
    columns = [b.times(unit[:, first : first + block], exact=True) for first in range(0, b.n, block)]
    whole = np.concatenate(columns, axis=1)
    check_magnitude(float(np.abs(whole).max()), Precision.DDD)
    u, s, vt = np.linalg.svd(whole, full_matrices=False)
    u, s, v = u[:, :k], s[:k], vt[:k].T
    forward = np.linalg.norm(whole @ v - u * s, axis=0)
    backward = np.linalg.norm(b.adjoint(np.ascontiguousarray(u), exact=True) - v * s, axis=0)
    return Triplets(u, s, v, forward, backward)
