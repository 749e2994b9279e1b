"""Families of matrices whose rounding errors may be anything but independent, by name; each draws one of an order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from tests.host.matrices import exponential, matern15, matern25

Matrix = NDArray[np.float64]
Draw = Callable[[int, np.random.Generator], Matrix]


def brownian(n: int, rng: np.random.Generator) -> Matrix:
    """``c min(i, j)``: all rows of L are alike, and so are their rounding errors."""
    steps = np.arange(1.0, n + 1)
    return rng.uniform(0.1, 10) * np.minimum.outer(steps, steps)


def brownian_at_random_times(n: int, rng: np.random.Generator) -> Matrix:
    """``min(s, t)`` at times of an interval."""
    times = np.sort(rng.uniform(0.01, 1, n))
    return np.minimum.outer(times, times) + 1e-9 * np.eye(n)


def fractional_brownian(n: int, rng: np.random.Generator) -> Matrix:
    """``(s^2H + t^2H - |s - t|^2H) / 2``."""
    h, t = rng.uniform(0.1, 0.9), np.arange(1.0, n + 1) / n
    power = t ** (2 * h)
    return (power[:, None] + power - np.abs(np.subtract.outer(t, t)) ** (2 * h)) / 2 + 1e-9 * np.eye(n)


def equicorrelated(n: int, rng: np.random.Generator) -> Matrix:
    """One correlation for all pairs."""
    rho = rng.choice([rng.uniform(0.2, 0.95), 0.999])
    return rng.uniform(0.1, 10) * ((1 - rho) * np.eye(n) + rho)


def constant_rows(n: int, rng: np.random.Generator) -> Matrix:
    """Nearly of rank one."""
    return rng.uniform(0.5, 2) * np.ones((n, n)) + 10.0 ** rng.uniform(-5, -2) * np.eye(n)


def autoregressive(n: int, rng: np.random.Generator) -> Matrix:
    """``rho^|i - j|``."""
    return rng.uniform(0.3, 0.99) ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def random_intercepts(n: int, rng: np.random.Generator) -> Matrix:
    """Groups with a common part each."""
    groups = np.sort(rng.integers(0, max(1, n // 8), n))
    return np.equal.outer(groups, groups) * rng.uniform(0.5, 5) + np.eye(n)


def factors(n: int, rng: np.random.Generator) -> Matrix:
    """A few common factors and variances of their own."""
    loadings = rng.standard_normal((n, 3))
    return loadings @ loadings.T + np.diag(rng.uniform(0.01, 1, n))


def wishart(n: int, rng: np.random.Generator) -> Matrix:
    """No structure."""
    g = rng.standard_normal((n, 2 * n))
    return g @ g.T


def in_space(function: Callable[[Matrix], Matrix], dimension: int) -> Draw:
    """Covariances of sorted random sites."""

    def draw(n: int, rng: np.random.Generator) -> Matrix:
        sites = rng.uniform(size=(n, dimension))
        sites = sites[np.argsort(sites[:, 0])]
        return function(cdist(sites, sites) / rng.uniform(0.005, 0.3)) + 10.0 ** rng.uniform(-6, -2) * np.eye(n)

    return draw


def graded(n: int, rng: np.random.Generator) -> Matrix:
    """Rows that get smaller and smaller."""
    scale = np.geomspace(1.0, 10.0 ** rng.uniform(-12, -3), n)
    return scale[:, None] * in_space(exponential, 2)(n, rng) * scale


def far_from_one(n: int, rng: np.random.Generator) -> Matrix:
    """Entries near the ends of FP64's range, beyond its normal numbers even."""
    draw = [brownian, equicorrelated, wishart, in_space(matern15, 2)][rng.integers(4)]
    a = draw(n, rng)
    return a / a.max() * rng.choice([1e-308, 1e-318, 1e-300, 1e-160, 1e160, 1e300, 5e307])


def one_giant(n: int, rng: np.random.Generator) -> Matrix:
    """One entry beside which all others are nothing."""
    a = 1e-300 * np.eye(n) if rng.integers(2) else in_space(exponential, 2)(n, rng)
    k = rng.integers(n)
    a[k, k] = rng.choice([1e300, 1e30])
    return a


#: Every family.
STRUCTURED: dict[str, Draw] = {
    "Brownian": brownian,
    "Brownian at random times": brownian_at_random_times,
    "fractional Brownian": fractional_brownian,
    "equicorrelated": equicorrelated,
    "constant rows": constant_rows,
    "AR(1)": autoregressive,
    "random intercepts": random_intercepts,
    "factors": factors,
    "Wishart": wishart,
    "exponential in 1-D": in_space(exponential, 1),
    "Matern 3/2 in 2-D": in_space(matern15, 2),
    "Matern 5/2 in 3-D": in_space(matern25, 3),
    "graded": graded,
    "far from one": far_from_one,
    "one giant": one_giant,
}
