"""Preconditioners of Laplacians: smoothed aggregation in blocks, with PyAMG's aggregates, or the diagonal."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, diags_array

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.runs import RowRuns

Vectors = NDArray[np.float64]

#: Largest operator complexity at which a cycle is worth its products; and where weak edges are left out of prolongations, which
#: only graphs need whose weights spread over so many magnitudes that the diagonal takes thousands of passes.
MOST_COMPLEXITY, MOST_FILTERED = 3.0, 6.0
#: Unknowns of the coarsest level that are solved for directly, and the most that may be left where levels stop to shrink.
_COARSEST, _MOST_COARSEST = 200, 2000
#: A product of matrices may take so many times the entries of the graph: a coarse level beyond is too dense to be of use.
_MOST_WORK = 64
#: Weight of the damped Jacobi step that smooths prolongations, over Gershgorin's bound.
_SMOOTHING = 1.7
#: Chebyshev polynomials damp eigenvalues from this share of the bound on.
_DAMPED_FROM = 1 / 16
#: Entries of a row from which on a second step costs more than the passes that it saves: 0.85 s of one core for 1.16, of pixels
#: with 80 neighbours.
_LONG = 40
#: Edges with less than this share of the largest weight at either end, the smaller of both, join no aggregates: those across
#: edges of an image.
_STRONG = 0.25
#: A diagonal entry of a coarse level below this share of what was added up for it is rounding: parts hardly joined to the others.
_LEAST_DIAGONAL = 1e-12
#: A matrix times its prolongation is kept where it has so many times fewer entries: a product with it saves one with the matrix.
_MUCH_SPARSER = 2
#: Eigenvalues of the coarsest matrix below this share of the largest are taken for zeros.
_LEAST_VALUE = 1e-13


class _Level(NamedTuple):
    """A matrix, what smooths it, and how it is coarsened."""

    matrix: RowRuns
    inverse: Vectors  #: (n, 1) of its diagonal
    bound: float  #: Gershgorin's, of D^-1 A
    prolongation: RowRuns
    restriction: RowRuns
    through: RowRuns | None  #: Matrix times prolongation, where that is much sparser than the matrix
    is_long: bool  #: True if rows have many entries


class _Coarsening(NamedTuple):
    """A level, and what is below it."""

    level: _Level
    matrix: csr_array
    inverse: Vectors  #: (m,) of its diagonal
    null: Vectors  #: (m,)


@final
class SmoothedAggregation:
    """A V-cycle of smoothed aggregation on blocks of vectors: ``M R``, M symmetric and positive beside the null vector.

    Shapes: ``laplacian`` (n, n), ``scaling`` (n,). Vaněk, Mandel and Brezina (1996). Chebyshev polynomials of degree 2 in place
    of Gauss and Seidel's sweeps: all vectors of a block are multiplied together. Bounds of eigenvalues are Gershgorin's, so that
    nothing is random and every cycle is positive. With ``is_filtered`` prolongations are smoothed along strong edges alone.
    Raises ``TooDenseError``: coarse levels have more than ``MOST_COMPLEXITY``, or ``MOST_FILTERED``, times the entries of the
    graph, with the finest.
    """

    def __init__(self, laplacian: csr_array, scaling: Vectors | None = None, *, is_filtered: bool = False) -> None:
        self._scaling = None if scaling is None else scaling[:, None]
        self._levels: list[_Level] = []
        matrix, inverse, null = laplacian, 1 / laplacian.diagonal(), np.ones(laplacian.shape[0])
        self.most_complexity = MOST_FILTERED if is_filtered else MOST_COMPLEXITY
        entries, most = laplacian.nnz, self.most_complexity * laplacian.nnz
        while matrix.shape[0] > _COARSEST:
            below = _coarsened(matrix, inverse, null, _MOST_WORK * laplacian.nnz, is_filtered=is_filtered)
            if below.matrix.shape[0] == matrix.shape[0]:
                break
            self._levels.append(below.level)
            matrix, inverse, null = below.matrix, below.inverse, below.null
            entries += matrix.nnz
            if entries > most:
                raise TooDenseError(entries / laplacian.nnz, self.most_complexity)
        if matrix.shape[0] > _MOST_COARSEST:
            raise TooDenseError(entries / laplacian.nnz, self.most_complexity)
        self.complexity = entries / laplacian.nnz  #: Entries of all levels over those of the finest
        self._coarsest = _pseudo_inverse(matrix, null)

    def __call__(self, residuals: Vectors) -> Vectors:
        """``M R`` of an (n, b) array."""
        r = residuals if self._scaling is None else self._scaling * residuals
        x = self._cycle(0, r - r.mean(axis=0))
        return x if self._scaling is None else self._scaling * x

    def _cycle(self, number: int, b: Vectors) -> Vectors:
        """A V-cycle from a level downwards."""
        if number == len(self._levels):
            return self._coarsest @ b
        level = self._levels[number]
        x = _smoothed(level, b, np.zeros_like(b), b)
        left = b - level.matrix.times(x)
        coarse = self._cycle(number + 1, level.restriction.times(left))
        x += level.prolongation.times(coarse)
        left = b - level.matrix.times(x) if level.through is None else left - level.through.times(coarse)
        return _smoothed(level, b, x, left)


class TooDenseError(Exception):
    """Coarse levels of a graph are too dense for a cycle; ``complexity`` is what was seen before that was given up at most."""

    def __init__(self, complexity: float, most: float = MOST_COMPLEXITY) -> None:
        self.complexity, self.most = complexity, most
        super().__init__(f"operator complexity {complexity:.3g}")


def aggregated(laplacian: csr_array, scaling: Vectors | None = None) -> SmoothedAggregation:
    """A cycle; where its coarse levels are dense and edges are weak, one that leaves those out of prolongations."""
    try:
        return SmoothedAggregation(laplacian, scaling)
    except TooDenseError:
        if _strong(RowRuns(laplacian)).nnz == laplacian.nnz:
            raise
    return SmoothedAggregation(laplacian, scaling, is_filtered=True)


def has_pyamg() -> bool:
    """Tell whether PyAMG can be imported."""
    try:
        with tb.guarded_imports():
            import pyamg  # noqa: F401
    except ImportError:
        return False
    return True


def _coarsened(matrix: csr_array, inverse: Vectors, null: Vectors, most_work: float, *, is_filtered: bool) -> _Coarsening:
    """A level, and the Galerkin matrix of its smoothed aggregates."""
    with tb.guarded_imports():
        from pyamg.aggregation import standard_aggregation
        from scipy.sparse import csr_matrix

    runs = RowRuns(matrix)
    bound = float((np.concatenate(runs.map(_absolute_sums)) * inverse).max())
    strong = _strong(runs)
    aggregates = csr_matrix(standard_aggregation(csr_matrix(strong))[0])
    members, rows = aggregates.indices, np.diff(aggregates.indptr) > 0  # a row of zeros is in none
    norms = np.sqrt(np.bincount(members, null[rows] ** 2, aggregates.shape[1]))
    tentative = csr_array((null[rows] / norms[members], members, aggregates.indptr), aggregates.shape)
    if is_filtered:
        step, scale = _filtered(matrix, strong, null, tentative)
    else:
        step, scale = runs.times_sparse(tentative), _SMOOTHING / bound * inverse
    step.data *= np.repeat(scale, np.diff(step.indptr))
    prolongation = csr_array(tentative - step)
    work = sum(runs.map(lambda part, _: int(np.diff(prolongation.indptr)[part.indices].sum())))
    if work > most_work:
        raise TooDenseError(work / matrix.nnz, MOST_FILTERED if is_filtered else MOST_COMPLEXITY)
    restriction = csr_array(prolongation.T.tocsr())
    through = runs.times_sparse(prolongation)
    coarse = csr_array(restriction @ through)
    diagonal = coarse.diagonal()
    is_real = diagonal > _LEAST_DIAGONAL * (restriction.multiply(restriction) @ matrix.diagonal())
    below = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=is_real)
    is_sparse = _MUCH_SPARSER * through.nnz <= matrix.nnz
    kept = RowRuns(through) if is_sparse else None
    level = _Level(
        runs, inverse[:, None], bound, RowRuns(prolongation), RowRuns(restriction), kept, matrix.nnz >= _LONG * matrix.shape[0]
    )
    return _Coarsening(level, coarse, below, norms)


def _filtered(matrix: csr_array, strong: csr_array, null: Vectors, tentative: csr_array) -> tuple[csr_array, Vectors]:
    """Tentative prolongations times the strong entries, the null vector's share of others on the diagonal, and scales of rows."""
    others = np.asarray((matrix - strong) @ null)
    diagonal = strong.diagonal() + np.divide(others, null, out=np.zeros_like(null), where=null > 0)
    diagonal = np.where(diagonal > 0, diagonal, 1.0)  # of a row of zeros
    runs = RowRuns(csr_array(strong + diags_array(diagonal - strong.diagonal(), format="csr")))
    bound = float((np.concatenate(runs.map(_absolute_sums)) / diagonal).max())
    return runs.times_sparse(tentative), _SMOOTHING / bound / diagonal


