"""The tiers that hold L, and the one in a file: written under another name until it is complete, then only read."""

from __future__ import annotations

import errno
import os
import stat
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.stores.array import MemoryStore, OverwriteStore
from ooc_chol.dense.stores.base import AbstractStore, check_stored, check_tile, closed_error
from ooc_chol.dense.stores.checked_tiles import CheckedTiles, OpenFile, TileStates
from ooc_chol.dense.stores.header import COPY_MAGIC, FACTOR_FILES, UNFINISHED, FileHeader
from ooc_chol.dense.stores.header_reading import NothingToGoOnFromError, read_header, read_unfinished_header
from ooc_chol.dense.stores.kept import AbstractKeptStore
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.errors import DamagedFileError, OutputError, TierError
from ooc_chol.files.access import AbstractAccess, CachedAccess, opened_access
from ooc_chol.files.inputs import check_name
from ooc_chol.files.outputs import Output, check_outputs, permissions, why_not_replaced, write_error
from ooc_chol.files.positional_io import file_errors_typed, preallocate, tile_bytes, write_fully
from ooc_chol.files.unfinished import create_locked, forget_created, open_locked, sync_directory
from ooc_chol.formats import FP64, SCALE_BYTES, Floats, PrecisionFormat, decode, encode
from ooc_chol.interfaces import BlockIndex
from ooc_chol.process.forks import refuse_in_child
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.process.team import ThreadTeam
from ooc_chol.tasks.tiling import TileGrid

#: Largest magnitude of the exponent of a tile: those of the least and of the largest float64 are below 1100.
_LARGEST_EXPONENT = 4096

__all__ = ["AbstractStore", "FileStore", "MemoryStore", "OverwriteStore"]

#: All stores in files, so that no factor is saved over the file of another one by mistake. Without a lock, which a fork in
#: another thread would leave locked in the child: an item is set, and ``valuerefs`` makes its list, in one step each.
_stores: weakref.WeakValueDictionary[int, FileStore] = weakref.WeakValueDictionary()


