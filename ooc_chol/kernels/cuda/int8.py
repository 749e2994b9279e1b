"""Products of int8 planes on the tensor cores by cuBLASLt; :mod:`.int8_choice` says by which of its kernels."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublasLt

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda.handles import BlasHandle, cupy_stream
from ooc_chol.kernels.cuda.int8_choice import Kernel, choose, planes_in_a_call, wished

_TRANSPOSE, _NO_TRANSPOSE = 1, 0
_R_8I, _R_32I, _COMPUTE_32I = 3, 10, 72
_SCALARS = np.array([1, 0], dtype=np.int32)
#: Addresses of cuBLAS's scalars on the host.
_ONE, _ZERO = (_SCALARS.ctypes.data + 4 * at for at in range(2))
#: Orders of int8 products are multiples of this.
UNIT = 16
#: Number of kernels that cuBLASLt is asked for, to choose from.
_CANDIDATES = 16
#: Kernels that were chosen, by model of GPU, shape, strides and alignment: cuBLASLt lets one keep them, for GPUs of one model.
_CHOSEN: dict[tuple[Any, ...], NDArray[Any]] = {}
#: Multiple of bytes beyond which no kernel asks more of addresses.
_MOST_ALIGNMENT = 256


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


class _Call(NamedTuple):
    """One shape and the operands' strides: cuBLASLt's descriptors, the kernel, and how often it is called for a product."""

    operation: int
    right: int
    left: int
    target: int
    algorithm: int
    times: int


class Int8Products:
    """``S[p] (+)= left[p] @ right[p].T`` for all planes p, on the current device."""

    def __init__(self, blas: BlasHandle) -> None:
        self._blas = blas
        self._lt = int(cublasLt.create())
        self._calls: dict[tuple[Any, ...], _Call] = {}

    def multiply(
        self,
        stream: AbstractStream,
        shape: tuple[int, int, int, int],
        operands: tuple[Planes, Planes, Planes],
        *,
        accumulates: bool,
    ) -> None:
        """``S[p] (+)= left[p] @ right[p].T``; what is row-major here is column-major to cuBLAS: ``right @ left.T``."""
        (target_at, of_target), (left_at, of_left), (right_at, of_right) = operands
        bits = _MOST_ALIGNMENT | target_at | left_at | right_at | of_target[0] | of_left[0] | of_right[0]
        key = (shape, of_target, of_left, of_right, bits & -bits)  # the last is the alignment of all addresses, in bytes
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = self._call(*key)
        workspace, pointer, beta = self._blas.workspace(stream), cupy_stream(stream).ptr, _ONE if accumulates else _ZERO
        for _ in range(call.times):
            cublasLt.matmul(
                self._lt, call.operation, _ONE, right_at, call.right, left_at, call.left,
                beta, target_at, call.target, target_at, call.target,
                call.algorithm, workspace, sizes.CUBLAS_WORKSPACE_BYTES, pointer,
            )  # fmt: skip
            target_at, left_at, right_at = target_at + of_target[0], left_at + of_left[0], right_at + of_right[0]

    def close(self) -> None:
        """Destroy handle and descriptors; a second call does nothing."""
        for call in self._calls.values():
            cublasLt.matmul_desc_destroy(call.operation)
            for layout in (call.right, call.left, call.target):
                cublasLt.matrix_layout_destroy(layout)
        self._calls.clear()
        if self._lt:
            cublasLt.destroy(self._lt)
        self._lt = 0

    def _call(
        self,
        shape: tuple[int, int, int, int],
        of_target: tuple[int, ...],
        of_left: tuple[int, ...],
        of_right: tuple[int, ...],
        alignment: int,
    ) -> _Call:
        """Descriptors of a shape and the operands' strides, and its kernel: the first of those wished for that is offered."""
        planes, rows, cols, inner = shape[0], rounded_up(shape[1]), rounded_up(shape[2]), shape[3]
        together = planes_in_a_call(planes, cols, inner)
        operation = int(cublasLt.matmul_desc_create(_COMPUTE_32I, _R_32I))
        for attribute, value in (("TRANSA", _TRANSPOSE), ("TRANSB", _NO_TRANSPOSE)):
            number = np.array([value], dtype=np.int32)
            cublasLt.matmul_desc_set_attribute(
                operation, cublasLt.MatmulDescAttribute[attribute], number.ctypes.data, number.nbytes
            )
        right = layout_of(inner, cols, of_right[1], _R_8I, planes=together, plane_stride=of_right[0])
        left = layout_of(inner, rows, of_left[1], _R_8I, planes=together, plane_stride=of_left[0])
        target = layout_of(cols, rows, of_target[1] // 4, _R_32I, planes=together, plane_stride=of_target[0] // 4)
        chosen = _CHOSEN.get(key := (_model(cp.cuda.Device().id), shape, of_target, of_left, of_right, alignment))
        if chosen is None:
            found = self._candidates(operation, (right, left, target), alignment)
            places = [found.ctypes.data + at * found.dtype.itemsize for at in range(len(found))]
            at = choose([_kernel(place) for place in places], wished(together, rows, inner))
            chosen = _CHOSEN[key] = found[at : at + 1].copy()
        return _Call(operation, right, left, target, chosen.ctypes.data, planes // together)

    def _candidates(self, operation: int, layouts: tuple[int, int, int], alignment: int) -> NDArray[Any]:
        """CuBLASLt's choices for operands whose addresses are multiples of ``alignment`` bytes, its favourite first."""
        preference = cublasLt.matmul_preference_create()
        try:
            limits = [("MAX_WORKSPACE_BYTES", np.array([sizes.CUBLAS_WORKSPACE_BYTES], dtype=np.uint64))]
            limits += [(f"MIN_ALIGNMENT_{operand}_BYTES", np.array([alignment], dtype=np.uint32)) for operand in "ABCD"]
            for name, limit in limits:
                attribute = cublasLt.MatmulPreferenceAttribute[name]
                cublasLt.matmul_preference_set_attribute(preference, attribute, limit.ctypes.data, limit.nbytes)
            found = np.zeros(_CANDIDATES, dtype=cublasLt.matmul_heuristic_result_dtype)
            count = np.zeros(1, dtype=np.int32)
            right, left, target = layouts
            cublasLt.matmul_algo_get_heuristic(
                self._lt, operation, right, left, target, target, preference, _CANDIDATES, found.ctypes.data, count.ctypes.data
            )
        finally:
            cublasLt.matmul_preference_destroy(preference)
        found = found[: int(count[0])]
        usable = np.ascontiguousarray(found[found["state"] == 0])
        if not len(usable):
            raise RuntimeError(f"cuBLASLt has no INT8 product whose operands are aligned to {alignment} bytes")
        return usable


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


@cache
def _model(number: int) -> bytes:
    """Name of a GPU's model."""
    name: bytes = cp.cuda.runtime.getDeviceProperties(number)["name"]
    return name


def _kernel(algorithm: int) -> Kernel:
    """Facts of a kernel by cuBLASLt."""
    return Kernel(_configured(algorithm, "TILE_ID"), _configured(algorithm, "CLUSTER_SHAPE_ID"))


def _configured(algorithm: int, name: str) -> int:
    """One number of a kernel's configuration."""
    attribute = cublasLt.MatmulAlgoConfigAttribute[name]
    value = np.zeros(1, dtype=cublasLt.get_matmul_algo_config_attribute_dtype(attribute))
    written = np.zeros(1, dtype=np.uint64)
    cublasLt.matmul_algo_config_get_attribute(algorithm, attribute, value.ctypes.data, value.nbytes, written.ctypes.data)
    return int(value[0])
