"""Every source on every choice of devices, in every arithmetic: the factor of LAPACK, wherever A lies and whoever made it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import ooc_chol as oc
from tests.host.matrices import exponential, sites
from tests.tolerances import factor_norm_bound

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
HOW = {"native": {"fp64": "native"}, "residue": {"fp64": "residue"}, "mixed": {"precision_threshold": 1e-7}}


@cache
def matrix() -> np.ndarray:
    """A covariance matrix of condition 1e4, entries above the diagonal included."""
    from scipy.spatial.distance import cdist

    places = sites(N)
    exact = exponential(cdist(places, places) / 0.1) + 1e-2 * np.eye(N)
    return exact.astype(np.float32).astype(np.float64)  # sources of both types hold this one


@cache
def lapack() -> np.ndarray:
    return scipy.linalg.cholesky(matrix(), lower=True)


def on(gpu: int, make: Callable[[Any], Any]) -> Callable[[Path], Any]:
    """``make(cupy)`` on one GPU, complete."""

    def source(_: Path) -> Any:
        import cupy as cp

        with cp.cuda.Device(gpu):
            made = make(cp)
            cp.cuda.Device().synchronize()
            return made

    return source


def late(gpu: int, *, default: bool) -> Callable[[Path], Any]:
    """A CuPy array that a stream of its GPU fills only now, long after it is handed over."""

    def source(_: Path) -> Any:
        import cupy as cp

        spin = cp.RawKernel('extern "C" __global__ void spin(long long c){long long s=clock64();while(clock64()-s<c);}', "spin")
        with cp.cuda.Device(gpu):
            ready, a = cp.asarray(matrix()), cp.full((N, N), -7.0)
            cp.cuda.Device().synchronize()
            with cp.cuda.Stream.null if default else cp.cuda.Stream(non_blocking=True):
                spin((1,), (1,), (np.int64(SPIN),))
                a[...] = (ready + ready.T) * 0.5
        return a

    return source


def torch_on(place: str) -> Callable[[Path], Any]:
    def source(_: Path) -> Any:
        import torch

        return torch.tensor(matrix(), device=place)

    return source


def jax_on(gpu: int) -> Callable[[Path], Any]:
    def source(_: Path) -> Any:
        import jax

        jax.config.update("jax_enable_x64", True)
        return jax.device_put(matrix(), jax.devices("gpu")[gpu])

    return source


def path(folder: Path) -> Path:
    np.save(folder / "a.npy", matrix())
    return folder / "a.npy"


def memmap(folder: Path) -> np.ndarray:
    return np.load(path(folder), mmap_mode="r")


def h5py_set(folder: Path) -> Any:
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        file["a"] = matrix()
    return h5py.File(folder / "a.h5")["a"]


def function(_: Path) -> Any:
    def tile_fn(rows, cols, out, stream):
        block = matrix()[rows.start : rows.stop, cols.start : cols.stop]
        if isinstance(out, np.ndarray):
            out[...] = block
        else:
            import cupy as cp

            out[...] = cp.asarray(np.ascontiguousarray(block))

    return oc.from_function(N, tile_fn)


def read_only(_: Path) -> np.ndarray:
    a = matrix().copy()
    a.flags.writeable = False
    return a


SOURCES: dict[str, Callable[[Path], Any]] = {
    "numpy C": lambda _: matrix(),
    "numpy F": lambda _: np.asfortranarray(matrix()),
    "numpy strided": lambda _: np.repeat(matrix(), 2, axis=1)[:, ::2],
    "numpy reversed": lambda _: np.ascontiguousarray(matrix()[::-1, ::-1])[::-1, ::-1],
    "numpy read-only": read_only,
    "npy": path,
    "memmap": memmap,
    "function": function,
}
if find_spec("h5py"):
    SOURCES["h5py"] = h5py_set
if find_spec("torch"):
    SOURCES["torch on the host"] = torch_on("cpu")


def device_sources(gpu: int) -> dict[str, Callable[[Path], Any]]:
    """Matrices in the memory of one GPU."""
    found = {
        f"cupy C {gpu}": on(gpu, lambda cp: cp.asarray(matrix())),
        f"cupy float32 {gpu}": on(gpu, lambda cp: cp.asarray(matrix().astype(np.float32))),
        f"cupy F {gpu}": on(gpu, lambda cp: cp.asfortranarray(cp.asarray(matrix()))),
        f"cupy strided {gpu}": on(gpu, lambda cp: cp.repeat(cp.asarray(matrix()), 2, axis=1)[:, ::2]),
        f"cupy part {gpu}": on(gpu, lambda cp: cp.pad(cp.asarray(matrix()), 3)[3:-3, 3:-3]),
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


def check(factor: oc.CholeskyFactor, threshold: float | None) -> None:
    """Within twice LAPACK's residual, or within the bound and the threshold; and close to LAPACK's factor entry by entry."""
    a, ours, reference = matrix(), np.asarray(factor), lapack()
    norm, residual, lapacks = (float(np.linalg.norm(x)) for x in (a, a - ours @ ours.T, a - reference @ reference.T))
    if threshold is None:
        assert residual <= factor_norm_bound(N, lapacks, norm)
    else:
        assert residual <= float(factor.report.certified_bound) * norm <= threshold * norm
    # A perturbation E of A moves L by about ||inv(L)|| ||E|| (Sun 1991); inv(L) has norm 10 here.
    assert np.abs(ours - reference).max() <= 20 * max(residual, lapacks)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("make", ALL)
def test_every_source_on_every_choice_of_devices(tmp_path, make, devices, how):
    with oc.cholesky(make(tmp_path), devices=devices, tile_size=NB, **HOW[how]) as factor:
        check(factor, HOW[how].get("precision_threshold"))


@pytest.mark.parametrize("devices", DEVICES)
def test_overwrite(devices):
    for order in "CF":
        a = np.array(matrix(), order=order)
        with oc.cholesky(a, devices=devices, tile_size=NB, overwrite=True) as factor:
            check(factor, None)
        assert np.array_equal(np.triu(a, 1), np.triu(matrix(), 1))


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("make", ALL)
def test_refinement_reads_every_source(tmp_path, make, devices):
    b = np.random.default_rng(0).standard_normal((N, 3))
    with oc.cholesky(make(tmp_path), 1e-4, devices=devices, tile_size=NB) as factor:
        x = factor.solve(b, refine=True)
    assert np.abs(x - scipy.linalg.cho_solve((lapack(), True), b)).max() <= 1e-9 * np.abs(x).max()


@pytest.mark.cuda
@pytest.mark.parametrize("repeat", range(5))
def test_work_on_the_default_stream_does_not_reach_into_a_run(repeat):
    import cupy as cp

    spin = cp.RawKernel('extern "C" __global__ void spin(long long c){long long s=clock64();while(clock64()-s<c);}', "spin")
    a = matrix()
    for how in HOW.values():
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
