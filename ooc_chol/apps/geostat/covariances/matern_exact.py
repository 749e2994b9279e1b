"""The Matérn correlation with its two derivatives from scratch: a power series near zero, an integral elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gamma

#: Bounds of the smoothness: below, the field is nearly white; above, it cannot be told from a Gaussian covariance.
SMOOTHNESS_BOUNDS = (0.01, 30.0)

#: The power series serves up to this scaled distance, the integral beyond.
_SERIES_END = 1.0

#: Beyond this scaled distance all three functions are below 1e-200 within the bounds of the smoothness, and taken for zero.
_END = 700.0

#: Terms of the series: the last is below 1e-19 of the first at the largest argument.
_SERIES_TERMS = 12

#: Nearer to a whole number than this the series is a difference of two poles, and is averaged over a circle around nu instead,
#: with so many points on its upper half.
_NEAR_INTEGER = 0.1
_CIRCLE_RADIUS = 0.3
_CIRCLE_POINTS = 16

#: Nodes of the trapezoidal rule: the error is a few unit roundoffs for every smoothness within the bounds and x >= 1.
_NODES = 64


@dataclass(frozen=True, eq=False)
class MaternValues:
    """The Matérn correlation and its derivatives at scaled distances ``z = h / range``."""

    correlation: NDArray[np.float64]  #: ``M(z) = 2**(1 - nu) / gamma(nu) * z**nu * K_nu(z)``
    slope: NDArray[np.float64]  #: ``z dM/dz``, the derivative in ``log z``
    by_smoothness: NDArray[np.float64]  #: ``dM/dnu``


def check_smoothness_bounds(smoothness: float) -> None:
    """Raise ``ValueError`` unless the smoothness is within :data:`SMOOTHNESS_BOUNDS`."""
    low, high = SMOOTHNESS_BOUNDS
    if not low <= smoothness <= high:
        raise ValueError(f"smoothness is {smoothness}, but it must lie within {low:g} and {high:g}")


def matern_values(z: ArrayLike, smoothness: float) -> MaternValues:
    """Evaluate ``M(z)``, ``z dM/dz`` and ``dM/dnu`` to a few unit roundoffs of 1.

    Up to ``z = 1``, ``1 - M`` is summed from the power series of ``I_nu`` and ``I_-nu`` (DLMF 10.27.4), so that it keeps its
    relative accuracy however small z is. Where nu is almost whole, the two series have poles that cancel; as M is an entire
    function of nu, it is there the mean over a circle around nu, and so are its derivatives. Beyond, K_nu and dK/dnu
    are trapezoidal sums (:func:`bessel_k`). Cost about a microsecond per element: for tables, not for matrices.
    """
    check_smoothness_bounds(smoothness)
    places = np.asarray(z, dtype=np.float64)
    flat = np.ravel(places)
    found = np.zeros((3, flat.size))
    found[0, flat == 0.0] = 1.0
    near, far = (flat > 0.0) & (flat <= _SERIES_END), (flat > _SERIES_END) & (flat <= _END)
    found[:, near] = _by_series(flat[near], smoothness)
    found[:, far] = _by_integral(flat[far], smoothness)
    return MaternValues(*(row.reshape(places.shape) for row in found))


def bessel_k(x: ArrayLike, order: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scaled modified Bessel function ``exp(x) K_nu(x)`` and its derivative in nu, by the trapezoidal rule.

    The integrand and all its derivatives are even in t and fall doubly exponentially, so that the trapezoidal rule converges
    geometrically (DLMF 10.32.9; Takekawa, arXiv:2108.11560). The end of the integral is where the exponent is 42 below zero. For
    x below 1e-8 the nodes are too few.
    """
    places = np.asarray(x, dtype=np.float64)[..., None]
    size = abs(order)
    end = np.arccosh(1.0 + 42.0 / places)
    for _ in range(4):
        end = np.arccosh(1.0 + (42.0 + size * end) / places)
    step = end / _NODES
    t = step * np.arange(_NODES + 1)
    weight = step * np.exp(-2.0 * places * np.sinh(t / 2.0) ** 2)
    weight[..., 0] /= 2.0
    return np.sum(weight * np.cosh(order * t), axis=-1), np.sum(weight * t * np.sinh(order * t), axis=-1)


def _by_integral(z: NDArray[np.float64], nu: float) -> NDArray[np.float64]:
    """The three values where nothing cancels, as rows."""
    scaled, by_order = bessel_k(z, nu)
    below, _ = bessel_k(z, nu - 1.0)
    factor = 2.0 ** (1.0 - nu) / gamma(nu) * z**nu * np.exp(-z)
    correlation = factor * scaled
    return np.stack([correlation, -factor * z * below, correlation * (np.log(z / 2.0) - digamma(nu)) + factor * by_order])


def _by_series(z: NDArray[np.float64], nu: float) -> NDArray[np.float64]:
    """The three values for small z, as rows."""
    if abs(nu - round(nu)) >= _NEAR_INTEGER or round(nu) == 0:
        return _series(z, nu)
    # f(nu) is the mean of f on the circle; f is real for real nu, so that the lower half has the same real parts
    turns = np.exp(1j * np.pi * (np.arange(_CIRCLE_POINTS) + 0.5) / _CIRCLE_POINTS)
    found = np.zeros((3, z.size))
    for turn in turns:
        found += _series(z, nu + _CIRCLE_RADIUS * turn).real
    return found / _CIRCLE_POINTS


def _series(z: NDArray[np.float64], nu: Any) -> NDArray[Any]:
    """``M = sum_k q**k / (k! (1 - nu)_k) - B sum_k q**k / (k! (1 + nu)_k)``; ``q = z**2/4``, ``B = q**nu G(1-nu) / G(1+nu)``."""
    q, log_q = 0.25 * z * z, 2.0 * (np.log(z) - np.log(2.0))
    regular = np.zeros((3, z.size), dtype=np.result_type(nu, np.float64))
    branch = np.zeros_like(regular)
    factor = np.exp(nu * log_q) * (gamma(1.0 - nu) / gamma(1.0 + nu))
    by_factor = log_q - digamma(1.0 - nu) - digamma(1.0 + nu)
    term = np.ones(z.size)
    minus, plus, by_minus, by_plus = 1.0, 1.0, 0.0, 0.0
    for k in range(_SERIES_TERMS + 1):
        if k:
            term = term * q / k
            minus, plus = minus * (k - nu), plus * (k + nu)
            by_minus, by_plus = by_minus + 1.0 / (k - nu), by_plus + 1.0 / (k + nu)
        regular += (term / minus) * np.array([1.0, 2.0 * k, by_minus])[:, None]
        branch += (term / plus) * np.stack([np.ones(z.size), np.full(z.size, 2.0 * (k + nu)), by_factor - by_plus])
    values: NDArray[Any] = regular - factor * branch
    return values
