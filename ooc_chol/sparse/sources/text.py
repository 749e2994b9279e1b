"""Files of numbers as text, compressed or not: pieces of whole lines, and the numbers in them."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import SparseInputError, TierError
from ooc_chol.files.inputs import input_file
from ooc_chol.files.positional_io import file_errors_typed
from ooc_chol.memory.sources.file import FileState

#: Bytes of a piece; of a line, that of a vertex with a hundred million neighbours.
_PIECE_BYTES, _MOST_LINE = 1 << 22, 1 << 30
#: Characters of a line that a message repeats.
_MOST_SHOWN = 40
#: Characters of whole numbers, and of real ones, with the blanks between them.
WHOLE = b" \t\r\n\v\f0123456789"
REAL = WHOLE + b"+-.eE"
#: Exponents with which a number may be too small for FP64.
_TINY = re.compile(rb"-(?<=[eE]-)0*(?:[3-9]\d\d|[1-9]\d{3,})")
_ONE_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)


def first_other(data: bytes, characters: bytes) -> int | None:
    """Where the first character stands that is none of these; None where all are."""
    if not data.translate(None, characters):
        return None
    is_other = np.ones(256, bool)
    is_other[list(characters)] = False
    return int(np.argmax(is_other[np.frombuffer(data, np.uint8)]))


@final
class TextStream:
    """The bytes of a file, inflated where its name ends in ``.gz``; what is damaged is refused with the byte."""

    def __init__(self, file: BinaryIO, path: Path, source: str) -> None:
        self._file, self._path, self._source = file, path, source
        self._state = FileState.of(file.fileno())
        self._stream: Any = gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else file

    def read(self, count: int = -1) -> bytes:
        """The next bytes, at most so many; none at the end."""
        try:
            with file_errors_typed(self._path, "reading it"):
                return bytes(self._stream.read(count))
        except (OSError, EOFError, ValueError, zlib.error) as error:
            if self._stream is self._file:
                raise
            place, problem = f"byte {self._file.tell()}", f"its compressed data are damaged or cut short there ({error!s:.200})"
            raise SparseInputError(self._source, place, problem, "compress it anew, or get it again") from error

    def check_unchanged(self) -> None:
        """Refuse what was read of a file that another has written to meanwhile."""
        if change := self._state.changes_to(FileState.of(self._file.fileno())):
            raise TierError(f"{self._path}: {change} while the matrix was read: let nothing write to it, or give a copy of it")


@contextmanager
def opened_text(path: Path, source: str) -> Iterator[TextStream]:
    """The file, opened for reading from its first byte."""
    with ExitStack() as stack:
        with file_errors_typed(path, "opening it"):
            file = stack.enter_context(input_file(path))
        yield TextStream(file, path, source)


class Piece(NamedTuple):
    """Whole lines of a file."""

    data: bytes  #: Ends with a newline
    first_line: int  #: Number of the first, counted from 1


def text_pieces(path: Path, source: str) -> Iterator[Piece]:
    """A file's lines, some millions of bytes at a time."""
    with opened_text(path, source) as stream:
        begun: list[bytes] = []
        line = 1
        while chunk := stream.read(_PIECE_BYTES):
            end = chunk.rfind(b"\n") + 1
            if end:
                data = b"".join([*begun, chunk[:end]])
                yield Piece(data, line)
                line += data.count(b"\n")
                begun = [chunk[end:]]
            else:
                begun.append(chunk)
                if b"\0" in chunk:
                    raise SparseInputError(
                        source, f"line {line}", "it holds a null character", "it is no text: get the file again"
                    )
                if len(begun) * _PIECE_BYTES > _MOST_LINE:
                    raise SparseInputError(
                        source, f"line {line}", "it has more than 1 GiB", "it is no text of lines with numbers"
                    )
        stream.check_unchanged()
        if rest := b"".join(begun):
            yield Piece(rest + b"\n", line)


class Numbers(NamedTuple):
    """The numbers in some lines."""

    numbers: NDArray[Any]  #: int64, or float64
    counts: NDArray[np.int64]  #: How many each line has


def parsed(piece: Piece, source: str, *, real: bool = False) -> Numbers:
    """The numbers of each line, between blanks.

    Raises ``SparseInputError``: something is no number; the message has the line.
    """
    whole = (other := first_other(piece.data, WHOLE)) is None
    if not whole and real:
        other = first_other(piece.data, REAL)
    if other is not None:
        raise _no_number(piece, other, source)
    data = np.frombuffer(piece.data, np.uint8)
    is_blank = data <= ord(" ")  # of the characters that are left
    begins = ~is_blank
    begins[1:] &= is_blank[:-1]
    ends = np.flatnonzero(data == ord("\n"))
    counts = np.diff(np.cumsum(begins, dtype=np.int32)[ends], prepend=0).astype(np.int64)  # a piece has less than 2 GiB
    total = int(counts.sum())
    try:
        numbers = np.fromstring(piece.data, np.int64 if whole else np.float64, sep=" ") if total else np.empty(0, np.int64)
    except (ValueError, DeprecationWarning):  # NumPy 2.3 and before warn, and give what stands before it
        numbers = np.empty(0)
    if numbers.size != total:  # "1-2", which NumPy takes for two, or "1e"
        raise _no_number(piece, _first_bad(piece), source)
    return Numbers(numbers, counts)


def line_shapes(data: bytes) -> list[bytes]:
    """Lines with one 0 for each run of digits, of which a file has few different ones."""
    codes = np.frombuffer(data.translate(_ONE_DIGIT), np.uint8)
    is_kept = np.ones(codes.size, bool)
    is_kept[1:] = (codes[1:] != ord("0")) | (codes[:-1] != ord("0"))
    return codes[is_kept].tobytes().split(b"\n")


def check_underflow(piece: Piece, source: str) -> None:
    """Refuse numbers that FP64 has as zero, but are none: an entry would be lost."""
    for found in _TINY.finditer(piece.data):
        word = _word(piece, found.start())
        if not float(word) and re.search(rb"[1-9]", word.lower().partition(b"e")[0]):
            line = piece.first_line + piece.data.count(b"\n", 0, found.start())
            problem = f"{word.decode('ascii')!r:.40} is below all numbers of FP64"
            raise SparseInputError(source, f"line {line}", problem, "scale the values, or write 0 if none is meant")


def _first_bad(piece: Piece) -> int:
    """Where the first word begins that is no number."""
    for word in re.finditer(rb"[^ \t\r\n\v\f]+", piece.data):
        try:
            float(word[0])
        except ValueError:
            return word.start()
    return 0


def _word(piece: Piece, at: int) -> bytes:
    """The word between blanks around a place, cut some way behind the place."""
    begin = max(piece.data.rfind(blank, 0, at) for blank in (b" ", b"\t", b"\n")) + 1
    return (piece.data[begin : at + _MOST_SHOWN].split() or [b""])[0]


def _no_number(piece: Piece, at: int, source: str) -> SparseInputError:
    """The error for a word that is no number."""
    word = _word(piece, at)[:_MOST_SHOWN].decode("ascii", "backslashreplace")
    line = piece.first_line + piece.data.count(b"\n", 0, at)
    return SparseInputError(
        source, f"line {line}", f"{word!r} is no number that may stand there", "mend the line, or make it a comment"
    )
