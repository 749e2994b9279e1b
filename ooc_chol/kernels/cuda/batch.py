"""Cholesky of many small matrices on the current stream of a GPU: cuSOLVER's and cuBLAS's batched routines."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, cast, final

import cupy as cp
import numpy as np
from cupy_backends.cuda.libs import cublas, cusolver

from ooc_chol.errors import BudgetError
from ooc_chol.hardware import cuda
from ooc_chol.hardware.arrays import device_of
from ooc_chol.interfaces import Tile
from ooc_chol.kernels.interfaces.batch import AbstractBatchKernels, Failure, check_right_hand_sides
from ooc_chol.kernels.interfaces.whole import nonfinite_error
from ooc_chol.memory.sources.numbers import put_numbers

_runtime = cp.cuda.runtime
#: Row-major lower is, for cuSOLVER and cuBLAS, column-major upper.
_UPPER = cublas.CUBLAS_FILL_MODE_UPPER
_ONE = np.array(1.0)
#: Rows up to which matrices are factored together.
_TOGETHER = 96


@final
class CudaBatch(AbstractBatchKernels):
    """One GPU; memory comes from CuPy's pool."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._device = cp.cuda.Device(cuda.device_number(name))

    def current(self) -> AbstractContextManager[Any]:
        return cast(AbstractContextManager[Any], self._device)

    def numbers(self, a: Any) -> Tile:
        try:
            if device_of(a) is not None:
                return cp.asarray(_ready(cuda.from_dlpack(a)), np.float64)
            rows = np.asarray(a)
            if rows.dtype != np.float64 or not rows.flags.c_contiguous or np.ma.is_masked(a):
                put_numbers(rows, numbers := np.empty(rows.shape))
                if np.ma.is_masked(a):
                    numbers[np.ma.getmaskarray(a)] = np.nan
                rows = numbers
            return cp.asarray(rows)
        except (cp.cuda.memory.OutOfMemoryError, _runtime.CUDARuntimeError) as error:
            free, _ = cuda.free_and_total()
            needed = 8 * int(np.prod(np.shape(a)))
            raise BudgetError(f"memory of {self._name}", needed, free, "free some, or factor the batch in parts") from error

    def factor(self, a: Tile) -> tuple[Tile, Failure | None]:
        count, n, _ = a.shape
        stack = cp.array(a, order="C")
        if not stack.size:
            return stack, None
        handle, found = cp.cuda.device.get_cusolver_handle(), cp.zeros(count, np.int32)
        cusolver.dpotrfBatched(handle, _UPPER, n, _addresses(stack).data.ptr, n, found.data.ptr, count)
        lower = cp.tril(stack)
        pivots = cp.diagonal(lower, axis1=1, axis2=2)
        # cuSOLVER may take a NaN for a positive pivot: the first pivot that is none counts, if there is one before
        bad = ~((pivots > 0) & (pivots < np.inf))
        first_bad = cp.where(bad.any(axis=1), bad.argmax(axis=1) + 1, n + 1)
        minors = cp.minimum(cp.where(found > 0, found, n + 1), first_bad).get()
        failed = np.flatnonzero(minors <= n)
        return lower, Failure(int(failed[0]), int(minors[failed[0]])) if failed.size else None

    def right_hand_sides(self, b: Any, shape: tuple[int, ...]) -> Tile:
        array = _ready(cuda.from_dlpack(b)) if device_of(b) is not None else np.asarray(b)
        check_right_hand_sides(array.dtype, array.shape, shape)
        x = cp.array(array, np.float64, order="C")
        finite = cp.isfinite(x)
        if not finite.all():
            place = np.unravel_index(int(cp.argmin(finite)), x.shape)
            raise nonfinite_error(tuple(map(int, place)), float(x[place]))
        return x if x.ndim == 3 else x[:, :, None]

    def solve(self, stack: Tile, x: Tile, *, transposed: bool) -> None:
        """Row-major X is X.T for cuBLAS and L is U = L.T: systems are X.T U = B.T, from the right."""
        count, n, m = x.shape
        if not x.size:
            return
        operation = cublas.CUBLAS_OP_T if transposed else cublas.CUBLAS_OP_N
        sides = cublas.CUBLAS_SIDE_RIGHT, _UPPER, operation, cublas.CUBLAS_DIAG_NON_UNIT
        factors, vectors = _addresses(stack), _addresses(x)  # kept until the call is enqueued; the pool is ordered by stream
        handle = cp.cuda.device.get_cublas_handle()
        cublas.dtrsmBatched(handle, *sides, m, n, _ONE.ctypes.data, factors.data.ptr, n, vectors.data.ptr, m, count)

    def multiply(self, stack: Tile, z: Tile) -> Tile:
        return stack @ z


def _ready(array: Any) -> Any:
    """An array whose GPU has done all that it was given, whatever stream made it, of whatever library."""
    with array.device:
        cuda.wait_for_device()
    return array


def _addresses(stack: Any) -> Any:
    """Addresses of the matrices of a contiguous stack, on the GPU."""
    return stack.data.ptr + cp.arange(len(stack), dtype=np.uintp) * stack.strides[0]


def triangles_of(lower: Any) -> tuple[Any, Any, tuple[int, int] | None]:
    """L of lower triangles, which are spoilt, its inverse, and which matrix has no positive pivot in which column, or None.

    Shapes: ``lower`` (count, n, n) float64, zeros above, of the current device. Small matrices are factored together, large ones
    one by one.
    """
    count, n, _ = lower.shape
    lower, own = cp.ascontiguousarray(lower), cp.arange(n)
    inverse = cp.zeros_like(lower)
    inverse[:, own, own] = 1.0
    if not lower.size:
        return lower, inverse, None
    solver, blas = cp.cuda.device.get_cusolver_handle(), cp.cuda.device.get_cublas_handle()
    found = cp.zeros(count, np.int32)
    # Row-major L is upper U = L.T for the libraries: U Z = I, and row-major Z is the inverse of L.
    sides = cublas.CUBLAS_SIDE_LEFT, _UPPER, cublas.CUBLAS_OP_N, cublas.CUBLAS_DIAG_NON_UNIT
    if n <= _TOGETHER:
        factors, inverses = _addresses(lower), _addresses(inverse)
        cusolver.dpotrfBatched(solver, _UPPER, n, factors.data.ptr, n, found.data.ptr, count)
        cublas.dtrsmBatched(blas, *sides, n, n, _ONE.ctypes.data, factors.data.ptr, n, inverses.data.ptr, n, count)
    else:
        work = cp.empty(cusolver.dpotrf_bufferSize(solver, _UPPER, n, lower.data.ptr, n))
        for number in range(count):
            one, other = lower[number].data.ptr, inverse[number].data.ptr
            place = found[number : number + 1].data.ptr
            cusolver.dpotrf(solver, _UPPER, n, one, n, work.data.ptr, work.size, place)
            cublas.dtrsm(blas, *sides, n, n, _ONE.ctypes.data, one, n, other, n)
    lower, inverse, info = cp.tril(lower), cp.tril(inverse), found.get()  # what is above has been written to
    number = int(info.argmax())
    return lower, inverse, (number, int(info[number]) - 1) if info[number] else None
