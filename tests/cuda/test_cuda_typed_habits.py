"""NumPy's habits on factors in float32 and of complex matrices that lie on GPUs: each operation beside NumPy's, in kind."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import ooc_chol as oc
from tests.builders import device_solver
from tests.host.typed import DTYPES, matrix
from tests.host.typed_operations import COMPLEX, PRODUCTS, SOLVES, added, check_updated, numbers, smooth
from tests.inside.dense import multiply_on_device
from tests.inside.precision import TYPES
from tests.inside.runtime import Pass
from tests.tolerances import solve_bound, unit_roundoff

pytestmark = pytest.mark.cuda
N = 300


def on_gpu(a):
    import cupy as cp

    return cp.asarray(a)


#: Where L lies: one tile on the GPU, tiles there, and tiles in host memory that a GPU made.
PLACES = {
    "whole": lambda a, dtype: oc.cholesky(on_gpu(a), dtype=dtype),
    "tiles": lambda a, dtype: oc.cholesky(on_gpu(a), dtype=dtype, tile_size=128),
    "through": lambda a, dtype: oc.cholesky(a, dtype=dtype, devices="cuda:0", tile_size=128, store="host"),
}
everywhere = pytest.mark.parametrize("place", PLACES)
every_type = pytest.mark.parametrize("dtype", DTYPES)


def factor_of(place, dtype, n=N):
    return PLACES[place](matrix("exponential", n, dtype), dtype)


@everywhere
@every_type
@pytest.mark.parametrize("shape", [(N,), (N, 3), (N, 40)], ids=str)
def test_products_are_numpys(place, dtype, shape):
    import cupy as cp

    z = numbers(dtype, *shape)
    with factor_of(place, dtype) as factor:
        dense = np.asarray(factor)
        for name, (multiply, of_dense) in PRODUCTS.items():
            other, there = of_dense(dense), on_gpu(z)
            products = [multiply(factor, z)]
            if not name.startswith(("operator", "np.")):  # SciPy and NumPy take arrays of the host
                products.append(multiply(factor, there))
                assert isinstance(products[1], cp.ndarray), name
                assert np.array_equal(there.get(), z), name
            for product in products:
                assert product.dtype == np.dtype(dtype) and product.shape == shape, name
                found = product.get() if isinstance(product, cp.ndarray) else product
                wrong = np.abs(found - other.astype(np.complex128) @ z)
                assert (wrong <= 2 * N * unit_roundoff(dtype) * (np.abs(other) @ np.abs(z))).all(), name


@everywhere
@every_type
@pytest.mark.parametrize("shape", [(N,), (N, 3), (N, 40)], ids=str)
def test_solves_are_scipys(place, dtype, shape):
    import cupy as cp

    b = numbers(dtype, *shape)
    with factor_of(place, dtype) as factor:
        dense = np.asarray(factor)
        for name, (solve, of_dense) in SOLVES.items():
            system, there = of_dense(dense), on_gpu(b)
            for x in (solve(factor, b), solve(factor, there)):
                assert x.dtype == np.dtype(dtype) and x.shape == shape, name
                found = x.get() if isinstance(x, cp.ndarray) else x
                wrong = np.linalg.norm(system.astype(np.complex128) @ found - b, axis=0)
                assert np.all(wrong <= solve_bound(N, float(np.linalg.norm(system)), np.linalg.norm(found, axis=0), dtype)), name
            assert isinstance(x, cp.ndarray) and np.array_equal(there.get(), b), name
            over = solve(factor, there, overwrite_b=True)
            assert np.array_equal(over.get(), x.get()), name
            assert (over.data.ptr == there.data.ptr) == (place == "whole"), name


@everywhere
@every_type
def test_entries_and_determinants(place, dtype):
    with factor_of(place, dtype) as factor:
        dense = np.asarray(factor)
        for view, entries in ((factor.T, dense.T), (factor.H, dense.conj().T), (factor.conj(), dense.conj())):
            assert np.array_equal(np.asarray(view), entries) and view.dtype == np.dtype(dtype)
        assert np.array_equal(factor[100:140, :50], dense[100:140, :50]) and factor[N - 1, 0] == dense[N - 1, 0]
        assert factor.slogdet() == (1.0, factor.logdet())


@everywhere
@every_type
def test_samples_lie_where_their_generator_draws(place, dtype):
    import cupy as cp

    with factor_of(place, dtype) as factor:
        dense, shape = np.asarray(factor), (4, N, 2) if dtype in COMPLEX else (4, N)
        mean = np.arange(float(N)) * (1j if dtype in COMPLEX else 1)
        there = factor.sample((2, 2), cp.random.default_rng(3), mean=mean)
        assert isinstance(there, cp.ndarray) and there.shape == (2, 2, N) and there.dtype == np.dtype(dtype)
        for found, drawn in (
            (there.get().reshape(4, N), cp.random.default_rng(3).standard_normal(shape).get()),
            (factor.sample(4, 3, mean=mean), np.random.default_rng(3).standard_normal(shape)),
        ):
            z = (drawn[..., 0] + 1j * drawn[..., 1]) / np.sqrt(2) if dtype in COMPLEX else drawn
            assert np.allclose(found, mean + z @ dense.T, rtol=0, atol=1e3 * unit_roundoff(dtype) * N)


@everywhere
@every_type
def test_the_condition_is_that_of_the_host(place, dtype):
    a = matrix("exponential", N, dtype)
    exact = np.linalg.cond(a.astype(np.complex128), 1)
    with PLACES[place](a, dtype) as factor:
        assert exact / 3 <= factor.cond() <= exact * (1 + 100 * N * unit_roundoff(dtype) * exact)
        assert factor.cond(equilibrated=True) == pytest.approx(factor.cond(), rel=0.5)


@everywhere
@every_type
def test_ill_conditioned_matrices_warn_once_by_the_roundoff_of_the_type(place, dtype):
    with PLACES[place](smooth(N, 1e3 * unit_roundoff(dtype), dtype), dtype) as factor:
        with pytest.warns(scipy.linalg.LinAlgWarning, match=f"digits? of a solution in {dtype} can be"):
            factor.solve(on_gpu(np.ones(N)))
        factor.solve(np.ones(N))
    with factor_of(place, dtype) as factor:
        factor.solve(np.ones(N))


@everywhere
@every_type
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("columns", [1, 40])
def test_updates_stay_where_l_lies(place, dtype, overwrite, columns):
    v = numbers(dtype, N, columns)
    factor = factor_of(place, dtype)
    wide = added(np.zeros((N, N), dtype), np.asarray(factor), 1)
    larger = added(wide, v, 1)
    scale = larger.diagonal().real.astype(float)
    with factor.update(on_gpu(v), overwrite=overwrite) as updated:
        assert ("device" in repr(updated)) == (place != "through") and factor.closed == overwrite
        check_updated(updated, larger, scale, dtype)
        with updated.downdate(v) as back:
            check_updated(back, wide, scale, dtype)
        column = (np.asarray(updated)[:, 40] * 1.5).astype(dtype)
        with pytest.raises(oc.errors.DowndateError) as caught:
            updated.downdate(column, overwrite=overwrite)
        assert caught.value.minor == 41
    factor.close()


@every_type
def test_one_call_answers_in_kind(dtype):
    import cupy as cp

    a, b = matrix("exponential", N, dtype), numbers(dtype, N, 2)
    x = oc.solve(on_gpu(a), on_gpu(b), dtype=dtype)
    assert isinstance(x, cp.ndarray) and x.dtype == np.dtype(dtype)
    wrong = np.linalg.norm(a.astype(np.complex128) @ x.get() - b, axis=0)
    assert (wrong <= solve_bound(N, float(np.linalg.norm(a)), np.linalg.norm(x.get(), axis=0), dtype)).all()


@every_type
@pytest.mark.parametrize("transposed", [False, True])
def test_products_where_l_passes_are_with_the_adjoint(dtype, transposed):
    with oc.cholesky(np.array(matrix("exponential", N, dtype)), dtype=dtype, tile_size=64, devices="host:0") as factor:
        z = numbers(dtype, N, 7)
        product = multiply_on_device(
            device_solver("cuda:0", 200 << 20, TYPES[dtype]), factor._store, z, Pass(""), transposed=transposed
        )
        dense = np.asarray(factor).conj().T if transposed else np.asarray(factor)
    wrong = np.abs(product - dense.astype(np.complex128) @ z)
    assert (wrong <= 2 * N * unit_roundoff(dtype) * (np.abs(dense) @ np.abs(z))).all()
