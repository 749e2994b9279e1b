"""Checks of inputs: arrays without gaps, regular files alone and no more of them than was said, and JSON that means one thing."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from io import BufferedReader, FileIO, RawIOBase
from typing import Any, BinaryIO, NoReturn, TypeAlias, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ooc_chol.config import format_bytes
from ooc_chol.errors import MissingValueError, TierError

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


def plain_array(
    name: str, given: Any, dtype: DTypeLike | None = None, *, copy: bool = False, gaps_as_nan: bool = False
) -> NDArray[Any]:
    """Make an array of NumPy of what is given, and refuse masked entries: what lies beneath a mask is no value.

    Parameters
    ----------
    name : str
        Name at the caller's.
    given : array
        An array, a masked one whose mask is False everywhere included; nested sequences, and what else NumPy makes an array of;
        or what hands its memory over by DLPack alone.
    dtype : dtype, optional
        Type of the array; that of what is given by default.
    copy : bool
        True if the array has memory of its own in any case.
    gaps_as_nan : bool
        True if masked entries become NaN instead, for whom NaN is what is missing.

    Returns
    -------
    array
        Array of no subclass.

    Raises
    ------
    MissingValueError
        An entry is masked, or pandas' NA.
    TypeError
        Complex numbers, dates or durations are given where real numbers are needed; or a tensor that requires gradients.

    Examples
    --------
    >>> import numpy as np, ooc_chol as oc
    >>> oc.toolbox.plain_array(
    ...     "values", np.ma.masked_equal([4.0, -9999.0], -9999.0)
    ... )
    Traceback (most recent call last):
    ooc_chol.errors.MissingValueError: values[1] is masked, and every value is needed: leave out what is missing, or fill it first
    """
    if hasattr(given, "__dlpack__") and not hasattr(given, "__array__"):
        found: Any = np.from_dlpack(given)
    elif isinstance(given, list | tuple):
        found = given
    else:
        found = _array_of(name, given)
    if (gap := _first_gap(found)) is not None:
        if not gaps_as_nan:
            raise MissingValueError(name, *gap)
        found = _with_nan(found)
    if dtype is not None and np.dtype(dtype).kind in "biuf":
        _check_real(name, np.asarray(found).dtype.kind)
    return np.array(found, dtype=dtype, copy=True if copy else None)


def _array_of(name: str, given: Any) -> NDArray[Any]:
    """Array that NumPy makes of an object, which a tensor of torch that requires gradients refuses."""
    try:
        return np.asanyarray(given)
    except RuntimeError as error:
        if not getattr(given, "requires_grad", False):
            raise
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        raise TypeError(
            f"{name} is a {kind} that requires gradients, which are not followed here ({error}); detach it"
        ) from error


def _check_real(name: str, kind: str) -> None:
    """Refuse entries of a kind that NumPy takes for real numbers, but which are none."""
    if kind == "c":
        raise TypeError(f"{name}: complex numbers are given, but real ones are needed; give their real and imaginary parts apart")
    if kind in "mM":
        what = "durations" if kind == "m" else "dates"
        raise TypeError(f"{name}: {what} are given, but numbers are needed; give them as numbers of a unit, such as days")


def check_entries(name: str, matrix: Any) -> None:
    """Refuse a sparse matrix whose stored entries are masked: SciPy's conversions take what lies beneath."""
    if isinstance(entries := getattr(matrix, "data", None), np.ma.MaskedArray):
        plain_array(f"{name}.data", entries)


def _first_gap(given: Any) -> tuple[tuple[int, ...], str] | None:
    """Where the first entry is masked or NA, and which of both; None where none is."""
    if isinstance(given, list | tuple):
        return _first_gap_of_items(given)
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        return tuple(map(int, np.argwhere(np.ma.getmaskarray(given))[0])), "masked"
    if isinstance(given, np.ndarray) and given.dtype == object:
        gaps = (place for place, item in np.ndenumerate(given) if _is_na(item))
        return next(((place, "NA") for place in gaps), None)
    return ((), "NA") if _is_na(given) else None


