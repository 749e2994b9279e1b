"""Matrices and thresholds whose pivots fail in narrow formats, by the least remedy that helps."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import ooc_chol as oc
from tests.host.matrices import sites, upper_poisoned

Matrix = NDArray[np.float64]


class Case(NamedTuple):
    """A Gaussian covariance matrix with a nugget, and what it is factored with."""

    n: int
    nb: int
    budget: str
    nugget: float
    threshold: float
    on_a_line: bool = False

    def matrix(self) -> Matrix:
        places = sites(self.n)
        if self.on_a_line:
            places = np.sort(np.random.default_rng(0).uniform(size=self.n))[:, None]
        return np.asarray(np.exp(-((cdist(places, places) / 0.1) ** 2)) + self.nugget * np.eye(self.n))

    def factor(self, a=None, **options) -> oc.CholeskyFactor:
        a = upper_poisoned(self.matrix()) if a is None else a
        options = {"tile_size": self.nb, "memory_budget": self.budget, "devices": "host:0", **options}
        return oc.cholesky(a, precision_threshold=self.threshold, **options)


#: What the least remedy is that helps; found by search.
ROW = Case(320, 32, "150 kB", 1e-6, 1e-4)

PANEL = Case(256, 16, "80 kB", 1e-4, 1e-2)

PANEL_OF_FEW = Case(256, 32, "100 kB", 1e-5, 1e-2)

RESTART = Case(256, 16, "80 kB", 1e-3, 1e-2, on_a_line=True)

RESTARTS = Case(256, 16, "400 kB", 1e-4, 1e-2, on_a_line=True)

FP64 = Case(256, 16, "80 kB", 1e-6, 1e-2, on_a_line=True)

CASES = {"row": ROW, "panel": PANEL, "panel of few": PANEL_OF_FEW, "restart": RESTART, "restarts": RESTARTS, "fp64": FP64}


@cache
def factor_of(case: Case) -> oc.CholeskyFactor:
    """What :meth:`Case.factor` gives, computed once: for tests that only look at it."""
    return case.factor()
