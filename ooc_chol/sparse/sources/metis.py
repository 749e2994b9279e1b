"""Graphs in METIS's format: a line for each vertex, with its neighbours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.errors import SparseInputError
from ooc_chol.files.inputs import AnyPath, check_name
from ooc_chol.sparse.canonical import MOST_COLUMNS, Zeros
from ooc_chol.sparse.sources.compressed import Compressed, CompressedRows
from ooc_chol.sparse.sources.text import Numbers, Piece, parsed, text_pieces
from ooc_chol.sparse.sources.vectors import ArrayVector
from ooc_chol.sparse.values import MOST_WHOLE

_ADVICE = "mend the file: each edge stands in the lines of both of its vertices, which are counted from 1"


class Header(NamedTuple):
    """The first line of a file."""

    line: int
    n_vertices: int
    n_edges: int
    has_sizes: bool
    n_weights: int  #: Weights of each vertex
    has_edge_weights: bool

    @property
    def n_leading(self) -> int:
        """Numbers before the neighbours of a vertex."""
        return self.has_sizes + self.n_weights


class _Vertices(NamedTuple):
    """All numbers of all vertices, and where they stand."""

    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]  #: Numbers of each vertex
    lines: NDArray[np.int64]  #: Its line in the file


def metis_graph(path: AnyPath, *, zeros: Zeros = "keep", name: str | None = None) -> CompressedRows:
    r"""The adjacency matrix of a graph in METIS's format, for :func:`block_csr`, with the weights of its vertices.

    Parameters
    ----------
    path : str or PathLike
        Name of the file, ``.graph`` or, compressed, ``.graph.gz``.
    zeros : {"keep", "drop"}
        Keep or drop edges of weight zero.
    name : str, optional
        Name for messages; that of the file by default.

    Returns
    -------
    AbstractRows
        Its rows: weights of edges are values, else all are 1. Its ``vertex_weights`` are those of the file, (n,) or (n, k) of
        int64; None where it has none. Sizes of vertices are skipped.

    Raises
    ------
    SparseInputError
        A line is not as the format has it, or the graph is not symmetric.

    TierError
        The file cannot be read.

    Notes
    -----
    The format is that of METIS 5's manual, section 4.1.1: ``fmt`` of up to three digits, comments behind ``%``, no loops.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "path.graph")
    ...     _ = path.write_text("3 2 010\n5 2\n1 1 3\n1 2\n")
    ...     rows = oc.metis_graph(path)
    >>> rows.vertex_weights
    array([5, 1, 1])
    """
    source = name or check_name(path)
    header, vertices = _read(Path(path), source)
    _check_counts(header, vertices, source)
    leading, neighbours = _split(header, vertices)
    weights = neighbours[1::2] if header.has_edge_weights else None
    columns = neighbours[:: 1 + header.has_edge_weights]
    counts = (vertices.counts - header.n_leading) // (1 + header.has_edge_weights)
    starts = np.concatenate([[0], np.cumsum(counts)])
    _check_neighbours(header, vertices, starts, columns, source)
    matrix = _symmetric(starts, columns, weights, vertices, source)
    _check_edges(header, len(columns), source)
    indptr, indices = ArrayVector(matrix.indptr, "starts", source), ArrayVector(matrix.indices, "neighbours", source)
    data = None if weights is None else ArrayVector(matrix.data, "weights", source)
    rows = CompressedRows(Compressed(source, header.n_vertices, indptr, indices, data), matrix.shape, zeros=zeros)
    rows.path = path
    if header.n_weights:
        held = leading[:, header.has_sizes :]
        rows.vertex_weights = held[:, 0] if header.n_weights == 1 else held
    return rows


def _read(path: Path, source: str) -> tuple[Header, _Vertices]:
    """The first line, and the numbers of all others."""
    header: Header | None = None
    found: list[Numbers] = []
    lines: list[NDArray[np.int64]] = []
    for piece in text_pieces(path, source):
        data, kept = _without_comments(piece)
        if not data:
            continue
        if header is None:
            begin = data.index(b"\n") + 1
            header = _header(data[:begin], int(kept[0]), source)
            data, kept = data[begin:], kept[1:]
            if not data:
                continue
        found.append(_numbers(Piece(data, 1), kept, source))
        lines.append(kept)
    if header is None:
        raise SparseInputError(
            source, "line 1", "there is no first line of vertices and edges", "it is no file in METIS's format"
        )
    empty = np.empty(0, np.int64)
    counts = np.concatenate([empty, *(each.counts for each in found)])
    if counts.size < header.n_vertices or counts[header.n_vertices :].any():
        there = f"at least {counts.size} lines" if counts.size > header.n_vertices else f"{counts.size} lines"
        problem = f"{header.n_vertices} vertices are promised, but {there} of vertices follow"
        raise SparseInputError(
            source, f"line {header.line}", problem, "a vertex without neighbours has an empty line: mend the file"
        )
    numbers = np.concatenate([empty, *(each.numbers for each in found)])
    n = header.n_vertices
    return header, _Vertices(numbers, counts[:n], np.concatenate([empty, *lines])[:n])


def _numbers(piece: Piece, lines: NDArray[np.int64], source: str) -> Numbers:
    """Numbers of lines, an error of which names the line of the file."""
    try:
        return parsed(piece, source)
    except SparseInputError as error:
        line = lines[int(error.place.removeprefix("line ")) - 1]
        raise SparseInputError(source, f"line {line}", error.problem, error.advice) from None


def _without_comments(piece: Piece) -> tuple[bytes, NDArray[np.int64]]:
    """The lines that are no comments, and the number of each in the file."""
    numbers = np.arange(piece.first_line, piece.first_line + piece.data.count(b"\n"))
    if b"%" not in piece.data:
        return piece.data, numbers
    kept = [(number, line) for number, line in zip(numbers, piece.data.split(b"\n"), strict=False) if line.lstrip()[:1] != b"%"]
    return b"".join(line + b"\n" for _, line in kept), np.array([number for number, _ in kept], np.int64)


def _header(line: bytes, number: int, source: str) -> Header:
    """Header from the first line."""
    words = line.decode("ascii", "replace").split()
    whole = 2 <= len(words) <= 4 and all(re.fullmatch(r"\d{1,12}", word) for word in words)
    fmt = words[2].zfill(3) if whole and len(words) > 2 else "000"
    if not whole or not re.fullmatch("[01]{3}", fmt):
        problem = "two to four numbers are needed: vertices, edges, a format of digits 0 and 1, and weights of a vertex"
        raise SparseInputError(source, f"line {number}", problem, "it is no file in METIS's format")
    n_weights = int(words[3]) if len(words) == 4 else 1
    n, m = int(words[0]), int(words[1])
    if n > MOST_COLUMNS or (n == 0 and n_weights > 1) or (len(words) == 4 and fmt[1] == "0" and n_weights > 0):
        problem = f"{n} vertices with {n_weights} weights each, format {fmt}"
        advice = f"at most {MOST_COLUMNS} vertices, weights only where there are vertices and the format says so"
        raise SparseInputError(source, f"line {number}", problem, advice)
    return Header(number, n, m, fmt[0] == "1", n_weights if fmt[1] == "1" else 0, fmt[2] == "1")


def _check_counts(header: Header, vertices: _Vertices, source: str) -> None:
    """Refuse lines of too few numbers."""
    rest = vertices.counts - header.n_leading
    bad = (rest < 0) | (rest % 2 == 1 if header.has_edge_weights else False)
    if bad.any():
        at = int(np.argmax(bad))
        each = "a weight behind each neighbour" if header.has_edge_weights else "neighbours"
        problem = f"it has {vertices.counts[at]} numbers, but {header.n_leading} and then {each} are needed"
        raise SparseInputError(source, f"line {vertices.lines[at]}", problem, _ADVICE)


def _check_edges(header: Header, total: int, source: str) -> None:
    """Refuse another number of edges than the first line promises."""
    if total != 2 * header.n_edges:
        problem = (
            f"{header.n_edges} edges are promised, but the lines of vertices name {total} neighbours, not {2 * header.n_edges}"
        )
        raise SparseInputError(source, f"line {header.line}", problem, _ADVICE)


def _split(header: Header, vertices: _Vertices) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers before the neighbours, a row for each vertex, and all others."""
    if header.n_leading == 0:
        return np.empty((header.n_vertices, 0), np.int64), vertices.numbers
    starts = np.cumsum(vertices.counts) - vertices.counts
    places = starts[:, np.newaxis] + np.arange(header.n_leading)
    is_neighbour = np.ones(vertices.numbers.size, bool)
    is_neighbour[places] = False
    return vertices.numbers[places], vertices.numbers[is_neighbour]


