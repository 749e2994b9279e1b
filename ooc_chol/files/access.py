"""How the bytes of a file come to memory and go to it: by way of the system's cache, past it, or with the cache dropped behind.

What is read and written once, in pieces of megabytes, gains nothing by the cache, and its copies take as much of a processor as
the disk takes time: 0.15 to 0.4 s per GiB instead of 0.03 (docs/lab-notes.md). Pages of the cache also count as
memory of the control group, where a budget was promised.
"""

from __future__ import annotations

import errno
import mmap
import os
import queue
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import final

import numpy as np

from ooc_chol.config import PAGE_BYTES, whole_pages
from ooc_chol.errors import TierError
from ooc_chol.files.outputs import write_error
from ooc_chol.files.positional_io import read_fully, write_fully

#: Bytes of a buffer through which data pass that do not lie at a page in memory.
BOUNCE_BYTES = 1 << 20
#: Why a file system refuses direct I/O.
_REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOENT, errno.EACCES)


class AbstractAccess(ABC):
    """Reads and writes of one open file that are whole or an error; from any number of threads."""

    name: str  #: How, in reports
    #: Whether pieces are best as small as a core's cache, in which they are hashed; else a disk gets as much at once as there is
    is_cached: bool = True

    @abstractmethod
    def read(self, buffer: memoryview, offset: int, path: str) -> None:
        """Fill ``buffer`` with the file's bytes from ``offset`` on; ``path`` is what an error calls the file."""

    @abstractmethod
    def write(self, buffer: memoryview, offset: int, path: str) -> None:
        """Write all of ``buffer`` at ``offset``, a multiple of a page; zeros may follow to the end of its last page."""

    def close(self) -> None:  # noqa: B027 - only what opens something has to close it
        """End the access; the file itself stays open. A second call does nothing."""


@final
class CachedAccess(AbstractAccess):
    """By way of the system's cache."""

    name = "cached"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, buffer: memoryview, offset: int, path: str) -> None:
        """Fill ``buffer``, its pages kept in the cache."""
        read_fully(self._descriptor, buffer, offset, path)

    def write(self, buffer: memoryview, offset: int, path: str) -> None:
        """Write ``buffer`` to the cache; the system brings it to the disk when it likes."""
        write_fully(self._descriptor, buffer, offset, path)


@final
class DroppingAccess(AbstractAccess):
    """By way of the cache, whose pages are given up behind each read and, once they are on the disk, behind each write."""

    name = "cache dropped behind"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._written: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()

    def read(self, buffer: memoryview, offset: int, path: str) -> None:
        """Fill ``buffer``, and give up the pages that this brought."""
        read_fully(self._descriptor, buffer, offset, path)
        drop_pages(self._descriptor, offset, len(buffer))

    def write(self, buffer: memoryview, offset: int, path: str) -> None:
        """Write ``buffer``, and give up the pages of the write before."""
        write_fully(self._descriptor, buffer, offset, path)
        # Pages can be dropped only when they are on the disk: this begins their way there, and drops those of the write before.
        drop_pages(self._descriptor, offset, len(buffer))
        with suppress(queue.Empty):
            drop_pages(self._descriptor, *self._written.get_nowait())
        self._written.put((offset, len(buffer)))


