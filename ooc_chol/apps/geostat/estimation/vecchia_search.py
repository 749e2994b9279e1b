"""Searches on Vecchia's approximation: a start for exact ones, or the maximum itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.extents import search_extent
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.evaluation_log import EvaluationLog
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.optimizers import search_from
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress, Evaluation, SilentProgress
from ooc_chol.apps.geostat.estimation.search import SearchSpace
from ooc_chol.apps.geostat.estimation.search_end import SearchEnd, SearchLimits
from ooc_chol.apps.geostat.estimation.subset import without_mean
from ooc_chol.apps.geostat.estimation.vecchia import graph_of
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import NEIGHBOURS, check_neighbours, compare_otherwise
from ooc_chol.apps.geostat.factorization import FactorSettings

#: ``"template"``: at the values of ``covariance``; ``"subset"``: five neighbourhoods, exactly; ``"vecchia"``: improved by the
#: approximation; ``"auto"``: that for many observations, else one of the other two.
Starts = Literal["auto", "template", "subset", "vecchia", "variogram"]

#: What is computed exactly at an estimate by Vecchia's approximation.
ExactCheck = Literal["value", "score", "skip"]

#: Observations from which an exact evaluation takes longer than a whole search on the approximation.
LARGE = 5_000

#: Conditional densities of the first search of a start, and at most of the second.
_FIRST_TARGETS = 1_000
_MOST_TARGETS = 20_000

#: A search for a start ends where so much log-likelihood is left, a tenth of a standard error away, or after so many evaluations.
_START_LIMITS = SearchLimits(tolerance=5e-3, max_evaluations=40)

#: How often neighbours are looked for at most, as the coordinates in which they are nearest depend on the estimate.
_ROUNDS = 3

_Point = NDArray[np.float64]


@dataclass(frozen=True)
class VecchiaOptions:
    """Options of Vecchia's approximation in a fit."""

    neighbours: int = NEIGHBOURS  #: Earlier neighbours of each observation
    starts: Starts = "auto"
    exact_check: ExactCheck = "value"  #: What is computed exactly at an estimate by the approximation

    def __post_init__(self) -> None:
        check_neighbours(self.neighbours)
        for name, choices in (("starts", Starts), ("exact_check", ExactCheck)):
            known = choices.__args__  # type: ignore[attr-defined]  # of a Literal
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but there are {', '.join(known)}")

    def improve(self, observations: Observations) -> bool:
        """Tell whether the approximation says where the search starts."""
        return self.starts == "vecchia" or (self.starts == "auto" and observations.n >= LARGE)


def approximate_start(
    observations: Observations,
    space: SearchSpace[Any],
    given: _Point | None,
    options: LikelihoodOptions,
    *,
    neighbours: int,
    is_rough: bool = False,
) -> tuple[_Point, int]:
    """Where the approximation is largest, to a tenth of a standard error.

    First with 1,000 of the conditional densities, then with up to 20,000, or on GPUs all; all observations can be neighbours. A
    sample keeps what a part of the sites does not: near neighbours and far ones.
    """
    evaluations: list[Evaluation] = []
    point = given
    for count in (_FIRST_TARGETS,) if is_rough else (_FIRST_TARGETS, start_densities(observations.n, options.settings)):
        scaled_by = space.template if point is None else space.correlation(point)
        graph = graph_of(observations, scaled_by, neighbours, last=options.graph).sampled(count)
        # a covariate may be constant in a sample
        data = observations if count >= observations.n else without_mean(observations)
        objective = Objective(data, space, options, SilentProgress(), evaluations=evaluations, graph=graph)
        if point is None:
            point = min(space.starts(search_extent(observations.places)), key=objective)
        search_from(objective, point, "fisher", _START_LIMITS)
        point = objective.best_point
    assert point is not None, "search_from raises when no matrix is positive definite"
    return point, len(evaluations)


def start_densities(n: int, settings: FactorSettings) -> int:
    """Conditional densities that a start is found with: all where GPUs compute them, for they take milliseconds there."""
    return n if tb.cuda_names(settings.here["devices"]) else min(n, _MOST_TARGETS)


def approximate_maximum(
    observations: Observations,
    space: SearchSpace[Any],
    start: _Point,
    options: LikelihoodOptions,
    *,
    neighbours: int,
    limits: SearchLimits,
    progress: AbstractFitProgress,
    memory: EvaluationLog,
) -> tuple[Objective, SearchEnd]:
    """Maximise the approximation by Fisher scoring, with neighbours that are nearest by the estimate.

    Where distances compare as before at the estimate (always in isotropic models), one round is all; else up to three.
    """
    evaluations: list[Evaluation] = []
    point, reused, scaled_by = start, 0, space.correlation(start)
    for last in (False,) * (_ROUNDS - 1) + (True,):
        graph = graph_of(observations, scaled_by, neighbours, last=options.graph)
        section = memory.section(f"vecchia, {neighbours} neighbours of whole places by {scaled_by!r}")
        objective = Objective(observations, space, options, progress, section, graph, evaluations=evaluations, reused=reused)
        left = replace(limits, max_evaluations=max(1, limits.max_evaluations - len(evaluations)))
        end = search_from(objective, point, "fisher", left)
        assert objective.best_point is not None, "search_from raises when no matrix is positive definite"
        point, reused = objective.best_point, objective.reused
        found = space.correlation(point)
        if last or not _neighbours_move(observations, scaled_by, found):
            break
        scaled_by = found
    return objective, end


def _neighbours_move(observations: Observations, before: AbstractCovariance, after: AbstractCovariance) -> bool:
    """Tell whether others are nearest by another model."""
    sites = observations.coordinates
    return compare_otherwise(before.comparable_sites(sites), after.comparable_sites(sites))
