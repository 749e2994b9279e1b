"""Kernels of graph-tensor imputation on the current CUDA device: cuBLAS, cuSOLVER and the kernels of ``tensors.cu``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, final

import cupy as cp
import numpy as np
from nvmath.bindings import cublas

from ooc_chol.interfaces import AbstractStream, Tile, Turns
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda import modules, tensor_sizes
from ooc_chol.kernels.cuda.batched_products import BatchedProducts
from ooc_chol.kernels.cuda.handles import BlasHandle, cupy_stream
from ooc_chol.kernels.cuda.tensor_sizes import Part
from ooc_chol.kernels.cuda.thresholds import CudaThresholds
from ooc_chol.kernels.host.thresholds import Rule
from ooc_chol.kernels.interfaces.tensors import (
    LANES,
    AbstractTensorKernels,
    Shrinkage,
    Slices,
    Svt,
    TensorShape,
    group_ends,
    resolve_svt,
    runs_within,
)
from ooc_chol.kernels.tensor_shapes import check_fill, check_joined, check_norms, check_threshold, check_transform
from ooc_chol.precision.triples import Precision

_AS_IT_IS, _TRANSPOSED = 0, 1


@final
class CudaTensorKernels(AbstractTensorKernels):
    """Kernels that take CuPy's arrays, for CUDA devices.

    In FDF panels are widened and multiplied in float64. cuBLAS and cuSOLVER have a handle each, which take memory beside the
    workspace; so do, for a moment, the numbers of slices that take the full route. Raises ``ValueError``: ``svt`` is "svd", which
    is the reference on the host.
    """

    def __init__(self, shape: TensorShape, precision: Precision, svt: Svt = "auto") -> None:
        self.shape, self.precision = TensorShape(*shape), precision
        self.svt = resolve_svt(svt, self.shape.rows, self.shape.columns)
        if self.svt == "svd":
            raise ValueError(
                'svt="svd" is the reference on the host; on a GPU singular values are found by "gram64" or "subspace"'
            )
        self._blas: BlasHandle | None = None
        self._thresholds: CudaThresholds | None = None
        self._workspace = 0
        self._step = tensor_sizes.transform_columns(self.shape)
        self._panels = tensor_sizes.transform_parts(self.shape, precision)
        # Scalars that cuBLAS reads while it enqueues: one and zero.
        self._scalars = np.array([1, 0], precision.compute)

    def workspace_bytes(self, nb: int) -> int:
        return tensor_sizes.workspace_bytes(self.shape, self.precision, self.svt)

    def bind(self, nb: int, workspace: int) -> None:
        first = -(-workspace // sizes.CUBLAS_ALIGNMENT) * sizes.CUBLAS_ALIGNMENT
        self._blas = BlasHandle([first])
        self._workspace = first + sizes.CUBLAS_WORKSPACE_BYTES
        module = modules.compiled(modules.code("tensors.cu", **tensor_sizes.c_types(self.precision)))
        self._fill, self._add_up = module.get_function("fill"), module.get_function("add_up")
        self._squares = _view(self._workspace, tensor_sizes.fill_parts(self.shape)["squares"])
        parts = {name: _view(self._workspace, part) for name, part in tensor_sizes.threshold_parts(self.shape, self.svt).items()}
        products = BatchedProducts(self._blas)
        self._thresholds = CudaThresholds(self.shape, self.precision, self.svt, parts, products, module)

    def close(self) -> None:
        if self._thresholds is not None:
            self._thresholds.close()
        if self._blas is not None:
            self._blas.close()
        self._thresholds = self._blas = None

    def transform(self, stream: AbstractStream, basis: Tile, panel: Tile, out: Tile, *, inverse: bool = False) -> None:
        check_transform(self, basis, panel, out, inverse=inverse)
        for at in range(0, panel.shape[1], self._step):
            columns = slice(at, min(at + self._step, panel.shape[1]))
            self._multiply(stream, basis, panel[:, columns], out[:, columns], inverse=inverse)

    def fill(
        self, stream: AbstractStream, z: Tile, observed: Tile, mask: Tile, x: Tile, sums: Tile, *, momentum: float = 0.0
    ) -> None:
        rows, width = check_fill(self, {"z": z, "observed": observed, "x": x}, mask, sums, momentum)
        by_entry = mask.ndim == 2
        on = cupy_stream(stream)
        given = (*_panel(z), *_panel(observed), _at(mask), np.int64(mask.strides[0]), np.int32(by_entry), *_panel(x))
        more = (np.int32(rows), np.int32(width), self.precision.compute.type(momentum), _at(self._squares))
        self._fill((rows,), (LANES,), (*given, *more), stream=on)
        self._add_up((2,), (LANES,), (_at(self._squares), np.int64(rows), np.int32(0), _at(sums)), stream=on)

    def threshold_in_turns(
        self,
        stream: AbstractStream,
        slices: Slices,
        lam: float,
        ranks: Tile,
        flags: Tile,
        *,
        basis: Tile | None = None,
        shrinkage: Shrinkage = "soft",
        joined: Sequence[range] = (),
        across: bool = False,
    ) -> Turns:
        counts = {"ranks": ranks, "flags": flags}
        check_threshold(self, slices, lam, counts, basis, shrinkage=shrinkage, joined=joined, across=across)
        rule = Rule(lam, shrinkage)
        assert self._thresholds is not None  # bound
        for start, stop in pairwise((0, *group_ends(len(slices), self.group, joined))):
            part = slice(start, stop)
            warm = None if basis is None else basis[part]
            how = runs_within(joined, part), across
            yield from self._thresholds.lower(stream, slices[part], rule, ranks[part], flags[part], warm, *how)

    def norms_in_turns(self, stream: AbstractStream, slices: Slices, out: Tile, *, joined: Sequence[range] = ()) -> Turns:
        check_norms(self, slices, out)
        check_joined(self, len(slices), joined)
        assert self._thresholds is not None  # bound
        for start, stop in pairwise((0, *group_ends(len(slices), self.group, joined))):
            part = slice(start, stop)
            yield from self._thresholds.norms(stream, slices[part], out[part], runs_within(joined, part))

    def _multiply(self, stream: AbstractStream, basis: Tile, panel: Tile, out: Tile, *, inverse: bool) -> None:
        """One product; cuBLAS sees panels of one width and alignment always in the same way: packed, or as if they were."""
        width = panel.shape[1]
        stride = tensor_sizes.padded(width)
        assert self._blas is not None  # bound
        with cupy_stream(stream):
            given, made = panel, out
            if not self._is_packed(panel, stride):
                given = _part(self._workspace, self._panels["packed"], len(panel), stride)
                cp.copyto(given[:, :width], panel)
            if not self._is_packed(out, stride):
                made = _part(self._workspace, self._panels["product"], len(out), stride)
            gemm = cublas.sgemm if self.precision.compute == np.float32 else cublas.dgemm
            one = self._scalars.ctypes.data
            # Row-major: out.T = panel.T @ op(basis).T, with basis.T as cuBLAS sees it.
            gemm(
                self._blas.of(stream), _AS_IT_IS, _AS_IT_IS if inverse else _TRANSPOSED, width, len(out), len(panel), one,
                _at(given), stride, _at(basis), basis.shape[1], one + self._scalars.itemsize, _at(made), stride,
            )  # fmt: skip
            if made is not out:
                cp.copyto(out, made[:, :width])

    def _is_packed(self, panel: Tile, stride: int) -> bool:
        """Tell whether a panel lies as a packed one does."""
        is_typed = panel.dtype == self.precision.compute and panel.shape[1] == stride
        return bool(is_typed and panel.flags.c_contiguous and _at(panel) % tensor_sizes.ALIGNMENT == 0)


def _view(workspace: int, part: Part) -> Any:
    """An array of the workspace."""
    dtype = np.dtype(part.dtype)
    nbytes = prod(part.shape) * dtype.itemsize
    memory = cp.cuda.UnownedMemory(workspace + part.offset, nbytes, None, cp.cuda.Device().id)
    return cp.ndarray(part.shape, dtype, cp.cuda.MemoryPointer(memory, 0))


def _part(workspace: int, part: Part, rows: int, stride: int) -> Any:
    """The beginning of an array of the workspace as rows of another length."""
    return _view(workspace, part._replace(shape=(rows, stride)))


def _panel(panel: Tile) -> tuple[int, np.int64]:
    """Address, and numbers from one row to the next."""
    return _at(panel), np.int64(panel.strides[0] // panel.itemsize)


def _at(array: Tile) -> int:
    return int(array.data.ptr)
