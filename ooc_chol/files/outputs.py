"""Files that are written: never one that is read, never a stranger's unasked, and under another name until they are complete.

The rule, for every path that anything here writes:

1. An output is neither an input of the same call nor another of its outputs, nor does it lie in a folder that is an input. Files
   are compared by what they are (device and inode, behind all links), not by their names; of two that are not there yet, names
   that differ in case alone are one, as they are on many disks.
2. A name does not promise another format than the file has: L is no ``.csv``.
3. A file that is there already is replaced if it is of the kind that is to be written, which its first bytes (or a mark in it)
   say, or if the user asked for it (``replace=True``, ``--force``). So the same call may be made twice. Files that carry no mark
   (tables, arrays), logs that may be gone on from, and scratch files, which are removed at the end, are never replaced unasked.
4. There is a folder for it, in which files may be made.
5. The new file is written beside the old one, under a name that nobody can foresee, and takes its name once it is complete.

Rules 1 to 4 are checked before anything is computed, and rule 3 again before the file takes its name.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import unicodedata
import weakref
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeAlias, final

from ooc_chol.display.prints import brief_repr
from ooc_chol.errors import MissingFolderError, OocCholError, OutputError, TierError
from ooc_chol.files.inputs import check_name, input_file
from ooc_chol.process.interrupts import HeldInterrupts

#: The name of a file, as functions of the standard library take it.
AnyPath: TypeAlias = str | os.PathLike[str]

#: Bytes of a file that are searched for a mark, from either end.
_SEARCHED_BYTES = 65536

#: How a caller in Python asks for a file to be replaced.
REPLACE = "replace=True"

#: First bytes of what gzip wrote, and zlib's word for that format.
_GZIP_MARK, _GZIP_FORMAT = b"\x1f\x8b", 31

#: Endings that promise a format. Whatever else a name ends in says nothing, and any file may have it.
_PROMISES = frozenset(
    (
        *(".npy", ".npz", ".h5", ".hdf5", ".zarr", ".nc", ".nc3", ".nc4", ".cdf", ".mat", ".mtx", ".pt", ".pth", ".safetensors"),
        *(".csv", ".tsv", ".parquet", ".pq", ".feather", ".arrow", ".xlsx", ".gpkg", ".shp", ".tif", ".tiff", ".pkl", ".pickle"),
        *(".json", ".jsonl", ".toml", ".yaml", ".yml", ".txt", ".log", ".md", ".html", ".py"),
        *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".pdf", ".ps", ".eps"),
        *(".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".7z"),
        *(".asc", ".geojson", ".graph", ".edges", ".edgelist", ".el", ".gml", ".graphml", ".gexf", ".net", ".pajek"),
        *(".ooc", ".oocsr", ".ooceig", ".oocsvd", ".oocimp", ".pftrace", ".perfetto-trace"),
    )
)


@dataclass(frozen=True)
class FileKind:
    """Files of one kind that are ours, so that a new one may replace an old one.

    Parameters
    ----------
    name : str
        Words for such a file in a message, after "no", such as ``"factor of ooc_chol"``.
    mark : bytes
        Bytes with which every such file begins. By default none: then no file is replaced unasked.
    anywhere : bool
        True if the mark is not at the beginning, but anywhere within the first or last 64 KiB.
    endings : tuple of str
        Endings of their names, such as ``(".pftrace",)``. With some, names that promise another format are refused; those that
        promise none are not.
    gzipped : bool
        True if a file whose name ends in ``.gz`` is compressed, in the format of gzip.
    hint : str
        Words for the end of the message about a name that is refused, on what else can be done.
    """

    name: str
    mark: bytes = b""
    anywhere: bool = False
    endings: tuple[str, ...] = ()
    gzipped: bool = False
    hint: str = ""

    __repr__ = brief_repr

    def has(self, path: AnyPath) -> bool:
        """Tell whether a file is of this kind; one that cannot be read is not.

        Parameters
        ----------
        path : str or PathLike
            Name of the file, which need not exist.

        Returns
        -------
        bool
            True where its beginning, or with ``anywhere`` its beginning or end, has the mark.
        """
        return not self.doubt(path)

    def doubt(self, path: AnyPath) -> str:
        """Why a file that exists is not known to be of this kind.

        Parameters
        ----------
        path : str or PathLike
            Name of the file.

        Returns
        -------
        str
            Words for a message, such as ``"is no factor of ooc_chol"``; empty where it is one.
        """
        try:
            return "" if self.mark and self._is_marked(path) else f"is no {self.name}"
        except OSError as error:
            return f"cannot be read ({error.strerror or error}), so that nobody knows whether it is a {self.name}"
        except (ValueError, zlib.error):
            return f"is no {self.name}"

    def _is_marked(self, path: AnyPath) -> bool:
        """Tell whether the mark is where files of this kind have it."""
        with input_file(path) as file:
            head = file.read(_SEARCHED_BYTES)
            if self.gzipped and head.startswith(_GZIP_MARK):
                head = zlib.decompressobj(_GZIP_FORMAT).decompress(head, _SEARCHED_BYTES)
            if not self.anywhere:
                return head.startswith(self.mark)
            file.seek(max(0, os.fstat(file.fileno()).st_size - _SEARCHED_BYTES))
            return self.mark in head or self.mark in file.read(_SEARCHED_BYTES)

    def check_ending(self, path: AnyPath) -> None:
        """Raise ``ValueError`` where a name promises another format than files of this kind have.

        Parameters
        ----------
        path : str or PathLike
            Name of the file, which need not exist.

        Raises
        ------
        ValueError
            The name ends in what files of other formats end in.
        """
        name = os.path.basename(os.fspath(path)).lower()
        if self.gzipped:
            name = name.removesuffix(".gz")
        ending = os.path.splitext(name)[1]
        if self.endings and ending in _PROMISES and ending not in self.endings:
            may = [*self.endings, *(f"{self.endings[0]}.gz",) * self.gzipped]
            listed = f"{', '.join(may[:-1])} or {may[-1]}" if len(may) > 1 else may[0]
            may_be = f"give a name that ends in {listed}, or promises no format"
            hint = f"; {self.hint}" if self.hint else ""
            raise ValueError(f"{os.fspath(path)}: a {self.name} is not written as {ending}; {may_be}{hint}")


@dataclass(frozen=True)
class Output:
    """A file that a call will write.

    Parameters
    ----------
    option : str
        The option or argument by which the user names it, such as ``"--output"``, for the message.
    path : str, PathLike or None
        Name of the file; None where the user gave none, so that nothing is written.
    kind : FileKind, optional
        Kind of the files that it may replace unasked; without it there are none.
    advice : str
        Words for the message on what else can be done with a file that is there, such as ``"go on from it with resume"``.
    why : str
        Why not even a file of its kind is replaced unasked: words for the message after "exists already", such as ``"and would
        be removed at the end"``.
    """

    option: str
    path: AnyPath | None
    kind: FileKind | None = None
    advice: str = ""
    why: str = ""

    __repr__ = brief_repr


def check_outputs(
    outputs: Sequence[Output], inputs: Iterable[tuple[str, AnyPath | None]] = (), *, replace: bool = False, ask: str = REPLACE
) -> None:
    """Refuse outputs that would take the place of something that they must not, before anything is opened for writing.

    Parameters
    ----------
    outputs : sequence of Output
        All files that the call will write.
    inputs : iterable of (str, path or None)
        All files that the call reads, or that are read later, each behind the option that names it; None where there is none.
    replace : bool
        True if the user asked for files to be replaced.
    ask : str
        Words for the message on how the user asks for that; empty where there is no way.

    Raises
    ------
    OutputError
        An output is the same file as an input or as another output, or lies in a folder that is an input. Or it is no
        ordinary file; or it exists, is not of its kind, and nobody asked for it to be replaced.
    ValueError
        The name of an output promises another format than it has.
    MissingFolderError
        There is no folder to write an output into.
    TierError
        That folder does not allow it.
    """
    taken = {_identity(path): (option, check_name(path, option)) for option, path in inputs if path is not None}
    folders = {identity: named for identity, named in taken.items() if os.path.isdir(named[1])}
    written = [(output, check_name(output.path, output.option or "path")) for output in outputs if output.path is not None]
    for output, path in written:
        identity = _identity(path)
        if identity in taken:
            raise _same_file(output, path, *taken[identity])
        if folders:
            _refuse_insiders(output, path, folders)
        taken[identity] = output.option, path
    for output, path in written:
        _check(output, path, replace=replace, ask=ask)


def output_file(
    path: AnyPath, *, kind: FileKind | None = None, replace: bool = False, ask: str = REPLACE, option: str = ""
) -> AbstractContextManager[Path, None]:
    """Name an empty file that takes the place of ``path`` only when the block ends without an error.

    Parameters
    ----------
    path : str or PathLike
        File to write; its folder must exist. Of a symbolic link the file that it leads to is written.
    kind : FileKind, optional
        Kind of the files that may be replaced unasked; without it there are none.
    replace : bool
        True if a file of any other kind may be replaced, too.
    ask : str
        Words for the message on how the user asks for that; empty where there is no way.
    option : str
        The option or argument by which the user names the file, for the message.

    Returns
    -------
    context manager
        Its value is the ``Path`` of an empty file in the same folder, made by this call alone, which the block writes.

    Raises
    ------
    OutputError
        ``path`` is no ordinary file, or exists, is of another kind, and ``replace`` is false, before or after the block.
    ValueError
        The name promises another format than ``kind`` has.
    MissingFolderError
        There is no such folder.
    OSError
        The file cannot be written.

    Notes
    -----
    A file that is replaced keeps its permissions. Whatever ends the block otherwise leaves the folder as it was.
    """
    return _Written(Output(option, path, kind), path, replace=replace, ask=ask)


@final
class _Written(AbstractContextManager[Path, None]):
    """A file that is written under another name. No generator: an interrupt may come between its ``yield`` and the block."""

    def __init__(self, output: Output, path: AnyPath, *, replace: bool, ask: str) -> None:
        self._output, self._path, self._replace, self._ask = output, path, replace, ask

    def __enter__(self) -> Path:
        _check(self._output, check_name(self._path), replace=self._replace, ask=self._ask)
        self._target = Path(os.path.realpath(self._path))
        self._mode = permissions(self._target)
        self._part = self._target.with_name(f".ooc_chol-{os.urandom(8).hex()}.part")
        # Called once, by us; or when this object goes, where an interrupt came as ``__exit__`` began.
        self._remove = weakref.finalize(self, _remove, self._part, os.getpid())
        try:
            with HeldInterrupts():
                os.close(create_new(self._part, self._mode))
                return self._part
        except OSError as error:
            self._remove()
            raise write_error(os.fspath(self._path), "a new file", error) from error
        except BaseException:
            self._remove()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self._complete()
            elif isinstance(error, OSError) and _is_of_room(error):
                done = self._part.stat().st_size if self._part.exists() else 0
                raise write_error(os.fspath(self._path), f"more than its first {done} bytes", error) from error
        finally:
            self._remove()

    def _complete(self) -> None:
        if self._mode is not None:
            os.chmod(self._part, self._mode)
        path = os.fspath(self._path)
        refuse_strangers(self._output, path, replace=self._replace, ask=self._ask)  # one may have come meanwhile
        os.replace(self._part, self._target)


def _remove(part: Path, process: int) -> None:
    """Remove what ``process`` has begun to write, unless it has its name; a child of that process leaves it."""
    if process == os.getpid():
        with suppress(OSError):  # what went wrong first is to be seen
            part.unlink(missing_ok=True)


def output_folder(path: AnyPath, *, option: str = "") -> Path:
    """Make a folder for files of names of our own, and the folders that it lies in; one that is there is taken.

    Parameters
    ----------
    path : str or PathLike
        Name of the folder.
    option : str
        The option or argument by which the user names it, for the message.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    OutputError
        A file has that name, or the name of a folder that it lies in.
    TierError
        The folder cannot be made.
    """
    name, said = check_name(path), f"{option}: " if option else ""
    try:
        os.makedirs(name, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        text = f"{said}{name} is no folder, or lies in a file; give the name of a folder, which is made if it is not there"
        raise OutputError(text, option, name) from error
    except OSError as error:
        raise TierError(f"{said}{name}: the folder cannot be made: {error.strerror}; give the name of another one") from error
    return Path(name)


def write_error(path: str, what: str, error: OSError) -> TierError:
    """The TierError for a failed write of ``what`` to ``path``: which of disk, quota and largest file was in the way."""
    if (reason := _FULL.get(error.errno or 0)) is not None:
        return TierError(f"{path}: no room for {what}{reason(path)} ({error.strerror})")
    return TierError(f"{path}: cannot write {what}: {error.strerror or error}; check the disk and the permissions")


def _disk_is_full(path: str) -> str:
    try:
        status = os.statvfs(os.path.dirname(path) or ".")
    except OSError:  # the folder went with the disk
        return "; free some, or name a path on a larger disk"
    return f", {status.f_bavail * status.f_frsize} bytes are free; free some, or name a path on a larger disk"


def _quota_is_used_up(path: str) -> str:
    return ": your quota on this file system is used up; delete files of yours there, or name a path on another file system"


def _file_is_too_large(path: str) -> str:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return ": that is more than the largest file of this file system (`ulimit -f` sets no limit); name a path on another one"
    return f": the largest file that this process may write has {limit} bytes; raise that with `ulimit -f`"


def _is_of_room(error: OSError) -> bool:
    """Tell a write that nobody has named and that found no room; the error of NumPy's has no number."""
    if isinstance(error, OocCholError):
        return False
    return error.errno in _FULL or (error.errno is None and "requested and" in str(error))


