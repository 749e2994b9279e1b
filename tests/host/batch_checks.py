"""Batches to factor, and what their factors must pass."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.tolerances import factor_norm_bound


def batch(count: int, n: int, seed: int = 0) -> np.ndarray:
    """Random positive definite matrices of condition 1e4 or so."""
    g = np.random.default_rng(seed).standard_normal((count, n, n + 3))
    a = g @ g.swapaxes(1, 2) / (n + 3) + 1e-3 * np.eye(n)
    return (a + a.swapaxes(1, 2)) / 2


def check(factors: oc.BatchFactor, a: np.ndarray) -> None:
    """Within LAPACK's residual, and solves, products and determinants to as much."""
    ours = np.asarray(factors)
    assert ours.shape == factors.shape == a.shape and len(factors) == len(a) and factors.dtype == ours.dtype == np.float64
    assert not np.triu(ours, 1).any()
    reference = np.linalg.cholesky(a)
    for l_dense, lapack, one in zip(ours, reference, a, strict=True):
        norm = float(np.linalg.norm(one))
        lapacks = float(np.linalg.norm(one - lapack @ lapack.T))
        assert np.linalg.norm(one - l_dense @ l_dense.T) <= factor_norm_bound(len(one), lapacks, norm)
    assert np.array_equal(factors.diagonal(), np.diagonal(ours, axis1=1, axis2=2))
    assert factors.logdet() == pytest.approx(np.linalg.slogdet(a)[1], rel=1e-10, abs=1e-10)
