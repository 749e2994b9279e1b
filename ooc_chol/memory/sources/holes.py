"""Entries in chunks that are missing, of which the other triangle shows that they were lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import TierError
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.memory.sources.chunks import ChunkGrid

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
            advice = "give lower=False if the upper triangle counts, or lower=True if what is missing is meant"
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
