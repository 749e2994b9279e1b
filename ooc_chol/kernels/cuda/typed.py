"""The tile kernels of a CUDA device for float32 and complex matrices: cuBLAS, and what it does not do by kernels of our own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, NoReturn, cast, final

import cupy as cp
import numpy as np
from nvmath.bindings import cublas

from ooc_chol.errors import ScheduleError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.interfaces import AbstractStorageKernels, AbstractStream, Tile
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda.batched_products import step_of
from ooc_chol.kernels.cuda.handles import BlasHandle, cupy_stream
from ooc_chol.kernels.cuda.modules import load
from ooc_chol.kernels.cuda.residues import CudaResidueKernels
from ooc_chol.kernels.cuda.solves import subtract_products
from ooc_chol.kernels.cuda.tiles import CudaFlags, cuda_flags
from ooc_chol.kernels.interfaces import (
    AbstractFlags,
    AbstractKernelSet,
    AbstractSolveKernels,
    AbstractSurvey,
    AbstractTileNorms,
    FinalTile,
)
from ooc_chol.tasks.tiling import TileGrid

_LEFT, _RIGHT, _UPPER, _NON_UNIT = 0, 1, 1, 0
_AS_IT_IS, _TRANSPOSED, _ADJOINT = range(3)
#: Order of the blocks that a kernel of our own factors, and its threads.
_BLOCK = 32
_BLOCK_THREADS = (_BLOCK, 8)
#: Kernels of ``typed.cu``, of any type and of complex ones.
_KERNELS, _COMPLEX_KERNELS = ("check_finite", "factor_block", "clear_upper"), ("check_real",)
_THREADS = 256
_MOST_BLOCKS = 4096


class _Routines(NamedTuple):
    """cuBLAS's routines of one type: SYRK of a real one, HERK of a complex one."""

    gemm: Any
    gemms: Any  #: Of several matrices
    square: Any
    trsm: Any


def _routines(dtype: np.dtype[Any]) -> _Routines:
    return {
        "float32": lambda: _Routines(cublas.sgemm, cublas.sgemm_strided_batched, cublas.ssyrk, cublas.strsm),
        "complex64": lambda: _Routines(cublas.cgemm, cublas.cgemm_strided_batched, cublas.cherk, cublas.ctrsm),
        "complex128": lambda: _Routines(cublas.zgemm, cublas.zgemm_strided_batched, cublas.zherk, cublas.ztrsm),
    }[dtype.name]()


