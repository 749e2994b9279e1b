"""Kernels of solves on the current CUDA device: cuBLAS, and a sum and a substitution of our own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, final

import cupy as cp
import numpy as np
from nvmath.bindings import cublas

from ooc_chol.hardware.cuda import no_capture
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.batched_products import BatchedProducts
from ooc_chol.kernels.cuda.handles import BlasHandle, cupy_stream
from ooc_chol.kernels.cuda.launches import Kernel
from ooc_chol.kernels.cuda.modules import load
from ooc_chol.kernels.interfaces import MOST_TARGETS, AbstractSolveKernels

_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_RIGHT, _UPPER, _NON_UNIT = 1, 1, 0
_ON_HOST, _ON_DEVICE = 0, 1
_SCALARS = np.array([1.0, -1.0, 0.0, 0.5])
#: Addresses of cuBLAS's scalars on the host.
_ONE, _MINUS_ONE, _ZERO, _HALF = (_SCALARS.ctypes.data + 8 * at for at in range(4))
_THREADS = 256

#: Right-hand sides up to which our own substitution is taken, one launch: alone it takes less time than cuBLAS's up to 1,024.
_MOST_COLUMNS = 512
#: Rows and columns of a block of right-hand sides that a thread block of substitution.cu solves for, and its threads.
_ROWS, _COLUMNS, _SUBSTITUTING = 64, 16, 128
#: Bytes of memory that its thread blocks share: two blocks of L, one of the solution, and reciprocals.
_SHARED_BYTES = 8 * (2 * _ROWS * (_ROWS + 1) + _ROWS * _COLUMNS + _ROWS)


@final
class _Substitution:
    """Substitution with a triangle for a few right-hand sides, in one launch, on one device, which is current."""

    def __init__(self, device: int) -> None:
        function = load("substitution.cu", ROWS=_ROWS, COLUMNS=_COLUMNS, THREADS=_SUBSTITUTING).get_function("substitute")
        function.max_dynamic_shared_size_bytes = _SHARED_BYTES
        self._kernel = Kernel(function, "qqiiiq", (_SUBSTITUTING,), shared_bytes=_SHARED_BYTES)
        self._device = device
        self._counters: dict[int, Any] = {}  # by address of a stream; they outlive whatever still runs there

    def __call__(self, stream: AbstractStream, l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
        rows, columns = x_k.shape
        pointer, groups = cupy_stream(stream).ptr, -(-columns // _COLUMNS)
        counters = self._counters_of(pointer)
        cp.cuda.runtime.memsetAsync(counters, 0, 4 * (1 + groups), pointer)
        arguments = l_kk.data.ptr, x_k.data.ptr, rows, columns, int(transposed), counters
        self._kernel(pointer, (groups * -(-rows // _ROWS), 1), *arguments)

    def _counters_of(self, stream: int) -> int:
        """Address of counters for a stream."""
        if stream not in self._counters:
            with no_capture(self._device):
                self._counters[stream] = cp.empty(1 + _MOST_COLUMNS // _COLUMNS, np.uint32)
        return int(self._counters[stream].data.ptr)


@cache
def _substitution_on(device: int) -> _Substitution | None:
    """Substitution on a device, which is current; None where thread blocks share too little memory there."""
    most: int = cp.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"]
    return _Substitution(device) if most >= _SHARED_BYTES else None


@cache
def _subtraction_on(device: int, type_name: str) -> Kernel:
    """Subtraction of products of a real type on a device, which is current."""
    function = load("subtraction.cu", MOST_TARGETS=MOST_TARGETS).get_function(f"subtract_{type_name}")
    return Kernel(function, (*"qqqqqqi", f"{MOST_TARGETS}s"), (_THREADS,))


def subtract_products(stream: AbstractStream, targets: Tile, products: Tile, which: Sequence[int]) -> None:
    """Enqueue the subtraction of one product after the other, on arrays of any type of the current device."""
    size = targets.dtype.type(0).real.itemsize  # a complex number is two real ones
    entries = targets.shape[1] * targets.shape[2] * targets.itemsize // size
    steps = targets.strides[0] // size, products.strides[0] // size, products.strides[1] // size
    arguments = targets.data.ptr, products.data.ptr, entries, *steps, products.shape[1], bytes(which)
    subtraction = _subtraction_on(targets.data.device_id, f"float{8 * size}")
    subtraction(cupy_stream(stream).ptr, (-(-entries // _THREADS), len(which)), *arguments)


@final
class CudaSolveKernels(AbstractSolveKernels):
    """Solves on CuPy arrays, by cuBLAS.

    cuBLAS sees the transpose of a row-major array: ``x`` becomes ``x.T``, and a lower triangle the upper one.
    """

    def __init__(self, blas: BlasHandle) -> None:
        self._blas, self._batches = blas, BatchedProducts(blas)
        self._add_column_squares: Any = load("solves.cu").get_function("add_column_squares")
        self._substitution = _substitution_on(cp.cuda.Device().id)

    def lend(self, stream: AbstractStream, workspace: Tile) -> None:
        self._blas.lend(stream, int(workspace.data.ptr))

    def substitute(self, stream: AbstractStream, l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
        """``x[k] = inv(L[k, k]) @ x[k]``, or with ``inv(L[k, k]).T``: ``x.T @ inv(L.T)``, or ``x.T @ inv(L)``."""
        rows, columns = x_k.shape
        if self._substitution is not None and columns <= _MOST_COLUMNS:
            self._substitution(stream, l_kk, x_k, transposed=transposed)
            return
        cublas.dtrsm(
            self._blas.of(stream), _RIGHT, _UPPER, _TRANSPOSE if transposed else _NO_TRANSPOSE, _NON_UNIT, columns, rows,
            _ONE, l_kk.data.ptr, rows, x_k.data.ptr, columns,
        )  # fmt: skip

    def subtract(self, stream: AbstractStream, target: Tile, l_ij: Tile, x: Tile, *, transposed: bool) -> None:
        self._product(stream, target, l_ij, x, scalars=(_MINUS_ONE, _TRANSPOSE if transposed else _NO_TRANSPOSE))

    def multiply_each(self, stream: AbstractStream, out: Tile, tiles: Tile, x: Tile, *, transposed: bool) -> None:
        self._batches.multiply(stream, tiles, x, out, first=transposed)

    def subtract_products(self, stream: AbstractStream, targets: Tile, products: Tile, which: Sequence[int]) -> None:
        subtract_products(stream, targets, products, which)

    def add_product(
        self, stream: AbstractStream, target: Tile, d: Tile, x: Tile, *, transposed: bool = False, halved: bool = False
    ) -> None:
        scalars = _HALF if halved else _ONE, _TRANSPOSE if transposed else _NO_TRANSPOSE
        self._product(stream, target, d, x, scalars=scalars)

    def _product(self, stream: AbstractStream, target: Tile, left: Tile, x: Tile, *, scalars: tuple[int, int]) -> None:
        """``target.T += scale x.T @ op(left).T``."""
        scale, operation = scalars
        rows, columns = target.shape
        cublas.dgemm(
            self._blas.of(stream), _NO_TRANSPOSE, operation, columns, rows, x.shape[0], scale, x.data.ptr, columns,
            left.data.ptr, left.shape[1], _ONE, target.data.ptr, columns,
        )  # fmt: skip

    def inner(self, stream: AbstractStream, a: Tile, b: Tile, out: Tile) -> None:
        self._dot(stream, a.reshape(-1), b.reshape(-1), out)

    def form(self, stream: AbstractStream, vectors: tuple[Tile, Tile], d: Tile, scratch: Tile, out: Tile) -> None:
        left, right = vectors
        rows, columns = d.shape
        cublas.dgemv(
            self._blas.of(stream), _TRANSPOSE, columns, rows, _ONE, d.data.ptr, columns, right.data.ptr, _step(right), _ZERO,
            scratch.data.ptr, 1,
        )  # fmt: skip
        self._dot(stream, left, scratch[:rows], out)

    def _dot(self, stream: AbstractStream, a: Tile, b: Tile, out: Tile) -> None:
        """Leave the sum on the device: a number for the host would make the host wait."""
        handle = self._blas.of(stream)
        cublas.set_pointer_mode(handle, _ON_DEVICE)
        cublas.ddot(handle, a.size, a.data.ptr, _step(a), b.data.ptr, _step(b), out.data.ptr)
        cublas.set_pointer_mode(handle, _ON_HOST)

    def add_column_squares(self, stream: AbstractStream, x: Tile, out: Tile) -> None:
        rows, columns = x.shape
        arguments = (x.data.ptr, np.int32(rows), np.int32(columns), out.data.ptr)
        blocks = -(-columns // _THREADS)
        self._add_column_squares((blocks,), (_THREADS,), arguments, stream=cupy_stream(stream))


def _step(vector: Tile) -> int:
    """Entries from one of a vector to the next."""
    return int(vector.strides[0] // vector.itemsize)
