"""Matrices for mixed precision, factors of them, and the errors that were certified against those that are measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy.special
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import ooc_chol as oc
from ooc_chol.apps.geostat import morton_order
from tests.host.matrices import lower, upper_poisoned
from tests.host.runs import budget_of, check_bytes
from tests.tolerances import FLOAT64_RESIDUAL_N, unit_roundoff

Matrix = NDArray[np.float64]


@lru_cache(maxsize=8)
def places(n: int, seed: int) -> Matrix:
    """Random places in the unit square, in Morton order."""
    points = np.random.default_rng(seed).uniform(size=(n, 2))
    return points[morton_order(points)]


def matern(n: int, nu: float, length: float, nugget: float, seed: int = 0) -> Matrix:
    """Matérn covariance matrix of any smoothness: ``2**(1 - nu) / gamma(nu) h**nu K_nu(h)``."""
    h = cdist(places(n, seed), places(n, seed)) / length
    np.fill_diagonal(h, 1.0)
    c = 2.0 ** (1 - nu) / scipy.special.gamma(nu) * h**nu * scipy.special.kv(nu, h)
    np.fill_diagonal(c, 1.0 + nugget)
    return np.asarray(c)


#: The paper's correlations.
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}


def alternating(n: int) -> Matrix:
    """Scales 1e-30 and 1e30 by turns."""
    return np.where(np.arange(n) % 2 == 0, 1e-30, 1e30)


#: What is done to a matrix before it is factored.
SCALINGS: dict[str, Callable[[Matrix], Matrix]] = {
    "as it is": lambda a: a,
    "all by 1e-30": lambda a: a * 1e-30,
    "all by 1e30": lambda a: a * 1e30,
    "rows by 1e30 and 1e-30": lambda a: alternating(len(a))[:, None] * a * alternating(len(a)),
    "half of the rows by 1e-10": lambda a: (
        np.where(np.arange(len(a)) < len(a) // 2, 1e-10, 1.0)[:, None] * a * np.where(np.arange(len(a)) < len(a) // 2, 1e-10, 1.0)
    ),
}


def measured(l_dense: Matrix, a: Matrix, bound: float) -> float:
    """``||A - L L.T||_F / ||A||_F``: in long double where float64's own error would count beside ``bound``."""
    power = int(np.frexp(np.sqrt(np.abs(a.diagonal()).max()))[1])
    dtype = np.float64 if bound > FLOAT64_RESIDUAL_N * len(a) * unit_roundoff(np.float64) else np.longdouble
    # A is scaled by 4**-power and L by 2**-power: then no square overflows, and what vanishes is nothing beside the rest.
    a_unit, l_unit = (np.ldexp(x, -p).astype(dtype) for x, p in ((lower(a), 2 * power), (l_dense, power)))
    r = np.tril(a_unit - l_unit @ l_unit.T)
    return float(_symmetric_norm(r) / _symmetric_norm(a_unit))


def _symmetric_norm(tril: NDArray[np.floating]) -> np.floating:
    return np.sqrt(2 * np.sum(np.square(tril)) - np.sum(np.square(tril.diagonal())))


def check_certified(factor: oc.CholeskyFactor, a: Matrix) -> float:
    """Assert that the error is at most the certified bound; their ratio."""
    bound = factor.report.certified_bound
    error = measured(np.asarray(factor), a, bound.total)
    steps = "; ".join(map(str, factor.report.escalations))
    assert error <= bound.total, f"measured {error:.3g}, certified {bound}; {factor.formats} {steps}"
    return bound.total / error if error else np.inf


def mixed(a, threshold: float, nb: int, tiles: int = 1000, **options) -> oc.CholeskyFactor:
    """A factor in mixed precision, its bytes checked unless it escalated."""
    options = {"memory_budget": budget_of(tiles, 10**9, nb), "devices": "host:0", **options}
    factor = oc.cholesky(a, precision_threshold=threshold, tile_size=nb, **options)
    report = factor.report
    if report.plan.moduli is None and not report.escalations:
        check_bytes(report.plan, report.execution)
    return factor


N, NB = 200, 25

THRESHOLD = 1e-5

A = upper_poisoned(matern(N, 1.5, RANGES["weak"], 1e-4))


def factored(a=A, tiles: int = 60, **options) -> oc.CholeskyFactor:
    return mixed(a, THRESHOLD, NB, tiles, **options)
