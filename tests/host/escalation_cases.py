"""Matrices and thresholds whose pivots fail in narrow formats, by what is computed again."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import ooc_chol as oc
from tests.host.matrices import exponential, sites, upper_poisoned

Matrix = NDArray[np.float64]


class Case(NamedTuple):
    """A covariance matrix of which some sites come twice, so that only a nugget keeps them apart, and its factorization.

    The smaller of two such rows' pivots is what no sample of other rows foresees.
    """

    n: int
    nb: int
    budget: str
    nugget: float
    threshold: float
    twins: tuple[tuple[int, int], ...]

    def matrix(self) -> Matrix:
        places = sites(self.n)
        for first, second in self.twins:
            places[second] = places[first]
        return exponential(cdist(places, places) / 0.05) + self.nugget * np.eye(self.n)

    def factor(self, a=None, **options) -> oc.CholeskyFactor:
        a = upper_poisoned(self.matrix()) if a is None else a
        options = {"tile_size": self.nb, "memory_budget": self.budget, "devices": "host:0", **options}
        return oc.cholesky(a, precision_threshold=self.threshold, **options)


def with_twins(a: Matrix, twins: tuple[tuple[int, int], ...], distance: float) -> Matrix:
    """``a`` with second rows that are the first of their pair, but for their diagonal entries."""
    a = a.copy()
    for first, second in twins:
        a[second] = a[first]
        a[:, second] = a[:, first]
        a[second, second] = a[first, first] + distance
    return a


#: One pivot fails early: its row is computed again.
ROW = Case(160, 32, "100 kB", 1e-6, 1e-2, ((20, 50),))
#: So in the middle of a panel, where native arithmetic is so wide.
IN_A_PANEL = ROW._replace(n=320)
#: Another pivot fails then, so that everything is computed again.
TWO_ROWS = IN_A_PANEL._replace(twins=((20, 50), (35, 90)))
#: One fails late: its row would be too much work.
FP64 = IN_A_PANEL._replace(twins=((90, 310),))

CASES = {"row": ROW, "in a panel": IN_A_PANEL, "two rows": TWO_ROWS, "fp64": FP64}


@cache
def factor_of(case: Case) -> oc.CholeskyFactor:
    """What :meth:`Case.factor` gives, computed once: for tests that only look at it."""
    return case.factor()
