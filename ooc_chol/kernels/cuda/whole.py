"""Cholesky of a matrix that is one tile, on the current stream of a GPU: cuSOLVER where the matrix lies."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from math import prod
from typing import Any, cast, final

import cupy as cp
import numpy as np
from cupy_backends.cuda.libs import cublas, cusolver
from numpy.typing import NDArray

from ooc_chol.errors import BudgetError, ScheduleError
from ooc_chol.files.inputs import plain_array
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware import cuda
from ooc_chol.hardware.arrays import device_of
from ooc_chol.interfaces import Tile
from ooc_chol.kernels.cuda.modules import load
from ooc_chol.kernels.interfaces.whole import (
    AbstractResidentKernels,
    AbstractWholeKernels,
    check_right_hand_side,
    first_imaginary,
    first_nonfinite,
    lower_pieces,
    nonfinite_error,
)
from ooc_chol.memory.sources.base import AbstractSource

_runtime = cp.cuda.runtime
#: Order of the pieces that tile functions make.
_PIECE = 2048
_THREADS, _MOST_ROWS = 256, 65535
#: Bytes of what a factorization finds: two integers.
_FOUND_BYTES = 8
#: Most bytes that pass through page-locked memory of CuPy's pool.
_MOST_STAGED = 32 << 20
#: Row-major lower is, for cuSOLVER and cuBLAS, column-major upper.
_UPPER = cublas.CUBLAS_FILL_MODE_UPPER


@final
class CudaWhole(AbstractWholeKernels, AbstractResidentKernels):
    """One GPU; memory for what passes comes from CuPy's pool."""

    def __init__(self, name: str, fmt: PrecisionFormat = FP64) -> None:
        self._name, self._fmt = name, fmt
        self._letter = {"float64": "d", "float32": "s", "complex128": "z", "complex64": "c"}[fmt.dtype.name]
        self._one = np.ones(1, fmt.dtype)
        self._number = cuda.device_number(name)
        self._potrf = getattr(cusolver, f"{self._letter}potrf")
        self._work_entries: dict[int, int] = {}  # by the order of the matrix

    def current(self) -> AbstractContextManager[Any]:
        """The device as a new object: CuPy's keeps in itself which one it takes the place of, of whatever thread."""
        return cast(AbstractContextManager[Any], cp.cuda.Device(self._number))

    def beside(self, out: NDArray[Any]) -> Tile:
        return self._allocate(out.shape)

    def empty(self, n: int) -> Tile:
        return self._allocate((n, n))

    def _allocate(self, shape: tuple[int, ...]) -> Any:
        try:
            return cp.empty(shape, self._fmt.dtype)
        except (cp.cuda.memory.OutOfMemoryError, _runtime.CUDARuntimeError) as error:
            (free, _), needed = cuda.free_and_total(), self._fmt.itemsize * prod(shape)
            raise BudgetError(f"memory of {self._name}", needed, free, "free some, or cut A: tile_size=") from error

    def read(self, source: AbstractSource, tile: Tile) -> None:
        """Copy what lies somewhere, make what is made, in pieces and only up to the diagonal's."""
        source.prepare()
        everything = range(len(tile))
        stream = cp.cuda.get_current_stream()
        if source.home is not None:
            source.function(everything, everything, tile, stream)
        elif source.bytes_per_entry:
            rows = _as_rows(source, self._fmt.dtype)
            if rows.nbytes <= _MOST_STAGED:
                staged = _staging(rows.shape, rows.dtype)
                np.copyto(staged, rows)
                rows = staged
            tile.set(rows)
            stream.synchronize()  # what is page-locked may still be read: it goes back to the pool now
        else:
            self._make(source, tile, stream)

    def _make(self, source: AbstractSource, tile: Tile, stream: Any) -> None:
        n = len(tile)
        if n <= _PIECE:
            source.function(range(n), range(n), tile, stream)
            return
        buffer = self._allocate((_PIECE * _PIECE,))
        for rows, columns in lower_pieces(n, _PIECE):
            piece = buffer[: len(rows) * len(columns)].reshape(len(rows), len(columns))
            source.function(rows, columns, piece, stream)
            tile[rows.start : rows.stop, columns.start : columns.stop] = piece

    def factor(self, tile: Tile) -> int:
        n = len(tile)
        handle = cp.cuda.device.get_cusolver_handle()
        if self._fmt.is_complex:
            tile.reshape(-1)[:: n + 1].imag = 0.0  # rounding, which the routine is not said to leave alone
        address, stream = tile.data.ptr, cp.cuda.get_current_stream()
        lwork = self._work_entries.get(n)
        if lwork is None:
            lwork = getattr(cusolver, f"{self._letter}potrf_bufferSize")(handle, _UPPER, n, address, n)
            self._work_entries[n] = lwork
        # What is found stands behind the workspace: the first minor by the routine, and by the pivots, -1 where there is none.
        work = self._allocate((lwork + -(-_FOUND_BYTES // self._fmt.itemsize),))
        found = work.data.ptr + self._fmt.itemsize * lwork
        _runtime.memsetAsync(found, 0xFF, _FOUND_BYTES, stream.ptr)
        self._potrf(handle, _UPPER, n, address, n, work.data.ptr, lwork, found)
        kernel = _finish_lower(self._number, self._fmt.type_name)
        kernel((-(-n // _THREADS), min(n, _MOST_ROWS)), (_THREADS,), (address, np.int32(n), found + 4))
        told = np.empty(2, np.int32)
        _runtime.memcpyAsync(told.ctypes.data, found, _FOUND_BYTES, _runtime.memcpyDeviceToHost, stream.ptr)
        stream.synchronize()
        failed, pivot = told.tolist()
        if failed < 0:
            raise ScheduleError(f"cuSOLVER's POTRF refused its argument {-failed} for order {n}; report this as a bug")
        if 0 < pivot <= n:
            return min(failed, pivot) if 0 < failed <= n else pivot
        return failed if failed <= n else 0

    def first_nonfinite(self, tile: Tile) -> tuple[int, int] | None:
        return first_nonfinite(cp, tile)

    def first_imaginary(self, tile: Tile, share: float) -> int | None:
        return first_imaginary(cp, tile, share)

    def take_out(self, tile: Tile, out: NDArray[Any]) -> None:
        """Copy to page-locked memory first where that is at hand: the driver does so too, in smaller steps."""
        if out.nbytes <= _MOST_STAGED:
            staged = _staging(out.shape, out.dtype)
            tile.get(out=staged)
            np.copyto(out, staged)
        else:
            tile.get(out=out)

    def right_hand_side(self, b: Any, n: int, *, copy: bool = True) -> Tile:
        array = cuda.from_dlpack(b) if device_of(b) is not None else plain_array("the right-hand side", b)
        check_right_hand_side(array.dtype, array.shape, n, self._fmt)
        if isinstance(array, cp.ndarray):
            with array.device:
                cuda.wait_for_device()  # whatever stream made it, of whatever library
        dtype, is_here = self._fmt.dtype, isinstance(array, cp.ndarray) and array.device.id == self._number
        x = cp.ascontiguousarray(array, dtype) if is_here and not copy else cp.array(array, dtype, order="C")
        finite = cp.isfinite(x)
        if not finite.all():
            place = np.unravel_index(int(cp.argmin(finite)), x.shape)
            raise nonfinite_error(tuple(map(int, place)), x[place].item())
        return x.reshape(n, -1) if x.size else x.reshape(n, 0)

    def solve(self, tile: Tile, x: Tile, *, transposed: bool) -> None:
        """Row-major X is X.T for cuBLAS and L is U = L.T: systems are X.T U = B.T, from the right."""
        n, m = x.shape
        if not m:
            return
        adjoint = cublas.CUBLAS_OP_C if self._fmt.is_complex else cublas.CUBLAS_OP_T
        operation = adjoint if transposed else cublas.CUBLAS_OP_N
        sides = cublas.CUBLAS_SIDE_RIGHT, _UPPER, operation, cublas.CUBLAS_DIAG_NON_UNIT
        handle = cp.cuda.device.get_cublas_handle()
        trsm = getattr(cublas, f"{self._letter}trsm")
        trsm(handle, *sides, m, n, self._one.ctypes.data, tile.data.ptr, n, x.data.ptr, m)

    def multiply(self, tile: Tile, z: Tile, *, transposed: bool = False) -> Tile:
        if transposed and self._fmt.is_complex:
            return (tile.T @ z.conj()).conj()  # L is not copied
        return (tile.T if transposed else tile) @ z


@cache
def _finish_lower(device: int, type_name: str) -> Any:
    """The kernel behind the routine, on the current device: CuPy looks for a new object's in all that it has compiled."""
    return load("whole.cu").get_function(f"finish_lower_{type_name}")


def _staging(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Page-locked memory of CuPy's pool, which keeps it for the next call."""
    count = prod(shape)
    memory = cp.cuda.alloc_pinned_memory(dtype.itemsize * count)
    staged: NDArray[Any] = np.frombuffer(memory, dtype, count).reshape(shape)
    return staged


def _as_rows(source: AbstractSource, dtype: np.dtype[Any]) -> NDArray[Any]:
    """All of A as rows of adjacent entries of ``dtype`` in host memory: in place where it is that already."""
    n = source.n
    view = source.view(range(n), range(n))
    if view is not None and view.dtype == dtype and view.flags.c_contiguous:
        return view
    rows = np.empty((n, n), dtype)
    source.read_block(range(n), range(n), rows)
    return rows
