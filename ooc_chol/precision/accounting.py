"""Where the error of a factor comes from: estimates by what was measured of L's tiles as they became final.

A tile has one value, rounded once and used everywhere, so that tile by tile ``A_ij - (L L.T)_ij = -E_ij L_jj.T`` exactly but for
the arithmetic of the updates, with ``E_ij`` what rounding took away, whose norm is measured. For the arithmetic the estimate
takes ``u sqrt(K) ||L_ik|| ||L_jk||`` for a product of K columns, as if rounding errors of a sum were independent (Higham and
Mary, SIAM J. Sci. Comput. 2019). Where rows repeat they are not, and add up as K: so this is no bound;
:mod:`ooc_chol.precision.certified` has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import brief_repr
from ooc_chol.formats import FP32, FP64
from ooc_chol.precision.moduli import residue_basis
from ooc_chol.precision.norms import FactorNorms, lower_matrix, symmetric_norm
from ooc_chol.precision.products import FP16_SUM_ERROR, NARROW_TILES, SUM_TERMS
from ooc_chol.precision.tile_formats import PrecisionMap

#: Twice by how much more than the mean of its tiles' rows a row may lose.
_OF_A_ROW = 8.0
#: Standard deviations that the estimate allows for where rounding errors of many entries add up to one of a tile.
_DEVIATIONS = 2.0


@dataclass(frozen=True)
class ErrorEstimate:
    """Estimates of parts of ``||A - L L.T||_F / ||A||_F``, mostly from above."""

    storage: float  #: The part that comes from rounding final tiles to their formats
    arithmetic: float  #: The part that comes from updates, solves and reading A in the formats in which products ran

    __repr__ = brief_repr

    @property
    def total(self) -> float:
        """The error by storing and by arithmetic together, as a share of ``||A||_F``."""
        return self.storage + self.arithmetic

    def __str__(self) -> str:
        if not isfinite(self.total):
            return "not known: norms of A or L are beyond FP64"
        return f"{self.total:.2e} ||A||_F ({self.storage:.1e} by storing, {self.arithmetic:.1e} by arithmetic)"


def estimated_error(
    precision: PrecisionMap, rows: NDArray[np.float64], moduli: int | None, narrow: NDArray[np.bool_] | None = None
) -> ErrorEstimate:
    """Estimate the error of a factorization by the norms of its final tiles.

    ``narrow[i, j, k]`` says whether the product of tiles (i, k) and (j, k) ran in FP16. ``nt**3`` flops.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # the estimate says so where norms are beyond FP64
        return _estimated(precision, rows, moduli, narrow)


def _estimated(
    precision: PrecisionMap, rows: NDArray[np.float64], moduli: int | None, narrow: NDArray[np.bool_] | None
) -> ErrorEstimate:
    """As :func:`estimated_error`."""
    grid, total = precision.grid, precision.norms.total or 1.0
    norms, lost = (lower_matrix(grid, rows[:, column]) for column in (0, 1))
    # ||L_jj||_2 is at most the square root of its largest row and column sums of magnitudes, and so is that of |L_jj|.
    diagonal = np.array([grid.packed(j, j) for j in range(grid.nt)])
    spectral = np.sqrt(rows[diagonal, 2] * rows[diagonal, 3])
    storage = lost * np.minimum(spectral, np.diagonal(norms))[None, :]
    arithmetic = _arithmetic(precision, norms, spectral) if moduli is None else _residues(precision, norms, spectral, moduli)
    if narrow is not None and moduli is not None:
        arithmetic = arithmetic + _narrow(precision, FactorNorms.measured(grid, rows), narrow)
    return ErrorEstimate(symmetric_norm(storage) / total, symmetric_norm(arithmetic) / total)


def _arithmetic(precision: PrecisionMap, norms: NDArray[np.float64], spectral: NDArray[np.float64]) -> NDArray[np.float64]:
    """Errors of tiles whose updates ran in the formats of the map.

    ``C_k = A_ij - sum_(m<=k) L_im L_jm.T`` rounds once after each product, and is at most what is still to be subtracted from it.
    """
    grid = precision.grid
    a_norms = lower_matrix(grid, precision.norms.tiles)
    roundoffs = lower_matrix(grid, np.array([fmt.unit_roundoff for fmt in precision.products]))
    errors = np.zeros_like(norms)
    for j in range(grid.nt):
        products = norms[:, :j] * norms[j, :j]  # ||L_ik|| ||L_jk||
        last = norms[:, j] * spectral[j]  # ||L_ij|| ||L_jj||
        inner = (sqrt(grid.nb) + _narrowed(precision, j)) * products.sum(axis=1)
        outer = products @ np.arange(1.0, j + 1) + j * last
        solve = (sqrt(grid.nb) + 1.0) * last
        reading = np.where(roundoffs[:, j] > FP64.unit_roundoff, a_norms[:, j], 0.0)
        errors[:, j] = roundoffs[:, j] * (inner + outer + solve + reading)
    return np.tril(errors)


