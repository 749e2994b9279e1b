"""Exact Gaussian log-likelihood with the mean profiled out by generalised least squares, and, where asked, the variance too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, covariance_source
from ooc_chol.apps.geostat.covariances.model import check_model
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.data.ordering import morton_order
from ooc_chol.apps.geostat.estimation.certified_loglik import loglik_interval
from ooc_chol.apps.geostat.estimation.mean import Whitened, degrees_of_freedom, estimate_mean, restriction, whiten
from ooc_chol.apps.geostat.estimation.value_unit import ValueUnit, value_unit
from ooc_chol.apps.geostat.factorization import FactorProgress, FactorSettings, chosen_settings, factored

_Covariance = TypeVar("_Covariance", bound=AbstractCovariance)


@dataclass(frozen=True, eq=False)
class Likelihood:
    """One value of the log-likelihood with everything estimated on the way.

    Parameters
    ----------
    loglik : float
        Log-likelihood, ``-n/2 log(2 pi)`` included.
    model : AbstractCovariance
        The covariance function, variance and nugget in the squared unit of the values.
    coefficients : (p,) array
        Coefficients of the mean.
    coefficient_covariance : (p, p) array
        Their covariance, given the covariance function.
    quadratic : float
        ``(z - X b)' inv(R) (z - X b)`` of the correlation matrix ``R`` (unit variance; nugget and known error variances, over the
        variance, on the diagonal).
    logdet : float
        Log-determinant of ``R``.
    seconds : float
        Wall-clock time.
    reml : bool
        True if it is the restricted log-likelihood.
    interval : (float, float) or None
        Where the log-likelihood of exact arithmetic lies, where that was asked for; infinite where the factor certifies nothing.
    """

    loglik: float
    model: AbstractCovariance
    coefficients: NDArray[np.float64]
    coefficient_covariance: NDArray[np.float64]
    quadratic: float
    logdet: float
    seconds: float
    reml: bool = False
    interval: tuple[float, float] | None = None

    __repr__ = tb.brief_repr


@dataclass(frozen=True, eq=False)
class Probed:
    """Solutions for estimates by probes, from the pass that whitens the observations."""

    signs: NDArray[np.float64]  #: ``U``, (n, m) random signs
    both: NDArray[np.float64]  #: (n, 1 + p + m) ``[inv(R) @ [z - X b, X], inv(L).T @ U]``


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A log-likelihood with the factor it comes from, which is open."""

    likelihood: Likelihood  #: Log-likelihood and estimated mean; its seconds do not count what is computed from the factor later
    factor: oc.CholeskyFactor  #: Factor of the correlation matrix
    matrix: Callable[[], Any]  #: Makes the source of that matrix, of which a factor that was kept is one but for rounding
    observations: Observations  #: The data in the order of the factor's rows
    whitened: Whitened  #: Values and design multiplied by ``inv(L)``, and the mean estimated from them
    settings: FactorSettings  #: Settings of the factorization
    probed: Probed | None = None  #: Solutions for probes, where some were named beforehand


def log_likelihood(
    observations: Observations,
    model: AbstractCovariance,
    *,
    reml: bool = False,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
    certified: bool = False,
) -> Likelihood:
    """Log-likelihood of ``model``, the mean's coefficients profiled out.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    reml : bool
        The restricted log-likelihood: that of the ``n - p`` contrasts of the values that the mean does not reach.
    settings : FactorSettings, optional
        Tile size, devices, memory budgets and store of the factorization; chosen by the library when not given.
    progress : callable, optional
        Called with flops done, flops in all and seconds.
    certified : bool
        Give the interval, too, in which the log-likelihood of exact arithmetic lies, whatever the precision of the factor, as
        :meth:`ooc_chol.CholeskyFactor.certify` does.

    Returns
    -------
    Likelihood
        Log-likelihood, its parts, and the estimated mean.

    Raises
    ------
    NotPositiveDefiniteError
        The covariance matrix is not positive definite in floating point.

    Notes
    -----
    Cost ``n**3 / 3`` flops, one Cholesky factorization. ``R = C / variance`` is factored, so that both forms of the likelihood
    share it. The restricted one is Harville's (1974), the density of ``K' z`` for any ``K`` with orthonormal columns orthogonal
    to the design: ``logdet(X' X) / 2`` is in it, so that it does not depend on how the columns of the mean are scaled.
    """
    check_is_observations(observations)
    check_model(model)
    start, unit = time.perf_counter(), value_unit(observations)
    data, variance = unit.observations(observations), unit.variance(model.variance)
    with evaluated(data, correlation_of(model), variance=variance, reml=reml, settings=settings, progress=progress) as found:
        likelihood = found.likelihood
        if certified:
            interval = loglik_interval(
                found.factor, found.matrix(), found.observations, found.whitened, variance=variance, reml=reml
            )
            likelihood = replace(likelihood, interval=interval, seconds=time.perf_counter() - start)
        return likelihood_back(likelihood, unit, data, model)


