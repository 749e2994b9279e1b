"""cuBLAS handles of one device: one for each stream, each with a workspace of its own, so that streams may run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from nvmath.bindings import cublas

from ooc_chol.interfaces import AbstractStream
from ooc_chol.kernels import cuda as sizes


class CudaStreamLike(Protocol):
    """What the kernels need of a stream of a CUDA device."""

    stream: Any


def cupy_stream(stream: AbstractStream) -> Any:
    """CuPy's stream of a CUDA stream; kernels may not import devices, hence the cast."""
    return cast(CudaStreamLike, stream).stream


class BlasHandles:
    """One cuBLAS handle for each stream that multiplies, created with its workspace before the run.

    Parameters
    ----------
    workspaces : sequence of int
        Device addresses of :data:`~ooc_chol.kernels.cuda.CUBLAS_WORKSPACE_BYTES` bytes each: as many streams may multiply.
    """

    def __init__(self, workspaces: Sequence[int]) -> None:
        self._workspaces = tuple(workspaces)
        self._handles = [cublas.create() for _ in workspaces]
        self._of_stream: dict[int, tuple[int, int]] = {}

    def of(self, stream: AbstractStream) -> tuple[int, int]:
        """Number and handle of ``stream``'s cuBLAS, bound to it at its first use.

        Raises
        ------
        RuntimeError
            More streams multiply than workspaces were planned.
        """
        pointer = cupy_stream(stream).ptr
        if pointer not in self._of_stream:
            number = len(self._of_stream)
            if number == len(self._handles):
                raise RuntimeError(f"stream {stream.name} multiplies, but all {number} cuBLAS workspaces are taken")
            handle = self._handles[number]
            cublas.set_stream(handle, pointer)  # this takes the workspace away, hence in this order
            cublas.set_workspace(handle, self._workspaces[number], sizes.CUBLAS_WORKSPACE_BYTES)
            self._of_stream[pointer] = number, handle
        return self._of_stream[pointer]

    def workspace(self, stream: AbstractStream) -> int:
        """Device address of the workspace of ``stream``."""
        return self._workspaces[self.of(stream)[0]]

    def close(self) -> None:
        """Destroy the handles; a second call does nothing."""
        while self._handles:
            cublas.destroy(self._handles.pop())
        self._of_stream.clear()
