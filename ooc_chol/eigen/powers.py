"""Matrices of numbers so small or large that their squares underflow or overflow: solved for a power of two times them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.operator_space import Product
from ooc_chol.precision.triples import Precision

#: Between which magnitudes the largest eigenvalue must be.
_MAGNITUDES = {Precision.FFF: (1e-12, 1e16), Precision.FDF: (1e-24, 1e34), Precision.DDD: (1e-130, 1e150)}
#: By which powers of two a vector is multiplied until its product is neither zero nor infinite.
_PROBES = (0, 900, -900)


class RangeError(ValueError):
    """Numbers are NaN or infinite, or squares of them underflow or overflow: a power of two times A may do."""


def is_ordinary(largest: float, precision: Precision) -> bool:
    """Tell whether squares of numbers such as the largest fit, and those of what roundoff leaves of it; 0 has none."""
    least, most = _MAGNITUDES[precision]
    return not largest or least < largest < most


def largest_value(precision: Precision) -> float:
    """The largest eigenvalue of which squares fit."""
    return _MAGNITUDES[precision][1]


def check_magnitude(largest: float, precision: Precision) -> None:
    """Raise where squares of numbers such as the largest overflow, or those of what roundoff leaves of it underflow."""
    if not is_ordinary(largest, precision):
        least, most = _MAGNITUDES[precision]
        raise RangeError(
            f"A has values of about {largest:.2g}, but squares of residuals only fit {precision.value} where they are between "
            f"{least:g} and {most:g}"
        )


def power_of(product: Product, n: int) -> int | None:
    """The p for which ``2^p A`` has products of about 1, by those of a random vector; None of zeros, and of what is not finite.

    >>> from ooc_chol.eigen.powers import power_of
    >>> (
    ...     -1075 < power_of(lambda x: 1e-320 * x, 7) - 1063 < 9,
    ...     power_of(lambda x: 0.0 * x, 7),
    ... )
    (True, None)
    """
    x = np.random.default_rng(0).uniform(0.5, 1.0, (n, 1)) * np.random.default_rng(1).choice([-1.0, 1.0], (n, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for by in _PROBES:
            largest = float(np.abs(product(np.ldexp(x, by))).max(initial=0.0))
            if 0 < largest < np.inf:
                return by - int(np.frexp(largest)[1])
    return None


def scaled_product(product: Callable[[NDArray[np.float64]], NDArray[np.float64]], power: int) -> Product:
    """``2^power`` times a product, half of it before and half of it after, so that nothing underflows or overflows between."""
    before = power // 2
    return lambda x: np.ldexp(np.asarray(product(np.ldexp(x.astype(np.float64), before))), power - before)


def unscaled(values: NDArray[np.float64], power: int) -> NDArray[np.float64]:
    """``2^-power`` times values.

    Raises ``ValueError``: they are too large for float64.
    """
    if not power:
        return values
    with np.errstate(over="ignore"):
        found = np.ldexp(values, -power)
    if not np.isfinite(found).all():
        raise ValueError(
            f"A has values of about {float(np.abs(values).max()):.2g} times 2^{-power}, which float64 does not hold: divide A by "
            "a number first, and multiply the values by it in your own way"
        )
    return found
