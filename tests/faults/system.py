"""The system's calls, wrapped: those that this package makes are counted, and fail as the system does."""

from __future__ import annotations

import errno
import fcntl
import functools
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.faults.injector import Injector
from tests.inside.hardware import rates_path

#: Functions of :mod:`os` that touch files, by the kinds of calls that they are.
FILE_CALLS = {
    "open": ("open",),
    "read": ("pread", "preadv"),
    "write": ("pwrite", "pwritev"),
    "fsync": ("fsync", "fdatasync"),
    "rename": ("replace", "rename", "link"),
    "grow": ("posix_fallocate", "ftruncate"),
    "close": ("close",),
    "remove": ("unlink", "remove"),
    "look": ("stat", "fstat", "fstatvfs", "statvfs"),
    "mode": ("chmod", "fchmod"),
}
#: Opening what nobody needs: the file of rates, without which plans predict no seconds, as a warning says, and the way past the
#: system's cache, without which it is dropped behind, as the report says.
SPARE = "spare"
#: What a call may say, by its kind; the first one is tried at every call, the others at some.
ERRORS: dict[str, tuple[int, ...]] = {
    "open": (errno.EACCES, errno.EMFILE),
    SPARE: (errno.EACCES, errno.EMFILE),
    "read": (errno.EIO, errno.EINTR),
    "write": (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EINTR),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "rename": (errno.EIO, errno.ENOSPC),
    "grow": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EINTR),
    "close": (errno.EIO, errno.EDQUOT),
    "remove": (errno.EIO,),
    "look": (errno.EIO,),
    "mode": (errno.EPERM,),
    "lock": (errno.EIO,),
}


def system_error(code: int) -> OSError:
    """The error of a call of the system."""
    return OSError(code, os.strerror(code))


def is_ours(depth: int = 2) -> bool:
    """Whether the call comes from this package."""
    return str(sys._getframe(depth).f_globals.get("__name__", "")).startswith("ooc_chol")


@contextmanager
def counted_system(injector: Injector) -> Iterator[None]:
    """Count the calls of files, memory and threads inside the block, and let them fail."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, names in FILE_CALLS.items():
            for name in names:
                patch.setattr(os, name, _file_call(getattr(os, name), kind, injector))
        patch.setattr(fcntl, "flock", _file_call(fcntl.flock, "lock", injector))
        patch.setattr(mmap, "mmap", _mapping(injector))
        for name in ("empty", "zeros"):
            patch.setattr(np, name, _array_call(getattr(np, name), injector))
        patch.setattr(threading.Thread, "start", _thread_start(threading.Thread.start, injector))
        yield


def _file_call(real: Callable[..., Any], kind: str, injector: Injector) -> Callable[..., Any]:
    @functools.wraps(real)
    def call(*arguments: Any, **options: Any) -> Any:
        if not is_ours():
            return real(*arguments, **options)
        error = injector.meets(f"file:{SPARE if kind == 'open' and _is_spare(arguments[0]) else kind}")
        if kind == "close":  # the system gives the descriptor up, whatever it says
            real(*arguments, **options)
            if error is not None:
                raise error
            return None
        if error is not None:
            raise error
        if kind in ("read", "write") and injector.meets(f"short:{kind}") is not None:
            return real(arguments[0], _half(arguments[1]), *arguments[2:])
        return real(*arguments, **options)

    return call


def _is_spare(name: Any) -> bool:
    """Whether a file of that name is one that a call can do without."""
    return os.fspath(name) == str(rates_path()) or str(name).startswith("/proc/self/fd/")


def _half(buffers: Any) -> Any:
    """The first half of a buffer, or of the first one of several; a byte at least."""
    if isinstance(buffers, list):
        return [_half(buffers[0])]
    if isinstance(buffers, int):
        return max(1, buffers // 2)
    return memoryview(buffers)[: max(1, len(buffers) // 2)]


class _IsMapping(type(mmap.mmap)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL_MAPPING)


_REAL_MAPPING = mmap.mmap


def _mapping(injector: Injector) -> type:
    class Mapping(_REAL_MAPPING, metaclass=_IsMapping):
        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            if is_ours():
                injector.check("memory:map")
            return _REAL_MAPPING(*arguments, **options)

    return Mapping


def _array_call(real: Callable[..., Any], injector: Injector) -> Callable[..., Any]:
    @functools.wraps(real)
    def call(*arguments: Any, **options: Any) -> Any:
        if is_ours():
            injector.check("memory:array")
        return real(*arguments, **options)

    return call


def _thread_start(real: Callable[[threading.Thread], None], injector: Injector) -> Callable[[threading.Thread], None]:
    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("ooc_chol"):
            injector.check("thread:start")
        real(thread)

    return start
