"""Names that are no regular file, or one that cannot be: each of them must be refused at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

#: Bytes of the sparse file: more than any machine has memory.
SPARSE_BYTES = 1 << 43


def _fifo(path: Path, _: bytes) -> None:
    os.mkfifo(path)


def _folder(path: Path, _: bytes) -> None:
    path.mkdir()


def _loop(path: Path, _: bytes) -> None:
    path.symlink_to(path.name)


def _dangling(path: Path, _: bytes) -> None:
    path.symlink_to("nothing-there")


def _device(name: str) -> Callable[[Path, bytes], None]:
    return lambda path, _: path.symlink_to(name)


def _socket(path: Path, _: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # the address of a socket is short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def _sparse(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    os.truncate(path, SPARSE_BYTES)


def _sparse_zeros(path: Path, _: bytes) -> None:
    path.write_bytes(b"")
    os.truncate(path, SPARSE_BYTES)


def _unreadable(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    path.chmod(0)


#: By name: what makes it at a path, given the bytes of a good file.
PLACES: dict[str, Callable[[Path, bytes], None]] = {
    "a FIFO": _fifo,
    "a folder": _folder,
    "a loop of links": _loop,
    "a link to nothing": _dangling,
    "/dev/null": _device("/dev/null"),
    "/dev/zero": _device("/dev/zero"),
    "/dev/full": _device("/dev/full"),
    "/proc/self/mem": _device("/proc/self/mem"),
    "a socket": _socket,
    "a good file, and 8 TiB of nothing": _sparse,
    "8 TiB of nothing": _sparse_zeros,
    "a file that may not be read": _unreadable,
}


def clear(path: Path) -> None:
    """Remove what a case made."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
