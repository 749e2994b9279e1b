"""Batches on a GPU: cuSOLVER's factors of all, where A lies or where a device is named, and errors that name the matrix."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.batch_checks import batch, check

#: LAPACK's residual is half as large on two threads.
pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("one_blas_thread")]

SHAPES = [(1, 1), (5, 3), (300, 17), (40, 130), (3, 600), (0, 4), (4, 0)]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize(("count", "n"), SHAPES)
def test_a_batch_on_a_gpu_is_factored_and_answered_there(count, n, order):
    import cupy as cp

    a = batch(count, n)
    there = cp.array(a, order=order)
    with oc.cholesky(there) as factors:
        assert factors.device == "cuda:0"
        check(factors, a)
        assert isinstance(cp.from_dlpack(factors), cp.ndarray)
        for shape in ((count, n), (count, n, 1), (count, n, 7)):
            b = np.random.default_rng(0).standard_normal(shape)
            for solved in (factors.solve, factors.half_solve, factors.matmul):
                x = solved(cp.asarray(b))
                assert isinstance(x, cp.ndarray) and x.shape == shape
                assert cp.asnumpy(x) == pytest.approx(getattr(oc.cholesky(a), solved.__name__)(b), rel=1e-8, abs=1e-8)
                assert np.array_equal(solved(b), cp.asnumpy(x))
            back = factors.half_solve(factors.half_solve(b), transposed=True)
            assert back == pytest.approx(factors.solve(b), rel=1e-12, abs=1e-12)
    assert np.array_equal(cp.asnumpy(there), a)


@pytest.mark.parametrize("lower", [None, True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "float16"])
def test_a_batch_of_the_host_on_a_named_gpu(dtype, lower):
    a = (batch(20, 9) * 100 + 300 * np.eye(9)).astype(dtype)
    exact = a.astype(np.float64)
    a = a if lower is None else np.tril(a) if lower else np.triu(a)
    factors = oc.cholesky(a, devices="cuda:0", lower=lower)
    assert factors.device == "cuda:0"
    check(factors, exact)
    assert isinstance(factors.solve(np.ones((20, 9))), np.ndarray)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("minor", [1, 4])
def test_the_first_matrix_that_fails_is_named(minor, lower):
    import cupy as cp

    a = batch(6, 8)
    a[4, minor - 1, minor - 1] = a[5, 0, 0] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        oc.cholesky(cp.asarray(a), lower=lower)
    assert (caught.value.matrix, caught.value.minor) == (4, minor)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (3, 1), (7, 7), (7, 0)])
def test_an_entry_that_is_not_finite_is_named(place, value):
    import cupy as cp

    a = batch(4, 8)
    a[2][place] = value
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        oc.cholesky(cp.asarray(a), lower=True)
    assert (caught.value.matrix, caught.value.row, caught.value.col) == (2, *place)


@pytest.mark.package("torch")
def test_a_batch_of_torch_is_answered_in_torch():
    import torch

    a = batch(3, 4)
    factors = oc.cholesky(torch.tensor(a, device="cuda:0"))
    x = factors.solve(torch.ones((3, 4), dtype=torch.float64, device="cuda:0"))
    assert isinstance(x, torch.Tensor) and x.device.type == "cuda"
    check(factors, a)


def test_triangles_that_differ_are_warned_of():
    import cupy as cp

    with pytest.warns(oc.errors.AsymmetryWarning, match="matrix 0 of the batch"):
        oc.cholesky(cp.tril(cp.asarray(batch(3, 20))))
