"""Products of int8 planes on the tensor cores: which of the libraries' kernels multiplies which shape fastest.

Sums of int8 products in int32 are exact, so that the choice changes no bit. What cuBLAS takes by itself for a batch (tiles of
128 x 64) reaches 76 TFLOP/s of FP64 at 13 moduli on an H200; tiles of 128 x 256 in clusters of two reach 100, and one product a
plane at long K 103 to 107.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublas, cublasLt

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda.handles import BlasHandle, cupy_stream

_TRANSPOSE, _NO_TRANSPOSE = 1, 0
_R_8I, _R_32I, _COMPUTE_32I, _DEFAULT_ALGORITHM = 3, 10, 72, -1
_SCALARS = np.array([1, 0], dtype=np.int32)
#: Addresses of cuBLAS's scalars on the host.
_ONE, _ZERO = (_SCALARS.ctypes.data + 4 * at for at in range(2))
#: Orders of int8 products are multiples of this.
UNIT = 16
#: From these columns and K on, planes are multiplied one by one.
_LEAST_COLUMNS, _LEAST_K = 8192, 16384
#: Tiles of a thread block, by least K, for batches of at least :data:`_LEAST_ROWS` rows: cuBLASLt's numbers of 128 x 256 and
#: 128 x 128, measured at 2048 x 2048.
_TILES = ((6144, 23), (3072, 20))
_LEAST_ROWS = 1024
#: Number of kernels that cuBLASLt is asked for, to choose from.
_CANDIDATES = 16


class Planes(NamedTuple):
    """Row-major planes in device memory: address of the first entry, and an array's strides in bytes."""

    address: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Tile) -> Planes:
        """The planes of an array of three dimensions."""
        return cls(array.data.ptr, array.strides)

    def below(self, row: int) -> Planes:
        """The planes from row ``row`` on."""
        return Planes(self.address + row * self.strides[1], self.strides)


class _Batch(NamedTuple):
    """One shape of a batch: cuBLASLt's descriptors, and the kernel."""

    operation: int
    right: int
    left: int
    target: int
    found: NDArray[Any]
    algorithm: int


