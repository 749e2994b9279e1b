"""Solves and operations of positive definite matrices for JAX's arrays on a GPU: done there, within jit and outside of it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from ooc_chol.diff import Pattern
from tests.diff_jax_problems import OPERATIONS, arguments, poisson, solvable

pytestmark = [pytest.mark.cuda(n=1), pytest.mark.package("jax")]

#: Operations that are calls on a GPU.
CALLED = [
    name
    for name in OPERATIONS
    if any(word in name for word in ("solve", "iangle", "unit", "log", "inverse", "Chol", "sample of"))
]


@pytest.fixture(autouse=True)
def gpu() -> Any:
    """The first GPU of a JAX that has one, with 64-bit types."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of the GPU's memory at once
    import jax

    try:
        device = jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("JAX has no CUDA")
    with jax.enable_x64(True), jax.default_device(device):
        yield device


@pytest.fixture
def cudss() -> None:
    from tests.inside.kernels import has_cudss

    if not has_cudss():
        pytest.skip("cuDSS is not installed")


def sparse() -> Any:
    import ooc_chol.diff.jax

    return ooc_chol.diff.jax


def on(device: Any, *given: Any) -> list[Any]:
    import jax

    return [jax.device_put(each, device) for each in given]


def text(function: Any, *given: Any) -> str:
    import jax

    return str(jax.jit(function).lower(*given).as_text())


def loss(function: Any, *given: Any) -> Any:
    found = function(*given)
    return (found**2).sum(), found


@pytest.mark.parametrize("name", CALLED)
@pytest.mark.usefixtures("cudss")
def test_values_and_derivatives_are_those_of_the_host(name: str, gpu: Any) -> None:
    import jax

    function, names = OPERATIONS[name]
    given = arguments(sparse(), names)
    every = tuple(range(len(given)))
    derivative = jax.grad(partial(loss, partial(function, sparse())), every, has_aux=True)
    second = jax.grad(lambda *given: sum((g**2).sum() for g in jax.tree.leaves(derivative(*given)[0])), every)
    for each in (derivative, second):
        here = text(each, *on(gpu, *given))
        assert "ooc_chol_call" in here and "callback" not in here
        with jax.default_device(jax.devices("cpu")[0]):
            expected = jax.tree.leaves(each(*on(jax.devices("cpu")[0], *given)))
        for found in (each(*on(gpu, *given)), jax.jit(each)(*on(gpu, *given))):
            for one, other in zip(jax.tree.leaves(found), expected, strict=True):
                assert one.devices() == {gpu} and one.dtype == other.dtype
                assert np.allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("assume", [None, "symmetric", "spd"])
@pytest.mark.parametrize("columns", [(), (3,)])
@pytest.mark.usefixtures("cudss")
def test_one_factor_on_the_gpu_serves_a_solve_and_its_gradient(columns: Any, assume: Any, dtype: Any, gpu: Any) -> None:
    import jax

    from tests.inside.diff import CACHE

    a = poisson(30, dtype)
    A, b = on(gpu, sparse().CSR.of(a), np.random.default_rng(0).standard_normal((900, *columns)).astype(dtype))
    derivative = jax.jit(jax.grad(partial(loss, partial(sparse().solve, assume=assume, method="cudss")), has_aux=True))
    CACHE.clear()
    before = CACHE.factored
    gradient, x = jax.block_until_ready(derivative(A, b))
    again, same = jax.block_until_ready(derivative(A, b))
    assert CACHE.factored == before + 1
    assert np.array_equal(x, same) and np.array_equal(gradient.values, again.values)
    exact = scipy.sparse.linalg.splu(a.astype(np.float64).tocsc()).solve(np.asarray(b, np.float64))
    assert np.abs(x - exact).max() <= (1e-11 if dtype == np.float64 else 1e-5) * np.abs(exact).max()
    assert x.dtype == gradient.dtype == dtype and x.devices() == {gpu}


@pytest.mark.usefixtures("cudss")
def test_a_singular_matrix_names_its_column_and_the_next_one_is_solved(gpu: Any) -> None:
    import jax

    pattern = Pattern([0, 1, 2, 3], [0, 1, 2], (3, 3))
    singular, fine = (sparse().CSR(*on(gpu, np.array([1.0, 1.0, last])), pattern) for last in (0.0, 2.0))
    b = on(gpu, np.ones(3))[0]
    with pytest.raises(oc.errors.SingularMatrixError, match="column 2") as caught:
        sparse().solve(singular, b)
    assert caught.value.column == 2
    with pytest.raises(oc.errors.SingularMatrixError) as caught:
        sparse().triangular_solve(singular, b)
    assert caught.value.column == 2
    with pytest.raises(oc.errors.NotPositiveDefiniteError):
        sparse().logdet(singular)
    solve = jax.jit(sparse().solve)
    with pytest.raises(jax.errors.JaxRuntimeError, match="column 2"):
        jax.block_until_ready(solve(singular, b))
    assert np.array_equal(solve(fine, b), [1.0, 1.0, 0.5])


