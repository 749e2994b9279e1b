"""How far kriging means and variances are from those of exact arithmetic: by one certified solution for the residuals.

With the correlation matrix ``R = L (I + G) L'``, g at least ``||G||``, orthonormal columns Q of ``inv(L) X = Q root``, and at a
site ``u = inv(L) r``, ``c = inv(root') x0`` and ``h = Q'u``: kriging weights w are those that make ``own - 2 r'w + w'Rw``
smallest under ``X'w = x0``, and ``w'Rw`` is within ``(1 ± g) ||L'w||**2``. So the variance is between the smallest values of both

    own - 2 h'c + (1 ± g) ||c||**2 - (||u||**2 - ||h||**2) / (1 ± g).

The multipliers of unbiasedness are off by at most ``d = g ||c|| + g / (1 - g) ||u - Qh||``, and the weights have a norm
``sqrt(w'Rw)`` of at most ``(D + d) / sqrt(1 - g)`` with ``D**2 = ||c||**2 + ||u - Qh||**2``. For coefficients b of the mean and
an x that solves ``R x = z - X b`` but for an error in the norm of R, ``x0'b + r'x`` is off by at most

    error (D + d) / sqrt(1 - g) + (||c - h|| + d) ||inv(root') X'x||.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite, ldexp, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, covariance_source
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of
from ooc_chol.apps.geostat.estimation.mean import Whitened
from ooc_chol.apps.geostat.estimation.value_unit import ValueUnit, value_unit
from ooc_chol.apps.geostat.kriging.predicted import HalfWidths

#: Unit roundoff of float64.
_U = 2.0**-53
#: Deviations that no rounding error of 1e7 sites and more exceeds, beside those of the solutions that were certified.
_OF_SITES = 1.5
#: What rounding may change of the mean's whitened columns, as a share, before nothing is certified.
_MOST_ROUNDING = 0.1

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CertifiedMean:
    """Coefficients of the mean and a solution for the residuals about it, and how far the solution can be off."""

    shift: float  #: What is taken off the values first
    coefficients: Array  #: Of the mean of the rest
    dual: Array  #: (n,) ``inv(R) (z - shift - X b)``
    size: float  #: ``sum_i sqrt(own_i) |dual_i|``
    error: float  #: The most that the dual is off, in the norm of R; infinite where nothing is certified
    left: float  #: ``||inv(root') X'dual||`` at most, which is zero of the best coefficients
    root: Array  #: (p, p), of columns in units of ``2**powers``
    powers: NDArray[np.intc]
    rounding: float  #: What rounding may change of a solution with L, beside its norm
    columns_rounding: float  #: And of ``inv(L) X inv(root)``
    gap: float
    sufficient_threshold: float | None
    confidence: float

    @property
    def is_certified(self) -> bool:
        """True where anything is certified."""
        return isfinite(self.error)


def certified_mean(
    factor: oc.CholeskyFactor, observations: Observations, model: AbstractCovariance, white: Whitened
) -> CertifiedMean:
    """Refine the mean and the solution for the residuals, by one visit of the factor.

    The matrix is made of the model and not taken from the factor, which may have been kept for one that is the same to rounding.
    """
    n, p = white.design.shape
    unit = replace(value_unit(observations), exponent=0) if p else ValueUnit(0.0, 0)
    near, noise = unit.observations(observations), observations.scaled_errors(model.variance)
    known = white.coefficients.copy()
    if unit.shift:
        known[0] -= unit.shift
    residual = near.values - near.design @ known
    # powers of two: nothing is rounded, and no square of what follows overflows or vanishes
    exponent = int(np.frexp(np.abs(residual).max())[1])
    powers = np.frexp(np.abs(near.design[:, :p]).max(axis=0))[1]
    design, root = np.ldexp(near.design[:, :p], -powers), np.ldexp(white.root, -powers)
    beside = design if p else np.ones((n, 1))
    matrix = covariance_source(correlation_of(model), observations.coordinates, noise)
    solution = factor.certify(np.column_stack([np.ldexp(residual, -exponent), beside]), a=matrix).solution
    assert solution is not None
    rounding, errors = _OF_SITES * solution.rounding, np.asarray(solution.error)
    back = solve_triangular(root, np.eye(p))
    columns_rounding = 8.0 * rounding * float(np.linalg.norm(root, axis=0) @ np.linalg.norm(back, axis=1))
    found = CertifiedMean(
        shift=unit.shift,
        coefficients=known,
        dual=np.full(n, nan),
        size=inf,
        error=inf,
        left=inf,
        root=root,
        powers=powers,
        rounding=rounding,
        columns_rounding=columns_rounding,
        gap=solution.gap,
        sufficient_threshold=solution.sufficient_threshold,
        confidence=solution.confidence,
    )
    if not np.isfinite(errors).all() or columns_rounding > _MOST_ROUNDING:
        return found
    x, others = solution.x[:, 0], solution.x[:, 1 : 1 + p]
    step = back @ np.linalg.solve(back.T @ (design.T @ others) @ back, back.T @ (design.T @ x))
    dual = x - others @ step
    coefficients = known + (np.ldexp(step, exponent - powers) if p else 0.0)
    own = model.site_variances(observations.coordinates) / model.variance
    diagonal = own + model.nugget / model.variance + (0.0 if noise is None else noise)
    of_dual = (p + 2) * _U * (np.abs(x) + np.abs(others) @ np.abs(step))
    columns = near.design.shape[1]
    of_residual = (columns + 3) * _U * (np.abs(near.values) + np.abs(near.design) @ (np.abs(known) + np.abs(coefficients)))
    deviations = solution.half_width[:, -1] / errors[-1]  # square roots of the diagonal of inv(R) at most
    error = float(errors[0] + np.abs(step) @ errors[1 : 1 + p] + of_dual @ np.sqrt(diagonal))
    error += float(np.ldexp(of_residual, -exponent) @ deviations)
    of_sums = _rounding_of_sums(n, rounding) * (np.abs(design).T @ np.abs(dual))
    left = float(np.linalg.norm(np.abs(back).T @ (np.abs(design.T @ dual) + of_sums)))
    size, error, left = (ldexp(each, exponent) for each in (float(np.sqrt(own) @ np.abs(dual)), error, left))
    return replace(found, coefficients=coefficients, dual=np.ldexp(dual, exponent), size=size, error=error, left=left)


class AtSites(NamedTuple):
    """Predictions at m sites, with their inputs."""

    design: Array  #: (m, q) columns of the mean, those that were estimated first
    own: Array  #: (m,) variances of the field without data, over ``scale``
    sums: tb.HalfSolveSums | None  #: Over solutions with L; None for means alone
    scale: float  #: The variance that correlations were multiplied by
    error_variance: float | Array  #: Of what is predicted, beside that of the field
    variance: Array  #: (m,) as predicted; NaN for means alone


def half_widths(known: CertifiedMean, at: AtSites) -> HalfWidths:
    """Half-widths of the means of ``known``, and of the variances as they were predicted."""
    m, p, g, s = len(at.own), len(known.powers), known.gap, known.rounding
    facts = known.gap, known.sufficient_threshold, known.confidence
    nothing = np.full(m, inf if at.sums is not None else nan)
    if not known.is_certified:
        return HalfWidths(np.full(m, inf), nothing, *facts)

    def whitened(columns: Array) -> Array:
        solved: Array = solve_triangular(known.root, np.ldexp(columns, -known.powers).T, trans="T")
        return solved

    c, h = whitened(at.design[:, :p]), np.zeros((p, m))
    cc, by_columns = np.square(c).sum(axis=0), known.columns_rounding
    if at.sums is None:
        uu = (1.0 + g) * (1.0 + s) ** 2 * at.own  # data explain no more of the field than there is
        multipliers = np.sqrt(cc) + np.sqrt(uu)
    else:
        h, uu = whitened(at.sums.products[:, 1:]), at.sums.squares
        multipliers = np.linalg.norm(c - h, axis=0)
    across = np.maximum(uu - np.square(h).sum(axis=0), 0.0)
    noise = (4.0 * s + 7.0 * by_columns) * (cc + uu) / (1.0 - g)
    off = g * np.sqrt(cc) + g / (1.0 - g) * np.sqrt(across + noise) + by_columns * (np.sqrt(cc) + np.sqrt(uu))
    weights = np.sqrt(cc + across + noise) + off
    mean = (known.error / sqrt(1.0 - g) * weights + known.left * (multipliers + off)) * (1.0 + 2.0 * by_columns)
    products = known.size * np.sqrt(at.own)
    mean += _rounding_of_sums(len(known.dual), s) * products
    mean += (at.design.shape[1] + 4) * _U * (np.abs(at.design) @ np.abs(known.coefficients) + abs(known.shift) + products)
    if at.sums is None:
        return HalfWidths(mean, nothing, *facts)
    noise += 16.0 * _U * (at.own + cc + uu)
    low, high = (at.own - 2.0 * (c * h).sum(axis=0) + (1.0 + x) * cc - across / (1.0 + x) for x in (-g, g))
    least, most = (at.scale * np.maximum(each, 0.0) + at.error_variance for each in (low - noise, high + noise))
    return HalfWidths(mean, np.maximum(most - at.variance, at.variance - least) + 4.0 * _U * most, *facts)


def _rounding_of_sums(n: int, rounding: float) -> float:
    """Bound on the rounding of a sum of n products, beside the sum of their sizes: a solution with L has n such sums and more."""
    return min(n * _U, 2.0 * rounding / n)
