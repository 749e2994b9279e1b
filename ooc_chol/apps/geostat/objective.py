"""The function that a fit maximises, with its memory, and the search for its maximum from one starting point."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

import ooc_chol as oc
from ooc_chol.apps.geostat.covariance import Matern
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.likelihood import Likelihood, profile_log_likelihood
from ooc_chol.apps.geostat.observations import Observations
from ooc_chol.apps.geostat.progress import AbstractFitProgress, Evaluation
from ooc_chol.apps.geostat.search import SearchSpace

#: Shorter ranges tried when the correlation matrix at the start is not positive definite, each a third of the one before.
_RETREATS = 10

#: A search has settled when so many evaluations in a row have together raised the log-likelihood by less than so many tolerances.
_PATIENCE = 10
_LEAST_GAIN_IN_TOLERANCES = 5.0


@dataclass(eq=False)
class Objective:
    """Minus the profile log-likelihood at a point of the search space; remembers all evaluations and the best one.

    Parameters
    ----------
    observations : Observations
        The data.
    space : SearchSpace
        What the coordinates of a point mean.
    smoothness : float
        ``nu``.
    settings : FactorSettings
        How every factorization runs.
    progress : AbstractFitProgress
        Told of every evaluation.
    """

    observations: Observations
    space: SearchSpace
    smoothness: float
    settings: FactorSettings
    progress: AbstractFitProgress
    evaluations: list[Evaluation] = field(default_factory=list)
    best: Likelihood | None = None
    best_point: NDArray[np.float64] | None = None
    last_error: oc.NotPositiveDefiniteError | None = None
    _known: dict[bytes, float] = field(default_factory=dict)

    def __call__(self, point: NDArray[np.float64]) -> float:
        """The value at ``point``, factored once even when it is asked for twice."""
        name = np.asarray(point).tobytes()
        if name not in self._known:
            self._known[name] = self._evaluate(point)
        return self._known[name]

    @property
    def not_positive_definite(self) -> int:
        """Number of evaluations whose matrix was not positive definite."""
        return sum(not math.isfinite(evaluation.loglik) for evaluation in self.evaluations)

    def has_settled(self, gain: float, since: int) -> bool:
        """Whether the last ten evaluations, all later than the first ``since``, gained less than ``gain``."""
        values = [evaluation.loglik for evaluation in self.evaluations]
        before = max(values[:-_PATIENCE], default=-math.inf)
        return len(values) - since > _PATIENCE and math.isfinite(before) and max(values) - before < gain

    def _evaluate(self, point: NDArray[np.float64]) -> float:
        """One factorization; a matrix that is not positive definite counts as minus infinity, and as a step that looks bad."""
        correlation = self.space.correlation(point, self.smoothness)
        self.progress.evaluation_started(correlation)
        start = time.perf_counter()
        try:
            found = profile_log_likelihood(
                self.observations,
                correlation,
                nugget=self.space.fixed_nugget,
                settings=self.settings,
                progress=self.progress.advanced,
            )
        except oc.NotPositiveDefiniteError as error:
            self.last_error = error
            self._record(correlation, -math.inf, time.perf_counter() - start)
            return self._penalty()
        if self.best is None or found.loglik > self.best.loglik:
            self.best, self.best_point = found, np.array(point)
        self._record(correlation, found.loglik, found.seconds)
        return -found.loglik

    def _record(self, correlation: Matern, loglik: float, seconds: float) -> None:
        evaluation = Evaluation(self.smoothness, correlation.range, correlation.nugget, loglik, seconds)
        self.evaluations.append(evaluation)
        self.progress.evaluation_finished(evaluation)

    def _penalty(self) -> float:
        """A finite value worse than all seen, not so large that it ruins the optimiser's quadratic model."""
        values = [-evaluation.loglik for evaluation in self.evaluations if math.isfinite(evaluation.loglik)]
        return max(values) + (max(values) - min(values)) + 1.0 if values else math.inf


@dataclass(frozen=True)
class SearchEnd:
    """How a search ended.

    Parameters
    ----------
    converged : bool
        Whether it ended because of the tolerance.
    message : str
        Why, in words.
    """

    converged: bool
    message: str


def search_from(
    objective: Objective, start: NDArray[np.float64], *, radius: float, tolerance: float, max_evaluations: int
) -> SearchEnd:
    """Look for the maximum by COBYQA, from ``start`` or from the first shorter range at which the matrix is positive definite.

    Parameters
    ----------
    objective : Objective
        The function; holds the best point afterwards.
    start : (k,) array
        A point of its space.
    radius, tolerance : float
        First and last trust-region radius; the search also ends when ten evaluations together gain less than ``5 * tolerance``.
    max_evaluations : int
        Evaluations allowed.

    Returns
    -------
    SearchEnd
        Why it ended.

    Raises
    ------
    NotPositiveDefiniteError
        The matrix is not positive definite at any of the ranges tried.
    """
    space, gain = objective.space, _LEAST_GAIN_IN_TOLERANCES * tolerance
    point = _first_feasible(objective, np.clip(start, space.lower, space.upper))
    # COBYQA's first 2 k + 1 evaluations, of which this was one, only make its model
    since = len(objective.evaluations) + 2 * len(point)

    def stop_when_settled(intermediate_result: object) -> None:
        if objective.has_settled(gain, since):
            raise StopIteration

    solution = minimize(
        objective,
        point,
        method="COBYQA",
        bounds=list(zip(space.lower, space.upper, strict=True)),
        callback=stop_when_settled,
        options={"initial_tr_radius": max(radius, tolerance), "final_tr_radius": tolerance, "maxfev": max_evaluations},
    )
    if objective.has_settled(gain, since):
        return SearchEnd(True, f"{_PATIENCE} evaluations raised the log-likelihood by less than {gain:g}")
    return SearchEnd(bool(solution.success), str(solution.message))


def _first_feasible(objective: Objective, point: NDArray[np.float64]) -> NDArray[np.float64]:
    """The start, or a shorter range, at which the matrix is positive definite."""
    for _ in range(_RETREATS):
        if math.isfinite(objective(point)):
            return point
        shorter = point.copy()
        shorter[0] -= math.log(3.0)
        point = np.clip(shorter, objective.space.lower, objective.space.upper)
    assert objective.last_error is not None, "only a matrix that is not positive definite gives an infinite value"
    raise objective.last_error
