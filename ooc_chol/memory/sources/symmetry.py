"""Check of symmetry, by a small sample of both triangles of a matrix."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.memory.sources.holes import find_hole

#: Pairs beside the diagonal, and as many spread over the triangle; entries of the diagonal that tell the size of all.
_PAIRS, _ON_DIAGONAL = 12, 4
#: Order of the block on the diagonal that is read where single entries are dear.
_BLOCK = 16
#: Difference of a pair, over the largest entry of the sample, that rounding does not explain: of entries of 32 bits or more, and
#: of narrower ones or those whose width is unknown. An entry that is zero beside one that is not may be smaller.
_WIDE, _NARROW, _ZERO = 1e-5, 1e-3, 1e-12
#: What is said of a matrix that is not, around the pair that shows it.
ASYMMETRIC = (
    "{}: A is not symmetric, and only its lower triangle is read. Give lower=True if that is what you mean, lower=False if the "
    "upper one counts, or (A + A.T) / 2"
)
_GOLDEN = 0.6180339887498949

Places = tuple[NDArray[np.intp], NDArray[np.intp]]


class Asymmetry(NamedTuple):
    """Two entries that should be equal."""

    row: int  #: Row of the one below the diagonal
    col: int
    below: complex
    above: complex  #: Of a Hermitian matrix the conjugate of what stands there

    def __str__(self) -> str:
        row, col = self.row, self.col
        return f"A[{row}, {col}] is {self.below:.6g}, but A[{col}, {row}] is {self.above.conjugate():.6g}"


def find_asymmetry(source: AbstractSource) -> Asymmetry | None:
    """The pair of a fixed sample of some forty entries that differs most; None where none does, or nothing may be read.

    Of a source in chunks a pair of which one entry is in a chunk that is missing goes before, and is a ``TierError`` where that
    is the one that is read.
    """
    if source.n < 2 or source.sampled_by is None:
        return None
    if (hole := find_hole(source)) is not None:
        return Asymmetry(hole.col, hole.row, hole.other, hole.filled)
    if source.sampled_by == "entries":
        rows, cols = _spread(source.n)
        below, above = source.entries(rows, cols), source.entries(cols, rows)
    else:
        order = min(source.n, _BLOCK)
        start = (source.n - order) // 2
        rows, cols = _all_pairs(order)
        block = np.empty((order, order), np.complex128 if source.dtype.kind == "c" else np.float64)
        source.read_block(span := range(start, start + order), span, block)
        below, above, rows, cols = block[rows, cols], block[cols, rows], rows + start, cols + start
    if source.dtype.kind == "c":
        above = above.conj()
    if np.array_equal(below, above):  # nearly always
        return None
    at = _worst(below, above, _NARROW if source.bytes_per_entry < 4 else _WIDE)
    return None if at is None else Asymmetry(int(rows[at]), int(cols[at]), below[at].item(), above[at].item())


def _worst(below: NDArray[Any], above: NDArray[Any], tolerance: float) -> int | None:
    """Where a pair differs most; what is not finite below the diagonal is met by the factorization."""
    sizes = np.maximum(np.abs(below), np.abs(above))
    largest = sizes[np.isfinite(sizes)].max(initial=0.0)
    with np.errstate(invalid="ignore"):
        difference = np.abs(below - above)
    allowed = np.where((below == 0) != (above == 0), _ZERO, tolerance) * largest
    differs = ~(difference <= allowed) & np.isfinite(below)
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
