"""Bounds on the weights of two parts, and a cut within them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Target(NamedTuple):
    """Weight that part 0 shall have, of ``total``, and by how much it may differ.

    ``slack`` is the least that can be promised: for whole weights of vertices it is half of the largest vertex' granularity
    (``|a - b| <= 1`` of n vertices that weigh 1), plus what ``balance`` allows. Where it cannot be met, the nearest is taken.
    """

    weight: float
    total: float
    slack: float

    def excess(self, weight: float) -> float:
        """By how much a part 0 of this weight is beyond what is allowed: 0 where it is not."""
        return max(0.0, abs(weight - self.weight) - self.slack)


class Cut(NamedTuple):
    """A bisection."""

    labels: NDArray[np.int8]  #: (n,), 0 and 1
    cut: float  #: Weights of the edges cut
    weight: float  #: Of part 0
    how: str  #: Where it comes from: "vector 2", "angle 3", "random 17", "search from ..."


class Refined(NamedTuple):
    """A bisection after moves of single vertices."""

    labels: NDArray[np.int8]
    cut: float
    weight: float
    passes: int
    moves: int  #: That were kept
    is_limited: bool  #: Whether the limit on moves ended a pass
