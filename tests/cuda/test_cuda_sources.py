"""Every source on every choice of devices, in every arithmetic: the factor of LAPACK, wherever A lies and whoever made it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import ooc_chol as oc
from tests.host.source_checks import check, check_unchanged
from tests.host.source_table import (
    ARITHMETIC,
    HOST_SOURCES,
    SINGLE,
    MakeSource,
    is_single,
    lapack,
    marked,
    matrix,
    needed_packages,
    reversed_twice,
    spread,
    torch_tensor,
    triangle,
    wrong_above,
    wrong_below,
)
from tests.inside.kernels import workspace_bytes
from tests.products import pairwise
from tests.tolerances import FACTOR_ENTRY_C

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module", autouse=True)
def zarr_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Threads that nothing ends are there before the first test looks what it leaves."""
    if find_spec("zarr") and find_spec("xarray"):
        from tests.zarr_threads import start_zarr_threads

        start_zarr_threads(tmp_path_factory.mktemp("zarr"))


N, NB = 1300, 256
#: Turns of an idle loop on the GPU: some tens of milliseconds, longer than a factorization of order N takes to read A.
SPIN = 100_000_000
TWO = pytest.mark.multigpu
#: Choices of devices, and what they need beside one GPU; None is every GPU that there is.
DEVICES: dict[Any, list[Any]] = {
    "host:0": [],
    ("host:0", "host:1"): [],
    "cuda:0": [],
    "cuda:1": [TWO],
    ("cuda:0", "cuda:1"): [TWO],
    ("cuda:1", "cuda:0"): [TWO],
    ("cuda:0", "cuda:1", "cuda:2", "cuda:3"): [pytest.mark.cuda(n=4)],
    None: [],
}


def on(gpu: int, make: Callable[[Any, int], Any]) -> MakeSource:
    """``make(cupy, n)`` on one GPU, complete."""

    def source(_: Path, n: int) -> Any:
        import cupy as cp

        with cp.cuda.Device(gpu):
            made = make(cp, n)
            cp.cuda.Device().synchronize()
            return made

    return source


def spin(cp: Any) -> None:
    """Keep the current stream busy for a while."""
    code = 'extern "C" __global__ void spin(long long c){long long s=clock64();while(clock64()-s<c);}'
    cp.RawKernel(code, "spin")((1,), (1,), (np.int64(SPIN),))


def late(gpu: int, *, default: bool) -> MakeSource:
    """A CuPy array that a stream of its GPU fills only now, long after it is handed over."""

    def source(_: Path, n: int) -> Any:
        import cupy as cp

        with cp.cuda.Device(gpu):
            ready, a = cp.asarray(matrix(n)), cp.full((n, n), -7.0)
            cp.cuda.Device().synchronize()
            with cp.cuda.Stream.null if default else cp.cuda.Stream(non_blocking=True):
                spin(cp)
                a[...] = (ready + ready.T) * 0.5
        return a

    return source


def managed(cp: Any, n: int) -> Any:
    """In memory that host and GPUs share."""
    with cp.cuda.using_allocator(cp.cuda.malloc_managed):
        return cp.asarray(matrix(n))


def torch_late(gpu: int) -> MakeSource:
    """A tensor that a stream of torch's fills only now."""

    def source(_: Path, n: int) -> Any:
        import torch

        with torch.cuda.device(gpu):
            ready, a = (
                torch.tensor(matrix(n), device=f"cuda:{gpu}"),
                torch.full((n, n), -7.0, dtype=torch.float64, device=f"cuda:{gpu}"),
            )
            torch.cuda.synchronize()
            stream = torch.cuda.Stream()
            ready.record_stream(stream)  # torch would give its memory away while the stream waits
            with torch.cuda.stream(stream):
                torch.cuda._sleep(SPIN)
                a.copy_((ready + ready.T) * 0.5)
        return a

    return source


def jax_on(gpu: int, dtype: Any = np.float64) -> MakeSource:
    def source(_: Path, n: int) -> Any:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of the GPU's memory at once
        import jax

        jax.config.update("jax_enable_x64", True)
        return jax.device_put(matrix(n).astype(dtype), jax.devices("gpu")[gpu])

    return source


