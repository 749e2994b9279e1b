"""Products of int8 planes by each of the kernels that cuBLASLt offers for a shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.residue_forms import Shape
from benchmarks.running import Later

cp, cublasLt, cuda, int8 = map(Later, ("cupy", "nvmath.bindings.cublasLt", "ooc_chol.kernels.cuda", "ooc_chol.kernels.cuda.int8"))

#: Numbers of cuBLAS.
TRANSPOSE, NO_TRANSPOSE, R_8I, R_32I, COMPUTE_32I = 1, 0, 3, 10, 72
#: Kernels that cuBLASLt is asked for.
_CANDIDATES = 12
#: What is told of a kernel.
_ATTRIBUTES = ("ID", "TILE_ID", "STAGES_ID", "CLUSTER_SHAPE_ID", "CTA_SWIZZLING", "CUSTOM_OPTION", "SPLITK_NUM")
ONE = np.array([1], dtype=np.int32)


class Products:
    """One shape's products by cuBLASLt, all planes in one batch or one call a plane, and the kernels that it offers."""

    def __init__(self, lt: int, workspace: Any, shape: Shape, *, is_batch: bool) -> None:
        self._lt, self._workspace, self._shape = lt, workspace, shape
        self._calls = 1 if is_batch else shape.planes
        planes = shape.planes if is_batch else 1
        self._operation = int(cublasLt.matmul_desc_create(COMPUTE_32I, R_32I))
        for name, value in (("TRANSA", TRANSPOSE), ("TRANSB", NO_TRANSPOSE)):
            number = np.array([value], dtype=np.int32)
            attribute = cublasLt.MatmulDescAttribute[name]
            cublasLt.matmul_desc_set_attribute(self._operation, attribute, number.ctypes.data, number.nbytes)
        m, n, k = shape.rows, shape.columns, shape.inner
        self._layouts = (
            int8.layout_of(k, n, k, R_8I, planes=planes, plane_stride=n * k),
            int8.layout_of(k, m, k, R_8I, planes=planes, plane_stride=m * k),
            int8.layout_of(n, m, n, R_32I, planes=planes, plane_stride=m * n),
        )
        self._found = self._candidates()

    def __len__(self) -> int:
        return len(self._found)

    def enqueue(self, number: int, left: Any, right: Any, sums: Any) -> None:
        """``S[p] += left[p] @ right[p].T`` by kernel ``number``."""
        of_right, of_left, of_sums = self._layouts
        algorithm = self._found.ctypes.data + number * self._found.dtype.itemsize
        for p in range(self._calls):
            at = [array.data.ptr + p * array.strides[0] for array in (right, left, sums)]
            cublasLt.matmul(
                self._lt, self._operation, ONE.ctypes.data, at[0], of_right, at[1], of_left, ONE.ctypes.data, at[2], of_sums,
                at[2], of_sums, algorithm, self._workspace.ptr, cuda.CUBLAS_WORKSPACE_BYTES, cp.cuda.get_current_stream().ptr,
            )  # fmt: skip

    def describe(self, number: int) -> dict[str, int]:
        """What cuBLASLt tells of kernel ``number``."""
        algorithm = self._found.ctypes.data + number * self._found.dtype.itemsize
        about = {}
        for name in _ATTRIBUTES:
            attribute = cublasLt.MatmulAlgoConfigAttribute[name]
            value = np.zeros(1, dtype=cublasLt.get_matmul_algo_config_attribute_dtype(attribute))
            written = np.zeros(1, dtype=np.uint64)
            cublasLt.matmul_algo_config_get_attribute(algorithm, attribute, value.ctypes.data, value.nbytes, written.ctypes.data)
            about[name.removesuffix("_ID").lower()] = int(value[0])
        return about

    def close(self) -> None:
        """Destroy the descriptors."""
        cublasLt.matmul_desc_destroy(self._operation)
        for layout in self._layouts:
            cublasLt.matrix_layout_destroy(layout)

    def _candidates(self) -> Any:
        """CuBLASLt's choices, its favourite first."""
        preference = cublasLt.matmul_preference_create()
        try:
            limit = np.array([cuda.CUBLAS_WORKSPACE_BYTES], dtype=np.uint64)
            attribute = cublasLt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
            cublasLt.matmul_preference_set_attribute(preference, attribute, limit.ctypes.data, limit.nbytes)
            found = np.zeros(_CANDIDATES, dtype=cublasLt.matmul_heuristic_result_dtype)
            count = np.zeros(1, dtype=np.int32)
            right, left, sums = self._layouts
            cublasLt.matmul_algo_get_heuristic(
                self._lt, self._operation, right, left, sums, sums, preference, _CANDIDATES, found.ctypes.data, count.ctypes.data
            )
        finally:
            cublasLt.matmul_preference_destroy(preference)
        found = found[: int(count[0])]
        return np.ascontiguousarray(found[found["state"] == 0])
