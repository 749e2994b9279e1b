"""LOBPCG with vectors on GPUs: a diagonal applied there, other preconditioners on the host, null vectors left out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import splu

import ooc_chol as oc
from tests.inside.eigen import Lobpcg, Preconditioner, Wanted, lobpcg_capacity, open_space
from tests.tolerances import eigenvector_deviation

pytestmark = pytest.mark.cuda

DEVICES = ["cuda:0", pytest.param(["cuda:0", "cuda:1"], marks=pytest.mark.cuda(n=2))]


@pytest.fixture(scope="module")
def grid():
    """Laplacian of a grid of 330 x 200, and its three lowest eigenvalues but 0."""
    rows, columns = 330, 200
    paths = []
    for m in (rows, columns):
        path = scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(m, m))
        paths.append(scipy.sparse.diags_array(path.sum(axis=1)) - path)
    values = np.add.outer(*(2 - 2 * np.cos(np.pi * np.arange(m) / m) for m in (columns, rows)))
    return scipy.sparse.kronsum(paths[0], paths[1], format="csr"), np.sort(values.reshape(-1))[1:4]


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize(("precision", "tol"), [("DDD", 1e-9), ("FDF", 1e-6)])
def test_a_preconditioner_on_the_host_and_a_null_vector(grid, devices, precision, tol):
    a, values = grid
    n = a.shape[0]
    m = Preconditioner(splu((a + 1e-4 * scipy.sparse.eye_array(n)).tocsc()).solve, n)
    null = np.full((n, 1), 1 / np.sqrt(n))
    sizes = {"block": 4, "capacity": lobpcg_capacity(3, 4, 1)}
    with oc.block_csr(a) as packed, open_space(packed, **sizes, precision=precision, devices=devices) as space:
        found = Lobpcg(space, Wanted(3, "SA", tol), max_passes=60, preconditioner=m, null=null).run()
        v = space.take(range(1))[:, :3]
    assert not found.why_not
    assert np.abs(found.values - values).max() <= 4 * tol * found.scale
    assert np.linalg.norm(a @ v - v * found.values, axis=0).max() <= tol * found.scale * 1.01
    assert np.abs(v.T @ v - np.eye(3)).max() <= eigenvector_deviation(np.float64 if precision == "DDD" else np.float32, 1)


@pytest.mark.parametrize("devices", DEVICES)
def test_a_diagonal_is_applied_on_devices(grid, devices):
    a, _ = grid
    weights = scipy.sparse.diags_array(np.logspace(0, 1, a.shape[0]))
    scaled = (weights @ a @ weights + weights).tocsr()
    sizes = {"block": 4, "capacity": lobpcg_capacity(2, 4, diagonal=True)}
    m = Preconditioner(1 / scaled.diagonal(), a.shape[0])
    found = []
    for where in (devices, "host:0"):
        with oc.block_csr(scaled) as packed, open_space(packed, **sizes, precision="DDD", devices=where) as space:
            found.append(Lobpcg(space, Wanted(2, "SA", 1e-6), max_passes=2000, preconditioner=m, check=False).run())
    assert not found[0].why_not
    assert np.abs(found[0].values - found[1].values).max() <= 1e-5 * found[0].scale
    assert abs(found[0].counts.passes - found[1].counts.passes) <= 0.1 * found[1].counts.passes + 2