@pytest.mark.usefixtures("cudss")
def test_one_jitted_function_serves_both_memories(gpu: Any) -> None:
    import jax

    host = jax.devices("cpu")[0]
    solve = jax.jit(sparse().solve)
    A, b = sparse().CSR.of(solvable()), np.arange(6.0)
    for device in (host, gpu, host, gpu):
        x = solve(*on(device, A, b))
        assert x.devices() == {device} and np.allclose(solvable() @ np.asarray(x), b)
    with pytest.raises(ValueError, match="lie in host memory"):
        jax.jit(partial(sparse().solve, method="cudss"))(*on(host, A, b))


@pytest.mark.parametrize("mapped", [(None, 0), (0, None), (0, 0)], ids=["vectors", "values", "both"])
@pytest.mark.usefixtures("cudss")
def test_vmap(mapped: Any, gpu: Any) -> None:
    import jax
    import jax.numpy as jnp

    A = sparse().CSR.of(solvable())
    values = jnp.stack([A.values, 2 * A.values, A.values + 1]) if mapped[0] == 0 else A.values
    b = jnp.asarray(np.random.default_rng(0).standard_normal((3, 6) if mapped[1] == 0 else 6))
    every = jax.vmap(lambda values, b: sparse().solve(sparse().CSR(values, A.pattern), b), mapped)
    found = jax.jit(every)(*on(gpu, values, b))
    assert "callback" not in text(every, *on(gpu, values, b))
    assert found.devices() == {gpu} and np.allclose(found, every(*on(jax.devices("cpu")[0], values, b)))


@pytest.mark.usefixtures("cudss")
def test_what_comes_before_and_after_on_the_stream_is_waited_for(gpu: Any) -> None:
    """Values are made by a long product, and solutions read at once, in a loop that XLA might replay as a graph."""
    import jax
    import jax.numpy as jnp

    a = poisson(60)
    A, ones = on(gpu, sparse().CSR.of(a), np.ones((3600, 3600)))

    def step(_: int, carry: Any) -> Any:
        shift, total = carry
        x = sparse().solve(A * (1.0 + shift), jnp.full(3600, 2.0))
        made = (ones @ x)[0] / (1e6 * jnp.abs(x).max())
        return made, total + x.sum()

    run = jax.jit(lambda: jax.lax.fori_loop(0, 5, step, (0.0, 0.0)))
    first = [float(each) for each in run()]
    shift, total, factor = 0.0, 0.0, scipy.sparse.linalg.splu(a.tocsc())
    for _ in range(5):
        x = factor.solve(np.full(3600, 2.0)) / (1.0 + shift)
        shift, total = x.sum() / (1e6 * np.abs(x).max()), total + x.sum()
    assert np.allclose(first, [shift, total], rtol=1e-9)
    assert all(np.allclose([float(each) for each in run()], first, rtol=1e-12) for _ in range(5))


@pytest.mark.usefixtures("cudss")
def test_threads_solve_at_once(gpu: Any) -> None:
    import jax

    a = poisson(20)
    (A,) = on(gpu, sparse().CSR.of(a))
    solve = jax.jit(lambda factor, b: sparse().solve(A * factor, b))

    def residual(number: int) -> float:
        with jax.enable_x64(True):
            b = np.random.default_rng(number).standard_normal(400)
            x = np.asarray(solve(number % 3 + 1.0, *on(gpu, b)))
            return float(np.abs((number % 3 + 1) * (a @ x) - b).max())

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(residual, range(40))) < 1e-12


def test_superlu_by_name_is_called_back(gpu: Any) -> None:
    import jax

    A, b = on(gpu, sparse().CSR.of(solvable()), np.arange(6.0))
    solve = partial(sparse().solve, method="superlu")
    assert "callback" in text(solve, A, b)
    for found in (solve(A, b), jax.jit(solve)(A, b)):
        assert found.devices() == {gpu} and np.allclose(solvable() @ np.asarray(found), np.arange(6.0))


@pytest.mark.cuda(n=2)
@pytest.mark.usefixtures("cudss")
def test_arrays_on_the_second_gpu_stay_there() -> None:
    import jax

    second = jax.devices("cuda")[1]
    A, b = on(second, sparse().CSR.of(solvable()), np.arange(6.0))
    for found in (sparse().solve(A, b), jax.jit(sparse().solve)(A, b)):
        assert found.devices() == {second} and np.allclose(solvable() @ np.asarray(found), np.arange(6.0))