def _narrowed(precision: PrecisionMap, j: int) -> float:
    """2 where operands of updates of column ``j`` may be narrowed first: those stored in FP64 beside sums in FP32."""
    column = range(j + 1, precision.grid.nt)
    return 2.0 if any(precision.product_of((i, j)) is FP32 for i in column) else 0.0


def _narrow(precision: PrecisionMap, norms: FactorNorms, narrow: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Errors of products in FP16: rounding of both factors, independent from entry to entry, and sums that truncate."""
    nt = precision.grid.nt
    errors = np.zeros((nt, nt))
    longer = max(1.0, NARROW_TILES * precision.grid.nb / SUM_TERMS)
    for i in range(nt):
        for j in range(i):
            in_fp16, products = narrow[i, j, :j], norms.tiles[i, :j] * norms.tiles[j, :j]
            squares = norms.squared_errors(i, slice(j, j + 1), j)[0]
            summed = longer * FP16_SUM_ERROR * products[in_fp16].sum()
            errors[i, j] = _DEVIATIONS * sqrt(squares[in_fp16].sum()) + summed
    return errors


def _residues(
    precision: PrecisionMap, norms: NDArray[np.float64], spectral: NDArray[np.float64], moduli: int
) -> NDArray[np.float64]:
    """Errors of tiles whose updates ran through residues: rows rounded to integers, and the rest in FP64."""
    grid, basis = precision.grid, residue_basis(moduli)
    steps = np.array([2.0 ** -basis.exponent(float(a_ii)) for a_ii in precision.norms.largest])
    errors = np.zeros_like(norms)
    largest = np.minimum(spectral, np.diagonal(norms))
    for j in range(grid.nt):
        lengths = np.sqrt(np.square(norms[:, :j]).sum(axis=1))  # of the rows of L before column j
        # Each of size(i) * K rounding errors has a variance of step**2 / 12, and meets a row of the other factor.
        rounding = steps * np.sqrt([grid.size(i) for i in range(grid.nt)]) * lengths[j]
        rounding += steps[j] * sqrt(grid.size(j)) * lengths
        # Sums are exact: each is rounded once, and once as it is subtracted. Then TRSM, or POTRF, adds nb products.
        in_fp64 = 2.0 * (norms[:, :j] * norms[j, :j]).sum(axis=1) + (sqrt(grid.nb) + 2.0) * norms[:, j] * largest[j]
        errors[:, j] = _DEVIATIONS * rounding / sqrt(12.0) + FP64.unit_roundoff * in_fp64
    return np.tril(errors)


def doubtful_pivot(
    precision: PrecisionMap, rows: NDArray[np.float64], moduli: int | None, diagonal: NDArray[np.float64]
) -> tuple[int, float, float] | None:
    """The first pivot that rounding in narrow formats could have made of zero."""
    grid, a_jj = precision.grid, precision.norms.diagonal
    if a_jj is None:
        return None
    norms, lost = (lower_matrix(grid, rows[:, column]) for column in (0, 1))
    shares = lower_matrix(grid, np.array([fmt.unit_roundoff for fmt in precision.products])).max(axis=1)
    # A row may have all its weight in one entry of a narrow tile, of which the mean says nothing: at least twice FP32's roundoff,
    # and as much from the row that it nearly equals.
    is_narrow = lower_matrix(grid, np.array([float(fmt is not FP64) for fmt in precision.formats])).any(axis=1)
    shares = np.maximum(shares, np.where(is_narrow, 4.0 * FP32.unit_roundoff, 0.0))
    if moduli is not None:
        shares = np.maximum(shares, 2.0 ** -residue_basis(moduli).bits)
    with np.errstate(over="ignore", invalid="ignore"):
        shares = shares + _OF_A_ROW * (norms * lost).sum(axis=1) / precision.norms.traces
        noise = np.repeat(shares, [grid.size(i) for i in range(grid.nt)]) * a_jj
        doubtful = np.flatnonzero(np.square(diagonal) <= noise)
    return None if not len(doubtful) else (j := int(doubtful[0]), float(diagonal[j] ** 2), float(noise[j]))
