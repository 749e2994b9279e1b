"""The files behind a matrix that was given as an array or an open object, as far as they can be known."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What Linux adds to the name of a mapped file that was removed.
_REMOVED = b" (deleted)"


def files_behind(a: Any) -> tuple[str, ...]:
    """Paths of the files that ``a`` is read from, as far as ``a`` and the system tell."""
    if isinstance(a, np.ndarray):
        return _mapped_file(a)
    with suppress(AttributeError, TypeError, ValueError):  # ValueError: an h5py file that is closed
        return (str(a.file.filename),)  # h5py
    with suppress(AttributeError, TypeError, RuntimeError):  # RuntimeError: a netCDF4 file that is closed
        return (str(a.group().filepath()),)  # netCDF4
    return ()


def _mapped_file(a: NDArray[Any]) -> tuple[str, ...]:
    """The file whose map holds the first entry of ``a``: the system knows it, also of views and of maps not made by NumPy."""
    root = a
    while isinstance(root.base, np.ndarray):
        root = root.base
    if root.flags.owndata:  # NumPy allocated it: no need to ask the system, whose list may have thousands of lines
        return ()
    address = a.ctypes.data
    try:
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                first, _, rest = line.partition(b"-")
                last, _, rest = rest.partition(b" ")
                if int(first, 16) <= address < int(last, 16):
                    return _file_of(rest)
    except OSError:
        pass
    return ()


def _file_of(line: bytes) -> tuple[str, ...]:
    """The file of one mapping: permissions, offset, device, inode, and a name that may have spaces."""
    _, _, _, inode, *name = line.rstrip(b"\n").split(maxsplit=4)
    if inode == b"0" or not name or name[0].endswith(_REMOVED):
        return ()
    return (os.fsdecode(name[0]),)