def _absolute_sums(part: csr_array, _: slice) -> Vectors:
    """Sums of the magnitudes in some rows."""
    return _over_rows(np.add, np.abs(part.data), part)


def _over_rows(ufunc: np.ufunc, values: Vectors, part: csr_array) -> Vectors:
    """Reduce the values of each row by a ufunc, 0 for an empty one."""
    found, filled = np.zeros(part.shape[0]), np.flatnonzero(np.diff(part.indptr))
    if len(filled):
        found[filled] = ufunc.reduceat(values, part.indptr[filled])
    return found


def _strong(runs: RowRuns) -> csr_array:
    """The entries along which vertices join aggregates; each vertex keeps its largest."""
    matrix = runs.matrix
    largest = np.concatenate(runs.map(lambda part, rows: _over_rows(np.maximum, _weights(part, rows)[0], part)))

    def strong(part: csr_array, rows: slice) -> tuple[Vectors, NDArray[Any], NDArray[np.int64]]:
        weights, row = _weights(part, rows)
        kept = (weights > 0) & (weights >= _STRONG * np.minimum(largest[row], largest[part.indices]))
        kept |= row == part.indices
        counts = np.bincount(row[kept] - rows.start, minlength=part.shape[0])
        return part.data[kept], part.indices[kept], counts

    found = runs.map(strong)
    starts = np.concatenate([[0], *(counts for _, _, counts in found)]).cumsum().astype(matrix.indptr.dtype)
    arrays = np.concatenate([data for data, _, _ in found]), np.concatenate([columns for _, columns, _ in found]), starts
    return csr_array(arrays, shape=matrix.shape)


