"""A covariance function fitted to an empirical semivariogram by weighted least squares: a start, not an estimate to report."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import SMOOTHNESS, Matern
from ooc_chol.apps.geostat.covariances.model import Nugget, kept_nugget
from ooc_chol.apps.geostat.variography.empirical import Variogram

#: ``"gstat"``: pairs over squared distance; ``"pairs"``: their number alone.
Weights = Literal["gstat", "pairs"]

#: Effective ranges that are tried first, as shares of the longest distance, and how near the best is looked for.
_SHARES = np.geomspace(1e-2, 1e2, 81)
_CLOSE = 1e-10

#: Semivariances beyond so many powers of two are fitted in a unit of their own.
_POWERS = 200


@dataclass(frozen=True, eq=False)
class FittedVariogram:
    """A Matérn covariance whose semivariogram is nearest to an empirical one.

    Parameters
    ----------
    model : Matern
        Range, variance and nugget, and the smoothness that was given or is the best of several.
    loss : float
        Weighted sum of squared differences of semivariances.
    at_bound : bool
        True if the range is at an end of what was tried: the semivariogram then has no sill, or no slope.
    """

    model: Matern
    loss: float
    at_bound: bool

    __repr__ = tb.brief_repr


def fit_variogram(
    variogram: Variogram, *, smoothness: float | Literal["best"] = 0.5, nugget: Nugget = "free", weights: Weights = "gstat"
) -> FittedVariogram:
    """Fit ``nugget + variance - C(h)`` to an empirical semivariogram.

    Parameters
    ----------
    variogram : Variogram
        The semivariogram, of all directions or of one.
    smoothness : float or "best"
        ``nu`` of the Matérn covariance (1/2 is gstat's exponential model), or the one of 0.5, 1.5 and 2.5 with the least loss.
    nugget : {"free", "zero"} or float
        Estimated, zero or more; none; or kept at this variance.
    weights : {"gstat", "pairs"}
        ``N / h**2``, gstat's default (its ``fit.method`` 7), or ``N`` (1), for ``N`` pairs at mean distance ``h``.

    Returns
    -------
    FittedVariogram
        The model and how near it is.

    Raises
    ------
    ValueError
        There are fewer distances than parameters, all semivariances are zero, or an option is no such choice.

    Notes
    -----
    Variance and nugget enter linearly and are found exactly for each range, by least squares without negative values; the range
    by a search along one line. Such a fit has no standard errors, and depends on the bins: maximum likelihood starts from it.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import (
    ...     empirical_variogram,
    ...     make_observations,
    ... )
    >>> sites = np.random.default_rng(0).uniform(size=(200, 2))
    >>> waves = make_observations(sites, np.sin(9 * sites[:, 0]))
    >>> 0.1 < fit_variogram(
    ...     empirical_variogram(waves), smoothness=1.5
    ... ).model.range < 0.5
    True
    """
    if weights not in ("gstat", "pairs"):
        raise ValueError(f"weights are {weights!r}, but there are 'gstat' and 'pairs'")
    kept = kept_nugget(nugget)
    if isinstance(smoothness, str) and smoothness != "best":
        raise ValueError(f"smoothness is {smoothness!r}, but there are 'best' and numbers")
    is_away = variogram.distance > 0
    distance, values = variogram.distance[is_away], variogram.semivariance[is_away]
    pairs = variogram.pairs[is_away].astype(np.float64)
    if len(distance) < 3:
        raise ValueError(f"the semivariogram has {len(distance)} distances, but three parameters need three: ask for more bins")
    if not np.any(values > 0):
        raise ValueError("all semivariances are zero, so there is nothing to fit")
    roots = np.sqrt(pairs) / (distance if weights == "gstat" else 1.0)
    candidates = SMOOTHNESS if smoothness == "best" else (smoothness,)
    power = math.frexp(float(values.max()))[1]
    power = power if abs(power) > _POWERS else 0
    values, kept = np.ldexp(values, -power), None if kept is None else math.ldexp(kept, -power)
    best = min((_fitted(distance, values, roots, nu, kept=kept) for nu in candidates), key=lambda found: found.loss)
    return best if power == 0 else _in_unit(best, power)


def _in_unit(found: FittedVariogram, power: int) -> FittedVariogram:
    """A fit of semivariances times a power of two; a loss beyond float64 is infinite."""
    model = found.model
    variance, nugget = (math.ldexp(value, power) for value in (model.variance, model.nugget))
    with np.errstate(over="ignore"):
        loss = float(np.ldexp(found.loss, 2 * power))
    return replace(found, model=model.with_values(variance=variance, nugget=nugget), loss=loss)


def _fitted(
    distance: NDArray[np.float64],
    values: NDArray[np.float64],
    roots: NDArray[np.float64],
    smoothness: float,
    *,
    kept: float | None,
) -> FittedVariogram:
    """The best range, with the variance and nugget that belong to it."""
    with tb.guarded_imports():
        from scipy.optimize import minimize_scalar, nnls  # 0.2 s, which only this needs

    unit = Matern(1.0, 1.0, smoothness, 0.0)
    right = roots * (values - (kept or 0.0))

    def solved(log_range: float) -> tuple[NDArray[np.float64], float]:
        """Variance and nugget at a range, and the root of the loss."""
        columns = [1.0 - unit.covariance(distance / np.exp(log_range))]
        columns += [np.ones_like(distance)] if kept is None else []
        solution, norm = nnls(roots[:, np.newaxis] * np.column_stack(columns), right)
        return solution, float(norm)

    tried = np.log(_SHARES * distance[-1] / unit.effective_range)
    losses = [solved(point)[1] for point in tried]
    k = int(np.argmin(losses))
    low, high = tried[max(k - 1, 0)], tried[min(k + 1, len(tried) - 1)]
    best = minimize_scalar(lambda point: solved(point)[1], bounds=(low, high), method="bounded", options={"xatol": _CLOSE}).x
    solution, norm = solved(float(best))
    error = float(solution[1]) if kept is None else kept
    model = Matern(max(float(solution[0]), np.finfo(np.float64).tiny), float(np.exp(best)), smoothness, error)
    return FittedVariogram(model, norm**2, k in (0, len(tried) - 1) or solution[0] == 0.0)