@tb.documented(like=log_likelihood)
def profile_log_likelihood(
    observations: Observations,
    correlation: AbstractCovariance,
    *,
    nugget: float | None = None,
    reml: bool = False,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
) -> Likelihood:
    """Log-likelihood maximised over the mean and the variance at a given range and nugget *ratio*.

    Parameters
    ----------
    correlation : AbstractCovariance
        A model of variance 1, whose nugget is the ratio ``tau2 / sigma2``.
    nugget : float, optional
        Keep ``tau2`` at this value in squared units: then ``sigma2 = nugget / ratio`` and nothing but the mean is profiled.
    reml : bool
        The restricted log-likelihood, as :func:`log_likelihood`.

    Returns
    -------
    Likelihood
        The value, with ``sigma2 = quadratic / n``, or ``quadratic / (n - p)`` when restricted, in its model.

    Raises
    ------
    ValueError
        ``correlation`` has not variance 1; or the mean fits the values exactly, so that no variance is left. Or observations
        have known error variances and no nugget is kept: then the variance has no closed form.
    NotPositiveDefiniteError
        The correlation matrix is not positive definite in floating point.
    """
    check_is_observations(observations)
    unit = value_unit(observations)
    variance, data = (
        fixed_variance(correlation, None if nugget is None else unit.variance(nugget)),
        unit.observations(observations),
    )
    with evaluated(data, correlation, variance=variance, reml=reml, settings=settings, progress=progress) as found:
        return likelihood_back(found.likelihood, unit, data)


def likelihood_back(
    found: Likelihood, unit: ValueUnit, observations: Observations, model: AbstractCovariance | None = None
) -> Likelihood:
    """A likelihood in the unit that the values came in; ``model`` is its covariance function where that was given."""
    if unit.is_plain:
        return found
    freedom, interval = degrees_of_freedom(observations, found.reml), found.interval
    return replace(
        found,
        loglik=unit.loglik_back(found.loglik, freedom),
        interval=None if interval is None else (unit.loglik_back(interval[0], freedom), unit.loglik_back(interval[1], freedom)),
        model=unit.model_back(found.model) if model is None else model,
        coefficients=unit.coefficients_back(found.coefficients, observations.mean_columns),
        coefficient_covariance=unit.covariance_back(found.coefficient_covariance),
        quadratic=unit.variance_back(found.quadratic),
    )


def correlation_of(model: _Covariance) -> _Covariance:
    """``model`` divided by its variance: variance 1, and the nugget ratio as nugget."""
    check_model(model)
    return model.with_values(variance=1.0, nugget=model.nugget / model.variance)


def fixed_variance(correlation: AbstractCovariance, nugget: float | None) -> float | None:
    """The variance that a nugget kept at this value leaves at the nugget ratio of ``correlation``; None when it is profiled."""
    if correlation.variance != 1.0:
        raise ValueError(f"a correlation has variance 1, not {correlation.variance}")
    if nugget is None:
        return None
    if not (nugget > 0 and correlation.nugget > 0):
        raise ValueError(f"a nugget of {nugget} cannot be kept at a nugget ratio of {correlation.nugget}: both must be positive")
    return nugget / correlation.nugget