def _first_gap_of_items(given: Sequence[Any]) -> tuple[tuple[int, ...], str] | None:
    """The same of nested sequences, which may hold masked arrays."""
    if {*map(type, given)} <= {int, float, complex, bool}:
        return None
    for at, item in enumerate(given):
        if (gap := _first_gap(item)) is not None:
            return (at, *gap[0]), gap[1]
    return None


def _with_nan(given: Any) -> Any:
    """The same with NaN in place of gaps; whole numbers become float64."""
    if isinstance(given, np.ma.MaskedArray):
        return np.ma.filled(given if given.dtype.kind in "fcO" else given.astype(np.float64), math.nan)
    if isinstance(given, list | tuple):
        return [_with_nan(item) for item in given]
    if isinstance(given, np.ndarray) and given.dtype == object:
        return np.array([_with_nan(item) for item in given.flat], dtype=object).reshape(given.shape)
    return math.nan if _is_na(given) else given


def _is_na(item: object) -> bool:
    """Tell whether something is pandas' NA."""
    return type(item).__name__ == "NAType"


def input_file(path: AnyPath, *, pipes: bool = False) -> BinaryIO:
    """Open a regular file for reading; what is none is refused at once, where reading it might never end.

    Parameters
    ----------
    path : str or PathLike
        Name of the file, which may be a link.
    pipes : bool
        True if it may be a pipe, too, as shells make for ``<(command)``, if somebody writes to it.

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
        The name is empty, or holds a null character.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.toolbox.input_file("/dev/zero")
    Traceback (most recent call last):
    ooc_chol.errors.TierError: /dev/zero is a device, not a file: copy what is to be read into a file, and name that
    """
    name = check_name(path)
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


def check_name(path: AnyPath, what: str = "path") -> str:
    """Return the name of a file as text; raise for what no file can be called."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"{what} is a {type(path).__name__}; give the path of a file, as text or a pathlib.Path")
    if not (name := os.fsdecode(path)):
        raise ValueError(f"{what} is empty; give a name")
    if "\0" in name:
        raise ValueError(f"{name!r:.80} is no name of a file: it holds a null character")
    return name


def check_regular(path: AnyPath, most_bytes: int) -> None:
    """Raise for a name that others are to open unless it is a regular file of at most so many bytes."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        kind = next((kind for is_kind, kind in _OTHER_KINDS if is_kind(status.st_mode)), "a folder")
        raise TierError(f"{os.fspath(path)} is {kind}, not a file: copy what is to be read into a file, and name that")
    _check_size(path, status.st_size, most_bytes)


def _check_size(path: AnyPath, size: int, most_bytes: int) -> None:
    """Refuse a file that is larger than those of its kind."""
    if size > most_bytes:
        most = format_bytes(most_bytes)
        raise TierError(f"{os.fspath(path)} has {format_bytes(size)}, but a file of its kind has at most {most}")


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
    """Bytes of a file that were read already, and the rest of it."""

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
        Its name is empty, or holds a null character.
    """
    with input_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_size(path, size, most_bytes)
        return file.read(size)  # and not what another process writes behind it meanwhile


def input_lines(path: AnyPath, most_bytes: int, *, pipes: bool = False) -> Iterator[bytes]:
    """Lines of a regular file, each with its end.

    Parameters
    ----------
    path : str or PathLike
        Name of the file.
    most_bytes : int
        Bytes that a line has at most.
    pipes : bool
        True if it may be a pipe, too, as for :func:`~ooc_chol.toolbox.input_file`.

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
        Its name is empty, or holds a null character.
    """
    with input_file(path, pipes=pipes) as file:
        number = 0
        while line := file.readline(most_bytes + 1):
            number += 1
            if len(line) > most_bytes:
                raise TierError(f"line {number} of {os.fspath(path)} is longer than {format_bytes(most_bytes)}: it is no text")
            yield line


def parse_json(text: str) -> Any:
    """Parse a text in JSON as plain data, if it says one thing and a machine can hold it.

    Parameters
    ----------
    text : str
        An object, list or other value.

    Returns
    -------
    object
        Value of dicts, lists, texts, finite numbers, truth values and None.

    Raises
    ------
    ValueError
        It is no JSON; nested too deep; a key is there twice; or a number is NaN, infinite or beyond FP64.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.toolbox.parse_json('{"n": 100, "n": 200}')
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
