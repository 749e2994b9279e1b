"""How far an estimate by Vecchia's approximation is from exact: one exact evaluation there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.estimation.likelihood import Likelihood
from ooc_chol.apps.geostat.estimation.mean import degrees_of_freedom
from ooc_chol.apps.geostat.estimation.objective import AbstractEvaluationMemory, Known, LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress
from ooc_chol.apps.geostat.estimation.scoring_step import scoring_step
from ooc_chol.apps.geostat.estimation.search import SearchSpace
from ooc_chol.apps.geostat.estimation.vecchia_search import VecchiaOptions
from ooc_chol.apps.geostat.estimation.vecchia_spread import mirrored_log_likelihoods


@dataclass(frozen=True)
class VecchiaCheck:
    """An estimate by Vecchia's approximation beside the exact likelihood.

    Parameters
    ----------
    neighbours : int
        Earlier neighbours of each observation.
    loglik : float
        The approximate log-likelihood at the estimate.
    loglik_exact : float or None
        The exact one there; None where it was skipped or failed, or the matrix is not positive definite in floating point.
    shift : mapping of str to float, or None
        One step of Fisher scoring on the exact likelihood from the estimate: relative change of each parameter that was searched
        for (change in its unit, of one that is no logarithm in the search). The exact estimate lies about there. None unless the
        score was asked for.
    shift_in_errors : float or None
        Length of that step in standard errors.
    seconds : float
        Wall-clock time of the exact evaluation.
    problem : str or None
        Why something that was asked for was not computed, such as memory that was short.
    spread : float or None
        Largest less smallest approximate log-likelihood at the estimate of the mirror images of the map, which have one exact
        likelihood: the noise of the order.
    """

    neighbours: int
    loglik: float
    loglik_exact: float | None = None
    shift: Mapping[str, float] | None = None
    shift_in_errors: float | None = None
    seconds: float = 0.0
    problem: str | None = None
    spread: float | None = None

    __repr__ = tb.brief_repr

    @property
    def gap(self) -> float | None:
        """Approximate less exact, at the estimate."""
        return None if self.loglik_exact is None else self.loglik - self.loglik_exact

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "shift": None if self.shift is None else dict(self.shift), "gap": self.gap}


def check_vecchia(
    observations: Observations,
    model: AbstractCovariance,
    found: tuple[SearchSpace[Any], NDArray[np.float64]],
    options: LikelihoodOptions,
    *,
    vecchia: VecchiaOptions,
    progress: AbstractFitProgress,
    memory: AbstractEvaluationMemory,
    refusal: oc.BudgetError | None = None,
) -> VecchiaCheck:
    """Evaluate the approximation and, unless skipped or known to have no room, the exact likelihood at an estimate."""
    values = mirrored_log_likelihoods(
        observations, model, neighbours=vecchia.neighbours, reml=options.reml, settings=options.settings, last=options.graph
    )
    check = VecchiaCheck(vecchia.neighbours, values[0], spread=max(values) - min(values))
    if vecchia.exact_check == "skip":
        return check
    if refusal is not None:
        return replace(check, problem=str(refusal))
    space, point = found
    objective = Objective(observations, space, options, progress, memory)
    is_derived = vecchia.exact_check == "score" and len(point) > 0
    try:
        known = objective.at(point, gradient=is_derived, information=is_derived)
        check = replace(check, seconds=objective.evaluations[-1].seconds)
        if known.likelihood is None:
            return check
        freedom = degrees_of_freedom(observations, options.reml)
        check = replace(check, loglik_exact=_at_variance(known.likelihood, model.variance, freedom))
        return _with_step(check, objective, point, known) if is_derived else check
    except STEP_ERRORS as error:
        return replace(check, problem=str(error))


def check_warning(check: VecchiaCheck, vecchia: VecchiaOptions) -> str | None:
    """Warning about a check that did not give all that was requested."""
    if check.loglik_exact is not None:
        return None if check.problem is None else f"how far the exact estimate is could not be computed: {check.problem}"
    why = "for the exact one the matrix is not positive definite in floating point"
    if vecchia.exact_check == "skip":
        why = "the exact one was not computed"
    elif check.problem is not None:
        why = f"the exact one could not be computed: {check.problem}"
    return f"log-likelihood, AIC and BIC are those of Vecchia's approximation with {check.neighbours} neighbours: {why}"


def _with_step(check: VecchiaCheck, objective: Objective, point: NDArray[np.float64], known: Known) -> VecchiaCheck:
    """The check with the step that exact scoring would take."""
    step = scoring_step(objective.space, point, known)
    return replace(check, shift=objective.space.shift(step.move), shift_in_errors=step.length)


def _at_variance(likelihood: Likelihood, variance: float, freedom: int) -> float:
    """The log-likelihood at another variance and the same correlation."""

    def part(sigma2: float) -> float:
        return -0.5 * (freedom * math.log(sigma2) + likelihood.quadratic / sigma2)

    return likelihood.loglik + part(variance) - part(likelihood.model.variance)
