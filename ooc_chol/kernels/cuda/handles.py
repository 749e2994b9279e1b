"""cuBLAS on one device: one handle for all streams, each of which has a workspace of its own, so that they may run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy as cp
from nvmath.bindings import cublas

from ooc_chol.hardware.cuda import no_capture
from ooc_chol.interfaces import AbstractStream
from ooc_chol.kernels import cuda as sizes


def cupy_stream(stream: AbstractStream) -> Any:
    """CuPy's stream of a CUDA stream; anything that has one will do, such as what a test hands in."""
    return stream.stream  # type: ignore[attr-defined]


_SCALARS_ON_HOST = 0
#: Handles of runs that are over, by device: destroying one takes 2 to 6 ms. One for each run at a time is kept.
_SPARE: dict[int, list[int]] = {}


def _take_handle(device: int) -> int:
    """A handle of the device, which is current, of an earlier run or a new one."""
    try:
        handle = _SPARE[device].pop()
    except (KeyError, IndexError):
        with no_capture(device):
            return int(cublas.create())
    cublas.set_pointer_mode(handle, _SCALARS_ON_HOST)  # a run that failed may have left it otherwise
    return handle


class BlasHandle:
    """The cuBLAS handle of a device, created before the run, and the workspaces of the streams that multiply.

    A handle takes 70 MB or more of device memory beside the budget (NVML on an H200, CUDA 13.0), hence one for all.
    """

    def __init__(self, workspaces: Sequence[int]) -> None:
        self._workspaces = tuple(workspaces)
        self._device = cp.cuda.Device().id
        self._handle: int | None = _take_handle(self._device) if workspaces else None
        self._numbers: dict[int, int] = {}
        self._lent: dict[int, int] = {}
        self._current = 0

    def number(self, stream: AbstractStream) -> int:
        """Which workspace is ``stream``'s; the next free one at its first use."""
        pointer = cupy_stream(stream).ptr
        number = self._numbers.get(pointer)
        if number is None:
            number = len(self._numbers)
            if number == len(self._workspaces):
                raise RuntimeError(f"stream {stream.name} multiplies, but all {number} cuBLAS workspaces are taken")
            self._numbers[pointer] = number
        return number

    def lend(self, stream: AbstractStream, workspace: int) -> None:
        """Give ``stream`` the workspace at a device address; what it multiplies takes none of the others then."""
        self._lent[cupy_stream(stream).ptr] = workspace
        self._current = 0

    def workspace(self, stream: AbstractStream) -> int:
        """Device address of the workspace of ``stream``."""
        lent = self._lent.get(cupy_stream(stream).ptr)
        return self._workspaces[self.number(stream)] if lent is None else lent

    def of(self, stream: AbstractStream) -> int:
        """The handle, set to enqueue on ``stream`` until it is asked for another one."""
        pointer = cupy_stream(stream).ptr
        if pointer != self._current:
            workspace = self.workspace(stream)
            cublas.set_stream(self._handle, pointer)  # this takes the workspace away, hence in this order
            cublas.set_workspace(self._handle, workspace, sizes.CUBLAS_WORKSPACE_BYTES)
            self._current = pointer
        assert self._handle is not None  # a workspace was found
        return self._handle

    def close(self) -> None:
        """Keep the handle for a later run; a second call does nothing."""
        if self._handle is not None:
            _SPARE.setdefault(self._device, []).append(self._handle)
        self._handle = None
        self._numbers.clear()
        self._lent.clear()
        self._current = 0
