"""Whether one structure would fit as well as several: a search on a sample of the conditional densities, after a fit of a sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.nested import Nested
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.optimizers import search_from
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.search import SearchSpace
from ooc_chol.apps.geostat.estimation.search_end import SearchLimits
from ooc_chol.apps.geostat.estimation.spaces import family_space
from ooc_chol.apps.geostat.estimation.subset import without_mean
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import conditioning

#: Conditional densities that are looked at, and when a search on them ends.
_TARGETS = 1_000
_LIMITS = SearchLimits(tolerance=5e-3, max_evaluations=20)


def structure_warning(
    observations: Observations,
    estimate: tuple[SearchSpace[Any], NDArray[np.float64]],
    options: LikelihoodOptions,
    *,
    neighbours: int,
) -> str | None:
    """Say that one structure has the better AIC; None where it has not, or the model has one only."""
    space, point = estimate
    if not isinstance(space.template, Nested):
        return None
    try:
        gain, fewer = _compared(observations, space, point, options, neighbours)
    except STEP_ERRORS as error:
        return f"whether one structure fits as well could not be looked at: {error}"
    if gain >= fewer:
        return None
    plural = "s" if fewer > 1 else ""
    return (
        f"one structure with {fewer} parameter{plural} less has the better AIC: the sum gains {gain:.3g} in the log-likelihood "
        f"of {min(_TARGETS, observations.n)} of {observations.n} conditional densities"
    )


def _compared(
    observations: Observations,
    space: SearchSpace[Nested],
    point: NDArray[np.float64],
    options: LikelihoodOptions,
    neighbours: int,
) -> tuple[float, int]:
    """How much the sum gains over the best of its structures alone, estimated anew, and how many parameters that saves."""
    # of data with known errors the variance is searched for: its value is where the search for one structure starts
    model = space.model(point, space.variance(point) or 1.0)
    graph = conditioning(model.comparable_sites(observations.coordinates), neighbours).sampled(_TARGETS)
    # a covariate may be constant in a sample
    data = observations if observations.n <= _TARGETS else without_mean(observations)

    def best(single: AbstractCovariance) -> tuple[float, int]:
        own = family_space(observations, single, "free" if space.nugget is None else space.nugget)
        search = Objective(data, own, options, SilentProgress(), graph=graph)
        search_from(search, own.raised(own.point(single)), "fisher", _LIMITS)
        assert search.best is not None, "search_from raises without a likelihood"
        return search.best.loglik, len(own.names)

    value = -Objective(data, space, options, SilentProgress(), graph=graph)(point)
    loglik, count = max(best(single) for single in _alone(model))
    return value - loglik, len(space.names) - count


def _alone(model: Nested) -> Sequence[AbstractCovariance]:
    """The structure of most variance of each family, with the variance and the nugget of all."""
    found: dict[type, AbstractCovariance] = {}
    for component in sorted(model.components, key=lambda component: component.variance):
        found[type(component)] = component.with_values(variance=model.variance, nugget=model.nugget)
    return list(found.values())
