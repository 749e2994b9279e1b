"""The power of Box and Cox by maximum likelihood, with its Jacobian, together with the covariance function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations, least_squares_residuals
from ooc_chol.apps.geostat.data.transforms import Transform, box_cox, transformed
from ooc_chol.apps.geostat.estimation.fit_result import FitResult
from ooc_chol.apps.geostat.estimation.fitting import fit
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of, evaluated
from ooc_chol.apps.geostat.estimation.mean import degrees_of_freedom, whiten
from ooc_chol.apps.geostat.estimation.vecchia import approximated
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import NEIGHBOURS, conditioning
from ooc_chol.apps.geostat.factorization import FactorSettings

#: Powers that are tried.
POWERS = (-2.0, 2.0)

#: A further fit is made where another power raises the log-likelihood by more than this, at most so often.
_GAIN, _ROUNDS = 1e-3, 12

#: How near the best power is looked for, and by how much the log-likelihood falls towards the ends of a 95 % interval.
_CLOSE, _FALL = 1e-4, 1.9207

#: Logarithms of values times the largest power: beyond this they are divided first.
_FAR = 20.0

#: Log-likelihood of the original values at a power, the covariance function kept but for its variance.
_Profile = Callable[[float], float]


@dataclass(frozen=True, eq=False)
class BoxCoxFit:
    """A fit of transformed values together with the power that makes them Gaussian.

    Parameters
    ----------
    transform : Transform
        The transformation at the estimated power.
    result : FitResult
        The fit of the values at that power; its log-likelihood is of the transformed values.
    loglik : float
        Log-likelihood of the original values: that of ``result`` and the logarithm of the Jacobian. Powers are compared by it.
    interval : (float, float)
        Powers whose log-likelihood, at the covariance of ``result`` but for its variance, is less than 1.92 below the largest:
        nearly the 95 % interval. Its ends are at most those of the powers that were tried.
    converged : bool
        True if the power stopped moving; the search of the last fit has its own word for it.
    fits : int
        Fits that were made on the way, the last one included.
    """

    transform: Transform
    result: FitResult[Any]
    loglik: float
    interval: tuple[float, float]
    converged: bool
    fits: int

    __repr__ = tb.brief_repr

    def to_dict(self) -> dict[str, Any]:
        """The estimate of the power as plain data for JSON."""
        return {
            "power": self.transform.power,
            "loglik_original": self.loglik,
            "interval": list(self.interval),
            "converged": self.converged,
            "fits": self.fits,
        }


def fit_box_cox(observations: Observations, *, powers: tuple[float, float] = POWERS, **how: Any) -> BoxCoxFit:
    """Estimate the power of Box and Cox and a covariance function by maximum likelihood, as ``likfit(lambda)`` of geoR does.

    Parameters
    ----------
    observations : Observations
        Positive values on their original scale, without known error variances: those would be of transformed values.
    powers : (float, float)
        Least and largest power.
    **how
        Options of :func:`~ooc_chol.apps.geostat.fit`, but ``checkpoint``, as each power has data of its own.

    Returns
    -------
    BoxCoxFit
        Power, and the fit at it.

    Raises
    ------
    ValueError
        As for ``fit``; or there are known errors, a nugget that is kept at a variance, or a checkpoint.
    TransformError
        A value is not positive; or values to the estimated power vanish beside 1, and have to be divided by a number first.

    Notes
    -----
    The log-likelihood of the original values is that of the transformed ones and ``(lambda - 1) sum(log z)`` (Box and Cox 1964;
    Christensen, Diggle and Ribeiro 2001). Power and covariance function are improved in turn: a fit, then the best power at its
    correlations, of which one factorization gives all; until that raises the log-likelihood by less than 0.001. Every step
    raises it, and 2 to 4 fits were enough on real data.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import make_observations
    >>> sites = np.random.default_rng(0).uniform(size=(80, 2))
    >>> found = fit_box_cox(
    ...     make_observations(
    ...         sites, np.exp(np.sin(6 * sites[:, 0]) + sites[:, 1])
    ...     ),
    ...     smoothness=1.5,
    ... )
    >>> -2 <= found.transform.power <= 2 and found.converged
    True
    """
    check_is_observations(observations)
    _check(observations, powers, how)
    settings = how.get("settings") or FactorSettings()
    unit = _unit(observations, powers)
    data = replace(observations, values=observations.values / unit)
    power = _independent(data, powers)
    for count in range(1, _ROUNDS + 1):
        transform = box_cox(power)
        result = fit(_transformed(data, transform), **how)
        with _profiled(data, result, settings, how.get("neighbours", NEIGHBOURS), math.log(unit)) as profile:
            better = _largest(profile, powers, power)
            is_best = profile(better) - profile(power) <= _GAIN
            if is_best or count == _ROUNDS:
                interval = _interval(profile, power, powers)
        if is_best or count == _ROUNDS:
            result = result if unit == 1.0 else fit(_transformed(observations, transform), **how)
            loglik = result.loglik + transform.log_jacobian(observations.values)
            return BoxCoxFit(transform, result, loglik, interval, is_best, count)
        power = better
    raise AssertionError("the last round returns")


def _check(observations: Observations, powers: tuple[float, float], how: dict[str, Any]) -> None:
    """Raise ``ValueError`` for what has no sense while the scale of the values is not known."""
    if not powers[0] < powers[1]:
        raise ValueError(f"powers go from {powers[0]} to {powers[1]}, but the second must be larger")
    if observations.error_variances is not None:
        raise ValueError("known error variances are those of transformed values, whose power is not known yet: give the power")
    if how.get("nugget", "free") not in ("free", "zero"):
        raise ValueError("a nugget kept at a variance is one of transformed values, whose power is not known yet: give the power")
    if how.get("checkpoint") is not None:
        raise ValueError("each power has data of its own, which a checkpoint has not: leave it out, or give the power")
    box_cox(powers[0]).forward(observations.values)


def _unit(observations: Observations, powers: tuple[float, float]) -> float:
    """A power of two by which values are divided where those that are tried would leave few digits of them, or none.

    With an intercept it changes no power: ``z**power - 1`` becomes a multiple of itself, and a constant.
    """
    if observations.mean != "constant":
        return 1.0
    logs = np.log(observations.values, out=np.zeros(observations.n), where=observations.values > 0)
    if float(np.abs(logs).max()) * max(map(abs, powers)) <= _FAR:
        return 1.0
    return math.ldexp(1.0, round(float(np.median(logs)) / math.log(2.0)))


def _transformed(observations: Observations, transform: Transform) -> Observations:
    """The observations with transformed values."""
    return replace(observations, values=transformed(transform, observations.values))


def _independent(observations: Observations, powers: tuple[float, float]) -> float:
    """The best power if values about the mean were independent: Box and Cox's own, where the search begins."""
    n, design = observations.n, observations.design

    def profile(power: float) -> float:
        transform = box_cox(power)
        residuals = least_squares_residuals(design, transform.forward(observations.values))
        return -0.5 * n * float(np.log(residuals @ residuals)) + transform.log_jacobian(observations.values)

    return _largest(profile, powers, 1.0)


