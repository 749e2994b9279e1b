"""The searches of a fit: a start for each, and what was found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.accounts import Account
from ooc_chol.apps.geostat.data.extents import search_extent
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.certified_search import NEAR_RADIUS, Stages, in_stages, is_near_end
from ooc_chol.apps.geostat.estimation.evaluation_log import EvaluationLog
from ooc_chol.apps.geostat.estimation.fit_result import SmoothnessTrial
from ooc_chol.apps.geostat.estimation.gradient import has_exact_gradient
from ooc_chol.apps.geostat.estimation.likelihood import Likelihood
from ooc_chol.apps.geostat.estimation.objective import AbstractEvaluationMemory, LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.optimizers import DERIVATIVE_FREE, Method, search_from
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress, Evaluation, SilentProgress
from ooc_chol.apps.geostat.estimation.search import Model, SearchSpace
from ooc_chol.apps.geostat.estimation.search_end import SearchEnd, SearchLimits
from ooc_chol.apps.geostat.estimation.subset import neighbourhoods
from ooc_chol.apps.geostat.estimation.variogram_start import variogram_start
from ooc_chol.apps.geostat.estimation.vecchia import graph_of
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import Conditioning
from ooc_chol.apps.geostat.estimation.vecchia_search import (
    VecchiaOptions,
    approximate_maximum,
    approximate_start,
    start_densities,
)
from ooc_chol.apps.geostat.estimation.vecchia_start import VecchiaStart
from ooc_chol.apps.geostat.factorization import FactorSettings

#: Trust-region radius of the first steps on the subset, where the start is rough.
_SUBSET_RADIUS = 1.0

#: Log-likelihood of the subset that its search leaves, a tenth of a standard error away.
_SUBSET_TOLERANCE = 5e-3


@dataclass(frozen=True, eq=False)
class Outcome(Generic[Model]):
    """A trial with the likelihood and the point of its maximum."""

    trial: SmoothnessTrial  #: What the search found, in brief
    likelihood: Likelihood  #: The largest value
    point: NDArray[np.float64]  #: (k,) coordinates of it in ``space``
    space: SearchSpace[Model]
    thresholds: tuple[float | None, ...] = ()  #: Of the searches that led there, each on from the one before; None for FP64
    problem: str | None = None  #: Why the value is not known closely, in mixed precision
    vecchia_start: VecchiaStart | None = None  #: How far it is from where the approximation is largest, if it came from there


@dataclass(eq=False)
class Search:
    """Maximises over one space after the other, and counts."""

    observations: Observations
    options: LikelihoodOptions  #: Which likelihood, and how it is computed
    progress: AbstractFitProgress  #: Told of every evaluation on all observations
    method: Method
    limits: SearchLimits
    memory: EvaluationLog  #: Evaluations and starts of an earlier run, and where these are kept
    vecchia: VecchiaOptions  #: What is done with Vecchia's approximation
    account: Account  #: Where the seconds of starts and searches are counted
    evaluations: list[Evaluation] = field(default_factory=list)  #: All on all observations so far
    subset_evaluations: int = 0  #: Evaluations for starts, and from the log
    reused: int = 0
    start: str = "subset"  #: Where the last search came from

    def __post_init__(self) -> None:
        #: The threshold of the first search, None for FP64
        self.asked = self.options.settings.precision_threshold

    def maximise(self, space: SearchSpace[Model], given: NDArray[np.float64] | None) -> Outcome[Model]:
        """Find a start, then search with all observations."""
        with self.account.part("starts"):
            start = self._begin(space, given)
        return self.maximise_from(space, start, is_vecchia=self.vecchia.improve(self.observations) and self.start != "variogram")

    def maximise_from(self, space: SearchSpace[Model], start: NDArray[np.float64], *, is_vecchia: bool = False) -> Outcome[Model]:
        """Search with all observations from a point, which may be one where Vecchia's approximation is largest."""
        with self.account.part("run"):
            return self._maximised(space, start, is_vecchia)

    def _maximised(self, space: SearchSpace[Model], start: NDArray[np.float64], is_vecchia: bool) -> Outcome[Model]:
        """The end of a search, or of several in mixed precision."""
        if self.method in DERIVATIVE_FREE:
            start = space.raised(start)
        if self.method == "vecchia":
            found = approximate_maximum(
                self.observations,
                space,
                start,
                self.options,
                neighbours=self.vecchia.neighbours,
                limits=self.limits,
                progress=self.progress,
                memory=self.memory,
            )
            stages = Stages((found[0],), found[1])
        else:
            exactly = partial(self._exactly, space, self._information_graph(space, start))
            stages = in_stages(exactly, self.options.settings, start, progress=self.progress)
            self.options = stages.last.options
        evaluations = [evaluation for objective in stages.objectives for evaluation in objective.evaluations]
        self.evaluations += evaluations
        self.reused += sum(objective.reused for objective in stages.objectives)
        likelihood, point, end = stages.last.best, stages.last.best_point, stages.end
        assert likelihood is not None and point is not None, "search_from raises when no matrix is positive definite"
        correlation = space.correlation(point)
        trial = SmoothnessTrial(
            smoothness=correlation.values.get("smoothness"),
            loglik=likelihood.loglik,
            range=correlation.values.get("range"),
            nugget_ratio=correlation.nugget,
            evaluations=len(evaluations),
            not_positive_definite=sum(objective.not_positive_definite for objective in stages.objectives),
            converged=end.converged,
            message=end.message,
            gain=end.gain,
            errors=end.errors,
            interval=None if likelihood.interval is None or likelihood.interval[0] == -math.inf else likelihood.interval,
        )
        away = self._away(stages, start, point) if is_vecchia else None
        return Outcome(trial, likelihood, point, space, stages.thresholds, stages.problem, away)

    def _away(self, stages: Stages, start: NDArray[np.float64], point: NDArray[np.float64]) -> VecchiaStart | None:
        """How far an exact estimate is from its start by the approximation; None where no derivatives tell."""
        first, last = (objective.known(where) for objective, where in ((stages.objectives[0], start), (stages.last, point)))
        if self.method not in ("fisher", "lbfgs") or first is None or last is None or first.likelihood is None:
            return None
        information = first.information if last.information is None else last.information
        if information is None:
            return None
        move = point - start
        densities = start_densities(self.observations.n, self.options.settings)
        errors = math.sqrt(max(0.0, float(move @ information @ move)))
        return VecchiaStart(self.vecchia.neighbours, densities, last.loglik - first.loglik, errors)

    def _exactly(
        self, space: SearchSpace[Any], expected: Conditioning | None, settings: FactorSettings, start: NDArray[np.float64]
    ) -> tuple[Objective, SearchEnd]:
        """Search on the exact likelihood with some settings."""
        threshold, method, limits = settings.precision_threshold, self.method, self.limits
        objective = Objective(
            self.observations,
            space,
            replace(self.options, settings=settings),
            self.progress,
            self._memory_at(threshold),
            expected=expected,
            may_end=partial(is_near_end, limits, space) if self.asked is not None else None,
        )
        if threshold != self.asked:
            limits = replace(limits, radius=NEAR_RADIUS)
        assert method != "vecchia", "that is not exact"
        end = search_from(objective, start, method, limits)
        if method != "fisher":  # scoring goes to the floor itself
            self._try_floor(objective)
        return objective, end

    def _memory_at(self, threshold: float | None) -> AbstractEvaluationMemory:
        """Where evaluations at a threshold are kept: those at the one that was asked for are the fit's own."""
        return self.memory if threshold == self.asked else self.memory.section(f"threshold {threshold!r}")

    def _information_graph(self, space: SearchSpace[Any], start: NDArray[np.float64]) -> Conditioning | None:
        """Neighbours by which GPUs tell the information of a large fit in milliseconds; None where probes or exact sums do.

        The approximation has no information of the restricted likelihood.
        """
        by_probes = not has_exact_gradient(self.options.trace_sums, self.observations.n) and not self.options.reml
        if not by_probes or self.method != "fisher" or not tb.cuda_names(self.options.settings.here["devices"]):
            return None
        return graph_of(self.observations, space.correlation(start), self.vecchia.neighbours, last=self.options.graph)

    def _begin(self, space: SearchSpace[Any], given: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Where the search starts: as the log of an earlier run says, by the approximation, as given, or by the subset."""
        if self.vecchia.starts == "variogram":
            self.start = "variogram"
            return variogram_start(self.observations, space)
        improved = self.vecchia.improve(self.observations)
        if given is not None and not improved:
            self.start = "template"
            return given
        # a rough start for the approximation is none for an exact search
        is_rough = self.method == "vecchia"
        how = ["vecchia", self.vecchia.neighbours, is_rough, None if given is None else given.tolist()]
        label = how if improved else "all"
        known = self.memory.start(space, label)
        if known is None and self.vecchia.starts == "auto":
            # a log may be of a version that knew no other start
            known = self.memory.start(space, "all")
        if known is not None:
            self.start = "log"
            return known
        if improved:
            start, count = approximate_start(
                self.observations, space, given, self.options, neighbours=self.vecchia.neighbours, is_rough=is_rough
            )
            self.start, self.subset_evaluations = "vecchia", self.subset_evaluations + count
        else:
            self.start, start = "subset", self._start(space)
        self.memory.keep_start(space, label, start)
        return start

    def _start(self, space: SearchSpace[Any]) -> NDArray[np.float64]:
        """Best point of a coarse grid on the subset, improved there when the subset is not everything."""
        subset = neighbourhoods(self.observations)
        starts = space.starts(search_extent(subset.places))
        if np.ptp(subset.values) == 0.0:
            return starts[len(starts) // 2]
        plain = self.options.settings.in_fp64()
        settings = replace(plain, tile_size=None, memory_budget=None, host_budget=None, store=None, planned=None)
        objective = Objective(subset, space, replace(self.options, settings=settings), SilentProgress())
        point = min(starts, key=objective)
        if subset.n < self.observations.n:
            limits = replace(self.limits, tolerance=_SUBSET_TOLERANCE, radius=_SUBSET_RADIUS)
            search_from(objective, point, next((m for m in DERIVATIVE_FREE if m == self.method), "fisher"), limits)
            point = point if objective.best_point is None else objective.best_point
        self.subset_evaluations += len(objective.evaluations)
        return point

    def _try_floor(self, objective: Objective) -> None:
        """Where the likelihood is flat in a small nugget, see whether it is largest without any."""
        space, point = objective.space, objective.best_point
        if space.nugget is None and point is not None and space.is_small_nugget(point):
            objective(space.at_floor(point))
