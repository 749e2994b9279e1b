"""Workspace of the kernels of tensors on a CUDA device, and how they are launched; asks for no device and no CuPy."""

from __future__ import annotations

from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.interfaces.tensors import PANEL_COLUMNS, Svt, TensorShape, resolve_svt, slice_group, subspace_columns
from ooc_chol.precision.triples import Precision

#: What arrays of the workspace begin at a multiple of, in bytes.
ALIGNMENT = 256
#: Columns of a panel that one product takes: all, or fewer of a graph of many vertices, for which the workspace would be large.
_MOST_VERTICES, _FEW_COLUMNS = 8192, 1024
#: Rows of a packed panel have a multiple of so many numbers: cuBLAS chooses its kernels by alignment, too.
_PADDING = 4

#: cuSOLVER's routines for eigenpairs of a batch: Jacobi's method, and the 64-bit routine of any order.
EigenRoutine: TypeAlias = Literal["syevj", "xsyev"]
#: Largest order for which Jacobi's method is taken; ``benchmarks/tensor_kernels.py`` measures both.
JACOBI_MOST = 32
#: Bytes for cuSOLVER's own workspace: so many matrices of the order for each one of a batch, and for all together.
_EIGEN_MATRICES, _EIGEN_BYTES = 4, 64 << 20


class Part(NamedTuple):
    """An array of the workspace."""

    offset: int  #: Of its first byte
    shape: tuple[int, ...]  #: Row-major
    dtype: str  #: NumPy's name of its type


def eigen_routine(order: int) -> EigenRoutine:
    """The routine for eigenpairs of Gram matrices of that order."""
    return "syevj" if order <= JACOBI_MOST else "xsyev"


def c_types(precision: Precision) -> dict[str, float | str]:
    """Macros with which ``tensors.cu`` is compiled."""
    names = {"float32": "float", "float64": "double"}
    return {"STORE": names[precision.storage.name], "COMPUTE": names[precision.compute.name]}


def transform_columns(shape: TensorShape) -> int:
    """Columns of a panel that one product takes."""
    return PANEL_COLUMNS if max(shape.vertices, shape.components) <= _MOST_VERTICES else _FEW_COLUMNS


def padded(width: int) -> int:
    """Numbers from one row of a packed panel to the next."""
    return -(-width // _PADDING) * _PADDING


def group_slices(shape: TensorShape) -> int:
    """Slices for which there is workspace: a group, or all there are."""
    return min(slice_group(shape.rows, shape.columns), max(shape.vertices, shape.components))


def eigen_bytes(order: int, count: int) -> int:
    """Bytes that cuSOLVER gets for eigenpairs of ``count`` matrices; where it wants more, it gets fewer at a time."""
    return _aligned(8 * _EIGEN_MATRICES * order * order * count + _EIGEN_BYTES)


def transform_parts(shape: TensorShape, precision: Precision) -> dict[str, Part]:
    """Packed panels that a product reads and writes."""
    rows = max(shape.vertices, shape.components)
    width = padded(min(transform_columns(shape), shape.width))
    panels: dict[str, tuple[tuple[int, ...], Any]] = {"packed": ((rows, width), precision.compute)}
    return _placed(panels | {"product": ((rows, width), precision.compute)})


def fill_parts(shape: TensorShape) -> dict[str, Part]:
    """Sums of squares of rows."""
    return _placed({"squares": ((2, max(shape.vertices, shape.components)), np.float64)})


def threshold_parts(shape: TensorShape, svt: Svt) -> dict[str, Part]:
    """Parts of the workspace in which thresholds of a group work."""
    s, d = group_slices(shape), shape.order
    slices, square = (s, shape.rows, shape.columns), (s, d, d)
    arrays: dict[str, tuple[tuple[int, ...], Any]] = {
        "wide": (slices, np.float64),
        "made": (slices, np.float64),
        "gram": (square, np.float64),
        "vectors": (square, np.float64),
        "scaled": (square, np.float64),
        "filtered": (square, np.float64),
        "values": ((s, d), np.float64),
        "factors": ((s, d), np.float64),
        "info": ((s,), np.int32),
    }
    if resolve_svt(svt, shape.rows, shape.columns) == "subspace":
        c = subspace_columns(shape.rows, shape.columns)
        arrays |= dict.fromkeys(("v", "h", "turned", "product"), ((s, c, d), np.float64))
        arrays |= {
            "small": ((s, c, c), np.float64),
            "found": ((s, c), np.float64),
            "few": ((s, c), np.float64),
            "projected": ((s, max(shape.rows, shape.columns), c), np.float64),
            "picked": (slices, np.float64),
            "beside": (slices, np.float64),
            "norms": ((2, s), np.float64),
            "proved": ((s,), np.int32),
        }
    arrays["eigen"] = ((eigen_bytes(d, s),), np.uint8)
    return _placed(arrays)


def parts_bytes(parts: dict[str, Part]) -> int:
    """Bytes of all of them."""
    return max(_aligned(each.offset + prod(each.shape) * np.dtype(each.dtype).itemsize) for each in parts.values())


def workspace_bytes(shape: TensorShape, precision: Precision, svt: Svt) -> int:
    """Bytes of all workspace of a device: cuBLAS's, and room for one call at a time."""
    sets = transform_parts(shape, precision), fill_parts(shape), threshold_parts(shape, svt)
    return ALIGNMENT + sizes.CUBLAS_WORKSPACE_BYTES + max(map(parts_bytes, sets))


def _placed(arrays: dict[str, tuple[tuple[int, ...], Any]]) -> dict[str, Part]:
    """Arrays one behind the other."""
    placed, offset = {}, 0
    for name, (shape, dtype) in arrays.items():
        placed[name] = Part(offset, shape, np.dtype(dtype).name)
        offset = _aligned(offset + prod(shape) * np.dtype(dtype).itemsize)
    return placed


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
