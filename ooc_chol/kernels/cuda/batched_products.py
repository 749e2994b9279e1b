"""Products of batches of row-major float64 matrices by cuBLAS."""

from __future__ import annotations

import numpy as np
from nvmath.bindings import cublas

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.handles import BlasHandle

_AS_IT_IS, _TRANSPOSED = 0, 1


class BatchedProducts:
    """``out[k] = op(a[k]) @ op(b[k])`` on one device."""

    def __init__(self, blas: BlasHandle) -> None:
        self._blas = blas
        self._scalars = np.array([1.0, 0.0, -1.0])

    def multiply(self, stream: AbstractStream, a: Tile, b: Tile, out: Tile, *, first: bool = False, second: bool = False) -> None:
        """Enqueue ``out = a @ b``, (s, rows, columns) of contiguous matrices, or one ``b``; either is transposed."""
        self._enqueue(stream, (a, b, out), (first, second), scale=0, keeps=1)

    def subtract(self, stream: AbstractStream, a: Tile, b: Tile, out: Tile, *, first: bool = False) -> None:
        """Enqueue ``out -= a @ b``, or with ``a`` transposed."""
        self._enqueue(stream, (a, b, out), (first, False), scale=2, keeps=0)

    def _enqueue(
        self, stream: AbstractStream, arrays: tuple[Tile, Tile, Tile], transposed: tuple[bool, bool], *, scale: int, keeps: int
    ) -> None:
        """Column-major: ``out.T = op(b).T @ op(a).T``, where cuBLAS sees each stored array transposed."""
        a, b, out = arrays
        count, rows, columns = out.shape
        inner = a.shape[1] if transposed[0] else a.shape[2]
        of_a, of_b = (_TRANSPOSED if each else _AS_IT_IS for each in transposed)
        scalars = self._scalars.ctypes.data
        cublas.dgemm_strided_batched(
            self._blas.of(stream), of_b, of_a, columns, rows, inner, scalars + 8 * scale,
            int(b.data.ptr), b.shape[-1], step_of(b),
            int(a.data.ptr), a.shape[2], step_of(a),
            scalars + 8 * keeps, int(out.data.ptr), columns, rows * columns, count,
        )  # fmt: skip


def step_of(array: Tile) -> int:
    """Entries from one matrix to the next; 0 where one is that of all."""
    return int(array.strides[0] // array.itemsize) if array.ndim > 2 else 0
