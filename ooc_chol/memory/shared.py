"""Host memory that other processes of this machine see in place: a file of the system's memory without a name.

It has no name so that nothing is left of it: the last process that has it open or mapped, however that ends, gives it back.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import resource
import struct
import weakref
from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.interfaces import AbstractRegistrar
from ooc_chol.memory.locking import PieceLocks
from ooc_chol.memory.pages import resident_bytes
from ooc_chol.memory.release import RELEASER, MemoryBlock

Key = TypeVar("Key", bound=Hashable)

#: The last bytes of a file: the number of the present use of its memory.
_COUNT: Final = struct.Struct("=q")

#: Of the files that a process may have open, one piece of memory is allowed for so many: it takes two, hence half of all.
_FILES_FOR_ONE = 4


class SharedAddress(NamedTuple):
    """Where another process of the machine finds shared memory; all but the first two tell it from whatever came in its place."""

    process: int
    descriptor: int  #: Of that process
    device: int
    inode: int
    nbytes: int
    use: int  #: How many had the memory before


@final
class _Mapping(MemoryBlock):
    """A file in memory that is open and mapped, in use or waiting for the next use.

    Who maps another process's holds a shared lock on the file for the time of each use; its owner takes it for another use only
    where nobody else has such a lock. The system takes locks back from processes that end, however they do.
    """

    is_anyones = False

    def __init__(self, descriptor: int, nbytes: int, owner: SharedAddress | None) -> None:
        # The driver of a GPU does not page-lock what cannot be written: so the array is read-only, and not the mapping.
        self._file = mmap.mmap(descriptor, nbytes + _COUNT.size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # of a kernel without huge pages for such memory: ordinary ones will do
                self._file.madvise(mmap.MADV_HUGEPAGE)
        super().__init__(np.frombuffer(self._file, np.uint8, nbytes))
        self._descriptor, self._owner = descriptor, owner
        #: Purpose of its last use: others who mapped it then are likely to map it for the same one.
        self.purpose: Hashable = None
        found = os.fstat(descriptor)
        self._here = SharedAddress(os.getpid(), descriptor, found.st_dev, found.st_ino, nbytes, 0)
        _OPEN.add(self)
        weakref.finalize(self, os.close, descriptor).atexit = False

    @property
    def is_ours(self) -> bool:
        """True if this process made it."""
        return self._owner is None

    @property
    def address(self) -> SharedAddress:
        """Where others find it, in its present use."""
        return self._here._replace(use=self._use)

    @property
    def _use(self) -> int:
        count: int = _COUNT.unpack_from(self._file, len(self._file) - _COUNT.size)[0]
        return count

    def is_of(self, address: SharedAddress) -> bool:
        """Tell whether it is that memory of another process, whatever the use."""
        return self._owner is not None and self._owner[:-1] == address[:-1]

    def enter(self, address: SharedAddress) -> None:
        """Begin a use of another process's memory; ``ConnectionError`` where it has come to another use."""
        if not _locked(self._descriptor, fcntl.LOCK_SH) or self._use != address.use:
            self.leave()
            raise ConnectionError(f"memory of process {address.process} is gone: it is used for something else")

    def leave(self) -> None:
        """End a use."""
        if not self.is_ours:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def renew(self) -> bool:
        """Begin another use of our own memory, unless somebody else has it still."""
        if not _locked(self._descriptor, fcntl.LOCK_EX):
            return False
        _COUNT.pack_into(self._file, len(self._file) - _COUNT.size, self._use + 1)
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return True


@final
class SharedMemory:
    """One use of memory of this process that others map, or of that of another process, which is only read here.

    Arrays that show :attr:`bytes` keep the use. Where any of the memory was page-locked by the end of it, it is kept for a while
    with the mapping, for the next who asks for as many bytes, or for the same memory of the other process: to get pages from the
    system and to lock them takes longer than what is done with them. Else it is given back at once. Raises ``OSError``: by
    :meth:`create` and :meth:`open`, where the system does not map it.
    """

    def __init__(self, held: list[MemoryBlock]) -> None:
        (mapping,) = held
        assert isinstance(mapping, _Mapping)
        self._mapping = mapping
        self.is_ours = mapping.is_ours  #: Whether this process made it, and may write
        #: Where others find it, for the time of this use.
        self.address = mapping.address
        #: Whether page-locking was begun for the tiles of this use.
        self.is_locking = False
        weakref.finalize(self, _ended, held).atexit = False

    @classmethod
    def create(cls, nbytes: int, purpose: Hashable = None) -> Self:
        """Memory of so many bytes, 1 at least; ``OSError`` where the system has none.

        What had the same ``purpose`` in its last use is taken before other memory that waits: who mapped it has it still.
        """
        held: list[MemoryBlock] = []
        kept = KEPT.seconds
        if not (
            RELEASER.take_named(lambda block: _purpose_of(block) == purpose and _renewed(block, nbytes), held, kept)
            or RELEASER.take_named(lambda block: _renewed(block, nbytes), held, kept)
        ):
            descriptor = os.memfd_create("ooc-chol", os.MFD_CLOEXEC)
            _adopt(held, descriptor, nbytes, None)
        (mapping,) = held
        assert isinstance(mapping, _Mapping)
        mapping.purpose = purpose
        return cls(held)

    @classmethod
    def open(cls, address: SharedAddress) -> Self:
        """The memory of another process, or of this one; ``ConnectionError`` where it is gone, or cannot be reached."""
        held: list[MemoryBlock] = []
        if not RELEASER.take_named(lambda block: isinstance(block, _Mapping) and block.is_of(address), held, KEPT.seconds):
            _adopt(held, _opened(address), address.nbytes, address)
        (mapping,) = held
        assert isinstance(mapping, _Mapping)
        try:
            mapping.enter(address)
        except BaseException:
            RELEASER.hand_over(held, 0.0)
            raise
        return cls(held)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Where the bytes are, for arrays that keep this."""
        memory = self._mapping.memory
        return {"data": (memory.ctypes.data, not self.is_ours), "shape": memory.shape, "typestr": "|u1", "version": 3}

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """All of it, read-only where it is another process's."""
        return np.asarray(self)

    @property
    def lent(self) -> NDArray[np.uint8]:
        """All of it, to be written, also by a process that was asked to by the one that made it."""
        return np.asarray(_Lent(self))

    def locks(self, registrar: AbstractRegistrar, *, is_fresh: bool = False) -> PieceLocks:
        """Page locks of the memory, made by ``registrar`` where there are none yet.

        Memory that ``is_fresh`` is touched by threads before: nobody writes where it is not locked yet.
        """
        mapping = self._mapping
        if mapping.locks is None:
            mapping.locks = PieceLocks(registrar, mapping.memory, is_fresh=is_fresh)
        return mapping.locks

    def arrays(self, spots: Mapping[Key, tuple[int, tuple[int, ...], Any]]) -> dict[Key, NDArray[Any]]:
        """Arrays in it, each at an offset, of a shape and a type."""
        memory = self.bytes
        return {
            key: np.ndarray(shape, np.dtype(dtype), buffer=memory, offset=offset) for key, (offset, shape, dtype) in spots.items()
        }


