"""Matrix Market files, which SciPy reads; what it would not tell is looked at here."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple, final

from scipy.io import mmread

from ooc_chol.errors import SparseInputError
from ooc_chol.process.address_space import check_room
from ooc_chol.sparse.canonical import Zeros
from ooc_chol.sparse.sources.coordinates import coordinate_rows
from ooc_chol.sparse.sources.scattered import ScatteredRows, check_declared
from ooc_chol.sparse.sources.text import REAL, WHOLE, Piece, check_underflow, first_other, line_shapes, opened_text, text_pieces
from ooc_chol.sparse.sources.vectors import ArrayVector

#: Bytes in which the banner, comments and sizes stand.
_MOST_HEADER = 1 << 20
#: Least bytes of a line with an entry; most bytes that a compressed byte becomes; bytes of an entry in memory.
_LEAST_LINE, _MOST_GROWTH, _ENTRY_BYTES = 4, 1032, 24
_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")

#: Characters of whole numbers, and of real ones (and of the words nan and infinity, which are refused by name).
_WHOLE, _REAL = WHOLE + b"+-", REAL + b"nNaAiIfFtTyY"
_ADVICE = "mend the line, or write it anew with scipy.io.mmwrite"
_COMMENT = re.compile(rb"(?m)^[ \t]*%.*$")


class Header(NamedTuple):
    """Header of a file."""

    field: str
    symmetry: str
    shape: tuple[int, int]
    n_entries: int  #: Lines with an entry
    nbytes: int  #: Of all of this


def matrix_market_rows(path: Path, *, zeros: Zeros = "keep", name: str | None = None) -> ScatteredRows:
    """The matrix in a ``.mtx`` or ``.mtx.gz`` file, in coordinate form: real, integer or pattern.

    Raises ``SparseInputError``, ``UnsupportedTypeError`` and ``BudgetError``.
    """
    source = name or str(path)
    with opened_text(path, source) as stream:
        header = _header(stream.read(_MOST_HEADER), source)
    _check_size(header, path, source)
    check_declared(source, header.shape[0], header.n_entries)
    try:
        matrix = mmread(_Checked(path, header, source), spmatrix=False)
    except (ValueError, OverflowError) as error:
        if isinstance(error, SparseInputError):
            raise
        place, _, problem = str(error).rpartition(": ")
        raise SparseInputError(
            source, place.lower(), problem.rstrip("."), "mend the line, or write it anew with scipy.io.mmwrite"
        ) from error
    vectors = [
        ArrayVector(part, what, source) for part, what in ((matrix.row, "rows"), (matrix.col, "columns"), (matrix.data, "values"))
    ]
    values = None if header.field == "pattern" and header.symmetry != "skew-symmetric" else vectors[2]
    return coordinate_rows(source, header.shape, (vectors[0], vectors[1], values), zeros=zeros)


def _header(text: bytes, source: str) -> Header:
    """Header from the first lines."""
    lines = text.split(b"\n")
    words = lines[0].decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
        problem = "it does not begin with '%%MatrixMarket matrix coordinate FIELD SYMMETRY'"
        raise SparseInputError(source, "line 1", problem, "it is no matrix in this format: write it with scipy.io.mmwrite")
    _check_kind(words[2], words[3], words[4], source)
    number = next((at for at, line in enumerate(lines[1:], 1) if line.strip() and not line.lstrip().startswith(b"%")), len(lines))
    sizes = lines[number].split() if number < len(lines) else []
    if len(sizes) != 3 or not all(size.isdigit() and len(size) <= _MOST_DIGITS for size in sizes):
        problem = "three whole numbers are needed: rows, columns and entries"
        raise SparseInputError(
            source, f"line {number + 1}", problem, "mend the line, or write the file anew with scipy.io.mmwrite"
        )
    rows, columns, entries = map(int, sizes)
    if words[4] != "general" and rows != columns:
        problem = f"it is {words[4]}, but has {rows} rows and {columns} columns"
        raise SparseInputError(source, f"line {number + 1}", problem, "mend the line, or call it general")
    return Header(words[3], words[4], (rows, columns), entries, sum(len(line) + 1 for line in lines[: number + 1]))


#: Digits of a size: those of the largest int64, less one.
_MOST_DIGITS = 18


def _check_kind(form: str, field: str, symmetry: str, source: str) -> None:
    """Refuse kinds of matrices that are not read."""
    if form == "array":
        raise SparseInputError(
            source, "line 1", "it is a dense array", "read it with scipy.io.mmread, and multiply with NumPy's A @ X"
        )
    if field == "complex" or symmetry == "hermitian":
        advice = "write its real and imaginary parts, each as a file of its own"
        raise SparseInputError(source, "line 1", f"it is {field} {symmetry}, and complex matrices are not multiplied", advice)
    if form != "coordinate" or field not in _FIELDS or symmetry not in _SYMMETRIES:
        problem = f"{form} {field} {symmetry}"
        advice = f"coordinate, one of {', '.join(_FIELDS)}, and one of {', '.join(_SYMMETRIES)} are known"
        raise SparseInputError(source, "line 1", f"{problem!s:.120} is no kind of matrix", advice)


def _check_size(header: Header, path: Path, source: str) -> None:
    """Refuse a number of entries that the file cannot have, before there is memory for them."""
    nbytes = os.path.getsize(path) * (_MOST_GROWTH if path.suffix.lower() == ".gz" else 1)
    if header.n_entries > nbytes // _LEAST_LINE + 1:
        problem = f"{header.n_entries} entries are promised, but the file is too short for them"
        raise SparseInputError(source, "line with sizes", problem, "it was cut short, or the line is wrong: get the file again")
    twice = 1 if header.symmetry == "general" else 2
    check_room(
        twice * _ENTRY_BYTES * header.n_entries, f"memory for the entries of {source}", "convert it to a folder of .npy files"
    )


@final
class _Checked:
    """A file's text for SciPy's reader, which takes 1.5 for 1 and .5, 1.5.5 for 1.5, and crashes where characters are no text."""

    def __init__(self, path: Path, header: Header, source: str) -> None:
        self._pieces = text_pieces(path, source)
        self._header, self._source = header, source
        self._text, self._at = b"", 0
        self._allowed = _WHOLE if header.field in ("integer", "unsigned-integer", "pattern") else _REAL

    def read(self, count: int = -1) -> bytes:
        """The next bytes, at most so many."""
        if self._at == len(self._text):
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._check(piece)
            self._text, self._at = piece.data, 0
        stop = len(self._text) if count < 0 else self._at + count
        found = self._text[self._at : stop]
        self._at += len(found)
        return found

    def _check(self, piece: Piece) -> None:
        """Refuse characters that no number has behind the lines of the header, but for comments."""
        begin = self._header.nbytes if piece.first_line == 1 else 0
        head = piece.data[:begin]
        if b"\0" in head:
            line = 1 + head.count(b"\n", 0, head.index(b"\0"))
            raise SparseInputError(self._source, f"line {line}", "it holds a null character", "it is no text: get the file again")
        body = piece.data[begin:]
        if b"%" in body:
            body = _COMMENT.sub(lambda found: b" " * len(found[0]), body)
        if (at := first_other(body, self._allowed)) is not None:
            line = piece.first_line + head.count(b"\n") + body.count(b"\n", 0, at)
            problem = f"{body[at : at + 1]!r:.20} stands in no {self._header.field} number"
            raise SparseInputError(self._source, f"line {line}", problem, _ADVICE)
        self._check_lines(body, piece.first_line + head.count(b"\n"))
        if self._allowed is _REAL:
            check_underflow(Piece(body, piece.first_line + head.count(b"\n")), self._source)

    def _check_lines(self, data: bytes, first_line: int) -> None:
        """Refuse lines that are no entry: row, column and, unless it is a pattern, one value."""
        known, shapes = _PLACE if self._header.field == "pattern" else _ENTRY, line_shapes(data)
        bad = {shape for shape in set(shapes) if not known.fullmatch(shape)}
        if bad:
            at = next(at for at, shape in enumerate(shapes) if shape in bad)
            line = data.split(b"\n")[at].strip().decode("ascii", "backslashreplace")
            wanted = "row and column" if known is _PLACE else f"row, column and a number of the field {self._header.field}"
            raise SparseInputError(
                self._source, f"line {first_line + at}", f"{line!r:.60} is no entry, which is {wanted}", _ADVICE
            )


#: Shapes of lines: empty ones, and those with whole numbers of row and column and a value.
_BLANKS = rb"[ \t\r\v\f]"
_NUMBER = rb"[+-]?(?:(?:0\.?0?|\.0)(?:[eE][+-]?0)?|[nN][aA][nN]|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)"
_PLACE = re.compile(rb"%b*(?:0%b+0%b*)?" % (_BLANKS, _BLANKS, _BLANKS))
_ENTRY = re.compile(rb"%b*(?:0%b+0%b+%b%b*)?" % (_BLANKS, _BLANKS, _BLANKS, _NUMBER, _BLANKS))
