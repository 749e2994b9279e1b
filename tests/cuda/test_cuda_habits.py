"""NumPy's habits on factors that lie on GPUs: answers in kind, updates where L lies, nothing copied by accident."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg

import ooc_chol as oc
from tests.builders import device_solver
from tests.host.device_solves import SHAPES, budget_for, stored
from tests.host.matrices import FAMILIES
from tests.host.stored_factors import lapack_factor
from tests.inside.dense import multiply_on_device
from tests.inside.runtime import Pass
from tests.tolerances import factor_entry_bound, product_bound

pytestmark = pytest.mark.cuda
DEVICE = "cuda:0"


def on_gpu(a, device=0):
    import cupy as cp

    with cp.cuda.Device(device):
        return cp.asarray(a)


#: Where L lies: one tile on the GPU, tiles there, tiles in host memory that a GPU made, and host memory alone.
PLACES = {
    "whole": lambda a: oc.cholesky(on_gpu(a)),
    "tiles": lambda a: oc.cholesky(on_gpu(a), tile_size=128),
    "through": lambda a: oc.cholesky(a, devices=DEVICE, tile_size=128, memory_budget="200 MiB", store="host"),
    "host": lambda a: oc.cholesky(a, devices="host:0"),
}
everywhere = pytest.mark.parametrize("place", PLACES)


@everywhere
@pytest.mark.parametrize("n", [1, 100, 513])
def test_operators_answer_in_kind(place, n):
    import cupy as cp

    a = FAMILIES["matern15 nugget 1e-6"](n)
    with PLACES[place](a) as factor:
        dense = np.asarray(factor)
        for z in (np.random.default_rng(0).standard_normal((n, 3)), np.random.default_rng(1).standard_normal(n)):
            there = on_gpu(z)
            for operator, matrix in ((factor, dense), (factor.T, dense.T)):
                for here, gpu, expected in (
                    (operator @ z, operator @ there, matrix @ z),
                    (z.T @ operator, there.T @ operator, z.T @ matrix),
                ):
                    assert isinstance(here, np.ndarray) and isinstance(gpu, cp.ndarray)
                    assert here.shape == gpu.shape == expected.shape
                    assert np.allclose(here, expected, rtol=1e-12, atol=1e-12) and np.allclose(gpu.get(), expected, atol=1e-12)
        operator = scipy.sparse.linalg.aslinearoperator(factor)
        assert np.allclose(operator.H @ np.ones(n), dense.T @ np.ones(n))
        assert np.array_equal(factor[:, : n // 2], dense[:, : n // 2]) and factor[n - 1, 0] == dense[n - 1, 0]
        assert np.allclose(factor.solve_triangular(on_gpu(np.ones(n)), "T").get(), scipy.linalg.solve(dense.T, np.ones(n)))
        with pytest.raises(TypeError, match="dense array"):
            factor @ factor.T


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transposed_products_where_l_passes(shape, tmp_path):
    n, nb, columns = shape
    a, store = stored("file", n, nb, tmp_path)
    z = np.random.default_rng(1).standard_normal((n, min(columns, 9)))
    solver = device_solver(DEVICE, 2 * budget_for(DEVICE, store, columns))
    product = multiply_on_device(solver, store, z, Pass(""), transposed=True)
    store.close()
    dense = lapack_factor(a)
    assert (np.abs(product - dense.T.astype(np.longdouble) @ z) <= product_bound(dense.T, z)).all()


@everywhere
def test_samples_lie_where_their_generator_draws(place):
    import cupy as cp

    n = 200
    a = FAMILIES["exponential"](n)
    with PLACES[place](a) as factor:
        dense = np.asarray(factor)
        z = np.random.default_rng(3).standard_normal((4, n))
        assert np.allclose(factor.sample(4, 3, mean=np.arange(n)), np.arange(n) + z @ dense.T)
        there = factor.sample((2, 2), cp.random.default_rng(3), mean=np.arange(n))
        assert isinstance(there, cp.ndarray) and there.shape == (2, 2, n)
        drawn = cp.random.default_rng(3).standard_normal((4, n)).get()
        assert np.allclose(there.get().reshape(4, n), np.arange(n) + drawn @ dense.T)


@everywhere
def test_the_condition_is_that_of_the_host(place):
    a = FAMILIES["matern15 nugget 1e-6"](300)
    with PLACES[place](a) as factor:
        exact = np.linalg.cond(a, 1)
        assert exact / 3 <= factor.cond() <= 1.001 * exact
        assert factor.cond(equilibrated=True) == pytest.approx(factor.cond(), rel=0.5)
        assert factor.slogdet().logabsdet == pytest.approx(np.linalg.slogdet(a).logabsdet, rel=1e-9)


@everywhere
def test_ill_conditioned_matrices_warn_once(place):
    places = np.random.default_rng(0).random((300, 2))
    squares = ((places[:, None] - places[None]) ** 2).sum(-1)
    a = np.exp(-squares / 0.09) + 1e-12 * np.eye(300)
    with PLACES[place](a) as factor:
        with pytest.warns(scipy.linalg.LinAlgWarning, match="digits? of a solution"):
            factor.solve(on_gpu(np.ones(300)))
        factor.solve(np.ones(300))
    with PLACES[place](FAMILIES["exponential"](300)) as factor:
        factor.solve(np.ones(300))


@pytest.mark.parametrize("shape", [(500,), (500, 3)])
def test_right_hand_sides_are_overwritten_where_l_is_one_tile(shape):
    a, b = FAMILIES["exponential"](500), np.random.default_rng(0).standard_normal(shape)
    with oc.cholesky(on_gpu(a)) as factor:
        expected, there = factor.solve(on_gpu(b)), on_gpu(b)
        x = factor.solve(there, overwrite_b=True)
        assert x.data.ptr == there.data.ptr and x.shape == shape
        assert np.array_equal(x.get(), expected.get())
        kept = on_gpu(b)
        factor.solve(kept)
        assert np.array_equal(kept.get(), b)


@everywhere
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("k", [1, 40])
def test_updates_stay_where_l_lies(place, overwrite, k):
    n = 500
    a, v = FAMILIES["matern15 nugget 1e-6"](n), np.random.default_rng(0).standard_normal((n, k))
    total = a.astype(np.longdouble) + v.astype(np.longdouble) @ v.T.astype(np.longdouble)
    scale = total.diagonal().astype(float)
    bound = factor_entry_bound(n, scale[:, None], scale[None, :])
    factor = PLACES[place](a)
    with factor.update(on_gpu(v), overwrite=overwrite) as larger:
        assert ("device" in repr(larger)) == (place in ("whole", "tiles")) and factor.closed == overwrite
        dense = np.asarray(larger).astype(np.longdouble)
        assert (np.abs(np.tril(total - dense @ dense.T)) <= bound).all()
        assert np.allclose(larger.solve(np.ones(n)), np.linalg.solve(total.astype(float), np.ones(n)), rtol=1e-6, atol=1e-8)
        with larger.downdate(v) as back:
            dense = np.asarray(back).astype(np.longdouble)
            assert (np.abs(np.tril(a - dense @ dense.T)) <= bound).all()
        with pytest.raises(oc.errors.DowndateError):
            larger.downdate(10.0 * np.sqrt(scale.max()) * np.eye(n)[:, [7]])
        assert larger.logdet() == pytest.approx(np.linalg.slogdet(total.astype(float)).logabsdet, rel=1e-8)
    factor.close()


def test_copies_share_the_gpus_memory():
    a = FAMILIES["exponential"](300)
    factor = oc.cholesky(on_gpu(a))
    twin = copy.copy(factor)
    factor.close()
    assert np.allclose(twin.solve(np.ones(300)), np.linalg.solve(a, np.ones(300)))
    twin.close()
    assert twin.closed


def test_one_call_answers_in_kind():
    import cupy as cp

    a, b = FAMILIES["exponential"](300), np.ones(300)
    x = oc.solve(on_gpu(a), on_gpu(b))
    assert isinstance(x, cp.ndarray) and np.allclose(x.get(), np.linalg.solve(a, b))
    assert oc.logdet(on_gpu(a)) == pytest.approx(np.linalg.slogdet(a).logabsdet)


@pytest.mark.multigpu
def test_updates_stay_on_both_gpus():
    n = 700
    a, v = FAMILIES["matern15 nugget 1e-6"](n), np.random.default_rng(0).standard_normal((n, 3))
    options = {"tile_size": 128, "devices": ["cuda:0", "cuda:1"], "store": "device", "memory_budget": "200 MiB"}
    with oc.cholesky(a, **options) as factor, factor.update(v) as larger, oc.cholesky(a + v @ v.T, devices="host:0") as expected:
        assert np.allclose(np.asarray(larger), np.asarray(expected), atol=1e-9)
        assert "device" in repr(larger)
