"""The tile kernels of a CUDA device: cuBLAS and cuSOLVER through nvmath-python, and a few kernels of our own."""

from __future__ import annotations

from collections import OrderedDict
from importlib.resources import files
from typing import Any, Protocol, cast, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublas, cusolverDn

from ooc_chol.errors import BudgetError, ScheduleError
from ooc_chol.interfaces import AbstractFlags, AbstractKernelSet, AbstractStream, Tile
from ooc_chol.kernels import cuda as sizes

_TRANSPOSE, _NO_TRANSPOSE = 1, 0
_RIGHT = 1
_FILL_UPPER = 1
_NON_UNIT = 0
_ONE, _MINUS_ONE, _ZERO = np.array(1.0), np.array(-1.0), np.array(0.0)
_NO_POSITION = np.iinfo(np.uint64).max
_NO_PIVOT = np.iinfo(np.int32).max
_THREADS = 256
_MOST_BLOCKS = 4096


class CudaStreamLike(Protocol):
    """What the kernels need of a stream of a CUDA device."""

    stream: Any


def module() -> Any:
    """The compiled kernels of ``tiles.cu``; compiled once per device and kept on disk by CuPy."""
    code = files("ooc_chol.kernels.cuda").joinpath("tiles.cu").read_text(encoding="utf-8")
    return cp.RawModule(code=code, options=("--std=c++17",))


@final
class CudaFlags(AbstractFlags):
    """Failures met by the kernels of one device, with a page-locked mirror on the host.

    Parameters
    ----------
    nt : int
        Tile columns.
    """

    def __init__(self, nt: int) -> None:
        n_tiles = nt * (nt + 1) // 2
        self._nt = nt
        size = 8 * n_tiles + 4 * 2 * nt
        self._memory = cp.cuda.alloc_pinned_memory(size)
        mirror: NDArray[np.uint8] = np.frombuffer(self._memory, dtype=np.uint8, count=size)
        self._entry_mirror: NDArray[np.uint64] = mirror[: 8 * n_tiles].view(np.uint64)
        self._pivot_mirror: NDArray[np.int32] = mirror[8 * n_tiles :].view(np.int32).reshape(2, nt)
        self._entry_mirror[:] = _NO_POSITION
        self._pivot_mirror[0], self._pivot_mirror[1] = 0, _NO_PIVOT
        self._device = cp.cuda.MemoryPointer(cp.cuda.Memory(size), 0)
        self._device.copy_from_host(mirror.ctypes.data, size)
        self._mirror, self._size = mirror, size
        self._pivot_offset = 8 * n_tiles

    def entry(self, packed: int) -> int:
        """Device address of the flag of tile ``packed``."""
        return int(self._device.ptr) + 8 * packed

    def info(self, k: int) -> int:
        """Device address of cuSOLVER's ``info`` of column ``k``."""
        return int(self._device.ptr) + self._pivot_offset + 4 * k

    def first_bad(self, k: int) -> int:
        """Device address of the first bad diagonal entry of column ``k``."""
        return self.info(self._nt + k)

    def copy_back(self, stream: AbstractStream) -> None:
        """Enqueue one copy of all flags to the host."""
        self._device_to_mirror(_cupy_stream(stream))

    def _device_to_mirror(self, stream: Any) -> None:
        cp.cuda.runtime.memcpyAsync(
            self._mirror.ctypes.data, self._device.ptr, self._size, cp.cuda.runtime.memcpyDeviceToHost, stream.ptr
        )

    def nonfinite(self) -> tuple[int, int] | None:
        """Smallest packed tile number with a non-finite entry, and its row-major position; as of the last copy."""
        bad = np.flatnonzero(self._entry_mirror != _NO_POSITION)
        return (int(bad[0]), int(self._entry_mirror[bad[0]])) if bad.size else None

    def failed_pivot(self) -> tuple[int, int] | None:
        """Smallest tile column with a failed pivot, and its place in the tile; as of the last copy."""
        info, first_bad = self._pivot_mirror
        failed = np.flatnonzero((info != 0) | (first_bad != _NO_PIVOT))
        if not failed.size:
            return None
        k = int(failed[0])
        if info[k] < 0:
            raise ScheduleError(f"cuSOLVER refused argument {-info[k]} of POTRF for tile ({k}, {k}); report this as a bug")
        return k, int(min(info[k] or _NO_PIVOT, first_bad[k]))


