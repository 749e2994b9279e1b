"""Warnings about a fit: parameters at bounds, no sign of correlation, searches that did not converge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.covariances.nested import RATIO
from ooc_chol.apps.geostat.data.observations import Observations, least_squares_residuals
from ooc_chol.apps.geostat.errors import place_text
from ooc_chol.apps.geostat.estimation.fit_result import SmoothnessTrial
from ooc_chol.apps.geostat.estimation.mean import degrees_of_freedom
from ooc_chol.apps.geostat.estimation.nested_warnings import ratio_bound_text, structure_warnings
from ooc_chol.apps.geostat.estimation.search import NUGGET_RATIO, VARIANCE, SearchSpace

#: Half of the 0.95 quantile of a chi-square variable of two degrees of freedom, range and nugget: less is no sign of correlation.
_LEAST_GAIN = 3.0

#: Variances of independent values that are searched, in logarithms of shares of the mean square of their residuals.
_LOG_SHARES = (-30.0, 1.0)

#: A share of the sites, and how many times as far as these from the middle of all a site is far.
_MOST, _FAR = 0.9, 100.0

#: Of so many values or more, one that has this share of the sum of squares carries the variance; so do some, up to one in so many
#: as those, that have the second share together.
_A_FEW, _CARRIES, _CARRY = 10, 0.5, 0.85

_BOUND_TEXTS = {
    ("range", "lower"): "the range is at its lower bound, far below the distances between sites",
    ("range", "upper"): "the range is at its upper bound, ten times the extent of the sites: of variance and range only "
    "variance / range**(2 smoothness) is determined",
    ("smoothness", "lower"): "the smoothness is at its lower bound: the field is hardly smoother than independent values",
    ("smoothness", "upper"): "the smoothness is at its upper bound: the field is as good as analytic",
    (
        "nugget_ratio",
        "lower",
    ): "the nugget is at its floor, 1e-8 of the variance: the values show none, and the one reported is no estimate",
    (
        "variance",
        "lower",
    ): "the variance is at its lower bound, a millionth of what the known errors leave: they explain the values",
    ("variance", "upper"): "the variance is at its upper bound, a million times what the values show: of variance and range only "
    "variance / range**(2 smoothness) is determined",
    ("nugget_ratio", "upper"): "the nugget is at its upper bound, 1000 times the variance",
}

#: The same of the ratio of a nugget that is kept, whose bounds are those of the variance.
_KEPT_TEXTS = {
    "lower": _BOUND_TEXTS["variance", "upper"],
    "upper": "the variance is at its lower bound, a millionth of what the nugget that is kept leaves: it explains the values",
}


def warnings_of(
    observations: Observations,
    trials: Sequence[SmoothnessTrial],
    best: SmoothnessTrial,
    *,
    space: SearchSpace[Any],
    point: NDArray[np.float64],
    reml: bool,
) -> tuple[str, ...]:
    """Warnings about the searches of a fit."""
    texts = [bound_text(space, *found) for found in space.at_bounds(point)]
    texts += structure_warnings(space.correlation(point), observations.coordinates)
    texts += far_sites(observations) + outliers(observations)
    gain = best.loglik - independent_loglik(observations, reml)
    if gain < _LEAST_GAIN:
        texts.append(
            f"the log-likelihood is only {gain:.2f} above that of independent values: there may be no spatial correlation"
        )
    if not best.converged:
        texts.append(f"the search did not converge in {best.evaluations} evaluations: {best.message}")
    failed = sum(trial.not_positive_definite for trial in trials)
    if failed:
        texts.append(
            f"{failed} evaluations met a matrix that is not positive definite in floating point and counted as minus infinity"
        )
    return tuple(texts)


def far_sites(observations: Observations) -> list[str]:
    """A note that names sites far from most of the others, whose coordinates may be wrong."""
    places = observations.places
    away = np.linalg.norm(places - np.median(places, axis=0), axis=1)
    usual = float(np.quantile(away, _MOST))
    far = np.flatnonzero(away > _FAR * usual)
    if not len(far) or usual == 0.0:
        return []
    first = int(far[np.argmin(observations.named_rows.numbers[far])])
    more = f" (and {len(far) - 1} more)" if len(far) > 1 else ""
    return [
        f"{observations.named_rows.named(first)}{more}, at {place_text(places[first])}, is {away[first]:.4g} from the middle of "
        f"all sites, of which {100 * _MOST:.0f} % are within {usual:.4g}: is the place right?"
    ]


def outliers(observations: Observations) -> list[str]:
    """A note that names a value, or a few, that have most of the sum of squares of all, where there are more than a few."""
    squares = least_squares_residuals(observations.design, observations.values) ** 2
    rows = np.argsort(-squares, kind="stable")
    shares = np.cumsum(squares[rows]) / squares.sum()
    count = 1 + int(np.searchsorted(shares, _CARRY))
    if count > observations.n // _A_FEW and shares[0] >= _CARRIES:
        count = 1
    if observations.n < _A_FEW or count > observations.n // _A_FEW:
        return []
    first = int(rows[np.argmin(observations.named_rows.numbers[rows[:count]])])
    have = f" and {count - 1} more together have" if count > 1 else " alone has"
    ask = (
        "those values: are they gaps or errors? Drop or mend them"
        if count > 1
        else "that value: is it a gap or an error? Drop or mend it"
    )
    return [
        f"{observations.named_rows.named(first)}{have} {100 * shares[count - 1]:.4g} % of the sum of squares of the values about "
        f"their mean, so that the estimate is of {ask}, or transform the values"
    ]


def bound_text(space: SearchSpace[Any], name: str, side: str, bound: float) -> str:
    """Say that a parameter is at a bound, and of those of a Matérn model and of the nugget what that means."""
    if name == NUGGET_RATIO and space.fixed_nugget is not None:
        return _KEPT_TEXTS[side]
    if name in (NUGGET_RATIO, VARIANCE) or isinstance(space.template, Matern):
        return _BOUND_TEXTS[name, side]
    if name.startswith(RATIO):
        return ratio_bound_text(name, side)
    share = " of what the other parameters allow" if space.scales[space.names.index(name)].bound else ""
    return f"{name} is at the {side} bound of the search, {bound:g}{share}"


def independent_loglik(observations: Observations, reml: bool) -> float:
    """Largest log-likelihood of independent values of equal variance, besides that of their known errors.

    ``-m/2 (log(2 pi s2) + 1)`` with m = n, or n - p; with known errors there is no such form, and ``s2`` is searched for.
    """
    with tb.guarded_imports():
        from scipy.optimize import minimize_scalar  # 0.1 s, which only a fit needs

    m = degrees_of_freedom(observations, reml)
    variance = float(np.sum(least_squares_residuals(observations.design, observations.values) ** 2)) / m
    if observations.error_variances is None:
        return -0.5 * m * (math.log(2 * math.pi * variance) + 1)

    def value(log_share: float) -> float:
        return _heteroscedastic_loglik(observations, variance * math.exp(log_share), reml)

    return max(value(_LOG_SHARES[0]), -float(minimize_scalar(lambda t: -value(t), bounds=_LOG_SHARES, method="bounded").fun))


def _heteroscedastic_loglik(observations: Observations, variance: float, reml: bool) -> float:
    """Log-likelihood of independent values with this variance and their known errors, the mean by weighted least squares."""
    assert observations.error_variances is not None
    variances = variance + observations.error_variances
    weights = 1.0 / np.sqrt(variances)
    design = weights[:, np.newaxis] * observations.design
    residual = least_squares_residuals(design, weights * observations.values)
    m = degrees_of_freedom(observations, reml)
    loglik = -0.5 * (m * math.log(2 * math.pi) + float(np.sum(np.log(variances)) + residual @ residual))
    if not reml:
        return loglik
    plain, weighted = (np.linalg.qr(columns, mode="r") for columns in (observations.design, design))
    return loglik + float(np.sum(np.log(np.abs(np.diag(plain)))) - np.sum(np.log(np.abs(np.diag(weighted)))))