@contextmanager
def _profiled(
    observations: Observations, result: FitResult[Any], settings: FactorSettings, neighbours: int, log_unit: float
) -> Iterator[_Profile]:
    """Log-likelihoods of the original values by power, at the correlations of a fit: by one factorization, or approximate.

    Of values in a unit they lack a constant, and in the restricted likelihood what the unit is to the power for each column of
    the mean, which has no degree of freedom there.
    """
    freedom = degrees_of_freedom(observations, result.reml)
    slope = (observations.n - freedom) * log_unit
    if result.method == "vecchia":
        yield _approximate(observations, result, neighbours, slope)
        return
    logs = _transformed(observations, box_cox(0.0))
    with evaluated(logs, correlation_of(result.model), variance=None, reml=result.reml, settings=settings) as found:
        ordered = np.exp(found.observations.values)
        # what does not depend on the power, from the value at the logarithm
        rest = found.likelihood.loglik + 0.5 * freedom * np.log(found.likelihood.quadratic)

        def profile(power: float) -> float:
            transform = box_cox(power)
            values = replace(found.observations, values=transform.forward(ordered))
            quadratic = whiten(found.factor, values).quadratic
            return float(rest - 0.5 * freedom * np.log(quadratic) + transform.log_jacobian(ordered) + power * slope)

        yield profile


def _approximate(observations: Observations, result: FitResult[Any], neighbours: int, slope: float) -> _Profile:
    """The profile by Vecchia's approximation, one pass for each power."""
    graph = conditioning(result.model.comparable_sites(observations.coordinates), neighbours)
    correlation = correlation_of(result.model)

    def profile(power: float) -> float:
        transform = box_cox(power)
        found = approximated(_transformed(observations, transform), correlation, graph, variance=None, reml=result.reml)
        return found.likelihood.loglik + transform.log_jacobian(observations.values) + power * slope

    return profile


def _largest(profile: _Profile, powers: tuple[float, float], known: float) -> float:
    """The best power: ``known`` or one by a bounded search, whichever is better."""
    with tb.guarded_imports():
        from scipy.optimize import minimize_scalar  # 0.2 s, which only this needs

    found = minimize_scalar(lambda power: -profile(power), bounds=powers, method="bounded", options={"xatol": _CLOSE})
    return float(found.x) if -found.fun > profile(known) else known


def _interval(profile: _Profile, best: float, powers: tuple[float, float]) -> tuple[float, float]:
    """Powers about the best where the profile has fallen by half of chi-squared's 95 % point, or the ends of what is tried."""
    with tb.guarded_imports():
        from scipy.optimize import brentq

    lowest = profile(best) - _FALL

    def crossing(end: float) -> float:
        above = profile(end) > lowest or best == end
        return end if above else float(brentq(lambda power: profile(power) - lowest, best, end, xtol=_CLOSE))

    return crossing(powers[0]), crossing(powers[1])
