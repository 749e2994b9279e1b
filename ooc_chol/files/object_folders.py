"""Bytes by keys below one name, as Zarr keeps them: in a local folder, or in object storage by way of obstore or fsspec."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, final

from ooc_chol.errors import MissingPackageError, OocCholError, TierError
from ooc_chol.extras import install_hint
from ooc_chol.files.access import behind, drop_pages
from ooc_chol.files.outputs import write_error
from ooc_chol.files.positional_io import file_errors_typed, read_up_to
from ooc_chol.files.unfinished import Unfinished, create_locked, forget_created
from ooc_chol.files.zarr_names import local_path
from ooc_chol.process.address_space import check_room, guarded_imports
from ooc_chol.process.interrupts import HeldInterrupts

#: Ending of a local file until it is complete, behind 16 digits that nobody else has: what a killed process leaves of one.
_UNFINISHED = ".part"
_LEFT = re.compile(r"(.+)\.[0-9a-f]{16}\.part")
#: Name of the file by which a run locks a local folder, and what that is; empty, and there as long as the run writes.
LOCK = ".ooc_chol.lock"
_LOCKED = Unfinished(b"\0", "lock of a Zarr group", "", "group")
#: Schemes that obstore reaches by itself, in whose place fsspec needs a package for each.
_BY_OBSTORE = frozenset(("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"))


class AbstractObjectFolder(ABC):
    """Objects, each some bytes behind a key such as ``"L/c/3/1"``; from any number of threads and processes at once.

    An object appears with all of its bytes, or not at all: of two that write one key at once, either is read whole.
    """

    name: str  #: The path or the URL under which all keys lie

    @abstractmethod
    def read(self, key: str) -> bytes:
        """All bytes of an object; ``FileNotFoundError`` where there is none."""

    def read_into(self, key: str, parts: Sequence[memoryview]) -> int:
        """Fill ``parts`` one behind the other from the beginning of an object; returns how many bytes that has."""
        data, at = memoryview(self.read(key)), 0
        for part in parts:
            piece = data[at : at + len(part)]
            part[: len(piece)] = piece
            at += len(part)
        return len(data)

    @abstractmethod
    def write(self, key: str, parts: Sequence[memoryview]) -> None:
        """Let an object have the bytes of ``parts``, one behind the other."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""

    @abstractmethod
    def remove_below(self, key: str) -> None:
        """Remove all objects whose keys begin with ``key`` and a slash."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Tell whether there is no object at all."""

    def lock(self, owner: object, *, make: bool = False) -> Callable[[], object]:
        """Keep other runs from writing here until what is returned is called, or ``owner`` goes; object storage cannot.

        With ``make`` the folder is made if it is not there, else that is a ``FileNotFoundError``.
        """
        return _nothing

    def flush(self) -> None:  # noqa: B027 - object storage is durable at once
        """Make durable what this process wrote until now."""

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Leave nothing behind that is in nobody's way."""


