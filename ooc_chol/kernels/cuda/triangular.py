"""POTRF, TRSM and the inversion of diagonal blocks on the current CUDA device: kernels of our own, each in one launch.

The vendor's POTRF takes some hundred launches and TRSM by products forty. Beside a long product each of them waits for
processors, and each costs the enqueuing thread 10 to 15 microseconds (docs/lab-notes.md).
"""

from __future__ import annotations

from typing import final

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.cuda.launches import Kernel
from ooc_chol.kernels.cuda.modules import compiled
from ooc_chol.kernels.cuda.triangular_source import ROWS, SHARED_BYTES, THREADS, potrf_blocks, source

#: Types of the kernels' arguments.
_TYPES = {"potrf": "qiqqq", "trsm": "qiiqq", "invert_blocks": "qiq"}


@final
class TriangularKernels:
    """The kernels, loaded for the current device."""

    def __init__(self, *options: str) -> None:
        module = compiled(source(), *options)
        self._kernels: dict[str, Kernel] = {}
        for name, nbytes in SHARED_BYTES.items():
            function = module.get_function(name)
            function.max_dynamic_shared_size_bytes = nbytes
            self._kernels[name] = Kernel(function, _TYPES[name], (THREADS,), shared_bytes=nbytes)

    def potrf(self, stream: AbstractStream, a_kk: Tile, workspace: int, first_bad: int) -> None:
        """``A[k, k] -> L[k, k]``, its upper triangle zero.

        Right-looking by blocks of 64. Thread blocks wait for each other on the device, as many as there are strips below the
        first block and at most 64.
        """
        n = a_kk.shape[0]
        arrived = workspace + sizes.potrf_inverses_bytes()
        self._kernels["potrf"](cupy_stream(stream).ptr, (potrf_blocks(n), 1), a_kk.data.ptr, n, workspace, arrived, first_bad)

    def trsm(self, stream: AbstractStream, l_kk: Tile, a_ik: Tile, inverses: int) -> None:
        """``A[i, k] = A[i, k] @ inv(L[k, k]).T``, block column by block column, each refined once."""
        rows, n = a_ik.shape
        self._kernels["trsm"](cupy_stream(stream).ptr, (-(-rows // ROWS), 1), a_ik.data.ptr, rows, n, l_kk.data.ptr, inverses)

    def invert(self, stream: AbstractStream, l_kk: Tile, inverses: int) -> None:
        """Inverses of the diagonal blocks of ``L[k, k]``, order 64 each, one behind the other; the last may be padded."""
        n = l_kk.shape[0]
        self._kernels["invert_blocks"](cupy_stream(stream).ptr, (-(-n // sizes.TRSM_BLOCK), 1), l_kk.data.ptr, n, inverses)