@final
class DirectAccess(AbstractAccess):
    """Past the cache, by a descriptor of its own: between the disk and memory that begins at a page, without a copy.

    What does not begin at a page, in memory or in the file, passes through a buffer of :data:`BOUNCE_BYTES`. The end of a tile
    that fills no page goes in the same call by way of a page of its own.
    """

    name = "direct"
    is_cached = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._bounces: queue.SimpleQueue[mmap.mmap] = queue.SimpleQueue()

    def read(self, buffer: memoryview, offset: int, path: str) -> None:
        """Fill ``buffer``, in one call where it begins at a page."""
        if offset % PAGE_BYTES == 0 and _is_at_page(buffer):
            with _Bounce(self._bounces) as bounce:
                whole = len(buffer) // PAGE_BYTES * PAGE_BYTES
                rest = len(buffer) - whole
                self._read_pages([buffer[:whole], bounce[:PAGE_BYTES]] if rest else [buffer], offset, path, len(buffer))
                buffer[whole:] = bounce[:rest]
            return
        with _Bounce(self._bounces) as bounce:
            done = 0
            while done < len(buffer):
                skip = (offset + done) % PAGE_BYTES
                count = min(len(buffer) - done, BOUNCE_BYTES - skip)
                self._read_pages([bounce[: whole_pages(skip + count)]], offset + done - skip, path, skip + count)
                buffer[done : done + count] = bounce[skip : skip + count]
                done += count

    def write(self, buffer: memoryview, offset: int, path: str) -> None:
        """Write ``buffer`` to the disk, in one call where it begins at a page."""
        with _Bounce(self._bounces) as bounce:
            if _is_at_page(buffer):
                whole = len(buffer) // PAGE_BYTES * PAGE_BYTES
                rest = _padded(bounce, buffer[whole:])
                self._write_pages([buffer[:whole], rest] if len(rest) else [buffer], offset, path)
                return
            for start in range(0, len(buffer), BOUNCE_BYTES):
                self._write_pages([_padded(bounce, buffer[start : start + BOUNCE_BYTES])], offset + start, path)

    def _read_pages(self, parts: list[memoryview], offset: int, path: str, needed: int) -> None:
        """Fill ``parts``, whole pages each, as far as ``needed`` bytes; less than a page is read again, once."""
        done, is_again = 0, False
        while done < needed:
            try:
                count = os.preadv(self._descriptor, behind(parts, done), offset + done)
            except OSError as error:
                raise TierError(
                    f"{path}: cannot read {needed} bytes at offset {offset}: {error.strerror}; check the disk"
                ) from error
            if count == 0:
                raise TierError(
                    f"{path}: ends at byte {offset + done}, expected {offset + needed}; the file was cut while in use"
                )
            done += count if done + count >= needed else count // PAGE_BYTES * PAGE_BYTES
            if is_again and count < PAGE_BYTES and done < needed:
                raise TierError(f"{path}: ends within the page at byte {offset + done}; the file was cut while in use")
            is_again = count < PAGE_BYTES

    def _write_pages(self, parts: list[memoryview], offset: int, path: str) -> None:
        """Write ``parts``, whole pages each; a page that is written in part is written again, once."""
        done, is_again, size = 0, False, sum(map(len, parts))
        while done < size:
            try:
                count = os.pwritev(self._descriptor, behind(parts, done), offset + done)
            except OSError as error:
                raise write_error(path, f"{size} bytes at offset {offset}", error) from error
            if count == 0 or (is_again and count < PAGE_BYTES):
                raise TierError(
                    f"{path}: the system writes {count} of {size - done} bytes at offset {offset + done}; check the disk"
                )
            done += count // PAGE_BYTES * PAGE_BYTES
            is_again = count < PAGE_BYTES

    def close(self) -> None:
        """Close the descriptor that goes past the cache."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _Bounce:
    """A buffer at a page, as long as the block runs: one that another thread has left, or a new one."""

    def __init__(self, spare: queue.SimpleQueue[mmap.mmap]) -> None:
        self._spare = spare

    def __enter__(self) -> memoryview:
        try:
            self._buffer = self._spare.get_nowait()
        except queue.Empty:
            self._buffer = mmap.mmap(-1, BOUNCE_BYTES)
        return memoryview(self._buffer)

    def __exit__(self, *_: object) -> None:
        self._spare.put(self._buffer)


def opened_access(descriptor: int) -> AbstractAccess:
    """How to read and write an open file past the cache, or with it dropped behind."""
    if hasattr(os, "O_DIRECT"):
        try:
            # By the descriptor, whatever has become of the name.
            direct = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
        else:
            if _is_direct(direct):
                return DirectAccess(direct)
            os.close(direct)
    return DroppingAccess(descriptor)


def _is_direct(descriptor: int) -> bool:
    """Tell whether direct I/O by this descriptor is granted; an error closes it."""
    try:
        return _takes_pages(descriptor)
    except BaseException:
        with suppress(OSError):  # what went wrong first is to be seen
            os.close(descriptor)
        raise


def drop_pages(descriptor: int, offset: int, nbytes: int) -> None:
    """Give up the cached pages of a part of a file, those at its ends included; what is not on the disk yet begins its way."""
    if hasattr(os, "posix_fadvise"):
        start = offset // PAGE_BYTES * PAGE_BYTES
        os.posix_fadvise(descriptor, start, whole_pages(offset + nbytes) - start, os.POSIX_FADV_DONTNEED)


def _takes_pages(descriptor: int) -> bool:
    """Tell whether direct reads of pages are granted: a file system may ask for larger ones, or refuse at the first read."""
    with mmap.mmap(-1, PAGE_BYTES) as page:
        try:
            return os.preadv(descriptor, [page], 0) == PAGE_BYTES
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            return False


def _is_at_page(buffer: memoryview) -> bool:
    return np.frombuffer(buffer, dtype=np.uint8).ctypes.data % PAGE_BYTES == 0 if len(buffer) else True


def _padded(bounce: memoryview, data: memoryview) -> memoryview:
    """``data`` in ``bounce``, followed by zeros to the end of its last page."""
    end = whole_pages(len(data))
    bounce[: len(data)] = data
    bounce[len(data) : end] = bytes(end - len(data))
    return bounce[:end]


def behind(parts: Sequence[memoryview], done: int) -> list[memoryview]:
    """Rest of ``parts`` behind the first ``done`` bytes."""
    left = []
    for part in parts:
        if done < len(part):
            left.append(part[done:])
        done = max(0, done - len(part))
    return left