@final
class FileStore(AbstractKeptStore):
    """L in a file; made by :meth:`create`, :meth:`open` or :meth:`open_unfinished`.

    Tiles move by ``pread`` and ``pwrite``, from any number of threads: no mapping, so that pages of the file do not count as
    memory of the process. Past the system's cache (:meth:`keep_out_of_cache`) they do so on a second descriptor. A read sees an
    earlier write of the same process at once, hence ``ordered_by_events``.
    Every tile is hashed as it is written and checked as it is read, but in files of versions 1 to 3, which have no checksums.
    Closing while another thread reads or writes is the caller's mistake.
    """

    name = "file"
    header: FileHeader

    def __init__(self, path: str, descriptor: int, header: FileHeader) -> None:
        self.path = path
        self.header = header
        self.grid, self.fmt = header.grid, header.fmt
        self._access: AbstractAccess = CachedAccess(descriptor)
        status = os.fstat(descriptor)
        #: Tiles with their checksums; None in a file of a version that has none.
        self._checked = CheckedTiles(header) if header.has_checksums else None
        self._identity = status.st_dev, status.st_ino
        self._may_replace = False
        self._written_at: dict[tuple[int, int], float] = {}
        self._process = os.getpid()
        #: From here on it is the store's to close: until then that of who opened it.
        self._descriptor: int | None = descriptor
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
        checkpoint: Mapping[str, Any] | None = None,
    ) -> FileStore:
        """Create ``path + ".partial"`` at its full size, for writing; :meth:`complete` gives it its name.

        ``checkpoint`` is a JSON object of at most 16 KiB that :meth:`open_unfinished` finds again. Interrupts wait until the
        store is made; who calls holds them (:class:`HeldInterrupts`) until it is somebody's to discard.
        """
        check_name(path)
        final_path = os.path.realpath(path)
        tile_formats = None if formats is None else tuple(formats)
        header = FileHeader(grid, arithmetic_key or {}, formats=tile_formats, fmt=fmt, checkpoint=checkpoint)
        first_bytes = header.encode() + header.encode(COPY_MAGIC)
        check_outputs([Output("", path, FACTOR_FILES)], replace=replace)
        partial = final_path + ".partial"
        with HeldInterrupts() as held, file_errors_typed(partial, "creating it"):
            descriptor = create_locked(partial, permissions(final_path), UNFINISHED)
            try:
                store = cls(final_path, descriptor, header)
            except BaseException:
                forget_created(descriptor, partial)
                raise
            store._may_replace = replace
            try:
                # The header comes first, so that what a killed run leaves is known for an unfinished factor.
                write_fully(descriptor, first_bytes, 0, partial)
                preallocate(descriptor, header.layout.end, partial)
                held.check()
            except BaseException:
                store.discard()
                raise
            return store

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> FileStore:
        """Open a complete file for reading."""
        name = os.path.realpath(check_name(path))
        with file_errors_typed(name, "opening it"):
            descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK)  # never waiting for the other end of a FIFO
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise TierError(f"{name}: no ordinary file; load reads what save or store= wrote")
                return cls._over(name, descriptor, read_header(descriptor, name))
            except BaseException:
                with suppress(OSError):  # what went wrong first is to be seen
                    os.close(descriptor)
                raise

    @classmethod
    def open_unfinished(cls, path: str | os.PathLike[str], *, replace: bool = False) -> FileStore:
        """Open the ``path + ".partial"`` of a run that was ended, locked, to go on writing it.

        Which of its tiles are there :meth:`verify_tiles` says. A file that was complete but for its name is open for writing too.
        Raises ``FileNotFoundError``, ``DamagedFileError`` and ``TierError``.
        """
        final_path = os.path.realpath(path)
        partial = final_path + ".partial"
        with file_errors_typed(partial, "opening it"):
            descriptor = open_locked(partial, UNFINISHED)
            try:
                if not os.fstat(descriptor).st_size:
                    raise FileNotFoundError(errno.ENOENT, "nothing is in it", partial)
                header = with_fields(read_unfinished_header(descriptor, partial), complete=False, index_hash=None)
                missing = header.layout.end - os.fstat(descriptor).st_size
                if missing > 0:
                    preallocate(descriptor, missing, partial, start=header.layout.end - missing)
                store = cls._over(final_path, descriptor, header)
                store._may_replace = replace
            except BaseException:
                with suppress(OSError):  # what went wrong first is to be seen
                    os.close(descriptor)
                raise
            return store

    @staticmethod
    def checkpoint_at(path: str | os.PathLike[str]) -> str | None:
        """Name of the unfinished file of ``path`` where that is a checkpoint; None where there is none to go on from.

        Raises ``TierError``: another run is writing it, or it cannot be read, so that nobody knows what it is.
        """
        partial = os.path.realpath(path) + ".partial"
        try:
            with file_errors_typed(partial, "opening it"):
                descriptor = open_locked(partial, UNFINISHED)
                try:
                    is_kept = read_unfinished_header(descriptor, partial).checkpoint is not None
                finally:
                    os.close(descriptor)
        except (FileNotFoundError, DamagedFileError, NothingToGoOnFromError):
            return None
        return partial if is_kept else None

    @classmethod
    def _over(cls, path: str, descriptor: int, header: FileHeader) -> FileStore:
        """The store over an open file, its index of checksums read."""
        store = cls(path, descriptor, header)
        try:
            if store._checked is not None:
                store._checked.load_index(OpenFile(descriptor, store._current_path(), store._access), header)
        except BaseException:
            store._descriptor = None  # it is the caller's to close
            raise
        return store

    def is_there(self) -> bool:
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return self.header.complete and (status.st_dev, status.st_ino) == self._identity

    @property
    def partial_path(self) -> str:
        return self.path + ".partial"

    @property
    def layout(self) -> TileLayout:
        return self.header.layout

    def read_unchecked(self, index: BlockIndex, out: Floats) -> Callable[[], None] | None:
        """Fill ``out`` with tile ``index``; one that needs no conversion is left to be checked by what is returned."""
        if self._checked is None or out.dtype != self.format_of(index).dtype:
            self.read(index, out)
            return None
        check_tile(out, self.grid.shape(*index), self.format_of(index), self.fmt)
        file, layout, data = self._open_file(), self.layout, tile_bytes(out)
        self._checked.read_unchecked(file, layout, index, data)
        return partial(self._checked.check, file, layout, index, data)

    def read_by(self, team: ThreadTeam, index: BlockIndex, out: Floats) -> None:
        """Fill ``out`` with tile ``index``, one of its own type by all threads of ``team``, each reading and checking pieces."""
        fmt = self.format_of(index)
        if self._checked is None or out.dtype != fmt.dtype:
            self.read(index, out)
            return
        check_tile(out, self.grid.shape(*index), fmt, self.fmt)
        self._checked.read(self._open_file(), self.layout, index, tile_bytes(out), team)

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        """Fill ``out`` with rows ``rows`` of tile ``index``, which are contiguous in the file.

        Entries that are stored in another type than ``out``'s pass through as many bytes of memory as they have in the file.
        """
        fmt, columns = self.format_of(index), self.grid.size(index[1])
        check_tile(out, (len(rows), columns), fmt, self.fmt)
        if out.dtype == fmt.dtype:
            self._read_part(index, rows.start * columns * fmt.itemsize, tile_bytes(out))
            return
        # These rows and the exponent of their tile are a stored tile themselves; all rows are the tile, which is read at once.
        stored = np.empty(fmt.stored_bytes(out.size), dtype=np.uint8)
        if out.size == self.grid.entries(*index):
            self._read_part(index, 0, stored.data)
        else:
            self._read_part(index, rows.start * columns * fmt.itemsize, stored[: out.size * fmt.itemsize].data)
            if fmt.top is not None:
                exponent = fmt.scale_offset(self.grid.entries(*index))
                self._read_part(index, exponent, stored[fmt.scale_offset(out.size) :].data)
        self._check_exponent(index, fmt, stored)
        decode(stored, fmt, slice(0, out.size), out)

    def write(self, index: BlockIndex, data: Floats) -> None:
        fmt = self.format_of(index)
        check_tile(data, self.grid.shape(*index), fmt, self.fmt)
        if data.dtype == fmt.dtype:
            self._write_tile(index, tile_bytes(data))
            return
        stored = np.zeros(fmt.stored_bytes(data.size), dtype=np.uint8)
        encode(data, fmt, stored)
        self._write_tile(index, stored.data)

    def _check_exponent(self, index: BlockIndex, fmt: PrecisionFormat, stored: NDArray[np.uint8]) -> None:
        """Refuse an exponent that no tile has, which only files without checksums can bring."""
        if fmt.top is not None and abs(exponent := int(stored[-SCALE_BYTES:].view(np.int64)[0])) > _LARGEST_EXPONENT:
            tile = int(index[0]), int(index[1])
            stop = self.layout.offset(*index) + self.layout.nbytes(*index)
            text = (
                f"{self._current_path()}: tile {tile} is damaged: it has the exponent {exponent}, bytes {stop - 8} to {stop - 1}"
            )
            advice = "copy the file again, or factor the matrix again"
            raise DamagedFileError(f"{text}; {advice}", self.path, tile=tile, first=stop - 8, stop=stop)

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        check_stored(out, self.layout.nbytes(*index))
        self._read_part(index, 0, out.data)

    def write_stored(self, index: BlockIndex, data: NDArray[np.uint8]) -> None:
        check_stored(data, self.layout.nbytes(*index))
        self._write_tile(index, data.data)

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Widen them behind the end of the file."""
        if self.header.complete:
            raise TierError(f"{self.path}: tiles cannot be widened, the factor in this file is complete")
        header = with_fields(self.header, widened=self.layout.with_wider(tiles).widened)
        added = header.layout.end - self.layout.end
        if added:
            preallocate(self._open_descriptor(), added, self.partial_path, start=self.layout.end)
        self.header = header

    def _read_part(self, index: BlockIndex, first: int, out: memoryview) -> None:
        """Fill ``out`` with stored bytes of a tile from ``first`` on, which are checked."""
        file, layout = self._open_file(), self.layout
        if self._checked is None:
            file.access.read(out, layout.offset(*index) + first, file.path)
        elif len(out) == layout.nbytes(*index):
            self._checked.read(file, layout, index, out)
        else:
            self._checked.read_part(file, layout, index, first, out)

    def _write_tile(self, index: BlockIndex, buffer: memoryview) -> None:
        if self.header.complete:
            raise TierError(f"{self.path}: tile {tuple(index)} cannot be written, the factor in this file is complete")
        self._writing().write(self._open_file(), self.layout, index, buffer)
        if self.keeps_unfinished:
            self._written_at[index[0], index[1]] = time.perf_counter()

    @property
    def has_checksums(self) -> bool:
        """True if tiles are checked as they are read; files of versions 1 to 3 have no checksums."""
        return self._checked is not None

    def verify_tiles(self, indices: Iterable[BlockIndex] | None = None, team: ThreadTeam | None = None) -> TileStates:
        """Read tiles, all by default, and compare them with their checksums; damage is no error.

        A MiB of memory for each thread. Raises ``TierError`` if the file is of a version without checksums, or closed.
        """
        return self._with_checksums().verify(self._open_file(), self.layout, indices, team)

    def damage(self, index: BlockIndex) -> list[tuple[int, int]]:
        """Spans of the file, first byte and the one behind the last, that hold the damage of a bad tile."""
        return self._with_checksums().damage(self._open_file(), self.layout, index)

    def flush_index(self) -> None:
        """Write the index of checksums to the file; each tile's own entry is there since the tile was written."""
        self._writing().flush_index(self._open_file())

    def keep_unfinished(self) -> None:
        if not self.header.complete:
            self.keeps_unfinished = True
            self._writing().withhold_pivots()

    def confirm(self, index: BlockIndex) -> None:
        if self.keeps_unfinished:
            self._writing().confirm(self._open_file(), self.layout, index)

    def forget(self, tiles: Iterable[tuple[int, int]]) -> None:
        if self.keeps_unfinished:
            self._writing().forget(self._open_file(), self.layout, tiles)
            self.flush()

    def flush(self) -> None:
        """Make durable what was written until now; a tile whose bytes or checksum are lost by a power cut counts as unwritten."""
        try:
            os.fdatasync(self._open_descriptor())
        except OSError as error:
            raise write_error(self._current_path(), "what was written until now", error) from error

    @property
    def is_closed(self) -> bool:
        return self._descriptor is None

    @property
    def n_written(self) -> int:
        return self._with_checksums().n_shown(self.layout)

    def _with_checksums(self) -> CheckedTiles:
        if self._checked is None:
            raise TierError(f"{self.path}: a file of version {self.header.version} has no checksums; load and save it anew")
        return self._checked

    def _writing(self) -> CheckedTiles:
        """The tiles of a file that is written, which has checksums."""
        assert self._checked is not None
        return self._checked

    def save_checkpoint(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Keep it in the header."""
        if self.header.complete:
            raise TierError(f"{self.path}: no checkpoint can be written, the factor in this file is complete")
        header = with_fields(self.header, checkpoint=checkpoint)
        try:
            self._write_header(header)
        except TierError:
            raise
        except OSError as error:
            raise write_error(self.partial_path, "the header", error) from error
        self.header = header

    def _write_header(self, header: FileHeader) -> None:
        """Write the copy of the header, then the header, each durable before anything else is written."""
        descriptor = self._open_descriptor()
        first, second = header.encode(COPY_MAGIC), header.encode()
        write_fully(descriptor, first, header.header_room, self.partial_path)
        os.fsync(descriptor)
        write_fully(descriptor, second, 0, self.partial_path)
        os.fsync(descriptor)

    def _completed_header(self) -> FileHeader:
        """The header of the file once it is complete, its index signed; TierError while tiles are missing."""
        checked = self._writing()
        missing = checked.unwritten(self.layout)
        if missing is not None:
            raise TierError(f"{self.partial_path}: tile {tuple(missing)} was never written; the factor is not complete")
        signed = checked.tables.index_hash(self.header.geometry())
        return with_fields(self.header, complete=True, index_hash=signed)

    def complete(self) -> None:
        """Flush the tiles, then mark the header complete, then give the file its name; a second call does nothing."""
        if self.header.complete:
            return
        refuse_in_child(self._process, f"the file {self.partial_path}")
        descriptor = self._open_descriptor()
        self._writing().release()
        header = self._completed_header()
        try:
            self.flush_index()
            # 1. All tiles are on the disk. 2. The header says so. 3. The name says so. A crash between two leaves no false claim.
            os.fsync(descriptor)
            self._write_header(header)
            refusal = why_not_replaced(Output("store", self.path, FACTOR_FILES), self.path, replace=self._may_replace)
            wanted, name = self.path, self.path if refusal is None else f"{self.path}-{os.urandom(4).hex()}"
            with HeldInterrupts():
                os.replace(self.partial_path, name)
                # From here on another run may have a file of the partial name, which is not this one's to remove.
                self.path, self.header = name, header
        except TierError:
            raise
        except OSError as error:
            raise write_error(self.path, "the finished factor", error) from error
        self._cache_again(descriptor)
        sync_directory(self.path, UNFINISHED)
        if refusal is not None:
            text = f"{wanted} {refusal}, and is not replaced; the finished factor is in {name}: load it from there, or rename it"
            raise OutputError(text, "store", wanted)

    def keep_out_of_cache(self) -> None:
        """Until the file is complete, let no tile stay in the system's cache, whose pages count against a budget."""
        if not self.header.complete:
            with file_errors_typed(self.partial_path, "opening it past the system's cache"):
                self._access = opened_access(self._open_descriptor())

    def _cache_again(self, descriptor: int) -> None:
        """Read by way of the cache from now on: whoever solves reads all tiles again and again."""
        access, self._access = self._access, CachedAccess(descriptor)
        with file_errors_typed(f"{self.path}: the factor is complete and load opens it", "closing its way past the cache"):
            access.close()

    @property
    def access(self) -> str:
        """How tiles are read and written now: ``"cached"``, ``"direct"`` or ``"cache dropped behind"``."""
        return self._access.name

    def discard(self) -> None:
        """Close the file; remove it unless it is complete.

        What the disk has to say of a file that is thrown away is of no interest: the error that led here goes on.
        """
        with suppress(OSError):
            is_ours = self._process == os.getpid()  # else it is that of the parent, which goes on with it
            if is_ours and self._descriptor is not None and not self.header.complete:
                os.unlink(self.partial_path)
        with suppress(OSError):
            self.close()

    def close(self) -> None:
        """Close the file; one that is not complete keeps its partial name. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                try:
                    self._access.close()
                finally:
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
                with suppress(TierError):  # nobody is there to hear it
                    self.close()

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise closed_error(self.name)
        return self._descriptor

    def _open_file(self) -> OpenFile:
        return OpenFile(self._open_descriptor(), self._current_path(), self._access)

    def _current_path(self) -> str:
        return self.path if self.header.complete else self.partial_path


def is_open(path: str | os.PathLike[str], but: AbstractStore | None) -> bool:
    """Tell whether a store other than ``but`` has the file at ``path`` open, in this process."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    stores = [reference() for reference in _stores.valuerefs()]
    others = [store for store in stores if store is not None and store is not but and store._descriptor is not None]
    return (status.st_dev, status.st_ino) in [store._identity for store in others]
