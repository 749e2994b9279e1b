"""The tile kernels of a CUDA device: cuBLAS through nvmath-python, and kernels of our own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublas

from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.cuda import device_memory, wait_for_device
from ooc_chol.interfaces import AbstractStorageKernels, AbstractStream, Tile
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda.formats import CudaNorms, FormatKernels
from ooc_chol.kernels.cuda.handles import BlasHandle, cupy_stream
from ooc_chol.kernels.cuda.inverses import InvertedBlocks
from ooc_chol.kernels.cuda.launches import Kernel
from ooc_chol.kernels.cuda.modules import load
from ooc_chol.kernels.cuda.residues import CudaResidueKernels
from ooc_chol.kernels.cuda.solves import CudaSolveKernels
from ooc_chol.kernels.cuda.survey import CudaSurvey
from ooc_chol.kernels.cuda.triangular import TriangularKernels
from ooc_chol.kernels.interfaces import AbstractFlags, AbstractKernelSet, AbstractTileNorms, FinalTile
from ooc_chol.tasks.tiling import TileGrid

_TRANSPOSE, _NO_TRANSPOSE = 1, 0
_SCALARS = np.array([1.0, -1.0])
#: Addresses of cuBLAS's scalars on the host.
_ONE, _MINUS_ONE = (_SCALARS.ctypes.data + 8 * at for at in range(2))
_NO_POSITION = np.iinfo(np.uint64).max
_NO_PIVOT = np.iinfo(np.int32).max
_THREADS = 256
_MOST_BLOCKS = 4096


@final
class CudaFlags(AbstractFlags):
    """Failures met by the kernels of one device, with a page-locked mirror on the host."""

    def __init__(self, nt: int) -> None:
        n_tiles = nt * (nt + 1) // 2
        size = 8 * n_tiles + 8 * nt
        self._memory = cp.cuda.alloc_pinned_memory(size)
        mirror: NDArray[np.uint8] = np.frombuffer(self._memory, dtype=np.uint8, count=size)
        self._entry_mirror: NDArray[np.uint64] = mirror[: 8 * n_tiles].view(np.uint64)
        self._pivot_mirror: NDArray[np.int32] = mirror[8 * n_tiles : 8 * n_tiles + 4 * nt].view(np.int32)
        self._not_real_mirror: NDArray[np.int32] = mirror[8 * n_tiles + 4 * nt :].view(np.int32)
        self._entry_mirror[:] = _NO_POSITION
        self._pivot_mirror[:] = self._not_real_mirror[:] = _NO_PIVOT
        self._device = cp.cuda.MemoryPointer(device_memory(size), 0)
        self._device.copy_from_host(mirror.ctypes.data, size)
        self._mirror, self._size = mirror, size
        self._pivot_offset, self._not_real_offset = 8 * n_tiles, 8 * n_tiles + 4 * nt

    def entry(self, packed: int) -> int:
        """Device address of the flag of tile ``packed``."""
        return int(self._device.ptr) + 8 * packed

    def first_bad(self, k: int) -> int:
        """Device address of the place, from 1 on, of the first failed pivot of column ``k``."""
        return int(self._device.ptr) + self._pivot_offset + 4 * k

    def not_real(self, k: int) -> int:
        """Device address of the first row of tile ``(k, k)``, from 0 on, whose diagonal entry of A is not real."""
        return int(self._device.ptr) + self._not_real_offset + 4 * k

    def copy_back(self, stream: AbstractStream) -> None:
        self._device_to_mirror(cupy_stream(stream))

    def _device_to_mirror(self, stream: Any) -> None:
        cp.cuda.runtime.memcpyAsync(
            self._mirror.ctypes.data, self._device.ptr, self._size, cp.cuda.runtime.memcpyDeviceToHost, stream.ptr
        )

    def nonfinite(self) -> tuple[int, int] | None:
        bad = np.flatnonzero(self._entry_mirror != _NO_POSITION)
        return (int(bad[0]), int(self._entry_mirror[bad[0]])) if bad.size else None

    def failed_pivot(self) -> tuple[int, int] | None:
        failed = np.flatnonzero(self._pivot_mirror != _NO_PIVOT)
        return (int(failed[0]), int(self._pivot_mirror[failed[0]])) if failed.size else None

    def imaginary(self) -> tuple[int, int] | None:
        found = np.flatnonzero(self._not_real_mirror != _NO_PIVOT)
        return (int(found[0]), int(self._not_real_mirror[found[0]])) if found.size else None


class _Block(NamedTuple):
    """A row-major block on the device: address of its first entry, and entries from one row to the next."""

    address: int
    stride: int

    def at(self, row: int, col: int) -> _Block:
        """The block that starts ``row`` rows further down and ``col`` columns further right."""
        return _Block(self.address + 8 * (row * self.stride + col), self.stride)


@final
class CudaKernels(AbstractKernelSet, AbstractStorageKernels):
    """FP64 tile kernels of one CUDA device.

    :meth:`bind` gives it its workspace once the device has allocated it; flags, norms and surveys are made after that.

    TRSM multiplies by inverted diagonal blocks and refines once, ``X += (C - X L_bb.T) inv(L_bb).T``: without the refinement the
    residual of ill-conditioned matrices grows by two orders.
    """

    def __init__(self, residues: CudaResidueKernels | None = None) -> None:
        self.residues: CudaResidueKernels | None = residues
        self._n_streams = sizes.NATIVE_STREAMS if residues is None else sizes.RESIDUE_STREAMS
        self._device: Any = None
        self._blas = BlasHandle(())
        self._check_finite: Kernel | None = None
        self._workspace = 0
        self._triangular: TriangularKernels | None = None
        self._inverses: InvertedBlocks | None = None
        self._formats: FormatKernels | None = None

    def workspace_bytes(self, nb: int) -> int:
        return sizes.workspace_bytes(nb, self._n_streams)

    def bind(self, nb: int, workspace: int) -> None:
        """Create the cuBLAS handle and load the kernels, on the current device, with workspace at address ``workspace``."""
        self._device = cp.cuda.Device()
        self._workspace = workspace
        self._check_finite = Kernel(load("tiles.cu").get_function("check_finite"), "qiiiq", (_THREADS,))
        self._blas = BlasHandle([self._of_stream(number) for number in range(self._n_streams)])
        for number in range(self._n_streams):
            cp.cuda.runtime.memset(self._of_potrf(number), 0, sizes.potrf_workspace_bytes())  # its counters start at zero
        wait_for_device()  # the streams of a run do not wait for the default stream
        self._triangular = TriangularKernels()
        inverses, is_planned = self._of_stream(self._n_streams), self.residues is not None
        self._inverses = InvertedBlocks(self._triangular.invert, nb, inverses, reuse_is_planned=is_planned)
        if self.residues is not None:
            self.residues.bind(self._blas)

    def _of_stream(self, number: int) -> int:
        """Address of the workspace of one stream, cuBLAS's first; that behind all of them holds the inverses."""
        return self._workspace + number * sizes.stream_bytes()

    def _of_potrf(self, number: int) -> int:
        """Device address of POTRF's part of the workspace of one stream."""
        return self._of_stream(number) + sizes.CUBLAS_WORKSPACE_BYTES

    def close(self) -> None:
        """Destroy the handle, and let go of what lies beside the workspace; a second call does nothing."""
        if self.residues is not None:
            self.residues.close()
        self._blas.close()
        self._formats = None

    def potrf(self, stream: AbstractStream, a_kk: Tile, flags: AbstractFlags, k: int) -> None:
        workspace, first_bad = self._of_potrf(self._blas.number(stream)), cuda_flags(flags).first_bad(k)
        self._bound_triangular().potrf(stream, a_kk, workspace, first_bad)

    def prepare_trsm(self, stream: AbstractStream, l_kk: Tile, k: int) -> None:
        """Invert the diagonal blocks of ``L[k, k]``, for the TRSMs of column ``k`` on any stream."""
        self._kept_inverses().of(stream, l_kk, k)

    def trsm(self, stream: AbstractStream, l_kk: Tile, a_ik: Tile, k: int) -> None:
        """``A[i, k] = A[i, k] @ inv(L[k, k]).T``, block column by block column, each refined once."""
        inverses = self._kept_inverses()
        self._bound_triangular().trsm(stream, l_kk, a_ik, inverses.of(stream, l_kk, k))
        inverses.used(stream, k)

    def syrk(self, stream: AbstractStream, a_ii: Tile, l_ik: Tile, *, k0: int) -> None:
        """``A[i, i] -= L[i, k] @ L[i, k].T`` by rows of sub-blocks, each up to and including its diagonal one."""
        n, inner = l_ik.shape
        part = -(-n // sizes.SYRK_PARTS)
        left, target = _block(l_ik), _block(a_ii)
        for r0 in range(0, n, part):
            rows = min(part, n - r0)
            self._update(stream, (rows, r0 + rows), target.at(r0, 0), left.at(r0, 0), left, range(k0, k0 + inner))

    def gemm(self, stream: AbstractStream, a_ij: Tile, l_ik: Tile, l_jk: Tile, *, k0: int) -> None:
        self._update(stream, a_ij.shape, _block(a_ij), _block(l_ik), _block(l_jk), range(k0, k0 + l_ik.shape[1]))

    def check_finite(self, stream: AbstractStream, a_ij: Tile, lower: bool, flags: AbstractFlags, packed: int) -> None:
        rows, cols = a_ij.shape
        assert self._check_finite is not None  # as the triangular kernels
        blocks = min(_MOST_BLOCKS, -(-a_ij.size // _THREADS))  # each takes entries a grid apart
        self._check_finite(
            cupy_stream(stream).ptr, (blocks, 1), a_ij.data.ptr, rows, cols, lower, cuda_flags(flags).entry(packed)
        )

    def create_flags(self, nt: int) -> CudaFlags:
        with self._bound_device():
            return CudaFlags(nt)

    def create_norms(self, n_tiles: int) -> CudaNorms:
        self._bound_formats()  # they fill the norms, and are compiled before the run
        with self._bound_device():
            return CudaNorms(n_tiles)

    def create_survey(self, grid: TileGrid, step: int | None) -> CudaSurvey:
        with self._bound_device():
            return CudaSurvey(self._bound_formats(), grid, step)

    def create_solves(self) -> CudaSolveKernels:
        with self._bound_device():
            return CudaSolveKernels(self._blas)

    def finish(
        self, stream: AbstractStream, l_ij: Tile, fmt: PrecisionFormat, norms: AbstractTileNorms, index: FinalTile
    ) -> None:
        self._bound_formats().finish(stream, l_ij, fmt, norms, index)

    def encode(
        self, stream: AbstractStream, tile: Tile, fmt: PrecisionFormat, address: int, *, largest: int | None = None
    ) -> None:
        self._bound_formats().encode(stream, tile, fmt, address, largest=largest)

    def widen(self, stream: AbstractStream, address: int, fmt: PrecisionFormat, tile: Tile) -> None:
        self._bound_formats().widen(stream, address, fmt, tile)

    def _bound_device(self) -> AbstractContextManager[object]:
        """The device, current for the time of a ``with`` block."""
        assert self._device is not None  # as the triangular kernels
        return cast(AbstractContextManager[object], self._device)

    def _bound_formats(self) -> FormatKernels:
        """The kernels of formats, loaded at their first use: a factorization in FP64 has none."""
        if self._formats is None:
            with self._bound_device():
                self._formats = FormatKernels()
        return self._formats

    def _bound_triangular(self) -> TriangularKernels:
        assert self._triangular is not None  # the device binds its kernels before it hands them out
        return self._triangular

    def _kept_inverses(self) -> InvertedBlocks:
        assert self._inverses is not None
        return self._inverses

    def _update(
        self, stream: AbstractStream, shape: tuple[int, int], target: _Block, left: _Block, right: _Block, columns: range
    ) -> None:
        """``target -= left @ right.T``, K being the matrix columns ``columns``, in segments."""
        handle = self._blas.of(stream)
        for offset, length in sizes.k_segments(columns.start, len(columns)):
            _subtract_product(handle, (*shape, length), left.at(0, offset), right.at(0, offset), target)


def _block(tile: Tile) -> _Block:
    """A whole tile as a block."""
    return _Block(tile.data.ptr, tile.shape[1])


def _subtract_product(handle: int, shape: tuple[int, int, int], left: _Block, right: _Block, target: _Block) -> None:
    """``target -= left @ right.T``, rows x columns x K in ``shape``: column-major, ``right @ left.T``."""
    rows, cols, inner = shape
    cublas.dgemm(
        handle, _TRANSPOSE, _NO_TRANSPOSE, cols, rows, inner, _MINUS_ONE, right.address, right.stride,
        left.address, left.stride, _ONE, target.address, target.stride,
    )  # fmt: skip


def cuda_flags(flags: AbstractFlags) -> CudaFlags:
    """Refuse flags of another kind of device."""
    if not isinstance(flags, CudaFlags):
        raise TypeError(f"CUDA kernels set CudaFlags, not {type(flags).__name__}; create the flags with CUDA kernels")
    return flags