def _check_neighbours(
    header: Header, vertices: _Vertices, starts: NDArray[np.int64], columns: NDArray[np.int64], source: str
) -> None:
    """Refuse neighbours that are no vertices, and loops."""
    own = np.repeat(np.arange(1, header.n_vertices + 1), np.diff(starts))
    bad = (columns < 1) | (columns > header.n_vertices) | (columns == own)
    if bad.any():
        at = int(np.argmax(bad))
        problem = f"vertex {own[at]} has neighbour {columns[at]}, but others from 1 to {header.n_vertices} are meant"
        raise SparseInputError(source, f"line {vertices.lines[own[at] - 1]}", problem, _ADVICE)


def _symmetric(
    starts: NDArray[np.int64], columns: NDArray[np.int64], weights: NDArray[np.int64] | None, vertices: _Vertices, source: str
) -> Any:
    """The matrix in canonical form, once it is known that each edge stands there both ways, once."""
    n = starts.size - 1
    values = np.ones(columns.size, np.int8) if weights is None else weights.copy()
    if weights is not None and weights.size and weights.max() > MOST_WHOLE:
        row = int(np.searchsorted(starts, int(np.argmax(weights > MOST_WHOLE)), side="right")) - 1
        raise SparseInputError(source, f"line {vertices.lines[row]}", "a weight is beyond 2^53", "give smaller weights")
    matrix = csr_array((values, (columns - 1).astype(np.int32), starts), shape=(n, n))
    matrix.sort_indices()
    other = matrix.T.tocsr()
    same = matrix.indices[1:] == matrix.indices[:-1]
    same[matrix.indptr[1:-1][(matrix.indptr[1:-1] > 0) & (matrix.indptr[1:-1] < columns.size)] - 1] = False
    if same.any():
        row = int(np.searchsorted(matrix.indptr, int(np.argmax(same)), side="right")) - 1
        problem = f"vertex {row + 1} has neighbour {matrix.indices[int(np.argmax(same))] + 1} twice"
        raise SparseInputError(source, f"line {vertices.lines[row]}", problem, _ADVICE)
    parts = (matrix.indptr, other.indptr), (matrix.indices, other.indices), (matrix.data, other.data)
    if not all(np.array_equal(*pair) for pair in parts):
        difference = (matrix.astype(np.int64) - other.astype(np.int64)).tocoo()
        row, col = (int(each[np.argmax(difference.data != 0)]) for each in (difference.row, difference.col))
        own, others = (int(each[row, col]) for each in (matrix, other))
        where = f"it stands in that of vertex {(row if own else col) + 1} only" if own * others == 0 else f"{own} and {others}"
        problem = f"the edge of vertices {row + 1} and {col + 1} is not the same in the lines of both: {where}"
        raise SparseInputError(source, f"line {vertices.lines[row]}", problem, _ADVICE)
    return matrix
