"""Gradient of the log-likelihood in every parameter of the covariance, and its expected information."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.model import check_model
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.estimation.likelihood import (
    Evaluated,
    Likelihood,
    correlation_of,
    evaluated,
    fixed_variance,
    likelihood_back,
    log_likelihood,
)
from ooc_chol.apps.geostat.estimation.scores import Sums, dense_sums, exact_sums, probed_sums
from ooc_chol.apps.geostat.estimation.value_unit import ValueUnit, value_unit
from ooc_chol.apps.geostat.factorization import FactorSettings

#: How trace sums ``tr(P D)`` are found. ``"exact"``: with all of the inverse; ``"probes"``: Hutchinson's estimates; ``"auto"``:
#: exact up to :data:`GRADIENT_LIMIT` observations.
TraceSums = Literal["auto", "exact", "probes"]

#: Order up to which ``"auto"`` takes the exact gradient (2/3 n**3 flops on the host, beside n**3 / 3 for the factorization), and
#: order up to which it takes the exact information (3 n**3 flops for each shape parameter, and that many dense matrices).
GRADIENT_LIMIT = 20_000
INFORMATION_LIMIT = 3_000

#: Probes of an estimate unless told otherwise.
PROBES = 64


@dataclass(frozen=True, eq=False)
class LikelihoodGradient:
    """A log-likelihood with its gradient.

    Parameters
    ----------
    likelihood : Likelihood
        Log-likelihood and estimated mean at these parameters.
    names : tuple of str
        The ``k`` parameters: those of the correlation function, then ``"variance"`` and ``"nugget"``; for a profile
        ``"nugget_ratio"`` in place of both.
    gradient : (k,) array
        Derivative by each, in units of one over the parameter's.
    standard_error : (k,) array
        Monte-Carlo standard error of the gradient; zero when it is exact.
    information : (k, k) array or None
        Expected (Fisher) information, where it was asked for.
    information_error : (k, k) array or None
        Its Monte-Carlo standard error; zero when it is exact.
    """

    likelihood: Likelihood
    names: tuple[str, ...]
    gradient: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    information: NDArray[np.float64] | None = None
    information_error: NDArray[np.float64] | None = None

    __repr__ = tb.brief_repr


@tb.documented(like=log_likelihood)
def log_likelihood_gradient(
    observations: Observations,
    model: AbstractCovariance,
    *,
    reml: bool = False,
    traces: TraceSums = "auto",
    information: bool = False,
    probes: int = PROBES,
    seed: int = 0,
    settings: FactorSettings | None = None,
) -> LikelihoodGradient:
    """Gradient of the log-likelihood in the parameters of ``model``, the mean's coefficients profiled out.

    ``dLL = 1/2 (a' dS a - tr(P dS))`` with ``a = inv(S) (z - X b)``, and ``P = inv(S)`` unless restricted.

    Parameters
    ----------
    reml : bool
        Take the restricted likelihood, that of contrasts free of the mean.
    traces : {"auto", "exact", "probes"}
        Exact, by random probes with their standard error, or exact up to 20,000 observations.
    information : bool
        The expected information too: exact up to 3,000 observations unless ``traces="probes"``, else by probes.
    probes, seed : int
        How many, and the seed of their signs.

    Returns
    -------
    LikelihoodGradient
        Derivatives by the parameters themselves, not by their logarithms.

    Raises
    ------
    ValueError
        There is no such choice of traces, or fewer than two probes.
    NotPositiveDefiniteError
        The covariance matrix is not positive definite in floating point.

    Notes
    -----
    Cost of the exact gradient: ``2/3 n**3`` flops besides the factorization's ``n**3 / 3``, for all parameters together.
    """
    check_is_observations(observations)
    check_model(model)
    check_trace_sums(traces, probes)
    along = None if has_exact_gradient(traces, observations.n) else (probes, seed)
    unit = value_unit(observations)
    data, variance = unit.observations(observations), unit.variance(model.variance)
    with evaluated(data, correlation_of(model), variance=variance, reml=reml, settings=settings, probes=along) as found:
        limit = INFORMATION_LIMIT if information else 0
        full = score(found, trace_sums=traces, information=limit, probes=probes, seed=seed)
    return _gradient_back(full, unit, data, model)


@tb.documented(like=log_likelihood_gradient)
def profile_log_likelihood_gradient(
    observations: Observations,
    correlation: AbstractCovariance,
    *,
    nugget: float | None = None,
    reml: bool = False,
    traces: TraceSums = "auto",
    probes: int = PROBES,
    seed: int = 0,
    settings: FactorSettings | None = None,
) -> LikelihoodGradient:
    """Gradient of the profile log-likelihood by the shape parameters and the nugget ratio.

    Parameters
    ----------
    correlation : AbstractCovariance
        A model of variance 1, whose nugget is the ratio ``tau2 / sigma2``.
    nugget : float, optional
        Keep ``tau2`` at this value: then ``sigma2 = nugget / ratio`` moves with the ratio.
    traces, probes, seed
        As :func:`log_likelihood_gradient`.

    Returns
    -------
    LikelihoodGradient
        Names are those of the shape parameters and ``"nugget_ratio"``.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        As :func:`~ooc_chol.apps.geostat.profile_log_likelihood` and :func:`log_likelihood_gradient`.
    """
    check_is_observations(observations)
    check_trace_sums(traces, probes)
    unit = value_unit(observations)
    variance, data = (
        fixed_variance(correlation, None if nugget is None else unit.variance(nugget)),
        unit.observations(observations),
    )
    along = None if has_exact_gradient(traces, observations.n) else (probes, seed)
    with evaluated(data, correlation, variance=variance, reml=reml, settings=settings, probes=along) as found:
        full = score(found, trace_sums=traces, probes=probes, seed=seed)
    jacobian = _profile_jacobian(full, nugget is not None)
    # at the profiled variance the derivative along it is zero, so that a step of it changes nothing
    names = (*full.names[:-2], "nugget_ratio")
    errors = np.abs(jacobian) @ full.standard_error
    return LikelihoodGradient(likelihood_back(full.likelihood, unit, data), names, jacobian @ full.gradient, errors)


def _gradient_back(
    found: LikelihoodGradient, unit: ValueUnit, observations: Observations, model: AbstractCovariance
) -> LikelihoodGradient:
    """A gradient in the unit that the values came in: by variance and nugget, the last two, in one over its square."""
    if unit.is_plain:
        return found
    powers = np.where(np.arange(len(found.names)) < len(found.names) - 2, 0, -2 * unit.exponent)
    both = powers[:, np.newaxis] + powers
    with np.errstate(over="ignore", under="ignore"):
        result = replace(
            found,
            likelihood=likelihood_back(found.likelihood, unit, observations, model),
            gradient=np.ldexp(found.gradient, powers),
            standard_error=np.ldexp(found.standard_error, powers),
            information=None if found.information is None else np.ldexp(found.information, both),
            information_error=None if found.information_error is None else np.ldexp(found.information_error, both),
        )
    for name, before, after in (
        ("gradient", found.gradient, result.gradient),
        ("information", found.information, result.information),
    ):
        if before is not None and after is not None and np.any(~np.isfinite(after) | ((after == 0.0) & (before != 0.0))):
            raise ValueError(
                f"the {name} by variance and nugget is no number of float64 in the unit of these values: give them divided by "
                "their standard deviation"
            )
    return result


def _profile_jacobian(full: LikelihoodGradient, is_nugget_fixed: bool) -> NDArray[np.float64]:
    """Derivatives of (shape, variance, nugget) by (shape, nugget ratio), shape ``(k - 1, k)``, at fixed variance or nugget."""
    k, model = len(full.names), full.likelihood.model
    jacobian = np.eye(k - 1, k)
    ratio = model.nugget / model.variance
    # nugget = ratio * variance, or variance = nugget / ratio
    jacobian[-1, -2:] = (-model.variance / ratio, 0.0) if is_nugget_fixed else (0.0, model.variance)
    return jacobian


def check_trace_sums(traces: str, probes: int) -> None:
    """Raise ``ValueError`` unless ``traces`` is a choice and ``probes`` at least 2."""
    if traces not in ("auto", "exact", "probes"):
        raise ValueError(f"traces is {traces!r}, but there are 'auto', 'exact' and 'probes'")
    if probes < 2:
        raise ValueError(f"{probes} probes are asked for, but a standard error needs at least 2")


def has_exact_gradient(trace_sums: TraceSums, n: int) -> bool:
    """Tell whether a gradient of so many observations is exact by this choice."""
    return trace_sums == "exact" or (trace_sums == "auto" and n <= GRADIENT_LIMIT)


def score(
    found: Evaluated,
    shape: tuple[str, ...] | None = None,
    *,
    trace_sums: TraceSums = "auto",
    information: int = 0,
    probes: int = PROBES,
    seed: int = 0,
) -> LikelihoodGradient:
    """Gradient, and information if asked for, from a factor that is there."""
    n = found.observations.n
    shape = found.likelihood.model.parameters if shape is None else shape
    is_exact = has_exact_gradient(trace_sums, n)
    if is_exact and n <= information:
        sums = dense_sums(found, shape)
        return assembled(found.likelihood, shape, sums, sums)
    probed = probed_sums(found, shape, probes, seed, crossed=bool(information)) if information or not is_exact else None
    sums = exact_sums(found, shape) if is_exact or probed is None else probed
    return assembled(found.likelihood, shape, sums, probed if information else None)


def assembled(likelihood: Likelihood, shape: tuple[str, ...], sums: Sums, crossed: Sums | None) -> LikelihoodGradient:
    """Go from the directions of the correlation matrix to the parameters of the covariance."""
    model = likelihood.model
    names = (*shape, "variance", "nugget")
    a = _directions(model, len(names), has_errors=len(sums.squares) > len(names))
    gradients = 0.5 * (a @ sums.squares / model.variance - sums.trace_sums @ a.T)
    result = LikelihoodGradient(likelihood, names, gradients.mean(axis=0), _error(gradients))
    if crossed is None or crossed.crossed is None:
        return result
    informations = 0.5 * (a @ crossed.crossed @ a.T)
    return replace(result, information=informations.mean(axis=0), information_error=_error(informations))


def _directions(model: AbstractCovariance, k: int, *, has_errors: bool) -> NDArray[np.float64]:
    """``inv(S) dS`` of each parameter in terms of ``inv(R)`` times shape derivatives, known errors ``N``, identity and ``R``."""
    a = np.zeros((k, k + has_errors))
    a[: k - 2, : k - 2] = np.eye(k - 2)
    # S = variance (R - ratio I - N) + nugget I + variance N, where variance N does not depend on the variance
    a[k - 2, k - 2 : -2] = -1.0 / model.variance
    a[k - 2, -2:] = -model.nugget / model.variance**2, 1.0 / model.variance
    a[k - 1, -2] = 1.0 / model.variance
    return a


def _error(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard error of the mean over the first axis; zero of one exact sample."""
    m = len(samples)
    return np.zeros(samples.shape[1:]) if m == 1 else np.std(samples, axis=0, ddof=1) / np.sqrt(m)
