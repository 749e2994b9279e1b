"""The distance at which a correlation has fallen to what an effective range is read at."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb

#: Correlation at which the effective range is read.
EFFECTIVE_CORRELATION = 0.05

#: Relative accuracy of a distance that is searched for.
_ACCURACY = 1e-13

_Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def distance_of_fall(correlation: _Function, *, start: float) -> float:
    """Where a correlation that falls with distance is 0.05, by bisection."""
    with tb.guarded_imports():
        from scipy.optimize import brentq  # 0.1 s, which the other commands need not pay

    def excess(log_distance: float) -> float:
        return float(correlation(np.array([math.exp(log_distance)]))[0]) - EFFECTIVE_CORRELATION

    low = high = math.log(start)
    while excess(low) < 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    return start if low == high else math.exp(brentq(excess, low, high, xtol=_ACCURACY))