def _weights(part: csr_array, rows: slice) -> tuple[Vectors, NDArray[Any]]:
    """Weights of the edges of some rows of a Laplacian, 0 on the diagonal and below, and the row of each entry."""
    row = np.repeat(np.arange(rows.start, rows.stop, dtype=part.indices.dtype), np.diff(part.indptr))
    return np.where(row == part.indices, 0.0, np.maximum(-part.data, 0.0)), row


def _pseudo_inverse(matrix: csr_array, null: Vectors) -> Vectors:
    """Pseudo-inverse of a small matrix, without its null vector and vectors that cannot be told from others."""
    one = (null / np.linalg.norm(null))[:, None]
    dense = matrix.toarray()
    dense -= one @ (one.T @ dense)
    dense -= (dense @ one) @ one.T
    values, vectors = eigh((dense + dense.T) / 2)
    kept = values > _LEAST_VALUE * max(float(values[-1]), 0.0)
    kept &= values > 0
    return np.asarray((vectors[:, kept] / values[kept]) @ vectors[:, kept].T, np.float64)


def _smoothed(level: _Level, b: Vectors, x: Vectors, left: Vectors) -> Vectors:
    """Two steps of Chebyshev's iteration for ``A x = b``, one where rows are long, with ``left = b - A x``; x is changed."""
    middle, half = level.bound * (1 + _DAMPED_FROM) / 2, level.bound * (1 - _DAMPED_FROM) / 2
    rho = half / middle
    then = 1 / (2 / rho - rho)
    step = level.inverse * left
    step /= middle
    x += step
    if level.is_long:
        return x
    more = level.inverse * (b - level.matrix.times(x))
    more *= 2 * then / half
    step *= then * rho
    x += step
    x += more
    return x
