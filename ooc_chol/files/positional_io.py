"""Positional reads and writes of a file that are whole or an error, and room on its disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from numpy.typing import NDArray

from ooc_chol.errors import OocCholError, TierError
from ooc_chol.files.outputs import write_error


@contextmanager
def file_errors_typed(path: object, doing: str) -> Iterator[None]:
    """Raise a ``TierError`` for what the system says inside the block; ``doing`` is what was to happen, such as "opening it".

    That a file is not there stays ``FileNotFoundError``.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, OocCholError | FileNotFoundError):
            raise
        is_of_limit = error.errno in (errno.EMFILE, errno.ENFILE)
        advice = "close files, or raise the limit (ulimit -n)" if is_of_limit else "check the disk and the permissions"
        raise TierError(f"{path}: {doing} failed: {error.strerror or error}; {advice}") from error


def tile_bytes(tile: NDArray[Any]) -> memoryview:
    """The bytes of a row-major contiguous tile, without a copy."""
    return tile.data.cast("B")


def read_fully(descriptor: int, buffer: memoryview, offset: int, path: str) -> None:
    """Fill ``buffer`` with the bytes of the file from ``offset`` on, however many reads that takes."""
    done = 0
    while done < len(buffer):
        try:
            count = os.preadv(descriptor, [buffer[done:]], offset + done)
        except OSError as error:
            raise TierError(
                f"{path}: cannot read {len(buffer)} bytes at offset {offset}: {error.strerror}; check the disk"
            ) from error
        if count == 0:
            raise TierError(
                f"{path}: ends at byte {offset + done}, expected {offset + len(buffer)}; the file was cut while in use"
            )
        done += count


def read_up_to(descriptor: int, nbytes: int, offset: int) -> bytes:
    """So many bytes of the file from ``offset`` on, or fewer where it ends there; however many reads that takes."""
    found = b""
    while len(found) < nbytes and (more := os.pread(descriptor, nbytes - len(found), offset + len(found))):
        found += more
    return found


def write_fully(descriptor: int, buffer: memoryview | bytes, offset: int, path: str) -> None:
    """Write all of ``buffer`` at ``offset``, however many writes that takes."""
    view = memoryview(buffer)
    done = 0
    while done < len(view):
        try:
            count = os.pwrite(descriptor, view[done:], offset + done)
        except OSError as error:
            raise write_error(path, f"{len(view)} bytes at offset {offset}", error) from error
        if count == 0:
            raise TierError(f"{path}: the system writes none of {len(view)} bytes at offset {offset}; check the disk")
        done += count


def preallocate(descriptor: int, nbytes: int, path: str, *, start: int = 0) -> None:
    """Reserve ``nbytes`` more on the disk behind the first ``start``, so that a full disk is met now and not in the last hour.

    Where the file system cannot reserve, the file only gets its size, and a full disk shows at a later write.
    """
    try:
        status = os.fstatvfs(descriptor)
        if status.f_blocks and nbytes > status.f_bavail * status.f_frsize:
            # Some file systems would fill the disk to its last byte before they give up.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _reserve(descriptor, start, nbytes)
    except OSError as error:
        raise write_error(path, f"the {nbytes} bytes of the factor", error) from error


def _reserve(descriptor: int, start: int, nbytes: int) -> None:
    """Let a file of ``start`` bytes grow by ``nbytes``, and give it its blocks where the file system can."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, start, nbytes)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    os.ftruncate(descriptor, start + nbytes)


@cache
def package_version() -> str:
    """Version of the package that writes, or ``"unknown"`` when it runs from a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # it reads e-mail: 10 ms that a factor in memory need not take

    try:
        with file_errors_typed("the metadata of the package ooc_chol", "reading it"):
            return version("ooc_chol")
    except PackageNotFoundError:
        return "unknown"
