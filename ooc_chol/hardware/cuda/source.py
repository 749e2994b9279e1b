"""Matrices that lie in a GPU's memory."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.hardware.cuda.captures import wait_for_device
from ooc_chol.hardware.cuda.copies import allow_peer, copy_rows, has_adjacent_entries
from ooc_chol.hardware.cuda.facts import device_number
from ooc_chol.interfaces import Tile
from ooc_chol.memory.sources.base import AbstractSource, check_dtype, check_shape

_runtime = cp.cuda.runtime


class _Gatherer(NamedTuple):
    """Copies to one other GPU: a stream of the matrix's own GPU, and an event on it, recorded anew each time."""

    stream: Any
    gathered: Any


#: Bytes up to which what the host reads passes through page-locked memory of CuPy's pool.
_MOST_STAGED = 1 << 16


@cache
def _reading(number: int) -> Any:
    """The stream of a GPU on which the host reads matrices: making one takes longer than reading a few rows."""
    with cp.cuda.Device(number):
        return cp.cuda.Stream(non_blocking=True)


def from_dlpack(a: Any) -> Any:
    """``a`` as a CuPy array of the same memory: itself, or what it hands over by DLPack."""
    return a if isinstance(a, cp.ndarray) else cp.from_dlpack(a)


def to_host(array: Any) -> NDArray[Any]:
    """A CuPy array in host memory, once all that its GPU was given is done."""
    with array.device:
        wait_for_device()
        host: NDArray[Any] = cp.asnumpy(array)
    return host


def to_device(name: str, x: NDArray[Any]) -> Any:
    """A copy of ``x`` in a GPU's memory."""
    with cp.cuda.Device(device_number(name)):
        return cp.asarray(x)


def _is_adjacent(array: Any, dtype: np.dtype[Any]) -> bool:
    """Tell whether all entries of a matrix, of ``dtype``, are adjacent, row by row."""
    return bool(array.dtype == dtype and array.strides == (dtype.itemsize * array.shape[1], dtype.itemsize))


@final
class DeviceSource(AbstractSource):
    """A matrix that lies in a GPU's memory.

    A run reads rectangles on streams that know nothing of the stream that made the matrix, and on other GPUs. So (1) making the
    source waits for its GPU, and (2) a copy to another GPU is enqueued on the stream that wants it, never through an array that
    the owning GPU fills on a stream of its own, unless an event orders the two.
    """

    name = "device-array"
    bytes_per_entry = 0
    sampled_by = "block"

    def __init__(self, a: Any, *, is_transposed: bool = False) -> None:
        self.is_transposed = is_transposed
        self._a = a
        self.n = check_shape(self._a.shape, "the array")
        check_dtype(self._a.dtype, "the array")
        self.dtype = np.dtype(self._a.dtype)
        self._gatherers: dict[int, _Gatherer] = {}
        device = self._a.device
        self._number, self._home = device.id, f"cuda:{device.id}"
        with device:
            wait_for_device()

    @property
    def home(self) -> str:
        """The GPU in whose memory A lies."""
        return self._home

    def transposed(self) -> DeviceSource:
        """The same memory by exchanged strides."""
        return DeviceSource(self._a.T, is_transposed=not self.is_transposed)

    def prepare(self) -> None:
        """Let the current device reach the matrix: directly where the hardware can, and a stream that gathers for it."""
        here = cp.cuda.Device().id
        if here == self._number or here in self._gatherers:
            return
        allow_peer(self._number, here)
        with self._a.device:
            self._gatherers[here] = _Gatherer(cp.cuda.Stream(non_blocking=True), cp.cuda.Event(disable_timing=True))

    def function(self, rows: range, cols: range, out: Tile, stream: Any) -> None:
        """Copy the rectangle, in the type of ``out``: to the host at once, to a GPU in the order of ``stream``."""
        is_whole = len(rows) == len(cols) == self.n
        block = self._a if is_whole else self._a[rows.start : rows.stop, cols.start : cols.stop]
        if isinstance(out, np.ndarray):
            self._bring(block, out)
        elif out.data.device_id == self._number:
            if is_whole and _is_adjacent(block, out.dtype) and _is_adjacent(out, out.dtype):
                pointer = cp.cuda.get_current_stream().ptr  # in a third of the time of `copyto`, which looks for a way
                _runtime.memcpyAsync(out.data.ptr, block.data.ptr, out.nbytes, _runtime.memcpyDeviceToDevice, pointer)
            else:
                cp.copyto(out, block)
        elif has_adjacent_entries(block, out.dtype):
            self._copy_rows(block, out, stream)
        else:
            self._gather(block, out, stream)

    def _bring(self, block: Any, out: NDArray[Any]) -> None:
        """Copy to the host at once: rows of adjacent entries as they lie, others by way of a copy on their GPU."""
        is_few = 0 < out.nbytes <= _MOST_STAGED
        with self._a.device:
            own = _reading(self._number)
            if has_adjacent_entries(block, out.dtype) and (is_few or has_adjacent_entries(out, out.dtype)):
                width = out.itemsize * out.shape[1]
                staged = cp.cuda.alloc_pinned_memory(out.nbytes) if is_few else None
                target, pitch = (out.ctypes.data, out.strides[0]) if staged is None else (staged.ptr, width)
                pitches = (pitch, block.strides[0]) if len(out) > 1 else (width, width)
                copy_rows(target, block.data.ptr, pitches, (len(out), width), _runtime.memcpyDeviceToHost, own)
                own.synchronize()
                if staged is not None:
                    out[...] = np.frombuffer(staged, out.dtype, out.size).reshape(out.shape)
            else:
                with own:
                    out[...] = cp.asnumpy(block, stream=own)

    def _copy_rows(self, block: Any, out: Tile, stream: Any) -> None:
        """Enqueue one copy between GPUs, which the driver takes by way of the host where they do not reach each other."""
        width = out.itemsize * out.shape[1]
        pitches = width, block.strides[0] if len(block) > 1 else width
        copy_rows(out.data.ptr, block.data.ptr, pitches, (len(block), width), _runtime.memcpyDefault, stream)

    def _gather(self, block: Any, out: Tile, stream: Any) -> None:
        """Make rows of adjacent entries of the type of ``out`` on the matrix's own GPU, then copy those."""
        gatherer = self._gatherers[out.device.id]
        with self._a.device, gatherer.stream:
            rows = cp.empty(block.shape, out.dtype)
            cp.copyto(rows, block)
            gatherer.gathered.record(gatherer.stream)
        stream.wait_event(gatherer.gathered)
        self._copy_rows(rows, out, stream)
        # CuPy gives the memory of `rows` to later work of the gathering stream, which therefore waits for the copy: 1. rows are
        # gathered, 2. the wanting stream copies them, 3. the gathering stream goes on.
        copied = cp.cuda.Event(disable_timing=True)
        copied.record(stream)
        gatherer.stream.wait_event(copied)

    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        self.function(rows, cols, out, None)
