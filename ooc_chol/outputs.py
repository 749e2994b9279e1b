"""Files that are written: never one that is read, never a stranger's unasked, and under another name until they are complete.

The rule, for every path that anything here writes:

1. An output is neither an input of the same call nor another of its outputs. Files are compared by what they are (device and
   inode, behind all links), not by their names.
2. A file that is there already is replaced if it is of the kind that is to be written, which its first bytes (or a mark in it)
   say, or if the user asked for it.
3. The new file is written beside the old one, under a name that nobody can foresee, and takes its name once it is complete.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ooc_chol.errors import OutputError
from ooc_chol.prints import brief_repr

#: The name of a file, as functions of the standard library take it.
AnyPath: TypeAlias = str | os.PathLike[str]

#: Bytes of a file that are searched for a mark, from either end.
_SEARCHED_BYTES = 65536

#: How a caller in Python asks for a file to be replaced.
REPLACE = "replace=True"


@dataclass(frozen=True)
class FileKind:
    """Files of one kind that are ours, so that a new one may replace an old one.

    Parameters
    ----------
    name : str
        Words for such a file in a message, after "no", such as ``"factor of ooc_chol"``.
    mark : bytes
        Bytes with which every such file begins.
    anywhere : bool
        Whether the mark is not at the beginning, but anywhere within the first or last 64 KiB.
    """

    name: str
    mark: bytes
    anywhere: bool = False

    __repr__ = brief_repr

    def has(self, path: AnyPath) -> bool:
        """Whether a file is of this kind; one that cannot be read is not.

        Parameters
        ----------
        path : str or PathLike
            Name of the file, which need not exist.

        Returns
        -------
        bool
            True where its beginning, or with ``anywhere`` its beginning or end, has the mark.
        """
        try:
            with open(path, "rb") as file:
                if not self.anywhere:
                    return file.read(len(self.mark)) == self.mark
                head = file.read(_SEARCHED_BYTES)
                file.seek(max(0, os.fstat(file.fileno()).st_size - _SEARCHED_BYTES))
                return self.mark in head or self.mark in file.read(_SEARCHED_BYTES)
        except OSError:
            return False


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
    """

    option: str
    path: AnyPath | None
    kind: FileKind | None = None
    advice: str = ""

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
        Whether the user asked for files to be replaced.
    ask : str
        Words for the message on how the user asks for that; empty where there is no way.

    Raises
    ------
    OutputError
        An output is the same file as an input or as another output, whatever was asked; or it is no ordinary file; or it exists,
        is not of its kind, and nobody asked for it to be replaced.
    """
    taken = {_identity(path): (option, os.fspath(path)) for option, path in inputs if path is not None}
    written = [(output, os.fspath(output.path)) for output in outputs if output.path is not None]
    for output, path in written:
        identity = _identity(path)
        if identity in taken:
            raise _same_file(output.option, path, *taken[identity])
        taken[identity] = output.option, path
    for output, path in written:
        _refuse_strangers(output, path, replace=replace, ask=ask)


@contextmanager
def output_file(
    path: AnyPath, *, kind: FileKind | None = None, replace: bool = False, ask: str = REPLACE, option: str = ""
) -> Iterator[Path]:
    """Name an empty file that takes the place of ``path`` only when the block ends without an error.

    Parameters
    ----------
    path : str or PathLike
        File to write; its folder must exist. Of a symbolic link the file that it leads to is written.
    kind : FileKind, optional
        Kind of the files that may be replaced unasked; without it there are none.
    replace : bool
        Whether a file of any other kind may be replaced, too.
    ask : str
        Words for the message on how the user asks for that; empty where there is no way.
    option : str
        The option or argument by which the user names the file, for the message.

    Yields
    ------
    Path
        An empty file in the same folder, made by this call alone, which the block writes.

    Raises
    ------
    OutputError
        ``path`` is no ordinary file, or exists, is of another kind, and ``replace`` is false.
    OSError
        The file cannot be written, or its folder does not exist.

    Notes
    -----
    A file that is replaced keeps its permissions. Whatever ends the block otherwise leaves the folder as it was.
    """
    _refuse_strangers(Output(option, path, kind), os.fspath(path), replace=replace, ask=ask)
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)}: there is no folder {Path(path).parent} to write {Path(path).name} into")
    part = target.with_name(f".ooc_chol-{os.urandom(8).hex()}.part")
    mode = permissions(target)
    os.close(create_new(part, mode))
    try:
        yield part
        if mode is not None:
            os.chmod(part, mode)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def create_new(path: AnyPath, mode: int | None) -> int:
    """Create ``path`` and open it; nothing that is there already is ever opened, nor what a link leads to."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)


def permissions(path: AnyPath) -> int | None:
    """Permissions of the file at ``path``; None where there is none."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def _identity(path: AnyPath) -> tuple[object, ...]:
    """Equal for two names of one file; of one that does not exist, by the folder that it would lie in."""
    real = os.path.realpath(path)
    for name, rest in ((real, ()), (os.path.dirname(real), (os.path.basename(real),))):
        try:
            status = os.stat(name)
        except OSError:
            continue
        return status.st_dev, status.st_ino, *rest
    return (real,)


def _same_file(option: str, path: str, other: str, other_path: str) -> OutputError:
    """The error for an output that is also ``other``."""
    what = other if other_path == path else f"{other} ({other_path})"
    text = f"{option}: {path} is the same file as {what}, which would be lost; give another name"
    return OutputError(text, option, path, other)


def _refuse_strangers(output: Output, path: str, *, replace: bool, ask: str) -> None:
    """Raise OutputError unless ``output`` may be created at ``path``, or may replace what is there."""
    said = f"{output.option}: " if output.option else ""
    try:
        status = os.stat(path)
    except OSError:  # nothing there, or nothing that can be seen: to create it says why
        return
    if not stat.S_ISREG(status.st_mode):
        text = f"{said}{path} exists and is no ordinary file; give the name of a file to create or replace"
    elif not replace and (output.kind is None or not output.kind.has(path)):
        no_kind = "" if output.kind is None else f" and is no {output.kind.name}"
        ways = [output.advice, "remove it", "give another name", f"replace it by {ask}" if ask else ""]
        *first, last = filter(None, ways)
        text = f"{said}{path} exists already{no_kind}; {', '.join(first)}, or {last}"
    else:
        return
    raise OutputError(text, output.option, path)
