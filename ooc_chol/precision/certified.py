"""The certified bound: ``||A - L L.T||_F`` as random vectors measure it, and how far it can be from that.

For a matrix R and s vectors of independent standard normal entries, the columns of W, ``E ||R W||_F**2 = s ||R||_F**2``, and for
every R and every share t < 1

    P(||R W||_F**2 <= t s ||R||_F**2) <= (t exp(1 - t))**(s / 2)

by Chernoff: ``||R W||_F**2`` is a sum of s independent copies of ``sum_k sigma_k**2 z_k**2``, and ``prod_k (1 + 2 y sigma_k**2)``
is at least ``1 + 2 y sum_k sigma_k**2``, so that no matrix is worse than one of rank one. Hence ``||R W||_F / sqrt(t s)`` bounds
``||R||_F`` but for that probability, whatever the rounding errors in R are and however they depend on each other. Nothing of L is
assumed: a tile that was lost on its way would show, too.

``A W`` is made while the norms of A's tiles are, and ``L (L.T W)`` by one reading of L. What rounding does to these products has
a part of its own in the bound: an error of a sum is at most u times its partial sums, each of which is normal, too, with the norm
of a part of a row as its deviation; :data:`FAILURE` covers all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, isfinite, log, sqrt

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP64
from ooc_chol.precision.norms import MatrixNorms

#: Probability that any of the bounds of one call is too small.
FAILURE = 1e-9
#: Bounds that a call may look at: of the first factor, and of those that follow where it is not good enough.
MOST_CHECKS = 5
#: Norms of A for which no product with a vector of order one overflows or loses accuracy below FP64's least normal number.
_ORDINARY = 2.0**-600, 2.0**600
#: Largest power of two of a probe: its entries are numbers still.
_LARGEST_POWER = 1000


@dataclass(frozen=True)
class CertifiedBound:
    """What ``||A - L L.T||_F / ||A||_F`` is at most.

    Parameters
    ----------
    measured : float
        Root mean square of what the random vectors showed: the error itself, but for a few per cent where it has many directions.
    total : float
        The bound: more than the error for all but one in 1e9 choices of the vectors, whatever the matrix.
    probes : int
        How many random vectors the measurement took.

    Examples
    --------
    >>> bound = CertifiedBound(1e-6, 3.2e-6, 32)
    >>> float(bound), str(bound)
    (3.2e-06, '3.2e-06 ||A||_F (1.0e-06 as 32 random vectors measure it)')
    """

    measured: float
    total: float
    probes: int

    def __float__(self) -> float:
        return self.total

    def __str__(self) -> str:
        return f"{self.total:.1e} ||A||_F ({self.measured:.1e} as {self.probes} random vectors measure it)"

    def holds(self, threshold: float) -> bool:
        """Whether the bound is at most ``threshold``; False for one that is no number.

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


def least_share(probes: int, failure: float) -> float:
    """The largest t with ``(t exp(1 - t))**(probes / 2) <= failure``.

    Examples
    --------
    >>> round(least_share(32, 1e-9), 3)
    0.113
    """
    goal, low, high = 2.0 * log(failure) / probes, 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if log(middle) + 1.0 - middle <= goal else (low, middle)
    return low


def safety_factor(probes: int) -> float:
    """By how much the bound exceeds what is measured, the part of rounding aside."""
    return 1.0 / sqrt(least_share(probes, FAILURE / (2 * MOST_CHECKS)))


def certified_bound(norms: MatrixNorms, product: NDArray[np.float64]) -> CertifiedBound:
    """Bound the error of a factor by what random vectors show of it."""
    if norms.probes is None or norms.images is None:
        raise ValueError("these norms of A were measured without random vectors; measure them with some")
    probes = norms.probes.vectors.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        residual = _norm(norms.images - product) / sqrt(probes)
    total = _scaled_total(norms)
    measured = residual / total
    return CertifiedBound(measured, safety_factor(probes) * measured + least_bound(norms, probes), probes)


def least_bound(norms: MatrixNorms, probes: int) -> float:
    """The bound of a factor without any error: what rounding may change in the products with ``probes`` vectors."""
    return safety_factor(probes) * _rounding(norms, probes)


def ordinary_power(norms: MatrixNorms) -> int:
    """The power of two that brings A's largest diagonal entry to order one; 0 where its norm is ordinary, or it is no number."""
    low, high = _ORDINARY
    largest = float(norms.largest.max())
    if low <= norms.total <= high or not 0.0 < largest < np.inf:
        return 0
    return min(-frexp(largest)[1], _LARGEST_POWER)


def _norm(x: NDArray[np.float64]) -> float:
    """Frobenius norm of entries of order one or far less, whose squares may vanish."""
    largest = float(np.abs(x).max())
    return largest * float(np.linalg.norm(x / largest)) if 0.0 < largest < np.inf else largest


def _scaled_total(norms: MatrixNorms) -> float:
    """``||A||_F`` in the scale of the probes; where it overflows, the largest diagonal entry, which is less."""
    assert norms.probes is not None
    total = norms.total if isfinite(norms.total) else float(norms.largest.max())
    return float(np.ldexp(total, norms.probes.power)) or 1.0


def _rounding(norms: MatrixNorms, probes: int) -> float:
    """Most that rounding changes ``A W - L (L.T W)``, over ``sqrt(s) ||A||_F``.

    A sum of a row of A by tiles has ``2 nb`` roundings in each tile, at partial sums that are normal with at most the norm of the
    row in the tile as deviation, and one more a tile: u times ``2 (nb sqrt(nt) + nt)`` times z deviations of the row, where none
    of the partial sums exceeds z. ``L.T W`` has the same with ``||L||_F`` for ``||A||_F``, and is multiplied by ``||L||_2``; the
    product with it has partial sums of deviation ``||L_i|| ||L||_2``. ``||L||_F**2`` is the trace, ``||L||_2**2 <= ||A||_F``.
    """
    grid = norms.grid
    sums = 6.0 * grid.n**2 * probes
    deviations = sqrt(2.0 * (log(sums) - log(FAILURE / (2 * MOST_CHECKS))))
    roundings = 2.0 * (grid.nb * sqrt(grid.nt) + grid.nt)
    spread = norms.trace / norms.total if 0.0 < norms.total < np.inf and isfinite(norms.trace) else sqrt(grid.n)
    return 1.01 * FP64.unit_roundoff * roundings * deviations * (1.0 + 2.0 * sqrt(max(1.0, spread)))
