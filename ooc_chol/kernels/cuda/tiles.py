"""The tile kernels of a CUDA device: cuBLAS and cuSOLVER through nvmath-python, and a few kernels of our own."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublas, cusolverDn

from ooc_chol.errors import BudgetError, ScheduleError
from ooc_chol.interfaces import AbstractFlags, AbstractKernelSet, AbstractStream, Tile
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda.handles import BlasHandles, cupy_stream
from ooc_chol.kernels.cuda.inverses import InvertedBlocks

_TRANSPOSE, _NO_TRANSPOSE = 1, 0
_FILL_UPPER = 1
_SCALARS = np.array([1.0, -1.0, 0.0])
#: Addresses of cuBLAS's scalars on the host.
_ONE, _MINUS_ONE, _ZERO = (_SCALARS.ctypes.data + 8 * at for at in range(3))
_NO_POSITION = np.iinfo(np.uint64).max
_NO_PIVOT = np.iinfo(np.int32).max
_THREADS = 256
_MOST_BLOCKS = 4096


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
        self._device_to_mirror(cupy_stream(stream))

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


class _Block(NamedTuple):
    """A row-major block on the device: address of its first entry, and entries from one row to the next."""

    address: int
    stride: int

    def at(self, row: int, col: int) -> _Block:
        """The block that starts ``row`` rows further down and ``col`` columns further right."""
        return _Block(self.address + 8 * (row * self.stride + col), self.stride)


@final
class CudaKernels(AbstractKernelSet):
    """FP64 tile kernels of one CUDA device.

    :meth:`bind` gives it its workspace once the device has allocated it.

    Parameters
    ----------
    streams : int
        Streams that may call POTRF, TRSM, SYRK and GEMM: each gets handles and workspace of its own at its first call.

    Notes
    -----
    TRSM multiplies by inverted diagonal blocks and refines once, ``X += (C - X L_bb.T) inv(L_bb).T``: vendor TRSM runs at a
    third of DGEMM's rate, and without the refinement the residual of ill-conditioned matrices grows by two orders.
    """

    def __init__(self, streams: int = sizes.NATIVE_STREAMS) -> None:
        self._n_streams = streams
        self._handles = BlasHandles(())
        self._solvers: list[int] = []
        self._module: Any = None
        self._nb = 0
        self._potrf_entries = 0
        self._workspace = 0
        self._inverses: InvertedBlocks | None = None

    @property
    def handles(self) -> BlasHandles:
        """The cuBLAS handles of the device's streams, for kernels of other kinds."""
        return self._handles

    def workspace_bytes(self, nb: int) -> int:
        """Bytes of all workspace at tile order ``nb``."""
        return sizes.workspace_bytes(nb, self._n_streams)

    def bind(self, nb: int, workspace: int) -> None:
        """Create the library handles, on the current device, with explicit workspace at address ``workspace``.

        Raises
        ------
        BudgetError
            cuSOLVER asks for more workspace than was planned.
        """
        self._nb, self._workspace, self._module = nb, workspace, module()
        for name in ("finish_potrf", "check_finite", "identities"):
            self._module.get_function(name)  # loaded now, not during the run
        self._handles = BlasHandles([self._of_stream(number) for number in range(self._n_streams)])
        self._solvers = [cusolverDn.create() for _ in range(self._n_streams)]
        self._potrf_entries = cusolverDn.dpotrf_buffer_size(self._solvers[0], _FILL_UPPER, nb, workspace, nb)
        if 8 * self._potrf_entries > sizes.potrf_workspace_bytes():
            advice = "plan a smaller tile_size, and report this as a bug"
            raise BudgetError("workspace of POTRF", 8 * self._potrf_entries, sizes.potrf_workspace_bytes(), advice)
        self._inverses = InvertedBlocks(self._handles, self._fill_identities, nb, self._of_stream(self._n_streams))

    def _of_stream(self, number: int) -> int:
        """Address of the workspace of one stream, cuBLAS's first; that behind all of them holds the inverses."""
        return self._workspace + number * sizes.stream_bytes(self._nb)

    def close(self) -> None:
        """Destroy the handles; a second call does nothing."""
        self._handles.close()
        while self._solvers:
            cusolverDn.destroy(self._solvers.pop())

    def potrf(self, stream: AbstractStream, a_kk: Tile, flags: AbstractFlags, k: int) -> None:
        """``A[k, k] -> L[k, k]``: row-major lower is column-major upper.

        cuSOLVER is 2.5 times as fast at column-major lower, but not as accurate: its residual there is three times LAPACK's.
        """
        n, cuda_flags = a_kk.shape[0], _cuda_flags(flags)
        number, _ = self._handles.of(stream)
        solver, buffer = self._solvers[number], self._of_stream(number) + sizes.CUBLAS_WORKSPACE_BYTES
        cusolverDn.set_stream(solver, cupy_stream(stream).ptr)
        cusolverDn.dpotrf(solver, _FILL_UPPER, n, a_kk.data.ptr, n, buffer, self._potrf_entries, cuda_flags.info(k))
        self._launch("finish_potrf", stream, a_kk.size, (a_kk.data.ptr, np.int32(n), cuda_flags.first_bad(k)))

    def prepare_trsm(self, stream: AbstractStream, l_kk: Tile, k: int) -> None:
        """Invert the diagonal blocks of ``L[k, k]``, for the TRSMs of column ``k`` on any stream."""
        self._kept_inverses().of(stream, l_kk, k)

    def trsm(self, stream: AbstractStream, l_kk: Tile, a_ik: Tile, k: int) -> None:
        """``A[i, k] = A[i, k] @ inv(L[k, k]).T``, block column by block column, each refined once."""
        inverses, block = self._kept_inverses().of(stream, l_kk, k), sizes.trsm_block(self._nb)
        number, handle = self._handles.of(stream)
        rows, nb = a_ik.shape
        x, l_block = _block(a_ik), _block(l_kk)
        strip = _Block(self._of_stream(number) + sizes.CUBLAS_WORKSPACE_BYTES + sizes.potrf_workspace_bytes(), block)
        for c0 in range(0, nb, block):
            width = min(block, nb - c0)
            shape, column, l_bb = (rows, width, width), x.at(0, c0), l_block.at(c0, c0)
            inverse = _Block(inverses + 8 * c0 * block, block)
            # A[:, b] -= X[:, :b] @ L[b, :b].T
            self._update(stream, (rows, width), column, x, l_block.at(c0, 0), range(k * self._nb, k * self._nb + c0))
            # X = C @ inv(L_bb).T; C -= X @ L_bb.T; X += C @ inv(L_bb).T
            _multiply(handle, shape, column, inverse, strip, alpha=_ONE, beta=_ZERO)
            _multiply(handle, shape, strip, l_bb, column, alpha=_MINUS_ONE, beta=_ONE)
            _multiply(handle, shape, column, inverse, strip, alpha=_ONE, beta=_ONE)
            _copy_2d(column, strip, 8 * width, rows, stream)
        self._kept_inverses().used(stream, k)

    def syrk(self, stream: AbstractStream, a_ii: Tile, l_ik: Tile, *, k0: int) -> None:
        """``A[i, i] -= L[i, k] @ L[i, k].T`` by rows of sub-blocks, each up to and including its diagonal one."""
        n, inner = l_ik.shape
        part = -(-n // sizes.SYRK_PARTS)
        left, target = _block(l_ik), _block(a_ii)
        for r0 in range(0, n, part):
            rows = min(part, n - r0)
            self._update(stream, (rows, r0 + rows), target.at(r0, 0), left.at(r0, 0), left, range(k0, k0 + inner))

    def gemm(self, stream: AbstractStream, a_ij: Tile, l_ik: Tile, l_jk: Tile, *, k0: int) -> None:
        """``A[i, j] -= L[i, k] @ L[j, k].T``."""
        self._update(stream, a_ij.shape, _block(a_ij), _block(l_ik), _block(l_jk), range(k0, k0 + l_ik.shape[1]))

    def check_finite(self, stream: AbstractStream, a_ij: Tile, lower: bool, flags: AbstractFlags, packed: int) -> None:
        """Flag tile ``packed`` when it (with ``lower``: its lower triangle) holds a NaN or an infinity."""
        rows, cols = a_ij.shape
        arguments = (a_ij.data.ptr, np.int32(rows), np.int32(cols), np.int32(lower), _cuda_flags(flags).entry(packed))
        self._launch("check_finite", stream, a_ij.size, arguments)

    def _kept_inverses(self) -> InvertedBlocks:
        assert self._inverses is not None  # the device binds its kernels before it hands them out
        return self._inverses

    def _fill_identities(self, stream: AbstractStream, address: int, block: int, count: int) -> None:
        """``count`` identities of order ``block``, one behind the other."""
        self._launch("identities", stream, count * block * block, (address, np.int32(block), np.int32(count)))

    def _update(
        self, stream: AbstractStream, shape: tuple[int, int], target: _Block, left: _Block, right: _Block, columns: range
    ) -> None:
        """``target -= left @ right.T``, K being the matrix columns ``columns``, in segments."""
        _, handle = self._handles.of(stream)
        for offset, length in sizes.k_segments(columns.start, len(columns)):
            _multiply(handle, (*shape, length), left.at(0, offset), right.at(0, offset), target, alpha=_MINUS_ONE, beta=_ONE)

    def _launch(self, name: str, stream: AbstractStream, size: int, arguments: tuple[Any, ...]) -> None:
        """Launch a grid-stride kernel over ``size`` entries."""
        blocks = min(_MOST_BLOCKS, -(-size // _THREADS))
        self._module.get_function(name)((blocks,), (_THREADS,), arguments, stream=cupy_stream(stream))


def _block(tile: Tile) -> _Block:
    """A whole tile as a block."""
    return _Block(tile.data.ptr, tile.shape[1])


def _multiply(
    handle: int,
    shape: tuple[int, int, int],
    left: _Block,
    right: _Block,
    target: _Block,
    *,
    alpha: int,
    beta: int,
) -> None:
    """``target = alpha * left @ right.T + beta * target``, rows x columns x K in ``shape``: column-major, ``right @ left.T``."""
    rows, cols, inner = shape
    cublas.dgemm(
        handle, _TRANSPOSE, _NO_TRANSPOSE, cols, rows, inner, alpha, right.address, right.stride,
        left.address, left.stride, beta, target.address, target.stride,
    )  # fmt: skip


def _cuda_flags(flags: AbstractFlags) -> CudaFlags:
    """Refuse flags of another kind of device."""
    if not isinstance(flags, CudaFlags):
        raise TypeError(f"CUDA kernels set CudaFlags, not {type(flags).__name__}; create the flags with the CUDA device")
    return flags


def _copy_2d(target: _Block, source: _Block, width: int, rows: int, stream: AbstractStream) -> None:
    """Copy ``rows`` rows of ``width`` bytes on the device."""
    kind = cp.cuda.runtime.memcpyDeviceToDevice
    cp.cuda.runtime.memcpy2DAsync(
        target.address, 8 * target.stride, source.address, 8 * source.stride, width, rows, kind, cupy_stream(stream).ptr
    )
