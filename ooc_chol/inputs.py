"""Files that are read: regular ones only, no more of them than was said, and JSON that means one thing."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from io import BufferedReader, FileIO, RawIOBase
from typing import Any, BinaryIO, NoReturn, TypeAlias, final

from ooc_chol.config import format_bytes
from ooc_chol.errors import TierError

AnyPath: TypeAlias = str | os.PathLike[str]

#: What a name can be other than a file with bytes, by the test that tells it.
_OTHER_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
#: Most digits of a whole number: those of the largest number in FP64.
_MOST_DIGITS = 308
#: Most characters of a number that a message repeats.
_MOST_SHOWN = 40


def input_file(path: AnyPath, *, pipes: bool = False) -> BinaryIO:
    """Open a regular file for reading; what is none is refused at once, where reading it might never end.

    Parameters
    ----------
    path : str or PathLike
        Name of the file, which may be a link.
    pipes : bool
        Whether it may be a pipe, too, as shells make for ``<(command)``, if somebody writes to it.

    Returns
    -------
    BinaryIO
        The file, buffered; the caller closes it.

    Raises
    ------
    TierError
        It is a device or a socket; or a pipe, and those are not asked for, or nobody writes to it.
    OSError
        There is no such file, it is a folder, or it may not be read.
    ValueError
        The name holds a null character.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.input_file("/dev/zero")
    Traceback (most recent call last):
    ooc_chol.errors.TierError: /dev/zero is a device, not a file: copy what is to be read into a file, and name that
    """
    name = os.fspath(path)
    if "\0" in name:
        raise ValueError(f"{name!r:.80} is no name of a file: it holds a null character")
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without waiting for a pipe's writer
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if pipes and stat.S_ISFIFO(mode):
            return _pipe(descriptor, name)
        for is_kind, kind in _OTHER_KINDS:
            if is_kind(mode):
                raise TierError(f"{name} is {kind}, not a file: copy what is to be read into a file, and name that")
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _pipe(descriptor: int, name: str) -> BinaryIO:
    """Read from a pipe that somebody writes to, waiting for more where that is slow."""
    try:
        first = os.read(descriptor, 1)
    except BlockingIOError:
        first = None  # somebody is there, who has not written yet
    if first == b"":
        raise TierError(f"{name} is a pipe that nobody writes to: start what writes to it first, or name a file")
    os.set_blocking(descriptor, True)
    return BufferedReader(_Behind(first or b"", FileIO(descriptor, "rb")))


@final
class _Behind(RawIOBase):
    """What was read of a file already, and the rest of it."""

    def __init__(self, first: bytes, rest: FileIO) -> None:
        self._first, self._rest = first, rest

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer as far as there is something."""
        if not self._first:
            return self._rest.readinto(buffer) or 0
        buffer[:1], self._first = self._first, b""
        return 1

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._rest.close()
        super().close()


def input_bytes(path: AnyPath, most_bytes: int) -> bytes:
    """Everything in a regular file that is not larger than such files are.

    Parameters
    ----------
    path : str or PathLike
        Name of the file.
    most_bytes : int
        Bytes that a file of its kind has at most.

    Returns
    -------
    bytes
        Its content.

    Raises
    ------
    TierError
        It is larger, or no regular file.
    OSError
        It cannot be read.
    ValueError
        Its name holds a null character.
    """
    with input_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            most = format_bytes(most_bytes)
            raise TierError(f"{os.fspath(path)} has {format_bytes(size)}, but a file of its kind has at most {most}")
        return file.read(size)  # and not what another process writes behind it meanwhile


def input_lines(path: AnyPath, most_bytes: int) -> Iterator[bytes]:
    """Lines of a regular file, each with its end.

    Parameters
    ----------
    path : str or PathLike
        Name of the file.
    most_bytes : int
        Bytes that a line has at most.

    Yields
    ------
    bytes
        A line with the newline behind it, which only the last may lack.

    Raises
    ------
    TierError
        A line is longer, or it is no regular file.
    OSError
        It cannot be read.
    ValueError
        Its name holds a null character.
    """
    with input_file(path) as file:
        number = 0
        while line := file.readline(most_bytes + 1):
            number += 1
            if len(line) > most_bytes:
                raise TierError(f"line {number} of {os.fspath(path)} is longer than {format_bytes(most_bytes)}: it is no text")
            yield line


def parse_json(text: str) -> Any:
    """What a text in JSON says, as plain data, if it says one thing and a machine can hold it.

    Parameters
    ----------
    text : str
        An object, list or other value.

    Returns
    -------
    object
        Of dicts, lists, texts, finite numbers, truth values and None.

    Raises
    ------
    ValueError
        It is no JSON; nested too deep; a key is there twice; or a number is NaN, infinite or beyond FP64.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.parse_json('{"n": 100, "n": 200}')
    Traceback (most recent call last):
    ValueError: the key 'n' is there twice
    """
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_float, parse_int=_int)
        if "\\u" in text:  # half of a pair is no character, and cannot be printed
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except json.JSONDecodeError as error:
        raise ValueError(str(error)) from error
    except UnicodeEncodeError as error:
        raise ValueError("a text in it holds half a character") from error
    return found


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object, each key of which is there once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in found if names.count(name) > 1)!r:.80} is there twice")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is there, which is no number")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.{_MOST_SHOWN}} is beyond what FP64 holds")
    return number


def _int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits is there")
    return int(text)