class Int8Products:
    """``S[p] (+)= left[p] @ right[p].T`` for all planes p, on the current device."""

    def __init__(self, blas: BlasHandle) -> None:
        self._blas = blas
        self._lt = int(cublasLt.create())
        self._batches: dict[tuple[tuple[int, ...], ...], _Batch] = {}

    def multiply(
        self,
        stream: AbstractStream,
        shape: tuple[int, int, int, int],
        operands: tuple[Planes, Planes, Planes],
        *,
        accumulates: bool,
    ) -> None:
        """``S[p] (+)= left[p] @ right[p].T``; what is row-major here is column-major to cuBLAS: ``right @ left.T``."""
        planes, rows, cols, inner = shape
        rounded, beta = (planes, rounded_up(rows), rounded_up(cols), inner), _ONE if accumulates else _ZERO
        if rounded[2] >= _LEAST_COLUMNS and inner >= _LEAST_K:
            self._plane_by_plane(stream, rounded, operands, beta)
        else:
            self._batched(stream, rounded, operands, beta)

    def close(self) -> None:
        """Destroy handle and descriptors; a second call does nothing."""
        for batch in self._batches.values():
            cublasLt.matmul_desc_destroy(batch.operation)
            for layout in (batch.right, batch.left, batch.target):
                cublasLt.matrix_layout_destroy(layout)
        self._batches.clear()
        if self._lt:
            cublasLt.destroy(self._lt)
        self._lt = 0

    def _plane_by_plane(
        self, stream: AbstractStream, shape: tuple[int, int, int, int], operands: tuple[Planes, Planes, Planes], beta: int
    ) -> None:
        """Enqueue one product for each plane."""
        handle = self._blas.of(stream)
        planes, rows, cols, inner = shape
        target, left, right = operands
        for plane in range(planes):
            right_at, left_at, target_at = (each.address + plane * each.strides[0] for each in (right, left, target))
            cublas.gemm_ex(
                handle, _TRANSPOSE, _NO_TRANSPOSE, cols, rows, inner, _ONE, right_at, _R_8I, right.strides[1], left_at, _R_8I,
                left.strides[1], beta, target_at, _R_32I, target.strides[1] // 4, _COMPUTE_32I, _DEFAULT_ALGORITHM,
            )  # fmt: skip

    def _batched(
        self, stream: AbstractStream, shape: tuple[int, int, int, int], operands: tuple[Planes, Planes, Planes], beta: int
    ) -> None:
        """Enqueue the products of all planes in one call."""
        target, left, right = operands
        key = (shape, target.strides, left.strides, right.strides)
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = self._batch(*key)
        cublasLt.matmul(
            self._lt, batch.operation, _ONE, right.address, batch.right, left.address, batch.left,
            beta, target.address, batch.target, target.address, batch.target,
            batch.algorithm, self._blas.workspace(stream), sizes.CUBLAS_WORKSPACE_BYTES, cupy_stream(stream).ptr,
        )  # fmt: skip

    def _batch(
        self, shape: tuple[int, int, int, int], of_target: tuple[int, ...], of_left: tuple[int, ...], of_right: tuple[int, ...]
    ) -> _Batch:
        """Descriptors of a shape and the operands' strides, and its kernel: one with the wanted tile, else the first choice."""
        planes, rows, cols, inner = shape
        operation = int(cublasLt.matmul_desc_create(_COMPUTE_32I, _R_32I))
        for attribute, value in (("TRANSA", _TRANSPOSE), ("TRANSB", _NO_TRANSPOSE)):
            number = np.array([value], dtype=np.int32)
            cublasLt.matmul_desc_set_attribute(
                operation, cublasLt.MatmulDescAttribute[attribute], number.ctypes.data, number.nbytes
            )
        right = layout_of(inner, cols, of_right[1], _R_8I, planes=planes, plane_stride=of_right[0])
        left = layout_of(inner, rows, of_left[1], _R_8I, planes=planes, plane_stride=of_left[0])
        target = layout_of(cols, rows, of_target[1] // 4, _R_32I, planes=planes, plane_stride=of_target[0] // 4)
        found = self._candidates(operation, (right, left, target))
        first, size = found.ctypes.data, found.dtype.itemsize
        wanted = next((tile for least, tile in _TILES if inner >= least and rows >= _LEAST_ROWS), None)
        places = [first + at * size for at in range(len(found))]
        return _Batch(operation, right, left, target, found, next((at for at in places if _tile(at) == wanted), first))

    def _candidates(self, operation: int, layouts: tuple[int, int, int]) -> NDArray[Any]:
        """CuBLASLt's choices, its favourite first."""
        preference = cublasLt.matmul_preference_create()
        try:
            limit = np.array([sizes.CUBLAS_WORKSPACE_BYTES], dtype=np.uint64)
            attribute = cublasLt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
            cublasLt.matmul_preference_set_attribute(preference, attribute, limit.ctypes.data, limit.nbytes)
            found = np.zeros(_CANDIDATES, dtype=cublasLt.matmul_heuristic_result_dtype)
            count = np.zeros(1, dtype=np.int32)
            right, left, target = layouts
            cublasLt.matmul_algo_get_heuristic(
                self._lt, operation, right, left, target, target, preference, _CANDIDATES, found.ctypes.data, count.ctypes.data
            )
        finally:
            cublasLt.matmul_preference_destroy(preference)
        return found[: int(count[0])]


def rounded_up(order: int) -> int:
    """``order`` rounded up to the tensor cores' unit."""
    return -(-order // UNIT) * UNIT


def layout_of(rows: int, cols: int, stride: int, dtype: int, *, planes: int = 1, plane_stride: int = 0) -> int:
    """CuBLASLt's description of a batch of column-major matrices; strides in items."""
    layout = int(cublasLt.matrix_layout_create(dtype, rows, cols, stride))
    count, offset = np.array([planes], dtype=np.int32), np.array([plane_stride], dtype=np.int64)
    for attribute, value in (("BATCH_COUNT", count), ("STRIDED_BATCH_OFFSET", offset)):
        cublasLt.matrix_layout_set_attribute(layout, cublasLt.MatrixLayoutAttribute[attribute], value.ctypes.data, value.nbytes)
    return layout


def _tile(algorithm: int) -> int:
    """CuBLASLt's number of the tile that a kernel computes in one thread block."""
    tile, written = np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.uint64)
    attribute = cublasLt.MatmulAlgoConfigAttribute.TILE_ID
    cublasLt.matmul_algo_config_get_attribute(algorithm, attribute, tile.ctypes.data, tile.nbytes, written.ctypes.data)
    return int(tile[0])