#: Errors of the system where there is no room, and what is said of them.
_FULL = {errno.ENOSPC: _disk_is_full, errno.EDQUOT: _quota_is_used_up, errno.EFBIG: _file_is_too_large}


def create_new(path: AnyPath, mode: int | None) -> int:
    """Create ``path`` and open it; nothing that is there already is ever opened, nor what a link leads to."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)


def permissions(path: AnyPath) -> int | None:
    """Permissions of the file at ``path``; None where there is none."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def refuse_strangers(output: Output, path: str, *, replace: bool, ask: str = REPLACE) -> None:
    """Raise OutputError unless ``output`` may be created at ``path``, or may replace what is there."""
    refusal = why_not_replaced(output, path, replace=replace)
    if refusal is None:
        return
    if os.path.isfile(path):
        *first, last = filter(None, [output.advice, "remove it", "give another name", f"replace it by {ask}" if ask else ""])
        ways = f"{', '.join(first)}, or {last}"
    else:
        ways = "give the name of a file to create or replace"
    raise OutputError(f"{_said(output)}{path} {refusal}; {ways}", output.option, path)


def why_not_replaced(output: Output, path: str, *, replace: bool) -> str | None:
    """Why ``output`` may not replace what is at ``path``, in words behind its name; None where it may, or nothing is there.

    What cannot be looked at may be a stranger's, and a rename would not ask.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"cannot be looked at ({error.strerror or error})"
    if not stat.S_ISREG(status.st_mode):
        return "exists and is no ordinary file"
    if replace:
        return None
    if output.why or output.kind is None or not output.kind.mark:
        return f"exists already {output.why}".rstrip()
    doubt = output.kind.doubt(path)
    return f"exists already and {doubt}" if doubt else None


def _check(output: Output, path: str, *, replace: bool, ask: str) -> None:
    """Refuse a name of another format, a stranger, and a folder that is not there or allows no new files."""
    if output.kind is not None:
        try:
            output.kind.check_ending(path)
        except ValueError as error:
            raise ValueError(f"{_said(output)}{error}") from None
    if os.path.exists(path):  # else there is nothing, or nothing that can be seen: to create it says why
        refuse_strangers(output, path, replace=replace, ask=ask)
    folder, name = os.path.split(os.path.realpath(path))
    if not os.path.isdir(folder):
        shown = os.path.dirname(path) if os.path.basename(path) == name else folder
        text = f"{_said(output)}{path}: there is no folder {shown} to write {name} into; make it, or give another name"
        raise MissingFolderError(text, output.option, path, shown)
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise TierError(f"{_said(output)}{path}: no file may be made in {folder}; give a name in another folder")


def _said(output: Output) -> str:
    """The option of an output, as a message begins with it."""
    return f"{output.option}: " if output.option else ""


def _identity(path: AnyPath) -> tuple[object, ...]:
    """Equal for two names of one file; of one that does not exist, by the folder that it would lie in, whatever its case."""
    real = os.path.realpath(check_name(path))
    folder, name = os.path.split(real)
    for there, rest in ((real, ()), (folder, (_caseless(name),))):
        try:
            status = os.stat(there)
        except OSError:
            continue
        return status.st_dev, status.st_ino, *rest
    return (_caseless(real),)


def _caseless(name: str) -> str:
    """A name as disks see it that tell neither case nor compositions of accents apart."""
    return unicodedata.normalize("NFC", name).casefold()


def _same_file(output: Output, path: str, other: str, other_path: str) -> OutputError:
    """The error for an output that is also ``other``."""
    what = other if other_path == path else f"{other} ({other_path})"
    is_written = os.path.exists(path) or os.path.basename(path) == os.path.basename(other_path)
    if is_written or _caseless(os.path.basename(path)) != _caseless(os.path.basename(other_path)):
        text = f"{_said(output)}{path} is the same file as {what}, which would be lost; give another name"
    else:
        text = f"{_said(output)}{path} is the same file as {what} on many disks, which do not tell case apart; give another name"
    return OutputError(text, output.option, path, other)


def _refuse_insiders(output: Output, path: str, folders: Mapping[tuple[object, ...], tuple[str, str]]) -> None:
    """Raise OutputError for an output within a folder that is read."""
    for parent in Path(os.path.realpath(path)).parents:
        if (found := folders.get(_identity(parent))) is not None:
            other, folder = found
            text = f"{_said(output)}{path} lies in {folder}, which is read as {other}; give a name in another folder"
            raise OutputError(text, output.option, path, other)
