"""The tiers that hold L, and the one in a file: written under another name until it is complete, then only read."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.stores.array import MemoryStore, OverwriteStore
from ooc_chol.dense.stores.base import AbstractStore, check_stored, check_tile, closed_error
from ooc_chol.dense.stores.header import FACTOR_FILES, MAGIC, FileHeader, read_header
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.errors import OutputError, TierError
from ooc_chol.formats import FP64, Floats, PrecisionFormat, decode, encode
from ooc_chol.interfaces import BlockIndex
from ooc_chol.memory.access import AbstractAccess, CachedAccess, opened_access
from ooc_chol.memory.files import preallocate, tile_bytes, write_error, write_fully
from ooc_chol.outputs import Output, check_outputs, create_new, permissions, refuse_strangers
from ooc_chol.tasks.tiling import TileGrid

__all__ = ["AbstractStore", "FileStore", "MemoryStore", "OverwriteStore"]

#: What a file system answers that does not have locks, or no flushing of folders.
_CANNOT = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)

#: All stores in files, so that no factor is saved over the file of another one by mistake. Without a lock, which a fork in
#: another thread would leave locked in the child: an item is set, and ``valuerefs`` makes its list, in one step each.
_stores: weakref.WeakValueDictionary[int, FileStore] = weakref.WeakValueDictionary()


@final
class FileStore(AbstractStore):
    """L in a file; made by :meth:`create` or :meth:`open`.

    Tiles move by ``pread`` and ``pwrite`` on one descriptor, from any number of threads: no mapping, so that pages of the file do
    not count as memory of the process. A read sees an earlier write of the same process at once, hence ``ordered_by_events``.
    Closing while another thread reads or writes is the caller's mistake.
    """

    name = "file"
    ordered_by_events = True
    writes_file = True

    def __init__(self, path: str, descriptor: int, header: FileHeader) -> None:
        self.path = path
        self.header = header
        self.grid, self.fmt = header.grid, header.fmt
        self._descriptor: int | None = descriptor
        self._access: AbstractAccess = CachedAccess(descriptor)
        status = os.fstat(descriptor)
        self._identity = status.st_dev, status.st_ino
        self._may_replace = False
        _stores[id(self)] = self

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        grid: TileGrid,
        arithmetic_key: Mapping[str, Any] | None = None,
        formats: Sequence[PrecisionFormat] | None = None,
        *,
        fmt: PrecisionFormat = FP64,
        replace: bool = False,
        bounded: bool = False,
    ) -> FileStore:
        """Create ``path + ".partial"`` at its full size, for writing; :meth:`complete` gives it its name.

        Until then, of a ``bounded`` one no pages stay in the system's cache.
        """
        final_path = os.path.realpath(path)
        header = FileHeader(grid, arithmetic_key or {}, formats=None if formats is None else tuple(formats), fmt=fmt)
        first_bytes = header.encode()
        check_outputs([Output("", path, FACTOR_FILES)], replace=replace)
        store = cls(final_path, _create_locked(final_path + ".partial", permissions(final_path)), header)
        store._may_replace = replace
        try:
            # The header comes first, so that what a killed run leaves is known for an unfinished factor.
            write_fully(store._open_descriptor(), first_bytes, 0, store.partial_path)
            preallocate(store._open_descriptor(), header.layout.end, store.partial_path)
            store._access = opened_access(store._open_descriptor(), bounded=bounded)
        except BaseException:
            store.discard()
            raise
        return store

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> FileStore:
        """Open a complete file for reading."""
        name = os.path.realpath(path)
        descriptor = os.open(name, os.O_RDONLY)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TierError(f"{name}: no ordinary file; load reads what save or store= wrote")
            return cls(name, descriptor, read_header(descriptor, name))
        except BaseException:
            os.close(descriptor)
            raise

    def is_there(self) -> bool:
        """Whether the file is complete and its name still leads to it."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return self.header.complete and (status.st_dev, status.st_ino) == self._identity

    @property
    def partial_path(self) -> str:
        """Name of the file until it is complete."""
        return self.path + ".partial"

    @property
    def nbytes(self) -> int:
        """Size of the file, header included."""
        return self.layout.end

    @property
    def layout(self) -> TileLayout:
        """Where the tiles lie in the file."""
        return self.header.layout

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        """Format of every tile in packed order, as it is now; None when all are of :attr:`fmt`."""
        return self.layout.present_formats

    def reads_file(self, index: BlockIndex) -> bool:
        """Always: no tile is elsewhere."""
        return True

    def view(self, index: BlockIndex) -> None:
        """None: tiles of a file must be read."""
        return None

    def read(self, index: BlockIndex, out: Floats) -> None:
        """Fill ``out`` with tile ``index``."""
        self.read_rows(index, range(self.grid.size(index[0])), out)

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        """Fill ``out`` with rows ``rows`` of tile ``index``, which are contiguous in the file.

        Notes
        -----
        Entries that are stored in another type than ``out``'s pass through as many bytes of memory as they have in the file.
        """
        fmt, columns = self.format_of(index), self.grid.size(index[1])
        check_tile(out, (len(rows), columns), fmt, self.fmt)
        first = self.layout.offset(*index) + rows.start * columns * fmt.itemsize
        if out.dtype == fmt.dtype:
            self._read_at(first, tile_bytes(out))
            return
        # These rows and the exponent of their tile are a stored tile themselves.
        stored = np.empty(fmt.stored_bytes(out.size), dtype=np.uint8)
        self._read_at(first, stored[: out.size * fmt.itemsize].data)
        if fmt.top is not None:
            exponent = self.layout.offset(*index) + fmt.scale_offset(self.grid.entries(*index))
            self._read_at(exponent, stored[fmt.scale_offset(out.size) :].data)
        decode(stored, fmt, slice(0, out.size), out)

    def write(self, index: BlockIndex, data: Floats) -> None:
        """Write ``data`` as tile ``index``, rounded to its format."""
        fmt = self.format_of(index)
        check_tile(data, self.grid.shape(*index), fmt, self.fmt)
        if data.dtype == fmt.dtype:
            self._write_tile(index, tile_bytes(data))
            return
        stored = np.zeros(fmt.stored_bytes(data.size), dtype=np.uint8)
        encode(data, fmt, stored)
        self._write_tile(index, stored.data)

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        """Fill ``out`` with the stored bytes of tile ``index``."""
        check_stored(out, self.layout.nbytes(*index))
        self._read_at(self.layout.offset(*index), out.data)

    def write_stored(self, index: BlockIndex, data: NDArray[np.uint8]) -> None:
        """Write ``data`` as the stored bytes of tile ``index``."""
        check_stored(data, self.layout.nbytes(*index))
        self._write_tile(index, data.data)

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Store these tiles in FP64 from now on, behind the end of the file."""
        if self.header.complete:
            raise TierError(f"{self.path}: tiles cannot be widened, the factor in this file is complete")
        header = replace(self.header, widened=self.layout.with_wider(tiles).widened)
        added = header.layout.end - self.layout.end
        if added:
            preallocate(self._open_descriptor(), added, self.partial_path, start=self.layout.end)
        self.header = header

    def _read_at(self, offset: int, buffer: memoryview) -> None:
        self._open_descriptor()
        self._access.read(buffer, offset, self._current_path())

    def _write_tile(self, index: BlockIndex, buffer: memoryview) -> None:
        if self.header.complete:
            raise TierError(f"{self.path}: tile {tuple(index)} cannot be written, the factor in this file is complete")
        self._open_descriptor()
        self._access.write(buffer, self.layout.offset(*index), self.partial_path)

    def describe(self, arithmetic_key: Mapping[str, Any]) -> None:
        """Let the header say this key once the file is complete."""
        self.header = replace(self.header, arithmetic_key=dict(arithmetic_key))

    def complete(self) -> None:
        """Flush the tiles, then mark the header complete, then give the file its name; a second call does nothing."""
        if self.header.complete:
            return
        descriptor = self._open_descriptor()
        header = replace(self.header, complete=True)
        try:
            # 1. All tiles are on the disk. 2. The header says so. 3. The name says so. A crash between two leaves no false claim.
            os.fsync(descriptor)
            write_fully(descriptor, header.encode(), 0, self.partial_path)
            os.fsync(descriptor)
            stranger = self._stranger()
            name = self.path if stranger is None else f"{self.path}-{os.urandom(4).hex()}"
            os.replace(self.partial_path, name)
        except TierError:
            raise
        except OSError as error:
            raise write_error(self.path, "the finished factor", error) from error
        # From here on another run may have a file of the partial name, which is not this one's to remove.
        self.path, self.header = name, header
        self._cache_again(descriptor)
        _sync_directory(self.path)
        if stranger is not None:
            text = f"{stranger.path} has come to be there meanwhile, and is not replaced; the finished factor is in {name}"
            raise OutputError(f"{text}: load it from there, or rename it", stranger.option, stranger.path) from stranger

    def _cache_again(self, descriptor: int) -> None:
        """Read by way of the cache from now on: whoever solves reads all tiles again and again."""
        access, self._access = self._access, CachedAccess(descriptor)
        access.close()

    @property
    def access(self) -> str:
        """How tiles are read and written now: ``"cached"``, ``"direct"`` or ``"cache dropped behind"``."""
        return self._access.name

    def _stranger(self) -> OutputError | None:
        """Why the file cannot have its name any more: another one has come to have it since it was created."""
        try:
            refuse_strangers(Output("store", self.path, FACTOR_FILES), self.path, replace=self._may_replace)
        except OutputError as error:
            return error
        return None

    def discard(self) -> None:
        """Close the file; remove it unless it is complete.

        Notes
        -----
        What the disk has to say of a file that is thrown away is of no interest: the error that led here goes on.
        """
        with suppress(OSError):
            if self._descriptor is not None and not self.header.complete:
                os.unlink(self.partial_path)
        with suppress(OSError):
            self.close()

    def close(self) -> None:
        """Close the file; one that is not complete keeps its partial name. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                self._access.close()
                os.close(descriptor)
            except OSError as error:
                raise TierError(
                    f"{self._current_path()}: closing the file failed: {error.strerror}; check the disk, and that the file loads"
                ) from error

    def __del__(self) -> None:
        # Not discarded: in a process that was forked this may be a copy of a store that the parent goes on with.
        if getattr(self, "_descriptor", None) is not None:
            try:
                text = f"{self._current_path()} was never closed; call close() of its factor, or use `with`"
                warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
            finally:
                self.close()

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise closed_error(self.name)
        return self._descriptor

    def _current_path(self) -> str:
        return self.path if self.header.complete else self.partial_path


