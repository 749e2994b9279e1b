"""Other libraries' Cholesky factorizations on one GPU, in core: cuSOLVER's Xpotrf, and PyTorch's with the library it prefers.

Each is warm before it is timed, and its matrix is made by the tile function before the clock starts.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy as cp
import numpy as np
from nvmath.bindings import cusolverDn

from ooc_chol.errors import NotPositiveDefiniteError, OocCholError
from ooc_chol.interfaces import TileFunction

#: CUDA's numbers of the types of matrices.
_TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
#: Column-major lower, cuSOLVER's fastest on an H200; the matrix is made whole, so that either triangle serves.
_FILL_LOWER = 0
#: Order of the factorization that warms a library up.
_WARM_ORDER = 2048
#: Rows that one call of the tile function makes.
_ROWS_AT_ONCE = 4096


def xpotrf_seconds(n: int, function: TileFunction, repeats: int, dtype: str = "float64") -> list[float]:
    """Seconds of cuSOLVER's Xpotrf at order ``n`` on the current device, in place and in core; generation apart."""
    cp.get_default_memory_pool().free_all_blocks()
    solver, params = cusolverDn.create(), cusolverDn.create_params()
    try:
        _xpotrf(solver, params, _WARM_ORDER, function, dtype)
        return [_xpotrf(solver, params, n, function, dtype) for _ in range(repeats)]
    finally:
        cusolverDn.destroy_params(params)
        cusolverDn.destroy(solver)
        cp.get_default_memory_pool().free_all_blocks()


def _xpotrf(solver: int, params: int, n: int, function: TileFunction, dtype: str) -> float:
    """Make the matrix and factor it; returns the seconds of the factorization."""
    stream: Any = cp.cuda.get_current_stream()
    number = _TYPES[dtype]
    memory = cp.cuda.Memory(np.dtype(dtype).itemsize * n * n)  # outside of the pool: it is given back at once
    a = cp.ndarray((n, n), dtype, cp.cuda.MemoryPointer(memory, 0))
    _fill(a, function, stream)
    on_device, on_host = cusolverDn.xpotrf_buffer_size(solver, params, _FILL_LOWER, n, number, a.data.ptr, n, number)
    device_buffer, host_buffer = cp.empty(max(1, on_device), cp.uint8), np.empty(max(1, on_host), np.uint8)
    info = cp.zeros(1, cp.int32)
    cusolverDn.set_stream(solver, stream.ptr)
    stream.synchronize()
    began = time.perf_counter()
    cusolverDn.xpotrf(
        solver, params, _FILL_LOWER, n, number, a.data.ptr, n, number, device_buffer.data.ptr, on_device,
        host_buffer.ctypes.data, on_host, info.data.ptr,
    )  # fmt: skip
    stream.synchronize()
    seconds = time.perf_counter() - began
    if failed := int(info.get()[0]):
        raise NotPositiveDefiniteError(failed, (0, 0))
    return seconds


def _fill(a: Any, function: TileFunction, stream: Any) -> None:
    """Make the whole matrix, a strip of rows at a time, and wait for it."""
    n = a.shape[0]
    for r0 in range(0, n, _ROWS_AT_ONCE):
        r1 = min(n, r0 + _ROWS_AT_ONCE)
        function(range(r0, r1), range(n), a[r0:r1], stream)
    stream.synchronize()


def torch_seconds(n: int, function: TileFunction, repeats: int, library: str) -> list[float]:
    """Seconds of ``torch.linalg.cholesky`` at order ``n``, float64, on the current device; generation apart."""
    torch = _torch()
    device = f"cuda:{cp.cuda.Device().id}"
    cp.get_default_memory_pool().free_all_blocks()
    try:
        with _linalg_library(torch, library):
            torch.linalg.cholesky(torch.eye(_WARM_ORDER, dtype=torch.float64, device=device))
            a = torch.empty((n, n), dtype=torch.float64, device=device)
            memory = cp.cuda.UnownedMemory(a.data_ptr(), 8 * n * n, a, cp.cuda.Device().id)
            view = cp.ndarray((n, n), cp.float64, cp.cuda.MemoryPointer(memory, 0))
            _fill(view, function, cp.cuda.get_current_stream())
            return [_torch_cholesky(torch, a) for _ in range(repeats)]
    finally:
        a = memory = view = None
        torch.cuda.empty_cache()


def _torch() -> Any:
    """Import PyTorch; raise where it has no GPU."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise OocCholError(f"torch is not installed ({error})") from error
    if not torch.cuda.is_available():
        raise OocCholError(f"torch {torch.__version__} sees no GPU (it is built for CUDA {torch.version.cuda})")
    return torch


@contextmanager
def _linalg_library(torch: Any, library: str) -> Iterator[None]:
    """Let PyTorch prefer ``library``; refuse a PyTorch that only pretends to use it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.backends.cuda.preferred_linalg_library(library)
        try:
            yield
        finally:
            torch.backends.cuda.preferred_linalg_library("default")
    ignored = [str(warning.message) for warning in caught if "deprecated" in str(warning.message).lower()]
    if library != "default" and ignored:
        raise OocCholError(f"torch {torch.__version__} may not have used {library}: {ignored[0]}")


def _torch_cholesky(torch: Any, a: Any) -> float:
    """Seconds of one factorization."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    factor = torch.linalg.cholesky(a)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    del factor
    return seconds
