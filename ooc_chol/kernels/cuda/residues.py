"""The residue kernels of a CUDA device: :mod:`.residue_units` multiplies; kernels of our own convert, fold and reconstruct."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublas

from ooc_chol.config import whole_pages
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.cuda import device_memory, wait_for_device
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.handles import BlasHandle, cupy_stream
from ooc_chol.kernels.cuda.launches import Kernel
from ooc_chol.kernels.cuda.modules import compiled
from ooc_chol.kernels.cuda.residue_source import RECONSTRUCT_COLUMNS, THREADS, source
from ooc_chol.kernels.cuda.residue_units import residue_products
from ooc_chol.kernels.interfaces import AbstractResidueKernels
from ooc_chol.kernels.interfaces.residues import ROW_STATE_BYTES, AbstractResidueProducts, ResidueUnits
from ooc_chol.precision.moduli import ResidueBasis

#: Rows of a grid; those beyond are taken in further rounds.
_MOST_GRID_ROWS = 65535
#: Types of the arguments of conversions, of more where numbers are real, and of reconstruction.
_CONVERT, _CONVERT_BESIDE, _RECONSTRUCT = "qqqqqiqqqqqii", "qqq", "qqqqqiiqq"
#: Kernels of every type, and those beside that products in narrower formats and stored tiles of FP64 need, with those types.
_KERNELS = {
    "diagonal": "qqiqqqq",
    "convert": _CONVERT,
    "fold": "qqqii",
    "reconstruct": _RECONSTRUCT,
    "reconstruct_folded": _RECONSTRUCT,
}
_MIXED_KERNELS = {
    "convert_fp32": _CONVERT,
    "convert_fp16": _CONVERT,
    "convert_fp8": _CONVERT,
    "subtract_narrow": "qqqqiiqq",
}
#: cuBLAS's numbers of FP16, of FP32 and of sums in FP32, and its own choice of a kernel.
_R_16F, _R_32F, _COMPUTE_32F, _DEFAULT_ALGORITHM = 2, 0, 68, -1
_TRANSPOSE, _NO_TRANSPOSE = 1, 0
_SCALARS = np.array([1.0, 0.0], dtype=np.float32)
#: Addresses of cuBLAS's scalars on the host.
_ONE, _ZERO = (_SCALARS.ctypes.data + 4 * at for at in range(2))
_NO_ROW = np.iinfo(np.uint64).max


class _Entries(NamedTuple):
    """A tile that is converted: kernel, address, entries from row to row, bytes of an entry, and address of its exponent."""

    kernel: str
    address: int
    stride: int
    itemsize: int
    behind: int


def row_state_bytes(n: int) -> int:
    """Bytes of the state of ``n`` matrix rows: the flag, limits, running sums and exponents."""
    return whole_pages(8 + ROW_STATE_BYTES * n)


@final
class CudaResidueKernels(AbstractResidueKernels):
    """Residues as CuPy arrays: int8 strips, int32 or int8 accumulators, row-major tiles of one type.

    In FP64 conversion moves ``8 + planes`` bytes an entry, reconstruction ``4 planes + 16``, folding ``8 planes``. Products round
    their orders up to multiples of 16: what lies behind the arrays must be allocated, and its sums are of no meaning.
    All results but the running sums are those of :class:`~ooc_chol.kernels.host.residues.HostResidueKernels` to the bit, by
    ``units`` of either type.
    """

    def __init__(self, moduli: int, fmt: PrecisionFormat = FP64, *, units: ResidueUnits = "int8") -> None:
        self.basis, self._fmt, self._units = ResidueBasis(moduli, fmt.is_complex), fmt, units
        self._products: AbstractResidueProducts | None = None
        self._blas: BlasHandle | None = None
        self._kernels: dict[str, Kernel] = {}
        self._device: Any = None
        self._state: Any = None
        self._flag = self._limits = self._sums = self._exponents = 0
        self._memory = cp.cuda.alloc_pinned_memory(8)
        self._mirror: NDArray[np.uint64] = np.frombuffer(self._memory, dtype=np.uint64, count=1)

    def bind(self, blas: BlasHandle) -> None:
        """Take the device's cuBLAS, and compile the kernels for the current device; once, before a run."""
        self._device = cp.cuda.Device()
        self._products = residue_products(self._units, self.basis.moduli, blas)
        module = compiled(source(self.basis, self._fmt), "--device-int128")
        beside = "" if self._fmt.is_complex else _CONVERT_BESIDE
        for name, types in {**_KERNELS, **(_MIXED_KERNELS if self._fmt == FP64 else {})}.items():
            of_kernel = types + beside if name.startswith("convert") else types
            self._kernels[name] = Kernel(module.get_function(name), of_kernel, (THREADS,))
        self._blas = blas

    def open(self, n: int) -> None:
        """Make the state, and wait for the device."""
        if self._device is None:
            raise RuntimeError("rows were given state before the kernels were bound to a device")
        with self._device:
            self._open(n)

    def _open(self, n: int) -> None:
        self._state = device_memory(row_state_bytes(n))
        self._flag = int(self._state.ptr)
        self._limits = self._flag + 8
        self._sums = self._limits + 8 * n
        self._exponents = self._sums + 8 * n
        cp.cuda.runtime.memset(self._flag, 0, row_state_bytes(n))
        cp.cuda.runtime.memset(self._flag, 0xFF, 8)
        self._mirror[0] = _NO_ROW
        wait_for_device()  # the streams of a run do not wait for the default stream

    def close(self) -> None:
        self._state = None
        if self._products is not None:
            self._products.close()
            self._products = self._blas = None

    def set_diagonal(self, stream: AbstractStream, first: int, a_bb: Tile) -> None:
        count = a_bb.shape[0]
        arguments = a_bb.data.ptr, self._stride(a_bb), count, first, self._exponents, self._limits, self._flag
        self._kernels["diagonal"](cupy_stream(stream).ptr, (-(-count // THREADS), 1), *arguments)

    def convert(
        self, stream: AbstractStream, l_ik: Tile, rows: range, out: Tile, *, is_first: bool, fp16: Tile | None = None
    ) -> None:
        entries = _Entries("convert", l_ik.data.ptr, self._stride(l_ik), self._fmt.itemsize, 0)
        self._convert(stream, entries, rows, out, fp16, is_first=is_first)

    def convert_stored(
        self,
        stream: AbstractStream,
        stored: Tile,
        fmt: PrecisionFormat,
        rows: range,
        out: Tile,
        *,
        is_first: bool,
        fp16: Tile | None = None,
    ) -> None:
        cols, address = out.shape[2], stored.data.ptr
        behind = address + fmt.scale_offset(len(rows) * cols) if fmt.top is not None else 0
        entries = _Entries(f"convert_{fmt.name}", address, cols, fmt.itemsize, behind)
        self._convert(stream, entries, rows, out, fp16, is_first=is_first)

    def _convert(
        self, stream: AbstractStream, entries: _Entries, rows: range, out: Tile, fp16: Tile | None, *, is_first: bool
    ) -> None:
        """Launch a kernel of conversion."""
        cols, (out_plane, out_row, _), out_at = out.shape[2], out.strides, out.data.ptr
        fp16_at, fp16_row = (0, 0) if fp16 is None else (fp16.data.ptr, fp16.strides[1])
        # Four entries are read at once, and of FP64 two by two; complex ones one by one.
        unit = entries.itemsize if self._fmt.is_complex else min(16, 4 * entries.itemsize)
        row_bytes = entries.itemsize * entries.stride
        is_aligned = (entries.address | row_bytes) % unit == 0 and (cols | out_at | out_row | out_plane) % 4 == 0
        is_aligned = is_aligned and (fp16_at | fp16_row) % 8 == 0
        beside = () if self._fmt.is_complex else (fp16_at, fp16_row // 2, entries.behind)
        self._kernels[entries.kernel](
            cupy_stream(stream).ptr, (len(rows), 1), entries.address, entries.stride, out_at, out_row, out_plane, cols,
            rows.start, self._exponents, self._limits, self._sums, self._flag, is_first, is_aligned, *beside,
        )  # fmt: skip

    def product(
        self, stream: AbstractStream, accumulator: Tile, left: Tile, right: Tile, *, accumulates: bool, lower: bool
    ) -> None:
        """``S (+)= left[p] @ right[p].T`` for every plane p; with ``lower``, what is above a strip's diagonal block stays."""
        if self._products is None:
            raise RuntimeError("a product was enqueued before cuBLAS was bound")
        multiply = partial(self._products.multiply, stream, accumulates=accumulates, lower=lower)
        if not self.basis.is_split:
            multiply(accumulator, left, right)
            return
        # x + w y of one number is multiplied by x - w y of the other, which is x + w y of its conjugate.
        ones, others = slice(self.basis.count), slice(self.basis.count, None)
        for these, those in ((ones, others), (others, ones)):
            multiply(accumulator[these], left[these], right[those])

    def fp16_product(self, stream: AbstractStream, accumulator: Tile, left: Tile, right: Tile, *, accumulates: bool) -> None:
        """``F (+)= left @ right.T`` on the tensor cores; what is row-major here is column-major to cuBLAS: ``right @ left.T``."""
        if self._blas is None:
            raise RuntimeError("a product was enqueued before cuBLAS was bound")
        _, rows, inner = left.shape
        cublas.gemm_ex(
            self._blas.of(stream), _TRANSPOSE, _NO_TRANSPOSE, right.shape[1], rows, inner, _ONE,
            right.data.ptr, _R_16F, right.strides[1] // 2, left.data.ptr, _R_16F, left.strides[1] // 2,
            _ONE if accumulates else _ZERO, accumulator.data.ptr, _R_32F, accumulator.strides[1] // 4,
            _COMPUTE_32F, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    def subtract_narrow(self, stream: AbstractStream, accumulator: Tile, a_ij: Tile, rows: range, cols: range) -> None:
        """Subtract in FP64."""
        grid = (-(-len(cols) // THREADS), min(len(rows), _MOST_GRID_ROWS))
        self._kernels["subtract_narrow"](
            cupy_stream(stream).ptr, grid, accumulator.data.ptr, accumulator.strides[1] // 4, a_ij.data.ptr, a_ij.strides[0] // 8,
            len(rows), len(cols), self._exponents + 4 * rows.start, self._exponents + 4 * cols.start,
        )  # fmt: skip

    def fold(self, stream: AbstractStream, accumulator: Tile) -> None:
        _, rows, cols = accumulator.shape
        grid = (-(-cols // THREADS), min(rows, _MOST_GRID_ROWS))
        self._kernels["fold"](cupy_stream(stream).ptr, grid, *_strided(accumulator), rows, cols)

    def reconstruct(self, stream: AbstractStream, accumulator: Tile, a_ij: Tile, rows: range, cols: range) -> None:
        columns = THREADS * (1 if self._fmt.is_complex else RECONSTRUCT_COLUMNS)
        grid = (-(-len(cols) // columns), min(len(rows), _MOST_GRID_ROWS))
        self._kernels["reconstruct_folded" if accumulator.dtype == np.int8 else "reconstruct"](
            cupy_stream(stream).ptr, grid, *_strided(accumulator), a_ij.data.ptr, self._stride(a_ij), len(rows), len(cols),
            self._exponents + 4 * rows.start, self._exponents + 4 * cols.start,
        )  # fmt: skip

    def copy_back(self, stream: AbstractStream) -> None:
        cp.cuda.runtime.memcpyAsync(
            self._mirror.ctypes.data, self._flag, 8, cp.cuda.runtime.memcpyDeviceToHost, cupy_stream(stream).ptr
        )

    def flagged_row(self) -> int | None:
        row = int(self._mirror[0])
        return None if row == _NO_ROW else row

    def _stride(self, tile: Tile) -> Any:
        """Entries of a tile of the matrix from one row to the next."""
        return tile.strides[0] // self._fmt.itemsize


def _strided(accumulator: Tile) -> tuple[Any, ...]:
    """Address and strides in items of an accumulator, as kernels take them."""
    plane, row, itemsize = accumulator.strides
    return accumulator.data.ptr, row // itemsize, plane // itemsize
