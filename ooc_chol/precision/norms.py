"""Norms of a matrix and of its factor for the planner: norms of tiles, and a sample of entries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import log2, sqrt

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import brief_repr
from ooc_chol.formats import FP16
from ooc_chol.process.scipy_modules import linalg_module
from ooc_chol.process.team import map_in_threads
from ooc_chol.tasks.tiling import TileGrid

_dpotrf = linalg_module("_flapack").dpotrf
#: Rows that a sample takes of each tile, and most rows of a sample.
SAMPLE_ROWS, MOST_SAMPLE_ROWS = 16, 1024
#: Magnitudes are measured before a tile is rounded, in the narrowest format up by a sixteenth.
LARGEST_ROUNDED = 1 + 2.0**-4
#: By how much expected norms may be too small.
SAFETY = 1.5
#: Rows of a sample by which the smallest pivots are foreseen, the seed of their order, and which of them count as small.
PIVOT_ROWS, _PIVOT_SEED, _SMALL_PIVOTS = 512, 41, 0.1

#: By how much small pivots fall from each quarter of such a sample to the next where a spectrum has no end.
_STEEP = 0.3

#: Random vectors of each of the two sets that measure the error of a factor.
PROBES = 64
#: Seed of their entries: a call's bound, and what is done about it, is the same each time.
_SEED = 20241116
#: Rows that are drawn together, each such block from a stream of its own, and entries from which on several threads draw.
_DRAWN_ROWS, MANY_ENTRIES = 4096, 1 << 20


@dataclass(frozen=True, eq=False)
class Probes:
    """Random vectors with which a matrix is multiplied from both sides to learn the norm of what is wrong with its factor."""

    vectors: NDArray[np.float64]  #: (n, 2 s) ``[U, V]``, independent standard normal entries times ``2**(power / 2)``
    power: int = 0  #: Not 0 where A is so large or small that its products with ordinary numbers overflow, or vanish; even

    @classmethod
    def of(cls, n: int, power: int = 0) -> Probes:
        """Two sets of :data:`PROBES` vectors for a matrix of order ``n``; the first rows are those of smaller orders."""
        return cls.of_rows(range(n), power=power)

    @classmethod
    def of_rows(cls, *spans: range, power: int = 0) -> Probes:
        """Some rows of these vectors, one span after the other, for those who have but a part of the matrix."""
        vectors = np.empty((sum(map(len, spans)), 2 * PROBES))
        pieces, at = [], 0
        for span in spans:
            for start in range(span.start - span.start % _DRAWN_ROWS, span.stop, _DRAWN_ROWS):
                rows = range(max(start, span.start), min(start + _DRAWN_ROWS, span.stop))
                pieces.append((rows, vectors[at : at + len(rows)]))
                at += len(rows)

        def draw(piece: tuple[range, NDArray[np.float64]]) -> None:
            rows, out = piece
            block, skipped = divmod(rows.start, _DRAWN_ROWS)
            source = np.random.Generator(np.random.Philox(key=_SEED, counter=block << 128))
            drawn = source.standard_normal((skipped + len(rows), 2 * PROBES), dtype=np.float32)
            np.ldexp(drawn[skipped:], power // 2, out=out, dtype=np.float64)

        if vectors.size < MANY_ENTRIES:
            for piece in pieces:
                draw(piece)
        else:
            map_in_threads(draw, pieces)
        return cls(vectors, power)


def foreseen_pivot(sample: NDArray[np.float64], n: int) -> float:
    """Small pivots of a factor of order ``n``, each as a share of its diagonal entry, by those of a sample in random order.

    What is left of a diagonal entry once so many others are known falls with their number; it is taken to fall on as from the
    second quarter of the sample to its second half, as a power of that number. Where it falls steeply from each quarter to the
    next, it falls as spectra do that have no end, by the same factor for as many more. 0 where the sample has no factor.
    """
    order = np.random.default_rng(_PIVOT_SEED).permutation(len(sample))[:PIVOT_ROWS]
    rows, back = np.unique(order, return_inverse=True)
    lower = sample[np.ix_(rows, rows)]
    chosen = (np.tril(lower) + np.tril(lower, -1).T)[np.ix_(back, back)]
    diagonal = chosen.diagonal().copy()
    upper, info = _dpotrf(chosen, lower=0, clean=0, overwrite_a=1)
    m = len(order)
    if info != 0 or not m or not np.isfinite(diagonal).all():
        return 0.0
    shares = np.square(upper.diagonal()) / diagonal
    if m < 8 or m >= n:
        return float(shares.min())
    first, second, third, fourth = (float(np.quantile(part, _SMALL_PIVOTS)) for part in np.array_split(shares, 4))
    if second <= _STEEP * first and third <= _STEEP * second and fourth <= _STEEP * third:
        return float(fourth * (fourth / third) ** (4.0 * (n - m) / m))
    behind = float(np.quantile(shares[m // 2 :], _SMALL_PIVOTS))
    fall: float = min(1.0, behind / second) ** log2(n / m)
    return behind * fall


def sample_step(grid: TileGrid) -> int:
    """Every how many rows and columns of a tile a sample takes: a power of two, at least 1."""
    rows = min(SAMPLE_ROWS, max(1, MOST_SAMPLE_ROWS // grid.nt))
    step = 1
    while grid.nb // step > rows:
        step *= 2
    return step


def sample_starts(grid: TileGrid, step: int) -> NDArray[np.int64]:
    """Where each tile row starts in a sample of every ``step``-th row and column of each tile, and where the last one ends."""
    return np.cumsum([0, *(-(-grid.size(i) // step) for i in range(grid.nt))])


@dataclass(frozen=True, eq=False)
class FactorNorms:
    """Norms of the tiles of L, measured or expected."""

    tiles: NDArray[np.float64]  #: Frobenius norm of each tile
    columns: NDArray[np.float64]  #: Largest 2-norm of a column of each tile

    __repr__ = brief_repr

    @classmethod
    def expected(cls, grid: TileGrid, sample: NDArray[np.float64], step: int) -> FactorNorms | None:
        """Norms of L's tiles by the factor of a sample of A."""
        # The lower triangle row by row is the upper one column by column, which LAPACK takes without a copy.
        upper, info = _dpotrf(np.array(sample).T, lower=0, clean=1, overwrite_a=1)
        if info != 0:
            return None
        starts, factor = sample_starts(grid, step), upper.T
        by_column = np.zeros((grid.nt, len(factor)))  # of each tile row
        for i, (top, bottom) in enumerate(pairwise(starts)):
            rows = factor[top:bottom, :bottom]
            by_column[i, :bottom] = np.einsum("ij,ij->j", rows, rows)
        # A row of the sample stands for `step` rows, and a column for as many columns.
        with np.errstate(over="ignore"):  # norms beyond FP64 are small for no format
            tiles = np.sqrt(step * np.add.reduceat(by_column, starts[:-1], axis=1))
        return cls(SAFETY * tiles, SAFETY * np.sqrt(np.maximum.reduceat(by_column, starts[:-1], axis=1)))

    @classmethod
    def measured(cls, grid: TileGrid, rows: NDArray[np.float64]) -> FactorNorms:
        """Norms as kernels measured them, the numbers of :data:`ooc_chol.interfaces.NORM_COLUMNS`; columns from above."""
        heights = np.repeat([grid.size(i) for i in range(grid.nt)], range(1, grid.nt + 1))
        tiles, columns = cls.of_tiles(rows, heights)
        return cls(lower_matrix(grid, tiles), lower_matrix(grid, columns))

    @staticmethod
    def of_tiles(rows: NDArray[np.float64], heights: int | NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Norms and largest column norms, from above, of some tiles as kernels measured them."""
        return rows[:, 0], np.minimum(rows[:, 0], LARGEST_ROUNDED * np.sqrt(heights) * rows[:, 4])

    def squared_errors(self, row: int | NDArray[np.intp], columns: slice, stop: int) -> NDArray[np.float64]:
        """Squared errors of products ``L[row, k] @ L[j, k].T`` in FP16, for the ``columns`` j and k before ``stop``.

        Their axes are the last two; those of ``row``, where it is an array, come first.
        """
        left_column, right_column = self.columns[row, np.newaxis, :stop], self.columns[columns, :stop]
        left, right = self.tiles[row, np.newaxis, :stop], self.tiles[columns, :stop]
        squares = np.square(left * right_column) + np.square(left_column * right)
        return FP16.unit_roundoff**2 / 3.0 * squares


@dataclass(frozen=True, eq=False)
class MatrixNorms:
    """Norms of A's entries for the planner."""

    grid: TileGrid  #: How A is cut into the tiles that were measured
    tiles: NDArray[np.float64]  #: (n_tiles,) Frobenius norm of each packed tile; of a diagonal tile, of the whole square
    traces: NDArray[np.float64]  #: (nt,) sum, least and largest of the diagonal entries of each tile row
    least: NDArray[np.float64]
    largest: NDArray[np.float64]
    seconds: float = 0.0  #: Seconds that measuring took, A's tiles made or read included
    #: The norms that L's tiles are expected to have, by a sample of A; None where none was taken, or has no factor
    expected: FactorNorms | None = None
    #: Random vectors that A was multiplied with, for the certificate; None where none were asked for
    probes: Probes | None = None
    form: NDArray[np.float64] | None = None  #: (s, s) ``U.T @ A @ V`` of these vectors
    diagonal: NDArray[np.float64] | None = None  #: (n,) the diagonal of A
    #: What the small pivots are foreseen to be, as a share of their diagonal entries; None where no sample was taken
    pivot: float | None = None

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        rows = (self.traces, self.least, self.largest)
        if self.tiles.shape != (self.grid.n_tiles,) or any(row.shape != (self.grid.nt,) for row in rows):
            raise ValueError(f"the norms are not those of {self.grid.n_tiles} tiles in {self.grid.nt} rows")

    @cached_property
    def total(self) -> float:
        """The Frobenius norm of A, ``||A||_F``."""
        return symmetric_norm(lower_matrix(self.grid, self.tiles))

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Norm of each packed tile of L times the mean singular value of the diagonal one in its column; at least ``||A_ij||_F``.

        What rounding tile (i, j) of L changes of A is in proportion. Tiles of L that fill in are larger than those of A.
        """
        if self.expected is None:
            return self.tiles
        i, j = np.tril_indices(self.grid.nt)
        sizes = np.array([self.grid.size(at) for at in range(self.grid.nt)])
        with np.errstate(over="ignore", invalid="ignore"):  # of norms that are no numbers
            scales = np.sqrt(np.maximum(self.traces, 0.0) / sizes)
            return np.asarray(np.fmax(self.tiles, self.expected.tiles[i, j] / SAFETY * scales[j]))

    @property
    def trace(self) -> float:
        """Trace of A, which is also ``||L||_F**2``."""
        return float(self.traces.sum())


def lower_matrix(grid: TileGrid, packed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Packed numbers of tiles as an ``(nt, nt)`` matrix, zero above the diagonal."""
    matrix = np.zeros((grid.nt, grid.nt))
    matrix[np.tril_indices(grid.nt)] = packed
    return matrix


def symmetric_norm(lower: NDArray[np.float64]) -> float:
    """Frobenius norm of a symmetric matrix by norms of its tiles: those below the diagonal count twice."""
    scale = float(lower.max())
    if not 0.0 < scale < np.inf:
        return scale
    squares = np.square(lower / scale)
    return scale * sqrt(2.0 * float(squares.sum()) - float(np.trace(squares)))
