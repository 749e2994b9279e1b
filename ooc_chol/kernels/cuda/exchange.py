"""Memory of other libraries as CuPy arrays and back, without copies, on a stream that they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any, final

import cupy as cp

#: What the array API's ``__dlpack__`` takes where producer and consumer work on one stream: nothing waits.
ONE_STREAM = -1


@contextmanager
def on_stream(device: int, stream: int) -> Iterator[None]:
    """CuPy works on the stream with this address, of this GPU; 0 is the default one."""
    with cp.cuda.Device(device), _borrowed(device, stream):
        yield


@final
class _Address:
    """A stream that somebody else made and destroys, as CuPy takes it."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


@cache
def _borrowed(device: int, stream: int) -> Any:
    """CuPy's view of a stream of the current GPU, which is kept: CuPy 14 destroys a borrowed stream with its last view."""
    if stream == 0:
        return cp.cuda.Stream.null
    if hasattr(cp.cuda.Stream, "from_external"):
        return cp.cuda.Stream.from_external(_Address(stream))
    return cp.cuda.ExternalStream(stream, device)


def taken(capsule: Any) -> Any:
    """The memory of a DLPack capsule as an array; within :func:`on_stream` of the stream on which it was made."""
    return cp.from_dlpack(capsule)


def handed(array: Any) -> Any:
    """A DLPack capsule of an array, for who works on the current stream."""
    return array.__dlpack__(stream=ONE_STREAM)


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of no entries, which has no address that DLPack could hand over."""
    return cp.empty(shape, dtype)


def viewed(device: int, place: tuple[int, tuple[int, ...], Any]) -> Any:
    """A view of memory of a GPU at an address, of this shape and type, row by row; who made it keeps it meanwhile."""
    address, shape, dtype = place
    size = prod(shape) * dtype.itemsize
    if not size:
        return cp.empty(shape, dtype)
    return cp.ndarray(shape, dtype, cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(address, size, None, device), 0))
