"""Launches by one call of the driver, of kernels by the thousand: CuPy makes an object of each of their arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from struct import Struct, calcsize
from typing import Any, NamedTuple, final

import cupy as cp
from cupy_backends.cuda.api import driver

_launch = driver.launchKernel
#: ``CUDA_ERROR_INVALID_CONTEXT``: of a thread that CUDA's runtime has not met.
_NO_CONTEXT = 201


class _Arguments(NamedTuple):
    """Memory for the arguments of one launch, and the address of the driver's array of pointers to them."""

    memory: Any
    pointers: Any
    address: int


@final
class Kernel:
    """A kernel of the current device, launched by blocks of one shape; any thread may do so.

    ``types`` are those of its arguments in the words of :mod:`struct`: ``q`` an address or an integer of 64 bits, ``i`` one of
    32, ``16s`` bytes that are passed by value. Arguments at addresses ``behind`` follow those of each launch.
    """

    def __init__(
        self, function: Any, types: Sequence[str], block: tuple[int, ...], *, shared_bytes: int = 0, behind: Sequence[int] = ()
    ) -> None:
        self._function = function.kernel  # which keeps its module loaded
        self._pointer, self._behind = int(self._function.ptr), tuple(behind)
        self._behind_grid = 1, *(*block, 1, 1)[:3], shared_bytes
        layout = Struct("".join(types))
        self._nbytes, self._pack_into = layout.size, layout.pack_into
        self._offsets = [calcsize("".join(types[: at + 1])) - calcsize(each) for at, each in enumerate(types)]
        self._free: list[_Arguments] = []

    def __call__(self, stream: int, grid: tuple[int, int], *arguments: Any) -> None:
        """Enqueue a launch of ``grid`` blocks in x and y on the stream at an address; the driver copies the arguments at once."""
        try:
            held = self._free.pop()
        except IndexError:  # all are in use by other threads
            held = self._arguments()
        self._pack_into(held[0], 0, *arguments)
        of_launch = self._pointer, *grid, *self._behind_grid, stream, held[2], 0
        try:
            _launch(*of_launch)
        except driver.CUDADriverError as error:
            if error.status != _NO_CONTEXT:
                raise
            cp.cuda.runtime.memGetInfo()  # gives the thread the device's context
            _launch(*of_launch)
        self._free.append(held)

    def _arguments(self) -> _Arguments:
        memory = ctypes.create_string_buffer(max(1, self._nbytes))
        start = ctypes.addressof(memory)
        addresses = [start + offset for offset in self._offsets] + list(self._behind)
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        return _Arguments(memory, pointers, ctypes.addressof(pointers))
