"""The certified bound: ``||A - L L.T||_F`` as random vectors measure it, and how far it can be from that.

For a matrix R and two sets of s vectors of independent standard normal entries, the columns of U and V,
``E ||U.T R V||_F**2 = s**2 ||R||_F**2``. How much less it may be, whatever R is: for every matrix N and p < s / 2

    E ||N V||_F**(-2 p) <= ||N||_F**(-2 p) c(p),    c(p) = gamma(s / 2 - p) / (2**p gamma(s / 2)),

with equality where N has rank one. For ``x**-p`` is a mixture of ``exp(-y x)``, and ``||N V||_F**2`` a sum of s independent
copies of ``sum_k sigma_k**2 z_k**2``, so that ``E exp(-y ||N V||_F**2) = prod_k (1 + 2 y sigma_k**2)**(-s / 2)``, which is at
most ``(1 + 2 y sum_k sigma_k**2)**(-s / 2)``. Taken for ``N = U.T R`` with U fixed, and then for ``R.T`` and U,
``E ||U.T R V||_F**(-2 p) <= ||R||_F**(-2 p) c(p)**2``, and by Markov

    P(||U.T R V||_F <= a ||R||_F) <= a**(2 p) c(p)**2.

Hence ``||U.T R V||_F / a`` bounds ``||R||_F`` but for that probability, whatever the rounding errors in R are and however they
depend on each other.

``U.T A V`` is made while the norms of A's tiles are. ``U.T L L.T V`` needs ``L.T [U, V]`` alone: each tile of L adds its part as
it leaves the device that made it, or by one reading of L. What rounding does to these products has a part of its own
in the bound: an error of a sum is at most u times its partial sums, each of which is normal, too, with the norm of a part of a
row as its deviation; :data:`FAILURE` covers all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import exp, frexp, isfinite, isnan, lgamma, log, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import brief_repr
from ooc_chol.formats import FP64
from ooc_chol.precision.moduli import residue_basis
from ooc_chol.precision.norms import PROBES, MatrixNorms
from ooc_chol.tasks.tiling import TileGrid

#: Probability that any of the bounds of one call is too small.
FAILURE = 1e-9
#: Bounds that a call may look at: of the first factor, and of those that follow where it is not good enough.
MOST_CHECKS = 5
#: Norms of A for which no product with a vector of order one overflows or loses accuracy below FP64's least normal number.
_ORDINARY = 2.0**-600, 2.0**600
#: Largest power of two of two probes together: what they multiply are numbers still.
_LARGEST_POWER = 1000
#: Most of a threshold that the certificate's own rounding may take.
MOST_ROUNDING = 0.6
#: Exponents p that are tried, as shares of the largest.
_TRIED = 400
#: Norms of products with a set of vectors that must not be far too large, all together.
_LARGE_NORMS = 8


@dataclass(frozen=True)
class CertifiedBound:
    """Upper bound of ``||A - L L.T||_F / ||A||_F``.

    Parameters
    ----------
    measured : float
        Root mean square of what the random vectors showed: the error itself, but for a few per cent where it has many directions.
        Not a number where nothing was measured.
    total : float
        The bound: more than the error for all but one in 1e9 choices of the vectors, whatever the matrix; or, where FP64 itself
        is within the threshold by far, what a model of rounding errors says of FP64.
    probes : int
        How many random vectors the measurement took on either side; 0 for the model's word.

    Examples
    --------
    >>> bound = CertifiedBound(1e-6, 2.8e-6, 64)
    >>> float(bound), str(bound)
    (2.8e-06, '2.8e-06 ||A||_F (1.0e-06 as 64 random vectors on either side measure it)')
    """

    measured: float
    total: float
    probes: int

    __repr__ = brief_repr

    def __float__(self) -> float:
        return self.total

    def __str__(self) -> str:
        if not self.probes:
            how = "; nothing was measured" if isnan(self.measured) else ""
            return f"{self.total:.1e} ||A||_F (that of FP64 itself, as a model of rounding errors has it{how})"
        return f"{self.total:.1e} ||A||_F ({self.measured:.1e} as {self.probes} random vectors on either side measure it)"

    def holds(self, threshold: float) -> bool:
        """Tell whether the bound is at most ``threshold``; False for one that is no number.

        Parameters
        ----------
        threshold : float
            The ``precision_threshold`` of the call.

        Returns
        -------
        bool
            True where ``||A - L L.T||_F / ||A||_F`` is certified to be within it.
        """
        return self.total <= threshold


def fp64_bound(n: int, nb: int, moduli: int | None) -> CertifiedBound:
    """Bound of FP64 itself, whatever the matrix, where rounding errors are independent (Higham and Mary, SISC 2019).

    Twice ``sqrt(r**2 + s**2)`` in units of the unit roundoff u, by ``||A||_F >= trace(A) / sqrt(n)``. TRSM and POTRF of a tile
    err by ``s = sqrt(nb) n**(1/4)``, from sums of nb products in rows whose norm is that of L_jj, ``||L_jj||_2**2 <= ||A||_F``.
    Updates err by ``r = (sqrt(nb) + sqrt(n / nb) + 2) sqrt(n)``; through residues by rounding rows to ``2**-bits`` of their
    norms, at most twice that as exponents are whole, and by two roundings of the sum.
    """
    u, solving = FP64.unit_roundoff, sqrt(nb) * n**0.25
    if moduli is None:
        updates = (sqrt(nb) + sqrt(n / nb) + 2.0) * sqrt(n)
    else:
        updates = sqrt((2.0 * 2.0 ** -residue_basis(moduli).bits / u) ** 2 / 6.0 + 4.0) * sqrt(n)
    return CertifiedBound(nan, 2.0 * u * sqrt(updates**2 + solving**2), 0)


@cache
def safety_factor(probes: int, failure: float = FAILURE / (2 * MOST_CHECKS)) -> float:
    """By how much the bound exceeds what is measured, the part of rounding aside: ``s / a``."""
    half = probes / 2
    tried = (half * step / _TRIED for step in range(1, _TRIED))
    moments = ((p, lgamma(half - p) - p * log(2.0) - lgamma(half)) for p in tried)
    return probes / exp(max((log(failure) - 2.0 * log_c) / (2.0 * p) for p, log_c in moments))


@cache
def largest_share(probes: int, failure: float) -> float:
    """Least t > 1 with ``(t exp(1 - t))**(probes / 2) <= failure``: ``||N V||_F**2`` exceeds ``t s ||N||_F**2`` no oftener."""
    goal, low, high = 2.0 * log(failure) / probes, 1.0, 2.0 - 4.0 * log(failure) / probes
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if log(middle) + 1.0 - middle <= goal else (middle, high)
    return high


def certified_bound(norms: MatrixNorms, form: NDArray[np.float64]) -> CertifiedBound:
    """Bound the error of a factor by what random vectors show of it; ``form`` is ``U.T @ L @ L.T @ V``."""
    if norms.probes is None or norms.form is None:
        raise ValueError("these norms of A were measured without random vectors; measure them with some")
    probes = len(norms.form)
    with np.errstate(over="ignore", invalid="ignore"):
        residual = _norm(norms.form - form) / probes
    total = _scaled_total(norms)
    measured = residual / total
    return CertifiedBound(measured, safety_factor(probes) * measured + least_bound(norms, probes), probes)


def least_bound(norms: MatrixNorms, probes: int) -> float:
    """The bound of a factor without any error: what rounding may change in the products with ``probes`` vectors."""
    spread = norms.trace / norms.total if 0.0 < norms.total < np.inf and isfinite(norms.trace) else sqrt(norms.grid.n)
    return safety_factor(probes) * _rounding(norms.grid, spread, probes)


def is_certifiable(norms: MatrixNorms, threshold: float) -> bool:
    """Look whether random vectors can tell that a factor is within the threshold, for all that rounding does to products."""
    return least_bound(norms, PROBES) <= MOST_ROUNDING * threshold


def may_be_certifiable(grid: TileGrid, threshold: float) -> bool:
    """As :func:`is_certifiable` before A is measured: False where it is so for no matrix of this order."""
    return safety_factor(PROBES) * _rounding(grid, 1.0, PROBES) <= MOST_ROUNDING * threshold


def least_bound_of_order(grid: TileGrid, probes: int) -> float:
    """The largest that :func:`least_bound` is for a matrix of this order."""
    return safety_factor(probes) * _rounding(grid, sqrt(grid.n), probes)


def ordinary_power(norms: MatrixNorms) -> int:
    """The power of two that brings A's largest diagonal entry to order one; 0 where its norm is ordinary, or it is no number."""
    low, high = _ORDINARY
    largest = float(norms.largest.max())
    if low <= norms.total <= high or not 0.0 < largest < np.inf:
        return 0
    return min(-frexp(largest)[1], _LARGEST_POWER) // 2 * 2