@final
class LocalFolder(AbstractObjectFolder):
    """A folder, in which every object is a file."""

    def __init__(self, path: str) -> None:
        self.name = path
        #: Whether pages of the system's cache count against a budget: then none of these files stays there.
        self.is_bounded = False
        self._unflushed: set[str] = set()

    def read(self, key: str) -> bytes:
        path = self._path(key)
        with file_errors_typed(path, "reading it"):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                size = os.fstat(descriptor).st_size
                check_room(size, f"memory for {path}", "copy the group again")
                return read_up_to(descriptor, size, 0)
            finally:
                os.close(descriptor)

    def read_into(self, key: str, parts: Sequence[memoryview]) -> int:
        path, wanted = self._path(key), sum(map(len, parts))
        with file_errors_typed(path, "reading it"):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                size = os.fstat(descriptor).st_size
                done = os.preadv(descriptor, parts, 0)
                while done < min(wanted, size) and (count := os.preadv(descriptor, behind(parts, done), done)):
                    done += count
                if self.is_bounded:
                    drop_pages(descriptor, 0, size)
                return size
            finally:
                os.close(descriptor)

    def write(self, key: str, parts: Sequence[memoryview]) -> None:
        """Write a file under another name, which nobody else has, then give it its own."""
        path = self._path(key)
        temporary = f"{path}.{secrets.token_hex(8)}{_UNFINISHED}"
        try:
            self._write_new(temporary, parts)
            os.replace(temporary, path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise write_error(path, "a part of a Zarr group", error) from error
        self._unflushed.add(path)

    def _write_new(self, path: str, parts: Sequence[memoryview]) -> None:
        """Create a file, and the folders that it lies in, and write it."""
        flags, wanted = os.O_WRONLY | os.O_CREAT | os.O_EXCL, sum(map(len, parts))
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, flags, 0o666)
        try:
            done = os.writev(descriptor, parts)
            while done < wanted:
                done += os.writev(descriptor, behind(parts, done))
            if self.is_bounded:
                os.fdatasync(descriptor)
                drop_pages(descriptor, 0, wanted)
        finally:
            os.close(descriptor)

    def remove(self, key: str) -> None:
        path = self._path(key)
        with file_errors_typed(path, "removing it"), suppress(FileNotFoundError):
            os.unlink(path)

    def remove_below(self, key: str) -> None:
        """Remove a folder with all that is in it, and the outermost one if nothing is left there."""
        path = self._path(key)
        with file_errors_typed(path, "removing it"), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def remove_left(self, keys: Iterable[str]) -> None:
        """Remove what processes that were killed left of files that they were writing: of these objects, or of any below."""
        own = set(keys)
        for folder, folders, files in os.walk(self.name):
            is_top = folder == self.name
            if is_top:
                folders[:] = own.intersection(folders)
            for file in files:
                if (left := _LEFT.fullmatch(file)) and (not is_top or left[1] in own):
                    with suppress(OSError):
                        os.unlink(os.path.join(folder, file))

    def lock(self, owner: object, *, make: bool = False) -> Callable[[], object]:
        """Lock the folder by a file in it, against all processes, and machines where its file system has locks for them."""
        path = self._path(LOCK)
        with HeldInterrupts(), file_errors_typed(self.name, "locking it"):
            while True:
                if make:
                    os.makedirs(self.name, exist_ok=True)
                try:
                    descriptor = create_locked(path, None, _LOCKED)
                except TierError as error:
                    if not isinstance(error.__cause__, FileNotFoundError):
                        raise
                    if not make:
                        raise FileNotFoundError(2, "there is no folder", self.name) from None
                else:
                    return weakref.finalize(owner, _unlock, descriptor, path, os.getpid())

    def remove_itself(self) -> None:
        """Remove the folder if nothing is in it."""
        with suppress(OSError):
            os.rmdir(self.name)

    def is_empty(self) -> bool:
        """Tell whether there is no such folder, or nothing in it."""
        with file_errors_typed(self.name, "looking at it"):
            try:
                with os.scandir(self.name) as found:
                    return all(entry.name == LOCK for entry in found)
            except FileNotFoundError:
                return True

    def flush(self) -> None:
        """Wait until the disk has what was written, and the names by which it is found."""
        paths = sorted(self._unflushed)
        folders = sorted({os.path.dirname(path) for path in paths})
        for path in [*paths, *folders]:
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:  # removed since
                continue
            try:
                os.fsync(descriptor)
            except OSError as error:
                raise write_error(path, "what was written until now", error) from error
            finally:
                os.close(descriptor)
        self._unflushed.difference_update(paths)

    def _path(self, key: str) -> str:
        return f"{self.name}/{key}"


def _nothing() -> None:
    """Unlock what has no locks."""


def _unlock(descriptor: int, path: str, process: int) -> None:
    """Let go of a lock; a child of the process that took it leaves it there."""
    if process == os.getpid():
        forget_created(descriptor, path)
    else:
        os.close(descriptor)


@final
class ObstoreFolder(AbstractObjectFolder):
    """Objects of a store of obstore, whose prefix is the name."""

    def __init__(self, name: str, store: Any) -> None:
        self.name, self._store = name, store

    def read(self, key: str) -> bytes:
        with _errors_typed(f"{self.name}/{key}", "reading it"):
            found: bytes = self._store.get(key).bytes().to_bytes()
            return found

    def write(self, key: str, parts: Sequence[memoryview]) -> None:
        with _errors_typed(f"{self.name}/{key}", "writing it"):
            self._store.put(key, b"".join(parts))

    def remove(self, key: str) -> None:
        with _errors_typed(f"{self.name}/{key}", "removing it"), suppress(FileNotFoundError):
            self._store.delete(key)

    def remove_below(self, key: str) -> None:
        with _errors_typed(f"{self.name}/{key}", "removing it"):
            for found in list(self._store.list(f"{key}/")):
                self._store.delete([entry["path"] for entry in found])

    def is_empty(self) -> bool:
        with _errors_typed(self.name, "looking at it"):
            return not any(self._store.list(chunk_size=1))


