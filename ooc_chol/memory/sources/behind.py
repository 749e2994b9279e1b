"""The files behind a matrix that was given as an array or an open object, as far as they can be known."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What Linux adds to the name of a mapped file that was removed.
_REMOVED = " (deleted)"


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
    address = a.ctypes.data
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                # start-end permissions offset device inode name
                span, _, _, _, inode, *name = line.rstrip("\n").split(maxsplit=5)
                first, last = (int(end, 16) for end in span.split("-"))
                if first <= address < last:
                    return (name[0],) if inode != "0" and name and not name[0].endswith(_REMOVED) else ()
    except OSError:
        pass
    return ()