def _norm(x: NDArray[np.float64]) -> float:
    """Frobenius norm of entries of order one or far less, whose squares may vanish."""
    largest = float(np.abs(x).max())
    return largest * float(np.linalg.norm(x / largest)) if 0.0 < largest < np.inf else largest


def _scaled_total(norms: MatrixNorms) -> float:
    """``||A||_F`` in the scale of the probes; where it overflows, the largest diagonal entry, which is less."""
    assert norms.probes is not None
    total = norms.total if isfinite(norms.total) else float(norms.largest.max())
    return float(np.ldexp(total, norms.probes.power)) or 1.0


def _rounding(grid: TileGrid, spread: float, probes: int) -> float:
    """Most that rounding changes ``U.T (A - L L.T) V``, over ``s ||A||_F``.

    A sum over the rows of a column, tile by tile, has ``nb`` roundings of sums in each tile, at partial sums that are normal with
    at most the norm of the column in the tile as deviation, as many of products, which together are at most ``sqrt(nb)`` of
    these, and one more a tile. Where no partial sum exceeds z deviations, a column's error is at most u z
    ``(nb + sqrt(nb)) sqrt(nt) + nt`` times its norm: ``e`` times. So ``Z = A.T [U, V]`` and ``Y = L.T [U, V]`` are off by
    ``e sqrt(s) ||A||_F`` and ``e sqrt(s) ||L||_F`` a set of vectors. What multiplies the other set then, ``U.T dZ`` or
    ``dY.T L.T V``, is at most c times as large as can be expected, ``c sqrt(s) ||dZ||_F`` and ``c sqrt(s) ||L||_2 ||dY||_F``; and
    the sums of these products are off by e again. ``||L||_F**2`` is the trace, ``spread`` times ``||A||_F``, and
    ``||L||_2**2 <= ||A||_F``.
    """
    failure = FAILURE / (4 * MOST_CHECKS)
    sums = 12.0 * grid.n**2 * probes
    deviations = sqrt(2.0 * (log(sums) - log(failure)))
    larger = sqrt(largest_share(probes, failure / _LARGE_NORMS))
    roundings = (grid.nb + sqrt(grid.nb)) * sqrt(grid.nt) + grid.nt
    return 1.01 * FP64.unit_roundoff * roundings * deviations * larger * (4.0 + 3.0 * sqrt(max(1.0, spread)))
