"""Check whether a smoothness that is kept is rejected: likelihoods of a sample, by Vecchia's approximation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.density_sample import SAMPLE_LIMITS, density_sample
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.optimizers import search_from
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.search import Nugget
from ooc_chol.apps.geostat.estimation.smoothness_comparison import SmoothnessComparison, compared
from ooc_chol.apps.geostat.estimation.spaces import search_space

#: Where slope and information promise less log-likelihood than this nothing is searched for: 3.3 is what rejects.
_LITTLE = 1.0


def sampled_comparison(
    observations: Observations, model: Matern, options: LikelihoodOptions, *, nugget: Nugget, neighbours: int
) -> SmoothnessComparison:
    """Compare the smoothness of a model with one that is estimated, both with range and nugget of their own on the sample."""
    sample = density_sample(observations, model, neighbours, options.graph)
    kept, free = (
        Objective(sample.data, search_space(observations, nugget, nu), options, SilentProgress(), graph=sample.graph)
        for nu in (model.smoothness, None)
    )
    start = free.space.point(model)
    if _promised(free, start) < _LITTLE:
        return compared(model.smoothness, model.smoothness, 0.0, densities=sample.densities)
    search_from(free, start, "fisher", SAMPLE_LIMITS)
    search_from(kept, kept.space.point(model), "fisher", SAMPLE_LIMITS)
    assert free.best is not None and free.best_point is not None and kept.best is not None, "search_from raises without one"
    found = free.space.correlation(free.best_point).smoothness
    return compared(model.smoothness, found, free.best.loglik - kept.best.loglik, densities=sample.densities)


def _promised(objective: Objective, point: NDArray[np.float64]) -> float:
    """Log-likelihood that a step of Fisher scoring promises, ``g' inv(I) g / 2``; infinite where there is none."""
    known = objective.at(point, gradient=True, information=True)
    if known.gradient is None or known.information is None:
        return float("inf")
    return 0.5 * float(known.gradient @ np.linalg.lstsq(known.information, known.gradient, rcond=None)[0])
