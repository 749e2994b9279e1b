"""Errors of CUDA's driver and its libraries, by way of CuPy and nvmath."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy as cp
from cupy_backends.cuda.api.driver import CUDADriverError
from cupy_backends.cuda.libs.cublas import CUBLASError
from cupy_backends.cuda.libs.cusolver import CUSOLVERError
from nvmath.bindings import cublas, cublasLt


@cache
def driver_errors() -> tuple[type[Exception], ...]:
    """Classes of errors by which a call is refused, or a device is known to be lost."""
    return (
        cp.cuda.runtime.CUDARuntimeError,
        CUDADriverError,
        cp.cuda.memory.OutOfMemoryError,
        CUBLASError,
        CUSOLVERError,
        cublas.cuBLASError,
        cublasLt.cuBLASLtError,
    )


def checked(answer: tuple[Any, ...]) -> Any:
    """Return what a call of CUDA's own Python gives, or raise its error as CuPy does."""
    status, *found = answer
    if int(status):
        raise cp.cuda.runtime.CUDARuntimeError(int(status))
    return found[0] if found else None
