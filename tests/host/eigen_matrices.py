"""Symmetric matrices with known or difficult spectra, and what every answer of an eigensolver must hold."""

from __future__ import annotations

import numpy as np
import scipy.sparse

import ooc_chol as oc
from tests.tolerances import eigenvector_deviation, unit_roundoff

BLOCKS = [1, 2, 4, 8]


def adjacency(n: int, edges: int, seed: int) -> scipy.sparse.csr_array:
    """A random graph with a ring through all vertices, so that it is connected."""
    rows, columns = np.random.default_rng(seed).integers(0, n, (2, edges))
    ring = np.arange(n)
    rows, columns = np.concatenate([rows, ring]), np.concatenate([columns, (ring + 1) % n])
    a = scipy.sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    a = (a + a.T).tocsr()
    a.data[:] = 1.0
    return a


def eight_components() -> scipy.sparse.csr_array:
    """Normalized adjacency of a graph of eight components of different sizes: its largest eigenvalue, 1, is eightfold."""
    sizes = (300, 320, 350, 280, 400, 370, 290, 310)
    a = scipy.sparse.block_diag([adjacency(n, 6 * n, seed) for seed, n in enumerate(sizes)], format="csr")
    scaling = scipy.sparse.diags_array(1 / np.sqrt(a.sum(axis=1)))
    return (scaling @ a @ scaling).tocsr()


def with_spectrum(values, seed: int = 0) -> scipy.sparse.csr_array:
    """A sparse matrix with these eigenvalues: a diagonal one, turned by plane rotations of random pairs of rows."""
    n, rng = len(values), np.random.default_rng(seed)
    a = scipy.sparse.diags_array(np.asarray(values, dtype=float)).tocsr()
    for _ in range(3):
        order, angles = rng.permutation(n), rng.uniform(0, 2 * np.pi, n // 2)
        one, other = order[: n // 2], order[n // 2 : 2 * (n // 2)]
        rest = order[2 * (n // 2) :]
        rows = np.concatenate([one, one, other, other, rest])
        columns = np.concatenate([one, other, one, other, rest])
        entries = np.concatenate([np.cos(angles), -np.sin(angles), np.sin(angles), np.cos(angles), np.ones(len(rest))])
        turn = scipy.sparse.coo_array((entries, (rows, columns)), shape=(n, n)).tocsr()
        a = turn @ a @ turn.T
    a = a.tocsr()
    return ((a + a.T) / 2).tocsr()


def most_wanted(values, k: int, which: str):
    """The k most wanted of all eigenvalues, ascending."""
    values = np.asarray(values)
    key = {"LM": np.abs(values), "LA": values, "SA": -values}[which]
    return np.sort(values[np.argsort(-key, kind="stable")[:k]])


def check_pairs(a, pairs: oc.Eigenpairs, tol: float) -> None:
    """Values ascend, residuals are within ``tol`` and as told, and vectors are orthonormal to their precision."""
    w, v = pairs
    exact = v.astype(np.float64)
    scale = max(float(np.abs(w).max()), 1e-300)
    norms = np.linalg.norm(a @ exact - exact * w, axis=0)
    assert np.all(np.diff(w) >= 0)
    assert np.all(pairs.residuals <= tol)
    # The residuals that are told are relative to the largest eigenvalue that was seen, which may be larger than those of w.
    assert np.all(norms >= pairs.residuals * scale * 0.99 - 64 * unit_roundoff(np.float64) * scale)
    deviation = np.abs(exact.T @ exact - np.eye(len(w))).max()
    assert deviation <= eigenvector_deviation(v.dtype, pairs.report.restarts)
