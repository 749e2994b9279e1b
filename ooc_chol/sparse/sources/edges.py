"""Lists of edges as text: two vertices a line, and a weight where there are some."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_number
from ooc_chol.errors import InputWarning, SparseInputError
from ooc_chol.files.inputs import AnyPath, check_name
from ooc_chol.sparse.canonical import MOST_COLUMNS, Zeros
from ooc_chol.sparse.sources.scattered import PIECE_ENTRIES, Entries, ScatteredRows, most_rows
from ooc_chol.sparse.sources.text import Numbers, Piece, check_underflow, line_shapes, parsed, text_pieces

#: Endings of files in other formats.
_OTHER_ENDINGS = (".graph", ".graph.gz", ".mtx", ".mtx.gz", ".npz", ".npy", ".oocsr")
_COMMENT = re.compile(rb"(?m)^[ \t]*[#%].*$")
_HEADLINE = re.compile(rb"[ \t]*[\"'A-Za-z_]")


class Edges(NamedTuple):
    """Edges in the order of their file."""

    vertices: NDArray[np.int32]  #: (n_edges, 2), counted from 0
    weights: NDArray[Any] | None  #: Of int64 or float64


def edge_list(
    path: AnyPath,
    *,
    base: int | None = None,
    directed: bool = False,
    shape: tuple[int, int] | None = None,
    zeros: Zeros = "keep",
    name: str | None = None,
) -> ScatteredRows:
    """The adjacency matrix of a list of edges in a file, for :func:`block_csr`: with options that the name of a file cannot say.

    Parameters
    ----------
    path : str or PathLike
        Name of the file, text or, where it ends in ``.gz``, compressed text: in each line two vertices, and a weight where the
        first line has one, between blanks, commas or semicolons. Lines that begin with ``#`` or ``%`` are comments; the first
        line of a ``.csv`` or ``.tsv`` may have names.
    base : {0, 1}
        Number of the first vertex: 0 where it is not given, with a warning where the list has no vertex 0.
    directed : bool
        True if a line is one entry, row then column; else it is two, one in each triangle (and one for a loop).
    shape : (int, int), optional
        Shape of the matrix; by default it is square, as large as its largest vertex needs.
    zeros : {"keep", "drop"}
        Keep or drop edges of weight zero.
    name : str, optional
        Name for messages; that of the file by default.

    Returns
    -------
    AbstractRows
        Its rows. An edge without weight that stands there more than once, also the other way round, is one entry of value 1;
        weights of such edges are added. Both are counted. Edges are held in memory, in 8 bytes each, and 8 of a weight.

    Raises
    ------
    SparseInputError
        A line is not as the format has it, or vertices have such large numbers that hardly any has an edge.
    TierError
        The file cannot be read.
    ValueError
        ``base`` is neither 0 nor 1, or the ending of the name is that of another format.

    Warns
    -----
    InputWarning
        ``base`` was not given, and the list has no vertex 0.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "triangle.txt")
    ...     np.savetxt(path, [(1, 2), (2, 3), (3, 1)], fmt="%d")
    ...     with oc.block_csr(oc.edge_list(path, base=1)) as A:
    ...         print(A.tocsr().toarray())
    [[0. 1. 1.]
     [1. 0. 1.]
     [1. 1. 0.]]
    """
    path = Path(check_name(path))
    source = name or str(path)
    if shape is not None:
        if not (isinstance(shape, tuple | list) and len(shape) == 2):
            raise TypeError(f"shape is {shape!r:.80}; give rows and columns")
        shape = whole_number(shape[0], "shape[0]"), whole_number(shape[1], "shape[1]")
    if base not in (None, 0, 1) or isinstance(base, bool):
        raise ValueError(f"base is {base!r:.80}; vertices are counted from 0 or from 1")
    if path.name.lower().endswith(_OTHER_ENDINGS):
        raise ValueError(
            f"{source} is no list of edges, by the ending of its name, and its format says how it counts: take block_csr of it, "
            "without base or directed (--one-based, --directed), or rename it"
        )
    is_told, base = base is not None, base or 0
    edges = _read(path, source, base)
    vertices = edges.vertices
    if not is_told and (first := int(vertices.min()) if vertices.size else 0):
        advice = "if they count from 1, give base=1 (--one-based in the shell)"
        none = "vertex 0 has" if first == 1 else f"vertices 0 to {first - 1} have"
        text = f"{source}: vertices begin with {first}, so that {none} no edges; {advice}"
        warnings.warn(text, InputWarning, stacklevel=2)
    if shape is None:
        n = int(vertices.max()) + 1 if vertices.size else 0
        if n > most_rows(len(vertices)):
            problem = f"vertices are numbered up to {n - 1 + base}, but there are only {len(vertices)} edges"
            raise SparseInputError(source, "", problem, "number them anew, or give shape=(n, n)")
        shape = n, n
    once: Literal["once", "sum"] = "once" if edges.weights is None else "sum"
    n_loops = int(np.count_nonzero(vertices[:, 0] == vertices[:, 1]))
    n_entries = len(vertices) if directed else 2 * len(vertices) - n_loops
    rows = ScatteredRows(source, shape, lambda: _pieces(edges, directed), n_entries, zeros=zeros, repeated=once)
    rows.path = path
    return rows


def _pieces(edges: Edges, directed: bool) -> Iterator[Entries]:
    """Entries of all edges."""
    for at in range(0, len(edges.vertices), PIECE_ENTRIES):
        rows, columns = edges.vertices[at : at + PIECE_ENTRIES].T
        weights = None if edges.weights is None else edges.weights[at : at + PIECE_ENTRIES]
        yield Entries(rows, columns, weights)
        if not directed:
            other = rows != columns
            yield Entries(columns[other], rows[other], None if weights is None else weights[other])


def _read(path: Path, source: str, base: int) -> Edges:
    """All edges."""
    vertices: list[NDArray[np.int32]] = []
    weights: list[NDArray[Any]] = []
    separators = b",;\t" if ".tsv" in _endings(path) else b",;"
    width = 0
    for piece in text_pieces(path, source):
        plain = _plain(piece, path, source, separators)
        table = parsed(plain, source, real=True)
        width = width or int(table.counts[table.counts > 0][:1].sum())
        if not width:
            continue
        _check_widths(table, width, piece, source)
        rows = table.numbers.reshape(-1, width)
        vertices.append(_vertices(rows[:, :2], table, piece, base, source))
        if table.numbers.dtype.kind == "f":
            _check_digits(plain, source)
        if width == 3:
            check_underflow(plain, source)
            weights.append(rows[:, 2].copy())
    found = np.concatenate(vertices) if vertices else np.empty((0, 2), np.int32)
    return Edges(found, np.concatenate(weights) if weights else None)


def _endings(path: Path) -> set[str]:
    return {suffix.lower() for suffix in path.suffixes}


def _plain(piece: Piece, path: Path, source: str, separators: bytes) -> Piece:
    """The piece with blanks between its numbers, and empty lines for comments."""
    data = piece.data
    if piece.first_line == 1:
        data = data.removeprefix(b"\xef\xbb\xbf")
        if _endings(path) & {".csv", ".tsv"} and _is_headline(data[: data.index(b"\n")]):
            data = data[data.index(b"\n") :]
    if b"#" in data or b"%" in data:
        data = _COMMENT.sub(b"", data)
    if any(separator in data for separator in separators):
        _check_fields(data, separators, piece, source)
        data = data.translate(bytes.maketrans(b",;", b"  "))
    return Piece(data, piece.first_line)


def _is_headline(line: bytes) -> bool:
    """Tell names of columns from an edge: with a number as a vertex a line is a wrong edge, and not to be passed over."""
    return _HEADLINE.match(line) is not None and not any(map(_is_number, re.split(rb"[,;\t ]+", line.strip())[:2]))


def _is_number(word: bytes) -> bool:
    try:
        float(word.strip(b"\"' "))
    except ValueError:
        return False
    return True


def _check_fields(data: bytes, separators: bytes, piece: Piece, source: str) -> None:
    """Refuse lines in which nothing stands between two separators, or before the first, or behind the last."""
    bare = b"\n" + data.translate(bytes.maketrans(separators, b"," * len(separators)), b" \r")
    found = [at for pair in (b",,", b"\n,", b",\n") if (at := bare.find(pair)) >= 0]
    if found:
        at = min(found)
        line = piece.first_line + bare.count(b"\n", 0, at + 1 if bare[at : at + 1] == b"\n" else at) - 1
        raise SparseInputError(source, f"line {line}", "a field is empty", "give every edge two vertices, and a weight or none")


def _check_widths(table: Numbers, width: int, piece: Piece, source: str) -> None:
    """Refuse lines of another number of columns than the first."""
    bad = (table.counts != width) & (table.counts != 0) if width in (2, 3) else table.counts != 0
    if bad.any():
        at = int(np.argmax(bad))
        problem = f"it has {table.counts[at]} numbers" + (f", but the first edge has {width}" if width in (2, 3) else "")
        advice = "an edge is two vertices, and a weight in all lines or in none: leave other columns out"
        raise SparseInputError(source, f"line {piece.first_line + at}", problem, advice)


def _vertices(
    numbers: NDArray[np.int64] | NDArray[np.float64], table: Numbers, piece: Piece, base: int, source: str
) -> NDArray[np.int32]:
    """Numbers of vertices, counted from 0."""
    bad = (numbers < base) | (numbers > MOST_COLUMNS - 1 + base)
    if numbers.dtype.kind == "f":
        bad |= numbers != np.floor(numbers)
    if bad.any():
        edge = int(np.argmax(bad.any(axis=1)))
        line = piece.first_line + int(np.flatnonzero(table.counts)[edge])
        worst = numbers[edge][bad[edge]][0]
        problem = f"{worst:g} is no vertex: they are whole numbers from {base} to {MOST_COLUMNS - 1 + base}"
        raise SparseInputError(source, f"line {line}", problem, "mend the line, or say where counting begins (base=0 or 1)")
    return (numbers - base).astype(np.int32)


def _check_digits(piece: Piece, source: str) -> None:
    """Refuse vertices that only a rounding makes whole: 1e-400 is not 0."""
    shapes = line_shapes(piece.data)
    odd = {shape for shape in set(shapes) if not all(word == b"0" for word in shape.split()[:2])}
    if not odd:
        return
    for at, line in enumerate(piece.data.split(b"\n")):
        bad = next((word for word in line.split()[:2] if not _is_whole(word)), b"") if shapes[at] in odd else b""
        if bad:
            problem = f"{bad.decode('ascii')!r:.40} is no vertex: they are whole numbers"
            raise SparseInputError(source, f"line {piece.first_line + at}", problem, "mend the line")


@lru_cache(maxsize=1 << 12)
def _is_whole(word: bytes) -> bool:
    """Tell whether all digits of a number, such as 1.000e+00, say a whole one."""
    try:
        number = Decimal(word.decode("ascii"))
        return number == number.to_integral_value()
    except ArithmeticError:  # of an exponent that no decimal number has
        return False