@final
class FsspecFolder(AbstractObjectFolder):
    """Objects of a file system of fsspec, below a path."""

    def __init__(self, name: str, system: Any, path: str) -> None:
        self.name, self._system, self._path = name, system, path.rstrip("/")

    def read(self, key: str) -> bytes:
        with _errors_typed(f"{self.name}/{key}", "reading it"):
            found: bytes = self._system.cat_file(f"{self._path}/{key}")
            return found

    def write(self, key: str, parts: Sequence[memoryview]) -> None:
        with _errors_typed(f"{self.name}/{key}", "writing it"):
            self._system.pipe_file(f"{self._path}/{key}", b"".join(parts))

    def remove(self, key: str) -> None:
        with _errors_typed(f"{self.name}/{key}", "removing it"), suppress(FileNotFoundError):
            self._system.rm_file(f"{self._path}/{key}")

    def remove_below(self, key: str) -> None:
        with _errors_typed(f"{self.name}/{key}", "removing it"), suppress(FileNotFoundError):
            self._system.rm(f"{self._path}/{key}", recursive=True)

    def is_empty(self) -> bool:
        """Tell whether nothing lies below the path."""
        with _errors_typed(self.name, "looking at it"):
            return not self._system.find(self._path)


class ObjectAddress(NamedTuple):
    """How a URL of object storage is reached."""

    obstore: Any  #: A store of obstore; None where fsspec reaches it
    system: Any  #: A file system of fsspec, and the path in it
    path: str


def object_address(url: str) -> ObjectAddress:
    """How a URL is reached: by obstore where it knows the scheme and is installed, else by fsspec."""
    scheme = url.partition("://")[0]
    if scheme in _BY_OBSTORE:
        with suppress(ModuleNotFoundError):
            with guarded_imports(blas=False):
                import obstore.store

            with _errors_typed(url, "opening it"):
                return ObjectAddress(obstore.store.from_url(url), None, "")
    try:
        with guarded_imports(blas=False):
            import fsspec
    except ModuleNotFoundError as error:
        text = f"{url} is object storage, which fsspec or obstore reaches, and neither is installed: {install_hint('cluster')}"
        raise MissingPackageError(text) from error
    try:
        with _errors_typed(url, "opening it"):
            system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        also = ", or obstore (python3 -m pip install obstore)" if scheme in _BY_OBSTORE else ""
        kind = MissingPackageError if isinstance(error, ImportError) else ValueError
        raise kind(f"{url}: {error}; object storage of this scheme needs its package of fsspec{also}") from error
    return ObjectAddress(None, system, path)


def open_folder(place: str | os.PathLike[str] | AbstractObjectFolder) -> AbstractObjectFolder:
    """The folder of a path or a URL, which need not exist; a folder itself is given back."""
    if isinstance(place, AbstractObjectFolder):
        return place
    if (path := local_path(place)) is not None:
        return LocalFolder(path)
    url = os.fspath(place).rstrip("/")
    address = object_address(url)
    if address.obstore is not None:
        return ObstoreFolder(url, address.obstore)
    return FsspecFolder(url, address.system, address.path)


@contextmanager
def _errors_typed(name: str, doing: str) -> Iterator[None]:
    """Raise a ``TierError`` for whatever a client of object storage says, but that something is not there or not installed."""
    try:
        yield
    except (OocCholError, FileNotFoundError, ImportError, ValueError, TypeError, MemoryError):
        raise
    except Exception as error:  # every client has errors of its own
        text = f"{name}: {doing} failed ({first_line(error)}); check the URL, the credentials and the network"
        raise TierError(text) from error


def first_line(error: BaseException) -> str:
    """First line of a client's error, without the pages behind it."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