#: Forms in the memory of a GPU.
ON_GPU: dict[str, Callable[[int], MakeSource]] = {
    "cupy C": lambda gpu: on(gpu, lambda cp, n: cp.asarray(matrix(n))),
    "cupy F": lambda gpu: on(gpu, lambda cp, n: cp.asfortranarray(cp.asarray(matrix(n)))),
    "cupy C, wrong above": lambda gpu: on(gpu, lambda cp, n: cp.asarray(wrong_above(matrix(n)))),
    "cupy C, wrong below": lambda gpu: on(gpu, lambda cp, n: cp.asarray(wrong_below(matrix(n)))),
    "cupy F, wrong below": lambda gpu: on(gpu, lambda cp, n: cp.asfortranarray(cp.asarray(wrong_below(matrix(n))))),
    "cupy float32": lambda gpu: on(gpu, lambda cp, n: cp.asarray(matrix(n).astype(SINGLE))),
    "cupy float32 F": lambda gpu: on(gpu, lambda cp, n: cp.asfortranarray(cp.asarray(matrix(n).astype(SINGLE)))),
    "cupy strided": lambda gpu: on(gpu, lambda cp, n: cp.repeat(cp.asarray(matrix(n)), 2, axis=1)[:, ::2]),
    "cupy every second row": lambda gpu: on(gpu, lambda cp, n: cp.repeat(cp.asarray(matrix(n)), 2, axis=0)[::2]),
    "cupy reversed": lambda gpu: on(gpu, lambda cp, n: cp.asarray(np.ascontiguousarray(matrix(n)[::-1, ::-1]))[::-1, ::-1]),
    "cupy part": lambda gpu: on(gpu, lambda cp, n: cp.pad(cp.asarray(matrix(n)), 3)[3:-3, 3:-3]),
    "cupy managed": lambda gpu: on(gpu, managed),
    "cupy late on a stream": lambda gpu: late(gpu, default=False),
    "cupy late on the default stream": lambda gpu: late(gpu, default=True),
    "torch": lambda gpu: partial(torch_tensor, place=f"cuda:{gpu}"),
    "torch float32": lambda gpu: partial(torch_tensor, place=f"cuda:{gpu}", dtype=SINGLE),
    "torch transposed": lambda gpu: lambda folder, n: torch_tensor(folder, n, f"cuda:{gpu}").T,
    "torch late on a stream": torch_late,
    "jax": jax_on,
    "jax float32": lambda gpu: jax_on(gpu, SINGLE),
}
GPU_SOURCES: dict[str, MakeSource] = {f"{name}, on GPU {gpu}": make(gpu) for gpu in (0, 1) for name, make in ON_GPU.items()}
SOURCES = HOST_SOURCES | GPU_SOURCES
#: Packages that are not on every GPU machine.
PACKAGES = ("dask", "h5py", "jax", "pandas", "polars", "torch", "xarray", "zarr")
NEEDS = DEVICES | needed_packages(SOURCES, PACKAGES)
NEEDS["xarray"] = [pytest.mark.package("xarray"), pytest.mark.package("h5py")]
NEEDS |= {name: [*NEEDS.get(name, ()), TWO] for name in GPU_SOURCES if name.endswith("on GPU 1")}
SOME_DEVICES = ["cuda:0", ("cuda:0", "cuda:1"), None]


@pytest.mark.parametrize(
    ("source", "devices", "how"),
    marked(
        [
            *pairwise(list(HOST_SOURCES), SOME_DEVICES, list(ARITHMETIC)),
            *pairwise(list(GPU_SOURCES), list(DEVICES), list(ARITHMETIC)),
        ],
        NEEDS,
    ),
)
def test_every_source_on_every_choice_of_devices(tmp_path, source, devices, how):
    a = SOURCES[source](tmp_path, N)
    with oc.cholesky(a, devices=devices, tile_size=NB, **triangle(source), **ARITHMETIC[how]) as factor:
        check(factor, ARITHMETIC[how].get("precision_threshold"), source)
    check_unchanged(a, SOURCES[source], tmp_path / "again", N)


@pytest.mark.parametrize(
    ("source", "devices", "n"),
    marked([*pairwise(list(HOST_SOURCES), ["cuda:0"], [2, N]), *pairwise(list(GPU_SOURCES), SOME_DEVICES, [2, N])], NEEDS),
)
def test_without_any_option_but_devices(tmp_path, source, devices, n):
    """As most people call it; small matrices may take another way then."""
    a = SOURCES[source](tmp_path, n)
    with oc.cholesky(a, devices=devices, **triangle(source)) as factor:
        check(factor, None, source)
    check_unchanged(a, SOURCES[source], tmp_path / "again", n)


ORDERS = [1, 2, NB, NB + 1, 3 * NB + 1]


@pytest.mark.parametrize(("source", "n", "how"), marked(pairwise(list(GPU_SOURCES), ORDERS, list(ARITHMETIC)), NEEDS))
def test_orders_that_are_no_multiple_of_the_tile_size(tmp_path, source, n, how):
    with oc.cholesky(SOURCES[source](tmp_path, n), tile_size=NB, **triangle(source), **ARITHMETIC[how]) as factor:
        check(factor, ARITHMETIC[how].get("precision_threshold"), source)


