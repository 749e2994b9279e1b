"""Every source on every choice of devices, in every arithmetic: the factor of LAPACK, wherever A lies and whoever made it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import ooc_chol as oc
from tests.host.source_table import ARITHMETIC, HOST_SOURCES, MakeSource, check, lapack, matrix

pytestmark = pytest.mark.cuda

N, NB = 1300, 256
#: Turns of an idle loop on the GPU: some tens of milliseconds, longer than a factorization of order N takes to read A.
SPIN = 100_000_000
ONE = pytest.mark.cuda
TWO = pytest.mark.multigpu
DEVICES = [
    pytest.param("host:0", marks=ONE),
    pytest.param("cuda:0", marks=ONE),
    pytest.param("cuda:1", marks=TWO),
    pytest.param(("cuda:0", "cuda:1"), marks=TWO),
    pytest.param(("cuda:1", "cuda:0"), marks=TWO),
]


def on(gpu: int, make: Callable[[Any], Any]) -> MakeSource:
    """``make(cupy)`` on one GPU, complete."""

    def source(_: Path, n: int) -> Any:
        import cupy as cp

        with cp.cuda.Device(gpu):
            made = make(cp)
            cp.cuda.Device().synchronize()
            return made

    return source


def late(gpu: int, *, default: bool) -> MakeSource:
    """A CuPy array that a stream of its GPU fills only now, long after it is handed over."""

    def source(_: Path, n: int) -> Any:
        import cupy as cp

        spin = cp.RawKernel('extern "C" __global__ void spin(long long c){long long s=clock64();while(clock64()-s<c);}', "spin")
        with cp.cuda.Device(gpu):
            ready, a = cp.asarray(matrix(N)), cp.full((N, N), -7.0)
            cp.cuda.Device().synchronize()
            with cp.cuda.Stream.null if default else cp.cuda.Stream(non_blocking=True):
                spin((1,), (1,), (np.int64(SPIN),))
                a[...] = (ready + ready.T) * 0.5
        return a

    return source


def torch_on(place: str) -> MakeSource:
    def source(_: Path, n: int) -> Any:
        import torch

        return torch.tensor(matrix(N), device=place)

    return source


def jax_on(gpu: int) -> MakeSource:
    def source(_: Path, n: int) -> Any:
        import jax

        jax.config.update("jax_enable_x64", True)
        return jax.device_put(matrix(N), jax.devices("gpu")[gpu])

    return source


#: Zarr is not on every GPU machine.
SOURCES: dict[str, MakeSource] = {
    name: make for name, make in HOST_SOURCES.items() if find_spec(name) or name not in ("h5py", "zarr")
}
if find_spec("torch"):
    SOURCES["torch on the host"] = torch_on("cpu")


def device_sources(gpu: int) -> dict[str, MakeSource]:
    """Matrices in the memory of one GPU."""
    found = {
        f"cupy C {gpu}": on(gpu, lambda cp: cp.asarray(matrix(N))),
        f"cupy float32 {gpu}": on(gpu, lambda cp: cp.asarray(matrix(N).astype(np.float32))),
        f"cupy F {gpu}": on(gpu, lambda cp: cp.asfortranarray(cp.asarray(matrix(N)))),
        f"cupy strided {gpu}": on(gpu, lambda cp: cp.repeat(cp.asarray(matrix(N)), 2, axis=1)[:, ::2]),
        f"cupy part {gpu}": on(gpu, lambda cp: cp.pad(cp.asarray(matrix(N)), 3)[3:-3, 3:-3]),
        f"cupy late on a stream {gpu}": late(gpu, default=False),
        f"cupy late on the default stream {gpu}": late(gpu, default=True),
    }
    if find_spec("torch"):
        found[f"torch {gpu}"] = torch_on(f"cuda:{gpu}")
    if find_spec("jax"):
        found[f"jax {gpu}"] = jax_on(gpu)
    return found


ALL = [
    *(pytest.param(make, id=name, marks=ONE) for name, make in (SOURCES | device_sources(0)).items()),
    *(pytest.param(make, id=name, marks=TWO) for name, make in device_sources(1).items()),
]


@pytest.mark.parametrize("how", ARITHMETIC)
@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("make", ALL)
def test_every_source_on_every_choice_of_devices(tmp_path, make, devices, how):
    with oc.cholesky(make(tmp_path, N), devices=devices, tile_size=NB, **ARITHMETIC[how]) as factor:
        check(factor, ARITHMETIC[how].get("precision_threshold"))


@pytest.mark.parametrize("devices", DEVICES)
def test_overwrite(devices):
    for order in "CF":
        a = np.array(matrix(N), order=order)
        with oc.cholesky(a, devices=devices, tile_size=NB, overwrite=True) as factor:
            check(factor, None)
        assert np.array_equal(np.triu(a, 1), np.triu(matrix(N), 1))


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("make", ALL)
def test_refinement_reads_every_source(tmp_path, make, devices):
    b = np.random.default_rng(0).standard_normal((N, 3))
    with oc.cholesky(make(tmp_path, N), 1e-4, devices=devices, tile_size=NB) as factor:
        x = factor.solve(b, refine=True)
    assert np.abs(x - scipy.linalg.cho_solve((lapack(N), True), b)).max() <= 1e-9 * np.abs(x).max()


@pytest.mark.cuda
@pytest.mark.parametrize("repeat", range(5))
def test_work_on_the_default_stream_does_not_reach_into_a_run(repeat):
    import cupy as cp

    spin = cp.RawKernel('extern "C" __global__ void spin(long long c){long long s=clock64();while(clock64()-s<c);}', "spin")
    a = matrix(N)
    for how in ARITHMETIC.values():
        spin((1,), (1,), (np.int64(SPIN),))  # what a run clears on the default stream waits behind this
        with oc.cholesky(a, devices="cuda:0", tile_size=NB, **how) as factor:
            check(factor, how.get("precision_threshold"))


@pytest.mark.multigpu
@pytest.mark.parametrize("repeat", range(10))
@pytest.mark.parametrize("devices", ["cuda:1", 2])
@pytest.mark.parametrize("gpu", [0, 1])
def test_a_large_cupy_array_across_gpus(gpu, devices, repeat):
    import cupy as cp

    n = 8192
    with cp.cuda.Device(gpu):
        x = cp.random.default_rng(repeat).random((n, 2))
        a = cp.exp(-cp.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)) / 0.1)
        a[cp.arange(n), cp.arange(n)] += 1e-4
        expected = 2 * float(cp.log(cp.diag(cp.linalg.cholesky(a))).sum())
        busy = cp.ones((n, n))
        for _ in range(10):
            busy = busy @ busy * 1e-4  # other work of the default stream goes on meanwhile
    with oc.cholesky(a, devices=devices) as factor:
        assert factor.logdet() == pytest.approx(expected, rel=1e-10)
