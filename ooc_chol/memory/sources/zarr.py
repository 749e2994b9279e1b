"""A as an array of Zarr, in a local folder or in object storage, read by slices from several threads."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from copy import copy
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import MissingPackageError, OocCholError, TierError
from ooc_chol.extras import install_hint
from ooc_chol.files.inputs import check_regular
from ooc_chol.files.object_folders import first_line, object_address
from ooc_chol.files.positional_io import file_errors_typed
from ooc_chol.files.zarr_names import is_zarr, local_path
from ooc_chol.memory.sources.base import AbstractSource, check_dtype, check_shape
from ooc_chol.memory.sources.behind import files_behind
from ooc_chol.memory.sources.chunks import ChunkGrid
from ooc_chol.memory.sources.numbers import put_numbers
from ooc_chol.process.address_space import guarded_imports

#: Names of arrays that a message lists at most.
_MOST_NAMES = 12
#: What describes arrays and groups, and the most bytes of it; the most bytes of a chunk for each of its entries', and beside.
_DOCUMENTS, _MOST_DOCUMENT = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"), 1 << 26
_MOST_GROWTH, _MOST_BESIDE = 4, 1 << 20


@final
class ZarrSource(AbstractSource):
    """An open array of Zarr. Its pickle is the array's: its place and what describes it, none of its entries.

    A slice is a temporary array of the tile's size outside of every budget. Chunks that are aligned with the tiles are read once
    each. A chunk that the array does not have is its fill value, as everywhere in Zarr.
    """

    name = "slices"
    sampled_by = "block"

    def __init__(self, array: Any) -> None:
        self._array = array
        self._what = f"the Zarr array {array.store_path}"
        self.n = check_shape(tuple(array.shape), self._what)
        self.dtype = np.dtype(array.dtype)
        check_dtype(self.dtype, self._what)
        self.bytes_per_entry = self.dtype.itemsize
        self._chunks = _chunk_shape(array)
        # Memory of this process is in no other one, whatever its pickle holds.
        self.is_shared = "Memory" not in type(array.store).__name__

    @property
    def files(self) -> tuple[str, ...]:
        """The folder of the array, if it is a local one: paths of other stores are none here."""
        is_elsewhere = type(self._array.store).__name__ in ("FsspecStore", "ObjectStore")
        return () if is_elsewhere else files_behind(self._array)

    def transposed(self) -> ZarrSource:
        """The same array, whose slices are turned once they are there."""
        other = copy(self)
        other.is_transposed = not self.is_transposed
        return other

    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        """Read one slice and copy it."""
        put_numbers(self._slice(cols, rows).T if self.is_transposed else self._slice(rows, cols), out)

    def chunk_grid(self) -> ChunkGrid | None:
        """Chunks whose keys the store lists; of those within a shard nothing is known."""
        if self._chunks is None or (keys := _keys_of(self._array)) is None:
            return None
        counts = [-(-self.n // width) for width in self._chunks]
        is_there = np.array([[self._key(i, j) in keys for j in range(counts[1])] for i in range(counts[0])], bool)
        return ChunkGrid(self._chunks, is_there.reshape(counts), lambda i, j: f"the chunk {self._key(i, j)} of {self._what}")

    def _key(self, i: int, j: int) -> str:
        """Key of a chunk within the array."""
        return str(self._array.metadata.encode_chunk_key((i, j)))

    def _check_files(self, rows: range, cols: range) -> None:
        """Refuse chunks of a local array that are devices or pipes, whose reading might never end, or far too large."""
        folder = _local_folder(self._array)
        if self._chunks is None or folder is None:
            return
        height, width = self._chunks
        most = _MOST_GROWTH * height * width * self.dtype.itemsize + _MOST_BESIDE
        for i in range(rows.start // height, -(-rows.stop // height)):
            for j in range(cols.start // width, -(-cols.stop // width)):
                _check_chunk(os.path.join(folder, self._key(i, j)), most)

    def _slice(self, rows: range, cols: range) -> NDArray[Any]:
        """One slice of the array itself."""
        self._check_files(rows, cols)
        try:
            return np.asarray(self._array[rows.start : rows.stop, cols.start : cols.stop])
        except (OocCholError, MemoryError):
            raise
        except Exception as error:  # codecs and clients of object storage have errors of their own
            place = f"[{rows.start}:{rows.stop}, {cols.start}:{cols.stop}]"
            text = f"{self._what} could not be read in {place} ({first_line(error)})"
            raise TierError(f"{text}; check that its chunks are whole, and the way to them") from error


def zarr_array(a: Any) -> Any:
    """The array of Zarr that ``a`` is or names, open for reading; None for anything else."""
    zarr: Any = sys.modules.get("zarr")
    if zarr is not None and isinstance(a, getattr(zarr, "Array", ())):
        return a
    if zarr is not None and isinstance(a, getattr(zarr, "Group", ())):
        group: Any = a
        return _only_matrix(group, str(group.store_path))
    return _opened(a) if isinstance(a, str | os.PathLike) and is_zarr(a) else None


def _opened(place: str | os.PathLike[str]) -> Any:
    """The array of that name, or the only matrix of the group of that name."""
    name = os.fspath(place)
    try:
        with guarded_imports(blas=False):
            import zarr
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"{name} is read by Zarr, which is not installed: {install_hint('cluster')}") from error
    store = _store(name)
    if isinstance(store, str):
        _check_documents(store)
    try:
        found = zarr.open(store=store, mode="r")
    except (FileNotFoundError, KeyError) as error:
        raise FileNotFoundError(2, "there is no array or group of Zarr", name) from error
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # what describes it makes no sense, or clients of object storage have errors of their own
        text = f"{name} cannot be opened as Zarr ({first_line(error)}); check the name, and the way to it"
        raise TierError(text) from error
    return _only_matrix(found, name) if isinstance(found, zarr.Group) else found


def _check_documents(folder: str) -> None:
    """Refuse a local array, or a group and its members, of which a description is a device or a pipe, or far too large."""
    with suppress(FileNotFoundError, NotADirectoryError), file_errors_typed(folder, "looking at it"):
        folders = [folder, *(entry.path for entry in os.scandir(folder) if entry.is_dir())]
        for path in (os.path.join(each, name) for each in folders for name in _DOCUMENTS):
            with suppress(FileNotFoundError):
                check_regular(path, _MOST_DOCUMENT)


def _check_chunk(path: str, most_bytes: int) -> None:
    """Refuse a chunk that is no regular file, or far too large; one that is missing has the fill value."""
    try:
        with file_errors_typed(path, "looking at it"):
            check_regular(path, most_bytes)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise TierError(f"{path} is a link to nothing: bring back what it led to, or remove it") from None


def _chunk_shape(array: Any) -> tuple[int, int] | None:
    """Rows and columns of what the store has an object for; None where they are not all equal."""
    try:
        height, width = array.shards or array.chunks
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    return int(height), int(width)


def _local_folder(array: Any) -> str | None:
    """The folder of an array of a local store; None of any other."""
    if type(array.store).__name__ != "LocalStore":
        return None
    return os.path.join(os.fspath(array.store.root), str(array.path))


def _keys_of(array: Any) -> set[str] | None:
    """The keys of all objects of an array; None where its store does not list them."""
    if (folder := _local_folder(array)) is not None:
        return {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names}
    if not array.store.supports_listing:
        return None
    with guarded_imports(blas=False):
        from zarr.core.sync import sync  # the loop in which clients of object storage live

    prefix = f"{array.path}/" if array.path else ""

    async def listed() -> set[str]:
        return {key.removeprefix(prefix) async for key in array.store.list_prefix(prefix)}

    try:
        return sync(listed())
    except Exception as error:  # clients of object storage have errors of their own
        text = f"the Zarr array {array.store_path} could not be listed ({first_line(error)})"
        advice = "check the credentials, or give lower=True or lower=False, for which that is not needed"
        raise TierError(f"{text}; {advice}") from error


def _store(name: str) -> Any:
    """Store or path from which Zarr opens an array of that name."""
    if (path := local_path(name)) is not None:
        return path
    address = object_address(name.rstrip("/"))
    with guarded_imports(blas=False):
        import zarr.storage

    if address.obstore is not None:
        return zarr.storage.ObjectStore(address.obstore, read_only=True)
    return zarr.storage.FsspecStore.from_url(name.rstrip("/"), read_only=True)


def _only_matrix(group: Any, name: str) -> Any:
    """The only array of two axes in a group."""
    if "ooc_chol" in group.attrs:
        raise ValueError(f"{name} is a factor of ooc_chol, not a matrix: open it with ooc_chol.load")
    try:
        arrays = dict(group.arrays())
    except (OocCholError, MemoryError):
        raise
    except Exception as error:  # as above: what describes one of them makes no sense
        raise TierError(f"{name}: the arrays of this group cannot be opened ({first_line(error)}); name one of them") from error
    matrices = [found for found, array in arrays.items() if array.ndim == 2]
    if len(matrices) == 1:
        return arrays[matrices[0]]
    named = [f"{found} {tuple(array.shape)}" for found, array in sorted(arrays.items())]
    more = f" and {len(named) - _MOST_NAMES} more" if len(named) > _MOST_NAMES else ""
    held = f"has the arrays {', '.join(named[:_MOST_NAMES])}{more}" if named else "has no arrays"
    raise ValueError(f"{name} is a group of Zarr that {held}; name one square array, such as {name.rstrip('/')}/NAME")
