"""Effect of mixed precision on an estimate: the interval of its log-likelihood, and where requested FP64's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.estimation.certified_loglik import bound_text, most_off
from ooc_chol.apps.geostat.estimation.likelihood import Likelihood
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.scoring_step import scoring_step
from ooc_chol.apps.geostat.estimation.search import SearchSpace


@dataclass(frozen=True)
class PrecisionCheck:
    """An estimate in mixed precision: what its log-likelihood may be off, as certified, and where asked for judged in FP64.

    Parameters
    ----------
    threshold : float
        Share of the norm of the matrix by which rounding its tiles was allowed to change it.
    loglik_mixed : float
        Log-likelihood at the estimate, as the last search had it.
    loglik : float or None
        The same in FP64; None where that was not asked for (``exact_check``), or could not be computed.
    shift : mapping of str to float, or None
        One step of Fisher scoring in FP64 from the estimate: relative change of each parameter that was searched for. The
        estimate in FP64 lies about there. None unless the score was asked for.
    shift_in_errors : float or None
        Length of that step in standard errors.
    problem : str or None
        Why something was not computed or certified, such as memory that was short.
    lower, upper : float or None
        Where the log-likelihood of exact arithmetic lies, as certified by the factor; None where it certifies nothing.
    thresholds : tuple of float
        Those of the searches, in order, each on from the end of the one before where that was known too little; None for FP64.
    """

    threshold: float
    loglik_mixed: float
    loglik: float | None = None
    shift: Mapping[str, float] | None = None
    shift_in_errors: float | None = None
    problem: str | None = None
    lower: float | None = None
    upper: float | None = None
    thresholds: tuple[float | None, ...] = ()

    __repr__ = tb.brief_repr

    @property
    def loglik_error(self) -> float | None:
        """Mixed less FP64."""
        return None if self.loglik is None else self.loglik_mixed - self.loglik

    @property
    def most_off(self) -> float | None:
        """The most that the log-likelihood in mixed precision is off that of exact arithmetic; None where that is not known."""
        if self.lower is None or self.upper is None:
            return None
        return most_off(self.loglik_mixed, (self.lower, self.upper))

    @property
    def warning(self) -> str | None:
        """Warning about values that were not computed or certified."""
        if self.problem is None:
            return None
        if self.loglik is not None:
            return f"how far the estimate in FP64 is could not be computed: {self.problem}"
        known = "" if self.most_off is None else f" (off by at most {bound_text(self.most_off)}, as certified)"
        return f"log-likelihood, AIC and BIC are those in mixed precision{known}: {self.problem}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        shift = None if self.shift is None else dict(self.shift)
        more = {"loglik_error": self.loglik_error, "most_off": self.most_off}
        return {**vars(self), "shift": shift, "thresholds": list(self.thresholds), **more}


def certified_check(
    mixed: Likelihood, threshold: float, thresholds: tuple[float | None, ...], problem: str | None
) -> PrecisionCheck:
    """The check by the interval of the last evaluation alone."""
    check = PrecisionCheck(threshold, mixed.loglik, problem=problem, thresholds=thresholds)
    if mixed.interval is None or not np.isfinite(mixed.interval).all():
        return check
    return replace(check, lower=mixed.interval[0], upper=mixed.interval[1])


def checked_in_fp64(
    check: PrecisionCheck,
    observations: Observations,
    found: tuple[SearchSpace[Any], NDArray[np.float64]],
    options: LikelihoodOptions,
    *,
    has_score: bool,
) -> tuple[Likelihood | None, PrecisionCheck]:
    """Evaluate the value in FP64 at an estimate, and gradient and information where asked for."""
    space, point = found
    objective = Objective(observations, space, replace(options, settings=options.settings.in_fp64()), SilentProgress())
    likelihood, is_derived = None, has_score and len(point) > 0
    try:
        known = objective.at(point, gradient=is_derived, information=is_derived)
        if known.likelihood is None:
            assert isinstance(objective.last_error, oc.NotPositiveDefiniteError)
            raise objective.last_error
        likelihood, check = known.likelihood, replace(check, loglik=known.loglik)
        if is_derived:
            step = scoring_step(space, point, known)
            check = replace(check, shift=space.shift(step.move), shift_in_errors=step.length)
        return likelihood, check
    except STEP_ERRORS as error:
        what = "" if likelihood is not None else "FP64 could not judge it: "
        return likelihood, replace(check, problem=f"{what}{error}")
