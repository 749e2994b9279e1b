"""Host memory that other processes of this machine see in place: a file of the system's memory without a name.

It has no name so that nothing is left of it: the last process that has it open or mapped, however that ends, gives it back.
"""

from __future__ import annotations

import math
import mmap
import os
import resource
import weakref
from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages

Key = TypeVar("Key", bound=Hashable)

#: Of the files that a process may have open, one piece of memory is allowed for so many: it takes two, hence half of all.
_FILES_FOR_ONE = 4


class SharedAddress(NamedTuple):
    """Where another process of the machine finds shared memory; the last three tell it from whatever came in its place."""

    process: int
    descriptor: int  #: Of that process
    device: int
    inode: int
    nbytes: int


@final
class SharedMemory:
    """Memory of this process that others map, or that of another process, which is only read here.

    Parameters
    ----------
    descriptor : int
        An open file in memory, closed with this.
    nbytes : int
        Its bytes.
    is_ours : bool
        Whether this process may write.

    Raises
    ------
    OSError
        The system does not map it.

    Notes
    -----
    Arrays that show :attr:`bytes` keep the memory, also once this is gone: nobody else can open it from then on.
    """

    def __init__(self, descriptor: int, nbytes: int, *, is_ours: bool) -> None:
        # The driver of a GPU does not page-lock what cannot be written: so the array is read-only, and not the mapping.
        mapping = mmap.mmap(descriptor, nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # of a kernel without huge pages for such memory: ordinary ones will do
                mapping.madvise(mmap.MADV_HUGEPAGE)
        #: All of it, read-only where it is another process's.
        self.bytes: NDArray[np.uint8] = np.frombuffer(mapping, np.uint8)
        self.bytes.flags.writeable = is_ours
        found = os.fstat(descriptor)
        #: Where others find it, as long as this lives.
        self.address = SharedAddress(os.getpid(), descriptor, found.st_dev, found.st_ino, nbytes)
        self.is_ours = is_ours
        _OPEN.add(self)
        weakref.finalize(self, os.close, descriptor).atexit = False

    @classmethod
    def create(cls, nbytes: int) -> Self:
        """New memory of so many bytes, 1 at least; ``OSError`` where the system has none."""
        descriptor = os.memfd_create("ooc-chol", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, nbytes)
            return cls(descriptor, nbytes, is_ours=True)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def open(cls, address: SharedAddress) -> Self:
        """The memory of another process, or of this one; ``ConnectionError`` where it is gone, or cannot be reached."""
        place = f"/proc/{address.process}/fd/{address.descriptor}"
        try:
            # Without waiting: another file may be there by now, and opening a pipe takes until somebody writes to it.
            descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise ConnectionError(f"memory of process {address.process} cannot be opened ({error})") from error
        try:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino, found.st_size) != address[2:]:
                raise ConnectionError(f"memory of process {address.process} is gone: another file is in its place")
            return cls(descriptor, address.nbytes, is_ours=False)
        except BaseException:
            os.close(descriptor)
            raise

    def arrays(self, spots: Mapping[Key, tuple[int, tuple[int, ...], Any]]) -> dict[Key, NDArray[Any]]:
        """Arrays in it, each at an offset, of a shape and a type."""
        return {
            key: np.ndarray(shape, np.dtype(dtype), buffer=self.bytes, offset=offset)
            for key, (offset, shape, dtype) in spots.items()
        }


def shared_arrays(shapes: Mapping[Key, tuple[tuple[int, ...], np.dtype[Any]]]) -> tuple[SharedMemory, dict[Key, NDArray[Any]]]:
    """New memory for arrays of these shapes and types, and the arrays in it, each from a page on."""
    spots, end = {}, 0
    for key, (shape, dtype) in shapes.items():
        spots[key] = end, shape, dtype
        end += whole_pages(math.prod(shape) * dtype.itemsize)
    memory = SharedMemory.create(end)
    return memory, memory.arrays(spots)


#: What this process has open, its own and others'.
_OPEN: weakref.WeakSet[SharedMemory] = weakref.WeakSet()


def is_possible() -> bool:
    """Whether the system has such memory: Linux does."""
    return hasattr(os, "memfd_create")


def has_room() -> bool:
    """Whether this process may open one more: they take half of the files that it may have open (``ulimit -n``)."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most == resource.RLIM_INFINITY or _FILES_FOR_ONE * len(_OPEN) < most
