"""Searches in mixed precision: certified at their end, and gone on with at smaller thresholds where that says too little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.covariance import covariance_source
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.estimation.certified_loglik import most_off
from ooc_chol.apps.geostat.estimation.objective import Known, Objective
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress
from ooc_chol.apps.geostat.estimation.scoring_step import scoring_step
from ooc_chol.apps.geostat.estimation.search import SearchSpace
from ooc_chol.apps.geostat.estimation.search_end import WIDEST, SearchEnd, SearchLimits
from ooc_chol.apps.geostat.factorization import FactorSettings

#: How much smaller the second threshold is; the third search is in FP64. Below the last threshold FP64 is no more work.
_SMALLER, _LEAST = 100.0, 1e-12

#: Trust region of a search without derivatives that goes on from the end of another one.
NEAR_RADIUS = 0.1

#: A search may end where the next step gains so many tolerances, or so many times what errors of probes or of values hide.
_TOLERANCES, _NOISES = 100.0, 4.0

#: A search by some settings, from a point: its evaluations, and how it ended.
_Search = Callable[[FactorSettings, NDArray[np.float64]], tuple[Objective, SearchEnd]]


@dataclass(frozen=True, eq=False)
class Stages:
    """Searches that each go on from the end of the one before."""

    objectives: tuple[Objective, ...]
    end: SearchEnd  #: Of the last one
    thresholds: tuple[float | None, ...] = ()  #: Of each, None for FP64; empty of a search without a threshold
    problem: str | None = None  #: Why the value at the end is not known closely, where it is not

    @property
    def last(self) -> Objective:
        """The search that found the estimate."""
        return self.objectives[-1]


def in_stages(search: _Search, settings: FactorSettings, start: NDArray[np.float64], *, progress: AbstractFitProgress) -> Stages:
    """Search; with a threshold again with a smaller one, and in FP64 at last, until the value is certified closely enough."""
    objective, end = search(settings, start)
    if settings.precision_threshold is None:
        return Stages((objective,), end)
    thresholds: tuple[float | None, ...] = (settings.precision_threshold,)
    found = replace(Stages((objective,), end, thresholds), problem=_certified(objective))
    while found.problem is None and _off(found.last) > WIDEST and (threshold := found.thresholds[-1]) is not None:
        smaller = threshold / _SMALLER if len(found.thresholds) == 1 and threshold > _SMALLER * _LEAST else None
        progress.remarked(f"{_known_text(found.last)}: the search goes on {_with(smaller)}")
        found = _gone_on(search, settings.at_threshold(smaller), found)
    if found.problem is None and not _off(found.last) <= WIDEST:
        problem = f"{_known_text(found.last)}; the matrix is nearly singular: give the model a nugget (or a larger one)"
        found = replace(found, problem=problem)
    return found


def is_near_end(limits: SearchLimits, space: SearchSpace[Any], point: NDArray[np.float64], known: Known) -> bool:
    """Tell whether a search by scoring may end at a point, as far as a step without what the last ones have shown tells."""
    step = scoring_step(space, point, known)
    return step.gain <= max(_TOLERANCES * limits.tolerance, _NOISES * step.noise, 2.0 * WIDEST)


def _gone_on(search: _Search, settings: FactorSettings, found: Stages) -> Stages:
    """The searches with one more from the end of the last; where that fails these, and why."""
    try:
        refusal = settings.refusal(covariance_source(found.last.space.template, found.last.observations.coordinates))
        if refusal is not None:
            raise refusal
        assert found.last.best_point is not None, "a search that has ended has a best point"
        objective, end = search(settings, found.last.best_point)
    except STEP_ERRORS as error:
        what = f"{_known_text(found.last)}, and a search {_with(settings.precision_threshold)} failed"
        return replace(found, problem=f"{what}: {error}")
    thresholds = (*found.thresholds, settings.precision_threshold)
    return Stages((*found.objectives, objective), end, thresholds, _certified(objective))


def _certified(objective: Objective) -> str | None:
    """Have the best value certified; returns why that failed, where it did."""
    try:
        objective.certify_best()
    except STEP_ERRORS as error:
        return f"the log-likelihood could not be certified: {error}"
    return None


def _off(objective: Objective) -> float:
    """The most that the best value is off."""
    assert objective.best is not None, "a search that has ended has a best value"
    return most_off(objective.best.loglik, objective.best.interval)


def _known_text(objective: Objective) -> str:
    """How closely the best value is known."""
    with_what, off = _with(objective.options.settings.precision_threshold), _off(objective)
    return f"{with_what} " + ("nothing is certified" if off == np.inf else f"the log-likelihood is known only to {off:.2g}")


def _with(threshold: float | None) -> str:
    """How factors are made."""
    return "in FP64" if threshold is None else f"at threshold {threshold:.3g}"
