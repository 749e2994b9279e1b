"""What the vendor's own routines do on the same device, matrix and minute: DGEMM and cuSOLVER's Xpotrf."""

from __future__ import annotations

import time
from typing import Any

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublas, cusolverDn

from ooc_chol.errors import NotPositiveDefiniteError
from ooc_chol.interfaces import TileFunction

_R_64F = 1
#: Column-major lower, cuSOLVER's fastest on an H200; the matrix is made whole, so that either triangle serves.
_FILL_LOWER = 0


def dgemm_tflops(left: NDArray[np.float64], right: NDArray[np.float64], seconds: float) -> float:
    """Rate of ``C -= left @ right.T`` on the current device, repeated for at least ``seconds``.

    Parameters
    ----------
    left, right : (nb, nb) array
        Tiles of a factor: power, and with it the clock, depends on the data.
    seconds : float
        How long.

    Returns
    -------
    float
        TFLOP/s over the whole time, the clock settled by the load itself.
    """
    nb = left.shape[0]
    a, b, c = cp.asarray(left), cp.asarray(right), cp.zeros((nb, nb))
    one, minus_one = np.array(1.0), np.array(-1.0)
    handle = cublas.create()
    start, end = cp.cuda.Event(), cp.cuda.Event()
    try:
        cublas.set_stream(handle, cp.cuda.get_current_stream().ptr)

        def multiply(count: int) -> float:
            start.record()
            for _ in range(count):
                cublas.dgemm(
                    handle,
                    1,
                    0,
                    nb,
                    nb,
                    nb,
                    minus_one.ctypes.data,
                    b.data.ptr,
                    nb,
                    a.data.ptr,
                    nb,
                    one.ctypes.data,
                    c.data.ptr,
                    nb,
                )
            end.record()
            end.synchronize()
            return float(cp.cuda.get_elapsed_time(start, end)) / 1e3

        multiply(3)
        count = max(3, int(seconds / (multiply(3) / 3)))
        return float(2e-12 * nb**3 * count / multiply(count))
    finally:
        cublas.destroy(handle)


def xpotrf_seconds(n: int, function: TileFunction, repeats: int) -> list[float]:
    """Seconds of cuSOLVER's Xpotrf at order ``n`` on the current device, in place and in core; generation apart.

    Parameters
    ----------
    n : int
        Order; ``8 n²`` bytes must be free.
    function : TileFunction
        Fills the matrix, before each repeat.
    repeats : int
        Runs after one that warms up at a small order.

    Raises
    ------
    NotPositiveDefiniteError
        cuSOLVER reports a failed pivot.
    """
    solver, params = cusolverDn.create(), cusolverDn.create_params()
    try:
        _xpotrf(solver, params, 2048, function)
        return [_xpotrf(solver, params, n, function) for _ in range(repeats)]
    finally:
        cusolverDn.destroy_params(params)
        cusolverDn.destroy(solver)
        cp.get_default_memory_pool().free_all_blocks()


def _xpotrf(solver: int, params: int, n: int, function: TileFunction) -> float:
    """Generate, factor, return the seconds of the factorization."""
    stream: Any = cp.cuda.get_current_stream()
    memory = cp.cuda.Memory(8 * n * n)  # outside of the pool: it is given back at once
    a = cp.ndarray((n, n), cp.float64, cp.cuda.MemoryPointer(memory, 0))
    for r0 in range(0, n, 4096):
        r1 = min(n, r0 + 4096)
        function(range(r0, r1), range(n), a[r0:r1], stream)
    on_device, on_host = cusolverDn.xpotrf_buffer_size(solver, params, _FILL_LOWER, n, _R_64F, a.data.ptr, n, _R_64F)
    device_buffer, host_buffer = cp.empty(max(1, on_device), cp.uint8), np.empty(max(1, on_host), np.uint8)
    info = cp.zeros(1, cp.int32)
    cusolverDn.set_stream(solver, stream.ptr)
    stream.synchronize()
    began = time.perf_counter()
    cusolverDn.xpotrf(
        solver, params, _FILL_LOWER, n, _R_64F, a.data.ptr, n, _R_64F, device_buffer.data.ptr, on_device,
        host_buffer.ctypes.data, on_host, info.data.ptr,
    )  # fmt: skip
    stream.synchronize()
    seconds = time.perf_counter() - began
    if failed := int(info.get()[0]):
        raise NotPositiveDefiniteError(failed, (0, 0))
    return seconds


def versions() -> dict[str, str]:
    """Versions of CuPy, the CUDA runtime and the driver."""
    runtime, driver = cp.cuda.runtime.runtimeGetVersion(), cp.cuda.runtime.driverGetVersion()
    return {"cupy": str(cp.__version__), "cuda_runtime": str(runtime), "cuda_driver": str(driver)}
