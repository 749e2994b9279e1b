"""Solves with so many right-hand sides that another routine takes them."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.tolerances import unit_roundoff

pytestmark = pytest.mark.host


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("transposed", [False, True])
def test_many_right_hand_sides_are_solved_as_few_are(dtype, transposed):
    rng = np.random.default_rng(0)
    n, m = 150, 700
    a = rng.normal(size=(n, n))
    a = (a @ a.T + n * np.eye(n)).astype(dtype)
    b = rng.normal(size=(n, m)).astype(dtype)
    with oc.cholesky(a, tile_size=64, devices="host:0", dtype=dtype) as factor:
        wide = factor.half_solve(b, transposed=transposed)
        few = np.column_stack([factor.half_solve(b[:, k], transposed=transposed) for k in (0, 350, 699)])
        triangle = np.tril(np.asarray(factor)).astype(float)
    np.testing.assert_allclose(wide[:, [0, 350, 699]], few, rtol=0, atol=n * unit_roundoff(dtype) * np.abs(few).max())
    residual = (triangle.T if transposed else triangle) @ wide.astype(float) - b
    bound = n * unit_roundoff(dtype) * (np.abs(triangle.T if transposed else triangle) @ np.abs(wide.astype(float)))
    assert np.all(np.abs(residual) <= bound)