@final
class CudaKernels(AbstractKernelSet):
    """FP64 tile kernels of one CUDA device.

    :meth:`bind` gives it its workspace once the device has allocated it.

    Notes
    -----
    TRSM multiplies by inverted diagonal blocks and refines once, ``X += (C - X L_bb.T) inv(L_bb).T``: vendor TRSM runs at a
    third of DGEMM's rate, and without the refinement the residual of ill-conditioned matrices grows by two orders.
    """

    def __init__(self) -> None:
        self._blas = 0
        self._solver = 0
        self._module: Any = None
        self._nb = 0
        self._potrf_workspace = 0
        self._potrf_entries = 0
        self._strip = 0
        self._free_inverses: list[int] = []
        self._inverses: OrderedDict[int, int] = OrderedDict()

    def workspace_bytes(self, nb: int) -> int:
        """Bytes of all workspace at tile order ``nb``."""
        return sizes.workspace_bytes(nb)

    def bind(self, nb: int, workspace: int) -> None:
        """Create the library handles, on the current device, with explicit workspace at address ``workspace``.

        Raises
        ------
        BudgetError
            cuSOLVER asks for more workspace than was planned.
        """
        self._nb = nb
        self._blas, self._solver, self._module = cublas.create(), cusolverDn.create(), module()
        for name in ("finish_potrf", "check_finite", "identities"):
            self._module.get_function(name)  # loaded now, not during the run
        cublas.set_workspace(self._blas, workspace, sizes.CUBLAS_WORKSPACE_BYTES)
        self._potrf_workspace = workspace + sizes.CUBLAS_WORKSPACE_BYTES
        self._potrf_entries = cusolverDn.dpotrf_buffer_size(self._solver, _FILL_UPPER, nb, workspace, nb)
        if 8 * self._potrf_entries > sizes.potrf_workspace_bytes():
            advice = "plan a smaller tile_size, and report this as a bug"
            raise BudgetError("workspace of POTRF", 8 * self._potrf_entries, sizes.potrf_workspace_bytes(), advice)
        self._strip = self._potrf_workspace + sizes.potrf_workspace_bytes()
        first = self._strip + sizes.strip_bytes(nb)
        self._free_inverses = [first + number * sizes.inverse_bytes(nb) for number in range(sizes.INVERSES_KEPT)]
        self._inverses.clear()

    def close(self) -> None:
        """Destroy the handles; a second call does nothing."""
        if self._blas:
            cublas.destroy(self._blas)
            cusolverDn.destroy(self._solver)
        self._blas = self._solver = 0

    def potrf(self, stream: AbstractStream, a_kk: Tile, flags: AbstractFlags, k: int) -> None:
        """``A[k, k] -> L[k, k]``: row-major lower is column-major upper.

        cuSOLVER is 2.5 times as fast at column-major lower, but not as accurate: its residual there is three times LAPACK's.
        """
        n, cuda_flags = a_kk.shape[0], _cuda_flags(flags)
        cusolverDn.set_stream(self._solver, _cupy_stream(stream).ptr)
        cusolverDn.dpotrf(
            self._solver, _FILL_UPPER, n, a_kk.data.ptr, n, self._potrf_workspace, self._potrf_entries, cuda_flags.info(k)
        )
        self._launch("finish_potrf", stream, a_kk.size, (a_kk.data.ptr, np.int32(n), cuda_flags.first_bad(k)))

    def trsm(self, stream: AbstractStream, l_kk: Tile, a_ik: Tile, k: int) -> None:
        """``A[i, k] = A[i, k] @ inv(L[k, k]).T``, block column by block column, each refined once."""
        inverses = self._inverted_blocks(stream, l_kk, k)
        rows, nb = a_ik.shape
        block = sizes.trsm_block(self._nb)
        for number, c0 in enumerate(range(0, nb, block)):
            width = min(block, nb - c0)
            inverse = inverses + 8 * number * block * block
            column, l_bb = a_ik.data.ptr + 8 * c0, l_kk.data.ptr + 8 * (c0 * nb + c0)
            if c0:  # A[:, b] -= X[:, :b] @ L[b, :b].T
                self._gemm(
                    stream, rows, width, c0, _MINUS_ONE, a_ik.data.ptr, nb, l_kk.data.ptr + 8 * c0 * nb, nb, _ONE, column, nb
                )
            # X = C @ inv(L_bb).T; C -= X @ L_bb.T; X += C @ inv(L_bb).T
            self._gemm(stream, rows, width, width, _ONE, column, nb, inverse, block, _ZERO, self._strip, block)
            self._gemm(stream, rows, width, width, _MINUS_ONE, self._strip, block, l_bb, nb, _ONE, column, nb)
            self._gemm(stream, rows, width, width, _ONE, column, nb, inverse, block, _ONE, self._strip, block)
            _copy_2d(column, 8 * nb, self._strip, 8 * block, 8 * width, rows, stream)

    def syrk(self, stream: AbstractStream, a_ii: Tile, l_ik: Tile) -> None:
        """``A[i, i] -= L[i, k] @ L[i, k].T`` by rows of sub-blocks, each up to and including its diagonal one."""
        n, inner = l_ik.shape
        part = -(-n // sizes.SYRK_PARTS)
        for r0 in range(0, n, part):
            rows = min(part, n - r0)
            left, target = l_ik.data.ptr + 8 * r0 * inner, a_ii.data.ptr + 8 * r0 * n
            self._gemm(stream, rows, r0 + rows, inner, _MINUS_ONE, left, inner, l_ik.data.ptr, inner, _ONE, target, n)

    def gemm(self, stream: AbstractStream, a_ij: Tile, l_ik: Tile, l_jk: Tile) -> None:
        """``A[i, j] -= L[i, k] @ L[j, k].T``."""
        rows, cols = a_ij.shape
        inner = l_ik.shape[1]
        self._gemm(stream, rows, cols, inner, _MINUS_ONE, l_ik.data.ptr, inner, l_jk.data.ptr, inner, _ONE, a_ij.data.ptr, cols)

    def check_finite(self, stream: AbstractStream, a_ij: Tile, lower: bool, flags: AbstractFlags, packed: int) -> None:
        """Flag tile ``packed`` when it (with ``lower``: its lower triangle) holds a NaN or an infinity."""
        rows, cols = a_ij.shape
        arguments = (a_ij.data.ptr, np.int32(rows), np.int32(cols), np.int32(lower), _cuda_flags(flags).entry(packed))
        self._launch("check_finite", stream, a_ij.size, arguments)

    def _inverted_blocks(self, stream: AbstractStream, l_kk: Tile, k: int) -> int:
        """Address of the inverted diagonal blocks of ``L[k, k]``; made when they are not kept from an earlier call.

        All calls are enqueued on one stream, so that the kept blocks of another column are free for reuse in stream order.
        """
        if k in self._inverses:
            self._inverses.move_to_end(k)
            return self._inverses[k]
        at = self._free_inverses.pop() if self._free_inverses else self._inverses.popitem(last=False)[1]
        self._inverses[k] = at
        nb, block = l_kk.shape[0], sizes.trsm_block(self._nb)
        count = -(-nb // block)
        self._launch("identities", stream, count * block * block, (at, np.int32(block), np.int32(count)))
        cublas.set_stream(self._blas, _cupy_stream(stream).ptr)
        for number, c0 in enumerate(range(0, nb, block)):
            width = min(block, nb - c0)
            # Column-major, L_bb.T X.T = I: the row-major result is inv(L_bb).
            cublas.dtrsm(
                self._blas, _RIGHT, _FILL_UPPER, _NO_TRANSPOSE, _NON_UNIT, width, width, _ONE.ctypes.data,
                l_kk.data.ptr + 8 * (c0 * nb + c0), nb, at + 8 * number * block * block, block,
            )  # fmt: skip
        return at

    def _gemm(
        self,
        stream: AbstractStream,
        rows: int,
        cols: int,
        inner: int,
        alpha: NDArray[np.float64],
        left: int,
        left_stride: int,
        right: int,
        right_stride: int,
        beta: NDArray[np.float64],
        target: int,
        target_stride: int,
    ) -> None:
        """Row-major ``target = alpha * left @ right.T + beta * target``, K in segments: column-major, ``right @ left.T``."""
        cublas.set_stream(self._blas, _cupy_stream(stream).ptr)
        for k0 in range(0, inner, sizes.K_SEGMENT):
            length, scale = min(sizes.K_SEGMENT, inner - k0), _ONE if k0 else beta
            cublas.dgemm(
                self._blas, _TRANSPOSE, _NO_TRANSPOSE, cols, rows, length, alpha.ctypes.data,
                right + 8 * k0, right_stride, left + 8 * k0, left_stride, scale.ctypes.data, target, target_stride,
            )  # fmt: skip

    def _launch(self, name: str, stream: AbstractStream, size: int, arguments: tuple[Any, ...]) -> None:
        """Launch a grid-stride kernel over ``size`` entries."""
        blocks = min(_MOST_BLOCKS, -(-size // _THREADS))
        self._module.get_function(name)((blocks,), (_THREADS,), arguments, stream=_cupy_stream(stream))


def _cupy_stream(stream: AbstractStream) -> Any:
    """CuPy's stream of a CUDA stream; kernels may not import devices, hence the cast."""
    return cast(CudaStreamLike, stream).stream


def _cuda_flags(flags: AbstractFlags) -> CudaFlags:
    """Refuse flags of another kind of device."""
    if not isinstance(flags, CudaFlags):
        raise TypeError(f"CUDA kernels set CudaFlags, not {type(flags).__name__}; create the flags with the CUDA device")
    return flags


def _copy_2d(
    target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int, stream: AbstractStream
) -> None:
    """Copy ``rows`` rows of ``width`` bytes on the device."""
    cp.cuda.runtime.memcpy2DAsync(
        target, target_pitch, source, source_pitch, width, rows, cp.cuda.runtime.memcpyDeviceToDevice, _cupy_stream(stream).ptr
    )
