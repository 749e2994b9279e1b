"""Which eigenpairs are wanted, how many, and when they are good enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

#: Eigenvalues of largest magnitude, the largest, or the smallest.
Which: TypeAlias = Literal["LM", "LA", "SA"]
#: Those, and eigenvalues of smallest magnitude, which are those nearest 0.
AskedWhich: TypeAlias = Literal["LM", "LA", "SA", "SM"]
WHICH: tuple[str, ...] = get_args(Which)


@dataclass(frozen=True)
class Wanted:
    """Eigenvalues requested."""

    k: int
    which: Which
    tol: float  #: Largest residual ``||A v - value v|| / ||v||``, relative to the largest magnitude of an eigenvalue that is seen


def keys(values: NDArray[np.float64], which: Which) -> NDArray[np.float64]:
    """Numbers that are the larger the more a value is wanted."""
    return np.abs(values) if which == "LM" else values if which == "LA" else -values


def in_wanted_order(values: NDArray[np.float64], which: Which) -> NDArray[np.intp]:
    """The order in which the most wanted values come first; of equal ones those that come first in it."""
    return np.argsort(-keys(values, which), kind="stable")
