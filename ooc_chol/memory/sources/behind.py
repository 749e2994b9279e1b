"""The files behind a matrix that was given as an array or an open object, as far as they can be known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What Linux adds to the name of a mapped file that was removed.
_REMOVED = b" (deleted)"


def files_behind(a: Any) -> tuple[str, ...]:
    """Paths of the files, or folders of files, that ``a`` is read from, as far as ``a`` and the system tell."""
    if isinstance(a, np.ndarray):
        return _mapped_file(a)
    for ask in (_of_h5py, _of_netcdf4, _of_zarr, _of_xarray, _of_wrapper, _of_graph):
        # The names are those of other packages: what lacks them is not theirs. An object of h5py or netCDF4 that is closed
        # raises ValueError or RuntimeError.
        with suppress(AttributeError, TypeError, ValueError, RuntimeError):
            if files := tuple(dict.fromkeys(ask(a))):
                return files
    return ()


def _of_h5py(a: Any) -> Iterator[str]:
    """The file of a data set of h5py, and those that its virtual or external parts lie in."""
    file = os.fsdecode(a.file.filename)
    yield file
    parts = [part.file_name for part in a.virtual_sources()] if a.is_virtual else []
    for name in [*parts, *(name for name, _, _ in a.external or ())]:
        # Taken from the file's own folder or from the working one, whichever has it.
        yield from (os.path.join(os.path.dirname(file), os.fsdecode(name)), os.fsdecode(name))


def _of_netcdf4(a: Any) -> Iterator[str]:
    yield str(a.group().filepath())


def _of_zarr(a: Any) -> Iterator[str]:
    """The folder or the zip file of an array of Zarr, of version 2 or 3; stores elsewhere have neither."""
    store = a.store
    place = getattr(store, "root", None) or store.path
    if isinstance(place, str | os.PathLike):
        yield os.fspath(place)


def _of_xarray(a: Any) -> Iterator[str]:
    """The file that xarray opened, and what lies behind arrays that it wraps."""
    source = a.encoding.get("source")
    if isinstance(source, str):
        yield source
    yield from files_behind(a.variable._data)


def _of_wrapper(a: Any) -> Iterator[str]:
    """Files behind the array within an array, such as those in which xarray wraps what it reads later."""
    yield from files_behind(a.array if hasattr(a, "array") else a.get_array())


def _of_graph(a: Any) -> Iterator[str]:
    """Files behind the arrays in the graph of a Dask array."""
    for node in dict(a.__dask_graph__()).values():
        held = getattr(node, "value", node)  # later versions wrap what is no task
        if hasattr(held, "shape") and not hasattr(held, "__dask_graph__"):
            yield from files_behind(held)


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
    except OSError:  # a system without that list: NumPy's own maps know their files
        name = getattr(root, "filename", None)
        return () if name is None else (os.fspath(name),)
    return ()


def _file_of(line: bytes) -> tuple[str, ...]:
    """The file of one mapping: permissions, offset, device, inode, and a name that may have spaces."""
    _, _, _, inode, *name = line.rstrip(b"\n").split(maxsplit=4)
    if inode == b"0" or not name or name[0].endswith(_REMOVED):
        return ()
    return (os.fsdecode(name[0]),)
