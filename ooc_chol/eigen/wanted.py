"""Which eigenpairs are wanted, how many, and when they are good enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

#: Eigenvalues of largest magnitude, the largest, or the smallest.
Which: TypeAlias = Literal["LM", "LA", "SA"]
WHICH: tuple[str, ...] = get_args(Which)


@dataclass(frozen=True)
class Wanted:
    """What is looked for.

    Parameters
    ----------
    k : int
        Eigenpairs.
    which : {"LM", "LA", "SA"}
        From which end.
    tol : float
        Largest residual ``||A v - value v|| / ||v||``, relative to the largest magnitude of an eigenvalue that is seen.
    """

    k: int
    which: Which
    tol: float


#: How small a value is that is zero as far as can be told: in unit roundoffs of the scale, and as the error that follows from a
#: residual of ``tol`` where the next value is 1e-5 of the scale away.
_ZERO, _GAP = 64.0, 1e-5
#: Largest residual beside a value of which some digits count as known: the first where tol is that of someone who wants digits.
_COARSE, _ROUGH, _FINE_TOL = 1e-3, 0.1, 1e-8


def are_coarse(
    values: NDArray[np.float64], bounds: NDArray[np.float64], scale: float, tol: float, roundoff: float, zero: float = _ZERO
) -> NDArray[np.bool_]:
    """Which values are so small beside the scale that hardly a digit of them is known, and yet are no zeros.

    Parameters
    ----------
    values, bounds : (k,) array
        Eigenvalues, and how far they may be off, such as their residuals.
    scale : float
        Largest magnitude of an eigenvalue.
    tol : float
        Of residuals, relative to the scale.
    roundoff : float
        Unit roundoff of vectors.
    zero : float
        Unit roundoffs of the scale up to which a value counts as zero.

    Returns
    -------
    (k,) array of bool
        True where a value is not known.
    """
    sizes = np.abs(values)
    known = sizes * (_COARSE if tol <= _FINE_TOL else _ROUGH)
    return np.asarray((bounds > known) & (sizes > max(zero * roundoff, tol**2 / _GAP) * scale))


def keys(values: NDArray[np.float64], which: Which) -> NDArray[np.float64]:
    """Numbers that are the larger the more a value is wanted."""
    return np.abs(values) if which == "LM" else values if which == "LA" else -values


def in_wanted_order(values: NDArray[np.float64], which: Which) -> NDArray[np.intp]:
    """The order in which the most wanted values come first; of equal ones those that come first in it."""
    return np.argsort(-keys(values, which), kind="stable")
