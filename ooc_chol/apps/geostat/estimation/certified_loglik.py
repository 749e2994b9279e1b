"""The interval of a log-likelihood: by what the factor certifies of its determinant, and of the residuals of the mean."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

import ooc_chol as oc
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.mean import Whitened, degrees_of_freedom, restriction
from ooc_chol.apps.geostat.estimation.value_unit import value_unit

#: Unit roundoff of float64, and by how much numbers of the mean's few columns may be off beside their own size.
_U, _SMALL = 2.0**-53, 1e-9
_NOTHING = -math.inf, math.inf


def most_off(loglik: float, interval: tuple[float, float] | None) -> float:
    """The most that a log-likelihood is off that of exact arithmetic; infinite where nothing is known."""
    return math.inf if interval is None else max(interval[1] - loglik, loglik - interval[0])


def bound_text(most: float) -> str:
    """A bound to one digit, rounded up."""
    if not 0.0 < most < math.inf:
        return f"{most:g}"
    unit = 10.0 ** math.floor(math.log10(most))
    return f"{math.ceil(most / unit) * unit:.1g}"


def gain_interval(larger: tuple[float, float] | None, smaller: tuple[float, float] | None) -> tuple[float, float] | None:
    """Where the difference of two log-likelihoods lies that are known by their intervals; None where one is not."""
    return None if larger is None or smaller is None else (larger[0] - smaller[1], larger[1] - smaller[0])


def loglik_interval(
    factor: oc.CholeskyFactor, matrix: Any, observations: Observations, mean: Whitened, *, variance: float | None, reml: bool
) -> tuple[float, float]:
    """Interval of the log-likelihood of exact arithmetic, in the unit of the observations; infinite where nothing is certified.

    ``factor`` is of their correlation ``matrix`` R, or of one that is the same to rounding, the observations in its order,
    ``mean`` what it makes of them; a variance of None
    is profiled out. Residuals are taken as FP64 has them.

    For residuals ``e = z - X b`` of any coefficients b the sum of squares that is left by the best ones is
    ``e' inv(R) e - s' inv(S) s`` with ``s = X' inv(R) e`` and ``S = X' inv(R) X``; s is small for those of the factor, and its
    bound is that of the solution ``inv(R) e``.
    """
    unit = replace(value_unit(observations), exponent=0)
    near = unit.observations(observations)
    design, p, coefficients = near.design, near.design.shape[1], mean.coefficients.copy()
    if p:
        coefficients[0] -= unit.shift
    residual = near.values - design @ coefficients
    answers = factor.certify(np.column_stack([residual, design]), a=matrix)
    logdet, (of_residual, *of_design), solution = answers.logdet, answers.quadratic, answers.solution
    assert solution is not None
    if not all(math.isfinite(each.half_width) for each in (logdet, *answers.quadratic)):
        return _NOTHING
    low, high, gap = of_residual.lower, of_residual.upper, logdet.gap
    if p:
        x, error = solution.x[:, 0], float(np.asarray(solution.error)[0])
        longest = np.sqrt([each.upper for each in of_design])
        cross = np.abs(design.T @ x) + longest * error + observations.n * _U * (np.abs(design).T @ np.abs(x))
        half = np.abs(solve_triangular(mean.root, np.eye(p))).T @ cross
        low -= (1.0 + gap) * (1.0 + _SMALL) * float(half @ half)
    if low <= 0.0:
        return _NOTHING
    freedom = degrees_of_freedom(observations, reml)

    def value(log_of_determinant: float, quadratic: float, rest: float) -> float:
        if variance is None:
            return -0.5 * (freedom * (math.log(2 * math.pi * quadratic / freedom) + 1.0) + log_of_determinant) + rest
        return -0.5 * (freedom * math.log(2 * math.pi * variance) + log_of_determinant + quadratic / variance) + rest

    rest, room = 0.0, 0.0
    if reml:
        rest = restriction(mean, near)
        room = 0.5 * p * (-math.log1p(-gap)) + _SMALL * (p + abs(rest))
    rounding = 4.0 * _U * (abs(logdet.value) + (freedom if variance is None else high / variance) + 8.0 * freedom)
    return value(logdet.upper, high, rest) - room - rounding, value(logdet.lower, low, rest) + room + rounding
