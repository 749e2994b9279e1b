"""Check whether one structure fits as well as several: a search on a sample of the conditional densities, after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.nested import Nested
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.estimation.density_sample import SAMPLE_LIMITS, density_sample
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.optimizers import search_from
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.search import SearchSpace
from ooc_chol.apps.geostat.estimation.spaces import family_space


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
        gain, fewer, densities = _compared(observations, space, point, options, neighbours)
    except STEP_ERRORS as error:
        return f"whether one structure fits as well could not be looked at: {error}"
    if gain >= fewer:
        return None
    plural = "s" if fewer > 1 else ""
    return (
        f"one structure with {fewer} parameter{plural} less has the better AIC: the sum gains {gain:.3g} in the log-likelihood "
        f"of {densities} of {observations.n} conditional densities"
    )


def _compared(
    observations: Observations,
    space: SearchSpace[Nested],
    point: NDArray[np.float64],
    options: LikelihoodOptions,
    neighbours: int,
) -> tuple[float, int, int]:
    """Gain of the sum over the best of its structures alone, estimated anew, parameters that saves, and densities looked at."""
    # of data with known errors the variance is searched for: its value is where the search for one structure starts
    model = space.model(point, space.variance(point) or 1.0)
    sample = density_sample(observations, model, neighbours, options.graph)

    def best(single: AbstractCovariance) -> tuple[float, int]:
        own = family_space(observations, single, "free" if space.nugget is None else space.nugget)
        search = Objective(sample.data, own, options, SilentProgress(), graph=sample.graph)
        search_from(search, own.raised(own.point(single)), "fisher", SAMPLE_LIMITS)
        assert search.best is not None, "search_from raises without a likelihood"
        return search.best.loglik, len(own.names)

    value = -Objective(sample.data, space, options, SilentProgress(), graph=sample.graph)(point)
    loglik, count = max(best(single) for single in _alone(model))
    return value - loglik, len(space.names) - count, sample.densities


def _alone(model: Nested) -> Sequence[AbstractCovariance]:
    """The structure of most variance of each family, with the variance and the nugget of all."""
    found: dict[type, AbstractCovariance] = {}
    for component in sorted(model.components, key=lambda component: component.variance):
        found[type(component)] = component.with_values(variance=model.variance, nugget=model.nugget)
    return list(found.values())
