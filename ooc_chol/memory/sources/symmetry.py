"""Check of symmetry, by a small sample of both triangles of a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import TierError
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.memory.sources.chunks import ChunkGrid

#: Pairs beside the diagonal, and as many spread over the triangle; entries of the diagonal that tell the size of all.
_PAIRS, _ON_DIAGONAL = 12, 4
#: Order of the block on the diagonal that is read where single entries are dear.
_BLOCK = 16
#: Difference of a pair, over the largest entry of the sample, that rounding does not explain: of entries of 32 bits or more, and
#: of narrower ones or those whose width is unknown. An entry that is zero beside one that is not may be smaller.
_WIDE, _NARROW, _ZERO = 1e-5, 1e-3, 1e-12
#: How the upper triangle is read of a real matrix, and of a complex one.
_UPPER = ("lower=False", "A.conj().T")
_GOLDEN = 0.6180339887498949

Places = tuple[NDArray[np.intp], NDArray[np.intp]]


class Asymmetry(NamedTuple):
    """Two entries that should be equal."""

    row: int  #: Row of the one below the diagonal
    col: int
    below: complex
    above: complex  #: Of a complex matrix the conjugate of what stands there
    is_complex: bool

    def __str__(self) -> str:
        there = f"{'the conjugate of ' if self.is_complex else ''}A[{self.col}, {self.row}]"
        return f"A[{self.row}, {self.col}] is {self.below:.6g}, but {there} is {self.above:.6g}"

    def warning(self) -> str:
        """The pair, and what to do."""
        kind, mean = ("Hermitian", "(A + A.conj().T) / 2") if self.is_complex else ("symmetric", "(A + A.T) / 2")
        return (
            f"{self}: A is not {kind}, and only its lower triangle is read. Give lower=True if that is what you mean, "
            f"{_UPPER[self.is_complex]} if the upper one counts, or {mean}"
        )


def find_asymmetry(source: AbstractSource) -> Asymmetry | None:
    """The pair of a fixed sample of some forty entries that differs most; None where none does, or nothing may be read.

    Of a source in chunks a pair of which one entry is in a chunk that is missing goes before, and is a ``TierError`` where that
    is the one that is read.
    """
    if source.n < 2 or source.sampled_by is None:
        return None
    is_complex = source.dtype.kind == "c"
    if (hole := find_hole(source)) is not None:
        return Asymmetry(hole.col, hole.row, hole.other, hole.filled.conjugate(), is_complex)
    if source.sampled_by == "entries":
        rows, cols = _spread(source.n)
        below, above = source.entries(rows, cols), source.entries(cols, rows)
    else:
        order = min(source.n, _BLOCK)
        start = (source.n - order) // 2
        rows, cols = _all_pairs(order)
        block = np.empty((order, order), np.complex128 if is_complex else np.float64)
        source.read_block(span := range(start, start + order), span, block)
        if (block == block.conj().T).all():
            return None
        below, above, rows, cols = block[rows, cols], block[cols, rows], rows + start, cols + start
    if is_complex:
        above = above.conj()
    if (below == above).all():  # nearly always
        return None
    at = _worst(below, above, _NARROW if source.bytes_per_entry < 4 else _WIDE, rows != cols)
    return None if at is None else Asymmetry(int(rows[at]), int(cols[at]), below[at].item(), above[at].item(), is_complex)


def _worst(below: NDArray[Any], above: NDArray[Any], tolerance: float, is_pair: NDArray[np.bool_]) -> int | None:
    """Where a pair differs most; what is not finite below the diagonal, or not real on it, is met by the factorization."""
    sizes = np.maximum(np.abs(below), np.abs(above))
    largest = sizes[np.isfinite(sizes)].max(initial=0.0)
    with np.errstate(invalid="ignore"):
        difference = np.abs(below - above)
    allowed = np.where((below == 0) != (above == 0), _ZERO, tolerance) * largest
    differs = ~(difference <= allowed) & np.isfinite(below) & is_pair
    if not differs.any():
        return None
    return int(np.argmax(np.where(differs, np.nan_to_num(difference, nan=np.inf), -1.0)))


@lru_cache(maxsize=64)
def _spread(n: int) -> Places:
    """Places below the diagonal, next to it and anywhere, and a few on it."""
    beside = np.unique(np.linspace(1, n - 1, _PAIRS).astype(np.intp))
    anywhere = (beside * (np.arange(1, len(beside) + 1) * _GOLDEN % 1.0)).astype(np.intp)
    diagonal = np.linspace(0, n - 1, _ON_DIAGONAL).astype(np.intp)
    rows = np.concatenate([beside, beside, [n - 1], diagonal])
    return rows, np.concatenate([beside - 1, anywhere, [0], diagonal])


@lru_cache(maxsize=4)
def _all_pairs(order: int) -> Places:
    """The lower triangle of a block, with its diagonal."""
    rows, cols = np.tril_indices(order)
    return rows, cols


#: Entries that are read at a time, and chunks above the diagonal, which nobody reads, of which the mirror is looked at.
_ENTRIES, _MOST_ABOVE = 1 << 20, 16


class Hole(NamedTuple):
    """An entry of a chunk that is missing, which has the fill value, and the one beyond the diagonal, which has not."""

    row: int
    col: int
    chunk: str
    filled: complex
    other: complex


def find_hole(source: AbstractSource) -> Hole | None:
    """An entry above the diagonal that is missing, and whose mirror is there and another number; None where none is found.

    Where both chunks are missing nothing is lost as far as anybody can tell: both have the fill value. Raises ``TierError``: such
    an entry is below the diagonal, where A is read.
    """
    grid = source.chunk_grid()
    if grid is None or grid.is_there.all():
        return None
    below, above = _suspects(grid, source.n)
    for i, j in below.tolist():
        if (hole := _hole_of(source, grid, i, j, is_below=True)) is not None:
            lost = f"A[{hole.row}, {hole.col}] is {hole.filled:.6g}, since {hole.chunk} is missing"
            there = f"A[{hole.col}, {hole.row}] is {hole.other:.6g}"
            advice = (
                f"give {_UPPER[source.dtype.kind == 'c']} if the upper triangle counts, or lower=True if what is missing is meant"
            )
            raise TierError(f"{lost}, but {there}: write that chunk again, or {advice}")
    holes = (_hole_of(source, grid, i, j, is_below=False) for i, j in above[:_MOST_ABOVE].tolist())
    return next((hole for hole in holes if hole is not None), None)


def _suspects(grid: ChunkGrid, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Missing chunks with entries below the diagonal, and such above it, in whose mirror image a chunk is there."""
    height, width = grid.shape
    missing = np.argwhere(~grid.is_there)
    first = missing * grid.shape
    stop = np.minimum((missing + 1) * grid.shape, n)
    # How many chunks are there of those before each, along both axes: four of these numbers count a rectangle.
    before = np.zeros(np.add(grid.is_there.shape, 1), np.int64)
    before[1:, 1:] = grid.is_there.cumsum(axis=0).cumsum(axis=1)
    r0, r1 = first[:, 1] // height, -(-stop[:, 1] // height)
    c0, c1 = first[:, 0] // width, -(-stop[:, 0] // width)
    is_suspect = before[r1, c1] - before[r0, c1] - before[r1, c0] + before[r0, c0] > 0
    is_below, is_above = stop[:, 0] - 1 > first[:, 1], stop[:, 1] - 1 > first[:, 0]
    return missing[is_suspect & is_below], missing[is_suspect & is_above]