def whiten_with_probes(
    factor: oc.CholeskyFactor, observations: Observations, signs: NDArray[np.float64]
) -> tuple[Whitened, Probed]:
    """The same, and solutions for random signs by the same two readings of L."""
    both = np.column_stack([observations.values, observations.design])
    half, solved = factor.half_solves(both, signs)
    whitened = estimate_mean(half, observations)
    solved[:, 0] -= solved[:, 1 : both.shape[1]] @ whitened.coefficients
    return whitened, Probed(signs, solved)


def random_signs(n: int, probes: int, seed: int) -> NDArray[np.float64]:
    """Probes of independent signs, ``(n, probes)``: those that NumPy's ``choice`` draws, which takes longer."""
    count = n * probes
    words = np.random.default_rng(seed).bit_generator.random_raw(-(-count // 2)).astype("<u8", copy=False)
    signs = (words.view("<u4")[:count] >> 31).astype(np.float64)  # the first bit of each half of a word, the lower half first
    signs *= 2.0
    signs -= 1.0
    return signs.reshape(n, probes)


@contextmanager
def evaluated(
    observations: Observations,
    correlation: AbstractCovariance,
    *,
    variance: float | None,
    reml: bool = False,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
    probes: tuple[int, int] | None = None,
) -> Iterator[Evaluated]:
    """Factor, whiten, and put the value together; the factor is open inside the ``with`` block.

    ``probes``, a number and a seed, are those of estimates that will be asked for.
    """
    check_variance(observations, variance)
    start = time.perf_counter()
    ordered = observations.take(morton_order(observations.places))
    how, noise = chosen_settings(settings), None if variance is None else ordered.scaled_errors(variance)
    with (
        nullcontext() if probes is None else tb.called_beside(partial(random_signs, ordered.n, *probes)) as signs,
        factored(correlation, ordered.coordinates, how, noise=noise, rows=ordered.named_rows, progress=progress) as factor,
    ):
        whitened, probed = (whiten(factor, ordered), None) if signs is None else whiten_with_probes(factor, ordered, signs())
        likelihood = put_together(
            whitened, float(factor.logdet()), ordered, correlation, variance=variance, reml=reml, start=start
        )
        matrix = partial(covariance_source, correlation, ordered.coordinates, noise)
        yield Evaluated(likelihood, factor, matrix, ordered, whitened, how, probed)


def check_variance(observations: Observations, variance: float | None) -> None:
    """Raise ``ValueError`` where the variance is to be profiled out although error variances are known."""
    if variance is None and observations.error_variances is not None:
        raise ValueError(
            "with known error variances the matrix is no multiple of the variance, which is therefore not profiled out: use "
            "log_likelihood at a given variance, or fit, which searches for it"
        )


def put_together(
    whitened: Whitened,
    logdet: float,
    observations: Observations,
    correlation: AbstractCovariance,
    *,
    variance: float | None,
    reml: bool,
    start: float,
) -> Likelihood:
    """The log-likelihood of data whose covariance is taken off already."""
    freedom = degrees_of_freedom(observations, reml)
    sigma2 = _profiled_variance(whitened, observations, freedom) if variance is None else variance
    # log N(z; X b, sigma2 R)
    loglik = -0.5 * (freedom * math.log(2 * math.pi * sigma2) + logdet + whitened.quadratic / sigma2)
    return Likelihood(
        loglik=loglik + (restriction(whitened, observations) if reml else 0.0),
        model=correlation.with_values(variance=sigma2, nugget=sigma2 * correlation.nugget),
        coefficients=whitened.coefficients,
        coefficient_covariance=sigma2 * whitened.inverse_information,
        quadratic=whitened.quadratic,
        logdet=logdet,
        seconds=time.perf_counter() - start,
        reml=reml,
    )


def _profiled_variance(whitened: Whitened, observations: Observations, freedom: int) -> float:
    """``sigma2 = quadratic / freedom``, where the score of the variance is zero."""
    spread = observations.values - observations.design @ whitened.coefficients
    if np.max(np.abs(spread)) <= 1e-13 * np.max(np.abs(observations.values)):
        raise ValueError("the mean fits all values exactly, so there is nothing left for a covariance (are all values equal?)")
    return whitened.quadratic / freedom