class _TypedBlas:
    """cuBLAS on row-major arrays of one type, which it sees transposed; an adjoint is conjugated where the type is complex."""

    def __init__(self, blas: BlasHandle, dtype: np.dtype[Any]) -> None:
        self._blas, self._of = blas, _routines(dtype)
        self.adjoint = _ADJOINT if dtype.kind == "c" else _TRANSPOSED
        self._scalars = np.array([1.0, -1.0, 0.5, 0.0], dtype)
        #: Addresses of scalars on the host; where a complex type takes a real one, that is the part that comes first.
        self.one, self.minus_one, self.half, self._zero = (self._scalars.ctypes.data + dtype.itemsize * at for at in range(4))

    def subtract_product(self, stream: AbstractStream, target: _Block, left: _Block, right: _Block, inner: int) -> None:
        """``target -= left @ right.H``: column-major, ``conj(right) @ left.T``."""
        self._of.gemm(
            self._blas.of(stream), self.adjoint, _AS_IT_IS, target.columns, target.rows, inner, self.minus_one,
            right.address, right.stride, left.address, left.stride, self.one, target.address, target.stride,
        )  # fmt: skip

    def subtract_square(self, stream: AbstractStream, target: _Block, left: _Block, inner: int) -> None:
        """``target -= left @ left.H``, lower triangle only; a complex diagonal becomes real."""
        self._of.square(
            self._blas.of(stream), _UPPER, self.adjoint, target.rows, inner, self.minus_one, left.address, left.stride,
            self.one, target.address, target.stride,
        )  # fmt: skip

    def solve(self, stream: AbstractStream, l_kk: _Block, a_ik: _Block) -> None:
        """``a_ik = a_ik @ inv(l_kk).H``: column-major, with U = l_kk.T, ``inv(U.H) @ a_ik.T``."""
        self._of.trsm(
            self._blas.of(stream), _LEFT, _UPPER, self.adjoint, _NON_UNIT, a_ik.columns, a_ik.rows, self.one,
            l_kk.address, l_kk.stride, a_ik.address, a_ik.stride,
        )  # fmt: skip

    def substitute(self, stream: AbstractStream, l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
        """``x_k = inv(l_kk) @ x_k``, or with its adjoint: ``x_k.T @ inv(U)``, or with ``inv(U.H)``."""
        rows, columns = x_k.shape
        how = self.adjoint if transposed else _AS_IT_IS
        self._of.trsm(
            self._blas.of(stream), _RIGHT, _UPPER, how, _NON_UNIT, columns, rows, self.one, l_kk.data.ptr, rows,
            x_k.data.ptr, columns,
        )  # fmt: skip

    def add(self, stream: AbstractStream, target: Tile, left: Tile, x: Tile, *, scale: int, transposed: bool) -> None:
        """``target += scale left @ x``, or with the adjoint of ``left``: ``target.T += scale x.T @ op(left.T)``."""
        rows, columns = target.shape
        how = self.adjoint if transposed else _AS_IT_IS
        self._of.gemm(
            self._blas.of(stream), _AS_IT_IS, how, columns, rows, x.shape[0], scale, x.data.ptr, columns,
            left.data.ptr, left.shape[1], self.one, target.data.ptr, columns,
        )  # fmt: skip

    def multiply_each(self, stream: AbstractStream, out: Tile, tiles: Tile, x: Tile, *, transposed: bool) -> None:
        """``out[t] = tiles[t] @ x[t]``, or with the adjoint of each tile."""
        count, rows, columns = out.shape
        how = self.adjoint if transposed else _AS_IT_IS
        self._of.gemms(
            self._blas.of(stream), _AS_IT_IS, how, columns, rows, x.shape[-2], self.one, x.data.ptr, columns, step_of(x),
            tiles.data.ptr, tiles.shape[2], step_of(tiles), self._zero, out.data.ptr, columns, rows * columns, count,
        )  # fmt: skip


class _Block(NamedTuple):
    """A row-major block on the device: address of its first entry, entries from one row to the next, and its shape."""

    address: int
    stride: int
    rows: int
    columns: int
    itemsize: int

    def part(self, rows: range, columns: range) -> _Block:
        """Some rows and columns of it."""
        first = self.address + self.itemsize * (rows.start * self.stride + columns.start)
        return _Block(first, self.stride, len(rows), len(columns), self.itemsize)


def _block(tile: Tile) -> _Block:
    """A whole tile as a block."""
    rows, columns = tile.shape
    return _Block(tile.data.ptr, columns, rows, columns, tile.itemsize)


@final
class TypedCudaKernels(AbstractKernelSet, AbstractStorageKernels):
    """Tile kernels of one CUDA device for one type other than float64.

    cuBLAS's GEMM, SYRK or HERK, and TRSM; POTRF halves a tile down to blocks of order 32, which a kernel of our own factors.
    Mixed precision is float64's: what it needs is not here.
    """

    def __init__(self, fmt: PrecisionFormat, residues: CudaResidueKernels | None = None) -> None:
        self._dtype = fmt.dtype
        self.residues: CudaResidueKernels | None = residues
        self._n_streams = sizes.NATIVE_STREAMS if residues is None else sizes.RESIDUE_STREAMS
        self._device: Any = None
        self._blas = BlasHandle(())
        self._typed: _TypedBlas | None = None
        self._functions: dict[str, Any] = {}

    def workspace_bytes(self, nb: int) -> int:
        return sizes.typed_workspace_bytes(self._n_streams)

    def bind(self, nb: int, workspace: int) -> None:
        """Take a cuBLAS handle and load the kernels, on the current device, with workspace at address ``workspace``."""
        self._device, compiled = cp.cuda.Device(), load("typed.cu")
        names = [*_KERNELS, *(_COMPLEX_KERNELS if self._dtype.kind == "c" else ())]
        self._functions = {name: compiled.get_function(f"{name}_{self._dtype.name}") for name in names}
        step, first = sizes.CUBLAS_WORKSPACE_BYTES, -(-workspace // sizes.CUBLAS_ALIGNMENT) * sizes.CUBLAS_ALIGNMENT
        self._blas = BlasHandle([first + number * step for number in range(self._n_streams)])
        self._typed = _TypedBlas(self._blas, self._dtype)
        if self.residues is not None:
            self.residues.bind(self._blas)

    def close(self) -> None:
        if self.residues is not None:
            self.residues.close()
        self._blas.close()

    def potrf(self, stream: AbstractStream, a_kk: Tile, flags: AbstractFlags, k: int) -> None:
        self._factor(stream, _block(a_kk), 0, cuda_flags(flags).first_bad(k))
        self._launch("clear_upper", stream, a_kk.size, (a_kk.data.ptr, np.int32(len(a_kk))))

    def _factor(self, stream: AbstractStream, a_kk: _Block, first: int, first_bad: int) -> None:
        """Factor a block on the diagonal, whose first row is the tile's row ``first``, by halves of whole small blocks."""
        n, blas = a_kk.rows, self._bound()
        if n <= _BLOCK:
            arguments = (a_kk.address, np.int64(a_kk.stride), np.int32(n), np.int32(first), first_bad)
            self._functions["factor_block"]((1,), _BLOCK_THREADS, arguments, stream=cupy_stream(stream))
            return
        half = -(-n // (2 * _BLOCK)) * _BLOCK
        above, below = range(half), range(half, n)
        self._factor(stream, a_kk.part(above, above), first, first_bad)
        left = a_kk.part(below, above)
        blas.solve(stream, a_kk.part(above, above), left)
        blas.subtract_square(stream, a_kk.part(below, below), left, half)
        self._factor(stream, a_kk.part(below, below), first + half, first_bad)

    def trsm(self, stream: AbstractStream, l_kk: Tile, a_ik: Tile, k: int) -> None:
        self._bound().solve(stream, _block(l_kk), _block(a_ik))

    def syrk(self, stream: AbstractStream, a_ii: Tile, l_ik: Tile, *, k0: int) -> None:
        """``A[i, i] -= L[i, k] @ L[i, k].H``, lower triangle only, K in segments."""
        left, rows = _block(l_ik), range(len(l_ik))
        for offset, length in sizes.k_segments(k0, l_ik.shape[1]):
            part = left.part(rows, range(offset, offset + length))
            self._bound().subtract_square(stream, _block(a_ii), part, length)

    def gemm(self, stream: AbstractStream, a_ij: Tile, l_ik: Tile, l_jk: Tile, *, k0: int) -> None:
        """``A[i, j] -= L[i, k] @ L[j, k].H``, K in segments."""
        left, right = _block(l_ik), _block(l_jk)
        for offset, length in sizes.k_segments(k0, l_ik.shape[1]):
            columns = range(offset, offset + length)
            parts = left.part(range(left.rows), columns), right.part(range(right.rows), columns)
            self._bound().subtract_product(stream, _block(a_ij), *parts, length)

    def check_finite(self, stream: AbstractStream, a_ij: Tile, lower: bool, flags: AbstractFlags, packed: int) -> None:
        rows, cols = a_ij.shape
        arguments = (a_ij.data.ptr, np.int32(rows), np.int32(cols), np.int32(lower), cuda_flags(flags).entry(packed))
        self._launch("check_finite", stream, a_ij.size, arguments)

    def check_real_diagonal(self, stream: AbstractStream, a_kk: Tile, share: float, flags: AbstractFlags, k: int) -> None:
        real = np.float32 if self._dtype.itemsize == 8 else np.float64
        arguments = (a_kk.data.ptr, np.int32(len(a_kk)), real(share), cuda_flags(flags).not_real(k))
        self._launch("check_real", stream, len(a_kk), arguments)

    def create_flags(self, nt: int) -> CudaFlags:
        with self._bound_device():
            return CudaFlags(nt)

    def create_solves(self) -> TypedCudaSolves:
        return TypedCudaSolves(self._blas, self._bound())

    def create_norms(self, n_tiles: int) -> AbstractTileNorms:
        self._refuse()

    def create_survey(self, grid: TileGrid, step: int | None) -> AbstractSurvey:
        self._refuse()

    def finish(
        self, stream: AbstractStream, l_ij: Tile, fmt: PrecisionFormat, norms: AbstractTileNorms, index: FinalTile
    ) -> None:
        self._refuse()

    def encode(
        self, stream: AbstractStream, tile: Tile, fmt: PrecisionFormat, address: int, *, largest: int | None = None
    ) -> None:
        self._refuse()

    def widen(self, stream: AbstractStream, address: int, fmt: PrecisionFormat, tile: Tile) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        """Raise for what only mixed precision asks for, which a plan of this type never has."""
        raise ScheduleError(f"the device was opened with kernels for {self._dtype}, which know no other formats")

    def _bound(self) -> _TypedBlas:
        assert self._typed is not None  # the device binds its kernels before it hands them out
        return self._typed

    def _bound_device(self) -> AbstractContextManager[object]:
        """The device, current for the time of a ``with`` block."""
        assert self._device is not None  # as the handle
        return cast(AbstractContextManager[object], self._device)

    def _launch(self, name: str, stream: AbstractStream, entries: int, arguments: tuple[Any, ...]) -> None:
        """Enqueue a kernel whose threads take entries a grid apart."""
        blocks = min(_MOST_BLOCKS, -(-entries // _THREADS))
        self._functions[name]((blocks,), (_THREADS,), arguments, stream=cupy_stream(stream))


@final
class TypedCudaSolves(AbstractSolveKernels):
    """Solves on CuPy arrays of one type other than float64, by cuBLAS."""

    def __init__(self, blas: BlasHandle, typed: _TypedBlas) -> None:
        self._blas, self._typed = blas, typed

    def lend(self, stream: AbstractStream, workspace: Tile) -> None:
        self._blas.lend(stream, int(workspace.data.ptr))

    def substitute(self, stream: AbstractStream, l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
        self._typed.substitute(stream, l_kk, x_k, transposed=transposed)

    def subtract(self, stream: AbstractStream, target: Tile, l_ij: Tile, x: Tile, *, transposed: bool) -> None:
        self._typed.add(stream, target, l_ij, x, scale=self._typed.minus_one, transposed=transposed)

    def multiply_each(self, stream: AbstractStream, out: Tile, tiles: Tile, x: Tile, *, transposed: bool) -> None:
        self._typed.multiply_each(stream, out, tiles, x, transposed=transposed)

    def subtract_products(self, stream: AbstractStream, targets: Tile, products: Tile, which: Sequence[int]) -> None:
        subtract_products(stream, targets, products, which)

    def add_product(
        self, stream: AbstractStream, target: Tile, d: Tile, x: Tile, *, transposed: bool = False, halved: bool = False
    ) -> None:
        scale = self._typed.half if halved else self._typed.one
        self._typed.add(stream, target, d, x, scale=scale, transposed=transposed)

    def inner(self, stream: AbstractStream, a: Tile, b: Tile, out: Tile) -> None:
        _refuse_sums()

    def form(self, stream: AbstractStream, vectors: tuple[Tile, Tile], d: Tile, scratch: Tile, out: Tile) -> None:
        _refuse_sums()

    def add_column_squares(self, stream: AbstractStream, x: Tile, out: Tile) -> None:
        _refuse_sums()


def _refuse_sums() -> NoReturn:
    """Raise for what only sums over the inverse ask for, which factors of these types refuse."""
    raise ScheduleError("sums over the inverse are of float64 alone; the factor should have refused them")