def _hole_of(source: AbstractSource, grid: ChunkGrid, i: int, j: int, *, is_below: bool) -> Hole | None:
    """The first entry of a missing chunk, on one side of the diagonal, whose mirror image is another number."""
    height, width = grid.shape
    rows, columns = (range(at * size, min((at + 1) * size, source.n)) for at, size in ((i, height), (j, width)))
    kind = np.complex128 if source.dtype.kind == "c" else np.float64
    filled = np.empty((1, 1), kind)
    source.read_block(rows[:1], columns[:1], filled)
    for part in _bands(columns, len(rows)):
        mirror = np.empty((len(part), len(rows)), kind)
        source.read_block(part, rows, mirror)
        side = np.subtract.outer(np.asarray(part), np.asarray(rows))
        differs = (mirror.conj() != filled) & ((side < 0) if is_below else (side > 0))
        if differs.any() and np.isfinite(filled).all():  # what is not finite is met by the factorization
            at, column = (int(place) for place in np.argwhere(differs)[0])
            return Hole(rows[column], part[at], grid.named(i, j), filled[0, 0].item(), mirror[at, column].item())
    return None


def _bands(lines: range, width: int) -> Iterator[range]:
    """Some lines after the other, of not too many entries."""
    step = max(1, _ENTRIES // max(1, width))
    return (lines[at : at + step] for at in range(0, len(lines), step))