def is_open(path: str | os.PathLike[str], but: AbstractStore) -> bool:
    """Whether a store other than ``but`` has the file at ``path`` open, in this process."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    stores = [reference() for reference in _stores.valuerefs()]
    others = [store for store in stores if store is not None and store is not but and store._descriptor is not None]
    return (status.st_dev, status.st_ino) in [store._identity for store in others]


def _create_locked(path: str, mode: int | None) -> int:
    """Create ``path`` with these permissions and lock it against other runs; what a killed run left there is removed first."""
    while True:
        try:
            descriptor = create_new(path, mode)
        except FileExistsError:
            _remove_unfinished(path)
            continue
        except OSError as error:
            raise TierError(
                f"{path}: cannot create the file: {error.strerror}; check that its folder exists and is writable"
            ) from error
        try:
            if _lock(descriptor, path):
                if mode is not None:
                    os.fchmod(descriptor, mode)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _remove_unfinished(path: str) -> None:
    """Remove what a killed run left at ``path``; refuse what no run can have left there, and what a run is writing."""
    try:
        # Neither through a link, nor waiting for the other end of a FIFO.
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _in_the_way(path, "a symbolic link" if os.path.islink(path) else str(error.strerror)) from error
    try:
        if not _lock(descriptor, path):
            return
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.pread(descriptor, len(MAGIC), 0) not in (b"", MAGIC):
            raise _in_the_way(path, "no file of ooc_chol")
        os.unlink(path)
    finally:
        os.close(descriptor)


def _in_the_way(path: str, what: str) -> TierError:
    """The error for something strange that has the name of the unfinished file."""
    return TierError(
        f"{path}: the factor has this name until it is complete, but something else is there ({what}); remove it, or choose "
        "another name for the factor"
    )


def _lock(descriptor: int, path: str) -> bool:
    """Lock the open file; False when ``path`` no longer names it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise TierError(f"{path}: another run is writing this file; wait for it, or choose another name") from error
    except OSError as error:
        if error.errno not in _CANNOT:  # a file system without locks only loses this guard
            raise TierError(f"{path}: cannot lock the file: {error.strerror}; check the disk") from error
    # Between our open and our lock: 1. the other run completes, 2. it renames this very file, 3. it closes it. Emptying it then
    # would destroy its finished factor, so the name must still lead to the file that we locked.
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sync_directory(path: str) -> None:
    """Make the name of a file in its folder durable."""
    try:
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:  # a file system that cannot flush folders orders renames itself
            raise TierError(
                f"{path}: the factor is complete and load opens it, but its folder could not be flushed: {error.strerror}; a "
                "power failure now may take the name away: check the disk"
            ) from error
