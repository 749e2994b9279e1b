"""What mixed precision changed of an estimate: the likelihood in FP64 at the optimum, and how far the maximum in FP64 is."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.estimation.certified_loglik import loglik_interval
from ooc_chol.apps.geostat.estimation.likelihood import Likelihood, evaluated
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.scoring_step import scoring_step
from ooc_chol.apps.geostat.estimation.search import SearchSpace


@dataclass(frozen=True)
class PrecisionCheck:
    """An estimate in mixed precision, judged in FP64.

    Parameters
    ----------
    threshold : float
        Share of the norm of the matrix by which rounding its tiles was allowed to change it.
    loglik_mixed : float
        Log-likelihood at the estimate in mixed precision.
    loglik : float or None
        The same in FP64; None where it could not be computed.
    shift : mapping of str to float, or None
        One step of Fisher scoring in FP64 from the estimate: relative change of each parameter that was searched for. The
        estimate in FP64 lies about there. None where it could not be computed.
    shift_in_errors : float or None
        Length of that step in standard errors.
    problem : str or None
        Why something was not computed, such as memory that was short.
    lower, upper : float or None
        Where the log-likelihood of exact arithmetic lies, where it could not be computed in FP64 and a factor in mixed precision
        certifies it.
    """

    threshold: float
    loglik_mixed: float
    loglik: float | None = None
    shift: Mapping[str, float] | None = None
    shift_in_errors: float | None = None
    problem: str | None = None
    lower: float | None = None
    upper: float | None = None

    __repr__ = oc.brief_repr

    @property
    def loglik_error(self) -> float | None:
        """Mixed less FP64."""
        return None if self.loglik is None else self.loglik_mixed - self.loglik

    @property
    def warning(self) -> str | None:
        """What a user should know of a check that failed."""
        if self.problem is None:
            return None
        what = "log-likelihood, AIC and BIC are those in mixed precision, which could not be judged in FP64"
        if self.lower is not None and self.upper is not None:
            what += f" (off by at most {max(self.upper - self.loglik_mixed, self.loglik_mixed - self.lower):.2g}, as certified)"
        return f"{what if self.loglik is None else 'how far the estimate in FP64 is could not be computed'}: {self.problem}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "shift": None if self.shift is None else dict(self.shift), "loglik_error": self.loglik_error}


def check_precision(
    observations: Observations,
    space: SearchSpace[Any],
    point: NDArray[np.float64],
    options: LikelihoodOptions,
    *,
    mixed: Likelihood,
) -> tuple[Likelihood, PrecisionCheck]:
    """Evaluate value, gradient and information in FP64 at an estimate."""
    threshold = options.settings.precision_threshold
    assert threshold is not None, "asked for in mixed precision only"
    plain = replace(options, settings=options.settings.in_fp64())
    objective = Objective(observations, space, plain, SilentProgress())
    likelihood, check = mixed, PrecisionCheck(threshold, mixed.loglik)
    try:
        known = objective.at(point, gradient=True, information=True)
        if known.likelihood is None:
            assert isinstance(objective.last_error, oc.NotPositiveDefiniteError)
            raise objective.last_error
        likelihood, check = known.likelihood, replace(check, loglik=known.loglik)
        step = scoring_step(space, point, known)
        return likelihood, replace(check, shift=space.shift(step.move), shift_in_errors=step.length)
    except STEP_ERRORS as error:
        check = replace(check, problem=str(error))
        return likelihood, check if check.loglik is not None else _certified(check, observations, space, point, options)


def _certified(
    check: PrecisionCheck,
    observations: Observations,
    space: SearchSpace[Any],
    point: NDArray[np.float64],
    options: LikelihoodOptions,
) -> PrecisionCheck:
    """The check with the interval that one more factor in mixed precision certifies; as it is where that fails, too."""
    variance, reml, settings = space.variance(point), options.reml, options.settings
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", oc.PrecisionWarning)
            with evaluated(observations, space.correlation(point), variance=variance, reml=reml, settings=settings) as found:
                lower, upper = loglik_interval(found.factor, found.observations, found.whitened, variance, reml=reml)
    except STEP_ERRORS:
        return check
    return replace(check, lower=lower, upper=upper) if math.isfinite(upper - lower) else check