class _Lent:
    """Place of the bytes of shared memory, for arrays that keep it and may write."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        facts = memory.__array_interface__
        self.__array_interface__ = {**facts, "data": (facts["data"][0], False)}


class _Kept:
    """For how long page-locked memory waits for its next use in this process, and how large that may be with it."""

    def __init__(self) -> None:
        self.seconds = 30.0
        self._purpose: Hashable = None
        self._most_resident = 0

    def only_for(self, purpose: Hashable, most_resident: int) -> None:
        """Keep memory for nothing but ``purpose``, as long as this process has at most so many bytes of memory."""
        self._most_resident = most_resident
        if purpose != self._purpose:
            self._purpose = purpose
            RELEASER.hasten_named()

    @property
    def grace_seconds(self) -> float:
        """For how long what is given back now is kept."""
        return self.seconds if resident_bytes() <= self._most_resident else 0.0


KEPT: Final = _Kept()


def _adopt(held: list[MemoryBlock], descriptor: int, nbytes: int, owner: SharedAddress | None) -> None:
    """Map a file, new where it is nobody else's, for who holds ``held``; it is closed where that fails."""
    try:
        if owner is None:
            os.ftruncate(descriptor, nbytes + _COUNT.size)
        mapping = _Mapping(descriptor, nbytes, owner)
    except BaseException:
        os.close(descriptor)
        raise
    mapping.holder = held
    held.append(mapping)


def _opened(address: SharedAddress) -> int:
    """A descriptor of the memory of another process; ``ConnectionError`` where it is gone, or cannot be reached."""
    place = f"/proc/{address.process}/fd/{address.descriptor}"
    try:
        # Without waiting: another file may be there by now, and opening a pipe takes until somebody writes to it.
        descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConnectionError(f"memory of process {address.process} cannot be opened ({error})") from error
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino, found.st_size) != (address.device, address.inode, address.nbytes + _COUNT.size):
        os.close(descriptor)
        raise ConnectionError(f"memory of process {address.process} is gone: another file is in its place")
    return descriptor


def _purpose_of(block: MemoryBlock) -> Hashable:
    """Purpose of the last use of memory that waits."""
    return block.purpose if isinstance(block, _Mapping) else None


def _renewed(block: MemoryBlock, nbytes: int) -> bool:
    """Tell whether memory of our own that waits has so many bytes, and is nobody else's: then another use of it has begun."""
    return isinstance(block, _Mapping) and block.is_ours and block.nbytes == nbytes and block.renew()


def _ended(held: list[MemoryBlock]) -> None:
    """A use is over, which no array shows any more: keep what is page-locked for a while."""
    for mapping in held:
        assert isinstance(mapping, _Mapping)
        mapping.leave()
    RELEASER.hand_over(held, KEPT.grace_seconds)


def _locked(descriptor: int, how: int) -> bool:
    """Lock a file, unless others' locks forbid it."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def shared_arrays(
    shapes: Mapping[Key, tuple[tuple[int, ...], np.dtype[Any]]], purpose: Hashable = None
) -> tuple[SharedMemory, dict[Key, NDArray[Any]]]:
    """New memory for arrays of these shapes and types, and the arrays in it, each from a page on."""
    spots, end = {}, 0
    for key, (shape, dtype) in shapes.items():
        spots[key] = end, shape, dtype
        end += whole_pages(math.prod(shape) * dtype.itemsize)
    memory = SharedMemory.create(end, purpose)
    return memory, memory.arrays(spots)


#: What this process has open, its own and others'.
_OPEN: weakref.WeakSet[_Mapping] = weakref.WeakSet()


def is_possible() -> bool:
    """Tell whether the system has such memory: Linux does."""
    return hasattr(os, "memfd_create")


def has_room() -> bool:
    """Tell whether this process may open one more: they take half of the files that it may have open (``ulimit -n``)."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most == resource.RLIM_INFINITY or _FILES_FOR_ONE * len(_OPEN) < most
