"""Products of FP8 matrices (E4M3) with sums in FP32 on the tensor cores, by cuBLASLt."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublasLt

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda.handles import BlasHandle, cupy_stream
from ooc_chol.kernels.cuda.int8 import layout_of, rounded_up

_TRANSPOSE, _NO_TRANSPOSE = 1, 0
#: cuBLASLt's numbers of E4M3, of FP32 and of sums in FP32.
_R_8F_E4M3, _R_32F, _COMPUTE_32F = 28, 0, 68


class _Product(NamedTuple):
    """One shape: cuBLASLt's descriptors, and its favourite kernel."""

    operation: int
    right: int
    left: int
    target: int
    found: NDArray[Any]


class Fp8Products:
    """``F (+)= 2**exponent left @ right.T`` on the current device.

    Both operands are row-major with adjacent columns, which is the only order that FP8 tensor cores take: what is row-major here
    is column-major to cuBLASLt, ``right @ left.T``.
    """

    def __init__(self, blas: BlasHandle) -> None:
        self._blas = blas
        self._lt = int(cublasLt.create())
        self._products: dict[tuple[int, ...], _Product] = {}
        # Factors live as long as this object: calls read them when they are enqueued.
        self._factors: dict[int, NDArray[np.float32]] = {}

    def multiply(
        self, stream: AbstractStream, target: Tile, left: Tile, right: Tile, *, exponent: int, accumulates: bool
    ) -> None:
        """Enqueue one product, which is added to ``target`` with ``accumulates`` and else replaces it."""
        (_, rows, inner), cols = left.shape, right.shape[1]
        strides = right.strides[1], left.strides[1], target.strides[1] // 4
        key = (rounded_up(rows), rounded_up(cols), inner, *strides)
        if key not in self._products:
            self._products[key] = self._product(*key)
        product, alpha, beta = self._products[key], self._factor(exponent), self._factor(0 if accumulates else None)
        cublasLt.matmul(
            self._lt, product.operation, alpha, right.data.ptr, product.right, left.data.ptr, product.left,
            beta, target.data.ptr, product.target, target.data.ptr, product.target,
            product.found.ctypes.data, self._blas.workspace(stream), sizes.CUBLAS_WORKSPACE_BYTES, cupy_stream(stream).ptr,
        )  # fmt: skip

    def close(self) -> None:
        """Destroy handle and descriptors; a second call does nothing."""
        for product in self._products.values():
            cublasLt.matmul_desc_destroy(product.operation)
            for layout in (product.right, product.left, product.target):
                cublasLt.matrix_layout_destroy(layout)
        self._products.clear()
        if self._lt:
            cublasLt.destroy(self._lt)
        self._lt = 0

    def _factor(self, exponent: int | None) -> int:
        """Address of ``2**exponent`` on the host; of 0 for None."""
        key = -(1 << 20) if exponent is None else exponent
        if key not in self._factors:
            self._factors[key] = np.array([0.0 if exponent is None else 2.0**exponent], dtype=np.float32)
        return int(self._factors[key].ctypes.data)

    def _product(self, rows: int, cols: int, inner: int, of_right: int, of_left: int, of_target: int) -> _Product:
        """Descriptors of a shape and the operands' strides, and cuBLASLt's first choice of a kernel."""
        operation = int(cublasLt.matmul_desc_create(_COMPUTE_32F, _R_32F))
        for attribute, value in (("TRANSA", _TRANSPOSE), ("TRANSB", _NO_TRANSPOSE)):
            number = np.array([value], dtype=np.int32)
            cublasLt.matmul_desc_set_attribute(
                operation, cublasLt.MatmulDescAttribute[attribute], number.ctypes.data, number.nbytes
            )
        right = layout_of(inner, cols, of_right, _R_8F_E4M3)
        left = layout_of(inner, rows, of_left, _R_8F_E4M3)
        target = layout_of(cols, rows, of_target, _R_32F)
        preference = cublasLt.matmul_preference_create()
        try:
            limit = np.array([sizes.CUBLAS_WORKSPACE_BYTES], dtype=np.uint64)
            attribute = cublasLt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
            cublasLt.matmul_preference_set_attribute(preference, attribute, limit.ctypes.data, limit.nbytes)
            found = np.zeros(1, dtype=cublasLt.matmul_heuristic_result_dtype)
            count = np.zeros(1, dtype=np.int32)
            cublasLt.matmul_algo_get_heuristic(
                self._lt, operation, right, left, target, target, preference, 1, found.ctypes.data, count.ctypes.data
            )
        finally:
            cublasLt.matmul_preference_destroy(preference)
        if not count[0]:
            raise RuntimeError(f"cuBLASLt has no FP8 product of {rows} x {cols} x {inner}; factor with half_products=True")
        return _Product(operation, right, left, target, found)