@pytest.mark.parametrize(
    ("source", "devices", "in_file"), marked(pairwise(list(GPU_SOURCES), SOME_DEVICES, [False, True]), NEEDS)
)
def test_what_lies_on_a_gpu_out_of_core(tmp_path, source, devices, in_file):
    """In so little memory that tiles of A are asked for late, and those of L leave."""
    options = {"tile_size": 128, "memory_budget": workspace_bytes(128) + 12 * 8 * 128**2, "fp64": "native"}
    store = tmp_path / "L" if in_file else None
    with oc.cholesky(SOURCES[source](tmp_path, N), devices=devices, store=store, **triangle(source), **options) as factor:
        check(factor, None, source)


WRITABLE = {
    "C": lambda a: a,
    "F": np.asfortranarray,
    "strided": spread,
    "F, reversed": lambda a: reversed_twice(np.asfortranarray(a)),
    "C, wrong above": wrong_above,
}


@pytest.mark.parametrize(
    ("kind", "devices", "how"), marked(pairwise(list(WRITABLE), list(DEVICES), ["native", "residue"]), NEEDS)
)
def test_overwrite(kind, devices, how):
    a = WRITABLE[kind](matrix(N).copy())
    above = np.array(a[np.triu_indices(N, 1)])
    with oc.cholesky(a, devices=devices, tile_size=NB, overwrite=True, **ARITHMETIC[how]) as factor:
        check(factor, None)
        assert np.array_equal(np.tril(a), np.asarray(factor))
    assert np.array_equal(a[np.triu_indices(N, 1)], above, equal_nan=True)


def test_l_is_not_written_over_what_lies_on_a_gpu(tmp_path):
    a = SOURCES["cupy C, on GPU 0"](tmp_path, N)
    with pytest.raises(TypeError, match="overwrite=True"):
        oc.cholesky(a, devices="cuda:0", tile_size=NB, overwrite=True)
    check_unchanged(a, SOURCES["cupy C, on GPU 0"], tmp_path / "again", N)


@pytest.mark.parametrize("options", [{}, {"tile_size": 256}, {"devices": "host:0"}], ids=str)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16"])
def test_real_numbers_of_every_dtype_are_read_as_float64(dtype, options):
    import cupy as cp

    a = cp.eye(600, dtype=dtype) if dtype == "bool" else (cp.eye(600) * 120 + 1).astype(dtype)
    with oc.cholesky(a, **options) as factor:
        ours, exact = np.asarray(factor), cp.asnumpy(a).astype(np.float64)
    assert np.linalg.norm(ours @ ours.T - exact) <= 1e-14 * np.linalg.norm(exact)


@pytest.mark.parametrize("change", [np.tril, np.triu, wrong_above, wrong_below], ids=lambda change: change.__name__)
def test_a_matrix_on_a_gpu_whose_triangles_differ_is_warned_of(change):
    import cupy as cp

    a = cp.asarray(change(matrix(300)))
    counts = change in (np.triu, wrong_below)
    if change is not wrong_below:  # of NaN in the triangle that is read there is an error
        with pytest.warns(oc.errors.AsymmetryWarning, match=r"A\[\d+, \d+\] is .* but A"):
            oc.cholesky(a).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error", oc.errors.AsymmetryWarning)
        oc.cholesky(a, lower=not counts).close()
        oc.cholesky(cp.asarray(matrix(300))).close()


@pytest.mark.parametrize(("source", "devices"), marked(pairwise(list(SOURCES), ["cuda:0", ("cuda:0", "cuda:1")]), NEEDS))
def test_refinement_and_residual_read_every_source(tmp_path, source, devices):
    a, b = SOURCES[source](tmp_path, N), np.random.default_rng(0).standard_normal((N, 3))
    expected = scipy.linalg.cho_solve((lapack(N, is_single(source)), True), b)
    with oc.cholesky(a, precision_threshold=1e-4, devices=devices, tile_size=NB, **triangle(source)) as factor:
        assert np.abs(factor.solve(b, refine=True) - expected).max() <= 1e-9 * np.abs(expected).max()
    with oc.cholesky(matrix(N, is_single(source)), devices=devices, tile_size=NB, **triangle(source)) as factor:
        assert factor.residual(a).max_scaled_over_sqrt_n <= FACTOR_ENTRY_C


@pytest.mark.cuda
@pytest.mark.parametrize("repeat", range(5))
def test_work_on_the_default_stream_does_not_reach_into_a_run(repeat):
    import cupy as cp

    a = matrix(N)
    for how in ARITHMETIC.values():
        spin(cp)  # what a run clears on the default stream waits behind this
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
